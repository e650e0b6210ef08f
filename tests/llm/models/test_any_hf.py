"""Any model of transformers: its own code around the engine's attention, or one clear refusal."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch.testing import assert_close

from llm.models.conftest import Family, token_ids
from llm.models.tiny_folders import FOREIGN, write
from llm.paged_model import PAGE_TOKENS, DecodeStep, PagedModel
from ostinato import LLM, Outcome, SamplingParams, graphed
from ostinato.errors import ResourceError, UsageError
from ostinato.llm.attention import SdpaAttention
from ostinato.llm.models import Decoder, DecoderConfig, build, load_weights, read_config

CLOSE = {"rtol": 1e-4, "atol": 1e-4}
CPU = torch.device("cpu")


def build_foreign(folder: Path, **options: Any) -> Decoder:
    return build(read_config(folder), dtype=torch.float32, device=CPU, folder=folder, **options)


def test_packed_chunked_and_decoded_tokens_have_the_logits_of_transformers(
    foreign: Family,
) -> None:
    model = PagedModel.load(foreign.folder)
    assert model.decoder.path == "any_hf"
    assert "none of the engine's own: llama, mistral" in model.decoder.reason
    ids, other = token_ids(61, 1), token_ids(33, 2)
    first = model.prefill([(7, 0, other), (0, 0, ids[:7])])[1]
    second = model.prefill([(0, 7, ids[7:40]), (8, 0, other[:1])])[0]
    steps = [model.decode([None, (0, at, ids[at]), (7, 33, 5)])[1] for at in range(40, 61)]
    assert_close(torch.cat((first, second, torch.stack(steps))), foreign.logits(ids), **CLOSE)


def test_a_row_has_the_same_bits_in_any_company_unless_the_decoder_says_otherwise(
    foreign: Family,
) -> None:
    alone, crowd = PagedModel.load(foreign.folder), PagedModel.load(foreign.folder)
    assert alone.decoder.is_invariant == (foreign.name != "qwen3-experts")
    if not alone.decoder.is_invariant:
        pytest.skip("its experts are not invariant, and it says so")
    ids, long = token_ids(40, 6), token_ids(200, 7)
    whole = alone.prefill([(0, 0, ids[:39])])[0]
    first = crowd.prefill([(1, 0, long), (0, 0, ids[:7])], tokens_wide=256)[1]
    second = crowd.prefill([(0, 7, ids[7:39])])[0]
    assert torch.equal(torch.cat((first, second)), whole)
    single = alone.decode([(0, 39, ids[39])])[0]
    company = [(1, 200, 5), None, (0, 39, ids[39]), *[None] * 30]
    assert torch.equal(crowd.decode(company, pages_wide=25)[2], single)


@torch.inference_mode()
def test_a_recorded_step_replays_right_at_every_position(foreign: Family) -> None:
    model = PagedModel.load(foreign.folder)
    ids = token_ids(45, 3)
    model.prefill([(0, 0, ids[: PAGE_TOKENS - 2])])
    expected = foreign.logits(ids)
    fixed = DecodeStep(model, [None] * 3, pages_wide=3)
    step = graphed(fixed, backend="tape", outputs="owned", admit_after=1)
    for at in range(PAGE_TOKENS - 2, 45):
        now = DecodeStep(model, [None, (0, at, ids[at]), None], pages_wide=3)
        for name in ("tokens_B", "positions_B", "lengths_B", "pages_BP"):
            getattr(fixed, name).copy_(getattr(now, name))
        assert_close(step()[1], expected[at], **CLOSE)
    assert step.last is not None
    assert step.last.outcome is Outcome.REPLAYED
    assert step.report().replays >= 25


def test_new_weights_land_in_place_and_a_refused_swap_changes_nothing(foreign: Family) -> None:
    decoder = build_foreign(foreign.folder)
    places = [weight.data_ptr() for weight in decoder.parameters()]
    state = {name: value * 1.25 for name, value in foreign.theirs.state_dict().items()}
    load_weights(decoder, state)
    assert [weight.data_ptr() for weight in decoder.parameters()] == places
    swapped = decoder.destinations()
    assert all(torch.equal(swapped[name], state[name]) for name in swapped)
    load_weights(decoder, foreign.folder)
    first = {name: value.clone() for name, value in decoder.destinations().items()}
    theirs = foreign.theirs.state_dict()
    assert all(torch.equal(value, theirs[name]) for name, value in first.items())
    lost = next(name for name in first if "layers.1" in name)
    with pytest.raises(UsageError, match="lacks") as caught:
        load_weights(decoder, {name: value for name, value in state.items() if name != lost})
    assert caught.value.code == "OST5203"
    state[lost] = torch.ones(3)
    with pytest.raises(UsageError, match=r"\(3,\)") as caught:
        load_weights(decoder, state)
    assert caught.value.code == "OST5204"
    assert all(torch.equal(value, first[n]) for n, value in decoder.destinations().items())


def test_memory_for_a_second_copy_is_asked_for_before_experts_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("qwen3-experts", tmp_path / "experts")
    monkeypatch.setattr("ostinato.llm.models.any_hf_decoder.available_bytes", lambda: 1 << 10)
    with pytest.raises(ResourceError, match=r"reading the checkpoint .* 1\.0 KiB are free") as e:
        build_foreign(tmp_path / "experts")
    assert e.value.code == "OST2025"


def test_experts_cannot_be_made_invariant_and_a_demand_for_it_is_refused(tmp_path: Path) -> None:
    write("qwen3-experts", tmp_path / "experts")
    with pytest.raises(UsageError, match="qwen3_moe") as caught:
        build_foreign(tmp_path / "experts", is_invariant=True)
    assert caught.value.code == "OST5210"


def test_a_model_that_would_answer_otherwise_than_in_transformers_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("phi3", tmp_path / "phi3")
    original = SdpaAttention.prefill
    monkeypatch.setattr(SdpaAttention, "prefill", lambda *given: original(*given) * 1.1)
    with pytest.raises(UsageError, match=r"this phi3 gives other logits .*% apart") as caught:
        build_foreign(tmp_path / "phi3")
    assert caught.value.code == "OST5209"


TINY: dict[str, Any] = FOREIGN["olmo2"]().to_dict()
SOFTCAPPED = transformers.Gemma2Config(num_hidden_layers=2).to_dict()
SINKS = transformers.GptOssConfig(num_hidden_layers=2).to_dict()
MIXED = transformers.Lfm2Config(num_hidden_layers=2, full_attn_idxs=[1]).to_dict()
DYNAMIC = {"rope_type": "dynamic", "factor": 2.0}
LONG = {"rope_type": "longrope", "short_factor": [1.0] * 8, "long_factor": [2.0] * 8}


@pytest.mark.parametrize(
    ("config", "code", "words"),
    [
        (SOFTCAPPED, "OST5207", "layer 0 asks for softcap"),
        (SINKS, "OST5207", "layer 0 asks for s_aux"),
        (transformers.MambaConfig(num_hidden_layers=1).to_dict(), "OST5207", "never call it"),
        (transformers.BloomConfig(n_layer=1).to_dict(), "OST5207", "never call it"),
        (transformers.FalconConfig(num_hidden_layers=1).to_dict(), "OST5207", "does not go"),
        (MIXED, "OST5207", "it stopped with"),
        (transformers.BertConfig(num_hidden_layers=1).to_dict(), "OST5207", "come later"),
        (transformers.T5Config().to_dict(), "OST5201", "'t5'"),
        (transformers.ViTConfig().to_dict(), "OST5201", "'vit'"),
        (TINY | {"rope_parameters": LONG}, "OST5202", "'longrope' follows the length"),
        (
            TINY | {"rope_parameters": DYNAMIC},
            "OST5202",
            "'dynamic' follows",
        ),
        (TINY | {"quantization_config": {"bits": 4}}, "OST5202", "quantised"),
        (TINY | {"num_hidden_layers": "two"}, "OST5202", "transformers does not take it"),
    ],
)
def test_what_the_engines_attention_cannot_stand_in_for_is_refused_before_weights_are_read(
    config: dict[str, Any], code: str, words: str
) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        DecoderConfig.from_dict(json.loads(json.dumps(config)))
    assert caught.value.code == code


def test_dummy_weights_need_no_folder(foreign: Family) -> None:
    config = read_config(foreign.folder)
    decoder = build(config, dtype=torch.float32, device=CPU, load="dummy")
    logits = PagedModel(decoder).prefill([(0, 0, [3, 4, 5])])[0]
    assert torch.isfinite(logits).all()
    assert logits.std() > 0


def test_a_family_of_the_engines_own_does_not_load_transformers(llama_folder: Path) -> None:
    code = (
        "import sys, torch; from ostinato.llm.models import build, read_config;"
        f"folder = {str(llama_folder)!r};"
        "d = build(read_config(folder), dtype=torch.float32, device=torch.device('cpu'),"
        " folder=folder); assert (d.path, d.reason) == ('native', '');"
        "assert 'transformers' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_transformers_a_foreign_model_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(UsageError, match=r"not installed[\s\S]*pip install") as caught:
        DecoderConfig.from_dict(TINY)
    assert caught.value.code == "OST5208"


@pytest.mark.parametrize("name", ["gemma3", "qwen3-experts"])
def test_the_engine_gives_transformers_tokens_and_records_its_steps(
    name: str, tmp_path: Path
) -> None:
    theirs = write(name, tmp_path / name)
    prompts = [token_ids(30, 1), token_ids(3, 2), token_ids(11, 3)]
    params = SamplingParams(max_tokens=24, temperature=0, ignore_eos=True)
    options: dict[str, Any] = {"max_batch": 4, "max_model_len": 64, "prefill_tokens": 13}
    options["backend"] = "tape"
    with LLM(tmp_path / name, device="cpu", dtype="float32", **options) as llm:
        outputs = llm.generate(prompts, params)
        assert llm.engine.report().reasons == {}
    for prompt, output in zip(prompts, outputs, strict=True):
        whole = theirs.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
            max_new_tokens=24,
            do_sample=False,
            eos_token_id=None,
        )
        assert list(output.token_ids) == whole[0, len(prompt) :].tolist()
