"""What is fused has the bits of the plain calls; what has others is left out, and it says so."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from hf.decode_layer import CALLS_SAVED, DecodeLayer
from ostinato.hf.fusing import Fusion, settle

kernels = pytest.importorskip("ostinato.hf.fusing.kernels")
CPU = torch.device("cpu")
SIZES: list[dict[str, int]] = [
    {"rows": 1, "heads": 9, "kv_heads": 3, "size": 64, "hidden": 576, "inner": 1536},
    {"rows": 3, "heads": 5, "kv_heads": 1, "size": 2, "hidden": 7, "inner": 33},
    {"rows": 2, "heads": 4, "kv_heads": 4, "size": 80, "hidden": 1000, "inner": 1},
    {"rows": 1, "heads": 3, "kv_heads": 3, "size": 96, "hidden": 1, "inner": 4097},
    {"rows": 5, "heads": 8, "kv_heads": 2, "size": 6, "hidden": 2050, "inner": 1025},
]


@pytest.fixture(autouse=True)
def _nothing_is_recorded_for_gradients() -> Any:
    with torch.no_grad():
        yield


def tried(run: Callable[[], Tensor], device: torch.device = CPU) -> Fusion:
    return settle(run, device)


@pytest.mark.skipif(torch.cuda.is_available(), reason="kernels are compiled where there is a GPU")
@pytest.mark.parametrize("sizes", SIZES, ids=lambda sizes: f"{sizes['hidden']}")
def test_norms_and_turns_have_the_bits_of_the_plain_calls(sizes: dict[str, int]) -> None:
    fusion = tried(DecodeLayer(**sizes))
    # Triton's interpreter has an exponential of its own.
    assert fusion.refused.keys() <= {"gate"}, fusion
    assert fusion.places.items() >= {"norm": 1, "rotary": 1}.items()


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", CALLS_SAVED, ids=str)
@pytest.mark.parametrize("sizes", SIZES, ids=lambda sizes: f"{sizes['hidden']}")
def test_on_a_gpu_all_of_it_has_the_bits_of_the_plain_calls(
    dtype: torch.dtype, sizes: dict[str, int]
) -> None:
    fusion = tried(DecodeLayer(dtype, "cuda", **sizes), torch.device("cuda"))
    assert fusion.refused == {}
    assert fusion.places == {"norm": 1, "rotary": 1, "gate": 1}
    assert fusion.calls_saved == CALLS_SAVED[dtype]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", CALLS_SAVED, ids=str)
def test_on_a_gpu_the_ends_of_the_numbers_are_alike_too(dtype: torch.dtype) -> None:
    layer = DecodeLayer(dtype, "cuda", inner=4096)
    limits = torch.finfo(dtype)
    ends = [0.0, -0.0, limits.tiny, -limits.tiny, limits.smallest_normal / 4, 87.3, -87.4, -104.0]
    ends += [limits.max, -limits.max, torch.inf, 1.0, -1.0, limits.eps, 88.8, -0.5]
    layer.gate = torch.tensor(ends, device="cuda").to(dtype).repeat(2, 1, 256)
    assert tried(layer, torch.device("cuda")).refused == {}


def test_a_kernel_with_other_bits_anywhere_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = DecodeLayer()
    wanted = layer()
    start = kernels.start

    def err(name: str, tensors: Mapping[str, Tensor], numbers: Mapping[str, float]) -> None:
        start(name, tensors, numbers)
        if name == "scale":
            last = tensors["out"].view(-1)[-1:]
            last.copy_(torch.nextafter(last, last + 1))

    monkeypatch.setattr(kernels, "start", err)
    fusion = tried(layer)
    assert fusion.refused["norm"].startswith("1 of 48 numbers have other bits at call ")
    assert "norm" not in fusion.places
    assert fusion.places["rotary"] == 1
    assert torch.equal(layer(), wanted)


def test_a_cache_that_is_written_otherwise_is_put_right(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = DecodeLayer()
    layer()
    keys, values = layer.keys.clone(), layer.values.clone()

    def forget(name: str, tensors: Mapping[str, Tensor], numbers: Mapping[str, float]) -> None:
        """Launch nothing."""

    monkeypatch.setattr(kernels, "start", forget)
    fusion = tried(layer)
    assert fusion.plan is None
    assert fusion.refused.keys() == {"norm", "rotary", "gate"}
    assert torch.equal(layer.keys, keys)
    assert torch.equal(layer.values, values)


def test_what_goes_wrong_only_together_is_seen_too(monkeypatch: pytest.MonkeyPatch) -> None:
    start, calls = kernels.start, []

    def tire(name: str, tensors: Mapping[str, Tensor], numbers: Mapping[str, float]) -> None:
        calls.append(name)
        start(name, tensors, numbers)
        if name == "square" and calls.count(name) > 1:
            tensors["total"].add_(1)

    monkeypatch.setattr(kernels, "start", tire)
    fusion = tried(DecodeLayer())
    assert fusion.plan is None
    assert str(fusion) == "nothing: together they give other bits than the plain step"


def test_a_compiler_that_fails_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("no PTX\nfor this GPU")

    monkeypatch.setattr(kernels, "start", fail)
    assert tried(DecodeLayer()).refused == {"all": "RuntimeError: no PTX"}


@pytest.mark.parametrize("column", [-1, 11, 2**40])
def test_a_column_that_is_not_there_is_not_written(column: int) -> None:
    layer = DecodeLayer()
    names = ("q", "k", "v", "cos", "sin", "keys", "values")
    tensors = {name: getattr(layer, name) for name in names}
    tensors |= {name: tensors[name].unsqueeze(1) for name in ("cos", "sin")}
    before = layer.keys.clone(), layer.values.clone()
    queries = torch.empty_like(layer.q)
    tensors |= {"column": torch.tensor([column]), "q_out": queries}
    kernels.start("turn_and_keep", tensors, {})
    assert torch.equal(queries, layer.turned(layer.q))
    assert torch.equal(layer.keys, before[0])
    assert torch.equal(layer.values, before[1])


def test_a_double_is_no_number_of_theirs() -> None:
    fusion = tried(DecodeLayer(torch.float64))
    assert fusion.plan is None
    assert set(fusion.refused.values()) == {"the step has no such calls"}


@pytest.mark.parametrize("how", ["not interpreted", "no triton"])
def test_on_a_cpu_it_takes_the_interpreter(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import triton

    if how == "no triton":
        monkeypatch.setattr("ostinato.hf.fusing.settling.find_spec", lambda _: None)
    if how == "not interpreted":
        monkeypatch.setattr(triton.knobs.runtime, "interpret", False)
    fusion = settle(DecodeLayer(), CPU)
    assert fusion.plan is None
    assert (
        fusion.refused["all"]
        == {
            "not interpreted": "on a CPU it takes TRITON_INTERPRET=1",
            "no triton": "triton is not installed",
        }[how]
    )
