"""A shadow replay: replay, then run eagerly, and compare. The caller gets the eager result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ostinato.class_name import class_name
from ostinato.graphs.agreement import disagreement
from ostinato.graphs.aten_calls import storage_id
from ostinato.graphs.fitting import Call
from ostinato.graphs.graph import Graph
from ostinato.graphs.interrupts import run_interruptibly, signals_wait
from ostinato.graphs.other_values import Written, leak
from ostinato.graphs.padding import poison
from ostinato.graphs.signing import close_call
from ostinato.graphs.state import RandomState, TensorState
from ostinato.graphs.tree import flatten


@signals_wait()
def compare(
    graph: Graph,
    leaves: Sequence[object],
    sizes: tuple[int, ...],
    call: Call,
    fn: Callable[..., Any],
    device: torch.device,
) -> tuple[object, str | None]:
    """Run one call both ways; return the eager result and where they differ. Hold the graph's lock.

    The padding is poisoned before its policy fills it: what the policy leaves must not matter.
    State moves on by one run, the eager one. Waits for the device.

    Args:
        leaves: Leaves of the call.
        sizes: Real size of each bucketed axis.
        call: The caller's own arguments.
    """
    written_state = [
        tensor for tensor in graph.written_externals if storage_id(tensor) not in graph.scratch
    ]
    before: tuple[TensorState, RandomState] = (
        TensorState(written_state),
        RandomState(device, graph.generators),
    )
    is_trusted = graph.trusts(sizes)
    given_then = {} if is_trusted else _written_leaves(graph, leaves)
    args, kwargs = call
    try:
        mine, written = _replay(graph, leaves, sizes)
    except Exception as error:  # noqa: BLE001 - of a kernel that does not take the padding
        for state in before:
            state.restore()
        told = graph.inputs.told_of_padding(leaves, graph.signature.structure.paths)
        words = f"the replay raised {class_name(error)}: {error}".splitlines()[0]
        failed = f"{words}; {told}" if told else words
        return run_interruptibly(fn, args, kwargs), failed
    moved = [tensor.detach().clone() for tensor in written_state]
    for state in before:
        state.restore()
    # Autocast keeps cast weights for its whole block, also of weights that changed since; a replay
    # casts anew. Without them both runs see the weights as they are.
    torch.clear_autocast_cache()
    eager = run_interruptibly(fn, args, kwargs)
    if graph.draws:
        return eager, None
    theirs, structure = flatten(eager)
    if structure != graph.hand_out.structure:
        return eager, "the eager run returned another structure"
    found = disagreement(mine, theirs, structure.paths)
    if found is None and written:
        given = [leaves[graph.inputs.leaf_of[i]] for i in sorted(graph.written_inputs)]
        found = disagreement(written, given, [f"written input {i}" for i in range(len(given))])
    if found is None:
        names = [f"state {i} that it writes" for i in range(len(moved))]
        now = [tensor.detach() for tensor in written_state]
        found = disagreement(moved, now, names) or _grown_apart(
            before[0], written_state, moved, names
        )
    if found is None and not is_trusted:
        own = Written(written_state, before[0])
        found = _leak_beside_others(graph, leaves, given_then, sizes, fn, own)
    return eager, found


def _leak_beside_others(
    graph: Graph,
    leaves: Sequence[object],
    given_then: dict[int, Tensor],
    sizes: Sequence[int],
    fn: Callable[..., Any],
    state: Written,
) -> str | None:
    """Compare on other values; tensors of the caller's that the function writes are state, too."""
    tails = graph.inputs.padded_tails(leaves)
    padded = {id(static) for static, _, _ in tails}
    bucketed = [i for i, static in enumerate(graph.inputs.leaves) if id(static) in padded]
    is_padded = any(static.shape[dim] > start for static, dim, start in tails)
    if not is_padded or not all(map(graph.inputs.is_apart, given_then)):
        return None  # copies would not share memory as the caller's tensors do

    def eager(others: Sequence[object]) -> object:
        own = list(others)
        copies = []
        for leaf in given_then:  # a replay starts from the same
            tensor = others[leaf]
            assert isinstance(tensor, Tensor)
            own[leaf] = tensor.clone()
            copies.append(own[leaf])
        args, kwargs = close_call(graph.signature.structure, own)
        return {"result": run_interruptibly(fn, args, kwargs), "written": copies}

    def replay(others: Sequence[object]) -> Sequence[object]:
        results, written = _replay(graph, others, sizes)
        return [*results, *written]

    try:
        return leak(leaves, bucketed, replay, eager, state, given_then)
    finally:
        graph.inputs.forget_padding()
        graph.inputs.fill(leaves)


def _written_leaves(graph: Graph, leaves: Sequence[object]) -> dict[int, Tensor]:
    """Return what the caller's tensors hold that a run is about to write, by leaf."""
    written = {}
    for index in sorted(graph.written_inputs):
        leaf = graph.inputs.leaf_of[index]
        tensor = leaves[leaf]
        assert isinstance(tensor, Tensor)
        written[leaf] = tensor.detach().clone()
    return written


def _grown_apart(
    state: TensorState, written: Sequence[Tensor], moved: Sequence[Tensor], names: Sequence[str]
) -> str | None:
    """Say where state grew by another amount, which may be small beside what it has grown to."""
    kept = state.contents()
    for tensor, mine, name in zip(written, moved, names, strict=True):
        if not tensor.is_floating_point() or tensor.numel() == 0:
            continue
        then = kept[id(tensor)].double()
        by, by_eager = mine.double() - then, tensor.detach().double() - then
        # Both sums were rounded: a difference of a few last places says nothing.
        room = 8 * torch.finfo(tensor.dtype).eps * then.abs() + 1e-3 * by_eager.abs().max()
        if bool(((by - by_eager).abs() > room).any()):
            return f"{name}: grows by another amount"
    return None


def _replay(
    graph: Graph, leaves: Sequence[object], sizes: Sequence[int]
) -> tuple[Sequence[object], list[Tensor]]:
    inputs = graph.inputs
    with torch.no_grad():
        graph.generation += 1
        graph.recording.enter()
        for static, dim, start in inputs.padded_tails(leaves):
            poison(static, dim, start)
        inputs.forget_padding()
        inputs.fill(leaves)
        graph.recording.replay()
        outputs, _ = flatten(graph.hand_out.own(leaves, sizes))
        return outputs, [t.clone() for t in inputs.written_as_given(leaves, graph.written_inputs)]
