"""Rows with a grammar in the decode loop: one step when told, none if not, others undisturbed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from llm.bound_rows import CPU, END, Bound, BoundHost, NoiseDecoder, byte_tokenizer
from llm.resident_rows import by_row
from ostinato.errors import InternalError
from ostinato.llm.params import SamplingParams
from ostinato.llm.resident_state import Ending
from ostinato.llm.structured import Compiled, Compiler, Grammar, read_schema

pytest.importorskip("llguidance")

VOCABULARY = 270
SCHEMA = {"regex": "[a-z]{6}[0-9]{6}"}


@pytest.fixture(scope="module")
def compiled() -> Iterator[Compiled]:
    compiler = Compiler(byte_tokenizer(), vocabulary=VOCABULARY, stop_ids=(END,))
    schema = read_schema(SCHEMA)
    assert schema is not None
    yield compiler.compile(schema).result(timeout=60)
    compiler.close()


def host(rows: int, **options: int) -> BoundHost:
    return BoundHost(NoiseDecoder(VOCABULARY), VOCABULARY, rows=rows, stop_ids=(END,), **options)


def bound(grammar: Grammar | None, seed: int = 0, **options: object) -> Bound:
    asked = {"max_tokens": 40, "schema": SCHEMA, **options}
    return Bound((5 + seed,), SamplingParams(**asked), grammar, seed)  # type: ignore[arg-type]


def free(seed: int, **options: object) -> Bound:
    asked = {"max_tokens": 90, **options}
    return Bound((9 + seed, 4), SamplingParams(**asked), None, seed)  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{}, {"temperature": 0}, {"top_k": 9, "presence_penalty": 0.5}])
def test_others_give_the_same_tokens_and_keep_their_steps(
    compiled: Compiled, options: dict[str, object]
) -> None:
    alone = [free(seed, **options) for seed in range(3)]
    host(3).run(*alone)
    company = [free(seed, **options) for seed in range(3)]
    rows = [bound(compiled.start(), 1), *company, bound(compiled.start(), 2)]
    host(5).run(*rows)
    assert [each.tokens for each in company] == [each.tokens for each in alone]
    assert [each.most_at_once for each in company] == [8, 8, 8]
    assert [rows[0].most_at_once, rows[4].most_at_once] == [1, 1]
    assert [rows[0].finish, rows[4].finish] == ["stop", "stop"]


def test_company_and_the_length_of_launches_do_not_change_an_answer_with_a_grammar(
    compiled: Compiled,
) -> None:
    alone = bound(compiled.start(), 3)
    host(1).run(alone, steps=1)
    among = [free(0), bound(compiled.start(), 3), free(1), bound(compiled.start(), 4)]
    host(4).run(*among)
    assert among[1].tokens == alone.tokens
    assert among[3].tokens != alone.tokens


def test_a_row_that_was_not_told_is_passed_by(compiled: Compiled) -> None:
    it = host(2)
    waits, runs = bound(compiled.start()), free(0)
    it.seat(0, waits)
    it.seat(1, runs)
    gave = by_row(it.resident.launch(8).wait())
    assert (gave[0].tokens, gave[0].finish, len(gave[1].tokens)) == ((), None, 8)
    it.launch(8)
    assert (len(waits.tokens), len(runs.tokens)) == (1, 8)


def test_an_answer_passed_by_now_and_then_is_the_same(compiled: Compiled) -> None:
    straight = bound(compiled.start())
    host(1).run(straight)
    it = host(2)
    halting = bound(compiled.start())
    it.seat(0, halting)
    it.seat(1, free(0, max_tokens=200))
    while halting.finish is None:
        it.resident.launch(3).wait()
        it.launch(3)
    assert halting.tokens == straight.tokens


def test_a_launch_does_not_go_on_for_rows_that_wait_to_be_told(compiled: Compiled) -> None:
    it = host(2)
    it.seat(0, bound(compiled.start()))
    it.seat(1, free(0, max_tokens=3))
    it.resident.set_allowed(0, compiled.start().allowed_words())
    assert it.resident.launch(8).steps == 3


def test_a_row_with_a_grammar_needs_pages_for_one_step_only(compiled: Compiled) -> None:
    it = host(2, max_pages=8)
    it.seat(0, bound(compiled.start()))
    it.seat(1, free(0))
    it.resident.set_pages(0, [1])  # 16 tokens, of which it knows 1
    for _ in range(10):
        it.launch(8)
    assert it.resident._seats.cached_B[0] == len(it.seated[0].tokens) == 10


def test_length_cuts_an_answer_off(compiled: Compiled) -> None:
    cut = bound(compiled.start(), max_tokens=7)
    host(1).run(cut)
    assert (len(cut.tokens), cut.finish) == (7, "length")


def test_who_follows_in_the_row_of_a_grammar_runs_freely(compiled: Compiled) -> None:
    it = host(1)
    it.run(bound(compiled.start()))
    follower, alone = free(0, top_k=50), free(0, top_k=50)
    it.run(follower)
    host(1).run(alone)
    assert follower.tokens == alone.tokens
    assert follower.most_at_once == 8


def test_reports_of_likeliest_tokens_come_with_grammars_too(compiled: Compiled) -> None:
    it = host(2, most_logprobs=3)
    it.seat(0, bound(compiled.start(), logprobs=2))
    it.seat(1, free(0))
    words = compiled.start().allowed_words()
    it.resident.set_allowed(0, words)
    gave = by_row(it.resident.launch(4).wait())[0]
    assert gave.logprobs is not None
    assert [len(each.top) for each in gave.logprobs] == [2]
    own = NoiseDecoder(VOCABULARY).logits(torch.tensor([[5 * 31]]))[0].log_softmax(-1)
    assert gave.logprobs[0].chosen == pytest.approx(float(own[gave.tokens[0]]))


def test_a_grammar_without_a_way_on_ends_in_an_error_and_nobody_else(compiled: Compiled) -> None:
    it = host(2)
    it.seat(0, bound(compiled.start()))
    it.seat(1, free(0))
    it.resident.set_allowed(0, torch.zeros_like(compiled.start().allowed_words()))
    gave = by_row(it.resident.launch(4).wait())
    assert (gave[0].finish, gave[0].tokens) == ("error", ())
    assert (gave[1].finish, len(gave[1].tokens)) == (None, 4)


def test_what_only_a_bug_would_ask_is_refused(compiled: Compiled) -> None:
    it = host(2)
    it.seat(0, bound(compiled.start()))
    with pytest.raises(InternalError, match="no row runs"):
        it.resident.launch(4)
    with pytest.raises(InternalError, match="needs a launch"):
        it.resident.begin([0], torch.zeros(1, 1, device=CPU))
    it.seat(1, free(0))
    with pytest.raises(InternalError, match="row 1 has no grammar"):
        it.resident.set_allowed(1, compiled.start().allowed_words())


def test_words_told_to_a_row_that_was_left_are_not_told_to_the_next(compiled: Compiled) -> None:
    it = host(2)
    it.seat(0, bound(compiled.start()))
    it.seat(1, free(0))
    it.resident.set_allowed(0, compiled.start().allowed_words())
    it.resident.leave(0)
    it.seat(0, bound(compiled.start(), 1))
    assert it.resident.launch(8).wait().tokens[0] == ()


def test_only_a_row_that_is_paused_is_woken() -> None:
    state = host(3).resident.state
    state.ending.copy_(torch.tensor([Ending.PAUSED, Ending.STOP, Ending.PAUSED]))
    state.wake(torch.tensor([1, 2]))
    assert state.ending.tolist() == [Ending.PAUSED, Ending.STOP, Ending.RUNNING]


def test_while_a_grammar_rests_the_others_run_at_their_own_level(compiled: Compiled) -> None:
    it = host(2)
    it.seat(0, bound(compiled.start()))
    it.seat(1, free(0, temperature=0))
    nodes = []
    for _ in range(2):
        it.resident.launch(2).wait()
        nodes.append(it.resident.report().graphs[-1].nodes)
        it.resident.set_allowed(0, compiled.start().allowed_words())
    assert nodes[0] < nodes[1] / 2
