"""What a factory hands over to be served: a callable and what its tensors are. No torch.

def factory() -> Servable:
    return Servable(graphed(model), inputs={"pixels": TensorSpec("FP32", (-1, 3, 224, 224))})
"""

from __future__ import annotations

import importlib
import os
import reprlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

from ostinato.errors import OstinatoError, UsageError
from ostinato.serve.callable.arrays import TensorSpec
from ostinato.serve.callable.blame import words_of


@dataclass(frozen=True, slots=True)
class Servable:
    """A callable with what a server must know of it.

    Attributes:
        fn: A module or function; called with one keyword for each input. What is not `graphed` yet
            will be, with `batch_sizes` as the sizes of its rows.
        inputs: By name of the argument.
        outputs: Names for what it returns, in order; empty: those of a mapping that it returns,
            `output` for a lone tensor, else `output_0` and so on.
        batch_sizes: Sizes that are recorded; a batch is padded up to the next with its last row.
        device: Where the inputs go.
        version: A label for clients.
        warm: What is run before the server is ready, beside the batch sizes: by input, its sizes
            behind the rows. Needed only where a declared size is -1.

    Raises:
        UsageError: OST6052, one of these is not what is said of it here.
    """

    fn: Callable[..., Any]
    inputs: Mapping[str, TensorSpec]
    outputs: Sequence[str] = ()
    batch_sizes: Sequence[int] = (1, 2, 4, 8, 16, 32)
    device: str = "cpu"
    version: str = "1"
    warm: Sequence[Mapping[str, tuple[int, ...]]] = field(default_factory=tuple)

    def __post_init__(self) -> None:
        if not callable(self.fn):
            raise _unfit(f"fn is {_seen(self.fn)}", "give a module or a function")
        if not _is_inputs(self.inputs):
            raise _unfit(
                f"inputs is {_seen(self.inputs)}",
                "name each argument: inputs={'x': TensorSpec('FP32', (-1, 4))}",
            )
        if not _is_list_of(str, self.outputs):
            raise _unfit(
                f"outputs is {_seen(self.outputs)}",
                "give names alone, in the order of what is returned: outputs=('logits',); what "
                "the tensors are is found when it is warmed",
            )
        if not (_is_list_of(Integral, self.batch_sizes) and min(self.batch_sizes, default=0) > 0):
            raise _unfit(
                f"batch_sizes is {_seen(self.batch_sizes)}",
                "give numbers of rows: batch_sizes=(1, 2, 4)",
            )
        if not isinstance(self.version, str):  # no front end could read the greeting
            raise _unfit(f"version is {_seen(self.version)}", "give a text: version='7'")
        if not (_is_list_of(Mapping, self.warm) and all(map(self._can_warm, self.warm))):
            raise _unfit(
                f"warm is {_seen(self.warm)}",
                "give every input's sizes behind the rows, for each run: warm=[{'x': (128,)}]",
            )

    def _can_warm(self, sizes: Mapping[str, tuple[int, ...]]) -> bool:
        return all(
            _is_list_of(Integral, sizes.get(name)) and len(sizes[name]) == len(spec.shape) - 1
            for name, spec in self.inputs.items()
        )

    def sizes_to_warm(self) -> list[dict[str, tuple[int, ...]]]:
        """Return, for each run ahead of readiness, every input's sizes behind the rows."""
        if self.warm:
            return [dict(one) for one in self.warm]
        sizes = {name: spec.shape[1:] for name, spec in self.inputs.items()}
        return [] if any(-1 in shape for shape in sizes.values()) else [sizes]


def make(path: str, *arguments: object) -> Servable:
    """Import `package.module:factory`, call it, and return what it made.

    Modules are looked for in the working directory too, as `python -m` does.

    Raises:
        UsageError: OST6052, the path has another form, leads nowhere, or the factory returns
            something else than a `Servable`.
    """
    module_name, colon, name = path.partition(":")
    if not (colon and module_name and name):
        raise _unfit(f"{path!r} is no path to a factory", "write package.module:factory")
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module_name)
        for part in name.split("."):
            found = getattr(found, part)
        made = found(*arguments)
    except OstinatoError:
        raise
    except (Exception, SystemExit) as error:
        is_lost = isinstance(error, ModuleNotFoundError) and module_name.startswith(
            error.name or module_name
        )
        raise _unfit(
            f"{path} cannot be called: {words_of(error)}",
            "start it in the folder of the module, or put that folder on PYTHONPATH"
            if is_lost
            else "correct what is raised there; calling it in a Python shell shows the same",
        ) from error
    if not isinstance(made, Servable):
        raise _unfit(
            f"{path} returned a {type(made).__name__}",
            "return ostinato.serve.callable.Servable(fn, inputs={...})",
        )
    return made


def _is_inputs(value: object) -> bool:
    return (
        isinstance(value, Mapping)
        and len(value) > 0
        and all(isinstance(name, str) for name in value)
        and all(isinstance(spec, TensorSpec) for spec in value.values())
    )


def _is_list_of(kind: type, value: object) -> bool:
    """Whether it is a sequence of these; a text is no sequence of texts here."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        return False
    return all(isinstance(one, kind) for one in value)


def _seen(value: object) -> str:
    return f"{reprlib.repr(value)}, a {type(value).__name__}"


def _unfit(problem: str, remedy: str) -> UsageError:
    return UsageError(problem, code="OST6052", remedy=remedy)
