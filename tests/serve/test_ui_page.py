"""The page: its files, and that a browser is told to run nothing else."""

import re
from pathlib import Path

import httpx
import pytest

from serve.running import Running

PARTS = ("/ui", "/ui/page.css", "/ui/page.js", "/ui/window.js", "/ui/charts.js", "/ui/chat.js")
FOLDER = Path(__file__).parent.parent.parent / "src" / "ostinato" / "serve" / "ui"
FILES = [path for path in sorted(FOLDER.iterdir()) if path.suffix in (".html", ".css", ".js")]


@pytest.mark.parametrize("path", PARTS)
def test_a_part_is_sent_as_what_it_is(service: Running, path: str) -> None:
    reply = httpx.get(service.url + path)
    assert reply.status_code == 200
    kinds = {"css": "text/css", "js": "text/javascript", "ui": "text/html"}
    assert reply.headers["content-type"].startswith(kinds[re.split(r"[./]", path)[-1]])
    assert reply.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("path", PARTS)
def test_nothing_may_come_from_elsewhere(service: Running, path: str) -> None:
    policy = httpx.get(service.url + path).headers["content-security-policy"]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == rules["style-src"] == rules["connect-src"] == "'self'"
    assert "unsafe" not in policy


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_no_file_names_another_host_and_none_is_long(file: Path) -> None:
    content = file.read_text(encoding="utf-8")
    hosts = set(re.findall(r"https?://([\w.]+)", content))
    assert hosts <= {"www.w3.org"}, "the name of SVG, which nobody fetches"
    assert len(content.splitlines()) <= 400


def test_every_part_that_the_page_names_is_there(service: Running) -> None:
    page = httpx.get(service.url + "/ui").text
    named = set(re.findall(r'"(/ui/[\w.]+)"', page))
    for script in PARTS[2:]:
        named |= set(re.findall(r'"(/ui/[\w.]+)"', httpx.get(service.url + script).text))
    assert named == {*PARTS[1:], "/ui/numbers"}


def test_every_element_that_a_script_asks_for_is_in_the_page() -> None:
    page = (FOLDER / "page.html").read_text(encoding="utf-8")
    there = set(re.findall(r'\bid="([\w-]+)"', page))
    asked: set[str] = set()
    for script in ("page.js", "chat.js"):
        source = (FOLDER / script).read_text(encoding="utf-8")
        asked |= set(re.findall(r'(?:(?<!\.)\bget|getElementById)\("([\w-]+)"\)', source))
    assert len(asked) > 20
    assert asked <= there


def test_the_numbers_are_asked_for_anew_each_time(service: Running) -> None:
    reply = httpx.get(service.url + "/ui/numbers")
    assert reply.headers["cache-control"] == "no-store"
    assert reply.json()["why"] is None


def test_only_reading_is_possible(service: Running) -> None:
    assert httpx.post(service.url + "/ui").status_code == 405
    assert httpx.get(service.url + "/ui/../settings.py").status_code == 404
    assert httpx.get(service.url + "/ui/__init__.py").status_code == 404
