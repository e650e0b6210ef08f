"""Folders: a model loads with its tokenizer, and each way a folder can be wrong has its words."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, BertConfig, BertModel

from checkpoints.written_gguf import TEMPLATE
from ostinato.checkpoints import Checkpoint, load, load_folder, smollm2
from ostinato.checkpoints.folder import dtype_keyword
from ostinato.errors import OstinatoError, UsageError

SHARD = "model-00001-of-00001.safetensors"


def change_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def refusal(folder: Path, code: str, **options: str) -> str:
    with pytest.raises(UsageError) as caught:
        load_folder(folder, device="cpu", **options)
    assert caught.value.code == code
    return str(caught.value)


def test_a_folder_gives_model_tokenizer_and_template(tiny_folder: Path) -> None:
    checkpoint = load(tiny_folder, device="cpu")
    assert isinstance(checkpoint, Checkpoint)
    assert checkpoint.name == "tiny"
    assert checkpoint.chat_template == TEMPLATE
    assert checkpoint.context_tokens == 128
    assert checkpoint.model.dtype == torch.float32
    assert not checkpoint.model.training
    ids = checkpoint.tokenizer("he he", return_tensors="pt").input_ids
    assert checkpoint.model(ids).logits.shape == (1, 2, 260)


def test_the_weights_are_those_of_transformers_own_loading(tiny_folder: Path) -> None:
    ours = load(str(tiny_folder), device="cpu").model.state_dict()
    theirs = AutoModelForCausalLM.from_pretrained(tiny_folder).state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_another_number_type_is_the_rounding_of_the_same_weights(tiny_folder: Path) -> None:
    exact = load_folder(tiny_folder, device="cpu").model
    rounded = load_folder(tiny_folder, device="cpu", dtype="bfloat16").model
    assert rounded.dtype == torch.bfloat16
    assert torch.equal(rounded.lm_head.weight, exact.lm_head.weight.to(torch.bfloat16))


def test_a_model_without_a_template_loads_without_one(tiny_folder: Path) -> None:
    config = json.loads((tiny_folder / "tokenizer_config.json").read_text())
    del config["chat_template"]
    (tiny_folder / "tokenizer_config.json").write_text(json.dumps(config))
    assert load_folder(tiny_folder, device="cpu").chat_template is None


def test_a_template_in_a_file_of_its_own_is_found(tiny_folder: Path) -> None:
    (tiny_folder / "chat_template.jinja").write_text("{{ messages[0].content }}")
    assert load_folder(tiny_folder, device="cpu").chat_template == "{{ messages[0].content }}"


def test_progress_is_told_and_ends_at_one(tiny_folder: Path) -> None:
    told: list[tuple[str, float]] = []
    load_folder(tiny_folder, device="cpu", progress=lambda *what: told.append(what))
    assert told[-1] == ("loading the weights", 1.0)
    assert told[0][0] == "loading the tokenizer"


def test_nothing_is_written_to_the_terminal(
    tiny_folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    load_folder(tiny_folder, device="cpu")
    assert capfd.readouterr() == ("", "")
    assert transformers.utils.logging.is_progress_bar_enabled()


def test_a_folder_named_as_a_known_model_is_reached_by_its_path(
    tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tiny_folder.parent)
    tiny_folder.rename(smollm2.NAME)
    assert load("./smollm2", device="cpu").context_tokens == 128


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    assert f"{tmp_path / 'absent'} does not exist" in refusal(tmp_path / "absent", "OST2020")


def test_a_file_is_no_folder(tiny_folder: Path) -> None:
    assert "is a file, not a folder" in refusal(tiny_folder / SHARD, "OST2020")


def test_a_folder_without_a_config_is_no_model(tmp_path: Path) -> None:
    assert "has no config.json" in refusal(tmp_path, "OST2021")


@pytest.mark.parametrize(
    ("text", "words"),
    [("{", "is not valid JSON"), ("[]", "no model_type"), ("{}", "no model_type")],
)
def test_a_config_that_is_none_is_told(tiny_folder: Path, text: str, words: str) -> None:
    (tiny_folder / "config.json").write_text(text)
    assert words in refusal(tiny_folder, "OST2021")


def test_a_missing_shard_is_told_before_anything_is_loaded(tiny_folder: Path) -> None:
    (tiny_folder / SHARD).unlink()
    assert SHARD in refusal(tiny_folder, "OST2022")


def test_a_shard_cut_short_is_told(tiny_folder: Path) -> None:
    shard = tiny_folder / SHARD
    shard.write_bytes(shard.read_bytes()[:-1])
    assert f"{shard} is corrupt" in refusal(tiny_folder, "OST2023")


def test_an_architecture_that_nobody_knows_is_named(tiny_folder: Path) -> None:
    change_config(tiny_folder, model_type="llama99")
    problem = refusal(tiny_folder, "OST2024")
    assert f"'llama99' of {tiny_folder} is unknown to transformers" in problem


def test_a_model_that_does_not_generate_is_told_apart(tmp_path: Path) -> None:
    config = BertConfig(
        hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8, vocab_size=9
    )
    BertModel(config).save_pretrained(tmp_path)
    change_config(tmp_path, model_type="vit")
    assert "'vit' of" in refusal(tmp_path, "OST2024")
    assert "does not generate text" in refusal(tmp_path, "OST2024")


def test_code_inside_a_folder_is_never_run(tiny_folder: Path, tmp_path: Path) -> None:
    trace = tmp_path / "ran"
    (tiny_folder / "evil.py").write_text(f"open({str(trace)!r}, 'w')")
    evil = {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"}
    change_config(tiny_folder, model_type="evil", auto_map=evil)
    assert "is unknown to" in refusal(tiny_folder, "OST2024")
    assert not trace.exists()


def test_weights_with_a_hole_are_refused_and_not_filled(tiny_folder: Path) -> None:
    tensors = load_file(tiny_folder / SHARD)
    del tensors["model.layers.1.mlp.up_proj.weight"]
    (tiny_folder / "model.safetensors.index.json").unlink()
    (tiny_folder / SHARD).unlink()
    save_file(tensors, tiny_folder / "model.safetensors", metadata={"format": "pt"})
    problem = refusal(tiny_folder, "OST2027")
    assert "lack 1 tensors" in problem
    assert "model.layers.1.mlp.up_proj.weight first" in problem


def test_weights_of_another_shape_are_told_in_the_words_of_transformers(tiny_folder: Path) -> None:
    change_config(tiny_folder, intermediate_size=128)
    assert "transformers cannot load" in refusal(tiny_folder, "OST2028")


def test_a_tokenizer_that_is_broken_is_told(tiny_folder: Path) -> None:
    (tiny_folder / "tokenizer.json").write_text("{")
    assert "has no tokenizer that loads" in refusal(tiny_folder, "OST2021")


def test_a_device_that_is_not_there_is_told_before_anything_is_loaded(tiny_folder: Path) -> None:
    with pytest.raises(UsageError, match="'cuda:99' is not there"):
        load_folder(tiny_folder, device="cuda:99")


def test_too_little_memory_is_told_before_anything_is_loaded(tiny_folder: Path) -> None:
    """In a process of its own: a limit on its memory cannot be taken back."""
    program = (
        "import resource, psutil, torch, transformers\n"
        "from ostinato.checkpoints import load\n"
        "limit = psutil.Process().memory_info().vms + (100 << 20)\n"
        "resource.setrlimit(resource.RLIMIT_AS, (limit, limit))\n"
        "load(__import__('sys').argv[1], device='cpu')\n"
    )
    shown = subprocess.run(
        [sys.executable, "-c", program, str(tiny_folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "OST2025: the model tiny needs about 160." in shown.stderr
    assert "MiB of host memory, and " in shown.stderr


def test_the_keyword_for_the_number_type_is_chosen_by_signature() -> None:
    def older(torch_dtype: object = None) -> None: ...

    assert dtype_keyword(transformers) == "dtype"
    assert dtype_keyword(SimpleNamespace(PretrainedConfig=older)) == "torch_dtype"  # type: ignore[arg-type]


def test_without_transformers_the_remedy_is_the_exact_command(tiny_folder: Path) -> None:
    program = (
        "import sys\n"
        "sys.modules['transformers'] = None\n"
        "from ostinato.checkpoints import load\n"
        "load(sys.argv[1])\n"
    )
    shown = subprocess.run(
        [sys.executable, "-c", program, str(tiny_folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "OST2026: loading a model needs the package transformers" in shown.stderr
    assert "pip install 'ostinato[hf]'" in shown.stderr


def test_every_refusal_can_be_caught_as_one_kind(tmp_path: Path) -> None:
    with pytest.raises(OstinatoError):
        load(tmp_path)
