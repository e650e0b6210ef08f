"""`ostinato bench graphs`: a table for people, one line of JSON last, and a file."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path

import pytest
import torch

from bench.measured import result
from ostinato import cli
from ostinato.bench import GraphsResult, head, read_options, run_graphs, to_dict
from ostinato.bench.results import Difference, Row


def graphs(*words: str) -> None:
    with pytest.raises(SystemExit) as exit_:
        cli.main(["bench", "graphs", *words])
    assert exit_.value.code in (0, None)


def test_one_run_prints_tables_and_claims_and_writes_the_same_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new folder" / "result.json"
    graphs("--tiny", "--models", "bert-128", "--contenders", "eager,owned", "--out", str(out))
    shown = capsys.readouterr()
    *table, last = shown.out.splitlines()
    printed = json.loads(last)
    assert any(line.startswith("claims: ") for line in table)
    assert [row["contender"] for row in printed["rows"]] == ["eager", "owned"]
    assert printed == json.loads(out.read_text())
    assert [path.name for path in out.parent.iterdir()] == ["result.json"]
    assert "bert-128: ostinato" in shown.err


def test_json_alone_is_one_line_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    graphs("--tiny", "--json", "--models", "resnet50", "--contenders", "eager")
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["benchmark"] == "graphs"


def test_a_budget_of_nothing_still_gives_every_row_and_claim(
    capsys: pytest.CaptureFixture[str],
) -> None:
    graphs("--tiny", "--json", "--budget-s", "0")
    printed = json.loads(capsys.readouterr().out)
    rows = [*printed["rows"], *printed["generations"], printed["traffic"]]
    assert len(printed["rows"]) == 5 * 8
    assert {row["error"] for row in rows} == {"not run: the budget of 0 s was spent"}
    assert {claim["verdict"] for claim in printed["claims"]} == {"not measured"}


def test_an_unknown_model_exits_2_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        cli.main(["bench", "graphs", "--models", "bert"])
    assert exit_.value.code == 2
    assert "choose from bert-128" in capsys.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_gpu_that_is_not_there_is_an_error_not_a_run_on_the_cpu(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as exit_:
        cli.main(["bench", "graphs", "--device", "cuda", "--budget-s", "0"])
    assert exit_.value.code == 2
    assert "OST4023" in capsys.readouterr().err


def test_the_result_so_far_is_saved_after_every_part() -> None:
    saved: list[GraphsResult] = []
    options = read_options("bert-128,resnet50", "eager", is_tiny=True)
    whole = run_graphs(options, tell=lambda what: None, save=saved.append)
    assert [len(each.rows) for each in saved] == [1, 2, 2]
    assert saved[-1] == whole
    assert whole.head["seconds"] > 0


def test_the_head_says_when_where_and_with_what() -> None:
    found = head.describe_run(torch.device("cpu"))
    assert found["machine"]["cpu"]
    # PyPI's packages do not name the build: 2.11.0, and torch calls itself 2.11.0+cu130.
    build_left_out = torch.__version__.partition("+")[0]
    assert found["versions"]["torch"] in {torch.__version__, build_left_out}
    assert found["versions"]["watch"] in {"compiled", "Python"}


def test_a_checkout_that_is_not_installed_has_a_version_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def absent(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", absent)
    assert head.version_of("ostinato") == "from a checkout"
    assert head.version_of("triton") == "absent"


def test_a_number_that_json_cannot_hold_is_written_as_a_word() -> None:
    row = Row("bert-128", "", result().rows[0].contender, difference=Difference(float("inf"), 1.0))
    written = to_dict(result(rows=(row,)))
    json.dumps(written, allow_nan=False)
    assert written["rows"][0]["difference"]["max_abs"] == "inf"


@pytest.mark.slow
def test_everything_runs_at_toy_size(capsys: pytest.CaptureFixture[str]) -> None:
    graphs("--tiny", "--contenders", "eager,raw,owned,leased")
    printed = json.loads(capsys.readouterr().out.splitlines()[-1])
    errors = {row["error"] for row in (*printed["rows"], *printed["generations"])}
    assert errors <= {"", "needs a CUDA device"}
    assert {row["model"] for row in printed["rows"]} == {
        "bert-128",
        "bert-512",
        "resnet50",
        "gpt2",
        "minilm",
    }
    assert len(printed["generations"]) == 6
    assert printed["traffic"]["error"] == ""
