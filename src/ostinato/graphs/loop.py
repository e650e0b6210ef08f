"""Calls in series without the host between them: what a decode loop is made of.

    loop = runner.loop(until=is_done, bell=bell)
    loop.run(8, "some", "arguments")        # up to 8 calls, one launch where the driver can

The calls take no tensors and hand nothing out: all that changes from call to call lies in tensors
that the callable holds. A recording is repeated as `Recording.repeat` can; without one the calls
are made one by one, each with its reason in the report, as any call.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Generic, ParamSpec

import torch
from torch import Tensor

from ostinato.errors import UsageError, WrongTypeError
from ostinato.graphs.backends.ending import Bell, Ending
from ostinato.graphs.decision import Decision, Outcome
from ostinato.graphs.drawing import drawing_run

if TYPE_CHECKING:
    from ostinato.graphs.graph import Graph
    from ostinato.graphs.player import Player

P = ParamSpec("P")


class Loop(Generic[P]):
    """Made by `Runner.loop`; see there.

    Attributes:
        replays: Of the latest `run`, how many calls at most were replays.
    """

    def __init__(
        self, player: Player, device: torch.device, until: Tensor | None, bell: Bell | None
    ) -> None:
        _check_until(until)
        if bell is not None and not isinstance(bell, Bell):
            raise WrongTypeError(
                f"a loop cannot be ended by {bell!r}",
                code="OST1016",
                remedy="pass a Bell, which any thread may ring, or leave `bell` out",
            )
        self._player = player
        self._ending = Ending(device, until, bell)
        self.replays = 0
        # Which recording, and its nodes. Not the graph: it would be kept alive.
        self._repeated: tuple[str, int] | None = None

    @property
    def why_queued(self) -> str | None:
        """Why recordings on a GPU are launched one by one; None where the device loops by itself.

        None too on a CPU, and before the first recording was looped.
        """
        return self._ending.why_queued

    def run(self, times: int, *args: P.args, **kwargs: P.kwargs) -> int:
        """Make up to `times` calls with these arguments; return the most that were made.

        On a GPU this returns when they are queued. Ends early as `Runner.loop` says; see
        `take_back` for what the report then counts too many.

        Raises:
            UsageError: OST1016, an argument is or holds a tensor.
            WrongTypeError: OST1016, `times` is no whole number.
        """
        if isinstance(times, bool) or not hasattr(times, "__index__"):
            raise WrongTypeError(
                f"a loop cannot run {times!r} times",
                code="OST1016",
                remedy="pass how many calls to make first, then their arguments: run(8, ...)",
            )
        made = self.replays = 0
        self._repeated = None
        while made < times and not self._ending.is_reached(made):
            repeated = self._repeat(times - made, args, kwargs)
            if repeated is not None:
                self.replays = repeated
                return made + repeated
            self._player.call(args, kwargs)
            made += 1
        return made

    def take_back(self, surplus: int) -> None:
        """Take calls out of the report that the latest `run` counted and did not make.

        A series that ends early on the device is counted as the most it may be. Who reads from the
        device how far it came says so here. What listeners were told is not told again.

        Args:
            surplus: Calls too many; what is beyond the replays of that `run` is ignored.
        """
        surplus = min(surplus, self.replays)
        if self._repeated is not None and surplus > 0:
            self.replays -= surplus
            graph_id, nodes = self._repeated
            graphs = {each.graph_id: each for each in self._player.store.graphs()}
            self._player.chronicle.replayed_less(graphs.get(graph_id), nodes, surplus)

    def warm(self, *args: P.args, **kwargs: P.kwargs) -> Decision:
        """Record these arguments' signature as `Runner.warm` does, and what a loop of it needs."""
        decision = self._player.warm(args, kwargs)
        if decision.outcome is not Outcome.EAGER:
            self._repeat(0, args, kwargs)
        return decision

    def _repeat(
        self, times: int, args: tuple[object, ...], kwargs: Mapping[str, object]
    ) -> int | None:
        """Repeat the recording that serves these arguments; None if there is none to be used."""
        found = self._player.find(args, kwargs)
        if found is None:
            return None
        entry, graph = found
        with graph.lock:
            if graph.is_released:
                return None
            if graph.inputs.tensors:
                raise _tensors_given()
            try:
                done = self._replay(graph, times)
            except Exception as error:  # noqa: BLE001 - the device's, of whatever type
                self._player.give_up(entry, graph, error)
                return None
            for _ in range(done):
                self._player.chronicle.replayed(graph, 0, 0)
            self._repeated = graph.graph_id, graph.recording.nodes
            return done

    def _replay(self, graph: Graph, times: int) -> int:
        with torch.no_grad(), drawing_run() if graph.draws else nullcontext():
            graph.generation += 1
            graph.recording.enter()
            return graph.recording.repeat(times, self._ending)


def _check_until(until: object) -> None:
    if until is None:
        return
    remedy = "pass whole numbers or booleans in one dimension, all non-zero at the end"
    if not isinstance(until, Tensor):
        raise WrongTypeError(f"a loop cannot end by {until!r}", code="OST1016", remedy=remedy)
    if until.dim() != 1 or until.is_floating_point():
        raise UsageError(
            f"a loop cannot end by a tensor of {until.dim()} dimensions and {until.dtype}",
            code="OST1016",
            remedy=remedy,
        )


def _tensors_given() -> UsageError:
    return UsageError(
        "a loop was given tensors as arguments, and nothing could refill them between two calls",
        code="OST1016",
        remedy="keep what changes in tensors that the callable holds, and pass plain values",
    )
