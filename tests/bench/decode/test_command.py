"""`ostinato bench decode`: the table, the line of JSON, and the comparison with an earlier run."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ostinato import cli
from ostinato.bench.decode import read_result


def run(capfd: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as exit_:
        cli.main(["bench", "decode", "--device", "cpu", *map(str, words)])
    shown = capfd.readouterr()
    return int(exit_.value.code or 0), shown.out, shown.err


@pytest.mark.slow
def test_every_row_is_measured_written_and_compared(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "decode.json"
    toy = ("--tiny", "--models", "smollm2-135m", "--batches", "1,3", "--out", out)
    code, shown, _ = run(capfd, *toy)
    assert code == 0
    result = json.loads(shown.splitlines()[-1])
    assert json.loads(out.read_text()) == result
    ours = [row for row in result["rows"] if row["engine"] == "ostinato"]
    assert [row["batch"] for row in ours] == [1, 3]
    assert all(row["tpot_ms"] > 0 and row["ttft_ms"] > 0 for row in ours)
    assert all(0 < row["submit_ms"] < row["ttft_ms"] for row in ours)
    assert {row["engine"] for row in result["rows"]} > {"ostinato", "transformers"}
    assert not any("error" in row for row in result["rows"])
    facts = result["models"]["smollm2-135m"]
    assert facts["read_bytes"] > 0
    assert (facts["path"], facts["why"]) == (
        "composable",
        "the fused kernels need a CUDA device, and the model is on cpu",
    )

    # What follows compares; measured once more, a busy machine would be within its own noise.
    again = [each for each in read_result(out).rows if each.engine == "ostinato"]
    monkeypatch.setattr("ostinato.bench.decode.run.measure_ours", lambda *_, **__: iter(again))
    ours = [{**row, "tpot_iqr_ms": 0, "ttft_iqr_ms": 0} for row in ours]
    again = [replace(row, tpot_iqr_ms=0.0, ttft_iqr_ms=0.0) for row in again]

    result["rows"] = [{**row, "tpot_ms": 1e6, "ttft_ms": 1e6} for row in ours]
    out.write_text(json.dumps(result))
    code, _, err = run(capfd, *toy[:-2], "--no-peers", "--compare", out)
    assert (code, "slower" in err) == (0, False)

    result["rows"] = [{**row, "tpot_ms": row["tpot_ms"] / 1e3} for row in ours]
    out.write_text(json.dumps(result))
    code, _, err = run(capfd, *toy[:-2], "--no-peers", "--compare", out)
    assert code == 2
    assert err.splitlines()[-3].startswith("OST4025: ")
    assert "slower than before: smollm2-135m, batch 1: tpot_ms" in err


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--models", "gpt5"), "OST4021"),
        (("--batches", "0"), "OST4021"),
        (("--batches", "one"), "OST4021"),
        (("--batches", ""), "OST4021"),
        (("--compare", __file__), "OST4024"),
        (("--compare", "nowhere.json"), "OST4003"),
    ],
)
def test_what_cannot_be_measured_is_told_at_once(
    words: tuple[str, ...], code: str, capfd: pytest.CaptureFixture[str]
) -> None:
    status, out, err = run(capfd, *words)
    assert (status, out) == (2, "")
    assert err.startswith(f"{code}: ")
