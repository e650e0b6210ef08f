"""`ostinato serve --callable` and `--embedder`, as they are started, asked, wounded and stopped."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

pytest.importorskip("openai", reason="needs openai")
pytest.importorskip("tritonclient", reason="needs tritonclient")

import openai
import psutil
import tritonclient.grpc as triton
from prometheus_client.parser import text_string_to_metric_families

from serve.embeddings.test_embeddings import write
from serve.processes import Service, served
from serve.running import wait_for


@pytest.fixture
def reserved() -> Iterator[int]:
    """A port that nobody else is given: gRPC shares it with this socket, which never listens."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind(("127.0.0.1", 0))
        yield int(held.getsockname()[1])


def model_process(service: Service) -> psutil.Process:
    wanted = "serve.callable.process"
    return next(one for one in service.children() if wanted in " ".join(one.cmdline()))


def ask(service: Service, first: float) -> httpx.Response:
    one = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [first, 1, 1, 1]}
    body = {"inputs": [one], "parameters": {"timeout": 110_000_000}}
    return httpx.post(f"{service.url}/v2/models/scaled/infer", json=body, timeout=120)


@pytest.mark.slow
def test_a_callable_is_served_survives_a_kill_and_stops_in_order(
    tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch, reserved: int
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(repository / "tests"))
    options = ("--callable", "serve.callable.small_models:scaled", "--served-name", "scaled",
               "--grpc-port", f"{reserved}", "--max-batch", "4",
               "--max-delay-ms", "300")  # fmt: skip
    with served(tmp_path, *options) as service:
        assert ask(service, 5).json()["outputs"][0]["data"] == [5, 2, 3, 4]
        with triton.InferenceServerClient(f"127.0.0.1:{reserved}") as client:
            assert client.is_model_ready("scaled")
            x = triton.InferInput("x", [1, 4], "FP32")
            x.set_data_from_numpy(np.ones((1, 4), np.float32))
            reply: Any = client.infer("scaled", [x])
            assert reply.as_numpy("output").tolist() == [[1, 2, 3, 4]]
        victim = model_process(service)
        with ThreadPoolExecutor(3) as pool:
            waiting = [pool.submit(ask, service, n) for n in range(3)]  # 300 ms, for company
            wait_for(lambda: service.process.poll() is None)
            victim.kill()
            found = [one.result() for one in waiting]
        assert [one.json()["outputs"][0]["data"][0] for one in found] == [0, 1, 2]
        wait_for(service.is_ready, 200)
        assert model_process(service).pid != victim.pid
        assert service.stop() == 0


def numbers_of(service: Service, model: str) -> dict[str, float]:
    """The metrics of a model, by what they are called and their labels beside the model's name."""
    text = httpx.get(f"{service.url}/metrics", timeout=120).text
    return {
        f"{sample.name} {' '.join(v for k, v in sorted(sample.labels.items()) if k != 'model')}": (
            sample.value
        )
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.labels.get("model", model) == model
    }


@pytest.mark.slow
def test_metrics_tell_the_batches_and_calls_of_a_callable_and_outlive_its_process(
    tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(repository / "tests"))
    options = ("--callable", "serve.callable.small_models:scaled", "--served-name", "scaled",
               "--max-batch", "4", "--max-delay-ms", "300", "--front-ends", "2")  # fmt: skip
    with served(tmp_path, *options) as service:
        with ThreadPoolExecutor(3) as pool:
            found = list(pool.map(lambda n: ask(service, n), range(3)))
        assert [one.status_code for one in found] == [200] * 3
        told = numbers_of(service, "scaled")
        assert told["ostinato_model_answers_total answered"] == 3
        assert told["ostinato_model_rows_total "] == 3
        batches = told["ostinato_model_batches_total "]
        assert 1 <= batches <= 3
        assert told["ostinato_model_calls_total replayed "] == batches
        assert told["graph_calls_total replayed "] == batches
        assert told["ostinato_model_busy_seconds_total "] > 0
        padded = told["ostinato_model_padded_rows_total "]
        assert sum(v for k, v in told.items() if k.startswith("graph_bucket_padding")) == padded
        assert sum(v for k, v in told.items() if k.startswith("graph_bucket_rows")) == 3 + padded
        assert told["graph_bytes "] > 0
        assert told["ostinato_model_waiting_requests "] == 0
        model_process(service).kill()
        assert ask(service, 1).status_code == 200
        again = numbers_of(service, "scaled")
        assert again["ostinato_model_answers_total answered"] == 4
        assert again["ostinato_requests_ended_total infer stop"] == 4
        assert service.stop() == 0


@pytest.mark.slow
def test_an_encoder_beside_a_model_that_writes_is_one_process_for_all_front_ends(
    tiny_chat: Path, tmp_path: Path
) -> None:
    encoder = write(tmp_path / "tiny-encoder")
    with (
        served(tiny_chat, "--embedder", str(encoder), "--front-ends", "2") as service,
        openai.OpenAI(base_url=f"{service.url}/v1", api_key="none") as client,
    ):
        texts = ["w1 w2", "w3"]
        found = [client.embeddings.create(model="tiny-encoder", input=texts).data for _ in range(8)]
        assert all(len(one) == 2 and len(one[0].embedding) == 16 for one in found)
        said = client.completions.create(model="tiny", prompt="Hello", max_tokens=2)
        assert said.usage is not None
        encoders = [
            one for one in service.children() if "callable.process" in "".join(one.cmdline())
        ]
        assert len(encoders) == 1
        assert service.stop() == 0
