"""Traces of traffic: read or drawn, scaled to a model, and what an ideal cache would find."""

import json
from itertools import pairwise
from pathlib import Path

import pytest

from ostinato.bench.offline.arrivals import Arrival, draw_window, fitted, read_window
from ostinato.bench.offline.prefixes import (
    PAGE,
    Shared,
    draw_shared,
    ideal_share,
    pages_needed,
    read_shared,
)
from ostinato.errors import UsageError

CHAT = "azure_llm_2023_conv.csv"
HEAD = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


def test_a_window_begins_with_the_first_request_and_is_in_order(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    file.write_text(
        HEAD
        + "2023-11-16 18:15:50.5000000,20,2\n"
        + "2023-11-16 18:15:48.2500000,10,1\n"
        + "2023-11-16 18:15:58.2500000,30,3\n"
    )
    assert read_window(file, 10.0) == [Arrival(0.0, 10, 1), Arrival(2.25, 20, 2)]


@pytest.mark.parametrize("text", ["", HEAD, "a,b\n1,2\n", HEAD + "yesterday,1,2\n"])
def test_what_is_no_trace_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "trace.csv"
    file.write_text(text)
    with pytest.raises(UsageError) as caught:
        read_window(file)
    assert caught.value.code == "OST4022"


def test_lengths_are_scaled_and_cut_to_the_model() -> None:
    arrivals = [Arrival(0.0, 1000, 900), Arrival(1.0, 4, 2)]
    assert fitted(arrivals, 512) == [Arrival(0.0, 256, 256), Arrival(1.0, 4, 2)]
    assert fitted(arrivals, 512, 0.1) == [Arrival(0.0, 100, 90), Arrival(1.0, 1, 1)]


def test_drawn_arrivals_come_as_often_as_in_the_chat_trace() -> None:
    drawn, said = draw_window(300.0)
    assert 1400 < len(drawn) < 1850
    assert all(a.at_s <= b.at_s for a, b in pairwise(drawn))
    assert "drawn" in said


def test_equal_blocks_are_equal_tokens_and_only_those() -> None:
    one, two = Shared((1, 2), 20, 1), Shared((1, 3), 32, 1)
    assert len(one.tokens(100)) == 20
    assert one.tokens(100)[:PAGE] == two.tokens(100)[:PAGE]
    assert one.tokens(100)[PAGE:] != two.tokens(100)[PAGE : PAGE + 4]


def test_an_ideal_cache_knows_a_block_only_behind_known_blocks() -> None:
    requests = [Shared((1, 2, 3), 48, 1), Shared((1, 2, 4), 48, 1), Shared((9, 2), 32, 1)]
    assert ideal_share(requests) == pytest.approx(2 / 8)
    assert pages_needed(requests) == 5 + 3 * 2


def test_a_file_of_blocks_is_divided_by_32(tmp_path: Path) -> None:
    file = tmp_path / "trace.jsonl"
    line = {"timestamp": 0, "input_length": 1030, "output_length": 64, "hash_ids": [5, 6, 7]}
    file.write_text(json.dumps(line) + "\n\n")
    assert read_shared(file) == [Shared((5, 6, 7), 33, 2)]


@pytest.mark.parametrize("text", ["", "{}\n", "no\n", '{"hash_ids": 3}\n'])
def test_what_is_no_file_of_blocks_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "trace.jsonl"
    file.write_text(text)
    with pytest.raises(UsageError) as caught:
        read_shared(file)
    assert caught.value.code == "OST4022"


def test_drawn_conversations_share_about_a_third() -> None:
    assert ideal_share(draw_shared(2000)) == pytest.approx(0.35, abs=0.03)


def test_the_real_traces_are_read_whole(shared: Path) -> None:
    traces = shared / "data" / "traces"
    window = read_window(traces / CHAT)
    assert len(window) == 1445
    talks = read_shared(traces / "mooncake_conversation.jsonl")
    assert len(talks) == 12031
    assert ideal_share(talks) == pytest.approx(0.366, abs=0.001)
