"""Of a body that is no JSON it is said where: the field and the byte, at every door."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ostinato.serve.openai.json_faults import find_fault
from serve.running import Running

KEYS = st.text("abc", min_size=1, max_size=3)
TEXTS = st.text(max_size=6)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
MARK = "here it is"


def place_of(value: Any, path: str = "") -> str | None:
    """The path of the text that is marked."""
    if value == MARK:
        return path
    named = (
        [(f"[{at}]", one) for at, one in enumerate(value)]
        if isinstance(value, list)
        else [(f".{name}" if path else name, one) for name, one in value.items()]
        if isinstance(value, dict)
        else []
    )
    found = (place_of(one, path + step) for step, one in named)
    return next(filter(None, found), None)


@given(st.dictionaries(KEYS, VALUES, max_size=4), st.booleans(), st.sampled_from([None, 1]))
def test_in_json_there_is_no_fault(value: Any, is_ascii: bool, indent: int | None) -> None:
    assume("Infinity" not in json.dumps(value))
    assert find_fault(json.dumps(value, ensure_ascii=is_ascii, indent=indent).encode()) is None


@given(VALUES, VALUES, st.sampled_from([r"a\ud800b", r"\udc00", r"\ud800\n", r"\ud800\ud800"]))
def test_half_a_character_is_found_in_its_field(before: Any, after: Any, half: str) -> None:
    value = {"a": before, "b": [1, {"c": MARK}], "d": after}
    assume("Infinity" not in json.dumps(value))
    body = json.dumps(value).replace(MARK, half).encode()
    fault = find_fault(body)
    assert fault is not None
    assert fault.path == place_of(value) == "b[1].c"
    byte = body.index(rb"\ud800" if b"\\ud8" in half.encode() else half.encode())
    assert f"half a character, {body[byte : byte + 6].decode()} at byte " in fault.said


@pytest.mark.parametrize(
    ("body", "path", "said"),
    [
        (rb'{"a": "x\ud83d\ude00\ud83d"}', "a", r"a has half a character, \ud83d at byte 20 of"),
        (rb'{"a\udc00": 1}', r"a\udc00", r"a\udc00 has half a character, \udc00 at byte 3 of the"),
        (rb'{"a": {"b": "\\ud800", "c": "\\\ud800"}}', "a.c", "at byte 31 of the body"),
        (b'{"a": ["", "\xed\xa0\x80"]}', "a[1]", "a[1] is not written in UTF-8, as byte 12 of"),
        (b'{"a": "x\x00"}', "a", r"a has a control character, NUL, as it stands at byte 8 of"),
        (
            b'{"a": "x\n"}',
            "a",
            r"of the number 10, as it stands at byte 8 of the body; write \u000a",
        ),
        (b'{"a": [1, NaN]}', "a[1]", "a[1] is NaN, which is no number in JSON; send a number"),
        (b'{"a": -Infinity}', "a", "a is -Infinity, which is no number"),
        (b'{"a": {"b": [', "a.b[0]", "it ends in the middle of a.b[0]; send all of it"),
        (b'{"a": "x', "a", "it ends in the middle of a; send all of it"),
        (b'\xef\xbb\xbf{"a": 1}', "", "it begins with a byte order mark; send it without one"),
        ('{"a": 1}'.encode("utf-16"), "", "it is written in UTF-16 or UTF-32; send it in UTF-8"),
        ('{"a": 1}'.encode("utf-16-le"), "", "it is written in UTF-16 or UTF-32; send it in UTF-8"),
    ],
)
def test_the_fault_is_said_with_its_field_and_its_byte(body: bytes, path: str, said: str) -> None:
    fault = find_fault(body)
    assert fault is not None
    assert fault.path == path
    assert said in fault.said


@pytest.mark.parametrize("body", [b"", b"}", b"{", b"[1}", b'{"a" 1}', b"nonsense", b'"\\x"'])
def test_what_has_no_field_is_left_to_others(body: bytes) -> None:
    assert find_fault(body) is None


def test_of_a_large_body_the_beginning_is_looked_at() -> None:
    body = b'{"a": ["' + b'x", "' * 200_000
    assert find_fault(body) is None  # where it ends was not seen
    assert find_fault(rb'{"b": "\ud800", ' + body[1:]) is not None


HALF = r'"x\ud800"'
SAID = '"messages": [{"role": "user", "content": "a"}]'
CONST = f'{{"const": {HALF}}}'
FUNCTION = f'{{"type": "function", "function": {{"name": "f", "parameters": {CONST}}}}}'
FORM = f'{{"type": "json_schema", "json_schema": {{"name": "n", "schema": {CONST}}}}}'


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/v1/completions", f'{{"prompt": {HALF}}}', "prompt"),
        ("/v1/completions", f'{{"prompt": "a", "stop": ["b", {HALF}]}}', "stop[1]"),
        ("/v1/completions", f'{{"prompt": "a", "cache_salt": {HALF}}}', "cache_salt"),
        (
            "/v1/chat/completions",
            f'{{"messages": [{{"role": "user", "content": {HALF}}}]}}',
            "messages[0].content",
        ),
        ("/v1/chat/completions", f'{{{SAID}, "metadata": {{"k": {HALF}}}}}', "metadata.k"),
        (
            "/v1/chat/completions",
            f'{{{SAID}, "tools": [{FUNCTION}]}}',
            "tools[0].function.parameters.const",
        ),
        (
            "/v1/chat/completions",
            f'{{{SAID}, "response_format": {FORM}}}',
            "response_format.json_schema.schema.const",
        ),
        ("/v1/responses", f'{{"input": {HALF}, "store": false}}', "input"),
        ("/tokenize", f'{{"prompt": {HALF}}}', "prompt"),
        ("/v2/models/tiny/generate", f'{{"text_input": {HALF}}}', "text_input"),
        ("/v2/models/tiny/generate_stream", f'{{"text_input": {HALF}}}', "text_input"),
        ("/v2/models/tiny/infer", f'{{"inputs": [{{"name": {HALF}}}]}}', "inputs[0].name"),
    ],
)
def test_every_door_names_the_field(service: Running, path: str, body: str, field: str) -> None:
    headers = {"content-type": "application/json"}
    answer = httpx.post(f"{service.url}{path}", content=body, headers=headers)
    assert answer.status_code == (422 if "generate" in path else 400)
    said = answer.json()["error"]
    byte = body.index("\\ud800")
    words = f"the body is no JSON: {field} has half a character, \\ud800 at byte {byte} of the body"
    if path.startswith("/v2"):
        assert words in said
    else:
        assert words in said["message"]
        assert (said["param"], said["code"]) == (field, "invalid_json")


@pytest.mark.parametrize("count", [900, 100_000])
def test_texts_that_nest_deeply_are_refused_or_read(service: Running, count: int) -> None:
    data = "[" * count + '"a"' + "]" * count
    one = f'{{"name": "text_input", "shape": [1], "datatype": "BYTES", "data": {data}}}'
    body = f'{{"inputs": [{one}], "parameters": {{"max_tokens": 1}}}}'
    answer = httpx.post(f"{service.url}/v2/models/tiny/infer", content=body, timeout=120)
    if count < 1000:
        assert answer.status_code == 200
    else:
        assert answer.status_code == 400
        assert "nests too deeply" in answer.json()["error"]


def test_no_refusal_is_as_long_as_what_it_refuses(service: Running) -> None:
    key = "k" * 200_000
    schema = {"type": "json_schema", "json_schema": {"name": "n", "schema": {key: 1}}}
    for body in (
        {"prompt": "a", key: 1},
        {"prompt": "a", "model": key},
        {"prompt": "a", "response_format": schema},
        {"prompt": "a", "logit_bias": {key: 1}},
    ):
        answer = httpx.post(f"{service.url}/v1/completions", json=body, timeout=120)
        assert answer.status_code in (400, 404)
        assert len(answer.content) < 1000


@pytest.mark.parametrize(
    ("number", "said"),
    [
        ("1" + "0" * 5000, "seed is larger than any number that is read; send a smaller one"),
        ("1e999", "seed is larger than any number that is read; send a smaller one"),
        ("1.5", "seed must be a whole number, got a fraction; send a whole number"),
        ("NaN", "seed is NaN, which is no number in JSON; send a number"),
    ],
)
def test_what_is_no_whole_number_is_said_so(service: Running, number: str, said: str) -> None:
    headers = {"content-type": "application/json"}
    body = f'{{"prompt": "a", "seed": {number}}}'
    answer = httpx.post(f"{service.url}/v1/completions", content=body, headers=headers)
    assert answer.status_code == 400
    assert said in answer.json()["error"]["message"]


def test_of_a_key_that_comes_twice_the_last_counts(service: Running) -> None:
    body = '{"prompt": [1], "prompt": [1, 2], "max_tokens": 1}'
    headers = {"content-type": "application/json"}
    answer = httpx.post(f"{service.url}/v1/completions", content=body, headers=headers, timeout=120)
    assert answer.json()["usage"]["prompt_tokens"] == 2


def test_a_nul_that_is_escaped_is_a_letter_as_others_are(service: Running) -> None:
    body = {"prompt": "a\x00b", "max_tokens": 1, "stop": "\x00"}
    answer = httpx.post(f"{service.url}/v1/completions", json=body, timeout=120)
    assert answer.status_code == 200
    assert answer.json()["usage"]["prompt_tokens"] == 3
