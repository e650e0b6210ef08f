"""Recognise that a call, and everything it reaches, is as at an earlier replay: at one glance.

The long way asks a dozen questions, each from a Python function of its own: what does the call look
like, what does it reach, which recording serves it, do the weights lie where they lay. After a
launch has emptied the caches every one of those functions costs microseconds. `_unchanged.recalls`
asks the same questions in one call; a Yes leads straight to the recording. Anything else, and every
call that it does not cover (nested arguments, objects, no compiler), goes the long way.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from ostinato.graphs.ambient import ambient_one_by_one, mode_around
from ostinato.graphs.entry import Entry
from ostinato.graphs.fitting import Call, Situation
from ostinato.graphs.graph import Graph
from ostinato.graphs.inline import is_traced, not_inline_at_a_glance
from ostinato.graphs.memo import Memo, try_memo
from ostinato.graphs.tree import SURE_LEAVES
from ostinato.graphs.watch import Compared, Watch, recalls

_MOST = 8
"""Recalls of one runner: a call that none of them fits has gone through all of them first."""
_MOST_LEAVES = 64  # as `MOST_LEAVES` in `_unchanged.c`


class Recall:
    """A call that was replayed, and the state of everything it reached.

    Attributes:
        then: What `recalls` compares. It borrows: this object keeps what stands behind it.
        entry, graph: What answered it.
        padding: What was known of the padding of the graph: enough for this call.
        situation: What the long way made of it.
        is_plain: The leaves are the positional arguments, and nothing is to be asked of them.
        straight: Where there is one leaf and it is plain: the shortest way to the answer.
    """

    __slots__ = (
        "_kept", "_memo", "_sorted", "entry", "graph", "is_plain", "padding", "situation",
        "straight", "then",
    )  # fmt: skip

    def __init__(
        self,
        call: Call,
        memo: Memo[None],
        compared: tuple[Compared, Compared],
        replay: tuple[Entry, Graph, Situation],
    ) -> None:
        args, kwargs = call
        self.entry, self.graph, self.situation = replay
        self.padding = self.graph.padding
        self._memo = memo
        self._sorted = tuple(sorted(kwargs)) if len(kwargs) > 1 else ()
        given = [*args, *kwargs.values()]
        asks_more = self.graph.needs_no_grad or self.graph.foreign is not None
        self.is_plain = not (kwargs or asks_more or len(given) > 1)
        self.straight = self.graph.straight if self.is_plain and given else None
        settings = [part for pair in memo.settings for part in pair]
        around, level = ambient_one_by_one()
        inline, outer = not_inline_at_a_glance()
        settings += [*around, *inline]
        self._kept = (*compared, Compared((*level, *outer)))
        if not any(isinstance(leaf, Tensor) for leaf in given):
            settings += [mode_around, None, is_traced, False]  # else it shows in the tensors
        self.then = (
            tuple(kwargs),
            tuple(NotImplemented if isinstance(leaf, Tensor) else leaf for leaf in given),
            memo.same_tensors,
            tuple(settings),
            self.graph.addresses.natively,
            *(each.laid_out for each in self._kept),
        )

    def leaves(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Sequence[object]:
        """Return the leaves of a call like it in the order in which the recording knows them."""
        if not kwargs:
            return args
        if self._sorted:
            return [*args, *[kwargs[name] for name in self._sorted]]
        return [*args, *kwargs.values()]

    def may_answer(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        """Whether its tensors, and those of the recording, are as is needed; for one not plain."""
        graph = self.graph
        if graph.needs_no_grad and not graph.addresses.grads_hold():
            return False
        if graph.foreign is not None and graph.foreign.meets(self.leaves(args, kwargs)):
            return False
        return self._memo.are_apart([*args, *kwargs.values()])


def _is_flat(given: Sequence[object]) -> bool:
    return len(given) <= _MOST_LEAVES and all(type(leaf) in SURE_LEAVES for leaf in given)


def try_recall(
    call: Call,
    leaves: Sequence[object],
    watch: Watch,
    replay: tuple[Entry, Graph, Situation],
    sign: Callable[[], Situation],
) -> Recall | None:
    """Remember a call that was just replayed; None if a glance would not be enough for it.

    Args:
        call: The caller's own arguments, none of them nested.
        leaves: As the long way took them apart.
        watch: Over what the call reaches.
        replay: What answered it.
        sign: Describes the call anew.
    """
    args, kwargs = call
    given = [*args, *kwargs.values()]
    *compared, training = watch.compared()
    memo = try_memo(given, training, None)
    if memo is None or memo.has_modes:
        return None
    made = Recall(call, memo, (compared[0], compared[1]), replay)
    in_order = made.leaves(args, kwargs)
    if len(in_order) != len(leaves) or not all(map(operator.is_, in_order, leaves)):
        return None
    # Asked last: another thread may have changed a setting or a flag since the replay began.
    signature = replay[2].signature
    assert signature is not None
    is_so = signature.training == training and sign().signature == signature
    return made if is_so and recalls(made.then, args, dict(kwargs)) else None


class Recalls:
    """The latest recalls of one runner.

    Attributes:
        known: Newest first. Replaced as a whole: other threads may be walking through it.
    """

    __slots__ = ("_lock", "_seen", "known")

    def __init__(self) -> None:
        self.known: tuple[Recall, ...] = ()
        self._seen: tuple[Situation, ...] = ()
        self._lock = threading.Lock()

    def note(
        self,
        call: Call,
        leaves: Sequence[object],
        watch: Watch,
        replay: tuple[Entry, Graph, Situation],
        sign: Callable[[], Situation],
    ) -> None:
        """A call was replayed the long way; remember it if its like came before.

        Hold the lock of its graph: whoever releases that, and prunes then, has to come later.
        """
        _, graph, found = replay
        if graph.addresses.natively is None or not _is_flat([*call[0], *call[1].values()]):
            return
        if not any(each is found for each in self._seen):
            self._seen = (found, *self._seen[: _MOST - 1])
            return
        made = try_recall(call, leaves, watch, replay, sign)
        with self._lock:
            others = [each for each in self.known if each.situation is not found]
            self.known = tuple(others if made is None else (made, *others[: _MOST - 1]))

    def prune(self) -> None:
        """Let go of recordings that were released, and of what they read."""
        with self._lock:
            self.known = tuple(each for each in self.known if not each.graph.is_released)
            self._seen = ()
