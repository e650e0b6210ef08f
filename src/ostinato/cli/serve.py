"""`ostinato serve`: an OpenAI-compatible HTTP service of one model, or of any PyTorch module."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from ostinato.cli.run import DeviceName, DtypeName
from ostinato.cli.streaming import prepare_stdout, write_now
from ostinato.errors import UsageError


def serve(
    model: Annotated[
        str, typer.Option(metavar="smollm2|DIR", help="smollm2, or a local transformers folder.")
    ] = "smollm2",
    host: Annotated[str, typer.Option(help="Where to listen; 0.0.0.0 is everywhere.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(help="0 takes a free one.")] = 8000,
    served_name: Annotated[
        str | None, typer.Option(help="What clients call the model; its own name if not given.")
    ] = None,
    version: Annotated[
        str | None,
        typer.Option(help="Label of the weights: initial, or what a callable declares."),
    ] = None,
    callable_: Annotated[
        str | None,
        typer.Option(
            "--callable", metavar="PKG.MOD:FACTORY", help="Serve any PyTorch module instead."
        ),
    ] = None,
    embedder: Annotated[
        str | None, typer.Option(metavar="DIR", help="Folder of an encoder, for /v1/embeddings.")
    ] = None,
    front_ends: Annotated[
        int | None, typer.Option(min=1, help="Processes that speak HTTP; by the machine.")
    ] = None,
    device: Annotated[DeviceName, typer.Option(help="auto: a GPU if there is one.")] = (
        DeviceName.AUTO
    ),
    dtype: Annotated[
        DtypeName, typer.Option(help="auto: float32 on a CPU, as stored on a GPU.")
    ] = DtypeName.AUTO,
    engine: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="Any other option of the engine, such as max_batch=64 or kv_memory=4GiB.",
        ),
    ] = None,
    max_batch: Annotated[
        int | None, typer.Option(min=1, help="Requests, or rows of a callable, that run together.")
    ] = None,
    max_delay_ms: Annotated[
        float, typer.Option(help="How long the first row of a callable's batch waits for others.")
    ] = 2.0,
    max_waiting: Annotated[
        int | None, typer.Option(min=1, help="Requests that may wait; more are refused with 429.")
    ] = None,
    max_waiting_tokens: Annotated[
        int | None, typer.Option(min=1, help="Prompt tokens that may wait; as above.")
    ] = None,
    max_new_tokens: Annotated[
        int | None, typer.Option(min=1, help="The longest answer; as the model allows.")
    ] = None,
    max_body_bytes: Annotated[int, typer.Option(help="The largest body of a request.")] = 8 << 20,
    api_key_file: Annotated[
        Path | None,
        typer.Option(help="A file of API keys, one a line; OSTINATO_API_KEYS does the same."),
    ] = None,
    admin_key_file: Annotated[
        Path | None,
        typer.Option(help="Keys for /admin/*, one a line; OSTINATO_ADMIN_KEYS does the same."),
    ] = None,
    cors_origin: Annotated[
        list[str] | None, typer.Option(help="A web page that may call; * is all of them.")
    ] = None,
    tls_cert: Annotated[str | None, typer.Option(help="Certificate, for HTTPS.")] = None,
    tls_key: Annotated[str | None, typer.Option(help="Its key.")] = None,
    drain_s: Annotated[float, typer.Option(help="How long a stop waits for open requests.")] = 30.0,
    progress_s: Annotated[
        float, typer.Option(help="Work waits and no step was made for so long: unhealthy.")
    ] = 20.0,
    restart_s: Annotated[
        float, typer.Option(help="How long requests wait for an engine that died.")
    ] = 120.0,
    unread_s: Annotated[
        float, typer.Option(help="How long a client may leave what is sent to it unread.")
    ] = 60.0,
    grpc_port: Annotated[
        int | None, typer.Option(help="Where to speak the Open Inference Protocol over gRPC.")
    ] = None,
    objective: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=SECONDS",
            help="A promise, such as ttft=0.4 or itl.long=0.1; load is shed while it is broken.",
        ),
    ] = None,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
    otel: Annotated[
        str | None, typer.Option(metavar="URL", help="Where traces go, by OTLP over HTTP.")
    ] = None,
) -> None:
    """Serve a model over HTTP, with the endpoints and errors that OpenAI's clients know."""
    prepare_stdout()
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # see `ostinato run`
    from ostinato.serve import logs
    from ostinato.serve.settings import Settings
    from ostinato.serve.supervisor import Supervisor

    options = {"device": device.value, "dtype": dtype.value, **_pairs(engine or [])}
    given = {
        "max_batch": max_batch,
        "max_waiting": max_waiting,
        "max_waiting_tokens": max_waiting_tokens,
    }
    options |= {name: value for name, value in given.items() if value is not None}
    batching = {
        name: value
        for name, value in (("max_batch", max_batch), ("max_waiting", max_waiting))
        if value is not None and callable_ is not None
    }
    settings = Settings(
        model=model,
        engine=options,
        served_name=served_name,
        version=version,
        callable=callable_,
        embedder=embedder,
        host=host,
        port=port,
        front_ends=front_ends,
        api_keys=_keys(api_key_file, "OSTINATO_API_KEYS"),
        admin_keys=_keys(admin_key_file, "OSTINATO_ADMIN_KEYS"),
        cors_origins=tuple(cors_origin or ()),
        tls_cert=tls_cert,
        tls_key=tls_key,
        max_body_bytes=max_body_bytes,
        max_new_tokens=max_new_tokens,
        drain_s=drain_s,
        progress_s=progress_s,
        restart_s=restart_s,
        unread_s=unread_s,
        objectives=tuple(objective or ()),
        log_level=log_level,
        max_delay_ms=max_delay_ms,
        grpc_port=grpc_port,
        **batching,
        otel=otel,
    )
    logs.set_up(settings, "supervisor")
    what = model if callable_ is None else callable_
    status = Supervisor(settings, lambda url: write_now(f"serving {what} at {url}\n")).run()
    logging.shutdown()
    raise typer.Exit(status)


def _pairs(given: list[str]) -> dict[str, Any]:
    """Read NAME=VALUE; a value that is a number, or true or false, is taken as one."""
    import json

    options: dict[str, Any] = {}
    for pair in given:
        name, equals, value = pair.partition("=")
        if not equals:
            raise UsageError(
                f"an option of the engine is NAME=VALUE, got {pair!r}",
                code="OST6001",
                remedy="write it as in --engine max_batch=64",
            )
        try:
            options[name] = json.loads(value)
        except ValueError:
            options[name] = value
    return options


def _keys(file: Path | None, variable: str) -> tuple[str, ...]:
    """Return keys from a file or the environment: the command line is for all to see."""
    from ostinato.serve.keys import read_keys

    if file is not None:
        return read_keys(file.read_text(encoding="utf-8"), str(file))
    text = os.environ.get(variable)
    return () if text is None else read_keys(text, variable)
