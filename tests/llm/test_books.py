"""Books: who was not let in is not in them."""

from __future__ import annotations

import pytest

from ostinato.llm.books import Books
from ostinato.llm.limits import Limits
from ostinato.llm.reply import Reply
from ostinato.llm.request import Request
from ostinato.llm.scheduler.waiting import Waiting


def test_whatever_stops_an_entry_leaves_the_books_as_they_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    books = Books(Limits(max_batch=2, max_model_len=64), pages=9, prefix_cache=True)
    replies = [Reply(Request(name, (1, 2, 3)), 0, ()) for name in ("a", "a#1")]

    def fail(*_: object) -> None:
        raise RuntimeError("unforeseen")

    with monkeypatch.context() as broken:
        broken.setattr(Waiting, "add", fail)
        with pytest.raises(RuntimeError, match="unforeseen"):
            books.submit(replies)
    assert books.living() == []
    assert books.is_idle
    assert books.counts().waiting == 0
    books.submit(replies)
    assert books.living() == replies
    books.check_integrity()
