"""How one service is set up: every option, checked when it is given and never changed afterwards.

The command line builds one; the supervisor hands it to the processes it starts as JSON. What
concerns the model alone (memory, rows, number type) is the engine's: `engine` holds those options
by the names of `EngineConfig`, which checks them itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

import msgspec

from ostinato.errors import UsageError
from ostinato.serve.slo import declared

_MOST_FRONT_ENDS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The options of one service.

    Attributes:
        model: "smollm2" or a transformers folder.
        engine: Other options of `EngineConfig`, by name.
        served_name: What `/v1/models` calls the model; None: the model's own name.
        version: Label of the weights it starts with; None: "initial", or as a callable declares.
        callable: "pkg.mod:factory" of any PyTorch module to serve instead of a model that writes.
        embedder: A folder of an encoder model for `/v1/embeddings`; None: no such model.
        host, port: Where to listen; port 0 takes a free one.
        front_ends: Processes that speak HTTP; None: 1 on a CPU and up to 4 beside a GPU.
        api_keys: Whoever calls must know one of them; none: everybody may.
        admin_keys: For `/admin/*`; none: nobody may.
        cors_origins: Web pages that may call from a browser; "*" is all of them.
        tls_cert, tls_key: Files for HTTPS; None: plain HTTP.
        max_body_bytes: The largest body of a request.
        max_header_bytes: The largest head of a request.
        header_s, body_s: How long the head and the body of a request may take to arrive.
        keep_alive_s: How long a connection may lie idle between two requests.
        unread_s: How long a client may take nothing of what is sent to it; then its connection
            ends, and with it what it had asked for.
        max_new_tokens: The longest answer; None: as the model allows.
        max_answers: The most answers to one request.
        max_connections: Of one front end.
        drain_s: How long a stop waits for open requests.
        progress_s: Work waits and no step was made for so long: the engine hangs.
        restart_s: How long requests wait for an engine that is being started again.
        log_level: "debug", "info", "warning" or "error".
        max_batch, max_delay_ms, max_waiting: Of a callable or an embedder: rows of one run, how
            long the first of them waits for others, and requests that may wait.
        grpc_port: Where the Open Inference Protocol is spoken over gRPC; None: nowhere.
        objectives: What is promised, such as "ttft=0.4" or "itl.long=0.1"; see `slo.declared`.
        otel: Where traces go (an OTLP endpoint over HTTP); None: none are made.

    Raises:
        UsageError: OST6001, a value is out of its range; OST6002, two that exclude each other;
            OST6030, an objective that makes no sense.
    """

    model: str = "smollm2"
    engine: Mapping[str, Any] = field(default_factory=dict, hash=False)
    served_name: str | None = None
    version: str | None = None
    callable: str | None = None
    embedder: str | None = None
    host: str = "127.0.0.1"
    port: int = 8000
    front_ends: int | None = None
    api_keys: tuple[str, ...] = ()
    admin_keys: tuple[str, ...] = ()
    cors_origins: tuple[str, ...] = ()
    tls_cert: str | None = None
    tls_key: str | None = None
    max_body_bytes: int = 8 * 1024 * 1024
    max_header_bytes: int = 32 * 1024
    header_s: float = 10.0
    body_s: float = 30.0
    keep_alive_s: float = 75.0
    unread_s: float = 60.0
    max_new_tokens: int | None = None
    max_answers: int = 128
    max_connections: int = 4096
    drain_s: float = 30.0
    progress_s: float = 20.0
    restart_s: float = 120.0
    log_level: str = "info"
    max_batch: int = 32
    max_delay_ms: float = 2.0
    max_waiting: int = 1024
    grpc_port: int | None = None
    objectives: tuple[str, ...] = ()
    otel: str | None = None

    def __post_init__(self) -> None:
        self._check_counts()
        declared(self.objectives)
        for name in ("header_s", "body_s", "keep_alive_s", "unread_s", "progress_s", "restart_s"):
            _check_seconds(name, getattr(self, name), above_zero=True)
        for name in ("drain_s", "max_delay_ms"):
            _check_seconds(name, getattr(self, name), above_zero=False)
        for name in ("api_keys", "admin_keys"):
            if not all(key and key.isascii() and key.isprintable() for key in getattr(self, name)):
                raise _wrong(name, "printable ASCII texts of at least one letter", "***")
        if self.log_level not in ("debug", "info", "warning", "error"):
            raise _wrong("log_level", "debug, info, warning or error", self.log_level)
        if self.version is not None and not (self.version and self.version.isprintable()):
            raise _wrong("version", "a printable text", self.version)
        if self.callable is not None and not all(self.callable.partition(":")):
            raise _wrong("callable", "package.module:factory", self.callable)
        if (self.tls_cert is None) != (self.tls_key is None):
            raise UsageError(
                "HTTPS needs a certificate and its key, and one of the two is missing",
                code="OST6002",
                remedy="give both --tls-cert and --tls-key, or neither for plain HTTP",
            )

    def _check_counts(self) -> None:
        for name, most in (
            ("max_body_bytes", 1 << 40),
            ("max_header_bytes", 1 << 30),
            ("max_answers", 1 << 20),
            ("max_connections", 1 << 20),
            ("max_batch", 1 << 20),
            ("max_waiting", 1 << 30),
        ):
            _check_count(name, getattr(self, name), 1, most)
        _check_count("port", self.port, 0, 65535)
        if self.front_ends is not None:
            _check_count("front_ends", self.front_ends, 1, _MOST_FRONT_ENDS)
        if self.grpc_port is not None:
            _check_count("grpc_port", self.grpc_port, 1, 65535)
        if self.max_new_tokens is not None:
            _check_count("max_new_tokens", self.max_new_tokens, 1, 1 << 40)

    @property
    def first_version(self) -> str:
        """Label of the weights that an engine starts with."""
        return self.version or "initial"

    @property
    def engine_options(self) -> dict[str, Any]:
        """What `EngineConfig.read` takes."""
        return {"model": self.model, **self.engine}

    def to_json(self) -> bytes:
        """Return all of it, for a process that is to be set up alike."""
        return msgspec.json.encode(self)

    @classmethod
    def from_json(cls, text: bytes) -> Settings:
        """Read what `to_json` wrote."""
        return msgspec.json.decode(text, type=cls)


def _check_count(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise _wrong(name, f"from {least} to {most}", value)


def _check_seconds(name: str, value: float, *, above_zero: bool) -> None:
    if not isfinite(value) or value < 0 or (above_zero and value == 0):
        raise _wrong(name, f"{'above 0' if above_zero else '0 or more'}", value)


def _wrong(name: str, wanted: str, value: object) -> UsageError:
    return UsageError(
        f"{name} of a service must be {wanted}, got {value!r}",
        code="OST6001",
        remedy=f"pass --{name.replace('_', '-')} as {wanted}, or leave it out",
    )
