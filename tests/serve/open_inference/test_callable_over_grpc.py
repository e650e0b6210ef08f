"""A callable asked by the real tritonclient over gRPC, in one process with its own messages."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import torch

pytest.importorskip("tritonclient", reason="needs tritonclient")

import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from ostinato.serve.callable import Limits
from ostinato.serve.open_inference.protocol import messages
from serve.callable import small_models
from serve.open_inference.fronts import Front, front, of_callable
from serve.running import wait_for


@pytest.fixture(scope="module")
def served() -> Iterator[Front]:
    with front(of_callable("convolution", Limits(max_batch=4, max_delay_s=0.02))) as found:
        yield found


@pytest.fixture
def client(served: Front) -> Iterator[Any]:
    with triton.InferenceServerClient(f"127.0.0.1:{served.grpc_port}") as made:
        yield made


def pixels(rows: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, 3, 8, 8)).astype(np.float32)


def expected(values: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return np.asarray(small_models.convolution().fn(torch.from_numpy(values)))


def tensor(values: np.ndarray) -> Any:
    return triton.InferInput("input", list(values.shape), "FP32").set_data_from_numpy(values)


def test_the_server_and_its_model_say_what_they_are(client: Any) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("convolution", "1")
    assert client.get_server_metadata().name == "ostinato"
    told = client.get_model_metadata("convolution", as_json=True)
    assert told["inputs"] == [{"name": "input", "datatype": "FP32", "shape": ["-1", "3", "8", "8"]}]
    assert told["outputs"] == [{"name": "logits", "datatype": "FP32", "shape": ["-1", "5"]}]


def test_tensors_go_and_come_raw(client: Any) -> None:
    wanted = [triton.InferRequestedOutput("logits")]
    reply = client.infer(
        "convolution", [tensor(pixels(3))], outputs=wanted, request_id="seven", model_version="1"
    )
    np.testing.assert_allclose(reply.as_numpy("logits"), expected(pixels(3)), atol=1e-6)
    assert reply.get_response().id == "seven"
    assert reply.get_response().model_version == "1"


def test_requests_at_once_each_get_their_own(client: Any) -> None:
    answers: dict[int, Any] = {}
    for seed in range(6):
        client.async_infer(
            "convolution",
            [tensor(pixels(1, seed))],
            lambda result, error, seed=seed: answers.__setitem__(seed, (result, error)),
        )
    wait_for(lambda: len(answers) == 6)
    for seed, (result, error) in answers.items():
        assert error is None
        np.testing.assert_allclose(result.as_numpy("logits"), expected(pixels(1, seed)), atol=1e-6)


def test_typed_contents_are_read_too(served: Front) -> None:
    known = messages()
    asked = known["ModelInferRequest"](model_name="convolution")
    one = asked.inputs.add(name="input", datatype="FP32", shape=[1, 3, 8, 8])
    one.contents.fp32_contents.extend(pixels(1).ravel().tolist())
    with grpc.insecure_channel(f"127.0.0.1:{served.grpc_port}") as channel:
        infer = channel.unary_unary(
            "/inference.GRPCInferenceService/ModelInfer",
            request_serializer=known["ModelInferRequest"].SerializeToString,
            response_deserializer=known["ModelInferResponse"].FromString,
        )
        reply = infer(asked)
        found = np.frombuffer(reply.raw_output_contents[0], np.float32).reshape(1, 5)
        np.testing.assert_allclose(found, expected(pixels(1)), atol=1e-6)
        asked.raw_input_contents.append(pixels(1).tobytes())
        with pytest.raises(grpc.RpcError) as caught:
            infer(asked)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "version", "rows", "status", "said"),
    [
        ("resnet", "", 1, "NOT_FOUND", "there is no model"),
        ("convolution", "2", 1, "NOT_FOUND", "there is no model"),
        ("convolution", "", 5, "INVALID_ARGUMENT", "a batch holds 4"),
    ],
)
def test_a_refusal_has_a_status_and_words(
    client: Any, name: str, version: str, rows: int, status: str, said: str
) -> None:
    with pytest.raises(InferenceServerException, match=said) as caught:
        client.infer(name, [tensor(pixels(rows))], model_version=version)
    assert caught.value.status() == f"StatusCode.{status}"


def test_a_full_queue_is_exhausted_a_late_request_late_and_one_given_up_leaves() -> None:
    limits = Limits(max_batch=4, max_delay_s=600.0, max_waiting=1)
    values = np.ones((1, 4), np.float32)
    x = triton.InferInput("x", [1, 4], "FP32").set_data_from_numpy(values)
    with front(of_callable("scaled", limits)) as one:
        counts = one.services.callable._batcher.counts
        with triton.InferenceServerClient(f"127.0.0.1:{one.grpc_port}") as client:
            waiting = client.async_infer("scaled", [x], lambda result, error: None)
            wait_for(lambda: counts.waiting > 0)
            with pytest.raises(InferenceServerException) as full:
                client.infer("scaled", [x])
            assert full.value.status() == "StatusCode.RESOURCE_EXHAUSTED"
            waiting.cancel()
            wait_for(lambda: not counts.waiting)
            with pytest.raises(InferenceServerException) as late:
                client.infer("scaled", [x], timeout=200_000)
            assert late.value.status() == "StatusCode.DEADLINE_EXCEEDED"
            assert counts.late == 1
            wait_for(lambda: not one.services.drain.open_requests)


def test_a_key_is_asked_for_and_a_server_that_stops_takes_nothing() -> None:
    values = np.ones((1, 4), np.float32)
    x = triton.InferInput("x", [1, 4], "FP32").set_data_from_numpy(values)
    with (
        front(of_callable("scaled", api_keys=("secret",))) as one,
        triton.InferenceServerClient(f"127.0.0.1:{one.grpc_port}") as client,
    ):
        for headers in ({}, {"authorization": "Bearer wrong"}):
            with pytest.raises(InferenceServerException) as refused:
                client.infer("scaled", [x], headers=headers)
            assert refused.value.status() == "StatusCode.UNAUTHENTICATED"
        key = {"authorization": "Bearer secret"}
        reply = client.infer("scaled", [x], headers=key)
        assert reply.as_numpy("output").tolist() == [[1, 2, 3, 4]]

        def stop() -> None:
            one.services.drain.is_draining = True

        one.in_loop(stop)
        assert client.is_server_live(headers=key)
        assert not client.is_server_ready(headers=key)
        with pytest.raises(InferenceServerException) as stopping:
            client.infer("scaled", [x], headers=key)
        assert stopping.value.status() == "StatusCode.UNAVAILABLE"


def test_the_description_is_what_the_tools_make_of_the_protocols_own_file(
    tmp_path: Path, shared: Path
) -> None:
    folder = resources.files("ostinato.serve.open_inference")
    source = folder.joinpath("open_inference_grpc.proto").read_bytes()
    assert source == (shared / "schemas" / "open_inference_grpc.proto").read_bytes()
    (tmp_path / "open_inference_grpc.proto").write_bytes(source)
    made = tmp_path / "made.binpb"
    words = ["-I.", f"--descriptor_set_out={made}", "open_inference_grpc.proto"]
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *words], cwd=tmp_path, check=True)
    assert made.read_bytes() == folder.joinpath("open_inference_grpc.binpb").read_bytes()
