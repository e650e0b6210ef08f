"""A tiny model, made once and copied for every test that breaks it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from checkpoints.tiny_models import write_tiny_llama


@pytest.fixture(scope="session")
def pristine_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A transformers folder of a tiny llama; not to be changed."""
    return write_tiny_llama(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def tiny_folder(pristine_folder: Path, tmp_path: Path) -> Path:
    """A copy of the tiny llama's folder that a test may break."""
    return shutil.copytree(pristine_folder, tmp_path / "tiny")
