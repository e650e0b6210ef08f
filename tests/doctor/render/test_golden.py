"""What code hosts read is written by one writer each, and stays as it is to the letter."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest

from ostinato.doctor import lint
from ostinato.doctor.diagnose import diagnose
from ostinato.doctor.evidence import from_json
from ostinato.doctor.lint.output import Format, write
from ostinato.doctor.render import render

GOLDEN = Path(__file__).parent / "golden"
EVIDENCE = Path(__file__).parents[1] / "seeded" / "evidence"
SOURCE = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = x[x > 0]
        return kept / kept.max().item()
"""


def of_lint(form: str) -> str:
    Path("model, 100%.py").write_text(SOURCE, encoding="utf-8")
    Path("broken.py").write_text("def f(:\n", encoding="utf-8")
    return write(lint.lint([Path()], lint.Settings()), Format(form))


def of_doctor(form: str) -> str:
    recorded = (EVIDENCE / "attention_in_fp32.json").read_text(encoding="utf-8")
    return render(diagnose(from_json(recorded)), form)


@pytest.mark.parametrize("form", ["sarif", "github"])
@pytest.mark.parametrize("made_by", [of_lint, of_doctor])
def test_it_is_written_as_before(
    made_by: Callable[[str], str], form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pages = Path(lint.__file__).parents[2] / "explanations"
    written = made_by(form).replace(version("ostinato"), "VERSION")
    written = written.replace(tmp_path.as_uri(), "FOLDER").replace(pages.as_uri(), "PAGES")
    golden = GOLDEN / f"{made_by.__name__.removeprefix('of_')}.{form}"
    assert written == golden.read_text(encoding="utf-8")
