"""Look at every call of a checked run before anybody else does.

Simulates autocast, notes which lines compiled code and autocast are entered from, whose generator
draws, and what each kernel would read, write and compute.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_map_only

from ostinato.doctor.check.assumed import NoEnd
from ostinato.doctor.check.autocast import cast_as_autocast
from ostinato.doctor.check.hidden import hidden_wait
from ostinato.doctor.check.line import Line, users_line
from ostinato.doctor.check.pretended_cuda import PretendedGenerator
from ostinato.doctor.check.work import Work, work_of
from ostinato.graphs.aten_calls import base_name, draws, storage_id, tensors_in
from ostinato.graphs.aten_mode import AtenMode
from ostinato.graphs.observe_rules import is_metadata

_MOST_CALLS = 100_000
"""Of a run, before it is taken for one without an end; the largest models make a tenth of it."""
_WRAPPER = "compile_wrapper"
"""The function of torch that stands between a caller and what `torch.compile` made."""


@dataclass(frozen=True, slots=True)
class Draw:
    """A random number drawn on the GPU from a generator that cannot draw there."""

    op: str
    line: Line | None
    generator: str
    device: str


class Traced(AtenMode):
    """The topmost mode of a checked run.

    Args:
        onto: Where everything made before the run is taken to lie, generators too; None: where it
            says.

    Attributes:
        work: What each call that starts kernels would do, in order.
        lines: Lines by what refusals say of them.
        compiled: Lines that call compiled code; whether it replays graphs of its own.
        autocast: Lines that ran under autocast that the step itself entered.
        draws: Calls that draw random numbers.
        alien: Those of them that draw from a generator elsewhere.
        generators: Private generators drawn from.
        hidden: Calls whose kernels wait for the device where nobody sees it: op, line, why.
        is_autocast: Whether autocast was on when Python made the call that now runs; torch says no
            while its own kernel for autocast is at work.
        scope: The GPU of the tensors in the call that Python makes. What C++ makes on the way, it
            would make there.
        places: The first line that worked on each device.
        weights: Ids of the tensors that the callable holds and that are taken to lie on the GPU.
            TorchScript hands them to its calls without asking Python for them.
        placed: Returns the twin on the GPU of such a tensor.
    """

    def __init__(self, onto: torch.device | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.work: list[Work] = []
        self.lines: dict[str, Line] = {}
        self.compiled: dict[Line | None, bool] = {}
        self.autocast: Counter[Line | None] = Counter()
        self.draws: Counter[Line | None] = Counter()
        self.alien: list[Draw] = []
        self.generators: set[str] = set()
        self.hidden: list[tuple[str, Line | None, str]] = []
        self.places: dict[torch.device, Line | None] = {}
        self.is_autocast = False
        self.scope: torch.device | None = None
        self.weights: frozenset[int] = frozenset()
        self.placed: Callable[[Tensor], Tensor] = lambda tensor: tensor
        self._onto = onto
        self._calls = 0

    def on_opaque(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Note the line; whoever watches says what it is."""
        self._line()
        return func(*args, **kwargs)

    def on_call(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Look at one call, and make it."""
        line = self._line()
        self._calls += 1
        if self._calls > _MOST_CALLS:
            raise NoEnd(line, f"after {_MOST_CALLS} calls of torch it")
        self._note_compiled(line)
        if self.weights:
            args, kwargs = self._with_twins(args, kwargs)
        if self.is_autocast:
            self.autocast[line] += 1
            with self:  # casts are calls like any other
                args, kwargs = cast_as_autocast(func, args, kwargs)
        taken = [*tensors_in(args), *tensors_in(list(kwargs.values()))]
        if self.scope is not None and not taken and "device" in kwargs:
            kwargs = self._in_scope(func, kwargs)
        result = func(*args, **kwargs)
        made = list(tensors_in(result))
        for tensor in (*taken, *made):
            self.places.setdefault(tensor.device, line)
        if why := hidden_wait(base_name(func), func._overloadname, args, kwargs):
            self.hidden.append((str(func), line, why))
        if draws(func) and not _drops_nothing(func, args, kwargs):
            self._note_draw(func, line, [*args, *kwargs.values()], [*taken, *made])
        if (
            not is_metadata(func)
            and _is_on_gpu((*taken, *made))
            and not _is_view(func, taken, made)
        ):
            self.work.append(work_of(func, args, kwargs, taken, made))
        return result

    def _with_twins(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        taken = (*tensors_in(args), *tensors_in(list(kwargs.values())))
        if not any(id(tensor) in self.weights for tensor in taken):
            return args, kwargs
        changed: tuple[tuple[Any, ...], dict[str, Any]] = tree_map_only(
            Tensor, lambda t: self.placed(t) if id(t) in self.weights else t, (args, kwargs)
        )
        return changed

    def _in_scope(self, func: OpOverload, kwargs: dict[str, Any]) -> dict[str, Any]:
        device = kwargs["device"]
        is_number = base_name(func) == "scalar_tensor"  # handed to a kernel by value
        is_elsewhere = device is not None and device.type != "cpu"
        return kwargs if is_number or is_elsewhere else {**kwargs, "device": self.scope}

    def _line(self) -> Line | None:
        line = users_line()
        if line is not None:
            self.lines[line.said] = line
        return line

    def _note_compiled(self, line: Line | None) -> None:
        if line in self.compiled or "torch._dynamo.eval_frame" not in sys.modules:
            return
        frame: FrameType | None = sys._getframe(2)
        while frame is not None:
            if frame.f_code.co_name == _WRAPPER:
                self.compiled[line] = _has_own_graphs(frame)
                return
            frame = frame.f_back

    def _note_draw(
        self, func: OpOverload, line: Line | None, given: list[Any], tensors: list[Tensor]
    ) -> None:
        self.draws[line] += 1
        on_gpu = next((t.device for t in tensors if t.device.type == "cuda"), None)
        for value in given:
            if isinstance(value, torch.Generator):
                place = PretendedGenerator.place_of(value)
                if self._onto is not None and place.type == "cpu":
                    place = self._onto
                self.generators.add(str(place))
                if on_gpu is not None and place != on_gpu:
                    self.alien.append(Draw(str(func), line, str(place), str(on_gpu)))


def _drops_nothing(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether this is attention whose dropout is off: its kernels may draw, and draw nothing."""
    if "scaled_dot_product" not in func._schema.name:
        return False
    for position, argument in enumerate(func._schema.arguments):
        if argument.name == "dropout_p":
            given = args[position] if position < len(args) else kwargs.get("dropout_p", 0.0)
            return bool(given == 0.0)
    return False


def _has_own_graphs(frame: FrameType) -> bool:
    config = getattr(frame.f_locals.get("self"), "compiler_config", None) or {}
    return bool(config.get("triton.cudagraphs"))


def _is_on_gpu(tensors: tuple[Tensor, ...]) -> bool:
    return any(isinstance(tensor, FakeTensor) and tensor.device.type != "cpu" for tensor in tensors)


def _is_view(func: OpOverload, taken: list[Tensor], made: list[Tensor]) -> bool:
    if func._schema.is_mutable or not made:
        return not made and not func._schema.is_mutable
    if any(tensor.layout is not torch.strided for tensor in (*taken, *made)):
        return False
    sources = {storage_id(tensor) for tensor in taken}
    return all(storage_id(tensor) in sources for tensor in made)
