"""The public way in: `graphed(fn)`, as a call or as a decorator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar, overload

from torch import Tensor

from ostinato.graphs.buckets import Buckets
from ostinato.graphs.options import BackendName, Memory, OnUnfit, Outputs, check_options
from ostinato.graphs.runner import Runner

P = ParamSpec("P")
R = TypeVar("R")


def _not_given_yet(*args: object, **kwargs: object) -> None:
    """Stands for the function that a decorator with options has not been given yet."""


@overload
def graphed(
    fn: Callable[P, R],
    *,
    buckets: Mapping[str, Buckets] | None = ...,
    admit_after: int = ...,
    warmups: int = ...,
    budget: int | str = ...,
    outputs: Outputs = ...,
    drop_unprofitable: bool = ...,
    on_unfit: OnUnfit = ...,
    verify_every: int = ...,
    backend: BackendName = ...,
    scratch: Sequence[Tensor] = ...,
    memory: Memory = ...,
) -> Runner[P, R]: ...


@overload
def graphed(
    *,
    buckets: Mapping[str, Buckets] | None = ...,
    admit_after: int = ...,
    warmups: int = ...,
    budget: int | str = ...,
    outputs: Outputs = ...,
    drop_unprofitable: bool = ...,
    on_unfit: OnUnfit = ...,
    verify_every: int = ...,
    backend: BackendName = ...,
    scratch: Sequence[Tensor] = ...,
    memory: Memory = ...,
) -> Callable[[Callable[P, R]], Runner[P, R]]: ...


def graphed(
    fn: Callable[..., Any] = _not_given_yet,
    *,
    buckets: Mapping[str, Buckets] | None = None,
    admit_after: int = 2,
    warmups: int = 3,
    budget: int | str = "2GiB",
    outputs: Outputs = "owned",
    drop_unprofitable: bool = False,
    on_unfit: OnUnfit = "eager",
    verify_every: int = 0,
    backend: BackendName = "auto",
    scratch: Sequence[Tensor] = (),
    memory: Memory = "own",
) -> Any:
    """Record the calls of `fn` and replay them: on a GPU as CUDA graphs, on a CPU on the tape.

    The result is called like `fn` and returns what `fn` returns. A call whose situation (shapes,
    strides, dtypes, devices, Python values, autocast, training flags) was recorded is replayed; any
    other runs eagerly, and `last` and `report()` say why. Works as a decorator, bare or with
    options.

    A causal language model of transformers returns a new cache object from every call, which no
    replay can hand out: generate with `ostinato.accelerate(model)` instead, or pass
    `use_cache=False` in the call if the logits are all you want.

    Args:
        fn: A function or a module. Coroutine and generator functions are refused. Left out, a
            decorator with these options is returned.
        buckets: Argument name or path ("input_ids", "batch.mask") -> `Buckets`: sizes are rounded
            up and padded, outputs cut back. Without it every shape is its own signature.
        admit_after: Record a signature at its n-th call; 1 records at once.
        warmups: Runs before a recording is made; eager calls before admission count.
        budget: Bytes that all recordings of this runner may keep, such as "2GiB".
        outputs: "owned": the caller's for ever. "leased": every tensor comes as a `Lease`, without
            a copy, readable until the recording runs again.
        drop_unprofitable: Drop a recording that was measured not to be faster than eager. Never
            judged on the tape.
        on_unfit: "eager", or "raise": a CaptureError or UsageError whose code is the reason. An
            empty batch runs eagerly without one: there is nothing to record.
        verify_every: Run every n-th replay eagerly as well, with poisoned padding, and compare; on
            a mismatch the recording is never used again. 0: never.
        backend: "auto", "cuda", "tape", or "eager" to switch recording off.
        scratch: Tensors that `fn` writes and whose contents the extra runs of a recording, or of a
            comparison, may leave changed: they are neither copied nor put back nor compared. For
            large memory of which a run writes a little, and the same again when it is run again: a
            store of keys and values.
        memory: "own": each recording has its own working memory on the GPU, and several may run at
            the same time. "shared": all use the same, as large as the largest needs; they run, and
            are made, one at a time, and outputs must be "owned". On the tape they are the same.

    Raises:
        UsageError: OST1010, `fn` cannot be recorded by its kind; OST1011, an option has a value it
            cannot have; OST1012, `buckets` names an unknown argument; OST1001, a bad `budget`.

    Capture:
        Safe inside another recording, `torch.compile`, `torch.jit.trace`, `torch.fx` or a CUDA
        graph: it runs as plain code there.
    """
    given: dict[str, Any] = {
        "buckets": buckets,
        "admit_after": admit_after,
        "warmups": warmups,
        "budget": budget,
        "outputs": outputs,
        "drop_unprofitable": drop_unprofitable,
        "on_unfit": on_unfit,
        "verify_every": verify_every,
        "backend": backend,
        "scratch": scratch,
        "memory": memory,
    }

    def wrap(target: Callable[..., Any]) -> Runner[..., Any]:
        return Runner(target, check_options(target, **given))

    if fn is _not_given_yet:
        check_options(fn, **given)
        return wrap
    return wrap(fn)
