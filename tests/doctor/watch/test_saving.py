"""What is written on the way is what is written at the end, and little of it."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from ostinato.doctor.evidence import Evidence, Span, from_json, to_json
from ostinato.doctor.plain import to_plain
from ostinato.doctor.watching import Choices, Watch

RECORDED = sorted((Path(__file__).parents[1] / "seeded" / "evidence").glob("*.json"))


def test_evidence_is_written_word_for_word_as_plain_values_are() -> None:
    assert len(RECORDED) > 20
    for path in RECORDED:
        evidence = from_json(path.read_text("utf-8"))
        assert to_json(evidence) == json.dumps(to_plain(evidence), ensure_ascii=False)


def test_what_json_has_no_word_for_is_refused() -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        to_json(Evidence(spans=(Span("step", "Linear", 0.0, math.nan),)))
    with pytest.raises(TypeError, match="evidence holds something of type PosixPath"):
        to_json(replace(Evidence(), problems=(Path("x"),)))  # type: ignore[arg-type]


def test_a_save_on_the_way_has_a_short_timeline_of_the_latest_and_the_end_has_all() -> None:
    with Watch(choices=Choices(sample=False, ranges=False)) as watch, torch.inference_mode():
        layer, x = nn.Linear(2, 2), torch.ones(1, 2)
        for _ in range(1200):
            layer(x)
        on_the_way = watch.so_far()
    assert (len(on_the_way.spans), on_the_way.steps_seen) == (500, 1200)
    all_of_them = watch.evidence.spans
    since = all_of_them.index(on_the_way.spans[0])  # a collection of garbage is a span too
    assert since >= 700
    assert on_the_way.spans == all_of_them[since : since + 500]


class Counted(nn.Module):
    """Has hooks, and one layer that was compiled."""

    def __init__(self) -> None:
        super().__init__()
        self.plain, self.compiled = nn.Linear(2, 2), nn.Linear(2, 2)
        self.heard: list[str] = []
        self.plain.register_forward_hook(lambda *_: self.heard.append("plain"))
        call: Any = self.compiled._call_impl
        self.compiled._compiled_call_impl = lambda x: (self.heard.append("compiled"), call(x))[1]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.compiled(self.plain(x))


def test_modules_within_a_step_are_called_with_all_that_torch_does_for_a_call() -> None:
    model, x = Counted(), torch.ones(1, 2)
    expected = model(x)
    model.heard.clear()
    with Watch(choices=Choices(sample=False)) as watch:
        assert torch.equal(model(x), expected)
        with watch.step():
            model.plain(x)
    assert model.heard == ["plain", "compiled", "plain"]


def test_one_who_stands_before_modules_already_is_called_within_a_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original, called = nn.Module.__call__, []

    def noting(module: nn.Module, *args: object) -> object:
        called.append(type(module).__name__)
        return original(module, *args)

    monkeypatch.setattr(nn.Module, "__call__", noting)
    with Watch(choices=Choices(sample=False)):
        nn.Sequential(nn.Identity())(torch.ones(1))
    assert called == ["Sequential", "Identity"]


class Calling(nn.Module):
    """Calls modules in the three ways that torch.compile follows through `Module.__call__`."""

    class Own(nn.Linear):
        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return super().__call__(x)  # type: ignore[no-any-return]

    def __init__(self) -> None:
        super().__init__()
        self.own, self.plain = self.Own(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.Module.__call__(self.plain, self.own(x)) + self.plain.__call__(x)


@pytest.mark.slow
def test_what_is_compiled_within_a_watch_is_compiled_once_and_goes_on_after_it() -> None:
    torch._dynamo.reset()
    model, x, graphs = Calling(), torch.ones(2, 4), []

    def backend(graph: Any, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    expected = model(x)
    with Watch(choices=Choices(sample=False)) as watch:
        compiled = torch.compile(model, backend=backend, fullgraph=True)
        for _ in range(3):
            assert torch.equal(compiled(x), expected)
    assert len(graphs) == 1
    assert watch.evidence.steps_seen == 3
    assert torch.equal(compiled(x), expected)
    assert watch.evidence.steps_seen == 3
    torch._dynamo.reset()
