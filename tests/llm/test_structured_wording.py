"""A schema of which no grammar can be made: what is wrong is said of the schema itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from llm.bound_rows import END, byte_tokenizer
from ostinato.errors import UsageError
from ostinato.llm.structured import Compiler, read_schema
from ostinato.llm.structured.problems import not_installed, nothing_allowed, tokenizer_unusable
from ostinato.llm.structured.wording import said_of_schema

pytest.importorskip("llguidance")


@pytest.fixture(scope="module")
def compiler() -> Iterator[Compiler]:
    compiler = Compiler(byte_tokenizer(), vocabulary=270, stop_ids=(END,))
    yield compiler
    compiler.close()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"type": "array", "uniqueItems": True}, "it uses uniqueItems, to which no answer"),
        ({"type": "string", "format": "tune"}, "it has the format 'tune', which is not known"),
        ({"$ref": "#/$defs/none"}, "its $ref '/$defs/none' leads nowhere"),
        (
            {"type": "string", "minLength": 5, "maxLength": 3},
            "nothing satisfies it: minLength 5 is above maxLength 3",
        ),
        ({"type": "string", "minLength": "a"}, "minLength must be a whole number from 0, got"),
        ({"type": "object", "required": 3}, "required must be a list"),
        ({"type": "object", "required": [3]}, "an item of required must be a text, got '3'"),
        ({"type": "string", "pattern": 5}, "pattern must be a text, got '5'"),
        ({"type": "integer", "minimum": "5"}, "minimum must be a number, got '\"5\"'"),
        ({"type": "integer", "minimum": 1e19}, "no number can be written for minimum 9223372"),
        ({"type": "number", "maximum": -1e19}, "no number can be written for maximum -1e19"),
        (
            {"type": "object", "properties": {"a": {}}, "minProperties": 1},
            "it counts properties by minProperties or maxProperties, and not all are required",
        ),
        ({"regex": "(("}, "its pattern '((' opens a group that is never closed"),
        ({"regex": "(?=a)b"}, "its pattern '(?=a)b' looks ahead or behind"),
        ({"type": "string", "pattern": "[z-a]"}, "has a range of letters that ends before"),
    ],
    ids=repr,
)
def test_what_is_wrong_comes_first_and_the_compiler_s_words_after_it(
    given: Any, said: str, compiler: Compiler
) -> None:
    schema = read_schema(given)
    assert schema is not None
    with pytest.raises(UsageError) as caught:
        compiler.compile(schema).result(60)
    assert caught.value.code == "OST5062"
    ours, _, theirs = str(caught.value.args[0]).partition("; in the compiler's words: ")
    assert ours.startswith("no grammar can be made of the schema: ")
    assert said in ours
    assert said_of_schema(theirs) in ours
    for word in ("Unimplemented", "regex parse", "(in regex)", "Unsatisfiable", "Pointer"):
        assert word not in ours


@pytest.mark.parametrize(
    ("detail", "said"),
    [
        ('Unimplemented keys: ["if", "then"]', "it uses if and then, to which no answer"),
        ("Invalid type: wood", "it has the type 'wood', which is none"),
        (
            "at 2(9): failed to compile JSON schema: Invalid type: wood 1 | start: a ^",
            "it has the type 'wood', which is none",
        ),
        ("Pointer '/$defs/none' does not exist", "its $ref '/$defs/none' leads nowhere"),
        (
            "Unsatisfiable schema: minLength (5) is greater than maxLength (3)",
            "nothing satisfies it: minLength 5 is above maxLength 3",
        ),
        (
            (
                'at 1(8): invalid regex "(?=a)b" (in regex): regex parse error: (?=a)b ^^^ error: '
                "look-around, including look-ahead and look-behind, is not supported"
            ),
            "its pattern '(?=a)b' looks ahead or behind",
        ),
        ("regex parse error: aaaaaaa…", "cannot be read"),
        ("recursion limit exceeded at line 1 column 2491", "it nests too deeply"),
        ("cosmic rays", "it asks for something that no answer can be kept to"),  # unforeseen
    ],
)
def test_why_there_is_no_grammar_is_said_of_the_schema(detail: str, said: str) -> None:
    message = said_of_schema(detail)
    assert said in message
    assert not re.search(r"Unimplemented|regex parse|\(in regex\)|rays|Invalid|at \d+\(", message)


@pytest.mark.parametrize(
    ("error", "fact"),
    [
        (nothing_allowed(0, ""), "the schema lets nothing follow from the beginning"),
        (nothing_allowed(1, "x"), "the schema lets nothing follow after 1 token: "),
        (nothing_allowed(2, "x"), "the schema lets nothing follow after 2 tokens: "),
        (tokenizer_unusable("x"), "a schema was given, and this model's answers cannot be kept"),
        (not_installed(ImportError("x")), "a schema was given, and what keeps answers to one, the"),
    ],
    ids=lambda given: given.code if isinstance(given, UsageError) else "",
)
def test_the_fact_stands_before_the_cause(error: UsageError, fact: str) -> None:
    assert str(error.args[0]).startswith(fact)
    assert "llguidance" not in str(error.args[0])
