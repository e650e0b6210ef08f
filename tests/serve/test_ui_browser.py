"""The page in a real browser: what it shows, at a desk and on a phone, by keyboard and by ear."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from time import sleep
from typing import Any

import httpx
import pytest

pytest.importorskip("selenium", reason="needs selenium")

from selenium.webdriver import Chrome
from selenium.webdriver.common.keys import Keys

from ostinato import instruments
from ostinato.serve.metrics import Metrics
from ostinato.serve.slo import Burn, State
from serve.browser import SIZES, accessible, browser, focus_order, press, text, until
from serve.running import Running, running, slow_down

# One browser and one service for the whole file: starting them takes most of its time.
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def watched(tiny_chat: Path) -> Iterator[Running]:
    with running(tiny_chat, api_keys=("the-key",)) as made:
        metrics: Any = made.services.metrics
        metrics.watch_engine(made.engine)
        instrument = metrics.watch_graphs()
        metrics.model("tiny", "initial")
        yield made
        instruments.remove(instrument)


@pytest.fixture(scope="module", params=["desktop", "phone"])
def page(request: pytest.FixtureRequest, watched: Running) -> Iterator[Chrome]:
    with browser(request.param) as opened:
        opened.get(watched.url + "/ui")
        until(lambda: text(opened, "status") == "Ready")
        yield opened
        errors = [each for each in opened.get_log("browser") if each["level"] == "SEVERE"]
        expected = ("favicon", "401", "ERR_CONNECTION_REFUSED")
        assert [e for e in errors if not any(word in e["message"] for word in expected)] == []


@pytest.fixture
def busy(watched: Running) -> Iterator[None]:
    """Somebody asks all the while."""
    is_over = threading.Event()

    def ask() -> None:
        headers = {"authorization": "Bearer the-key"}
        body = {"model": "tiny", "prompt": "hello there", "max_tokens": 24, "ignore_eos": True}
        with httpx.Client(headers=headers, timeout=120) as client:
            while not is_over.is_set():
                client.post(watched.url + "/v1/completions", json=body).raise_for_status()
                sleep(0.05)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    yield
    is_over.set()
    for thread in threads:
        thread.join()


@pytest.mark.usefixtures("busy")
def test_it_shows_the_service_at_work(page: Chrome) -> None:
    until(lambda: text(page, "tokens-now")[0] in "123456789")
    until(lambda: "p95" in text(page, "first-now"))
    until(lambda: "p95" in text(page, "between-now"))
    assert text(page, "model") == "tiny"
    assert text(page, "version") == "initial"
    assert "p50" in text(page, "between-more")
    # This engine records nothing, and the page says for which reason.
    assert text(page, "replayed-now").startswith("0 %")
    assert "eager-backend" in text(page, "why")
    assert "length" in text(page, "ends")
    until(lambda: page.find_elements("css selector", "#heat .cell"))
    assert "row" in text(page, "heat-words")
    assert page.find_elements("css selector", "#tokens-line path")
    assert "of 8" in text(page, "rows-words")


def test_nothing_is_wider_than_the_screen(page: Chrome, request: pytest.FixtureRequest) -> None:
    # Not window.innerWidth: a phone zooms out to show what is too wide.
    screen, _ = SIZES[request.node.callspec.params["page"]]
    assert page.execute_script("return document.documentElement.scrollWidth") <= screen
    cards = page.find_elements("css selector", ".card")
    assert all(card.rect["x"] + card.rect["width"] <= screen for card in cards)


def test_what_is_touched_is_large_enough_for_a_thumb(page: Chrome) -> None:
    for button in page.find_elements("css selector", "button"):
        if button.is_displayed():
            assert button.rect["height"] >= 40


def test_the_tabulator_goes_through_the_page_in_reading_order(page: Chrome) -> None:
    order = focus_order(page)
    assert order == ["Skip to the chat", "talk", "words", "send", "clear", "key"]


def test_everything_has_a_name_for_those_who_listen(page: Chrome) -> None:
    nodes = accessible(page)

    def names(role: str) -> list[str]:
        return [node["name"] for node in nodes if node["role"] == role]

    assert names("meter") == ["Rows", "Keys and values", "Prompts found in the cache"]
    assert set(names("button")) == {"Send", "Clear"}
    assert set(names("textbox")) == {"Message", "API key"}
    assert "Conversation" in names("log")
    pictures = names("image")
    assert len(pictures) >= 5
    assert all(pictures)
    assert len(set(names("heading"))) == len(names("heading")) == 11
    assert all(name for role in ("button", "textbox", "link", "meter") for name in names(role))


def test_without_its_key_it_says_so_and_with_it_it_answers(page: Chrome) -> None:
    def log() -> str:
        return str(page.find_element("id", "talk").get_attribute("textContent"))

    page.find_element("id", "words").click()
    press(page, "hello", Keys.ENTER)
    until(lambda: "API key" in log())
    key = page.find_element("id", "key")
    key.click()
    press(page, "the-key", Keys.TAB)
    page.find_element("id", "words").click()
    press(page, "how are you", Keys.ENTER)
    until(lambda: "first token after" in text(page, "pace"))
    assert "You said: how are you" in log()
    assert page.switch_to.active_element.get_attribute("id") == "words"
    page.find_element("id", "clear").click()
    assert log() == ""
    key.clear()


def test_an_answer_can_be_stopped_by_keyboard(page: Chrome, watched: Running) -> None:
    page.execute_script("sessionStorage.setItem('ostinato-key', 'the-key')")
    page.refresh()
    until(lambda: text(page, "status") == "Ready")
    undo = slow_down(watched.engine, 0.05)
    try:
        page.find_element("id", "words").click()
        press(page, "tell me a long story", Keys.ENTER)
        stop = page.find_element("id", "stop")
        until(stop.is_displayed)
        until(lambda: watched.engine.counts().scheduler.running == 1)
        press(page, Keys.TAB, Keys.ENTER)
        until(lambda: "stopped" in text(page, "talk"))
        until(lambda: watched.engine.counts().scheduler.running == 0)
    finally:
        undo()
    assert page.find_element("id", "send").is_displayed()
    page.find_element("id", "clear").click()


def test_an_open_breaker_is_seen_at_once(page: Chrome, watched: Running) -> None:
    metrics = watched.services.metrics
    assert isinstance(metrics, Metrics)
    metrics.breaker(State.OPEN, 2, [Burn("ttft", "long", 3.25, 4.0, 50)])
    until(lambda: text(page, "breaker") == "Open: shedding (rung 2)")
    assert text(page, "status") == "Ready, shedding load"
    assert "first token, long" in text(page, "burns")
    assert "3.25" in text(page, "burns")
    metrics.breaker(State.CLOSED, 0, [Burn("ttft", "long", 0.0, 0.0, 50)])
    until(lambda: text(page, "breaker").startswith("Closed"))
    assert text(page, "burns").endswith("Nothing came late.")


def test_it_is_asked_for_nothing_while_nobody_looks(page: Chrome, watched: Running) -> None:
    hide = "Object.defineProperty(document, 'hidden', {value: %s, configurable: true})"
    page.execute_script(hide % "true")

    def is_still() -> bool:
        """Whether two seconds pass without a request; one under way may still come to its end."""
        asked = "return performance.getEntriesByType('resource').length"
        before = page.execute_script(asked)
        sleep(2.2)
        return bool(page.execute_script(asked) == before)

    until(is_still)
    page.execute_script(hide % "false")
    until(lambda: not is_still())


def test_percentiles_are_those_that_prometheus_computes(page: Chrome) -> None:
    script = """
        const [share, counted, done] = arguments;
        import("/ui/window.js").then((window) => done(window.quantile(share, counted)));
    """

    def quantile(share: float, bounds: list[float], counts: list[float]) -> Any:
        return page.execute_async_script(script, share, {"bounds": bounds, "counts": counts})

    assert quantile(0.5, [1, 2, 4], [0, 10, 0, 0]) == pytest.approx(1.5)
    assert quantile(0.95, [1, 2, 4], [10, 10, 0, 0]) == pytest.approx(1.9)
    assert quantile(0.95, [1, 2, 4], [0, 0, 0, 7]) == 4
    assert quantile(0.25, [1, 2, 4], [10, 10, 0, 0]) == pytest.approx(0.5)
    assert quantile(0.5, [1, 2, 4], [0, 0, 0, 0]) is None


def test_a_service_started_anew_does_not_make_counts_fall(page: Chrome) -> None:
    script = """
        const [documents, done] = arguments;
        import("/ui/window.js").then(({ Window }) => {
          const seen = new Window();
          for (const each of documents) seen.add(each);
          done([seen.rate((step) => step.tokens, 10), seen.steps.length]);
        });
    """
    empty: dict[str, Any] = {
        name: {"bounds": [], "counts": [0]} for name in ("first_token", "between", "queue")
    }
    names = ("prompt_tokens", "requests", "prefix_asked", "prefix_found", "replayed", "recorded")
    empty |= dict.fromkeys(names, 0)
    documents = [
        {**empty, "at": at, "tokens": tokens, "eager": {}, "buckets": {}}
        for at, tokens in ((1, 100), (2, 150), (3, 10), (4, 30))
    ]
    rate, steps = page.execute_async_script(script, documents)
    assert steps == 3
    assert rate == pytest.approx((50 + 0 + 20) / 3)


@pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])
def test_words_stand_out_from_what_is_behind_them(watched: Running, is_dark: bool) -> None:
    with browser("desktop", is_dark=is_dark) as opened:
        opened.get(watched.url + "/ui")
        until(lambda: text(opened, "status") == "Ready")
        contrasts = opened.execute_script(_CONTRASTS)
    assert len(contrasts) > 10
    assert {name: ratio for name, ratio in contrasts.items() if ratio < 4.5} == {}


# WCAG's ratio between the colour of each kind of text and the first opaque colour behind it.
_CONTRASTS = """
    const parse = (text) => text.match(/[\\d.]+/g).map(Number);
    const light = (rgb) => {
      const [r, g, b] = rgb.map((c) => c / 255)
        .map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const behind = (element) => {
      for (let at = element; at; at = at.parentElement) {
        const [r, g, b, a = 1] = parse(getComputedStyle(at).backgroundColor);
        if (a > 0) return [r, g, b];
      }
      return [255, 255, 255];
    };
    const found = {};
    const kinds = "h1, h2, p, dt, dd, th, td, button, label, footer, caption";
    for (const each of document.querySelectorAll(kinds)) {
      if (!each.checkVisibility() || !each.textContent.trim()) continue;
      const [a, b] = [light(parse(getComputedStyle(each).color).slice(0, 3)), light(behind(each))];
      const name = each.id || `${each.tagName} ${each.textContent.trim().slice(0, 30)}`;
      found[name] = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    }
    return found;
"""


def test_a_server_that_is_gone_is_told(tiny_chat: Path) -> None:
    with browser("desktop") as opened:
        with running(tiny_chat) as made:
            opened.get(made.url + "/ui")
            until(lambda: text(opened, "status") == "Ready")
        until(lambda: text(opened, "status").startswith("No answer from the server"))


def test_the_words_of_the_server_are_text_and_never_markup(page: Chrome, watched: Running) -> None:
    metrics = watched.services.metrics
    assert isinstance(metrics, Metrics)
    metrics.model("<img src=x onerror=alert(1)>", "<b>v</b>")
    try:
        until(lambda: text(page, "model") == "<img src=x onerror=alert(1)>")
        assert not page.find_elements("css selector", "#model img, #version b")
    finally:
        metrics.model("tiny", "initial")
    until(lambda: text(page, "model") == "tiny")
