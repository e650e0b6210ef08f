"""Is there memory for a cache? Asked before it is made, and before it replaces an older one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ostinato.checkpoints.memory import available_bytes
from ostinato.hf.delegation import Delegated, DelegateError
from ostinato.hf.probe import Anatomy
from ostinato.units import format_bytes

# Per column of each row beside keys and values: the token produced, and whether it is padding.
_BOOKKEEPING = 9


def cache_bytes(anatomy: Anatomy, rows: int, length: int) -> int:
    """Return what the decode state of `rows` with `length` columns takes."""
    column = sum(
        layer.heads * (layer.key_size + layer.value_size) * layer.dtype.itemsize
        for layer in anatomy.layers
    )
    return rows * length * (column + _BOOKKEEPING) + 8 * length


def free_bytes(device: torch.device) -> int:
    """Return what may still be allocated on `device`, unused blocks of torch's pool included."""
    if device.type != "cuda":
        return available_bytes()
    free, _ = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


def require_room(anatomy: Anatomy, rows: int, length: int, device: torch.device, held: int) -> None:
    """Refuse a cache that does not fit.

    Args:
        anatomy: Of the model.
        rows: Rows of the batch.
        length: Columns of the cache.
        device: Where it goes.
        held: Bytes of the cache that it replaces, which are given back first.

    Raises:
        DelegateError: It takes more than is free.
    """
    needed, free = cache_bytes(anatomy, rows, length), free_bytes(device) + held
    if needed > free:
        raise _too_large(
            f"{rows} x {length} columns take {format_bytes(needed)} on {device}, "
            f"{format_bytes(free)} are free"
        )


@contextmanager
def telling_room(rows: int, length: int) -> Iterator[None]:
    """Hand the request over if memory runs out inside the block after all.

    Raises:
        DelegateError: The allocator found no room.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        text = str(error).strip()
        # A failed host allocation is a plain RuntimeError in torch, known by its words alone.
        if isinstance(error, MemoryError | torch.OutOfMemoryError) or "allocate memory" in text:
            first = text.splitlines()[0] if text else type(error).__name__
            raise _too_large(f"{rows} x {length} columns: {first}") from error
        raise


def _too_large(detail: str) -> DelegateError:
    return DelegateError(Delegated.CACHE_OVER_MEMORY, detail)
