"""A leased output: the recording's own memory, readable until the recording runs again."""

from __future__ import annotations

from typing import Generic, NoReturn, Protocol, TypeVar

from torch import Tensor

from ostinato.errors import StaleLease

T = TypeVar("T", bound=Tensor)


class Generation(Protocol):
    """What a lease checks itself against.

    Attributes:
        generation: Counts the runs of a recording, and its release.
        graph_id: Its name, for the message.
    """

    @property
    def generation(self) -> int: ...
    @property
    def graph_id(self) -> str: ...


class Lease(Generic[T]):
    """One output tensor, without a copy.

    An output that no recording will overwrite (of an eager call, or one that is the caller's own
    tensor) comes as a lease as well, and never goes stale.

    It guards against a later call that comes before `get()`. It cannot guard the tensor afterwards:
    a replay in another thread overwrites it while it is read. Share a leasing runner only under a
    lock that is held until the result has been read or cloned.
    """

    # No dataclass: a frozen one takes four times as long to make, once per output of every call.
    __slots__ = ("_generation", "_source", "_tensor")

    def __init__(self, tensor: T, source: Generation | None = None) -> None:
        self._tensor = tensor
        self._source = source
        self._generation = 0 if source is None else source.generation

    @property
    def is_stale(self) -> bool:
        """Whether the recording has run again, or has been dropped, since."""
        return self._source is not None and self._source.generation != self._generation

    def get(self) -> T:
        """Return the tensor itself: zero copies, valid until the recording runs again.

        Raises:
            StaleLease: OST1015, the recording ran again or was dropped; the memory holds other
            values.
        """
        if self.is_stale:
            assert self._source is not None
            raise StaleLease(
                f"this output of {self._source.graph_id} was leased for one run, and the recording "
                "has run again or was dropped since",
                code="OST1015",
                remedy='read it before the next call, clone it, or use outputs="owned"',
            )
        return self._tensor

    def __getattr__(self, name: str) -> NoReturn:
        # `lease.shape`, by who expects the tensor; copying and pickling ask for names, too.
        raise AttributeError(f"a Lease has no {name!r}: lease.get() is the tensor that it leases")

    def __repr__(self) -> str:
        state = "stale" if self.is_stale else "valid"
        return f"<{state} lease on {self._tensor.dtype!s}{list(self._tensor.shape)}>"
