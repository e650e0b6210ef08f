"""What can be wrong with a grammar, in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ostinato.errors import OstinatoError, ResourceError, UsageError
from ostinato.llm.structured.wording import said_of_schema

_MOST_LETTERS = 400


@contextmanager
def refusing(refusal: Callable[[str], UsageError]) -> Iterator[None]:
    """Tell what the compiler of grammars raises as a refusal of what it was given."""
    try:
        yield
    except (OstinatoError, MemoryError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of Rust is no Exception
        raise refusal(said_by(error)) from error


def said_by(error: BaseException) -> str:
    """Return what an error says, never nothing."""
    return str(error) or type(error).__name__


def not_compiled(problem: str) -> UsageError:
    """Return the refusal of a schema: what is wrong with it, and then the compiler's own words."""
    if "NoExtension" in problem:  # such as a list that must hold itself
        return nothing_allowed(0, "")
    line = _line(problem)
    return UsageError(
        f"no grammar can be made of the schema: {said_of_schema(line)}; in the compiler's words: "
        f"{_short(line)}",
        code="OST5062",
        remedy="correct the schema, or leave out what no answer can be kept to",
    )


def not_kept(problem: str) -> UsageError:
    """Return the refusal of a schema that the compiler would take, and no answer would keep."""
    return UsageError(
        f"no grammar can be made of the schema: {problem}",
        code="OST5062",
        remedy="correct the schema, or leave out what no answer can be kept to",
    )


def nothing_allowed(tokens: int, problem: str) -> UsageError:
    """Return the end of an answer that no token may continue."""
    after = f"after {tokens} token{'s' * (tokens != 1)}" if tokens else "from the beginning"
    return UsageError(
        f"the schema lets nothing follow {after}"
        + (f": in the compiler's words, {_short(_line(problem))}" if problem else ""),
        code="OST5064",
        remedy="ask for something that can be finished, and that the model's tokens can spell",
    )


def tokenizer_unusable(problem: str) -> UsageError:
    """Return the refusal of any schema, for want of a tokenizer."""
    return UsageError(
        f"a schema was given, and this model's answers cannot be kept to one, for its tokenizer "
        f"does not say what its tokens spell: {_short(_line(problem))}",
        code="OST5065",
        remedy="leave schema out, or use a model whose folder has a tokenizer.json",
    )


def closed() -> ResourceError:
    """Return the end of a schema that waited when the engine was closed."""
    return ResourceError(
        "the engine was closed before the schema was compiled",
        code="OST5063",
        remedy="send the request to an engine that runs",
    )


def not_installed(error: ImportError) -> UsageError:
    """Return the refusal of any schema, for want of the package."""
    return UsageError(
        "a schema was given, and what keeps answers to one, the extra 'structured', is not "
        f"installed: {error}",
        code="OST5061",
        remedy="pip install 'ostinato[structured]'",
    )


def _line(problem: str) -> str:
    """In one line, and without the compiler's remark that it leaves details out."""
    return " ".join(problem.replace("<non-verbose/>", "").split())


def _short(line: str) -> str:
    return line if len(line) <= _MOST_LETTERS else line[:_MOST_LETTERS] + "…"
