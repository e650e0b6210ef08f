"""The command line: what it lists, and how it fails."""

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest
import typer

from ostinato import cli
from ostinato.errors import ResourceError

FULL = Path("/dev/full")
Ostinato = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def ostinato() -> Ostinato:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "ostinato.cli", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    return run


def test_help_lists_every_command_with_what_it_does(ostinato: Ostinato) -> None:
    shown = ostinato("--help")
    assert shown.returncode == 0
    for command in cli.COMMANDS:
        assert command.name in shown.stdout
        assert command.summary in shown.stdout


def test_version_is_that_of_the_package(ostinato: Ostinato) -> None:
    shown = ostinato("--version")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout == f"ostinato {version('ostinato')}\n"


def test_an_unknown_command_exits_2_and_says_so_on_stderr(ostinato: Ostinato) -> None:
    shown = ostinato("bogus")
    assert (shown.returncode, shown.stdout) == (2, "")
    assert "No such command 'bogus'" in shown.stderr


def test_an_error_is_printed_once_on_stderr_and_exits_2(ostinato: Ostinato) -> None:
    shown = ostinato("explain", "host-snc")
    assert (shown.returncode, shown.stdout) == (2, "")
    assert shown.stderr.startswith("OST4001: no page explains 'host-snc'\n  try:  did you mean")
    assert "Traceback" not in shown.stderr


def test_an_error_raised_while_a_command_is_loaded_is_printed_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_room(app: typer.Typer, command: cli.Command) -> None:
        raise ResourceError("no room", code="OST1201", remedy="make some")

    monkeypatch.setattr(cli, "_load", no_room)
    with pytest.raises(SystemExit) as exit_:
        cli.main(["explain"])
    assert exit_.value.code == 2
    assert capsys.readouterr().err.startswith("OST1201: no room\n  try:  make some\n")


@pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("words", [("explain",), ("explain", "host-sync"), ("--help",)], ids=str)
def test_an_output_that_cannot_be_written_is_one_clear_error(words: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "ostinato.cli", *words]
    # With a buffer, what could not be written is tried again when the interpreter ends.
    buffered = os.environ | {"PYTHONUNBUFFERED": ""}
    with FULL.open("w") as full:
        shown = subprocess.run(
            command,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=buffered,
            check=False,
            timeout=60,
        )
    assert shown.returncode == 2
    assert shown.stderr.startswith("OST4003: the output cannot be read or written: No space left")
    assert len(shown.stderr.splitlines()) == 3


def test_a_file_that_the_system_refuses_is_named(tmp_path: Path, ostinato: Ostinato) -> None:
    (tmp_path / "file").touch()
    shown = ostinato("explain", "--write", str(tmp_path / "file" / "pages"))
    assert (shown.returncode, shown.stdout) == (2, "")
    assert shown.stderr.startswith(f"OST4003: {tmp_path}/file")
    assert "a part of it is no folder" in shown.stderr
    assert "Traceback" not in shown.stderr


def test_ctrl_c_exits_130_without_a_traceback() -> None:
    # A command that waits, in the place of `explain`, is interrupted as a person would do it.
    program = textwrap.dedent("""
        import time
        import ostinato.cli.explain as module
        from ostinato import cli

        def explain() -> None:
            print("waiting", flush=True)
            time.sleep(60)

        module.explain = explain
        cli.main(["explain"])
    """)
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell's background job ignores Ctrl-C, and its children would inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        os.kill(process.pid, signal.SIGINT)
        _, shown = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in shown


def test_explain_does_not_import_torch() -> None:
    program = textwrap.dedent("""
        import sys
        from ostinato import cli

        try:
            cli.main(["explain", "host-sync"])
        finally:
            assert "torch" not in sys.modules, "torch was imported"
    """)
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)


@pytest.mark.parametrize("command", cli.COMMANDS, ids=lambda command: command.name)
def test_every_command_says_what_its_options_are(command: cli.Command, ostinato: Ostinato) -> None:
    shown = ostinato(command.name, "--help")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert f"ostinato {command.name}" in shown.stdout
