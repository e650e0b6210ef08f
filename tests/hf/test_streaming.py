"""A streamer is given what the model's own `generate` would give it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from ostinato.hf import Answer, Delegated, accelerate

Make = Callable[..., Any]


class Recorder:
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def put(self, value: torch.Tensor) -> None:
        assert value.device.type == "cpu"
        self.seen.append(value.tolist())

    def end(self) -> None:
        self.seen.append("end")


@pytest.mark.parametrize("look_every", [None, 1, 3, 50])
@pytest.mark.parametrize("rows", [1, 2])
def test_a_streamer_sees_the_prompt_each_token_and_the_end(
    look_every: int | None, rows: int, device: torch.device, tiny: Make, prompt: Make
) -> None:
    model = tiny(device=device)
    inputs = prompt(rows, 9, device)
    end = int(model.generate(**inputs, max_new_tokens=20, eos_token_id=None)[0, 9 + 7])
    for eos in (None, end):
        ours, theirs = Recorder(), Recorder()
        with accelerate(model, eos_check_every=look_every) as fast:
            fast.generate(**inputs, max_new_tokens=12, eos_token_id=eos, streamer=ours)
            assert fast.last.outcome is not Answer.DELEGATED
        model.generate(**inputs, max_new_tokens=12, eos_token_id=eos, streamer=theirs)
        assert ours.seen == theirs.seen


def test_a_streamer_that_raises_leaves_the_next_call_right(tiny: Make, prompt: Make) -> None:
    class Broken(Recorder):
        def put(self, value: torch.Tensor) -> None:
            if len(self.seen) == 4:
                raise RuntimeError("the pipe is gone")
            super().put(value)

    model = tiny()
    with accelerate(model) as fast:
        with pytest.raises(RuntimeError, match="pipe"):
            fast.generate(**prompt(), max_new_tokens=12, streamer=Broken())
        ours = fast.generate(**prompt(), max_new_tokens=12)
        assert fast.last.outcome is not Answer.DELEGATED
    assert ours.tolist() == model.generate(**prompt(), max_new_tokens=12).tolist()


def test_a_streamer_that_generates_is_answered_by_the_model(tiny: Make, prompt: Make) -> None:
    model = tiny()
    inner: list[Any] = []

    class Nested(Recorder):
        def put(self, value: torch.Tensor) -> None:
            super().put(value)
            if len(self.seen) == 3:
                inner.append(fast.generate(**prompt(seed=8), max_new_tokens=5).tolist())
                inner.append(fast.last.reason)

    with accelerate(model) as fast:
        outer = fast.generate(**prompt(), max_new_tokens=12, streamer=Nested())
    assert inner[1] is Delegated.BUSY
    assert inner[0] == model.generate(**prompt(seed=8), max_new_tokens=5).tolist()
    assert outer.tolist() == model.generate(**prompt(), max_new_tokens=12).tolist()
