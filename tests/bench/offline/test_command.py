"""`ostinato bench offline`: traffic on a toy model, both parts."""

import json
from pathlib import Path

import pytest

from ostinato import cli
from ostinato.bench.claims import Verdict
from ostinato.bench.offline.results import (
    Answered,
    Objective,
    OfflineResult,
    PrefixesRow,
    claims_of,
    percentiles,
)


def run(capfd: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as exit_:
        cli.main(["bench", "offline", "--device", "cpu", *map(str, words)])
    shown = capfd.readouterr()
    return int(exit_.value.code or 0), shown.out, shown.err


@pytest.mark.slow
def test_both_parts_run_on_toys(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "offline.json"
    code, shown, _ = run(capfd, "--tiny", "--out", out)
    assert code == 0
    result = json.loads(shown.splitlines()[-1])
    assert json.loads(out.read_text()) == result
    arrivals, prefixes = result["arrivals"], result["prefixes"]
    assert arrivals["error"] == prefixes["error"] == ""
    assert 0 < arrivals["goodput_tok_s"] <= arrivals["tok_s"]
    assert set(arrivals["tpot_s"]) == {"p50", "p90", "p99"}
    # Sixty short conversations, eight at a time: some beginnings are not there in time.
    assert 0.2 < prefixes["hit"] <= prefixes["ideal"] + 0.02
    assert result["claims"] == []


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--parts", "serving"), "OST4021"),
        (("--model", "gpt5"), "OST4021"),
        (("--tiny", "--parts", "arrivals", "--arrivals", __file__), "OST4022"),
        (("--tiny", "--parts", "prefixes", "--prefixes", __file__), "OST4022"),
    ],
)
def test_what_cannot_be_measured_is_told(
    words: tuple[str, ...], code: str, capfd: pytest.CaptureFixture[str]
) -> None:
    status, out, err = run(capfd, *words)
    assert (status, out) == (2, "")
    assert f"{code}: " in err


def test_percentiles_are_values_that_were_seen() -> None:
    assert percentiles([]) == {}
    assert percentiles([3.0]) == {"p50": 3.0, "p90": 3.0, "p99": 3.0}
    assert percentiles([float(n) for n in range(1, 101)]) == {"p50": 50, "p90": 90, "p99": 99}


def test_a_request_is_good_if_it_keeps_both_objectives() -> None:
    wanted = Objective(ttft_s=1.0, tpot_s=0.05)
    assert Answered(5, 1.0, 0.05).keeps(wanted)
    assert Answered(1, 0.2, None).keeps(wanted)
    assert not Answered(5, 1.1, 0.01).keeps(wanted)
    assert not Answered(5, 0.1, 0.06).keeps(wanted)


@pytest.mark.parametrize(
    ("hit", "verdict"), [(0.347, Verdict.MET), (0.345, Verdict.NOT_MET), (0.39, Verdict.NOT_MET)]
)
def test_the_prefix_cache_is_judged_by_points_from_the_ideal(hit: float, verdict: Verdict) -> None:
    row = PrefixesRow("m", "t", 1, ideal=0.366, hit=hit)
    assert [claim.verdict for claim in claims_of(OfflineResult({}, prefixes=row))] == [verdict]
