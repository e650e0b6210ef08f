"""`grpc.health.v1.Health`: what balancers and probes ask a gRPC server before they send requests.

The answer is read off the front end when it is asked, so it is never older than the state itself.
`""` and the protocol's own service name mean the whole server, and a model's name that model; they
serve when `/readyz` is good and the model can be asked. No key is needed, as for `/readyz`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final

import grpc  # type: ignore[import-untyped]
from grpc_health.v1 import health_pb2  # type: ignore[import-untyped]

from ostinato.serve.open_inference.protocol import SERVICE
from ostinato.serve.open_inference.rest import is_server_ready

if TYPE_CHECKING:
    from ostinato.serve.services import Services

_HEALTH: Final = "grpc.health.v1.Health"
_LOOK_EVERY_S: Final = 0.1
"""Between two looks for a watcher: a change is told so late at most."""
_Status = health_pb2.HealthCheckResponse


class HealthService:
    """Of one front end; `handler` is what a gRPC server takes."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._over = asyncio.Event()

    def handler(self) -> Any:
        """Return the service's two methods."""
        words = {
            "request_deserializer": health_pb2.HealthCheckRequest.FromString,
            "response_serializer": _Status.SerializeToString,
        }
        methods = {
            "Check": grpc.unary_unary_rpc_method_handler(self._check, **words),
            "Watch": grpc.unary_stream_rpc_method_handler(self._watch, **words),
        }
        return grpc.method_handlers_generic_handler(_HEALTH, methods)

    def end(self) -> None:
        """Tell whoever watches that it serves no more, and end his stream."""
        self._over.set()

    def status(self, service: str) -> int:
        """Return the state of a service or a model; SERVICE_UNKNOWN if there is none of the name.

        While no engine has said its name, any name may be its, and nothing serves yet.
        """
        model = self._services.model.name
        if model and service not in ("", SERVICE, _HEALTH, model):
            return int(_Status.SERVICE_UNKNOWN)
        is_ready = not self._over.is_set() and is_server_ready(self._services)
        return int(_Status.SERVING if is_ready else _Status.NOT_SERVING)

    async def _check(self, asked: Any, context: Any) -> Any:
        status = self.status(asked.service)
        if status == _Status.SERVICE_UNKNOWN:
            name = self._services.model.name
            said = (
                f"there is no service or model {asked.service!r:.200}; the model is {name!r:.200}"
            )
            await context.abort(grpc.StatusCode.NOT_FOUND, said)
        return _Status(status=status)

    async def _watch(self, asked: Any, context: Any) -> AsyncIterator[Any]:
        told = None
        while True:
            is_over = self._over.is_set()
            status = self.status(asked.service)
            if status != told:
                yield _Status(status=status)
                told = status
            if is_over:
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._over.wait(), _LOOK_EVERY_S)
