"""Find out what of a step can be fused: listen, try each place bit by bit, and run it as a whole.

Three runs of the step on the tensors that it is to be recorded on. A kind whose kernel gives other
bits anywhere is left out, and the reason is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from ostinato.hf.fusing.gates import gates
from ostinato.hf.fusing.listen import Listener, Unheard
from ostinato.hf.fusing.norms import norms
from ostinato.hf.fusing.plan import Kind, Launch, Match, Plan, settle_on
from ostinato.hf.fusing.play import FusedRun, PlannedRun, Strayed
from ostinato.hf.fusing.stream import Op, Stream
from ostinato.hf.fusing.turns import turns

_WHOLE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True, slots=True)
class Fusion:
    """What is fused in one recorded step.

    Attributes:
        plan: How to run it; None if nothing is.
        refused: Why not, for each kind that is not, or for `"all"`.
    """

    plan: Plan | None
    refused: Mapping[str, str] = field(default_factory=dict)

    @property
    def places(self) -> dict[str, int]:
        """How often each kind is fused in the step."""
        return {} if self.plan is None else self.plan.places

    @property
    def calls_saved(self) -> int:
        """How many calls that compute the step makes less."""
        return 0 if self.plan is None else self.plan.calls_saved

    def __str__(self) -> str:
        if "all" in self.refused:
            return f"nothing: {self.refused['all']}"
        fused = ", ".join(f"{count} x {kind}" for kind, count in self.places.items())
        text = f"{fused}; {self.calls_saved} calls a step less" if fused else "nothing"
        return text + "".join(f"; not {kind}: {why}" for kind, why in self.refused.items())


def settle(run: Callable[[], Tensor], device: torch.device) -> Fusion:
    """Return what can be fused in `run`, which is run three times.

    Args:
        run: Computes the same from the same state each time, and leaves it as it was.
        device: Where it runs; a CPU will do where Triton interprets.
    """
    unfit = _why_not(device)
    if unfit:
        return Fusion(None, {"all": unfit})
    try:
        return _settle(run)
    except (Unheard, Strayed) as error:
        return Fusion(None, {"all": str(error)})
    except torch.OutOfMemoryError:
        return Fusion(None, {"all": "there is no memory left to try it in"})
    except Exception as error:  # noqa: BLE001 - a compiler's, of whatever type
        words = str(error).strip().splitlines()
        return Fusion(None, {"all": f"{type(error).__name__}: {words[0] if words else ''}"})


def _settle(run: Callable[[], Tensor]) -> Fusion:
    with Listener() as listener:
        wanted = run()
    stream = listener.stream()
    plan = settle_on(stream, found_in(stream))
    with Trial(plan) as trial:
        run()
    refused = {str(kind): "the step has no such calls" for kind in Kind}
    for found in plan.places:
        refused.pop(found)
    for unequal, why in trial.unequal.items():
        plan, refused[str(unequal)] = plan.without(unequal), why
    if not plan.matches:
        return Fusion(None, refused)
    with FusedRun(plan):
        given = run()
    if not is_same(given, wanted):
        return Fusion(None, {"all": "together they give other bits than the plain step"})
    return Fusion(plan, refused)


def found_in(stream: Stream) -> Iterator[Match]:
    """Yield every place where a pattern stands, sound or not."""
    return chain(norms(stream), turns(stream), gates(stream))


def _why_not(device: torch.device) -> str:
    if find_spec("triton") is None:
        return "triton is not installed"
    if device.type == "cuda":
        return ""
    if device.type != "cpu":
        return f"its kernels are for CUDA devices, and this one is {device.type}"
    import triton

    return "" if triton.knobs.runtime.interpret else "on a CPU it takes TRITON_INTERPRET=1"


class Trial(PlannedRun):
    """A plain run in which every launch is made beside its calls, and compared with them.

    Attributes:
        unequal: Kinds that gave other bits, with the place.
    """

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.unequal: dict[Kind, str] = {}

    def answer(
        self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], planned: Op
    ) -> Any:
        """Make the call."""
        return func(*args, **kwargs)

    def launch(self, launch: Launch, tensors: dict[str, Tensor]) -> None:
        """Launch it into other memory; what it changes in place is emptied before and put back."""
        from ostinato.hf.fusing.kernels import start

        kind, _ = self._plan.launches[launch.at]
        wanted = {name: tensors[name] for name in launch.fills}
        given = {name: torch.full_like(each, torch.nan) for name, each in wanted.items()}
        column = tensors.get("column")
        before = {}
        if column is not None:
            before = {name: tensors[name].index_select(2, column) for name in launch.updates}
            for name in before:
                tensors[name].index_fill_(2, column, torch.nan)
        start(launch.kernel, {**tensors, **given}, launch.numbers)
        pairs = [(wanted[name], given[name]) for name in wanted]
        for name, expected in before.items():
            assert column is not None
            pairs.append((expected, tensors[name].index_select(2, column)))
            tensors[name].index_copy_(2, column, expected)
        unequal = sum(_unequal(*pair) for pair in pairs)
        if unequal:
            total = sum(expected.numel() for expected, _ in pairs)
            text = f"{unequal} of {total} numbers have other bits at call {launch.at}"
            self.unequal.setdefault(kind, text)


def is_same(one: Tensor, other: Tensor) -> bool:
    """Whether both have the same bits, whatever those mean."""
    return one.shape == other.shape and one.dtype == other.dtype and not _unequal(one, other)


def _unequal(one: Tensor, other: Tensor) -> int:
    return int((_bits(one) != _bits(other)).sum())


def _bits(tensor: Tensor) -> Tensor:
    return tensor.contiguous().view(_WHOLE[tensor.element_size()])
