"""How many pages of keys and values there are: what is asked for, or a share of what is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ostinato.checkpoints.memory import available_bytes
from ostinato.errors import ResourceError, UsageError
from ostinato.units import format_bytes

if TYPE_CHECKING:
    from typing import NoReturn

_LEAST_PAGES = 2  # page 0 is that of padding
_GPU_SHARE = 0.9
_CPU_SHARE, _CPU_MOST = 0.25, 2 << 30
# Recordings, their scratch and the logits of the largest batch. Until all are made nobody can say
# what they take, and a GPU that is full cannot make them.
_RESERVE = 2 << 30
_LOGITS_KEPT = 8


def check_kv_bytes(kv_bytes: int | None, page_bytes: int) -> None:
    """Refuse an amount that no request could run in, before anything is loaded.

    Raises:
        UsageError: OST5033.
    """
    if kv_bytes is not None and kv_bytes < _LEAST_PAGES * page_bytes:
        raise UsageError(
            f"kv_memory is {format_bytes(kv_bytes)}, and one page of keys and values takes "
            f"{format_bytes(page_bytes)}; one for padding and one for requests are the least",
            code="OST5033",
            remedy=f"pass a kv_memory of at least {_LEAST_PAGES * page_bytes} bytes",
        )


def pages_for_memory(
    kv_bytes: int | None, page_bytes: int, *, most: int, state_bytes: int, device: torch.device
) -> int:
    """Return how many pages to make, page 0 included.

    Args:
        kv_bytes: Memory to use; None: a share of what is free.
        page_bytes: Memory of one page.
        most: As many as could ever be held at once.
        state_bytes: What the decode state will take beside them.

    Raises:
        ResourceError: OST5034, less is free than the state or two pages need.
    """
    free = _free_bytes(device)
    if state_bytes >= free:
        raise ResourceError(
            f"the state of max_batch requests takes {format_bytes(state_bytes)}, and "
            f"{format_bytes(free)} of {_where(device)} memory are free",
            code="OST5034",
            remedy="lower max_batch, max_model_len or page_tokens",
        )
    if kv_bytes is None:
        share = _share(free, state_bytes, device)
        pages = min(most, share // page_bytes)
        if pages < _LEAST_PAGES:
            _refuse(_LEAST_PAGES * page_bytes, share, free, device)
        return pages
    pages = min(most, kv_bytes // page_bytes)
    if pages * page_bytes > free:
        _refuse(pages * page_bytes, free, free, device)
    return pages


def _free_bytes(device: torch.device) -> int:
    if device.type != "cuda":
        return available_bytes()
    free, _ = torch.cuda.mem_get_info(device)
    # What torch holds and does not use is as good as free.
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(free + unused)


def _share(free: int, state_bytes: int, device: torch.device) -> int:
    if device.type != "cuda":
        return max(0, min(int((free - state_bytes) * _CPU_SHARE), _CPU_MOST))
    return max(0, int(free * _GPU_SHARE) - _RESERVE - _LOGITS_KEPT * state_bytes)


def _where(device: torch.device) -> str:
    return "GPU" if device.type == "cuda" else "host"


def _refuse(needed: int, usable: int, free: int, device: torch.device) -> NoReturn:
    raise ResourceError(
        f"keys and values need {format_bytes(needed)} of {_where(device)} memory, and "
        f"{format_bytes(usable)} of the {format_bytes(free)} free can be used for them",
        code="OST5034",
        remedy="stop other programs, lower max_batch or kv_memory, or load in bfloat16",
    )
