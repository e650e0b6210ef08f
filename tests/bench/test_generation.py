"""Generation: accelerate beside generate, token for token."""

from __future__ import annotations

import pytest
import torch

from ostinato.bench import generation, read_options
from ostinato.bench.attempt import Deadline

CPU = torch.device("cpu")


def silent(what: str) -> None:
    pass


@pytest.mark.parametrize("model", ["gpt2", "smollm2-decode"])
def test_both_ways_answer_with_the_same_tokens_and_have_a_speed(model: str) -> None:
    options = read_options(model, is_tiny=True)
    rows = generation.measure_generation(model, options, CPU, Deadline(None), silent)
    assert [(row.way, row.error) for row in rows[:2]] == [("generate", ""), ("accelerate", "")]
    assert all(row.tokens_per_s and row.tokens_per_s > 0 for row in rows[:2])
    assert rows[0].same_tokens is None
    assert rows[1].same_tokens == (1, 1)
    assert rows[1].note.startswith("replayed: 11 of 11 steps")


def test_the_decode_of_smollm2_stands_beside_graphs_written_by_hand() -> None:
    options = read_options("smollm2-decode", is_tiny=True)
    rows = generation.measure_generation("smollm2-decode", options, CPU, Deadline(None), silent)
    assert [(row.way, row.error) for row in rows[2:]] == [
        ("hand-written graph", "needs a CUDA device"),
        ("make_graphed_callables", "needs a CUDA device"),
    ]


def test_answers_that_part_say_where_and_by_how_much(monkeypatch: pytest.MonkeyPatch) -> None:
    real = generation._ways

    def one_token_off(model: object) -> list[generation._Way]:
        base, fast = real(model)
        generate = fast.generate

        def wrong(*args: object, **kwargs: object) -> torch.Tensor:
            tokens = generate(*args, **kwargs)
            tokens[0, -1] = (tokens[0, -1] + 1) % 128
            return tokens

        fast.generate = wrong
        return [base, fast]

    monkeypatch.setattr(generation, "_ways", one_token_off)
    options = read_options("gpt2", is_tiny=True)
    rows = generation.measure_generation("gpt2", options, CPU, Deadline(None), silent)
    assert rows[1].same_tokens == (0, 1)
    assert "row 0, column 19" in rows[1].parting


def test_a_way_that_fails_is_a_row_with_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    real = generation._ways

    def broken(model: object) -> list[generation._Way]:
        def fail(*args: object, **kwargs: object) -> torch.Tensor:
            raise RuntimeError("no luck")

        base, fast = real(model)
        fast.generate = fail
        return [base, fast]

    monkeypatch.setattr(generation, "_ways", broken)
    options = read_options("gpt2", is_tiny=True)
    rows = generation.measure_generation("gpt2", options, CPU, Deadline(None), silent)
    assert [row.error for row in rows] == ["", "RuntimeError: no luck"]


def test_a_spent_budget_is_a_row_with_the_reason() -> None:
    options = read_options("smollm2-decode", is_tiny=True)
    rows = generation.measure_generation("smollm2-decode", options, CPU, Deadline(0), silent)
    assert [row.error for row in rows] == ["not run: the budget of 0 s was spent"]
