"""A grammar: which tokens it lets come next, where it ends, and where it cannot go on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from llm.bound_rows import END, byte_tokenizer
from ostinato.errors import UsageError
from ostinato.llm.structured import Compiler, Grammar, read_schema

pytest.importorskip("llguidance")

TOKENIZER = byte_tokenizer()
IDS = TOKENIZER.get_vocab()


@pytest.fixture(scope="module")
def compilers() -> Iterator[dict[int, Compiler]]:
    made = {
        vocabulary: Compiler(TOKENIZER, vocabulary=vocabulary, stop_ids=(END,))
        for vocabulary in (270, 288, 320, 258)
    }
    yield made
    for compiler in made.values():
        compiler.close()


@pytest.fixture
def start(compilers: dict[int, Compiler]) -> Any:
    def start(given: Any, vocabulary: int = 270) -> Grammar:
        schema = read_schema(given)
        assert schema is not None
        return compilers[vocabulary].compile(schema).result(timeout=60).start()

    return start


def allowed(grammar: Grammar) -> set[int]:
    bits = (grammar.allowed_words()[:, None] >> torch.arange(32, dtype=torch.int32)) & 1
    return set(bits.flatten().nonzero()[:, 0].tolist())


def spell(grammar: Grammar, text: str) -> None:
    grammar.accept(TOKENIZER.encode(text).ids)


def go_on(grammar: Grammar, text: str, times: int) -> None:
    for _ in range(times):
        grammar.allowed_words()
        spell(grammar, text)


def takes(grammar: Grammar, text: str) -> bool:
    """Whether `text` is an answer that could end."""
    grammar = grammar.copy()
    try:
        spell(grammar, text)
    except UsageError:
        return False
    return grammar.is_complete


def test_the_end_is_allowed_exactly_where_the_answer_is_complete(start: Any) -> None:
    grammar = start({"choices": ["ab", "abc"]})
    assert allowed(grammar) == {IDS["a"]}
    spell(grammar, "ab")
    assert allowed(grammar) == {IDS["c"], END}
    assert not grammar.is_finished
    spell(grammar, "c")
    assert grammar.is_finished


def test_the_models_end_finishes_a_complete_answer(start: Any) -> None:
    grammar = start({"regex": "[a-z]+"})
    spell(grammar, "ab")
    assert not grammar.is_finished
    grammar.accept([END])
    assert grammar.is_finished


@pytest.mark.parametrize("vocabulary", [258, 270, 288, 320])
def test_tokens_that_the_tokenizer_lacks_or_the_model_lacks_are_never_allowed(
    start: Any, vocabulary: int
) -> None:
    grammar = start({"regex": "(.|\n)*"}, vocabulary)
    words = grammar.allowed_words()
    assert (words.dtype, words.shape) == (torch.int32, (-(-vocabulary // 32),))
    assert max(allowed(grammar)) == min(vocabulary, len(IDS)) - 1
    assert END in allowed(grammar)


def test_copies_go_their_own_ways(start: Any) -> None:
    grammar = start({"choices": ["ab", "cd"]})
    other = grammar.copy()
    spell(grammar, "a")
    spell(other, "c")
    assert (allowed(grammar), allowed(other)) == ({IDS["b"]}, {IDS["d"]})


def test_answers_of_one_compiled_schema_begin_at_its_beginning(
    compilers: dict[int, Compiler],
) -> None:
    schema = read_schema({"choices": ["xy"]})
    assert schema is not None
    compiled = compilers[270].compile(schema).result(timeout=60)
    spell(compiled.start(), "x")
    assert allowed(compiled.start()) == {IDS["x"]}


def test_a_token_that_was_not_allowed_ends_the_answer_with_the_reason(start: Any) -> None:
    grammar = start({"choices": ["ab"]})
    spell(grammar, "a")
    with pytest.raises(UsageError, match="lets nothing follow after 1 token:") as caught:
        spell(grammar, "a")
    assert caught.value.code == "OST5064"
    assert not grammar.is_finished
    with pytest.raises(UsageError):
        grammar.allowed_words()


def test_what_the_models_tokens_cannot_spell_ends_the_answer(
    compilers: dict[int, Compiler],
) -> None:
    lacking = Compiler(TOKENIZER, vocabulary=40, stop_ids=())  # no letters among its 40 tokens
    try:
        schema = read_schema({"choices": ["!a"]})
        assert schema is not None
        grammar = lacking.compile(schema).result(timeout=60).start()
        spell(grammar, "!")
        with pytest.raises(UsageError, match="lets nothing follow after 1 token"):
            grammar.allowed_words()
    finally:
        lacking.close()


def test_work_without_bound_ends_the_answer(start: Any) -> None:
    grammar = start({"regex": "(a?){3000}a{3000}"})
    with pytest.raises(UsageError, match="too many expressions") as caught:
        go_on(grammar, "a", times=50)
    assert caught.value.code == "OST5064"


@pytest.mark.parametrize(
    ("given", "good", "bad"),
    [
        ({"regex": "a&b"}, ["a&b"], ["a", "b"]),
        ({"regex": "^ab$"}, ["ab"], ["^ab$"]),
        ({"regex": 'a/b"'}, ['a/b"'], ["a"]),
        ({"regex": "."}, ["x", "é", "😀"], ["\n", "xy", ""]),
        ({"regex": "[가-힣]{2}"}, ["안녕"], ["안", "ab"]),
        ({"choices": ["", 'a"\n\\é😀']}, ["", 'a"\n\\é😀'], ["a"]),
        ({"type": "string"}, ['"é😀"', '"a\\n"'], ['"a\n"', "a", '"a', '"<end>']),
        ({"enum": ["né", 1, None, {"a": []}]}, ['"né"', "1", "null", '{"a":[]}'], ["2", "true"]),
        ({"type": "integer", "minimum": 3, "maximum": 12}, ["3", "12"], ["2", "13", "3.0", "03"]),
        ({"type": "array", "items": {"type": "boolean"}, "maxItems": 1}, ["[]", "[true]"], ["[1]"]),
        (
            {"properties": {"a": {}}, "additionalProperties": False, "type": "object"},
            ["{}"],
            ["[]"],
        ),
        ({"type": "json_object"}, ["{}", '{"a":{"b":[1,null]}}'], ["[]", "1"]),
        ({}, ["1", "[]", '"a"'], ["x"]),
    ],
)
def test_a_schema_means_what_it_says(
    start: Any, given: Any, good: list[str], bad: list[str]
) -> None:
    grammar = start(given)
    assert [takes(grammar, text) for text in good] == [True] * len(good)
    assert [takes(grammar, text) for text in bad] == [False] * len(bad)


@pytest.mark.parametrize("blanks", ["", " ", "\n", "\n  ", "\n" + " " * 8, "\n\t", "\n\t\t\t\t"])
def test_one_space_may_stand_between_two_words_or_a_line_with_its_indentation(
    start: Any, blanks: str
) -> None:
    grammar = start({"type": "object", "properties": {"a": {"type": "null"}}})
    assert takes(grammar, f'{{{blanks}"a":{blanks}null{blanks}}}')


@pytest.mark.parametrize(
    "blanks", ["  ", "\n\n", "\t", " \n", "\n \t", "\n" + " " * 9, "\n" + "\t" * 5]
)
def test_an_answer_is_not_filled_with_blanks(start: Any, blanks: str) -> None:
    grammar = start({"type": "object", "properties": {"a": {"type": "null"}}})
    assert not takes(grammar, f'{{{blanks}"a":null}}')
    assert not takes(grammar, f'{{"a":{blanks}null}}')
    assert not takes(grammar, '{"a":null}' + blanks)


def test_pretty_json_of_the_usual_kinds_is_allowed(start: Any) -> None:
    value = {"a": {"b": [1, {"c": True}]}, "d": "e"}
    grammar = start({"type": "json_object"})
    for text in (json.dumps(value), json.dumps(value, indent=2), json.dumps(value, indent="\t")):
        assert takes(grammar, text)
    assert takes(grammar, json.dumps(value, separators=(",", ":")))
