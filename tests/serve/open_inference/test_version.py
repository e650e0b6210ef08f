"""A callable has one version, wherever it is asked for."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

pytest.importorskip("openai", reason="needs openai")
pytest.importorskip("tritonclient", reason="needs tritonclient")

from ostinato.errors import ResourceError
from ostinato.serve.features import _fixed_model
from ostinato.serve.services import Services
from ostinato.serve.settings import Settings
from serve.open_inference.fronts import front, of_callable


@pytest.mark.parametrize(("given", "version"), [(None, "march-7"), ("tuned", "tuned")])
def test_both_protocols_name_the_same_version(given: str | None, version: str) -> None:
    with front(of_callable("labelled", version=given)) as one:
        base = f"http://127.0.0.1:{one.port}"
        model = httpx.get(f"{base}/v1/models").json()["data"][0]
        assert model["version"] == version
        described = httpx.get(f"{base}/v2/models/labelled").json()
        assert described["versions"] == [version]
        there = httpx.get(f"{base}/v2/models/labelled/versions/{version}")
        assert there.status_code == 200
        assert httpx.get(f"{base}/v2/models/labelled/versions/initial").status_code == 404
        x = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 1, 1, 1]}
        reply = httpx.post(f"{base}/v2/models/labelled/infer", json={"inputs": [x]}).json()
        assert reply["model_version"] == version


def test_a_callable_has_no_length_of_a_context() -> None:
    with front(of_callable("labelled")) as one:
        model = httpx.get(f"http://127.0.0.1:{one.port}/v1/models").json()["data"][0]
    assert "max_model_len" not in model


class _Loading:
    """A callable that has not said what it is."""

    @property
    def description(self) -> Any:
        raise ResourceError("it is being loaded", code="OST6056", remedy="wait")


def test_until_a_callable_is_loaded_nobody_is_told_a_version_it_may_not_have() -> None:
    settings = Settings(callable="shop:make")
    nothing: Any = dict.fromkeys(("metrics", "health", "drain"))
    fixed = _fixed_model(settings)
    services = Services(settings=settings, callable=_Loading(), fixed_model=fixed, **nothing)
    assert services.model.name == "make"
    assert services.model.version == ""
