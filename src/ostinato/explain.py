"""What a reason, an error code or a finding means, in a page of words.

Every reason (`graphs/reasons.py`, `hf/delegation.py`), every error's "OSTxxxx" and every finding's
"OSTxxx" (`doctor/catalog.py`) has a page in `explanations/`, named for it. `ostinato explain WORD`
prints one, and `docs/findings` is written from them. Reading a page needs no torch.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files

from ostinato.errors import UsageError

SECTIONS = ("What it means", "Why", "What to change", "Example")
FINDING_SECTIONS = (
    "What it means",
    "Why it costs",
    "What to try and how safe",
    "False alarms",
    "Example",
)

_FINDING = re.compile(r"OST\d{3}")
_HEADING = re.compile(r"^## (.+)$", re.MULTILINE)

_GENERATED = "<!-- Written by `make pages` from src/ostinato/explanations: change it there. -->\n\n"


@dataclass(frozen=True, slots=True)
class Page:
    """One explanation.

    Attributes:
        word: The reason ("host-sync") or the code ("OST1001", "OST101") that the page explains.
        title: What it says in one line; a finding's begins with its name and a colon.
        text: The whole page, in Markdown.
    """

    word: str
    title: str
    text: str

    @property
    def is_code(self) -> bool:
        """Whether this page explains the code of an error or a finding, not a reason."""
        return self.word.startswith("OST")

    @property
    def is_finding(self) -> bool:
        """Whether this page explains what the doctor finds."""
        return _FINDING.fullmatch(self.word) is not None

    @property
    def name(self) -> str:
        """What a finding is called beside its code, such as "host-sync-in-step"; else empty."""
        return self.title.partition(":")[0] if self.is_finding else ""


@cache
def pages() -> tuple[Page, ...]:
    """Return every page: the reasons in alphabetical order, then findings, then error codes."""
    folder = files("ostinato") / "explanations"
    found = [
        _page(entry.name.removesuffix(".md"), entry.read_text(encoding="utf-8"))
        for entry in folder.iterdir()
        if entry.name.endswith(".md")
    ]
    return tuple(sorted(found, key=_order))


def _order(page: Page) -> tuple[bool, bool, str]:
    return (page.is_code, not page.is_finding, page.word)


def sections(page: Page) -> dict[str, str]:
    """Return the text below each heading of a page, by the heading."""
    parts = _HEADING.split(page.text)
    return {name: body.strip() for name, body in zip(parts[1::2], parts[2::2], strict=True)}


def _page(word: str, text: str) -> Page:
    heading = text.partition("\n")[0].removeprefix(f"# {word}:").strip()
    return Page(word=word, title=heading, text=text)


def find(word: str) -> Page:
    """Return the page of a reason, a code or a finding's name, in any case, with "_" or "-".

    Raises:
        UsageError: OST4001, no page has that name; the remedy names those that come near.
    """
    wanted = _plain(word)
    for page in pages():
        if wanted and wanted in (_plain(page.word), page.name):
            return page
    raise UsageError(
        f"no page explains {word!r}",
        code="OST4001",
        remedy=_suggest(word),
    )


def near(word: str) -> list[str]:
    """Return up to three reasons, codes or findings that look like `word`, the nearest first."""
    names = {_plain(page.word): page.word for page in pages()}
    names |= {page.name: page.name for page in pages() if page.is_finding}
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
    groups = {
        "Reasons for running eagerly": [page for page in pages() if not page.is_code],
        "What the doctor finds": [page for page in pages() if page.is_finding],
        "Error codes": [page for page in pages() if page.is_code and not page.is_finding],
    }
    for heading, group in groups.items():
        lines += [f"## {heading}", ""]
        lines += [f"- [`{page.word}`]({page.word}.md): {page.title}" for page in group]
        lines.append("")
    return "\n".join(lines)
