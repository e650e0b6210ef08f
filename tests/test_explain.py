"""Explain: a page is found by its word, however it is spelt."""

import pytest

from ostinato import explain
from ostinato.errors import UsageError


@pytest.mark.parametrize(
    "word", ["host-sync", "HOST-SYNC", "HOST_SYNC", " host-sync ", "Reason.HOST_SYNC"]
)
def test_a_reason_is_found_however_it_is_spelt(word: str) -> None:
    assert explain.find(word).word == "host-sync"


def test_a_code_is_found_in_any_case() -> None:
    assert explain.find("ost1001").word == "OST1001"


@pytest.mark.parametrize("word", ["OST101", "host-sync-in-step", "Host_Sync_In_Step"])
def test_a_finding_is_found_by_its_code_and_by_its_name(word: str) -> None:
    assert explain.find(word).word == "OST101"


def test_a_misspelt_finding_is_answered_with_its_name() -> None:
    assert "gil-contention" in explain.near("gil-contenton")


def test_an_empty_word_names_no_page() -> None:
    with pytest.raises(UsageError):
        explain.find(" ")


def test_a_misspelt_word_is_answered_with_the_nearest_ones() -> None:
    assert explain.near("host-snc")[0] == "host-sync"
    with pytest.raises(UsageError, match="did you mean host-sync") as caught:
        explain.find("host-snc")
    assert caught.value.code == "OST4001"


def test_a_word_like_no_other_is_answered_with_the_way_to_the_list() -> None:
    assert explain.near("zzzzzz") == []
    with pytest.raises(UsageError, match="without a word"):
        explain.find("zzzzzz")


def test_pages_stand_in_order_with_reasons_then_findings_then_error_codes() -> None:
    words = [page.word for page in explain.pages()]
    reasons = [word for word in words if not word.startswith("OST")]
    findings = [word for word in words if word.startswith("OST") and len(word) == len("OST101")]
    rest = set(words) - set(reasons) - set(findings)
    assert words == sorted(reasons) + sorted(findings) + sorted(rest)


def test_the_index_lists_every_page_once() -> None:
    index = explain.findings()["README.md"]
    for page in explain.pages():
        assert index.count(f"({page.word}.md): {page.title}") == 1


def test_a_generated_page_is_known_as_one() -> None:
    assert all(explain.is_generated(text) for text in explain.findings().values())
    assert not explain.is_generated("# My own notes")
