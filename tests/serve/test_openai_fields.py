"""Every field of OpenAI's, one by one: obeyed, harmless, or refused by its name in our words.

The tables name what each field may say here and what not; a field of OpenAI's description or of
its official client that is in neither table is a test that fails.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("openai", reason="needs openai")

from openai.types import completion_create_params, embedding_create_params
from openai.types.chat import completion_create_params as chat_create_params
from openai.types.responses import response_create_params

from serve.openai_field_table import ENDPOINTS, HELLO, TOOL, Refused
from serve.running import Running

FOREIGN = re.compile(
    r"Expected `|`\$|Object (contains|missing)|Invalid enum|malformed|truncated|msgspec|numpy|torch"
    r"|regex parse|Unimplemented|invalid literal|Traceback|request '|Error\b|jinja|llguidance"
)
"""Words of the libraries below."""


def base(path: str, name: str) -> dict[str, Any]:
    body = dict(ENDPOINTS[path][0])
    if name == "max_tokens" and path == "/v1/chat/completions":
        body.pop("max_completion_tokens")
    return body


def cases(which: int) -> list[Any]:
    """Fields with what they may say (0), or may not (1)."""
    found = []
    for path, (_, table) in ENDPOINTS.items():
        for name, field in table.items():
            for value in field[which]:
                shown = json.dumps(value, default=repr)[:60]
                found.append(pytest.param(path, name, value, id=f"{path}-{name}-{shown}"))
    return found


@pytest.fixture(scope="module")
def http(service: Running) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=service.url, timeout=120) as made:
        yield made


@pytest.mark.parametrize(("path", "name", "value"), cases(0))
def test_what_asks_for_what_happens_anyway_is_taken(
    http: httpx.Client, path: str, name: str, value: Any
) -> None:
    answer = http.post(path, json=base(path, name) | {name: value})
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize(("path", "name", "refused"), cases(1))
def test_what_cannot_be_obeyed_is_refused_by_its_name_and_in_our_words(
    http: httpx.Client, path: str, name: str, refused: Refused
) -> None:
    value, param = refused
    answer = http.post(path, json=base(path, name) | {name: value})
    check(answer, param)


def check(answer: httpx.Response, param: str | None) -> None:
    assert 400 <= answer.status_code < 500, answer.text
    error = answer.json()["error"]
    assert error["param"] == param, error
    assert not FOREIGN.search(error["message"]), error
    assert "; " in error["message"], "a refusal says what to do"
    assert len(error["message"]) < 600


def described(shared: Path, name: str) -> set[str]:
    """The fields of a request in OpenAI's own description."""
    file = shared / "schemas" / "openai_subset.openapi.json"
    schemas = json.loads(file.read_text(encoding="utf-8"))["components"]["schemas"]

    def of(node: Mapping[str, Any]) -> set[str]:
        if "$ref" in node:
            return of(schemas[node["$ref"].rpartition("/")[2]])
        inherited = [of(each) for each in node.get("allOf", ())]
        return set(node.get("properties", ())).union(*inherited)

    return of(schemas[name])


@pytest.mark.parametrize(
    ("path", "name", "params"),
    [
        (
            "/v1/chat/completions",
            "CreateChatCompletionRequest",
            chat_create_params.CompletionCreateParamsBase,
        ),
        (
            "/v1/completions",
            "CreateCompletionRequest",
            completion_create_params.CompletionCreateParamsBase,
        ),
        ("/v1/responses", "CreateResponse", response_create_params.ResponseCreateParamsBase),
    ],
)
def test_every_field_of_openai_s_is_decided(
    shared: Path, path: str, name: str, params: Any
) -> None:
    known = described(shared, name) | set(params.__annotations__)
    assert known
    assert not known - set(ENDPOINTS[path][1])


def test_every_field_of_an_embedding_request_is_known(shared: Path) -> None:
    from ostinato.serve.embeddings.routes import EmbeddingRequest

    known = described(shared, "CreateEmbeddingRequest")
    known |= set(embedding_create_params.EmbeddingCreateParams.__annotations__)
    assert not known - set(EmbeddingRequest.__struct_fields__)


@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize("value", [1, None])
def test_a_field_that_nobody_knows_is_a_misspelling(
    http: httpx.Client, path: str, value: Any
) -> None:
    answer = http.post(path, json=ENDPOINTS[path][0] | {"temprature": value})
    check(answer, "temprature")
    assert "did you mean temperature?" in answer.text


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({"include_usage": True}, 200),
        ({"include_usage": False, "include_obfuscation": False}, 200),
        ({"include_obfuscation": True}, 400),
    ],
    ids=str,
)
def test_a_stream_takes_its_options(
    http: httpx.Client, path: str, options: dict[str, bool], status: int
) -> None:
    asked = ENDPOINTS[path][0] | {"stream": True, "stream_options": options}
    answer = http.post(path, json=asked)
    assert answer.status_code == status
    if status == 200:
        usages = [line for line in answer.text.splitlines() if '"completion_tokens"' in line]
        assert len(usages) == int(options["include_usage"])
    else:
        check(answer, "stream_options.include_obfuscation")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "in the middle"),
        (b"{", "in the middle"),
        (b'{"prompt": "a"} x', "follows its end at byte 17"),
        (b'{"prompt": "a",}', "byte 15"),
        (b'{"prompt": "\xff"}', "UTF-8"),
        (b"[]", "must be an object, got a list"),
        (b"3", "must be an object, got a whole number"),
        (b"null", "must be an object, got null"),
    ],
)
def test_a_body_that_is_no_request_is_told_where(
    http: httpx.Client, body: bytes, words: str
) -> None:
    answer = http.post(
        "/v1/completions", content=body, headers={"content-type": "application/json"}
    )
    assert words in answer.json()["error"]["message"]
    assert not FOREIGN.search(answer.text)


def test_a_value_that_is_refused_is_not_sent_back_whole(http: httpx.Client) -> None:
    body = {"messages": [{"role": "x" * 100_000, "content": "a"}]}
    check(http.post("/v1/chat/completions", json=body), "messages[0].role")
    check(http.post("/v1/chat/completions", json={"messages": HELLO, "model": "x" * 9000}), "model")


def test_the_response_says_what_it_kept_to(http: httpx.Client) -> None:
    form = {"type": "json_schema", "name": "a", "schema": {"enum": [1]}, "strict": True}
    body = {
        "input": "hello",
        "text": {"format": form},
        "parallel_tool_calls": False,
        "tool_choice": "none",
        "service_tier": "auto",
        "metadata": {"a": "b"},
    }
    said = http.post("/v1/responses", json=body).json()
    assert said["text"]["format"] == form
    assert said["parallel_tool_calls"] is False
    assert (said["tool_choice"], said["service_tier"]) == ("none", "default")
    assert said["metadata"] == {"a": "b"}


def test_a_top_p_of_0_takes_the_likeliest_token(http: httpx.Client) -> None:
    asked = {"prompt": "hello", "max_tokens": 12, "ignore_eos": True}
    greedy = http.post("/v1/completions", json=asked | {"temperature": 0}).json()
    for seed in range(3):
        drawn = http.post("/v1/completions", json=asked | {"top_p": 0, "seed": seed}).json()
        assert drawn["choices"][0]["text"] == greedy["choices"][0]["text"]


def test_token_ids_come_with_a_chat_whole_and_streamed(http: httpx.Client) -> None:
    asked = {"messages": HELLO, "max_tokens": 6, "seed": 1, "ignore_eos": True}
    asked["return_token_ids"] = True
    whole = http.post("/v1/chat/completions", json=asked).json()["choices"][0]["token_ids"]
    assert len(whole) == 6
    text = http.post("/v1/chat/completions", json=asked | {"stream": True}).text
    frames = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    streamed = [token for one in frames for token in one["choices"][0].get("token_ids", ())]
    assert streamed == whole


def test_a_completion_that_does_not_say_has_16_tokens(http: httpx.Client) -> None:
    for asked in ({"max_tokens": None}, {}):
        body = {"prompt": "hello", "ignore_eos": True, **asked}
        said = http.post("/v1/completions", json=body).json()
        assert said["usage"]["completion_tokens"] == 16


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {"prompt": "a", "add_special_tokens": False}, "add_special_tokens"),
        ("/tokenize", {"messages": HELLO, "add_generation_prompt": False}, "add_generation_prompt"),
        ("/tokenize", {"prompt": "a", "tools": [TOOL]}, "tools"),
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": "a", "messages": HELLO}, "prompt"),
        ("/detokenize", {"tokens": [-1]}, "tokens"),
        ("/detokenize", {"tokens": "a"}, "tokens"),
    ],
    ids=str,
)
def test_tokenising_refuses_by_name_too(
    http: httpx.Client, path: str, body: dict[str, Any], param: str
) -> None:
    check(http.post(path, json=body), param)
