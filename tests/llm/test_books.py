"""Books: who was not let in is not in them, and who was takes room until it runs."""

from __future__ import annotations

from typing import Any

import pytest

from ostinato.llm.books import Books
from ostinato.llm.limits import Limits
from ostinato.llm.refusals import QueueFull
from ostinato.llm.reply import Reply
from ostinato.llm.request import Request
from ostinato.llm.scheduler.waiting import Waiting


def books_of(**limits: Any) -> Books:
    return Books(Limits(max_batch=2, max_model_len=64, **limits), pages=9, prefix_cache=True)


def replies_of(*names: str, tokens: int = 3) -> list[Reply]:
    return [Reply(Request(name, tuple(range(1, tokens + 1))), 0, ()) for name in names]


def test_whatever_stops_an_entry_leaves_the_books_as_they_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    books = books_of(max_waiting=2)
    replies = replies_of("a", "a#1")

    def fail(*_: object) -> None:
        raise RuntimeError("unforeseen")

    with monkeypatch.context() as broken:
        broken.setattr(Waiting, "add", fail)
        for _ in range(3):
            with pytest.raises(RuntimeError, match="unforeseen"):
                books.submit(replies)
    assert books.living() == []
    assert books.is_idle
    assert books.counts().waiting == 0
    books.submit(replies)
    assert books.living() == replies
    books.check_integrity()


def test_who_waits_for_a_grammar_takes_room_in_the_queue() -> None:
    books = books_of(max_waiting=2)
    (a,), (b,), c, d = (replies_of(name) for name in "abcd")
    books.expect([a])
    books.expect([b])
    for let_in in (books.submit, books.expect):
        with pytest.raises(QueueFull, match="2 of 2 requests and 6 of"):
            let_in(c)
    books.admit([b])
    with pytest.raises(QueueFull, match="2 of 2 requests"):
        books.submit(c)
    assert books.remove("a") is a
    books.submit(c)
    with pytest.raises(QueueFull, match="2 of 2 requests"):
        books.submit(d)
    assert books.plan().decode == ("b", "c")
    books.submit(d)


def test_who_follows_another_takes_room_in_the_queue() -> None:
    books = books_of(max_waiting=3)
    three, b, c = replies_of("a", "a#1", "a#2"), replies_of("b"), replies_of("c")
    books.submit(three)
    with pytest.raises(QueueFull, match="3 of 3 requests and 9 of"):
        books.submit(b)
    books.plan()  # the first has a row
    books.submit(b)
    with pytest.raises(QueueFull, match="3 of 3 requests"):
        books.submit(c)
    assert books.remove("a#2") is three[2]
    three[2].is_over = True
    books.submit(c)
    books.let_followers_in("a")
    assert books.counts().waiting == 3
    with pytest.raises(QueueFull, match="3 of 3 requests"):
        books.submit(replies_of("d"))


def test_the_tokens_of_those_who_are_still_to_come_are_counted() -> None:
    books = books_of(max_waiting_tokens=10)
    books.expect(replies_of("a", tokens=8))
    with pytest.raises(QueueFull, match="8 of 10 prompt tokens wait, and this prompt has 3"):
        books.submit(replies_of("b", tokens=3))
    books.submit(replies_of("b", tokens=2))
