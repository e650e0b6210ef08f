"""Runs batches of requests on a callable: bytes in, one graphed call, bytes out.

The bytes of a batch's requests, one behind the other, are the batch's tensor; `graphed` pads its
rows up to a recorded size and cuts the outputs back. Where the batched call raises, every request
runs alone, so that one bad request fails alone. Where other rows, or padding, have been seen to
change an answer, rows depend on each other, and from then on no request runs with those of other
clients; that is looked for before the first batch of different rows is answered.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import torch
from torch import Tensor

from ostinato.errors import OstinatoError, UsageError
from ostinato.graphs import Buckets, Reason, Runner, graphed
from ostinato.serve.callable.arrays import Array, Arrays, TensorSpec, cut_rows, kind_of
from ostinato.serve.callable.company import Tensors, dependence, two_rows
from ostinato.serve.callable.declaration import Servable
from ostinato.serve.callable.faults import failed, failed_on_zeros

_log = logging.getLogger(__name__)
_MOST_TRIED: Final = 64  # clients choose the sizes that may vary, and each trial takes a few runs
_TORCH: Final[Mapping[str, torch.dtype]] = MappingProxyType(
    {
        "BOOL": torch.bool,
        "UINT8": torch.uint8,
        "UINT16": torch.uint16,
        "UINT32": torch.uint32,
        "UINT64": torch.uint64,
        "INT8": torch.int8,
        "INT16": torch.int16,
        "INT32": torch.int32,
        "INT64": torch.int64,
        "FP16": torch.float16,
        "BF16": torch.bfloat16,
        "FP32": torch.float32,
        "FP64": torch.float64,
    }
)
_WORDS: Final = MappingProxyType({dtype: word for word, dtype in _TORCH.items()})


class DeviceLost(Exception):
    """The device refuses all further work: the process must end, another one can begin."""


class Model:
    """A servable, recorded.

    Attributes:
        outputs: Specs found when it was warmed; empty before.
        rows: Of the call that is answered now; 0 between calls, and while it is warmed.
        mixes_rows: Whether a row's answer has been seen to depend on other rows.
        largest_recorded: Rows of the largest recording; None: one that was handed over `graphed`
            has sizes of its own.

    Raises:
        UsageError: OST6052, an input is no argument of the callable.
    """

    def __init__(self, servable: Servable) -> None:
        self.servable = servable
        self.outputs: dict[str, TensorSpec] = {}
        self.rows = 0
        self.mixes_rows = False
        self._tried: set[object] = set()
        self._device = torch.device(servable.device)
        _check_arguments(servable)
        self._call: Callable[..., Any] = servable.fn
        self.largest_recorded: int | None = None
        if not isinstance(servable.fn, Runner):
            # The last row again: a value that the model is known to take, ids and sizes included.
            rows = Buckets(0, sorted(servable.batch_sizes), fill="repeat-last")
            buckets = dict.fromkeys(servable.inputs, rows)
            self._call = graphed(servable.fn, buckets=buckets, admit_after=1)
            self.largest_recorded = max(servable.batch_sizes)

    @property
    def runner(self) -> Runner[..., Any]:
        """What replays; its `report()` says how often."""
        if not isinstance(self._call, Runner):
            raise TypeError("a model calls a runner")
        return self._call

    def warm(self) -> None:
        """Run every size once, so that the first request finds its recording.

        Raises:
            UsageError: OST6052, what it returns cannot be served.
            ResourceError: OST6055, it fails on zeros.
        """
        for shapes in self.servable.sizes_to_warm():
            for rows in sorted(self.servable.batch_sizes):
                self._learn(shapes, rows)
        for rows in (1, 2) if not self.outputs else ():  # what varies is tried with two sizes
            self._learn(
                {
                    name: tuple(rows if size == -1 else size for size in spec.shape[1:])
                    for name, spec in self.servable.inputs.items()
                },
                rows,
            )

    def _learn(self, shapes: Mapping[str, tuple[int, ...]], rows: int) -> None:
        inputs = {
            name: torch.zeros(
                (rows, *shapes[name]), dtype=_TORCH[spec.datatype], device=self._device
            )
            for name, spec in self.servable.inputs.items()
        }
        try:
            with torch.no_grad():
                made = self._named(self._call(**inputs))
        except OstinatoError:
            raise
        except BaseException as error:
            raise failed_on_zeros(error) from error
        for name, tensor in made.items():
            if tensor.dim() == 0 or tensor.shape[0] != rows:
                raise _unservable(
                    f"the output {name!r} has the shape {list(tensor.shape)} for {rows} rows",
                    "return tensors whose first dimension is that of the inputs",
                )
            self._note(name, tensor)

    def _note(self, name: str, tensor: Tensor) -> None:
        known = self.outputs.get(name)
        shape = tuple(tensor.shape[1:])
        if known is not None:  # a size that differed between two runs is one that varies
            pairs = zip(known.shape[1:], shape, strict=True)
            shape = tuple(size if size == old else -1 for old, size in pairs)
        self.outputs[name] = TensorSpec(_WORDS[tensor.dtype], (-1, *shape))

    def run(self, batch: Sequence[Arrays]) -> list[Arrays | OstinatoError]:
        """Answer a batch; a request that fails is answered with its error.

        Raises:
            DeviceLost: Nothing can run on this device any more.
        """
        if self.mixes_rows and len(batch) > 1:
            return self._run_alone(batch)
        if len(batch) > 1:
            self._try_company(batch)
            if self.mixes_rows:
                return self._run_alone(batch)
        try:
            answers: list[Arrays | OstinatoError] = list(self._run_together(batch))
        except BaseException as error:  # noqa: BLE001 - `sys.exit` too is the answer of one request
            _look_for_lost_device(error)
            if len(batch) == 1:
                return [error if isinstance(error, OstinatoError) else failed(error)]
            return self._run_alone(batch)
        self._look_for_mixed_rows()
        return self._run_alone(batch) if self.mixes_rows and len(batch) > 1 else answers

    def _run_alone(self, batch: Sequence[Arrays]) -> list[Arrays | OstinatoError]:
        return [self.run([one])[0] for one in batch]

    def _try_company(self, batch: Sequence[Arrays]) -> None:
        """Before rows of several clients share a run for the first time, see whether they mix.

        Once for each set of sizes that is new. The callable itself runs: no size must fit.
        """
        kind = kind_of(batch[0])
        if kind in self._tried or len(self._tried) >= _MOST_TRIED:
            return
        inputs = {name: self._join(name, batch) for name in self.servable.inputs}
        places = two_rows(inputs)
        if places is None:
            return  # of equal rows nothing can be seen
        fn = self.servable.fn.fn if isinstance(self.servable.fn, Runner) else self.servable.fn

        def call(tensors: Tensors) -> Tensors:
            return self._named(fn(**tensors))

        try:
            with torch.no_grad():
                found = dependence(call, inputs, places)
        except BaseException as error:  # noqa: BLE001 - the run itself will say so
            _look_for_lost_device(error)
            return
        self._tried.add(kind)
        if found:
            self._keep_rows_apart(f"in other company, {found}")

    def _look_for_mixed_rows(self) -> None:
        last = self.runner.last
        if not self.mixes_rows and last is not None and last.reason is Reason.PADDING_LEAKS:
            self._keep_rows_apart(f"padding-leaks: {last.detail}")

    def _keep_rows_apart(self, why: str) -> None:
        self.mixes_rows = True
        _log.warning(
            "the model's rows depend on each other (%s): from now on every request runs alone; "
            "make each row's answer depend on that row only",
            why,
        )

    def _run_together(self, batch: Sequence[Arrays]) -> Sequence[Arrays]:
        sizes = [next(iter(one.values())).rows for one in batch]
        inputs = {name: self._join(name, batch) for name in self.servable.inputs}
        self.rows = sum(sizes)
        try:
            with torch.no_grad():
                made = self._as_declared(self._call(**inputs), self.rows)
        finally:
            self.rows = 0
        parts = {name: cut_rows(_array(tensor), sizes) for name, tensor in made.items()}
        return [{name: parts[name][place] for name in parts} for place in range(len(batch))]

    def _as_declared(self, made: object, rows: int) -> dict[str, Tensor]:
        """Return the outputs; rows that do not belong to a request are nobody's answer.

        Raises:
            ResourceError: OST6055, they are not what the model's description promises.
        """
        try:
            found = self._named(made)
        except UsageError as error:  # the client asked rightly
            raise failed(error) from error
        for name, tensor in found.items():
            datatype, sizes = _WORDS.get(tensor.dtype), list(tensor.shape)
            known = self.outputs.get(name)
            if not sizes or sizes[0] != rows or (known and known.datatype != datatype):
                promised = known.datatype if known else "a tensor"
                problem = f"{name!r} is {datatype} {sizes}, not {promised} of {rows} rows"
                raise failed(ValueError(problem))
        return found

    def _join(self, name: str, batch: Sequence[Arrays]) -> Tensor:
        arrays = [one[name] for one in batch]
        memory = bytearray().join([array.data for array in arrays])
        shape = (sum(array.rows for array in arrays), *arrays[0].shape[1:])
        tensor = torch.frombuffer(memory, dtype=_TORCH[arrays[0].datatype]).view(shape)
        return tensor.to(self._device)

    def _named(self, made: object) -> dict[str, Tensor]:
        names = self.servable.outputs
        if isinstance(made, Tensor):
            found: dict[str, object] = {names[0] if names else "output": made}
        elif isinstance(made, Mapping):
            missing = [name for name in names if name not in made]
            if missing:
                raise _unservable(
                    f"the callable returned no output {missing[0]!r}",
                    f"name those that it returns: {', '.join(map(str, made))}",
                )
            found = {str(name): made[name] for name in names or made}
        elif isinstance(made, tuple | list):
            labels = names or [f"output_{place}" for place in range(len(made))]
            found = dict(zip(labels, made, strict=False))
        else:
            raise _unservable(
                f"the callable returned a {type(made).__name__}",
                "return a tensor, or a tuple or mapping of tensors",
            )
        if len(found) < len(names):
            raise _unservable(
                f"the callable returned {len(found)} outputs, and {len(names)} are named",
                "name as many as it returns: Servable(..., outputs=(...))",
            )
        tensors = {name: value for name, value in found.items() if isinstance(value, Tensor)}
        strangers = [name for name in found if name not in tensors]
        if strangers:
            raise _unservable(
                f"the output {strangers[0]!r} is no tensor",
                "name the outputs to serve: Servable(..., outputs=('last_hidden_state',))",
            )
        return tensors


def _array(tensor: Tensor) -> Array:
    flat = tensor.detach().to("cpu").contiguous().view(-1)
    data = flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
    return Array(_WORDS[tensor.dtype], tuple(tensor.shape), data)


def _look_for_lost_device(error: BaseException) -> None:
    if isinstance(error, torch.AcceleratorError):
        raise DeviceLost(str(error)) from error


def _check_arguments(servable: Servable) -> None:
    fn = servable.fn.fn if isinstance(servable.fn, Runner) else servable.fn
    target = fn.forward if isinstance(fn, torch.nn.Module) else fn
    parameters = inspect.signature(target).parameters
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values()):
        return
    for name in servable.inputs:
        if name not in parameters:
            raise _unservable(
                f"the input {name!r} is no argument of the callable",
                f"name the inputs as its arguments: {', '.join(parameters)}",
            )


def _unservable(problem: str, remedy: str) -> UsageError:
    return UsageError(problem, code="OST6052", remedy=remedy)
