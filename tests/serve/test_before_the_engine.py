"""While nobody knows yet what is served, no door says that it is not there."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from ostinato.serve.app import build
from ostinato.serve.drain import Drain
from ostinato.serve.features import more_routes
from ostinato.serve.health import Health
from ostinato.serve.metrics import Metrics
from ostinato.serve.services import Services
from ostinato.serve.settings import Settings
from ostinato.serve.socket_link import SocketLink
from ostinato.serve.tokens import Tokens

GENERATE = {"text_input": "a"}
TENSOR = {"name": "text_input", "shape": [1], "datatype": "BYTES", "data": ["a"]}


async def ask(folder: Path, method: str, path: str, body: object) -> httpx.Response:
    """Ask a front end whose engine has not said a word."""

    async def no_tokenizer(folder: str) -> None:
        return None

    settings = Settings(model=str(folder), port=0)
    link = SocketLink(folder / "none.sock", restart_s=1.0, load_tokenizer=no_tokenizer)
    link._greeted.set()  # nobody need wait for what will not come
    drain = Drain()
    services = Services(
        settings=settings,
        metrics=Metrics("front-0"),
        health=Health(link, drain, 1.0),
        drain=drain,
        link=link,
        tokens=Tokens(lambda: link.tokenizer),
    )
    transport = httpx.ASGITransport(build(services, more_routes(services)))
    async with httpx.AsyncClient(transport=transport, base_url="http://front") as client:
        try:
            return await client.request(method, path, json=body)
        finally:
            link.close()


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/v1/models", None),
        ("GET", "/v1/models/tiny", None),
        ("GET", "/v2/models/tiny", None),
        ("GET", "/v2/models/tiny/ready", None),
        ("POST", "/v2/models/tiny/generate", GENERATE),
        ("POST", "/v2/models/tiny/generate_stream", GENERATE),
        ("POST", "/v2/models/tiny/infer", {"inputs": [TENSOR]}),
        ("POST", "/v1/completions", {"prompt": "a", "model": "tiny"}),
        ("POST", "/tokenize", {"prompt": "a"}),
    ],
)
def test_a_client_is_told_to_come_back(
    tmp_path: Path, method: str, path: str, body: object
) -> None:
    answer = asyncio.run(ask(tmp_path, method, path, body))
    assert answer.status_code == 503
    if not path.endswith("/ready"):  # which has no body
        assert answer.headers["retry-after"] == "5"
        assert "the engine is being started; try again in a few seconds" in answer.text
