"""Options: words of the command line, checked before anything is built."""

from pathlib import Path

import pytest

from ostinato.bench import Contender, read_options
from ostinato.bench.options import MODELS, QUICK, TINY, Effort
from ostinato.errors import UsageError


def test_nothing_named_means_everything_at_full_effort() -> None:
    options = read_options()
    assert options.models == MODELS
    assert options.contenders == tuple(Contender)
    assert options.effort == Effort()


def test_at_full_effort_the_host_is_timed_at_least_200_times() -> None:
    assert Effort().rounds * Effort().drained_calls >= 200


def test_words_are_taken_once_and_in_the_known_order() -> None:
    options = read_options(" traffic,bert-128,,bert-128", "owned, eager")
    assert options.models == ("bert-128", "traffic")
    assert options.contenders == (Contender.EAGER, Contender.OWNED)


@pytest.mark.parametrize(
    ("models", "contenders", "word"), [("bert", "", "'bert'"), ("", "eager,fast", "'fast'")]
)
def test_an_unknown_word_is_refused_with_the_known_ones(
    models: str, contenders: str, word: str
) -> None:
    with pytest.raises(UsageError, match=word) as caught:
        read_options(models, contenders)
    assert caught.value.code == "OST4021"
    assert ("resnet50" if models else "owned") in caught.value.remedy


@pytest.mark.parametrize("name", ["minilm", "smollm2", "trace"])
def test_a_path_that_is_absent_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no") as caught:
        read_options(**{name: tmp_path / "absent"})
    assert caught.value.code == "OST4022"


def test_tiny_goes_before_quick() -> None:
    assert read_options(is_quick=True).effort is QUICK
    assert read_options(is_quick=True, is_tiny=True).effort is TINY
