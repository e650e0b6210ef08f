"""`/openapi.json`, and thousands of requests drawn from it: no 5xx, no hang, nothing left."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import httpx
import hypothesis
import jsonschema
import msgspec
import pytest

pytest.importorskip("schemathesis", reason="needs schemathesis")

import schemathesis
from starlette.routing import Route

from ostinato.serve.app import build
from ostinato.serve.description import describe
from ostinato.serve.features import more_routes
from ostinato.serve.operations import GENERATION, operations
from ostinato.serve.services import Services
from serve.open_inference.fronts import Front, front, of_callable
from serve.running import Running, running, wait_for

KEY = "admin-key"
_MOST_S = 60.0
# For each operation. A full run has 10,000 cases in all: OSTINATO_FUZZ_CASES=900.
_CASES = int(os.environ.get("OSTINATO_FUZZ_CASES", "5"))
_HEALTH = {
    "deadline": None,
    "suppress_health_check": list(hypothesis.HealthCheck),
    "derandomize": True,
    "database": None,
}


def served(**parts: object) -> Services:
    """What decides which operations there are, and nothing else."""
    nothing = dict.fromkeys(("settings", "metrics", "health", "drain"))
    return Services(**nothing, **parts)  # type: ignore[arg-type]


TEXTS = schemathesis.openapi.from_dict(describe(operations(served(link=object()))))
TENSORS = schemathesis.openapi.from_dict(describe(operations(served(callable=object()))))
# A trace waits for steps, which nobody makes here: it has tests of its own.
_WAITS = "^/admin/profile"


@pytest.fixture(scope="module")
def fuzzed(tiny_chat: Path) -> Iterator[Running]:
    """A service whose answers are short, so that thousands of them are soon there."""
    with running(tiny_chat, max_new_tokens=3, max_answers=4, admin_keys=(KEY,)) as made:
        yield made


@pytest.fixture(scope="module")
def tensors() -> Iterator[Front]:
    with front(of_callable("scaled", admin_keys=(KEY,)), more_routes) as made:
        yield made


def ask(case: schemathesis.Case, url: str, name: str, version: str) -> None:
    """Ask, and check what must hold of any answer."""
    given = str(case.path_parameters)
    if case.path_parameters and sum(map(ord, given)) % 4:  # most of them mean what is there
        known = {"name": name, "model": name, "version": version}
        case.path_parameters = {part: known[part] for part in case.path_parameters}
    answer = case.call(base_url=url, headers={"authorization": f"Bearer {KEY}"}, timeout=_MOST_S)
    assert answer.status_code < 500, answer.text
    case.operation.validate_response(answer)
    if answer.status_code >= 400:
        error = answer.json()["error"]
        if not isinstance(error, str):
            assert error["message"]
            assert set(error) == {"message", "type", "param", "code"}


@TEXTS.exclude(path_regex=_WAITS).parametrize()
@hypothesis.settings(max_examples=_CASES, **_HEALTH)
def test_whatever_is_asked_there_is_an_answer(case: schemathesis.Case, fuzzed: Running) -> None:
    ask(case, fuzzed.url, "tiny", "initial")


@TENSORS.include(path_regex="^/v2").parametrize()
@hypothesis.settings(max_examples=_CASES, **_HEALTH)
def test_whatever_is_asked_of_a_callable(case: schemathesis.Case, tensors: Front) -> None:
    ask(case, tensors.url, "scaled", "1")


def test_nothing_is_left_of_them(fuzzed: Running) -> None:
    wait_for(fuzzed.is_clean)
    assert httpx.get(f"{fuzzed.url}/healthz").status_code == 200


def asked(services: Services) -> dict[tuple[str, str], str]:
    """Every route of a service but those of its page: by method and path as it is described."""
    routes = build(services, more_routes(services)).routes
    assert all(isinstance(one, Route) for one in routes)
    return {
        (method.lower(), one.path.replace(":path", "").rstrip("/")): one.path
        for one in routes
        if isinstance(one, Route) and not one.path.startswith("/ui")
        for method in (one.methods or set()) - {"HEAD"}
    }


def check_told(url: str, services: Services) -> set[str]:
    """Check that what is described is served, and what is not is not; return what is described."""
    described = httpx.get(f"{url}/openapi.json").json()
    assert described == msgspec.json.decode(msgspec.json.encode(describe(operations(services))))
    told = {(method, path) for path, each in described["paths"].items() for method in each}
    routes = asked(services)
    assert told <= set(routes)
    name = services.model.name
    for method, path in set(routes) - told:
        filled = path.format(model=name, version=services.model.version, name=name)
        answer = httpx.request(method, f"{url}{filled}", json={}, headers=_admin())
        assert answer.status_code in (404, 422), path
        assert "no " in answer.text, path
    return {path for _, path in told}


def _admin() -> dict[str, str]:
    return {"authorization": f"Bearer {KEY}"}


def test_all_routes_of_a_model_that_writes_are_described(service: Running) -> None:
    paths = check_told(service.url, service.services)
    assert {"/v1/responses", "/tokenize", "/detokenize", "/v2/health/ready", "/metrics"} <= paths
    assert {each.path for each in GENERATION} <= paths
    assert "/v1/embeddings" not in paths


def test_all_routes_of_a_callable_are_described(tensors: Front) -> None:
    paths = check_told(tensors.url, tensors.services)
    assert {"/v2/models/{model}/infer", "/v2/health/live", "/readyz", "/v1/models"} <= paths
    assert not paths & {"/v1/chat/completions", "/v2/models/{model}/generate", "/v1/embeddings"}


def test_embeddings_are_described_where_they_are_served() -> None:
    told = describe(operations(served(link=object(), embedder=object())))
    assert ("post", "/v1/embeddings") in {
        (method, path) for path, each in told["paths"].items() for method in each
    }
    body = told["components"]["schemas"]["EmbeddingRequest"]
    inputs = {"$defs": told["components"]["schemas"], **body["properties"]["input"]}
    for good in ("a", ["a", "b"], [1, 2], [[1], [2]]):
        jsonschema.validate(good, inputs)
    for bad in (3, [], ["a", 1], [[]], None):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(bad, inputs)


def test_a_part_of_a_path_is_a_parameter() -> None:
    told = describe(GENERATION)["paths"]["/v2/models/{model}/versions/{version}/generate"]["post"]
    assert [part["name"] for part in told["parameters"]] == ["model", "version"]
