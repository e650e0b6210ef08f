"""Families on a GPU: the logits of transformers, in float32 and in bfloat16, also replayed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from llm.models.conftest import Family, token_ids
from llm.models.tiny_folders import FAMILIES, FOREIGN, write
from llm.paged_model import DecodeStep, PagedModel
from ostinato import Outcome, Reason, graphed
from ostinato.llm.models import build, read_config
from ostinato.llm.models.decoder import Decoder

pytestmark = [pytest.mark.gpu]

PROMPT, WHOLE = 30, 44


@pytest.fixture(scope="module", params=[*FAMILIES, *FOREIGN])
def any_family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Family:
    folder = tmp_path_factory.mktemp("gpu") / request.param
    return Family(request.param, folder, write(request.param, folder))


def load(folder: Path, dtype: torch.dtype) -> Decoder:
    return build(read_config(folder), dtype=dtype, device=torch.device("cuda:0"), folder=folder)


@torch.inference_mode()
def replayed_logits(decoder: Decoder, ids: list[int]) -> Tensor:
    """Prefill in two chunks, and decode the rest by one recorded step.

    torch multiplies experts in float32 with sizes that it copies to the host, which no graph can
    hold: such a model runs eagerly, and the report says so.
    """
    model = PagedModel(decoder)
    first = model.prefill([(0, 0, ids[:11])])[0]
    second = model.prefill([(9, 0, ids[:5]), (0, 11, ids[11:PROMPT])])[1]
    fixed = DecodeStep(model, [None] * 3, pages_wide=3)
    step = graphed(fixed, backend="cuda", outputs="owned", admit_after=1)
    steps = []
    for at in range(PROMPT, WHOLE):
        now = DecodeStep(model, [None, (0, at, ids[at]), None], pages_wide=3)
        for name in ("tokens_B", "positions_B", "lengths_B", "pages_BP"):
            getattr(fixed, name).copy_(getattr(now, name))
        steps.append(step()[1].clone())
    assert step.last is not None
    if decoder.config.architecture == "qwen3_moe" and found_dtype(decoder) == torch.float32:
        assert step.last.reason is Reason.HOST_COPY
    else:
        assert step.last.outcome is Outcome.REPLAYED, step.report().reasons
        assert step.report().replays >= WHOLE - PROMPT - 3
    step.close()
    return torch.cat((first, second, torch.stack(steps))).float().cpu()


def found_dtype(decoder: Decoder) -> torch.dtype:
    return next(decoder.parameters()).dtype


def apart(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


def test_float32_gives_the_logits_of_transformers(any_family: Family) -> None:
    ids = token_ids(WHOLE, 1)
    found = replayed_logits(load(any_family.folder, torch.float32), ids)
    assert apart(found, any_family.logits(ids)) < 1e-4


@torch.inference_mode()
def test_bfloat16_is_as_close_to_the_exact_logits_as_transformers_in_bfloat16(
    any_family: Family,
) -> None:
    ids = token_ids(WHOLE, 2)
    theirs = type(any_family.theirs).from_pretrained(any_family.folder, dtype=torch.bfloat16)
    # The weights as bfloat16 has them, computed with exactly.
    exact = theirs.float()(torch.tensor([ids])).logits[0]
    rounded = theirs.bfloat16().cuda()(torch.tensor([ids]).cuda()).logits[0].float().cpu()
    found = replayed_logits(load(any_family.folder, torch.bfloat16), ids)
    assert apart(found, exact) < 1.5 * apart(rounded, exact) + 0.005


class Kernels(TorchDispatchMode):
    """Counts operations that run something on the device."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN204
        if not func.is_view and func.overloadpacket.__name__ not in ("_unsafe_view", "empty_like"):
            self.names.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


@torch.no_grad()  # in inference mode some operations are shown whole
def test_a_layer_has_four_products_and_eleven_small_operations_around_attention(
    tmp_path: Path,
) -> None:
    write("llama", tmp_path / "llama")
    decoder = load(tmp_path / "llama", torch.bfloat16)
    ids = torch.arange(4, device="cuda:0")
    counts = []
    for layers in (2, 1):
        decoder.layers = decoder.layers[:layers]
        with Kernels() as kernels:
            decoder.decode(ids, ids, ids, lambda _, q, k, v, slots: torch.empty_like(q))
        counts.append(kernels.names)
    layer = list(counts[0])
    for name in counts[1]:
        layer.remove(name)
    assert sorted(layer) == sorted(
        ["_fused_rms_norm"] * 2
        + ["mm"] * 4
        + ["roll", "mul", "mul", "add", "_to_copy"]
        + ["add"] * 2
        + ["silu", "mul"]
    )
