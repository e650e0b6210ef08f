"""Rows that depend on each other are seen before an answer goes out, whichever way they do."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
import torch
from torch import Tensor, nn

from ostinato.graphs import graphed
from ostinato.serve.callable import Array, Servable, TensorSpec
from ostinato.serve.callable.arrays import Arrays, from_numbers
from ostinato.serve.callable.company import dependence, two_rows
from ostinato.serve.callable.model import Model

SIZES = {"powers": (1, 2, 4), "consecutive": (1, 2, 3, 4), "two": (1, 2)}


class Recurrent(nn.Module):
    """Reads the rows as if they were steps, because batch_first is forgotten."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.cell = nn.GRU(2, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.cell(x)[0]
        return out


class LeftInTraining(nn.Module):
    """Normalises over the rows and draws, as a network does whose `eval()` is forgotten."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(2)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(self.norm(x), 0.5)


def by_amax(x: Tensor) -> Tensor:
    return x - x.amax(0)


def into_its_own_buffer() -> Callable[..., Tensor]:
    buffer = torch.zeros(4, 2)
    return lambda x: torch.sub(x, x.mean(0), out=buffer[: len(x)])


MIXING: dict[str, Callable[[], Callable[..., Tensor]]] = {
    "gru": Recurrent,
    "cumsum": lambda: lambda x: x.cumsum(0),
    "later-rows": lambda: lambda x: x.flip(0).cumsum(0).flip(0),
    "neighbour": lambda: lambda x: x - x.roll(1, 0),
    "amax": lambda: by_amax,
    "amin": lambda: lambda x: x - x.amin(0),
    "mean": lambda: lambda x: x - x.mean(0),
    "place": lambda: lambda x: x + torch.arange(len(x))[:, None],
    "in-place": lambda: lambda x: x.cumsum_(0),
    "own-buffer": into_its_own_buffer,
    "whole-numbers": lambda: lambda x: (x - x.mean(0)).to(torch.int64),
    "training": LeftInTraining,
}
SENT = {
    "rising": [(1.0, 2.0), (3.0, 4.0), (5.0, 9.0)],
    "largest-first": [(5.0, 9.0), (3.0, 4.0), (1.0, 2.0)],
    "two-of-a-kind": [(3.0, 4.0), (3.0, 4.0), (1.0, 2.0)],
}


def asked(rows: list[tuple[float, float]]) -> list[Arrays]:
    return [{"x": from_numbers("x", "FP32", (1, 2), list(each))} for each in rows]


def model_of(fn: Callable[..., object], sizes: tuple[int, ...] = (1, 2, 3, 4)) -> Model:
    return Model(Servable(fn, {"x": TensorSpec("FP32", (-1, 2))}, batch_sizes=sizes))


@pytest.mark.parametrize("sent", SENT)
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("kind", [kind for kind in MIXING if kind != "training"])
def test_every_client_gets_what_it_gets_alone(
    kind: str, sizes: str, sent: str, caplog: pytest.LogCaptureFixture
) -> None:
    batch = asked(SENT[sent])
    if sizes == "two":
        batch = batch[1:]
    alone = [model_of(MIXING[kind]()).run([one])[0] for one in batch]
    model = model_of(MIXING[kind](), SIZES[sizes])
    assert model.run(batch) == alone
    assert model.mixes_rows
    assert model.run(batch) == alone
    assert sum("rows depend on each other" in each.message for each in caplog.records) == 1


def test_a_network_left_in_training_is_seen_beside_its_draws() -> None:
    model = model_of(LeftInTraining())
    model.run(asked(SENT["rising"]))
    assert model.mixes_rows


def embedding() -> Callable[..., object]:
    torch.manual_seed(0)
    table = nn.Embedding(16, 8)
    net = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    return lambda x: net(table(x.to(torch.int64))).mean(1)


def with_own_generator() -> Callable[..., object]:
    generator = torch.Generator().manual_seed(0)
    return lambda x: x + torch.rand(x.shape, generator=generator)


INDEPENDENT: dict[str, Callable[[], Callable[..., object]]] = {
    "times-two": lambda: lambda x: x * 2,
    "in-place": lambda: lambda x: x.mul_(2),
    "network": embedding,
    "whole-numbers": lambda: lambda x: x.argmax(1),
    "nothing-but-nan": lambda: lambda x: x * float("nan"),
    "dropout": lambda: nn.Dropout(0.5),
    "own-draws": with_own_generator,
}


@pytest.mark.parametrize("kind", INDEPENDENT)
def test_rows_that_are_independent_are_not_blamed(kind: str) -> None:
    fn = INDEPENDENT[kind]()
    name = "input" if isinstance(fn, nn.Dropout) else "x"
    model = Model(Servable(fn, {name: TensorSpec("FP32", (-1, 2))}, batch_sizes=(1, 2, 3, 4)))
    batch = [{name: one["x"]} for one in asked(SENT["rising"])]
    for _ in range(2):
        assert all(isinstance(answer, dict) for answer in model.run(batch))
    assert not model.mixes_rows


def test_a_dropout_draws_on_as_if_there_had_been_one_more_run() -> None:
    inputs = {"x": torch.ones(3, 2), "y": torch.tensor([1, 1, 2])}
    assert two_rows(inputs) == (1, 2)
    torch.manual_seed(1)
    torch.rand(3, 2)
    expected = torch.rand(3, 2)
    torch.manual_seed(1)
    assert dependence(lambda made: {"r": torch.rand(made["x"].shape)}, inputs, (1, 2)) == ""
    torch.testing.assert_close(torch.rand(3, 2), expected)


def test_what_comes_graphed_is_tried_too() -> None:
    model = model_of(graphed(by_amax, admit_after=1))
    batch = asked(SENT["rising"])
    assert model.run(batch) == [model_of(by_amax).run([one])[0] for one in batch]
    assert model.mixes_rows


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The shapes of what was tried."""
    shapes: list[tuple[int, ...]] = []

    def tell(call: object, inputs: dict[str, Tensor], places: object) -> str:
        shapes.append(tuple(inputs["x"].shape))
        return ""

    monkeypatch.setattr("ostinato.serve.callable.model.dependence", tell)
    return shapes


def send(model: Model, width: int, *values: int) -> None:
    model.run([{"x": Array("FP32", (1, width), bytes([n] * 4 * width))} for n in values])


def test_each_set_of_sizes_is_tried_once_and_equal_rows_not_at_all(
    trials: list[tuple[int, ...]],
) -> None:
    model = Model(Servable(lambda x: x * 2, {"x": TensorSpec("FP32", (-1, -1))}))
    for width in (3, 5):
        send(model, width, 1)
        send(model, width, 1, 1)
        send(model, width, 1, 2)
        send(model, width, 2, 1, 3)
    assert trials == [(2, 3), (2, 5)]


def test_sizes_that_clients_choose_are_not_tried_without_end(
    trials: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ostinato.serve.callable.model._MOST_TRIED", 2)
    model = Model(Servable(lambda x: x * 2, {"x": TensorSpec("FP32", (-1, -1))}))
    for width in (1, 2, 3):
        send(model, width, 1, 2)
    assert trials == [(2, 1), (2, 2)]


def test_an_answer_that_is_as_wide_as_the_largest_row_wants_is_seen() -> None:
    inputs = {"x": torch.tensor([[1.0, 1.0], [2.0, 2.0]])}
    found = dependence(lambda made: {"y": made["x"][:, : int(made["x"].amax())]}, inputs, (0, 1))
    assert found == "y: shape [2, 1] instead of [2, 2]"


def test_a_callable_that_counts_its_calls_is_not_blamed() -> None:
    calls: list[int] = []

    def count(made: Mapping[str, Tensor]) -> dict[str, Tensor]:
        calls.append(len(calls))
        return {"y": made["x"] + len(calls)}

    assert dependence(count, {"x": torch.tensor([[1.0], [2.0]])}, (0, 1)) == ""
    assert len(calls) == 3


def test_whole_numbers_in_another_place_may_be_rounded_otherwise() -> None:
    def edge(made: Mapping[str, Tensor]) -> dict[str, Tensor]:
        rounding = torch.tensor([[0.0], [1e-6]])
        return {"y": (made["x"] + rounding).to(torch.int64)}

    almost = {"x": torch.tensor([[0.9999995], [3.0]])}
    assert dependence(edge, almost, (0, 1)) == ""


def test_the_callable_itself_is_tried_and_no_recording_of_it() -> None:
    runner = graphed(lambda x: x * 2, admit_after=1)
    model = model_of(runner)
    model.warm()
    before = runner.report().replays
    model.run(asked(SENT["rising"][:2]))
    assert runner.report().replays - before == 1


def test_a_run_with_other_rows_than_it_was_given_says_nothing() -> None:
    inputs = {"x": torch.tensor([[1.0], [2.0]])}
    with pytest.raises(ValueError, match="for 2 rows"):
        dependence(lambda made: {"y": made["x"][:1]}, inputs, (0, 1))
