"""The protocol over gRPC, in the event loop of a front end.

`GrpcServer` has the methods of the protocol and the same rules as the way in over HTTP: keys, the
size of a body, and who is let in while the server stops. `grpc_health` stands beside it.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc  # type: ignore[import-untyped]

from ostinato.errors import ResourceError
from ostinato.serve.drain import closed
from ostinato.serve.open_inference import grpc_messages
from ostinato.serve.open_inference.grpc_health import HealthService
from ostinato.serve.open_inference.models import find_model
from ostinato.serve.open_inference.protocol import SERVICE, messages, methods
from ostinato.serve.open_inference.refusals import Refusal
from ostinato.serve.open_inference.rest import EXTENSIONS, SERVER, is_server_ready

if TYPE_CHECKING:
    from ostinato.serve.services import Services

Method = Callable[[Any], Awaitable[Any]]
_ENVELOPE_BYTES = 64 * 1024
_NEVER_CLOSED = frozenset({"ServerLive", "ServerReady", "ModelReady"})


class GrpcServer:
    """A gRPC server; `start` it, then `stop` it, in one event loop.

    Attributes:
        port: Where it listens, once it is started.
    """

    def __init__(self, services: Services, host: str, port: int) -> None:
        self.port = port
        self._services = services
        self._host = host
        self._keys = [key.encode() for key in services.settings.api_keys]
        self._server: Any = None
        self._health = HealthService(services)

    async def start(self) -> None:
        """Listen.

        Raises:
            ResourceError: OST6061, the port is taken.
        """
        most = self._services.settings.max_body_bytes + _ENVELOPE_BYTES
        self._server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", most),
                ("grpc.max_send_message_length", -1),
                ("grpc.so_reuseport", 1),
            ],
            maximum_concurrent_rpcs=self._services.settings.max_connections,
        )
        handlers = {
            name: grpc.unary_unary_rpc_method_handler(
                self._guarded(name, getattr(self, f"_{_snake(name)}")),
                request_deserializer=takes.FromString,
                response_serializer=gives.SerializeToString,
            )
            for name, (takes, gives) in methods().items()
        }
        generic = grpc.method_handlers_generic_handler(SERVICE, handlers)
        self._server.add_generic_rpc_handlers((generic, self._health.handler()))
        self.port = self._bind(f"{self._host}:{self.port}")
        await self._server.start()

    def _bind(self, address: str) -> int:
        settings = self._services.settings
        try:
            if settings.tls_cert is None or settings.tls_key is None:
                return int(self._server.add_insecure_port(address))
            pair = (Path(settings.tls_key).read_bytes(), Path(settings.tls_cert).read_bytes())
            return int(self._server.add_secure_port(address, grpc.ssl_server_credentials([pair])))
        except RuntimeError as error:
            raise ResourceError(
                f"gRPC cannot listen on {address}: {error}",
                code="OST6061",
                remedy="choose another --grpc-port, or stop what listens there",
            ) from error

    async def stop(self, bound_s: float) -> None:
        """Take no more, and wait for what is being answered, at most so long."""
        self._health.end()
        if self._server is not None:
            await self._server.stop(bound_s)

    def _guarded(self, name: str, method: Method) -> Callable[[Any, Any], Awaitable[Any]]:
        async def answer(asked: Any, context: Any) -> Any:
            try:
                self._check_key(context)
                if name in _NEVER_CLOSED:
                    return await method(asked)
                return await self._let_in(method, asked)
            except Refusal as refusal:
                if refusal.retry_s is not None:
                    context.set_trailing_metadata((("retry-after", f"{refusal.retry_s:.0f}"),))
                status = getattr(grpc.StatusCode, refusal.grpc_status)
                await context.abort(status, str(refusal))

        return answer

    async def _let_in(self, method: Method, asked: Any) -> Any:
        drain = self._services.drain
        if drain.is_draining:
            self._services.metrics.shed("draining")
            problem = closed()
            raise Refusal(503, f"{problem.message}; {problem.remedy}", problem.retry_s)
        drain.enter()
        try:
            return await method(asked)
        finally:
            drain.leave()

    def _check_key(self, context: Any) -> None:
        if not self._keys:
            return
        given = dict(context.invocation_metadata() or ()).get("authorization", "")
        given = given.encode() if isinstance(given, str) else given
        key = given[7:].strip() if given[:7].lower() == b"bearer " else b""
        known = [hmac.compare_digest(key, one) for one in self._keys]
        if not any(known):
            raise Refusal(401, "an API key is needed as a bearer token, in the call's metadata")

    async def _server_live(self, asked: Any) -> Any:
        return messages()["ServerLiveResponse"](live=True)

    async def _server_ready(self, asked: Any) -> Any:
        return messages()["ServerReadyResponse"](ready=is_server_ready(self._services))

    async def _model_ready(self, asked: Any) -> Any:
        try:
            is_ready = find_model(self._services, asked.name, asked.version).is_ready()
        except Refusal as refusal:
            if refusal.status != 503:
                raise
            is_ready = False
        return messages()["ModelReadyResponse"](ready=is_ready)

    async def _server_metadata(self, asked: Any) -> Any:
        kind = messages()["ServerMetadataResponse"]
        return kind(name=SERVER, version=version("ostinato"), extensions=list(EXTENSIONS))

    async def _model_metadata(self, asked: Any) -> Any:
        model = find_model(self._services, asked.name, asked.version)
        return grpc_messages.write_metadata(model.metadata())

    async def _model_infer(self, asked: Any) -> Any:
        model = find_model(self._services, asked.model_name, asked.model_version)
        # A client that goes away, or whose deadline passes, cancels this task.
        reply = await model.infer(grpc_messages.read_infer(asked), None)
        return grpc_messages.write_infer(reply)


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)[1:]
