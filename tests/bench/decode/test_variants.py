"""The script that measures options beside the default: rows, the file, and the end of its time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from bench.scripts import script
from ostinato.bench.decode.rows import DecodeRow, read_result


@pytest.fixture
def variants(repository: Path) -> Iterator[ModuleType]:
    with script(repository, "decode_variants") as module:
        yield module


@pytest.fixture
def asked(variants: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Let engines cost nothing; what they were asked for."""
    found: list[dict[str, Any]] = []

    def measure(label: str, name: str, *given: Any, options: Any, **_: Any) -> Iterator[DecodeRow]:
        found.append({"label": label, **options})
        for batch in given[1]:
            yield DecodeRow(label, name, batch, tpot_ms=1.0, ttft_ms=2.0)

    monkeypatch.setattr(variants, "measure_ours", measure)
    return found


def run(variants: ModuleType, out: Path, *words: str) -> None:
    variants.main([str(out), "--device", "cpu", "--models", "llama3-8b,llama3.2-1b", *words])


def test_every_model_is_measured_with_every_variant_the_default_first(
    variants: ModuleType,
    asked: list[dict[str, Any]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "variants.json"
    run(variants, out, "--batches", "256,32")
    rows = read_result(out).rows
    assert [(row.engine, row.model, row.batch) for row in rows] == [
        (label, model, batch)
        for model in ("llama3-8b", "llama3.2-1b")
        for label in variants.VARIANTS
        for batch in (256, 32)
    ]
    assert asked[0] == {"label": "ostinato", "device": "cpu"}
    assert [each.get("prefill_tokens") for each in asked[:3]] == [None, 4096, 8192]
    assert "ostinato, prefill_tokens 8192" in capsys.readouterr().out


def test_without_time_what_was_not_run_is_said(
    variants: ModuleType, asked: list[dict[str, Any]], tmp_path: Path
) -> None:
    out = tmp_path / "variants.json"
    run(variants, out, "--seconds", "0")
    assert asked == []
    rows = json.loads(out.read_text())["rows"]
    assert len(rows) == 2 * len(variants.VARIANTS)
    assert all(row["error"].startswith("not run: ") for row in rows)


def test_a_model_that_is_not_known_is_told_at_once(variants: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="there is no model 'gpt5'"):
        variants.main([str(tmp_path / "out.json"), "--models", "gpt5"])
