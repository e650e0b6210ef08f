"""Objects that no call gave before, call after call: such calls can never be replayed.

An object that a signature cannot look into is known by its identity. One that is made anew for each
call makes a signature anew, which waits for a second call that never comes. That is told, after a
few of them; and no further recording is made of what will not come again.

Pure: no torch. `admission.py` asks here where a signature holds such an object.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ostinato.class_name import class_name
from ostinato.graphs.signature import ObjectSpec, Signature

if TYPE_CHECKING:
    from ostinato.graphs.entry import Entry

_FEW = 8
"""So many objects in a row, of which none came twice, are no cold start any more."""
_MOST_KINDS = 256


class Strangers:
    """The latest objects of each kind of call; calls of one kind differ in their objects alone."""

    def __init__(self) -> None:
        self._latest: dict[object, tuple[Entry, ...]] = {}

    def told_of(self, entry: Entry) -> str:
        """Say which argument is another object in each call; "" if they come again.

        Args:
            entry: Of the signature of a call that was counted already.
        """
        if not any(isinstance(spec, ObjectSpec) for spec in entry.signature.leaves):
            return ""
        kind = _kind_of(entry.signature)
        latest = self._latest.get(kind, ())
        if not any(each is entry for each in latest):
            latest = (*latest, entry)[-_FEW:]
            if kind in self._latest or len(self._latest) < _MOST_KINDS:
                self._latest[kind] = latest
        if len(latest) < _FEW or any(each.all_calls > 1 for each in latest):
            return ""
        return _told(entry.signature, latest[-2].signature)


def _kind_of(signature: Signature) -> object:
    leaves = tuple(
        class_name(spec.value) if isinstance(spec, ObjectSpec) else spec
        for spec in signature.leaves
    )
    return (
        signature.structure, leaves, signature.overlaps, signature.together, signature.mode,
        signature.training,
    )  # fmt: skip


def _told(now: Signature, before: Signature) -> str:
    new = [
        f"{path} is another {class_name(spec.value)} in each call"
        for path, spec, then in zip(now.structure.paths, now.leaves, before.leaves, strict=True)
        if isinstance(spec, ObjectSpec) and spec != then
    ]
    return f"{', '.join(new)}, and such an object is known by its identity"
