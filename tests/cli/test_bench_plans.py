"""`ostinato bench plans`: measures on a GPU, and says why it does not elsewhere."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from ostinato.cli.bench import app
from ostinato.errors import UsageError


def test_without_a_gpu_each_model_says_why_it_is_not_measured() -> None:
    words = ["plans", "--models", "smollm2-135m", "--tokens", "1", "--device", "cpu"]
    shown = CliRunner().invoke(app, words, catch_exceptions=False)
    assert shown.exit_code == 0
    last = json.loads(shown.stdout.splitlines()[-1])
    assert "CUDA" in last["models"]["smollm2-135m"]["why"]
    assert "not measured" in shown.stdout


@pytest.mark.parametrize("tokens", ["0", "one", ",", "1;8"])
def test_numbers_of_tokens_that_are_none_are_refused_by_name(tokens: str) -> None:
    with pytest.raises(UsageError, match="tokens must be numbers of at least 1") as caught:
        CliRunner().invoke(app, ["plans", "--tokens", tokens], catch_exceptions=False)
    assert "--tokens 1,8,32" in caught.value.remedy
