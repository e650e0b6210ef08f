"""What libraries say of a request, said again as something about the request."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import msgspec
import pytest

from ostinato.errors import UsageError
from ostinato.llm.structured.problems import not_compiled
from ostinato.llm.tokenizer import Tokenizer
from ostinato.serve.callable.arrays import from_numbers
from ostinato.serve.openai.errors import of_problem
from ostinato.serve.openai.schema_words import in_our_words, line_of
from ostinato.serve.openai.wording import of_body, of_field
from ostinato.serve.tokens import Tokens
from ostinato.serve.wire import Problem


class Inner(msgspec.Struct, forbid_unknown_fields=True):
    """What lies inside."""

    word: str
    size: int = 0
    name: str = ""


class Outer(msgspec.Struct, forbid_unknown_fields=True):
    """What is sent."""

    items: list[Inner]
    either: str | list[int] | None = None
    share: float | None = None


@pytest.mark.parametrize(
    ("body", "message", "param"),
    [
        (b"{}", "items is missing; every request must have it", "items"),
        (
            b'{"items": 3}',
            "items must be a list, got a whole number; send a list",
            "items",
        ),
        (
            b'{"items": [{"word": 3}]}',
            "items[0].word must be a text, got a whole number; send a text",
            "items[0].word",
        ),
        (
            b'{"items": [], "either": [1, "a"]}',
            "either[1] must be a whole number, got a text; send a whole number",
            "either[1]",
        ),
        (
            b'{"items": [{"word": "a", "size": "a"}]}',
            (
                "items[0].size must be a whole number, got a text; "
                "send a whole number, or leave it out"
            ),
            "items[0].size",
        ),
        (
            b'{"items": [], "either": {}}',
            (
                "either must be a text or a list, got an object; "
                "send a text or a list, or leave it out"
            ),
            "either",
        ),
        (
            b'{"items": [{"sise": 1}]}',
            "there is no field 'items[0].sise', an unknown field; did you mean size?",
            "items[0].sise",
        ),
        (
            b'{"items": [], "share": 1e999}',
            "share is larger than any number that is read; send a smaller one",
            "share",
        ),
        (b"[]", "the body must be an object, got a list; send an object", None),
    ],
)
def test_a_wrong_field_is_told_with_what_it_takes(
    body: bytes, message: str, param: str | None
) -> None:
    with pytest.raises(msgspec.ValidationError) as found:
        msgspec.json.decode(body, type=Outer)
    assert of_field(str(found.value), Outer) == (message, param)
    assert of_body(found.value, Outer, body) == (message, param)


def test_a_word_that_nobody_foresaw_is_not_passed_on() -> None:
    message, param = of_field("Frobnicated `int` - at `$.share`", Outer)
    assert "Frobnicated" not in message
    assert param == "share"


def test_the_compiler_s_words_of_a_schema_stay_in_the_log() -> None:
    message = str(not_compiled("Invalid type: wood 1 | start: a ^").args[0])
    said = in_our_words("OST5062", message)
    assert said == "no grammar can be made of the schema: it has the type 'wood', which is none"
    assert message.startswith(said)
    assert "Invalid type" in message


def test_the_line_of_a_grammar_is_kept_for_whom_it_was_made_of() -> None:
    told = of_problem(Problem("OST5062", "no grammar: at 3(9): Invalid type: a", "do", "usage"))
    assert told.line == 3
    assert line_of("Invalid type: a") is None


@pytest.mark.parametrize("code", ["OST5141", "OST5142", "OST5064", "OST5065", "OST5061"])
def test_a_library_s_cause_stays_in_the_log(code: str) -> None:
    problem = Problem(code, "the step failed: RuntimeError: /srv/models/x", "do this", "internal")
    assert str(of_problem(problem)) == "the step failed; do this"


@pytest.fixture
def tokens(request: pytest.FixtureRequest) -> Iterator[Tokens]:
    made = Tokens(lambda: Tokenizer(None, request.param))  # type: ignore[arg-type]
    yield made
    made.close()


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (
            "{{ raise_exception('roles must alternate') }}",
            "the model's chat template cannot write this conversation: roles must alternate",
        ),
        (
            "{{ messages[0]['content'] + 3 }}",
            "the model's chat template cannot write this conversation",
        ),
        ("{{ messages.nothing.more }}", "the model's chat template cannot write this conversation"),
    ],
    indirect=["tokens"],
)
def test_a_template_s_own_word_is_passed_on_and_python_s_is_not(
    tokens: Tokens, message: str
) -> None:
    with pytest.raises(UsageError) as refused:
        asyncio.run(tokens.encode_chat([{"role": "user", "content": "a"}]))
    assert refused.value.args[0] == message


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ([[1], [1, 2]], "they are lists of unequal lengths"),
        ("1.5", "FP32 is of numbers, and there is a text among them"),
        (["a"], "FP32 is of numbers, and there is a text among them"),
        ({"a": 1}, "FP32 is of numbers, and there is an object among them"),
        ([[None]], "FP32 is of numbers, and there is null among them"),
        ([True], "FP32 is of numbers, and there is true or false among them"),
        ([1e99], "FP32 cannot hold a number among them"),
        ([10**400], "FP32 cannot hold a number among them"),
    ],
)
def test_numbers_that_are_none_are_told_by_what_they_are(values: object, told: str) -> None:
    with pytest.raises(UsageError) as refused:
        from_numbers("x", "FP32", (1,), values)
    assert str(refused.value.args[0]).partition("cannot be read: ")[2].startswith(told)
