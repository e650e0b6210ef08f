"""Measured plans survive in a file, and a file that is broken costs nothing but a measurement."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("triton")

from ostinato.llm.kernels.few_rows import FewPlan
from ostinato.llm.kernels.tiled_rows import TilePlan
from ostinato.llm.models.fused_plans import (
    LIBRARY,
    Apart,
    LayerPlan,
    LayerPlans,
    Product,
    tile_plan,
)
from ostinato.llm.models.plan_candidates import candidates
from ostinato.llm.models.plan_file import PACKAGED, keep_plans, own_file, read_plans

FEW = LayerPlan(*(FewPlan(outputs, 512, 4, is_spread=True) for outputs in (1, 2, 4, 8)))
MIXED = LayerPlan(
    TilePlan(16, 64, 4, 5, ahead=9), None, TilePlan(32, 128, 8, 3, 128, 4, False), Apart()
)
PLANS = LayerPlans((1, 64), (FEW, MIXED, LIBRARY), measured=(1, 32))


def test_what_is_kept_is_read(tmp_path: Path) -> None:
    file = tmp_path / "not there yet" / "plans.json"
    assert read_plans(file, "a") is None
    keep_plans(file, "a", PLANS)
    keep_plans(file, "b", LayerPlans((), (MIXED,)))
    assert read_plans(file, "a") == PLANS
    assert read_plans(file, "b") == LayerPlans((), (MIXED,))
    assert read_plans(file, "c") is None
    assert [path.name for path in file.parent.iterdir()] == ["plans.json"]


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        '{"version": 2, "plans": {"a": {}}}',
        '{"version": 1, "plans": {"a": {"up_to": [1], "plans": []}}}',
        '{"version": 1, "plans": {"a": {"up_to": [], "plans": [{"qkv": {"kind": "none"}}]}}}',
        *(
            '{"version": 1, "plans": {"a": {"up_to": [], "plans": [{"out": null, "gate_up": null, '
            f'"down": null, "qkv": {product}}}]}}}}}}'
            for product in (
                '{"kind": "few", "outputs": 3, "chunk": 64, "warps": 1}',
                '{"kind": "few", "outputs": 2, "chunk": "64", "warps": 1}',
                '{"kind": "few", "outputs": 2, "chunk": 64, "warps": 1, "is_spread": 1}',
                '{"kind": "tile", "outputs": 8, "chunk": 64, "warps": 4, "stages": 3}',
                '{"kind": "tile", "outputs": 16, "chunk": 64, "warps": 4, "stages": 0}',
                '{"kind": "tile", "outputs": 16, "chunk": 64, "warps": 4, "stages": 1, "ahead": 0}',
                '{"kind": "apart", "outputs": 16}',
            )
        ),
    ],
)
def test_a_broken_file_is_told_and_written_over(
    content: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "plans.json"
    file.write_text(content)
    assert read_plans(file, "a") is None
    assert "cannot be read and are not used" in caplog.text
    keep_plans(file, "a", PLANS)
    assert read_plans(file, "a") == PLANS


def test_who_writes_at_the_same_time_loses_nothing(tmp_path: Path) -> None:
    # A lock on a file that each opens for itself keeps threads apart as it does processes.
    file = tmp_path / "plans.json"
    keys = [f"{writer} {each}" for writer in range(4) for each in range(10)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda key: keep_plans(file, key, PLANS), keys))
    assert sorted(json.loads(file.read_text())["plans"]) == sorted(keys)
    assert [path.name for path in tmp_path.iterdir()] == ["plans.json"]


def test_a_file_that_cannot_be_written_whole_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "plans.json"
    keep_plans(file, "a", PLANS)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    keep_plans(file, "b", PLANS)
    assert "No space left" in caplog.text
    assert read_plans(file, "a") == PLANS
    assert [path.name for path in tmp_path.iterdir()] == ["plans.json"]


def test_a_place_that_cannot_be_written_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    keep_plans(tmp_path / "file" / "plans.json", "a", PLANS)
    assert "could not be kept" in caplog.text


def test_the_machines_own_file_is_in_the_users_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert own_file() == tmp_path / "ostinato" / "plans.json"


def test_every_packaged_plan_can_be_read() -> None:
    keys = json.loads(PACKAGED.read_text())["plans"]
    assert keys
    for key in keys:
        assert read_plans(PACKAGED, key) is not None


@pytest.mark.parametrize("is_pairs", [False, True])
def test_no_rule_cuts_columns_into_more_parts_than_there_are(is_pairs: bool) -> None:
    for inputs in (*range(16, 3000, 16), 4864, 14336, 18944):
        for outputs in (400, 1040, 4096):
            product = Product(inputs, outputs, in_pairs=is_pairs)
            assert tile_plan(product).fits(inputs)
            for tokens in (1, 2, 32, 256):
                for plan in candidates(product, tokens):
                    assert not isinstance(plan, TilePlan) or plan.fits(inputs), plan
