"""A shadow replay: replay, then run eagerly, and compare. The caller gets the eager result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ostinato.graphs.agreement import disagreement
from ostinato.graphs.fitting import Situation
from ostinato.graphs.graph import Graph
from ostinato.graphs.padding import poison
from ostinato.graphs.state import RandomState, TensorState
from ostinato.graphs.tree import flatten


def compare(
    graph: Graph, situation: Situation, fn: Callable[..., Any], device: torch.device
) -> tuple[object, str | None]:
    """Run one call both ways; return the eager result and where they differ. Hold the graph's lock.

    The padding is poisoned before its policy fills it: what the policy leaves must not matter.
    State moves on by one run, the eager one. Waits for the device.
    """
    before: tuple[TensorState, RandomState] = (
        TensorState(graph.written_externals),
        RandomState(device, graph.generators),
    )
    mine, written = _replay(graph, situation)
    moved = [tensor.detach().clone() for tensor in graph.written_externals]
    for state in before:
        state.restore()
    args, kwargs = situation.call
    eager = fn(*args, **kwargs)
    if graph.draws:
        return eager, None
    leaves, structure = flatten(eager)
    if structure != graph.hand_out.structure:
        return eager, "the eager run returned another structure"
    found = disagreement(mine, leaves, structure.paths)
    if found is None and written:
        given = [situation.leaves[graph.inputs.leaf_of[i]] for i in sorted(graph.written_inputs)]
        found = disagreement(written, given, [f"written input {i}" for i in range(len(given))])
    if found is None:
        names = [f"state {i} that it writes" for i in range(len(moved))]
        found = disagreement(moved, [t.detach() for t in graph.written_externals], names)
    return eager, found


def _replay(graph: Graph, situation: Situation) -> tuple[Sequence[object], list[Tensor]]:
    inputs, leaves = graph.inputs, situation.leaves
    with torch.no_grad():
        graph.recording.enter()
        for static, dim, start in inputs.padded_tails(leaves):
            poison(static, dim, start)
        inputs.forget_padding()
        inputs.fill(leaves)
        graph.recording.replay()
        graph.generation += 1
        outputs, _ = flatten(graph.hand_out.own(leaves, situation.sizes))
        return outputs, [t.clone() for t in inputs.written_as_given(leaves, graph.written_inputs)]
