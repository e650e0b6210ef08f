"""Small programs: each line that ends in a code is found with that code, and nothing else is."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ostinato.doctor.lint import Settings, lint

BOOKS = Path(__file__).parent / "cases"
MARK = re.compile(r"#((?: \d{3})+)$")


def programs() -> Iterator[tuple[str, str]]:
    for book in sorted(BOOKS.glob("*.txt")):
        for part in re.split(r"^### ", book.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
            title, _, source = part.partition("\n")
            yield f"{book.stem}: {title}", source


def expected(source: str) -> list[tuple[int, str]]:
    return sorted(
        (number, f"OST{code}")
        for number, line in enumerate(source.split("\n"), start=1)
        if (match := MARK.search(line))
        for code in match[1].split()
    )


PROGRAMS = dict(programs())


@pytest.mark.parametrize("title", PROGRAMS)
def test_a_program_shows_what_its_comments_say(title: str, tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(PROGRAMS[title], encoding="utf-8")
    result = lint([file], Settings())
    assert result.problems == ()
    assert sorted((one.line, one.code) for one in result.findings) == expected(PROGRAMS[title])


def test_there_are_at_least_sixty_programs_and_many_are_healthy() -> None:
    assert len(PROGRAMS) >= 60
    assert sum(not expected(source) for source in PROGRAMS.values()) >= 15
