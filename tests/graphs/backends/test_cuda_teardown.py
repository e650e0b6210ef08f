"""What holds a collective ends before its process group does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch.distributed

from ostinato.graphs.backends.cuda_teardown import end_before_its_group


class Held:
    """Stands where a CUDA recording stands; says whether a group was alive when it ended."""

    def __init__(self) -> None:
        self.ended: list[bool] = []

    def release(self) -> None:
        self.ended.append(torch.distributed.is_initialized())


@pytest.fixture(autouse=True)
def _group(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    own = torch.distributed.destroy_process_group
    for module in (torch.distributed, torch.distributed.distributed_c10d):
        monkeypatch.setattr(module, "destroy_process_group", own)  # put back afterwards
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    if torch.distributed.is_initialized():
        own()


@pytest.mark.parametrize("module", [torch.distributed, torch.distributed.distributed_c10d])
def test_recordings_end_once_and_before_their_group(module: Any) -> None:
    held = [Held(), Held()]
    for each in held:
        end_before_its_group(each)  # type: ignore[arg-type]
    module.destroy_process_group()
    assert not torch.distributed.is_initialized()
    assert [each.ended for each in held] == [[True], [True]]


def test_the_function_is_wrapped_once_for_all_recordings() -> None:
    end_before_its_group(Held())  # type: ignore[arg-type]
    wrapped = torch.distributed.destroy_process_group
    end_before_its_group(Held())  # type: ignore[arg-type]
    assert torch.distributed.destroy_process_group is wrapped


def test_a_recording_that_was_dropped_is_not_kept_alive() -> None:
    held = Held()
    ended = held.ended
    end_before_its_group(held)  # type: ignore[arg-type]
    del held
    torch.distributed.destroy_process_group()
    assert ended == []
