"""A callable behind `/v2`, asked by the real tritonclient over HTTP."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import numpy as np
import pytest
import torch

pytest.importorskip("tritonclient", reason="needs tritonclient")

import tritonclient.http as triton
import yaml
from tritonclient.utils import InferenceServerException

from ostinato.serve.callable import Limits
from serve.callable import small_models
from serve.open_inference.fronts import Front, front, of_callable
from serve.open_inference.triton_http import http_client
from serve.running import wait_for


@pytest.fixture(scope="module")
def served() -> Iterator[Front]:
    with front(of_callable("convolution", Limits(max_batch=4, max_delay_s=0.02))) as found:
        yield found


@pytest.fixture
def client(served: Front) -> Iterator[Any]:
    with http_client(served.port) as made:
        yield made


@pytest.fixture(scope="module")
def schemas(shared: Path) -> dict[str, Any]:
    text = (shared / "schemas" / "open_inference_rest.yaml").read_text()
    read: dict[str, Any] = yaml.safe_load(text)
    return read


def check(schemas: dict[str, Any], name: str, value: object) -> None:
    schema = {**schemas, "$ref": f"#/components/schemas/{name}"}
    jsonschema.validate(value, schema)


def pixels(rows: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, 3, 8, 8)).astype(np.float32)


def expected(values: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return np.asarray(small_models.convolution().fn(torch.from_numpy(values)))


def tensor(values: np.ndarray, *, binary: bool = True) -> Any:
    made = triton.InferInput("input", list(values.shape), "FP32")
    return made.set_data_from_numpy(values, binary_data=binary)


def test_the_server_and_its_model_say_what_they_are(client: Any, schemas: dict[str, Any]) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("convolution")
    assert client.is_model_ready("convolution", "1")
    told = client.get_server_metadata()
    check(schemas, "metadata_server_response", told)
    assert "binary_tensor_data" in told["extensions"]
    model = client.get_model_metadata("convolution", "1")
    check(schemas, "metadata_model_response", model)
    assert model["versions"] == ["1"]
    assert model["inputs"] == [{"name": "input", "datatype": "FP32", "shape": [-1, 3, 8, 8]}]
    assert model["outputs"] == [{"name": "logits", "datatype": "FP32", "shape": [-1, 5]}]


@pytest.mark.parametrize("sends_binary", [True, False])
@pytest.mark.parametrize("wants_binary", [True, False])
def test_tensors_go_and_come_in_binary_and_in_json(
    client: Any, sends_binary: bool, wants_binary: bool
) -> None:
    values = pixels(2)
    wanted = [triton.InferRequestedOutput("logits", binary_data=wants_binary)]
    reply = client.infer(
        "convolution", [tensor(values, binary=sends_binary)], outputs=wanted, request_id="seven"
    )
    assert reply.get_response()["id"] == "seven"
    is_binary = "parameters" in reply.get_output("logits")
    assert is_binary == wants_binary
    np.testing.assert_allclose(reply.as_numpy("logits"), expected(values), atol=1e-6)


def test_without_named_outputs_all_come_in_binary(client: Any) -> None:
    reply = client.infer("convolution", [tensor(pixels(1))], model_version="1")
    assert reply.get_output("logits")["parameters"] == {"binary_data_size": 20}
    np.testing.assert_allclose(reply.as_numpy("logits"), expected(pixels(1)), atol=1e-6)


def test_requests_at_once_share_a_batch_and_each_gets_its_own(served: Front, client: Any) -> None:
    before = served.services.callable._batcher.counts.batches
    asked = [client.async_infer("convolution", [tensor(pixels(1, seed))]) for seed in range(8)]
    for seed, one in enumerate(asked):
        found = one.get_result().as_numpy("logits")
        np.testing.assert_allclose(found, expected(pixels(1, seed)), atol=1e-6)
    assert served.services.callable._batcher.counts.batches - before < 8


def test_a_reply_without_the_extension_keeps_to_the_schema(
    served: Front, schemas: dict[str, Any]
) -> None:
    body = {"inputs": [{"name": "input", "datatype": "FP32", "shape": [1, 3, 8, 8],
                        "data": pixels(1).tolist()}]}  # fmt: skip
    reply = httpx.post(f"{served.url}/v2/models/convolution/infer", json=body)
    assert reply.status_code == 200
    check(schemas, "inference_response", reply.json())
    np.testing.assert_allclose(
        reply.json()["outputs"][0]["data"], expected(pixels(1)).ravel(), atol=1e-6
    )


@pytest.mark.parametrize(
    ("change", "status", "said"),
    [
        ({"shape": [1, 3, 8, 7]}, "400", "shape"),
        ({"datatype": "FP64"}, "400", "FP64"),
        ({"name": "output"}, "400", "input"),
        ({"shape": [1, -3, 8, 8]}, "400", "no shape"),
        ({"shape": [1 << 31, 1 << 31, 8, 8]}, "400", "no shape"),
        ({"parameters": {"shared_memory_region": "x"}}, "400", "shared memory"),
        ({"data": ["a"]}, "400", "numbers"),
        ({"parameters": {"binary_data_size": 10**9}, "data": None}, "400", "number of bytes"),
    ],
)
def test_a_request_that_is_wrong_is_refused_with_what_is_wrong(
    served: Front, schemas: dict[str, Any], change: dict[str, Any], status: str, said: str
) -> None:
    one = {"name": "input", "datatype": "FP32", "shape": [1, 3, 8, 8], "data": [0.0] * 192}
    reply = httpx.post(
        f"{served.url}/v2/models/convolution/infer", json={"inputs": [{**one, **change}]}
    )
    assert str(reply.status_code) == status
    check(schemas, "inference_error_response", reply.json())
    assert said in reply.json()["error"]


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"inputs": 3}', b"[" * 100_000, b"\xff\xfe", b'{"inputs": [{}]}']
)
def test_what_is_no_request_is_refused(served: Front, body: bytes) -> None:
    reply = httpx.post(f"{served.url}/v2/models/convolution/infer", content=body)
    assert reply.status_code == 400
    assert reply.json()["error"]


@pytest.mark.parametrize("length", ["-1", "x", "99999999999999999999999", "1000", "²"])
def test_a_length_of_the_json_that_cannot_be_is_refused(served: Front, length: str) -> None:
    reply = httpx.post(
        f"{served.url}/v2/models/convolution/infer",
        content=b'{"inputs": []}',
        headers={"Inference-Header-Content-Length": length.encode("utf-8")},
    )
    assert reply.status_code == 400


def test_the_client_is_told_what_is_wrong_in_words(client: Any) -> None:
    with pytest.raises(InferenceServerException, match="there is no output 'scores'"):
        client.infer(
            "convolution", [tensor(pixels(1))], outputs=[triton.InferRequestedOutput("scores")]
        )
    with pytest.raises(InferenceServerException, match="5 rows, and a batch holds 4") as caught:
        client.infer("convolution", [tensor(pixels(5))])
    assert caught.value.status() == "400"
    with pytest.raises(InferenceServerException, match="classification"):
        client.infer(
            "convolution",
            [tensor(pixels(1))],
            outputs=[triton.InferRequestedOutput("logits", class_count=2)],
        )
    with pytest.raises(InferenceServerException, match="keeps no sequences"):
        client.infer("convolution", [tensor(pixels(1))], sequence_id=5, sequence_start=True)


def test_another_model_or_version_is_not_found(client: Any) -> None:
    for name, version in (("resnet", ""), ("convolution", "2")):
        with pytest.raises(InferenceServerException, match="there is no model") as caught:
            client.infer(name, [tensor(pixels(1))], model_version=version)
        assert caught.value.status() == "404"
        assert not client.is_model_ready(name, version)


def test_a_callable_writes_no_text(served: Front) -> None:
    reply = httpx.post(f"{served.url}/v2/models/convolution/generate", json={"text_input": "Hello"})
    assert reply.status_code == 422
    assert "writes no text" in reply.json()["error"]


@contextmanager
def asking_in_vain(one: Front, body: dict[str, Any]) -> Iterator[None]:
    """A client that has asked, and goes away without an answer."""
    client = http.client.HTTPConnection("127.0.0.1", one.port, timeout=120)
    with closing(client):
        client.request("POST", "/v2/models/scaled/infer", json.dumps(body))
        yield


def test_a_full_queue_sheds_with_429_and_when_to_come_back_and_a_late_one_is_504() -> None:
    limits = Limits(max_batch=4, max_delay_s=600.0, max_waiting=1)
    body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}]}
    with front(of_callable("scaled", limits)) as one:
        url = f"{one.url}/v2/models/scaled/infer"
        counts = one.services.callable._batcher.counts
        with asking_in_vain(one, body):
            wait_for(lambda: counts.waiting > 0)
            full = httpx.post(url, json=body)
            assert (full.status_code, full.headers["retry-after"]) == (429, "1")
        wait_for(lambda: not counts.waiting)
        late = {**body, "parameters": {"timeout": 200_000}}
        assert httpx.post(url, json=late).status_code == 504
        text = one.services.metrics.text()
        assert 'ostinato_requests_shed_total{reason="queue-full"} 1.0' in text


def test_a_client_that_goes_away_leaves_the_queue() -> None:
    limits = Limits(max_batch=4, max_delay_s=600.0)
    body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}]}
    with front(of_callable("scaled", limits)) as one:
        with asking_in_vain(one, body):
            wait_for(lambda: one.services.callable._batcher.counts.waiting > 0)
        wait_for(lambda: not one.services.callable._batcher.counts.waiting)


def test_a_client_that_closes_its_half_of_the_connection_has_left_too() -> None:
    one = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}
    body = json.dumps({"inputs": [one]}).encode()
    head = f"POST /v2/models/scaled/infer HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n"
    with front(of_callable("scaled", Limits(max_batch=4, max_delay_s=600.0))) as served:
        counts = served.services.callable._batcher.counts
        with socket.create_connection(("127.0.0.1", served.port), timeout=60) as client:
            client.sendall(head.encode() + b"\r\n" + body)
            wait_for(lambda: counts.waiting > 0)
            client.shutdown(socket.SHUT_WR)
            wait_for(lambda: not counts.waiting)
            assert client.recv(100) == b""


def test_a_server_that_stops_is_not_ready_and_takes_nothing() -> None:
    with front(of_callable("scaled")) as one:

        def stop() -> None:
            one.services.drain.is_draining = True

        one.in_loop(stop)
        assert httpx.get(f"{one.url}/v2/health/ready").status_code == 503
        reply = httpx.post(f"{one.url}/v2/models/scaled/infer", json={})
        assert reply.status_code == 503


def test_a_large_tensor_goes_through_whole(served: Front) -> None:
    body = json.dumps({"inputs": []}).encode() + bytes(100_000)
    reply = httpx.post(f"{served.url}/v2/models/convolution/infer", content=body,
                       headers={"Inference-Header-Content-Length": "14"})  # fmt: skip
    assert reply.status_code == 400
    assert "belong to no input" in reply.json()["error"]
