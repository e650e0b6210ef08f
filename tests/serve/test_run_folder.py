"""A service's sockets have paths that the system takes, wherever its temporary files lie."""

from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path

import pytest

from ostinato.errors import ResourceError
from ostinato.serve import run_folder as module
from ostinato.serve.run_folder import run_folder
from serve.processes import served

LONGEST = "callable.4194304.metrics"


@pytest.fixture
def deep(tmp_path: Path) -> Path:
    """A folder whose path leaves no room for a socket's."""
    folder = tmp_path / ("deep" * 10) / ("deeper" * 10)
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def usual(monkeypatch: pytest.MonkeyPatch, deep: Path) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    return deep


def test_a_socket_of_the_longest_name_can_be_bound_where_temporary_files_lie_deep(
    usual: Path,
) -> None:
    with run_folder() as folder, socket.socket(socket.AF_UNIX) as one:
        one.bind(f"{folder}/{LONGEST}")
        assert not folder.startswith(str(usual))
    assert not os.path.exists(folder)


def test_temporary_files_lie_where_they_are_wanted_if_that_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        monkeypatch.setattr(tempfile, "tempdir", short)
        with run_folder() as folder:
            assert Path(folder).parent == Path(short)


def test_where_no_path_is_short_enough_that_is_said(
    usual: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_ELSEWHERE", str(tmp_path / "nowhere"))
    with pytest.raises(ResourceError, match="sockets leave room for") as caught, run_folder():
        pass
    assert caught.value.code == "OST6005"
    assert "TMPDIR" in caught.value.remedy


@pytest.mark.slow
def test_a_service_with_a_deep_folder_for_temporary_files_serves(
    tiny_chat: Path, deep: Path
) -> None:
    with served(tiny_chat, environment={"TMPDIR": str(deep)}) as service:
        assert service.http.get("/v1/models").status_code == 200
        assert service.stop() == 0
    assert not list(deep.iterdir())
