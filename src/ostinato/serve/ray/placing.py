"""Which replica answers a prompt: one that has seen its beginning, if its load allows. Pure.

A prompt is known by marks, one for each block of its tokens, each made of all tokens before it too:
two prompts have as many marks in common as they begin alike. Where a replica was sent a prompt, it
is taken to hold its marks; that is a guess, and a wrong one costs a prefill, never an answer.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Hashable, Mapping, Sequence
from hashlib import blake2b
from itertools import islice
from typing import Generic, TypeVar

BLOCK_TOKENS = 64
_MOST_MARKS = 64
_MARK_BYTES = 8

R = TypeVar("R", bound=Hashable)


def marks_of(prompt_ids: Sequence[int], salt: str = "") -> list[bytes]:
    """Return the marks of a prompt, shortest beginning first; of whole blocks alone.

    Args:
        salt: Prompts share beginnings only with those of the same salt.
    """
    marks, before = [], blake2b(salt.encode(), digest_size=_MARK_BYTES).digest()
    whole = len(prompt_ids) // BLOCK_TOKENS
    for place in range(min(whole, _MOST_MARKS)):
        block = prompt_ids[place * BLOCK_TOKENS : (place + 1) * BLOCK_TOKENS]
        text = before + b",".join(b"%d" % token for token in block)
        before = blake2b(text, digest_size=_MARK_BYTES).digest()
        marks.append(before)
    return marks


class Memory(Generic[R]):
    """Which replica was sent which beginnings, the latest of them.

    Args:
        most: Marks that are remembered; the oldest is forgotten first.
        slack: Requests that a replica may have more than the idlest one and still be preferred for
            what it knows.
    """

    def __init__(self, most: int = 100_000, slack: int = 8) -> None:
        self._holders: OrderedDict[bytes, dict[R, None]] = OrderedDict()
        self._sent: dict[R, int] = {}
        self._most = most
        self._slack = slack

    def rank(self, marks: Sequence[bytes], loads: Mapping[R, int]) -> list[R]:
        """Return the replicas of `loads`, the one to ask first, first.

        Args:
            loads: Of each replica that lives: its requests.
        """
        # Of two that have as much to do, the one that was sent less: else the first gets it all.
        by_load = sorted(loads, key=lambda one: (loads[one], self._sent.get(one, 0)))
        if not by_load:
            return []
        most = loads[by_load[0]] + self._slack
        for mark in reversed(marks):
            holders = self._holders.get(mark, ())
            fit = [replica for replica in by_load if replica in holders and loads[replica] <= most]
            if fit:
                return [*fit, *(replica for replica in by_load if replica not in fit)]
        return by_load

    def sent(self, marks: Sequence[bytes], replica: R) -> None:
        """Note that a prompt went to a replica."""
        if replica in self._sent:
            self._sent[replica] += 1
        else:  # it does not make up for the time before it came
            self._sent[replica] = max(1, min(self._sent.values(), default=0))
        for mark in marks:
            holders = self._holders.setdefault(mark, {})
            holders[replica] = None
            self._holders.move_to_end(mark)
        for mark in list(islice(self._holders, max(0, len(self._holders) - self._most))):
            del self._holders[mark]

    def keep_only(self, living: Collection[R]) -> None:
        """Forget replicas that are gone: what they knew went with them."""
        self._sent = {one: count for one, count in self._sent.items() if one in living}
        for mark, holders in list(self._holders.items()):
            for replica in [one for one in holders if one not in living]:
                del holders[replica]
            if not holders:
                del self._holders[mark]

    def __len__(self) -> int:
        return len(self._holders)
