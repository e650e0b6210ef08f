"""gRPC's own health service, asked with its own client: it serves only what can be asked now."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any

import grpc
import msgspec
import pytest

pytest.importorskip("grpc_health", reason="needs grpcio-health-checking")

from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub

from ostinato.serve.drain import Drain
from ostinato.serve.health import Health
from ostinato.serve.link import OpenLink
from ostinato.serve.metrics import Metrics
from ostinato.serve.services import Services
from ostinato.serve.settings import Settings
from serve.open_inference.fronts import Front, front, of_callable, of_engine

SERVING = HealthCheckResponse.SERVING
NOT_SERVING = HealthCheckResponse.NOT_SERVING
UNKNOWN = HealthCheckResponse.SERVICE_UNKNOWN
EVERYTHING = ("", "inference.GRPCInferenceService", "scaled")
PATIENCE_S = 60


@pytest.fixture
def served() -> Iterator[Front]:
    with front(of_callable("scaled", api_keys=("secret",))) as found:
        yield found


class Client:
    """Attributes: changes: what each watched name was said to be, in order; None at the end."""

    def __init__(self, front: Front) -> None:
        self.channel = grpc.insecure_channel(f"127.0.0.1:{front.grpc_port}")
        self._stub: Any = HealthStub(self.channel)  # type: ignore[no-untyped-call]

    def check(self, name: str = "") -> int:
        asked = HealthCheckRequest(service=name)
        return int(self._stub.Check(asked, timeout=PATIENCE_S).status)

    def watch(self, name: str) -> Queue[int | None]:
        changes: Queue[int | None] = Queue()
        stream = self._stub.Watch(HealthCheckRequest(service=name), timeout=PATIENCE_S)

        def read() -> None:
            with suppress(grpc.RpcError):  # the test is over
                for reply in stream:
                    changes.put(reply.status)
                changes.put(None)

        Thread(target=read, daemon=True).start()
        return changes


@pytest.fixture
def client(served: Front) -> Iterator[Client]:
    made = Client(served)
    yield made
    made.channel.close()


def set_draining(served: Front) -> None:
    def stop() -> None:
        served.services.drain.is_draining = True

    served.in_loop(stop)


@pytest.mark.parametrize("name", EVERYTHING)
def test_it_serves_without_a_key_until_the_server_stops(
    served: Front, client: Client, name: str
) -> None:
    assert client.check(name) == SERVING
    set_draining(served)
    assert client.check(name) == NOT_SERVING


def test_a_name_that_is_not_here_is_not_found_and_says_which_is(client: Client) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        client.check("resnet")
    error: Any = caught.value
    assert error.code() is grpc.StatusCode.NOT_FOUND
    assert "'resnet'" in error.details()
    assert "'scaled'" in error.details()
    assert client.watch("resnet").get(timeout=PATIENCE_S) == UNKNOWN


def test_a_watcher_hears_of_each_change_and_of_the_end() -> None:
    with front(of_callable("scaled")) as served:
        client = Client(served)
        changes = [client.watch(name) for name in EVERYTHING]
        assert [each.get(timeout=PATIENCE_S) for each in changes] == [SERVING] * 3
        set_draining(served)
        assert [each.get(timeout=PATIENCE_S) for each in changes] == [NOT_SERVING] * 3
    assert [each.get(timeout=PATIENCE_S) for each in changes] == [None] * 3
    client.channel.close()


def test_a_stop_tells_a_watcher_who_was_told_that_it_serves() -> None:
    with front(of_callable("scaled")) as served:
        client = Client(served)
        changes = client.watch("scaled")
        assert changes.get(timeout=PATIENCE_S) == SERVING
    assert changes.get(timeout=PATIENCE_S) == NOT_SERVING
    assert changes.get(timeout=PATIENCE_S) is None
    client.channel.close()


def test_a_model_that_is_not_there_does_not_serve(
    served: Front, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(served.services.callable), "is_ready", property(lambda _: False))
    assert [client.check(name) for name in EVERYTHING] == [NOT_SERVING] * 3


def test_an_engine_serves_and_one_that_was_lost_does_not(
    tiny_chat: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with front(of_engine(tiny_chat)) as served:
        client = Client(served)
        assert client.check() == client.check("tiny") == SERVING
        watched = client.watch("tiny")
        assert watched.get(timeout=PATIENCE_S) == SERVING
        link: Any = served.services.link
        lost = msgspec.structs.replace(link.pulse, why="it was lost")
        monkeypatch.setattr(link._desk, "pulse", lambda: lost)
        assert watched.get(timeout=PATIENCE_S) == NOT_SERVING
        client.channel.close()


@asynccontextmanager
async def of_nothing_yet() -> AsyncIterator[Services]:
    """A front end whose engine has not said a word."""
    link, drain = OpenLink(), Drain()
    yield Services(
        settings=Settings(port=0),
        metrics=Metrics("front-0"),
        health=Health(link, drain, 10.0),
        drain=drain,
        link=link,
    )
    link.close()


@pytest.mark.parametrize("name", ["", "tiny"])
def test_nothing_serves_and_nothing_is_unknown_while_the_engine_starts(name: str) -> None:
    with front(of_nothing_yet) as served:
        client = Client(served)
        assert client.check(name) == NOT_SERVING
        client.channel.close()
