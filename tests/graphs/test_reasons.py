"""Reasons: one word each, each with a remedy and a page."""

import re

import pytest

from ostinato.explain import find
from ostinato.graphs.reasons import Reason, remedy


@pytest.mark.parametrize("reason", Reason)
def test_a_reason_is_a_hyphenated_word_with_a_remedy_and_a_page(reason: Reason) -> None:
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", reason.value)
    assert str(reason) == reason.value
    assert remedy(reason)[0].islower()
    assert not remedy(reason).endswith(".")
    assert reason.value in find(reason.value).word


def test_words_are_given_out_once() -> None:
    assert len({reason.value for reason in Reason}) == len(list(Reason))
