"""Traces: request lengths are read in order, or drawn with the statistics that are stated."""

from pathlib import Path

import pytest

from ostinato.bench.trace import Request, draw_trace, fit_to_context, read_trace
from ostinato.errors import UsageError

HEAD = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


def test_a_file_is_read_in_order(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    file.write_text(HEAD + "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50,396,109\n")
    assert read_trace(file) == [Request(374, 44), Request(396, 109)]


@pytest.mark.parametrize("text", ["", HEAD, "a,b\n1,2\n", HEAD + "t,many,3\n", HEAD + "t,3\n"])
def test_a_file_that_is_no_trace_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    file.write_text(text)
    with pytest.raises(UsageError, match="no trace of requests") as caught:
        read_trace(file)
    assert caught.value.code == "OST4022"


def test_drawn_lengths_have_the_stated_statistics() -> None:
    drawn = draw_trace(20000)
    for name, p50, p90, most in (("context", 1020, 2735, 14050), ("generated", 129, 424, 1000)):
        lengths = sorted(getattr(each, name) for each in drawn)
        assert lengths[0] >= 1
        assert lengths[-1] <= most
        assert lengths[len(lengths) // 2] == pytest.approx(p50, rel=0.05)
        assert lengths[len(lengths) * 9 // 10] == pytest.approx(p90, rel=0.05)


def test_a_seed_draws_the_same_again() -> None:
    assert draw_trace(5, seed=3) == draw_trace(5, seed=3) != draw_trace(5, seed=4)


def test_prompts_are_clipped_so_that_the_answer_fits_and_the_share_is_stated() -> None:
    fitted, how = fit_to_context([Request(100, 20), Request(90, 10), Request(5, 900)], 110)
    assert fitted == [Request(90, 20), Request(90, 10), Request(5, 55)]
    assert how == "33.3% of the prompts clipped to 110 positions"


def test_lengths_are_scaled_before_they_are_clipped() -> None:
    fitted, how = fit_to_context([Request(1000, 160), Request(2, 2)], 256, scale=1 / 16)
    assert fitted == [Request(62, 10), Request(1, 1)]
    assert how.startswith("lengths x 0.0625, then 0.0% ")


def test_the_shared_trace_has_the_statistics_that_drawing_states(shared: Path) -> None:
    requests = read_trace(shared / "data" / "traces" / "azure_llm_2023_conv.csv")
    context = sorted(each.context for each in requests)
    generated = sorted(each.generated for each in requests)
    middle, tenth = len(requests) // 2, len(requests) * 9 // 10
    assert (context[middle], context[tenth], context[-1]) == (1020, 2735, 14050)
    assert (generated[middle], generated[tenth], generated[-1]) == (129, 424, 1000)
