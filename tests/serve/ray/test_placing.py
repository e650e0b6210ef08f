"""Which replica answers a prompt: pure, no Ray."""

from __future__ import annotations

import random

import pytest

from ostinato.serve.ray.placing import BLOCK_TOKENS, Memory, marks_of

PROMPT = list(range(3 * BLOCK_TOKENS + 5))


def test_prompts_have_as_many_marks_in_common_as_they_begin_alike() -> None:
    other = [*PROMPT[: 2 * BLOCK_TOKENS], 7, *PROMPT[2 * BLOCK_TOKENS + 1 :]]
    one, two = marks_of(PROMPT), marks_of(other)
    assert len(one) == len(two) == 3
    assert one[:2] == two[:2]
    assert one[2] != two[2]


def test_a_block_that_is_not_whole_has_no_mark() -> None:
    assert marks_of(PROMPT[: BLOCK_TOKENS - 1]) == []
    assert marks_of(PROMPT) == marks_of(PROMPT[: 3 * BLOCK_TOKENS])


def test_other_salts_have_nothing_in_common() -> None:
    assert not set(marks_of(PROMPT, "a")) & set(marks_of(PROMPT, "b"))


def test_the_same_blocks_in_another_order_are_another_beginning() -> None:
    turned = [*PROMPT[BLOCK_TOKENS : 2 * BLOCK_TOKENS], *PROMPT[:BLOCK_TOKENS]]
    assert not set(marks_of(turned)) & set(marks_of(PROMPT))


def test_tokens_do_not_run_together() -> None:
    one = [1, 23] * (BLOCK_TOKENS // 2)
    assert marks_of(one) != marks_of([12, 3] * (BLOCK_TOKENS // 2))


def test_a_prompt_goes_where_its_beginning_is_known() -> None:
    memory: Memory[str] = Memory()
    memory.sent(marks_of(PROMPT), "b")
    assert memory.rank(marks_of(PROMPT), {"a": 0, "b": 3}) == ["b", "a"]


def test_a_prompt_that_nobody_knows_goes_to_the_idlest() -> None:
    memory: Memory[str] = Memory()
    memory.sent(marks_of(PROMPT), "b")
    assert memory.rank(marks_of([9] * 200), {"a": 1, "b": 0, "c": 2}) == ["b", "a", "c"]
    assert memory.rank([], {"a": 1, "b": 2}) == ["a", "b"]


def test_the_longer_beginning_wins_over_the_shorter() -> None:
    memory: Memory[str] = Memory()
    memory.sent(marks_of(PROMPT[:BLOCK_TOKENS]), "a")
    memory.sent(marks_of(PROMPT), "b")
    assert memory.rank(marks_of(PROMPT), {"a": 0, "b": 5})[0] == "b"


def test_one_that_has_far_more_to_do_is_not_preferred() -> None:
    memory: Memory[str] = Memory(slack=4)
    memory.sent(marks_of(PROMPT), "b")
    assert memory.rank(marks_of(PROMPT), {"a": 0, "b": 4})[0] == "b"
    assert memory.rank(marks_of(PROMPT), {"a": 0, "b": 5})[0] == "a"


def test_of_two_that_know_it_the_idler_is_first() -> None:
    memory: Memory[str] = Memory()
    for replica in ("b", "c"):
        memory.sent(marks_of(PROMPT), replica)
    assert memory.rank(marks_of(PROMPT), {"a": 0, "b": 3, "c": 1}) == ["c", "b", "a"]


def test_one_that_is_gone_is_forgotten() -> None:
    memory: Memory[str] = Memory()
    memory.sent(marks_of(PROMPT), "b")
    memory.keep_only({"a"})
    assert len(memory) == 0
    assert memory.rank(marks_of(PROMPT), {"a": 3, "b": 0})[0] == "b"  # by its load alone


def test_the_oldest_marks_are_forgotten_first() -> None:
    memory: Memory[str] = Memory(most=4)
    first, second = marks_of(PROMPT), marks_of(PROMPT, "salt")
    memory.sent(first, "b")
    memory.sent(second, "c")
    assert len(memory) == 4
    assert memory.rank(first[:1], {"a": 0, "b": 1}) == ["a", "b"]
    assert memory.rank(second, {"a": 0, "c": 1})[0] == "c"


def test_what_is_asked_for_again_is_remembered_longer() -> None:
    memory: Memory[str] = Memory(most=4)
    other, third = marks_of([5] * BLOCK_TOKENS), marks_of([6] * BLOCK_TOKENS)
    for marks, replica in ((marks_of(PROMPT), "b"), (other, "c"), (marks_of(PROMPT), "b")):
        memory.sent(marks, replica)
    memory.sent(third, "d")
    loads = {"a": 0, "b": 1, "c": 1, "d": 1}
    assert memory.rank(marks_of(PROMPT)[:1], loads)[0] == "b"
    assert memory.rank(other, loads)[0] == "a"


def test_of_two_with_as_much_to_do_the_one_that_was_sent_less_is_first() -> None:
    memory: Memory[str] = Memory()
    sent = []
    for _ in range(6):
        first = memory.rank([], {"a": 0, "b": 0, "c": 0})[0]
        memory.sent([], first)
        sent.append(first)
    assert sorted(sent) == ["a", "a", "b", "b", "c", "c"]


def test_a_newcomer_gets_no_more_than_its_share() -> None:
    memory: Memory[str] = Memory()
    for _ in range(10):
        memory.sent([], "a")
    memory.keep_only({"a", "b"})
    firsts = []
    for _ in range(10):
        firsts.append(memory.rank([], {"a": 0, "b": 0})[0])
        memory.sent([], firsts[-1])
    assert firsts.count("b") <= 6


def test_nobody_is_asked_where_nobody_is() -> None:
    assert Memory[str]().rank(marks_of(PROMPT), {}) == []


@pytest.mark.parametrize("seed", range(5))
def test_conversations_stay_together_and_no_replica_is_left_idle(seed: int) -> None:
    """Every turn repeats what was said: all but the first of each find their beginning known."""
    chance, memory = random.Random(seed), Memory[int]()
    served = dict.fromkeys(range(4), 0)
    home: dict[int, set[int]] = {}
    for _ in range(400):
        talk = chance.randrange(40)
        turns = len(home.get(talk, ()))
        prompt = [talk * 1000 + n for n in range(BLOCK_TOKENS * (2 + turns))]
        first = memory.rank(marks_of(prompt), served)[0]
        memory.sent(marks_of(prompt), first)
        served[first] += 1
        home.setdefault(talk, set()).add(first)
    assert max(served.values()) - min(served.values()) <= 9  # the slack, and one
    assert sum(len(replicas) for replicas in home.values()) < 40 * 4
