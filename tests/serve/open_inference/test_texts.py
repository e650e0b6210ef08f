"""A model that writes, behind the protocol: generate, its stream, and infer with texts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import numpy as np
import pytest

pytest.importorskip("openai", reason="needs openai")
pytest.importorskip("tritonclient", reason="needs tritonclient")

import openai
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
import yaml
from tritonclient.utils import InferenceServerException

from serve.open_inference.fronts import Front, front, of_engine
from serve.open_inference.triton_http import http_client
from serve.running import slow_down, wait_for

FREE: dict[str, Any] = {"temperature": 0, "ignore_eos": True, "max_tokens": 12}


@pytest.fixture(scope="module")
def served(tiny_chat: Path) -> Iterator[Front]:
    with front(of_engine(tiny_chat)) as found:
        yield found


@pytest.fixture(scope="module")
def schemas(shared: Path) -> dict[str, Any]:
    text = (shared / "schemas" / "open_inference_generate_rest.yaml").read_text()
    read: dict[str, Any] = yaml.safe_load(text)
    return read


def check(schemas: dict[str, Any], name: str, value: object) -> None:
    schema = {**schemas, "$ref": f"#/components/schemas/{name}"}
    jsonschema.validate(value, schema)


def ask(served: Front, text: str, path: str = "generate", **parameters: Any) -> httpx.Response:
    body = {"text_input": text, "parameters": parameters}
    return httpx.post(f"{served.url}/v2/models/tiny/versions/first/{path}", json=body, timeout=120)


def events(reply: httpx.Response) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in reply.text.splitlines() if line.startswith("data: ")]


@pytest.fixture(scope="module")
def answer(served: Front) -> str:
    """What the same model says over OpenAI's API."""
    with openai.OpenAI(base_url=f"{served.url}/v1", api_key="none") as client:
        said = client.completions.create(
            model="tiny", prompt="Hello", max_tokens=12, temperature=0,
            extra_body={"ignore_eos": True},
        )  # fmt: skip
        return said.choices[0].text


def test_generate_answers_as_openais_api_does(
    served: Front, answer: str, schemas: dict[str, Any]
) -> None:
    reply = ask(served, "Hello", **FREE)
    assert reply.status_code == 200
    check(schemas, "GenerateResponse", reply.json())
    assert reply.json() == {"text_output": answer, "model_name": "tiny", "model_version": "first"}


def test_a_stream_says_the_same_piece_by_piece(
    served: Front, answer: str, schemas: dict[str, Any]
) -> None:
    reply = ask(served, "Hello", "generate_stream", **FREE)
    assert reply.headers["content-type"].startswith("text/event-stream")
    frames = events(reply)
    for frame in frames:
        check(schemas, "GenerateStreamResponse", frame)
    assert "".join(frame["text_output"] for frame in frames) == answer


def test_details_say_each_token_and_why_it_ended(
    served: Front, answer: str, schemas: dict[str, Any]
) -> None:
    whole = ask(served, "Hello", details=True, **FREE).json()
    check(schemas, "GenerateResponse", whole)
    details = whole["details"]
    assert details["finish_reason"] == "length"
    assert len(details["logprobs"]) == 12
    assert all(token["logprob"] <= 0 for token in details["logprobs"])
    frames = events(ask(served, "Hello", "generate_stream", details=True, **FREE))
    assert "".join(frame["text_output"] for frame in frames) == answer
    tokens = [frame["details"]["token"] for frame in frames if "token" in frame["details"]]
    assert tokens == details["logprobs"]
    assert frames[-1]["details"]["finish_reason"] == "length"


def test_a_stop_text_ends_the_answer_and_is_named_as_the_reason(served: Front, answer: str) -> None:
    stop = answer[3:5]
    reply = ask(served, "Hello", details=True, stop=[stop], **FREE).json()
    assert reply["text_output"] == answer[: answer.index(stop)]
    assert reply["details"]["finish_reason"] == "stop_sequence"


@pytest.mark.parametrize("path", ["generate", "generate_stream"])
@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"parameters": {}}', "text_input"),
        (b'{"text_input": 3}', "text_input"),
        (b'{"text_input": "a", "parameters": {"temperature": -1}}', "temperature"),
        (b'{"text_input": "a", "parameters": {"max_tokens": 0}}', "max_tokens"),
        (b'{"text_input": "a", "parameters": {"hotness": 1}}', "hotness"),
        (b'{"text_input": "a", "parameters": {"n": 2}}', "one answer"),
        (b"{", "no JSON: it ends in the middle"),
        (b'{"text_input": 3', "no JSON: it ends in the middle"),
        (b"[" * 100_000, "nests too deeply"),
    ],
)
def test_a_request_that_is_wrong_is_422_with_what_is_wrong(
    served: Front, schemas: dict[str, Any], path: str, body: bytes, said: str
) -> None:
    reply = httpx.post(f"{served.url}/v2/models/tiny/{path}", content=body)
    assert reply.status_code == 422
    check(schemas, "GenerateErrorResponse", reply.json())
    assert said in reply.json()["error"]


def test_another_model_or_version_is_not_found(served: Front) -> None:
    for name in ("other", "tiny/versions/second"):
        reply = httpx.post(f"{served.url}/v2/models/{name}/generate", json={"text_input": "a"})
        assert reply.status_code == 404


def test_texts_are_inferred_over_http_and_grpc(served: Front, answer: str) -> None:
    texts = np.array([b"Hello", "Grüße".encode()], dtype=np.object_)
    with http_client(served.port) as http:
        told = http.get_model_metadata("tiny")
        assert told["inputs"] == [{"name": "text_input", "datatype": "BYTES", "shape": [-1]}]
        one = triton_http.InferInput("text_input", [2], "BYTES").set_data_from_numpy(texts)
        first = http.infer("tiny", [one], parameters=FREE).as_numpy("text_output")
        plain = triton_http.InferInput("text_input", [2], "BYTES")
        plain.set_data_from_numpy(texts, binary_data=False)
        wanted = [triton_http.InferRequestedOutput("text_output", binary_data=False)]
        second = http.infer("tiny", [plain], outputs=wanted, parameters=FREE)
        assert second.as_numpy("text_output").tolist() == [text.decode() for text in first]
    with triton_grpc.InferenceServerClient(f"127.0.0.1:{served.grpc_port}") as grpc:
        other = triton_grpc.InferInput("text_input", [2], "BYTES").set_data_from_numpy(texts)
        third = grpc.infer("tiny", [other], parameters=FREE).as_numpy("text_output")
    assert first[0].decode() == answer
    assert first.tolist() == third.tolist()
    assert len(first) == 2


def test_what_is_no_text_is_refused(served: Front) -> None:
    with http_client(served.port) as http:
        bad = np.array([b"\xff\xfe"], dtype=np.object_)
        one = triton_http.InferInput("text_input", [1], "BYTES").set_data_from_numpy(bad)
        with pytest.raises(InferenceServerException, match="'text_input' is not written in UTF-8"):
            http.infer("tiny", [one])
        number = triton_http.InferInput("text_input", [1], "INT32")
        number.set_data_from_numpy(np.ones(1, np.int32))
        with pytest.raises(InferenceServerException, match="of datatype BYTES"):
            http.infer("tiny", [number])


def test_a_client_that_goes_away_ends_its_answer(served: Front) -> None:
    link: Any = served.services.link
    undo = slow_down(link._desk.engine, 0.005)
    long = {"text_input": "a", "parameters": {"max_tokens": 4000, "ignore_eos": True}}
    url = f"{served.url}/v2/models/tiny/generate_stream"
    with httpx.stream("POST", url, json=long, timeout=120) as reply:
        lines = reply.iter_lines()  # kept: freed, it would close the connection itself
        next(lines)
        assert link.open_requests == 1
    wait_for(lambda: not link.open_requests)
    undo()
    assert served.services.drain.open_requests == 0
