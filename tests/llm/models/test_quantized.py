"""Weights of one byte: near the ones they stand for, however they got there."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from llm.models.conftest import Family, token_ids
from llm.models.test_weights import State, build_llama, changed, state_of
from llm.paged_model import PagedModel
from ostinato.errors import UsageError
from ostinato.llm.models import build, load_weights, read_config
from ostinato.llm.models.quantized import Codes, QuantizedLinear, quantise

KINDS = {"int8": torch.int8, "fp8": torch.float8_e4m3fn}
HALF_A_STEP = {torch.int8: 0.5 / 127, torch.float8_e4m3fn: 1 / 16}
"""Of the largest of a row; of the number itself, for float8's three bits behind the point."""


def numbers(codes: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return codes.float() * scale[:, None]


@pytest.mark.parametrize("codes", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (64, 80), (33, 257)])
def test_every_weight_is_within_half_a_step_of_its_code(
    codes: torch.dtype, shape: tuple[int, int]
) -> None:
    rows = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    rows *= torch.logspace(-20, 20, shape[0])[:, None]  # channels far apart keep their own scale
    found = numbers(*quantise(rows, codes))
    largest = rows.abs().amax(1, keepdim=True)
    room = largest if codes == torch.int8 else rows.abs() + largest * 2.0**-9 / 448 * 16
    assert ((found - rows).abs() <= room * HALF_A_STEP[codes] * 1.0001).all()
    assert_close(found.abs().amax(1), rows.abs().amax(1))  # the largest keeps its value


@pytest.mark.parametrize("codes", KINDS.values(), ids=KINDS)
def test_a_row_of_zeros_stays_zero(codes: torch.dtype) -> None:
    found, scale = quantise(torch.zeros(2, 8), codes)
    assert (scale == 1).all()
    assert (found.float() == 0).all()


def test_a_matrix_in_pieces_of_rows_is_the_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = torch.randn(11, 6)
    whole, scale = quantise(rows, torch.int8)
    monkeypatch.setattr("ostinato.llm.models.quantized._ROWS_AT_ONCE", 4)
    into = Codes(torch.empty(11, 6, dtype=torch.int8), torch.empty(11))
    into.copy_(rows)
    assert torch.equal(into.codes_OI, whole)
    assert torch.equal(into.scale_O, scale)
    turned = Codes(torch.empty(11, 6, dtype=torch.int8), torch.empty(11)).t()
    assert turned.shape == (6, 11)
    turned.copy_(rows.t().contiguous())
    assert torch.equal(turned.codes_OI, whole)


@pytest.mark.parametrize("quantize", KINDS)
def test_logits_are_those_of_a_checkpoint_of_the_numbers_that_the_codes_stand_for(
    family: Family, quantize: str, tmp_path: Path
) -> None:
    def code(state: State) -> None:
        for name, matrix in state.items():
            if matrix.dim() == 2 and (".layers." in name or ".h." in name):
                turned = ".h." in name  # GPT-2's are stored the other way round
                found = numbers(*quantise(matrix.t() if turned else matrix, KINDS[quantize]))
                state[name] = (found.t() if turned else found).contiguous()

    ids = token_ids(37, 1)
    coded = PagedModel.load(family.folder, quantize=quantize).prefill([(0, 0, ids)])[0]
    plain = PagedModel.load(changed(family.folder, tmp_path, code)).prefill([(0, 0, ids)])[0]
    assert_close(coded, plain, rtol=1e-4, atol=1e-4)
    itself = PagedModel.load(family.folder).prefill([(0, 0, ids)])[0]
    assert 1e-3 < (coded - itself).norm() / itself.norm() < 0.3


@pytest.mark.parametrize("quantize", KINDS)
def test_the_product_is_that_of_the_numbers_that_the_codes_stand_for(
    llama_folder: Path, quantize: str
) -> None:
    decoder = build_llama(llama_folder, quantize=quantize)
    layers = [m for m in decoder.modules() if isinstance(m, QuantizedLinear)]
    assert len(layers) == 4 * decoder.config.layers  # none was left out
    for layer in layers:
        x = torch.randn(5, layer.weight.shape[1])
        expected = x @ numbers(layer.weight, layer.scale).T
        assert_close(layer(x), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("quantize", KINDS)
def test_new_weights_take_the_place_of_the_old_ones(llama_folder: Path, quantize: str) -> None:
    decoder = build_llama(llama_folder, quantize=quantize)
    addresses = [weight.data_ptr() for weight in decoder.parameters()]
    state = {name: weight * 1.5 for name, weight in state_of(llama_folder).items()}
    load_weights(decoder, state)
    assert [weight.data_ptr() for weight in decoder.parameters()] == addresses
    other = build_llama(llama_folder, quantize=quantize)
    load_weights(other, state)
    for mine, theirs in zip(decoder.parameters(), other.parameters(), strict=True):
        assert torch.equal(mine.float(), theirs.float())
    layer = decoder.get_submodule("layers.0.mlp.down")
    assert isinstance(layer, QuantizedLinear)
    codes, scale = quantise(state["model.layers.0.mlp.down_proj.weight"], KINDS[quantize])
    assert torch.equal(layer.weight.float(), codes.float())
    assert torch.equal(layer.scale, scale)


def test_the_matrices_take_a_byte_a_weight_and_the_rest_stays(llama_folder: Path) -> None:
    plain, coded = build_llama(llama_folder), build_llama(llama_folder, quantize="int8")
    products = [m for m in plain.modules() if hasattr(m, "is_invariant") and hasattr(m, "weight")]
    saved = sum(m.weight.nbytes * 3 // 4 - m.weight.shape[0] * 4 for m in products)
    assert plain.bytes - coded.bytes == saved
    assert coded.head().dtype == torch.float32


def test_dummy_weights_are_of_the_size_of_plain_ones(llama_folder: Path) -> None:
    config = read_config(llama_folder)
    options = {"dtype": torch.bfloat16, "device": torch.device("cpu"), "load": "dummy"}
    decoder = build(config, quantize="fp8", **options)
    layer = next(m for m in decoder.modules() if isinstance(m, QuantizedLinear))
    assert numbers(layer.weight, layer.scale).std() == pytest.approx(0.02, rel=0.1)


def test_a_model_on_foreign_code_is_refused_before_anything_is_built(foreign: Family) -> None:
    with pytest.raises(UsageError, match="transformers' code") as refused:
        PagedModel.load(foreign.folder, quantize="int8")
    assert refused.value.code == "OST5310"


def test_codes_are_those_of_torchao() -> None:
    torchao = pytest.importorskip("torchao.quantization", reason="needs torchao")
    linear = torch.nn.Linear(64, 48, bias=False)
    plain = linear.weight.detach().clone()
    torchao.quantize_(linear, torchao.Float8WeightOnlyConfig())
    codes, scale = quantise(plain, torch.float8_e4m3fn)
    assert torch.equal(linear.weight.qdata.float(), codes.float())
    assert_close(linear.weight.scale.flatten(), scale)

    linear.weight = torch.nn.Parameter(plain.clone())
    torchao.quantize_(linear, torchao.Int8WeightOnlyConfig(version=2))
    codes, _ = quantise(plain, torch.int8)
    # Its steps are of 127.5, so that -128 is in use, and ours of 127, with zero in the middle.
    assert (linear.weight.qdata.int() - codes.int()).abs().max() <= 1
