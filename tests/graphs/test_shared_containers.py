"""One list, dict or object given in two places: `a is b` can be asked, and one change is two."""

from __future__ import annotations

from collections import OrderedDict, UserDict
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from graphs.replaying import check_eager, check_replay, record
from ostinato.graphs import Buckets, OstinatoWarning, Outcome, Reason, graphed
from ostinato.graphs.sharing import repeats
from ostinato.graphs.signature import differences
from ostinato.graphs.signing import Opening, close_call
from ostinato.graphs.tree import flatten_as_shared


@dataclass
class Batch:
    x: Tensor


MAKERS: list[Callable[[Tensor], Any]] = [
    lambda x: [x],
    lambda x: (x,),
    lambda x: {"x": x},
    lambda x: OrderedDict(x=x),
    lambda x: UserDict({"x": x}),
    lambda x: SimpleNamespace(x=x),
    Batch,
    lambda x: {1, 2},
]


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("shared_first", [True, False])
def test_whether_two_containers_are_one_is_part_of_the_key(
    make: Callable[[Tensor], Any], shared_first: bool, device: torch.device
) -> None:
    def step(x: Tensor, a: Any, b: Any) -> Tensor:
        return x * 2 if a is b else x * 3

    x = torch.arange(4.0, device=device)
    one, other = make(x), make(x)
    calls = [(x, one, one), (x, one, other)]
    if not shared_first:
        calls.reverse()
    g = record(step, *calls[0])
    assert g(*calls[1]).tolist() == step(*calls[1]).tolist()
    assert g.last is not None
    assert g.last.outcome is Outcome.RECORDED
    for _ in range(2):
        for call in calls:
            check_replay(g, *call)


def test_it_counts_wherever_the_two_stand(device: torch.device) -> None:
    def step(batch: dict[str, Any], *, kept: list[Any]) -> Tensor:
        y: Tensor = batch["x"] * (2 if batch["rows"][1] is kept else 3)
        return y + (batch["rows"][0] is batch["rows"][1])

    def call(first: bool, second: bool) -> tuple[dict[str, Any], list[Any]]:
        kept: list[Any] = [1]
        rows: Any = ([1] if not first else kept, kept if second else [1])
        return {"x": torch.ones(2, device=device), "rows": rows}, kept

    g = graphed(step, admit_after=1)
    for _ in range(3):
        for first in (False, True):
            for second in (False, True):
                batch, kept = call(first, second)
                assert g(batch, kept=kept).tolist() == step(batch, kept=kept).tolist()
    assert g.last is not None
    assert g.last.outcome is Outcome.REPLAYED
    assert g.report().recordings == 4


def test_the_branch_for_one_container_is_found_at_every_size(device: torch.device) -> None:
    def step(x: Tensor, a: list[int], b: list[int]) -> Tensor:
        return x.sum(0, keepdim=True) if a is b else x + 1

    shared = [1]
    buckets = {"x": Buckets(dim=0, sizes=(4, 8), fill=0)}
    g = record(step, torch.ones(3, device=device), shared, shared, buckets=buckets)
    check_replay(g, torch.arange(3.0, device=device), shared, shared)
    g(torch.ones(3, device=device), [1], [1])
    check_replay(g, torch.arange(3.0, device=device), [1], [1])


def test_a_list_that_is_put_in_the_place_of_an_equal_one_is_an_effect(
    device: torch.device,
) -> None:
    def step(x: Tensor, state: dict[str, list[int]]) -> Tensor:
        state["a"] = state["b"]
        return x + 1

    g = graphed(step, admit_after=1)
    state = {"a": [1], "b": [1]}
    with pytest.warns(OstinatoWarning, match="in the place of another"):
        check_eager(g, Reason.PYTHON_SIDE_EFFECT, torch.ones(2, device=device), state)
    assert state["a"] is state["b"]


def test_shared_values_are_rebuilt_as_one_and_others_as_two() -> None:
    inner = {"k": [1, 2]}
    args = (inner, [inner["k"], [1, 2]], ())
    leaves, structure = Opening(("x",), sees_order=True).open(args, {"again": inner})
    built, kwargs = close_call(structure, leaves)
    assert (built, kwargs) == (args, {"again": inner})
    x, y, _ = built
    assert kwargs["again"] is x
    assert y[0] is x["k"]
    assert y[1] is not y[0]
    whole, root = flatten_as_shared((args, inner))
    assert (rebuilt := root.unflatten(whole)) == (args, inner)
    assert rebuilt[1] is rebuilt[0][0]
    with pytest.raises(ValueError, match="more than this structure holds"):
        root.unflatten([*whole, 1])


def test_a_value_that_contains_itself_shares_nothing_with_what_was_seen_of_it() -> None:
    endless: list[Any] = [[1], [1]]
    endless.append(endless)
    inner = endless[0]
    leaves, structure = Opening((), sees_order=True).open((endless, inner, inner), {})
    assert leaves[0] is endless
    (_, one, two), _ = close_call(structure, leaves)
    assert one is two
    assert structure.shared == ((2, 1),)


def test_a_structure_without_shared_values_is_recognised_and_one_with_them_too() -> None:
    opening = Opening(("a", "b"), sees_order=True)
    shared = [1]
    apart = opening.open(([1], [1]), {})[1]
    assert opening.open(([1], [1]), {})[1] is apart
    together = opening.open((shared, shared), {})[1]
    assert together != apart
    assert together.children == apart.children
    assert opening.open((shared, shared), {})[1] is together
    assert opening.open(([1], [1]), {})[1] == apart


def test_repeats_are_named_by_the_first_that_they_are() -> None:
    a, b, c = [1], [1], [1]
    assert repeats([a, b, c]) == ()
    assert repeats([a, b, a, b, a]) == ((2, 0), (3, 1), (4, 0))


def test_the_difference_is_told_in_words(device: torch.device) -> None:
    def step(x: Tensor, a: list[int], b: list[int]) -> Tensor:
        return x + 1

    x, shared = torch.ones(2, device=device), [1]
    g = record(step, x, shared, shared)
    g(x, [1], [1])
    one, other = (graph.signature for graph in g._store.graphs())
    assert "are one and the same" in differences(one, other)[0]
    assert "are one and the same" in differences(other, one)[0]
