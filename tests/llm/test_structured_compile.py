"""Compiling a schema: off the step loop, bounded, remembered; what fails, fails alone."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from contextlib import suppress
from time import process_time, thread_time
from typing import Any

import pytest
import tokenizers

from llm.bound_rows import END, byte_tokenizer
from ostinato.errors import OstinatoError, ResourceError, UsageError
from ostinato.llm.structured import Compiled, Compiler, Grammar, read_schema

pytest.importorskip("llguidance")

from ostinato.llm.structured import trial_process

VOCABULARY = 300
# Each of nine remainders is followed at once: their product is how many states there are.
TIME_BOMB = {
    "anyOf": [
        {"type": "integer", "multipleOf": prime}
        for prime in (97, 101, 103, 107, 109, 113, 127, 131, 137)
    ]
}
MEMORY_BOMB = {"type": "integer", "multipleOf": 1_000_003}  # needs 270 MB


class Panic(BaseException):
    """As Rust's panics come to Python: no `Exception`."""


def nested(depth: int) -> dict[str, Any]:
    """A schema of objects in objects."""
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    return schema


@pytest.fixture(scope="module")
def compiler() -> Iterator[Compiler]:
    compiler = Compiler(byte_tokenizer(), vocabulary=VOCABULARY, stop_ids=(END,))
    yield compiler
    compiler.close()


def compiled(compiler: Compiler, given: Any) -> Compiled:
    schema = read_schema(given)
    assert schema is not None
    return compiler.compile(schema).result(timeout=60)


def refused(compiler: Compiler, given: Any) -> OstinatoError:
    with pytest.raises(OstinatoError) as caught:
        compiled(compiler, given)
    return caught.value


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"type": "array", "uniqueItems": True}, 'Unimplemented keys: ["uniqueItems"]'),
        ({"not": {"type": "string"}}, 'Unimplemented keys: ["not"]'),
        ({"type": "string", "format": "banana"}, "Unknown format: banana"),
        ({"type": "object", "properties": 5}, "properties"),
        ({"items": {"type": "text"}}, "Invalid type: text"),
        ({"$ref": "#/$defs/lost"}, "/$defs/lost"),
        ({"$ref": "http://example.com/schema"}, "http://example.com/schema"),
        ({"enum": []}, "anyOf is empty"),
        (nested(400), "recursion limit exceeded"),
        ({"type": "string", "minLength": 3, "maxLength": 2}, "greater than maxLength"),
        ({"regex": "(a"}, "unclosed group"),
        ({"regex": "(?=a)b"}, "look-around"),
        ({"regex": r"(a)\1"}, "backreferences"),
        ({"regex": "(" * 3000 + "a" + ")" * 3000}, "(((("),
        ({"type": "number", "minimum": 5, "maximum": 4}, "minimum (5) is greater than maximum (4)"),
    ],
)
def test_a_schema_of_which_no_grammar_can_be_made_is_refused_with_the_reason(
    compiler: Compiler, given: Any, words: str
) -> None:
    error = refused(compiler, given)
    assert isinstance(error, UsageError)
    assert error.code == "OST5062"
    assert words in str(error)
    assert len(str(error)) < 700


@pytest.mark.parametrize("error", [ValueError("odd"), RuntimeError("odd"), Panic("odd")], ids=repr)
@pytest.mark.parametrize("where", ["grammar_of", "match"])
def test_whatever_the_compiler_of_grammars_raises_refuses_the_schema(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch, where: str, error: BaseException
) -> None:
    def raising(*_: object) -> None:
        raise error

    monkeypatch.setattr(f"ostinato.llm.structured.making.{where}", raising)
    told = refused(compiler, {"choices": [f"{where} {error!r}"]})
    assert isinstance(told, UsageError)
    assert told.code == "OST5062"
    assert "odd" in str(told)


def test_the_process_that_tries_grammars_outlives_whatever_is_raised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def raising(*_: object) -> None:
        raise Panic("odd")

    monkeypatch.setattr(trial_process, "match", raising)
    table: Any = None
    assert trial_process._tried(table, "a grammar") == "odd"


@pytest.mark.parametrize("call", ["compute_bitmask", "consume_tokens"])
def test_whatever_a_matcher_raises_ends_its_answer_as_a_usage_error(call: str) -> None:
    class Raising:
        def __getattr__(self, name: str) -> Any:
            if name != call:
                raise AssertionError(name)
            raise Panic("odd")

    matcher: Any = Raising()
    grammar = Grammar(matcher, VOCABULARY, tokens=2)
    calls: dict[str, Callable[[], object]] = {
        "compute_bitmask": grammar.allowed_words,
        "consume_tokens": lambda: grammar.accept([1]),
    }
    with pytest.raises(UsageError, match="odd") as caught:
        calls[call]()
    assert caught.value.code == "OST5064"


def test_a_grammar_that_allows_nothing_is_refused(compiler: Compiler) -> None:
    assert refused(compiler, {"$ref": "#"}).code == "OST5064"


@pytest.mark.parametrize(
    ("bomb", "bounds", "words"),
    [
        (TIME_BOMB, {"timeout_s": 2.0}, "more than 2 s"),
        (MEMORY_BOMB, {"timeout_s": 60.0, "room_bytes": 32 << 20}, "more memory"),
    ],
    ids=["time", "memory"],
)
def test_a_schema_that_asks_for_too_much_is_broken_off_and_others_go_on(
    bomb: dict[str, Any], bounds: dict[str, Any], words: str
) -> None:
    compiler = Compiler(byte_tokenizer(), vocabulary=VOCABULARY, **bounds)
    try:
        schema = read_schema(bomb)
        assert schema is not None
        doomed = compiler.compile(schema)
        compiled(compiler, {"choices": ["a", "b"]})
        error = doomed.exception(timeout=120)
        assert isinstance(error, ResourceError)
        assert error.code == "OST5063"
        assert words in str(error)
        compiled(compiler, {"choices": ["a", "c"]})
    finally:
        compiler.close()


@pytest.mark.parametrize(
    "regex",
    ["((a{1,1000}){1,1000}){1,1000}", "(x+x+)+y", "(a?){3000}a{3000}", "[ab]*a[ab]{60}"],
)
def test_a_regex_bomb_costs_its_own_request_some_milliseconds(
    compiler: Compiler, regex: str
) -> None:
    compiled(compiler, {"choices": ["so that the process runs"]})
    letter = byte_tokenizer().encode("x" if "x" in regex else "a").ids
    began = thread_time()
    with suppress(
        UsageError, ResourceError
    ):  # some are given up on the way, the others go on for ever
        grammar = compiled(compiler, {"regex": regex}).start()
        for _ in range(20):
            grammar.allowed_words()
            grammar.accept(letter)
    assert thread_time() - began < 3  # what it computes, however busy the machine is


def test_a_bomb_is_compiled_by_another_process_than_the_one_of_the_step_loop() -> None:
    compiler = Compiler(byte_tokenizer(), vocabulary=VOCABULARY, timeout_s=1.0)
    try:
        compiled(compiler, {"choices": ["a"]})
        schema = read_schema(TIME_BOMB)
        assert schema is not None
        began = process_time()
        assert isinstance(compiler.compile(schema).exception(timeout=60), ResourceError)
        assert process_time() - began < 0.5  # of the second that it computed
    finally:
        compiler.close()


def test_a_known_schema_is_not_compiled_again(compiler: Compiler) -> None:
    first = compiled(compiler, {"regex": "abc"})
    assert compiled(compiler, {"regex": "abc"}) is first
    assert compiled(compiler, {"regex": "abd"}) is not first


def test_only_the_schemas_used_last_are_kept(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ostinato.llm.structured.compiler._MOST_KEPT", 2)
    first, second = ({"choices": [f"kept {at}"]} for at in range(2))
    kept, gone = compiled(compiler, first), compiled(compiler, second)
    assert compiled(compiler, first) is kept
    compiled(compiler, {"choices": ["kept 2"]})
    assert compiled(compiler, first) is kept
    assert compiled(compiler, second) is not gone


def test_who_asked_too_much_of_a_busy_machine_may_ask_again() -> None:
    compiler = Compiler(byte_tokenizer(), vocabulary=VOCABULARY, timeout_s=0.3)
    try:
        first, second = (refused(compiler, TIME_BOMB) for _ in range(2))
        assert first is not second
    finally:
        compiler.close()


def test_whoever_gives_up_waiting_takes_nothing_from_those_who_wait_for_the_same() -> None:
    compiler = Compiler(byte_tokenizer(), vocabulary=VOCABULARY)
    try:
        schema = read_schema({"choices": ["wanted by two"]})
        assert schema is not None
        one, other = compiler.compile(schema), compiler.compile(schema)
        assert one.cancel()
        assert other.result(timeout=60).stop_ids
    finally:
        compiler.close()


def test_without_a_tokenizer_every_schema_is_refused() -> None:
    compiler = Compiler(None, vocabulary=VOCABULARY)
    assert refused(compiler, {"type": "object"}).code == "OST5065"
    compiler.close()


def test_a_tokenizer_that_does_not_spell_texts_is_refused() -> None:
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
    compiler = Compiler(words, vocabulary=2, stop_ids=(1,))
    assert refused(compiler, {"type": "object"}).code == "OST5065"
    compiler.close()


def test_without_the_package_a_schema_is_refused_with_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    monkeypatch.delitem(sys.modules, "ostinato.llm.structured.making", raising=False)
    compiler = Compiler(byte_tokenizer(), vocabulary=VOCABULARY)
    error = refused(compiler, {"type": "object"})
    assert error.code == "OST5061"
    assert "pip install 'ostinato[structured]'" in str(error)
    compiler.close()


def test_many_schemas_at_once_are_all_compiled(compiler: Compiler) -> None:
    schemas = [read_schema({"choices": [f"one of many, {at}"]}) for at in range(40)]
    futures = [compiler.compile(schema) for schema in schemas if schema is not None]
    done, not_done = wait(futures, timeout=60)
    assert not not_done
    assert len({future.result() for future in done}) == 40


def test_closing_ends_the_processes_and_tells_those_who_wait() -> None:
    compiler = Compiler(byte_tokenizer(), vocabulary=VOCABULARY, timeout_s=1.0)
    schemas = [read_schema(TIME_BOMB | {"title": str(at)}) for at in range(3)]
    futures = [compiler.compile(schema) for schema in schemas if schema is not None]
    compiler.close()
    errors = [future.exception(timeout=10) for future in futures]
    assert all(isinstance(error, ResourceError) for error in errors)
    assert "was closed" in str(errors[-1])


def test_what_answers_would_break_is_refused_though_a_grammar_could_be_made(
    compiler: Compiler,
) -> None:
    error = refused(compiler, {"type": "object", "minProperties": 2})
    assert error.code == "OST5062"
    assert "minProperties" in str(error.args[0])
