"""The cache: an entry is there whole or not at all, whoever builds it and however that ends."""

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from ostinato.checkpoints.cache import MANIFEST, cache_root, cached, is_whole
from ostinato.errors import ResourceError

KEY = "entry-r1"


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OSTINATO_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def write_two(folder: Path) -> None:
    (folder / "a").write_text("alpha")
    (folder / "b").write_text("beta")


def never(folder: Path) -> None:
    raise AssertionError("built again")


def test_the_first_call_builds_and_the_second_finds(root: Path) -> None:
    assert cached(KEY, write_two, 0) == root / KEY
    assert (cached(KEY, never, 0) / "b").read_text() == "beta"


def test_a_build_that_fails_leaves_nothing_behind_and_can_be_tried_again(root: Path) -> None:
    def fail(folder: Path) -> None:
        write_two(folder)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cached(KEY, fail, 0)
    assert [path.name for path in root.iterdir()] == [f".{KEY}.lock"]
    assert is_whole(cached(KEY, write_two, 0))


@pytest.mark.parametrize("damage", ["lost", "short", "flipped", "unlisted", "of old"])
def test_an_entry_that_is_not_whole_is_built_again(root: Path, damage: str) -> None:
    entry = cached(KEY, write_two, 0)
    if damage == "lost":
        (entry / "a").unlink()
    elif damage == "short":
        (entry / "a").write_text("alp")
    elif damage == "flipped":
        (entry / "a").write_text("alphA")
    elif damage == "of old":  # sizes alone
        (entry / MANIFEST).write_text('{"files": {"a": 5, "b": 4}}')
    else:
        (entry / MANIFEST).write_text("{}")
    assert not is_whole(entry)
    cached(KEY, write_two, 0)
    assert (entry / "a").read_text() == "alpha"
    assert is_whole(entry)


def test_that_an_entry_is_damaged_is_said_and_that_it_is_absent_is_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    entry = cached(KEY, write_two, 0)
    cached(KEY, never, 0)
    assert caplog.messages == []
    (entry / "b").write_text("bet_")
    cached(KEY, write_two, 0)
    assert caplog.messages == [f"{entry} is damaged: it is made again"]


def test_a_builder_that_was_killed_leaves_no_entry_and_its_rest_is_removed(root: Path) -> None:
    program = """
        import time
        from ostinato.checkpoints.cache import cached
        def build(folder):
            (folder / "a").write_text("half")
            print("begun", flush=True)
            time.sleep(60)
        cached("entry-r1", build, 0)
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as builder:
        assert builder.stdout is not None
        assert builder.stdout.readline() == "begun\n"
        builder.send_signal(signal.SIGKILL)
    assert not (root / KEY).exists()
    assert len(list(root.glob(f".{KEY}.partial-*"))) == 1
    cached(KEY, write_two, 0)
    assert list(root.glob(f".{KEY}.partial-*")) == []


def _build_slowly(root: str, begun: str) -> None:
    os.environ["OSTINATO_CACHE"] = root

    def build(folder: Path) -> None:
        with Path(begun).open("a") as file:
            file.write("x")
        write_two(folder)
        time.sleep(0.3)

    assert is_whole(cached(KEY, build, 0))


def test_processes_that_want_the_same_entry_at_once_build_it_once(
    root: Path, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    context = multiprocessing.get_context("spawn")
    arguments = (str(root), str(begun))
    builders = [context.Process(target=_build_slowly, args=arguments) for _ in range(3)]
    for builder in builders:
        builder.start()
    for builder in builders:
        builder.join(600)
    assert [builder.exitcode for builder in builders] == [0, 0, 0]
    assert begun.read_text() == "x"


def test_an_entry_can_be_read_by_those_who_may_read_the_cache() -> None:
    assert cached(KEY, write_two, 0).stat().st_mode & 0o055 == 0o055


def test_too_little_disk_space_is_told_before_anything_is_built(root: Path) -> None:
    with pytest.raises(ResourceError, match=r"of free disk space, and 1024\.0 TiB are") as caught:
        cached(KEY, never, 1 << 50)
    assert caught.value.code == "OST2012"
    assert "OSTINATO_CACHE" in caught.value.remedy


def test_a_cache_that_cannot_be_written_is_one_clear_error(root: Path) -> None:
    root.write_text("a file where the folder should be")
    with pytest.raises(ResourceError, match="cannot be used") as caught:
        cached(KEY, write_two, 0)
    assert caught.value.code == "OST2012"


def test_the_folder_is_the_one_that_the_environment_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_root() == tmp_path / "cache"
    monkeypatch.delenv("OSTINATO_CACHE")
    assert cache_root() == tmp_path / "xdg" / "ostinato"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_root() == tmp_path / "home" / ".cache" / "ostinato"
