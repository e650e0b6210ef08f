"""The script that tunes plans: tried whole at toy sizes, where the interpreter runs the kernels."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

import triton

from bench.scripts import script as loaded
from ostinato.llm.kernels.tiled_rows import TilePlan
from ostinato.llm.models.fused_plans import LIBRARY, LayerPlan, LayerPlans
from ostinato.llm.models.measuring import Bench
from ostinato.llm.models.plan_file import keep_plans, plan_of, read_plans, written
from ostinato.measure import Spread

Run = Callable[..., dict[str, Any]]
NAME, BATCH = "smollm2-135m", 5


@pytest.fixture
def script(repository: Path) -> Iterator[ModuleType]:
    if not triton.knobs.runtime.interpret:
        pytest.skip("kernels are compiled in this process: it has a GPU")
    with loaded(repository, "tune_decode") as module:
        yield module


@pytest.fixture
def run(script: ModuleType, tmp_path: Path) -> Run:
    """Tune the toy, and return what was written."""
    out = tmp_path / "tuned.json"

    def run(*words: str) -> dict[str, Any]:
        toy = ["--tiny", "--device", "cpu", "--models", NAME, "--batches", str(BATCH)]
        script.main([str(out), *toy, *words])
        known: dict[str, Any] = json.loads(out.read_text()) if out.is_file() else {}
        return known

    return run


def priced(monkeypatch: pytest.MonkeyPatch, us: Callable[[Bench, Any], float | None]) -> list[Any]:
    """Let trials run for nothing, and cost what is said; return the plans that were timed."""
    timed: list[Any] = []

    def time(bench: Bench, plan: Any, tokens: int, expected: torch.Tensor) -> Spread | None:
        timed.append(plan)
        cost = us(bench, plan)
        return None if cost is None else Spread(cost, 0.0, 1)

    monkeypatch.setattr(Bench, "time", time)
    return timed


@pytest.mark.slow
def test_every_trial_is_made_beside_the_oracle_written_and_not_made_again(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known = run()
    assert known["failed"] == {}
    assert all(trial["median_us"] > 0 for trial in known["trials"].values())
    found = known["best"][f"{NAME}, {BATCH}"]
    assert found["key"] == "cpu; float32 64x64 pairs, 64x64, 64x128 pairs, 128x64, 2 layers"
    assert plan_of(found["plan"]).qkv is not None
    assert f"{NAME}, {BATCH}: {found['us']} us" in capsys.readouterr().out
    assert run() == known

    table = tmp_path / "table.json"
    run("--ship", "--table", str(table))
    plans = read_plans(table, found["key"])
    assert plans is not None
    assert plans.fit(BATCH) == plan_of(found["plan"])
    assert plans.measured == (BATCH,)


def test_winners_take_the_place_of_what_served_their_batch_and_leave_the_rest(
    script: ModuleType, tmp_path: Path
) -> None:
    table, out = tmp_path / "table.json", tmp_path / "tuned.json"
    few, old, rule = (plan_by(TilePlan(16, 64, 4, stages)) for stages in (2, 3, 4))
    keep_plans(table, "a", LayerPlans((1, 8, 32, 64), (few, old, old, rule, LIBRARY), (1, 8, 32)))
    keep_plans(table, "b", LayerPlans((), (old,)))
    new, wide = plan_by(TilePlan(16, 64, 4, 5)), plan_by(TilePlan(64, 64, 4, 5))

    def ship(**best: LayerPlan) -> LayerPlans:
        won = {
            f"a model, {batch[1:]}": {"plan": written(plan), "key": "a"}
            for batch, plan in best.items()
        }
        out.write_text(json.dumps({"trials": {}, "best": won, "failed": {}}))
        script.main([str(out), "--ship", "--table", str(table)])
        plans = read_plans(table, "a")
        assert plans is not None
        return plans

    plans = ship(_128=LIBRARY, _32=new)
    served = {tokens: plans.fit(tokens) for tokens in (1, 2, 8, 9, 32, 33, 64, 65, 128, 129)}
    assert served == {
        1: few,
        2: old,
        8: old,
        9: new,
        32: new,
        33: rule,
        64: rule,
        **dict.fromkeys((65, 128, 129), LIBRARY),
    }
    assert plans.measured == (1, 8, 32, 128)
    # In a later run: from above what was measured for fewer.
    plans = ship(_256=wide)
    assert [plans.fit(tokens) for tokens in (64, 128, 129, 256, 257)] == [
        rule,
        LIBRARY,
        wide,
        wide,
        LIBRARY,
    ]
    assert read_plans(table, "b") == LayerPlans((), (old,))


def plan_by(tile: TilePlan) -> LayerPlan:
    return LayerPlan(tile, tile, tile, tile)


def test_what_costs_least_wins_attention_too(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def us(bench: Bench, plan: Any) -> float:
        many: Any = bench.backend
        patience = sum(not product.is_patient for product in (plan.out, plan.down))
        return 200.0 - 10 * patience - many.decode_plans.plans[0].block

    priced(monkeypatch, us)
    found = run()["best"][f"{NAME}, {BATCH}"]
    plan = plan_of(found["plan"])
    chosen = [getattr(plan, name).is_patient for name in ("qkv", "out", "gate_up", "down")]
    assert chosen == [True, False, True, False]
    assert found["attention"]["block"] == 64
    assert (found["before_us"], found["us"]) == (168.0, 116.0)


def test_codes_are_tuned_as_codes_and_kept_apart(
    run: Run, script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    real = script.candidates

    def candidates(product: Any, tokens: int, *, number_bytes: int) -> Any:
        asked.append(number_bytes)
        return real(product, tokens, number_bytes=number_bytes)

    monkeypatch.setattr(script, "candidates", candidates)
    priced(monkeypatch, lambda bench, plan: 100.0)
    run()
    assert {*asked} == {4}
    asked.clear()
    best = run("--quantize", "int8")["best"]
    assert {*asked} == {1}
    assert {name: found["key"].split(" ")[1] for name, found in best.items()} == {
        f"{NAME}, {BATCH}": "float32",
        f"{NAME} in int8, {BATCH}": "int8",
    }


def test_a_plan_that_fails_or_gives_other_numbers_costs_itself_alone(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def us(bench: Bench, plan: Any) -> float | None:
        if not plan.out.is_patient:
            raise ValueError("no such instruction")
        return None if not plan.down.is_patient else 100.0

    priced(monkeypatch, us)
    known = run()
    assert plan_of(known["best"][f"{NAME}, {BATCH}"]["plan"]).out.is_patient
    assert list(known["failed"].values()) == ["ValueError('no such instruction')"]


def test_attention_that_cannot_be_compiled_costs_itself_alone(
    run: Run, script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    priced(monkeypatch, lambda bench, plan: 100.0)
    real = script.Tuned.attending

    def attending(work: Any, plan: Any) -> Any:
        if getattr(plan, "stages", None) == 5:
            raise RuntimeError("no room")
        return real(work, plan)

    monkeypatch.setattr(script.Tuned, "attending", attending)
    known = run()
    assert known["best"]
    assert list(known["failed"].values()) == ["RuntimeError('no room')"]


def test_attention_that_gives_other_numbers_is_not_timed(
    run: Run, script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed = priced(monkeypatch, lambda bench, plan: 100.0)
    real = script.Tuned.attended

    def attended(work: Any, bench: Bench) -> torch.Tensor:
        found: torch.Tensor = real(work, bench)
        return found if bench.backend.name == "sdpa" else found * 1.05

    monkeypatch.setattr(script.Tuned, "attended", attended)
    known = run()
    assert known["best"][f"{NAME}, {BATCH}"]["attention"] is None
    assert sum("apart" in text for text in known["failed"].values()) == 2 + 2  # both kernels
    assert not any("DecodePlan" in name for name in known["trials"])
    assert timed


def test_without_time_nothing_begins_and_what_was_cut_short_is_gone_on_with(
    run: Run, script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("--seconds", "0") == {}
    now = iter(float(each) for each in range(1000))
    monkeypatch.setattr(script.time, "monotonic", lambda: next(now))
    timed = priced(monkeypatch, lambda bench, plan: 100.0)
    cut = run("--seconds", "3")
    assert cut["best"] == {}
    assert 0 < len(cut["trials"]) == len(timed)
    before = len(timed)
    whole = run("--seconds", "900")
    assert whole["best"]
    assert len(timed) - before == len(whole["trials"]) - len(cut["trials"])


def test_a_machine_without_a_gpu_is_told(script: ModuleType, tmp_path: Path) -> None:
    words = ["--device", "cpu", "--models", NAME, "--batches", "1", "--workers", "0"]
    with pytest.raises(SystemExit, match="need a CUDA device"):
        script.main([str(tmp_path / "out.json"), *words])
