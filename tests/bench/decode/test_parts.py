"""The parts of a step: named by their place, timed without their waiting, beside their floors."""

from __future__ import annotations

import pytest

from ostinato.bench.decode.kernels import Ran
from ostinato.bench.decode.models import MODELS
from ostinato.bench.decode.parts import Part, Rates, StepSizes, parts_of, with_floors
from ostinato.bench.decode.rows import OURS, DecodeResult, DecodeRow
from ostinato.bench.decode.tables import as_text
from ostinato.llm.models import DecoderConfig

OURS_ALL = ("_qkv", "_decode_few", "_product_add", "_gate_up", "_product_add")
LIBRARY = (
    "_norm",
    "nvjet_sm90_tst_96x64_bz",
    "_turn",
    "_decode",
    "nvjet_sm90_tst_64x64_badd",
    "_norm",
    "nvjet_sm90_tst_256x128_bz",
    "_gate",
    "nvjet_sm90_tst_128x128_splitK",
    "void cublasLt::splitKreduce_kernel<32>",
)


def in_turn(*names: str) -> list[Ran]:
    """What ran one after the other, for two microseconds each."""
    return [Ran(name, at * 2.0, at * 2.0 + 2.0) for at, name in enumerate(names)]


def counted(parts: tuple[Part, ...]) -> dict[str, tuple[float, float]]:
    return {part.name: (part.per_step, part.us) for part in parts}


def test_products_are_named_by_their_place_in_a_layer() -> None:
    step = in_turn("_begin", *OURS_ALL, *OURS_ALL, "_norm", "_head", "_settle")
    assert counted(parts_of([step], 2)) == {
        "qkv": (2, 4),
        "attention": (2, 4),
        "out": (2, 4),
        "gate and up": (2, 4),
        "down": (2, 4),
        "norms": (1, 2),
        "head": (1, 2),
        "the rest": (2, 4),
    }


def test_the_library_s_products_are_too_with_what_they_run_behind_themselves() -> None:
    found = counted(parts_of([in_turn(*LIBRARY, "nvjet_head", "_logits")], 1))
    assert found["down"] == (2, 4)
    assert found["out"] == (1, 2)
    assert found["turn and cache"] == found["gate"] == found["head"] == (1, 2)
    assert found["norms"] == (2, 4)
    assert found["the rest"] == (1, 2)


def test_what_waits_for_the_kernel_ahead_is_counted_from_its_end() -> None:
    step = [
        Ran("_qkv", 0.0, 10.0),
        Ran("_decode_few", 1.0, 12.0),
        Ran("_product_add", 2.0, 15.0),
        Ran("_gate_up", 14.0, 20.0),
        Ran("_product_add", 15.0, 21.0),
        Ran("_head", 22.0, 30.0),
    ]
    found = counted(parts_of([step], 1))
    assert found["attention"] == (1, 2)
    assert found["out"] == (1, 3)
    assert found["head"] == (1, 9)  # the microsecond in which nothing ran is its own
    assert sum(us for _, us in found.values()) == 30


def test_steps_are_averaged_and_those_of_which_a_kernel_was_lost_do_not_count() -> None:
    whole, lost = in_turn(*OURS_ALL, "_head"), in_turn(*OURS_ALL[1:], "_head")
    longer = [Ran(each.name, 2 * each.began_us, 2 * each.ended_us) for each in whole]
    assert counted(parts_of([whole, lost, longer], 1))["down"] == (1, 3)
    without_attention = [each for each in whole if each.name != "_decode_few"]
    assert parts_of([lost, without_attention], 1) == ()
    assert parts_of([], 1) == ()


def sizes(model: str, weight_bytes: int = 2) -> StepSizes:
    return StepSizes.of(
        DecoderConfig.from_dict(MODELS[model]), weight_bytes=weight_bytes, cached=192
    )


@pytest.mark.parametrize(("model", "weights"), [("llama3-8b", 15.01e9), ("llama3.2-1b", 2.471e9)])
def test_the_parts_of_one_row_move_the_model_s_weights(model: str, weights: float) -> None:
    parts = ("qkv", "out", "gate and up", "down", "head")
    assert sum(sizes(model).moved(each, 1, 1) for each in parts) == pytest.approx(weights, rel=2e-3)


def test_codes_move_half_of_the_bytes_but_for_the_head() -> None:
    plain, codes = sizes("llama3-8b"), sizes("llama3-8b", weight_bytes=1)
    assert codes.moved("down", 1, 32) == pytest.approx(plain.moved("down", 1, 32) / 2, rel=1e-2)
    assert codes.moved("head", 1, 1) == plain.moved("head", 1, 1)


def test_keys_and_values_are_read_once_for_each_row() -> None:
    # 32 layers x 8 heads x 128 numbers x 2 x 2 bytes = 131 kB for a token.
    assert sizes("llama3-8b").moved("attention", 256, 32) == pytest.approx(
        256 * 192 * 131072, rel=0.05
    )


def test_a_floor_is_of_bytes_with_few_rows_and_of_operations_with_many() -> None:
    part, rates = Part("gate and up", 32, 9e3), Rates(4.5, 750.0)
    few, many = (with_floors([part], sizes("llama3-8b"), rows, rates)[0] for rows in (1, 256))
    assert few.floor_us == pytest.approx(few.moved / 4.5e6)
    operations = 2 * 256 * 32 * 2 * 14336 * 4096
    assert many.floor_us == pytest.approx(operations / 750e6)


def test_what_has_no_floor_is_left_without() -> None:
    rest, head = Part("the rest", 3, 8.0), Part("head", 1, 130.0)
    assert with_floors([rest], sizes("llama3.2-1b"), 1, Rates(4.5, 750.0)) == (rest,)
    assert with_floors([head], sizes("llama3.2-1b"), 1, Rates()) == (head,)


def test_the_table_says_what_is_lost() -> None:
    parts = (Part("attention", 32, 500.0, 64e6, 100.0), Part("the rest", 5, 20.0))
    shown = as_text(DecodeResult({}, rows=(DecodeRow(OURS, "llama3-8b", 32, parts=parts),)))
    assert "batch 32: where a step of 520 us goes" in shown
    line = next(each for each in shown.splitlines() if each.startswith("attention"))
    assert line.split() == ["attention", "32", "500.0", "64.0", "100.0", "400.0"]
    rest = next(each for each in shown.splitlines() if each.startswith("the rest"))
    assert rest.split() == ["the", "rest", "5", "20.0", "-", "-", "20.0"]


def test_a_wait_for_the_next_launch_is_nobody_s() -> None:
    step = [Ran("copy", 0.0, 1.0), Ran("_begin", 500.0, 502.0), *_later(in_turn(*OURS_ALL), 502.0)]
    found = counted(parts_of([[*step, Ran("_head", 512.0, 515.0)]], 1))
    assert found["the rest"] == (2, 3)
    assert found["qkv"] == (1, 2)


def test_small_kernels_move_bytes_for_each_time_that_they_run() -> None:
    assert sizes("llama3-8b").moved("norms", 256, 1) == 256 * 4096 * 6
    assert sizes("llama3-8b").moved("norms", 256, 65) == 65 * 256 * 4096 * 6


def _later(ran: list[Ran], us: float) -> list[Ran]:
    return [Ran(each.name, each.began_us + us, each.ended_us + us) for each in ran]
