"""The `ostinato` command: which sub-commands there are, and how every one of them fails.

A sub-command's module is imported only when it is the one that runs, so `ostinato explain` answers
without waiting for torch. An OstinatoError is printed once, without a traceback, and exits 2, and
so does a disk that is full or a file that the system refuses; Ctrl-C exits 130.
"""

from __future__ import annotations

import sys

EXIT_UNREAD = 1
EXIT_ERROR = 2
EXIT_INTERRUPTED = 130

try:
    import errno
    import os
    from collections.abc import Sequence
    from dataclasses import dataclass
    from importlib import import_module
    from typing import NoReturn

    import typer
    from typer.main import get_command

    from ostinato.errors import OstinatoError, ResourceError
except KeyboardInterrupt:  # most of the time until a command begins is spent here
    print("ostinato: interrupted", file=sys.stderr)  # noqa: T201
    sys.exit(EXIT_INTERRUPTED)


@dataclass(frozen=True, slots=True)
class Command:
    """One sub-command.

    Attributes:
        module: Where it lives. A module with an `app` is a group of commands; any other holds a
            function of the command's name.
        summary: What `ostinato --help` says of it.
    """

    name: str
    module: str
    summary: str


COMMANDS = (
    Command("run", "ostinato.cli.run", "Answer a prompt with a real model, eager and replayed."),
    Command("generate", "ostinato.cli.generate", "Answer prompts with the engine."),
    Command("serve", "ostinato.cli.serve", "Serve a model over OpenAI's and other protocols."),
    Command("lint", "ostinato.cli.lint", "Find what makes inference slow, from source alone."),
    Command("check", "ostinato.cli.check", "Prove without a GPU whether a call can be recorded."),
    Command("doctor", "ostinato.cli.doctor", "Say why a program is slow, and which line does it."),
    Command("bench", "ostinato.cli.bench", "Measure beside eager, torch.compile and raw graphs."),
    Command("explain", "ostinato.cli.explain", "Say what a reason or an error code means."),
)


def build(arguments: Sequence[str]) -> typer.Typer:
    """Return the app for one command line: its sub-command whole, the others by name."""
    app = typer.Typer(
        name="ostinato",
        help="Record one step of any PyTorch callable, and replay it safely.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    app.callback()(_options)
    chosen = next((word for word in arguments if not word.startswith("-")), None)
    for command in COMMANDS:
        if command.name == chosen:
            _load(app, command)
        else:
            app.command(command.name, help=command.summary)(_not_chosen)
    return app


def _load(app: typer.Typer, command: Command) -> None:
    module = import_module(command.module)
    group = getattr(module, "app", None)
    if group is None:
        app.command(command.name)(getattr(module, command.name))
    else:
        app.add_typer(group, name=command.name, help=command.summary)


def _not_chosen() -> None:
    """Stand in the list of commands for one that this command line does not name."""


def _show_version(wanted: bool) -> None:
    if wanted:
        from ostinato import __version__

        typer.echo(f"ostinato {__version__}")
        raise typer.Exit


def _options(
    version: bool = typer.Option(
        False, "--version", callback=_show_version, is_eager=True, help="Print the version."
    ),
) -> None:
    """Hold the options that come before a sub-command."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit.

    The status is 0 when it is done, 1 when the reader of its output has gone, 2 after an error that
    says what to do, and 130 when it was interrupted.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    _hold_closed_streams()
    try:
        try:
            get_command(build(words)).main(args=words, prog_name="ostinato")
        finally:
            _flush()  # what was printed before an error stays before it
    except OstinatoError as error:
        _fail(error)
    except OSError as error:
        if error.errno is None:  # not the system's word, such as a library that does not load
            raise
        _drop_output()
        if error.errno == errno.EPIPE:  # the reader has gone: nobody is left to tell
            sys.exit(EXIT_UNREAD)
        _fail(_refused(error))
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)


def _hold_closed_streams() -> None:
    """Put nothing in the place of a stream that is closed.

    Else `print` would take stdout for stderr, and a file opened later their descriptors.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - until exit


def _flush() -> None:
    if sys.stdout is not None:
        sys.stdout.flush()


def _drop_output() -> None:
    """Let what could not be written go: the interpreter would try again at exit, and fail."""
    try:
        _flush()
    except OSError:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())


_REFUSED = {
    errno.ENOENT: "see that the name is right and its folder exists",
    errno.ENOTDIR: "see that the name is right: a part of it is no folder",
    errno.EISDIR: "name a file, not a folder",
}


def _refused(error: OSError) -> ResourceError:
    where = "the output" if error.filename is None else str(error.filename)
    return ResourceError(
        f"{where} cannot be read or written: {error.strerror}",
        code="OST4003",
        remedy=_REFUSED.get(error.errno or 0, "make room, or name a place that can be written"),
    )


def _fail(error: OstinatoError) -> NoReturn:
    print(error, file=sys.stderr)  # noqa: T201 - the one place where errors are printed
    sys.exit(EXIT_ERROR)
