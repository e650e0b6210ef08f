"""What `ostinato lint` is told: on the command line, and in pyproject.toml."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ostinato.doctor.catalog import RULES
from ostinato.errors import UsageError

# What the lint can see; the other codes need a program that runs.
CODES = frozenset(
    f"OST{number}"
    for number in (101, 104, 105, 202, 203, 204, 205, 208, 301, 302, 402, 502, 503, 505)
)
_KEYS = {"select": list, "ignore": list, "exclude": list, "baseline": str, "per-file-ignores": dict}


@dataclass(frozen=True, slots=True)
class Settings:
    """What to look for, and where not to.

    Attributes:
        codes: The codes that are reported.
        exclude: Patterns of files and folders that are passed by, as `PurePath.match` has them.
        per_file_ignores: Codes that are not reported for the paths of a pattern.
        baseline: A file of findings that are known and left out.
    """

    codes: frozenset[str] = CODES
    exclude: tuple[str, ...] = ()
    per_file_ignores: tuple[tuple[str, frozenset[str]], ...] = ()
    baseline: Path | None = None


def codes_named(words: Sequence[str]) -> frozenset[str]:
    """Return the codes that words name: a code, its number, its name, or the start of a code.

    Raises:
        UsageError: OST7001, no finding of the lint has that code or name.
    """
    found: set[str] = set()
    for word in (part.strip() for one in words for part in one.split(",")):
        if word:
            found |= _named(word)
    return frozenset(found)


def _named(word: str) -> frozenset[str]:
    plain = word.lower().replace("_", "-")
    code = plain.upper() if plain.startswith("ost") else f"OST{plain}"
    by_code = {rule for rule in CODES if len(code) > 3 and rule.startswith(code)}
    by_name = {rule for rule in CODES if RULES[rule].name == plain}
    if plain == "all":
        return CODES
    if by_code or by_name:
        return frozenset(by_code | by_name)
    if code in RULES or any(rule.name == plain for rule in RULES.values()):
        return frozenset()  # a finding of the doctor that no source shows
    raise UsageError(
        f"no finding has the code or the name {word!r}",
        code="OST7001",
        remedy="write a code such as OST101, its start such as OST1, or a name such as "
        "host-sync-in-step",
    )


def read_settings(start: Path) -> Settings:
    """Return the settings of the nearest pyproject.toml at or above a path.

    Raises:
        UsageError: OST7002, the section says something that is not understood.
    """
    folder = Path(os.path.realpath(start))  # `resolve` raises on a link that leads to itself
    for place in (folder, *folder.parents):
        file = place / "pyproject.toml"
        if os.path.isfile(file):  # one that may not be looked at is none
            return _from_file(file)
    return Settings()


def _from_file(file: Path) -> Settings:
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise _wrong(f"{file} is not TOML: {error}") from error
    section = content.get("tool", {})
    for word in ("ostinato", "lint"):
        section = section.get(word, {}) if isinstance(section, Mapping) else {}
    if not isinstance(section, Mapping):
        raise _wrong(f"tool.ostinato.lint in {file} is no table")
    return _from_section(section, file)


def _from_section(section: Mapping[str, Any], file: Path) -> Settings:
    for key, value in section.items():
        if key not in _KEYS:
            raise _wrong(f"tool.ostinato.lint in {file} has {key!r}, which is no setting")
        if not isinstance(value, _KEYS[key]):
            raise _wrong(f"tool.ostinato.lint.{key} in {file} is {value!r}")
    codes = codes_named(_words(section, "select", file)) if "select" in section else CODES
    baseline = section.get("baseline")
    return Settings(
        codes=codes - codes_named(_words(section, "ignore", file)),
        exclude=tuple(_words(section, "exclude", file)),
        per_file_ignores=tuple(
            (pattern, codes_named(words if isinstance(words, list) else [str(words)]))
            for pattern, words in section.get("per-file-ignores", {}).items()
        ),
        baseline=file.parent / baseline if baseline else None,
    )


def _words(section: Mapping[str, Any], key: str, file: Path) -> list[str]:
    words = section.get(key, [])
    for word in words:
        if not isinstance(word, str):
            raise _wrong(f"tool.ostinato.lint.{key} in {file} holds {word!r}, which is no text")
    return list(words)


def _wrong(problem: str) -> UsageError:
    return UsageError(
        problem,
        code="OST7002",
        remedy=f"keep to {', '.join(sorted(_KEYS))}: lists of texts, but for baseline",
    )


def combined(
    settings: Settings,
    *,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    exclude: Sequence[str] = (),
    baseline: Path | None = None,
) -> Settings:
    """Return settings with what the command line says: it wins over the file."""
    codes = codes_named(select) if select else settings.codes
    return replace(
        settings,
        codes=codes - codes_named(ignore),
        exclude=(*settings.exclude, *exclude),
        baseline=baseline or settings.baseline,
    )
