"""What is tried beyond the package's candidates: by arithmetic, and within an H200."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("triton")

from bench.scripts import script as loaded
from ostinato.bench.decode.models import MODELS
from ostinato.llm.models import DecoderConfig
from ostinato.llm.models.fused import sizes_of
from ostinato.llm.models.fused_plans import Product
from ostinato.llm.models.plan_candidates import candidates, load_of

NAMES = ("qkv", "out", "gate_up", "down")


@pytest.fixture
def script(repository: Path) -> Iterator[ModuleType]:
    with loaded(repository, "plan_candidates") as module:
        yield module


def product_of(model: str, name: str) -> Product:
    product: Product = getattr(sizes_of(DecoderConfig.from_dict(MODELS[model])), name)
    return product


@pytest.mark.parametrize("tokens", [8, 32, 100, 256])
@pytest.mark.parametrize("name", NAMES)
def test_a_deep_plan_waits_for_memory_once(script: ModuleType, name: str, tokens: int) -> None:
    product = product_of("smollm2-135m", name)
    found = list(script.deep(product, tokens))
    assert 1 <= len(found) == len(set(found)) <= 4
    for plan in found:
        pieces = -(-product.inputs // (plan.chunk * plan.splits))
        # One in registers before the wait, the rest ahead of the first product.
        assert plan.stages == pieces
        assert 3 <= pieces <= 9
        assert plan.fits(product.inputs)
        load = load_of(plan, product, tokens, 132)
        assert load.shared <= 227 * 1024
        assert load.programs <= 132 * (227 * 1024 // load.shared)  # one round


def test_a_model_whose_columns_are_many_has_none(script: ModuleType) -> None:
    for name in NAMES:
        assert list(script.deep(product_of("llama3-8b", name), 32)) == []


@pytest.mark.parametrize("name", NAMES)
def test_few_tokens_are_tried_with_deep_plans_beside_the_packages(
    script: ModuleType, name: str
) -> None:
    product = product_of("smollm2-135m", name)
    found = script.worth_a_trial(name, product, 32)
    assert len(found) == len(set(found))
    assert set(found) == {*script.deep(product, 32), *candidates(product, 32)}
    assert found[-1] is None
    assert script.worth_a_trial(name, product, 1) == list(candidates(product, 1))


@pytest.mark.parametrize("name", NAMES)
def test_many_tokens_are_tried_with_deep_and_with_wide_plans(script: ModuleType, name: str) -> None:
    product = product_of("smollm2-135m", name)
    found = script.worth_a_trial(name, product, 256)
    assert len(found) == len(set(found))
    assert set(script.deep(product, 256)) <= set(found)
    assert all(plan is None or plan.fits(product.inputs) for plan in found)
    assert found[-1] is None
