"""One tiny model and one service of it for all tests that change nothing about either."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import hypothesis
import pytest

from serve.running import Running, running
from serve.tiny_chat import write

# Where one of these is not installed, only what asks for it is skipped.
if TYPE_CHECKING:
    import openai

    from serve.openai_schema import OpenAISchema

# On a machine that does much else an answer may take longer than httpx's own five seconds.
for part in ("connect", "read", "write", "pool"):
    setattr(httpx._config.DEFAULT_TIMEOUT_CONFIG, part, 120.0)
# And an example longer than the fifth of a second after which it would count as a failure.
hypothesis.settings.register_profile("patient", deadline=None)
hypothesis.settings.load_profile("patient")


@pytest.fixture(scope="session")
def tiny_chat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model's folder with a tokenizer and a chat template; not to be changed."""
    folder = tmp_path_factory.mktemp("serve") / "tiny"
    write(folder)
    return folder


@pytest.fixture(scope="session")
def other_weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Other weights of the same model."""
    folder = tmp_path_factory.mktemp("serve") / "other"
    write(folder, seed=1)
    return folder


@pytest.fixture(scope="session")
def service(tiny_chat: Path) -> Iterator[Running]:
    """A service that a test leaves as it found it."""
    with running(tiny_chat, api_keys=(), admin_keys=("admin-key",)) as made:
        yield made


@pytest.fixture
def client(service: Running) -> Iterator[openai.OpenAI]:
    """The official client."""
    openai = pytest.importorskip("openai", reason="needs openai")
    with openai.OpenAI(base_url=f"{service.url}/v1", api_key="none", max_retries=0) as made:
        yield made


@pytest.fixture(scope="session")
def schema(shared: Path) -> OpenAISchema:
    """OpenAI's own description of its replies."""
    pytest.importorskip("jsonschema_rs", reason="needs jsonschema-rs")
    from serve.openai_schema import OpenAISchema

    return OpenAISchema(shared / "schemas" / "openai_subset.openapi.json")
