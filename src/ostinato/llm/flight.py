"""A plan that was launched and has not been read: who sat where, and what to wait for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ostinato.llm.resident_launch import Produced

if TYPE_CHECKING:
    import torch

    from ostinato.llm.reply import Reply
    from ostinato.llm.resident_launch import Launch


@dataclass(frozen=True, slots=True)
class Flight:
    """One plan under way.

    Attributes:
        launch: None if only prompts were prefilled.
        riders: Who sat in which row: rows may have changed hands when the launch is read.
        prefilled: Marks the end of a prefill on a GPU, lest the host run ahead of it.
    """

    launch: Launch | None
    riders: Mapping[int, Reply]
    prefilled: torch.cuda.Event | None = None

    def wait(self) -> Produced:
        """Wait for the launch, and return what each row gave."""
        if self.prefilled is not None:
            self.prefilled.synchronize()
        return Produced() if self.launch is None else self.launch.wait()
