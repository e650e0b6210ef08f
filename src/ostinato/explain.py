"""What a reason or an error code means, in a page of words.

Every reason (`graphs/reasons.py`, `hf/delegation.py`) and every "OSTxxxx" code has a page in
`explanations/`, named for it. `ostinato explain WORD` prints one, and `docs/findings` is written
from them. Reading a page needs no torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files

from ostinato.errors import UsageError

SECTIONS = ("What it means", "Why", "What to change", "Example")

_GENERATED = "<!-- Written by `make pages` from src/ostinato/explanations: change it there. -->\n\n"


@dataclass(frozen=True, slots=True)
class Page:
    """One explanation.

    Attributes:
        word: The reason ("host-sync") or the code ("OST1001") that the page explains.
        title: What it says in one line.
        text: The whole page, in Markdown.
    """

    word: str
    title: str
    text: str

    @property
    def is_code(self) -> bool:
        """Whether this page explains an error code, not a reason."""
        return self.word.startswith("OST")


@cache
def pages() -> tuple[Page, ...]:
    """Return every page: the reasons in alphabetical order, then the codes in theirs."""
    folder = files("ostinato") / "explanations"
    found = [
        _page(entry.name.removesuffix(".md"), entry.read_text(encoding="utf-8"))
        for entry in folder.iterdir()
        if entry.name.endswith(".md")
    ]
    return tuple(sorted(found, key=lambda page: (page.is_code, page.word)))


def _page(word: str, text: str) -> Page:
    heading = text.partition("\n")[0].removeprefix(f"# {word}:").strip()
    return Page(word=word, title=heading, text=text)


def find(word: str) -> Page:
    """Return the page of a reason or code; case, and "_" for "-", do not matter.

    Raises:
        UsageError: OST4001, no page has that name; the remedy names those that come near.
    """
    wanted = _plain(word)
    for page in pages():
        if _plain(page.word) == wanted:
            return page
    raise UsageError(
        f"no page explains {word!r}",
        code="OST4001",
        remedy=_suggest(word),
    )


def near(word: str) -> list[str]:
    """Return up to three reasons or codes whose names look like `word`, the nearest first."""
    names = {_plain(page.word): page.word for page in pages()}
    return [names[match] for match in get_close_matches(_plain(word), names, n=3, cutoff=0.6)]


def _suggest(word: str) -> str:
    matches = near(word)
    if not matches:
        return "run `ostinato explain` without a word to see every reason and code"
    return f"did you mean {' or '.join(matches)}? `ostinato explain` lists them all"


def _plain(word: str) -> str:
    return word.strip().lower().replace("_", "-").removeprefix("reason.")


def findings() -> dict[str, str]:
    """Return what `docs/findings` holds, by file name: every page, and a README that lists them."""
    docs = {f"{page.word}.md": _GENERATED + page.text for page in pages()}
    docs["README.md"] = _GENERATED + _index()
    return docs


def is_generated(text: str) -> bool:
    """Return whether `text` is a page of `docs/findings` that was written from here."""
    return text.startswith(_GENERATED)


def _index() -> str:
    lines = ["# What Ostinato says, and what to do about it", ""]
    lines += ["The same pages as `ostinato explain WORD` prints.", ""]
    for heading, codes in (("Reasons for running eagerly", False), ("Error codes", True)):
        lines += [f"## {heading}", ""]
        lines += [
            f"- [`{page.word}`]({page.word}.md): {page.title}"
            for page in pages()
            if page.is_code is codes
        ]
        lines.append("")
    return "\n".join(lines)
