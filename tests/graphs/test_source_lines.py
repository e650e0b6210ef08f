"""Source lines: the line named is the user's, not torch's and not ours."""

from __future__ import annotations

import copy
import linecache
from typing import Any

import torch
from torch.distributions import Bernoulli

from ostinato.graphs import Reason, graphed
from ostinato.graphs.source_lines import raising_line, running_line


def test_the_running_line_shows_file_number_and_code() -> None:
    line = running_line()
    assert line is not None
    assert line.startswith("test_source_lines.py:")
    assert line.endswith("`line = running_line()`")


def test_code_without_a_file_is_named_by_its_number_alone() -> None:
    found: dict[str, Any] = {"ask": running_line}
    exec(compile("\nline = ask()", "<cell 3>", "exec"), found)
    assert found["line"] == "<cell 3>:2"


def test_a_long_line_is_cut() -> None:
    code = "line = ask()" + " " * 10 + "# " + "x" * 100
    linecache.cache["<cell 4>"] = (len(code), None, [code], "<cell 4>")
    found: dict[str, Any] = {"ask": running_line}
    exec(compile(code, "<cell 4>", "exec"), found)
    assert found["line"].endswith("xxx…`")
    assert len(found["line"]) < 120


def test_the_innermost_users_line_of_a_traceback_is_found_below_torch() -> None:
    try:
        torch.nn.functional.linear(torch.ones(2), torch.ones(3, 3))
    except RuntimeError as error:
        line = raising_line(error.__traceback__)
    assert line is not None
    assert "torch.nn.functional.linear(torch.ones(2), torch.ones(3, 3))" in line


def test_frames_of_the_standard_library_are_passed_over() -> None:
    try:
        copy.deepcopy(Raises())
    except ValueError as error:
        line = raising_line(error.__traceback__)
    assert line is not None
    assert "copy.py" not in line


class Raises:
    def __reduce_ex__(self, protocol: Any) -> str | tuple[Any, ...]:
        return (int, ("no number",))


def test_a_read_deep_inside_of_torch_is_named_beside_the_line_that_calls_it() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        return Bernoulli(logits=x, validate_args=True).log_prob(torch.zeros(2))

    g = graphed(step, admit_after=1, backend="tape")
    g(torch.ones(2))
    assert g.last is not None
    assert g.last.reason is Reason.HOST_SYNC
    assert "test_source_lines.py" in g.last.detail
    assert ".log_prob(torch.zeros(2))`" in g.last.detail
    assert ", in torch/distributions/" in g.last.detail


def test_a_read_that_the_line_shows_is_named_by_it_alone() -> None:
    class Reading(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * int(x.sum())

    g = graphed(Reading(), admit_after=1, backend="tape")
    g(torch.ones(2))
    assert g.last is not None
    assert "`return x * int(x.sum())`" in g.last.detail
    assert "in torch/" not in g.last.detail
