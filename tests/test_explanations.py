"""Explanations: every reason and every code has a page, and every page is of use."""

import re
from pathlib import Path

import pytest

from ostinato import explain
from ostinato.doctor import catalog
from ostinato.explain import Page
from ostinato.graphs.reasons import Reason
from ostinato.hf.delegation import Delegated

CODE = re.compile(r"OST\d{4}")
PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
PAGES = {page.word: page for page in explain.pages()}


def codes_in_source(repository: Path) -> set[str]:
    sources = (repository / "src" / "ostinato").rglob("*.py")
    return {code for path in sources for code in CODE.findall(path.read_text(encoding="utf-8"))}


@pytest.mark.parametrize("reason", [*Reason, *Delegated], ids=str)
def test_every_reason_has_a_page(reason: Reason | Delegated) -> None:
    assert reason.value in PAGES


def test_every_code_that_the_source_names_has_a_page_and_every_code_page_is_named(
    repository: Path,
) -> None:
    pages = {word for word, page in PAGES.items() if page.is_code and not page.is_finding}
    assert codes_in_source(repository) == pages


def test_every_finding_has_a_page_under_its_code_and_name() -> None:
    pages = {(word, page.name) for word, page in PAGES.items() if page.is_finding}
    assert {(rule.code, rule.name) for rule in catalog.RULES.values()} == pages


def test_every_other_page_is_that_of_a_reason() -> None:
    reasons = {str(reason) for reason in (*Reason, *Delegated)}
    assert {word for word, page in PAGES.items() if not page.is_code} == reasons


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_a_page_has_a_title_and_its_sections_with_something_in_them(page: Page) -> None:
    first, _, rest = page.text.partition("\n")
    assert first == f"# {page.word}: {page.title}"
    assert page.title
    parts = re.split(r"^## (.+)$", rest, flags=re.MULTILINE)
    wanted = explain.FINDING_SECTIONS if page.is_finding else explain.SECTIONS
    assert tuple(parts[1::2]) == wanted
    assert all(body.strip() for body in parts[2::2])


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_a_page_ends_in_an_example_that_is_fenced_and_the_python_in_it_compiles(page: Page) -> None:
    example = page.text.partition("## Example")[2]
    assert "```" in example
    for block in PYTHON_BLOCK.findall(page.text):
        compile(block, f"{page.word}.md", "exec")


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_a_page_sends_the_reader_only_to_pages_that_exist(page: Page) -> None:
    for word in re.findall(r"ostinato explain (\w[\w-]*)", page.text):
        assert word in ("WORD", "REASON") or word in PAGES


def test_the_findings_in_docs_are_in_step_with_the_pages(repository: Path) -> None:
    folder = repository / "docs" / "findings"
    written = {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}
    assert written == explain.findings(), "run `make pages`"
