"""`ostinato generate`: one prompt streamed, a file answered, and gone on from after a kill."""

import errno
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from checkpoints.tiny_models import write_tiny_llama
from ostinato import cli
from ostinato.cli.answer_file import AnswerFile
from ostinato.errors import UsageError

Shown = tuple[int, str, str]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("generate"))


def run(capfd: pytest.CaptureFixture[str], *words: object) -> Shown:
    with pytest.raises(SystemExit) as exit_:
        cli.main(["generate", *map(str, words)])
    shown = capfd.readouterr()
    return int(exit_.value.code or 0), shown.out, shown.err


def prompts(place: Path, *lines: dict[str, Any]) -> Path:
    file = place / "prompts.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def answers(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.read_text().splitlines()]


def on(folder: Path) -> tuple[object, ...]:
    return "--model", folder, "--device", "cpu", "--temperature", 0


def test_the_streamed_text_is_that_of_the_json(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    asked = (*on(folder), "--prompt", "a fox", "--max-tokens", 12)
    code, text, err = run(capfd, *asked)
    assert (code, err) == (0, "")
    code, out, _ = run(capfd, *asked, "--json")
    assert code == 0
    assert out.count("\n") == 1
    said = json.loads(out)
    assert said["text"] + "\n" == text
    assert len(said["token_ids"]) == 12
    assert said["finish_reason"] == "length"
    assert said["metrics"]["ttft_s"] > 0


def test_several_answers_are_numbered(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = ("--model", folder, "--device", "cpu", "--prompt", "a", "--max-tokens", 3, "--n", 2)
    code, text, _ = run(capfd, *words, "--seed", 1)
    assert code == 0
    assert text.startswith("[0] ")
    assert "\n[1] " in text


def test_raw_sends_the_text_without_the_chat_template(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    asked = (*on(folder), "--prompt", "a", "--max-tokens", 1, "--json")
    _, chat, _ = run(capfd, *asked)
    _, raw, _ = run(capfd, *asked, "--raw")
    assert json.loads(raw)["prompt_tokens"] < json.loads(chat)["prompt_tokens"]


def test_a_file_is_answered_line_by_line_and_a_rerun_has_nothing_to_do(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = prompts(
        tmp_path,
        {"prompt": "a", "id": "first"},
        {"prompt": [1, 2, 3], "max_tokens": 2},
        {"messages": [{"role": "user", "content": "b"}]},
    )
    out = tmp_path / "answers.jsonl"
    words = (*on(folder), "--file", file, "--out", out, "--max-tokens", 5)
    code, said, _ = run(capfd, *words)
    assert code == 0
    assert said.startswith("3 of 3 answered, 0 of them before")
    written = answers(out)
    assert [line["line"] for line in written] == [1, 2, 3]
    assert written[0]["id"] == "first"
    assert [len(line["token_ids"]) for line in written] == [5, 2, 5]
    before = out.read_bytes()
    code, said, _ = run(capfd, *words)
    assert code == 0
    assert said.startswith("3 of 3 answered, 3 of them before")
    assert out.read_bytes() == before


def test_answers_of_other_weights_in_the_same_folder_are_not_gone_on_from(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model = shutil.copytree(folder, tmp_path / "model")
    file, out = prompts(tmp_path, {"prompt": "a"}), tmp_path / "answers.jsonl"
    words = (*on(model), "--file", file, "--out", out, "--max-tokens", 2)
    assert run(capfd, *words)[0] == 0
    before = out.read_bytes()
    for shard in model.glob("*.safetensors"):
        weights = load_file(shard)
        save_file({name: -each for name, each in weights.items()}, shard)
    code, _, err = run(capfd, *words)
    assert code == 2
    assert "OST4033" in err
    assert out.read_bytes() == before


def test_a_prompt_that_cannot_be_answered_costs_the_others_nothing_and_is_asked_again(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = prompts(tmp_path, {"prompt": "a"}, {"prompt": [1] * 100_000}, {"prompt": "c"})
    out = tmp_path / "answers.jsonl"
    words = (*on(folder), "--file", file, "--out", out, "--max-tokens", 3)
    for _ in range(2):  # the second time it is asked again, and no other
        code, _, err = run(capfd, *words)
        assert code == 2
        assert "1 of 3 prompts could not be answered; the first is line 2" in err
        assert sorted(line["line"] for line in answers(out)) == [1, 2, 3]
        assert {line["line"] for line in answers(out) if line["error"]} == {2}


def test_a_schema_that_cannot_be_kept_is_told_in_its_line_and_costs_the_others_nothing(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("llguidance")
    file = prompts(
        tmp_path,
        {"prompt": "a"},
        {"prompt": "b", "schema": {"regex": "(("}},
        {"prompt": "c", "schema": {"type": "array", "uniqueItems": True}},
        {"prompt": "d"},
    )
    out = tmp_path / "answers.jsonl"
    words = (*on(folder), "--file", file, "--out", out, "--max-tokens", 3)
    code, _, err = run(capfd, *words)
    assert code == 2
    assert "2 of 4 prompts could not be answered; the first is line 2" in err
    lines = answers(out)
    assert [line["line"] for line in lines] == [1, 2, 3, 4]
    assert [line["error"] and line["error"]["code"] for line in lines] == [
        None, "OST5062", "OST5062", None,
    ]  # fmt: skip
    assert [len(line["token_ids"]) for line in lines] == [3, 0, 0, 3]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ((), "OST4030"),
        (("--prompt", "a", "--file", "p", "--out", "o"), "OST4030"),
        (("--file", "p"), "OST4030"),
        (("--prompt", "a", "--out", "o"), "OST4030"),
        (("--prompt", " "), "OST4011"),
        (("--prompt", "a", "--max-tokens", 0), "OST5001"),
        (("--prompt", "a", "--temperature", -1), "OST5001"),
        (("--file", "missing.jsonl", "--out", "o"), "OST4003"),
        (("--prompt", "a", "--schema", __file__), "OST4035"),
    ],
)
def test_what_cannot_be_asked_is_told_before_a_model_is_loaded(
    words: tuple[object, ...], code: str, capfd: pytest.CaptureFixture[str]
) -> None:
    status, out, err = run(capfd, *words)
    assert (status, out) == (2, "")
    assert err.startswith(f"{code}: ")


def test_two_writers_of_one_file_are_refused(tmp_path: Path) -> None:
    out = tmp_path / "answers.jsonl"
    with AnswerFile(out), pytest.raises(UsageError) as caught, AnswerFile(out):
        pass
    assert caught.value.code == "OST4036"
    with AnswerFile(out):
        pass
    assert list(tmp_path.iterdir()) == []  # the lock goes with its holder


@pytest.mark.parametrize("kind", ["folder", "device", "pipe"])
def test_what_is_no_file_is_not_written_to_or_replaced(kind: str, tmp_path: Path) -> None:
    out = tmp_path / kind
    if kind == "folder":
        out.mkdir()
    elif kind == "pipe":
        os.mkfifo(out)
    else:
        out = Path(os.devnull)
    with pytest.raises(UsageError, match="answers are kept in a file") as caught:
        AnswerFile(out).__enter__()
    assert caught.value.code == "OST4033"
    assert not out.is_file()
    assert not out.with_name(f".{out.name}.lock").exists()


@pytest.mark.parametrize("where", ["/proc/answers.jsonl", "missing/answers.jsonl"])
def test_a_place_that_takes_no_file_is_told_by_the_name_that_was_given(
    where: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / where  # an absolute one stays as it is
    file = prompts(tmp_path, {"prompt": "a"})
    status, _, err = run(capfd, "--model", "nowhere", "--file", file, "--out", out)
    assert status == 2
    assert err.startswith(f"OST4003: {out} cannot be read or written: ")
    assert "its folder exists" in err
    assert ".lock" not in err


def test_an_answers_file_that_cannot_be_replaced_is_told_by_its_own_name(tmp_path: Path) -> None:
    out = tmp_path / "answers.jsonl"
    out.write_text("")
    (tmp_path / "answers.jsonl.part").mkdir()  # where the new one would be written
    with AnswerFile(out) as answers, pytest.raises(OSError, match="Is a directory") as caught:
        answers.keep([])
    assert caught.value.filename == str(out)


def test_a_full_disk_is_told_with_the_file_and_leaves_no_lock(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(io.StringIO):
        def flush(self) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        def close(self) -> None:
            self.flush()

    def keep(answers: AnswerFile, finished: object) -> None:
        answers._open = Full()

    monkeypatch.setattr(AnswerFile, "keep", keep)
    file, out = prompts(tmp_path, {"prompt": "a"}), tmp_path / "answers.jsonl"
    status, _, err = run(capfd, *on(folder), "--file", file, "--out", out, "--max-tokens", 2)
    assert status == 2
    assert f"OST4003: {out} cannot be read or written: No space left on device" in err
    assert [each.name for each in tmp_path.iterdir()] == ["prompts.jsonl"]


@pytest.mark.slow
def test_a_run_that_is_killed_is_gone_on_from(folder: Path, tmp_path: Path) -> None:
    file = prompts(tmp_path, *({"prompt": f"p{i}"} for i in range(60)))
    out = tmp_path / "answers.jsonl"
    words = [*on(folder), "--file", file, "--out", out, "--max-tokens", 40, "--max-batch", 2]
    command = [sys.executable, "-m", "ostinato.cli", "generate", *map(str, words)]
    first = subprocess.Popen(command)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and first.poll() is None:
        if out.exists() and out.read_bytes().count(b"\n") >= 3:
            os.kill(first.pid, signal.SIGKILL)
            break
        time.sleep(0.02)
    assert first.wait(timeout=60) == -signal.SIGKILL
    kept = out.read_bytes().rpartition(b"\n")[0].split(b"\n")
    assert 3 <= len(kept) < 60
    assert subprocess.run(command, check=False, timeout=200).returncode == 0
    lines = out.read_bytes().splitlines()
    assert lines[: len(kept)] == kept
    assert sorted(json.loads(line)["line"] for line in lines) == list(range(1, 61))
