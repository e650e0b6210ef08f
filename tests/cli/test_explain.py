"""`ostinato explain`: one page, all of them, or a folder of them."""

import subprocess
import sys
from pathlib import Path

import pytest

from ostinato import cli, explain


def run(*words: str | Path) -> None:
    with pytest.raises(SystemExit) as exit_:
        cli.main(["explain", *map(str, words)])
    assert exit_.value.code == 0


def test_a_word_prints_its_page(capsys: pytest.CaptureFixture[str]) -> None:
    run("host_sync")
    assert capsys.readouterr().out == explain.find("host-sync").text + "\n"


def test_no_word_lists_every_page_with_its_title(capsys: pytest.CaptureFixture[str]) -> None:
    run()
    shown = capsys.readouterr().out
    for page in explain.pages():
        assert f"{page.word} " in shown
        assert page.title in shown


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
@pytest.mark.parametrize("words", ["explain", "explain host-sync", "explain --write pages"])
def test_a_stream_that_is_closed_is_no_error(words: str, closed: str, tmp_path: Path) -> None:
    command = f"'{sys.executable}' -m ostinato.cli {words} {closed}"
    shown = subprocess.run(
        command, shell=True, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (shown.returncode, shown.stderr) == (0, "")
    assert bool(shown.stdout) is closed.startswith("2")


def test_pages_are_written_into_a_folder_and_what_is_stale_there_goes(tmp_path: Path) -> None:
    folder = tmp_path / "a folder" / "findings"
    run("--write", folder)
    stale = folder / "gone-reason.md"
    stale.write_text(explain.findings()["host-sync.md"], encoding="utf-8")
    run("--write", folder)
    written = {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}
    assert written == explain.findings()


def test_a_file_that_somebody_else_wrote_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine, notes = tmp_path / "README.md", tmp_path / "notes.md"
    mine.write_text("# mine", encoding="utf-8")
    notes.write_text("# notes", encoding="utf-8")
    with pytest.raises(SystemExit) as exit_:
        cli.main(["explain", "--write", str(tmp_path)])
    assert exit_.value.code == 2
    assert "OST4002" in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {"README.md", "notes.md"}
    mine.unlink()
    run("--write", tmp_path)
    assert notes.read_text(encoding="utf-8") == "# notes"
