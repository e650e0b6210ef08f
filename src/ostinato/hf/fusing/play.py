"""Run a step by a plan: what is fused is launched, all else is called as ever.

The run must call what the run that was listened to called. Where it does not, it is given up before
the first call that differs.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from torch import Tensor
from torch._ops import OpOverload

from ostinato.graphs.aten_calls import tensors_in
from ostinato.graphs.aten_mode import AtenMode
from ostinato.hf.fusing.listen import Scribe, blank, with_outs
from ostinato.hf.fusing.plan import Launch, Plan, Slot
from ostinato.hf.fusing.stream import Op


class Strayed(Exception):
    """A run that was to be fused called something else than when it was listened to."""


class PlannedRun(AtenMode):
    """Follows a plan call by call and gathers the tensors that launches need; enter it once."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._plan = plan
        self._scribe = Scribe()
        self._at = self._depth = 0
        self._gathered: dict[Slot, Tensor] = {}

    def answer(
        self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], planned: Op
    ) -> Any:
        """Return the result of a call that some launch stands for."""
        raise NotImplementedError

    def launch(self, launch: Launch, tensors: dict[str, Tensor]) -> None:
        """Do what `launch` says, in the place of its last call."""
        raise NotImplementedError

    def on_call(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make it, or leave it to a launch."""
        at, ops = self._at, self._plan.stream.ops
        heard = self._scribe.call(func, args, kwargs)
        if at >= len(ops) or heard != with_outs(ops[at], ()):
            expected = ops[at].name if at < len(ops) else "no more"
            raise Strayed(f"call {at} was {expected} and now is {heard.name}")
        self._at += 1
        if at in self._plan.skipped:
            result = self.answer(func, args, kwargs, ops[at])
        else:
            result = func(*args, **kwargs)
        if self._scribe.result(result, args, kwargs) != ops[at].outs:
            raise Strayed(f"call {at}, {heard.name}, returned other shapes than before")
        for arg in self._plan.needed.get(at, ()):
            self._gathered[Slot(at, arg)] = result if arg is None else args[arg]
        if at in self._plan.launches:
            _, launch = self._plan.launches[at]
            self.launch(launch, self._gather(launch))
        return result

    def _gather(self, launch: Launch) -> dict[str, Tensor]:
        slots = {**launch.takes, **launch.fills, **launch.updates}
        tensors = {name: self._gathered[slot] for name, slot in slots.items()}
        for slot in [slot for slot in self._gathered if self._plan.last_needed[slot] <= launch.at]:
            del self._gathered[slot]  # memory of a step is soon used again
        return tensors

    def on_opaque(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Give up: there was none."""
        raise Strayed(f"call {self._at} is {func}, which was not there before")

    def __enter__(self) -> Self:
        self._depth += 1  # following a recipe enters it again
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, trace)  # type: ignore[no-untyped-call]
        self._depth -= 1
        is_over = error is None and self._depth == 0
        if is_over and self._at < len(self._plan.stream.ops):
            raise Strayed(f"it ended after {self._at} calls of {len(self._plan.stream.ops)}")


class FusedRun(PlannedRun):
    """A run in which the plan's launches stand for their calls."""

    def answer(
        self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], planned: Op
    ) -> Any:
        """Return what the call writes into, or memory that the launch fills if it is needed."""
        if planned.writes:
            return args[0]
        first = next(tensors_in(args))
        return blank(planned.outs[0], first.device)

    def launch(self, launch: Launch, tensors: dict[str, Tensor]) -> None:
        """Launch the kernel."""
        from ostinato.hf.fusing.kernels import start

        start(launch.kernel, tensors, launch.numbers)
