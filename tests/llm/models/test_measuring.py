"""Measuring plans: tried whole in the interpreter, where only the clock is made up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton")

import triton

from llm.paged_model import PagedModel
from ostinato.llm.kernels.few_rows import FewPlan
from ostinato.llm.kernels.tiled_rows import SplitRoom, TilePlan
from ostinato.llm.models import measuring
from ostinato.llm.models.fused import Fused, sizes_of
from ostinato.llm.models.fused_plans import LIBRARY, LayerPlan, LayerPlans, Product
from ostinato.llm.models.llama import LlamaDecoder
from ostinato.llm.models.measuring import Bench, known, measure_and_keep
from ostinato.llm.models.plan_file import keep_plans, own_file
from ostinato.measure import Spread

FEW = LayerPlan(*(FewPlan(32, 64, 1),) * 4)
TILE = TilePlan(32, 32, 1, 2)


@pytest.fixture
def model(llama_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PagedModel:
    """A tiny llama whose layers are fused, on a machine that has measured nothing."""
    if not triton.knobs.runtime.interpret:
        pytest.skip("kernels are compiled in this process: it has a GPU")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    model = PagedModel.load(llama_folder)
    decoder = decoder_of(model)
    decoder.fused = Fused(
        decoder, LayerPlans((), (LIBRARY,)), SplitRoom.empty(model.device), is_early=False
    )
    return model


def decoder_of(model: PagedModel) -> LlamaDecoder:
    assert isinstance(model.decoder, LlamaDecoder)
    return model.decoder


def bench_of(model: PagedModel) -> Bench:
    fused = decoder_of(model).fused
    assert fused is not None
    return Bench(fused, model.backend, Ticks(), rounds=2, replays=1)


class Ticks:
    """A clock that goes on by a second at every look."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


@torch.inference_mode()
def test_a_step_is_run_and_timed_by_the_clock(model: PagedModel) -> None:
    bench = bench_of(model)
    expected = bench.expected(2)
    assert bench.time(FEW, 2, expected) == Spread(1e6, 0.0, 2)


@torch.inference_mode()
def test_a_plan_that_gives_other_numbers_has_no_time(
    model: PagedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = bench_of(model)
    expected = bench.expected(2)
    assert bench.time(FEW, 2, expected * 1.3) is None
    assert bench.time(FEW, 2, expected * torch.nan) is None


@pytest.mark.parametrize(("layers", "apart"), [(2, 0.02), (32, 0.08)])
def test_what_rounding_does_in_many_layers_is_not_wrong(layers: int, apart: float) -> None:
    expected = torch.ones(4, 16)
    assert measuring._is_near(expected * (1 + apart), expected, layers)
    assert not measuring._is_near(expected * (1 + 2 * apart), expected, layers)
    assert not measuring._is_near(expected * torch.nan, expected, layers)


def cheapest_is_few(monkeypatch: pytest.MonkeyPatch) -> list[tuple[LayerPlan, int]]:
    """Let every product be the faster the fewer it multiplies by the library; return what ran."""
    ran: list[tuple[LayerPlan, int]] = []
    real = Bench.time
    once = {"rounds": 1, "replays": 1}

    def timed(bench: Bench, plan: LayerPlan, tokens: int, expected: torch.Tensor) -> Spread | None:
        ran.append((plan, tokens))
        if real(replace(bench, **once), plan, tokens, expected) is None:
            return None
        by_library = [plan.qkv, plan.out, plan.gate_up, plan.down].count(None)
        return Spread(100.0 + 10 * by_library, 0.0, 5)

    monkeypatch.setattr(Bench, "time", timed)
    monkeypatch.setattr(measuring, "candidates", lambda product, tokens, **_: iter((TILE,)))
    return ran


@pytest.mark.slow
def test_the_fastest_is_kept_for_the_next_engine_and_not_measured_again(
    model: PagedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = cheapest_is_few(monkeypatch)
    decoder, told = decoder_of(model), []

    def measured(*, again: bool = False) -> LayerPlans:
        return measure_and_keep(
            decoder,
            model.backend,
            is_over=lambda: False,
            tell=told.append,
            again=again,
            tokens=(2,),
        )

    plans = measured()
    assert plans.fit(2) == LayerPlan(TILE, TILE, TILE, TILE)
    assert (plans.fit(1), plans.fit(3), plans.measured) == (LIBRARY, LIBRARY, (2,))
    assert told == ["2 tokens"]
    before = len(ran)
    assert measured() == plans
    assert len(ran) == before
    measured(again=True)
    assert len(ran) > before

    decoder.choose_plans()
    assert decoder.fused is not None
    assert decoder.fused.plans == plans
    assert decoder.decode_path.why.startswith("plans measured on this machine: up to 1 tokens")


def test_codes_are_tried_as_codes(llama_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not triton.knobs.runtime.interpret:
        pytest.skip("kernels are compiled in this process: it has a GPU")
    asked: list[int] = []

    def candidates(product: Product, tokens: int, *, number_bytes: int) -> Iterator[TilePlan]:
        asked.append(number_bytes)
        return iter(())

    monkeypatch.setattr(measuring, "candidates", candidates)
    for quantize, width in (("int8", 1), ("none", 4)):
        asked.clear()
        model = PagedModel.load(llama_folder, quantize=quantize)
        decoder = decoder_of(model)
        room = SplitRoom.empty(model.device)
        decoder.fused = Fused(decoder, LayerPlans((), (LIBRARY,)), room, is_early=False)
        monkeypatch.setattr(Bench, "expected", lambda *_: torch.zeros(0))
        monkeypatch.setattr(Bench, "time", lambda *_: Spread(1.0, 0.0, 1))
        assert bench_of(model).best(1, lambda: False) == LIBRARY
        assert asked == [width] * 4


@pytest.mark.slow
def test_what_time_cut_short_is_gone_on_with(
    model: PagedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    cheapest_is_few(monkeypatch)
    decoder = decoder_of(model)
    looks = iter((False,) * 5)  # before the first count, and before each trial for it

    def cut() -> bool:
        return next(looks, True)

    def measured(is_over: object) -> LayerPlans:
        return measure_and_keep(
            decoder,
            model.backend,
            is_over=is_over,  # type: ignore[arg-type]
            tell=lambda _: None,
            tokens=(1, 2),
        )

    first = measured(cut)
    assert first.measured == (1,)
    assert known(decoder) == first
    assert measured(lambda: False).measured == (1, 2)


def test_plans_that_do_not_fit_the_layers_are_not_taken(
    model: PagedModel, caplog: pytest.LogCaptureFixture
) -> None:
    decoder = decoder_of(model)
    own, _ = measuring._keys(decoder)
    parts = TilePlan(16, 64, 1, 2, splits=8)
    assert not parts.fits(sizes_of(decoder.config).out.inputs)
    keep_plans(own_file(), own, LayerPlans((), (LayerPlan(None, parts, None, None),)))
    assert known(decoder) is None
    assert "other layers" in caplog.text


def test_plans_are_kept_by_chip_driver_versions_type_and_sizes(model: PagedModel) -> None:
    own, packaged = measuring._keys(decoder_of(model))
    assert packaged == "cpu; float32 64x64 pairs, 64x64, 64x128 pairs, 128x64, 2 layers"
    versions = f"driver None; torch {torch.__version__}; triton {triton.__version__}"
    assert own == f"{versions}; {packaged}"
