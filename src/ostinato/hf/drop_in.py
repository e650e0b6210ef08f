"""`accelerate(model)`: check what was asked for, and wrap the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from ostinato.errors import UsageError, WrongTypeError
from ostinato.graphs.options import BackendName
from ostinato.hf.accelerated import Accelerated
from ostinato.hf.lengths import check_buckets
from ostinato.hf.session import SessionOptions, check_session_options


def accelerate(
    model: Any,
    *,
    max_cache_len: int | None = None,
    prefill_buckets: Sequence[int] | None = None,
    budget: int | str = "2GiB",
    eos_check_every: int | None = None,
    backend: BackendName = "auto",
    fuse: bool | None = None,
) -> Accelerated:
    """Return a drop-in for `model` whose `generate` replays its decode steps.

    Args:
        model: A transformers model that can `generate`.
        max_cache_len: Columns of the key-value cache, fixed; None lets it grow by doubling. A cache
            that memory does not hold leaves the request to the model's own `generate`.
        prefill_buckets: Prompt lengths to record; None takes a ladder of four per doubling.
        budget: Bytes that the recordings of one step may hold, for each batch size.
        eos_check_every: Steps between two looks of the host at the device; None chooses. On a CPU,
            and where a GPU's driver can loop, the steps end with the answer whatever this is.
            Elsewhere, and on a GPU when tokens are drawn, an answer that ends early has steps
            run after its end: the answer itself is the same, and torch's random state further on
            than after `model.generate`.
        backend: As for `ostinato.graphed`.
        fuse: Whether runs of small kernels in the decode step (norms, rotary embeddings, gated
            activations) are recorded as one. What is fused gives the same bits: each place is
            compared with the plain kernels before the step is recorded, and left plain where it
            differs; `report()` says which and why. None: on a GPU. True: on a CPU too, where
            Triton's interpreter stands in for a GPU (TRITON_INTERPRET=1); it is slow.

    Raises:
        WrongTypeError: OST3001, the model has no `generate`.
        UsageError: OST3002, lengths or intervals are not positive and ascending, or `fuse` is no
            bool; OST1001, `budget`
            is no amount of bytes; OST1011, there is no such backend, or no GPU for it.
    """
    if isinstance(model, Accelerated):
        model = model.model
    if not isinstance(model, nn.Module) or not callable(getattr(model, "generate", None)):
        got = f"the class {model.__name__}" if isinstance(model, type) else type(model).__name__
        raise WrongTypeError(
            f"accelerate takes a transformers model that can generate, got {got}",
            code="OST3001",
            remedy="pass a model such as AutoModelForCausalLM gives, or use ostinato.graphed",
        )
    for name, value in (("max_cache_len", max_cache_len), ("eos_check_every", eos_check_every)):
        whole = isinstance(value, int) and not isinstance(value, bool)
        if value is not None and (not whole or value < 1):
            raise UsageError(
                f"{name} must be a positive integer, got {value!r}",
                code="OST3002",
                remedy=f"pass {name}=None to let Ostinato choose",
            )
    if fuse is not None and not isinstance(fuse, bool):
        raise UsageError(
            f"fuse must be True, False or None, got {fuse!r}",
            code="OST3002",
            remedy="pass fuse=None to let Ostinato choose, or fuse=False for the plain kernels",
        )
    options = SessionOptions(budget, backend, fuse)
    check_session_options(model, options)
    return Accelerated(
        model,
        max_cache_len=max_cache_len,
        prefill_buckets=check_buckets(prefill_buckets),
        eos_check_every=eos_check_every,
        options=options,
    )
