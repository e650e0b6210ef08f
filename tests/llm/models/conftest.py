"""One tiny checkpoint per family, written once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
import transformers

from llm.models.tiny_folders import FAMILIES, FOREIGN, VOCABULARY, write


@dataclass(frozen=True)
class Family:
    name: str
    folder: Path
    theirs: transformers.PreTrainedModel

    @torch.inference_mode()
    def logits(self, ids: list[int]) -> torch.Tensor:
        """Return transformers' logits (T, V) for one whole sequence."""
        return self.theirs(torch.tensor([ids])).logits[0]


@pytest.fixture(scope="session", params=FAMILIES)
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Family:
    folder = tmp_path_factory.mktemp("family") / request.param
    return Family(request.param, folder, write(request.param, folder))


@pytest.fixture(scope="session", params=FOREIGN)
def foreign(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Family:
    """A family that the engine runs on transformers' code."""
    folder = tmp_path_factory.mktemp("foreign") / request.param
    return Family(request.param, folder, write(request.param, folder))


@pytest.fixture(scope="session")
def llama_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plain llama's folder; not to be changed."""
    folder = tmp_path_factory.mktemp("llama") / "tiny"
    write("llama", folder)
    return folder


def token_ids(count: int, seed: int) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, VOCABULARY, (count,), generator=generator).tolist()
