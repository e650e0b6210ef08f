"""Sources: which files are read, and what becomes of those that cannot be."""

import os
import socket
import tracemalloc
from pathlib import Path

import pytest

from ostinato.doctor.lint import Settings, files, lint
from ostinato.doctor.lint.facts import Problem
from ostinato.doctor.lint.sources import find_sources, read_text, walk
from ostinato.errors import UsageError

WAITS = """\
from torch import Tensor, nn


class Net(nn.Module):
    def forward(self, x: Tensor):
        return x.item()
"""


def names(*paths: Path, exclude: tuple[str, ...] = ()) -> list[str]:
    sources, _ = find_sources(paths, exclude)
    return [Path(source.path).name for source in sources]


def write(folder: Path, *files: str) -> None:
    for name in files:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x = 1\n")


def test_folders_are_walked_and_caches_hidden_and_virtual_environments_are_not(
    tmp_path: Path,
) -> None:
    write(tmp_path, "a.py", "pkg/b.py", "pkg/notes.txt", "pkg/c.ipynb", ".git/d.py")
    write(tmp_path, "__pycache__/e.py", "node_modules/f.py", "own/lib/g.py", "venv/h.py")
    (tmp_path / "own" / "pyvenv.cfg").touch()
    assert names(tmp_path) == ["a.py", "b.py"]


def test_a_file_that_is_named_is_read_whatever_it_is_called(tmp_path: Path) -> None:
    write(tmp_path, "script", ".hidden/x.py")
    assert names(tmp_path / "script", tmp_path / ".hidden" / "x.py") == ["x.py", "script"]


def test_a_file_is_read_once_however_often_it_is_named(tmp_path: Path) -> None:
    write(tmp_path, "a.py")
    (tmp_path / "link.py").symlink_to(tmp_path / "a.py")
    assert names(tmp_path, tmp_path / "a.py", tmp_path) == ["a.py"]


def test_links_that_lead_in_circles_or_nowhere_end(tmp_path: Path) -> None:
    write(tmp_path, "pkg/a.py")
    (tmp_path / "pkg" / "again").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "pkg" / "lost.py").symlink_to(tmp_path / "gone.py")
    (tmp_path / "self.py").symlink_to(tmp_path / "self.py")
    assert names(tmp_path) == ["a.py"]
    assert [Path(file).name for file in walk(tmp_path, (), [])] == ["a.py"]


def test_excluded_paths_are_passed_by(tmp_path: Path) -> None:
    write(tmp_path, "a.py", "old/b.py", "old/deep/c.py", "test_d.py")
    assert names(tmp_path, exclude=("old", "test_*.py")) == ["a.py"]
    assert names(tmp_path, exclude=("old/*",)) == ["a.py", "test_d.py"]


def test_a_path_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"there is nothing at .*gone") as caught:
        find_sources([tmp_path / "gone"])
    assert caught.value.code == "OST7000"


def test_a_link_to_itself_that_is_named_is_told_of_and_the_others_are_read(tmp_path: Path) -> None:
    write(tmp_path, "a.py")
    loop = tmp_path / "loop.py"
    loop.symlink_to(loop)
    result = lint([loop, tmp_path / "a.py"])  # its settings are looked for at the link
    assert [one.path for one in result.problems] == [str(loop)]
    assert "symbolic links" in result.problems[0].why
    assert result.files == 1


def test_only_files_are_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's path is short
    write(tmp_path, "folder.py/a.py")
    os.mkfifo("pipe.py")
    with socket.socket(socket.AF_UNIX) as one:
        one.bind("socket.py")
    (tmp_path / "link.py").symlink_to("pipe.py")
    named = [Path("pipe.py"), Path("socket.py"), Path("link.py"), Path("/dev/null")]
    sources, problems = find_sources([*named, Path("folder.py")])
    assert [Path(source.path).name for source in sources] == ["a.py"]
    why = "it is a pipe, a socket or a device, no file"
    assert problems == [Problem(str(path), 1, why) for path in named]
    assert names(tmp_path) == ["a.py"]


def test_the_module_is_named_by_the_packages_round_it(tmp_path: Path) -> None:
    write(tmp_path, "pkg/__init__.py", "pkg/sub/__init__.py", "pkg/sub/mod.py", "loose/x.py")
    sources, _ = find_sources([tmp_path])
    assert {source.module for source in sources} == {"pkg", "pkg.sub", "pkg.sub.mod", "x"}


def test_text_is_decoded_as_python_would(tmp_path: Path) -> None:
    file = tmp_path / "latin.py"
    file.write_bytes(b"# -*- coding: latin-1 -*-\nname = '\xe9'\r\n")
    assert read_text(str(file)) == "# -*- coding: latin-1 -*-\nname = 'é'\n"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"name = '\xff\xfe'\n", "its text cannot be decoded"),
        (b"# coding: no-such-code\n", "its text cannot be decoded"),
        (b"def broken(:\n    pass\n", "it is not Python: invalid syntax"),
        (b"x = 1\0\n", "it is not Python"),
        (b"print 'old'\n", "it is not Python"),
        (b"x = " + b"(" * 500 + b")" * 500, "it is "),
    ],
)
def test_a_file_that_cannot_be_read_is_told_of_and_the_others_are_read(
    tmp_path: Path, content: bytes, why: str
) -> None:
    (tmp_path / "bad.py").write_bytes(content)
    (tmp_path / "good.py").write_text(WAITS)
    result = lint([tmp_path], Settings())
    (problem,) = result.problems
    assert (Path(problem.path).name, problem.line) == ("bad.py", 1)
    assert problem.why.startswith(why)
    assert [one.line for one in result.findings] == [6]


def test_a_notebook_that_is_named_is_told_of(tmp_path: Path) -> None:
    (tmp_path / "a.ipynb").write_text("{}")
    _, problems = find_sources([tmp_path / "a.ipynb"])
    assert problems == [Problem(str(tmp_path / "a.ipynb"), 1, "notebooks are not read")]


def test_a_file_without_rights_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, _: str) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", refuse)
    assert read_text("x.py") == Problem("x.py", 1, "Permission denied")


@pytest.mark.parametrize(
    "source",
    [
        "x = " + "1 + " * 3000 + "1\n",
        "x = " + "-" * 900 + "1\n",
        "\n".join("    " * depth + "if x:" for depth in range(90)) + "\n" + "    " * 90 + "pass\n",
        "x = a" + ".b()" * 900 + "\n",
        "\n".join("    " * depth + f"def f{depth}(x):" for depth in range(80)) + " pass\n",
        "\n".join("    " * depth + "for x in y:" for depth in range(18)) + " x.item()\n",
    ],
    ids=["sum", "minus", "ifs", "chain", "functions", "loops"],
)
def test_deep_nesting_neither_crashes_nor_takes_for_ever(source: str, tmp_path: Path) -> None:
    (tmp_path / "deep.py").write_text("import torch\n" + source)
    result = lint([tmp_path], Settings())
    assert result.files == 1
    assert all("nested too deeply" in one.why or "not Python" in one.why for one in result.problems)


def test_a_function_too_deep_to_read_does_not_hide_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Python 3.12 itself parses no more than some 2900 arms, whatever the limit.
    monkeypatch.setattr(files, "_DEEP", 2000)
    arms = "".join(f"    elif x == {i}:\n        pass\n" for i in range(1500))
    deep = f"\n\ndef deep(x):\n    if x:\n        pass\n{arms}"
    (tmp_path / "deep.py").write_text(WAITS + deep)
    result = lint([tmp_path], Settings())
    assert [one.line for one in result.findings] == [6]
    assert [(one.line, one.why) for one in result.problems] == [
        (9, "deep is nested too deeply to be read")
    ]


def test_ten_thousand_lines_are_read_and_the_last_is_seen(tmp_path: Path) -> None:
    filler = "".join(f"def f{i}(x):\n    y = x + {i}\n    return y * 2\n\n" for i in range(2500))
    (tmp_path / "long.py").write_text(filler + WAITS)
    (finding,) = lint([tmp_path], Settings()).findings
    assert finding.line == 10_006


def test_an_empty_folder_holds_nothing(tmp_path: Path) -> None:
    result = lint([tmp_path], Settings())
    assert (result.files, result.findings, result.problems) == (0, (), ())


def test_two_processes_find_what_one_does(tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / f"m{number}.py").write_text(WAITS)
    (tmp_path / "bad.py").write_text("def broken(:\n")
    assert lint([tmp_path], Settings(), processes=2) == lint([tmp_path], Settings(), processes=1)


def test_a_file_that_is_no_source_by_its_size_is_not_read(tmp_path: Path) -> None:
    huge = tmp_path / "table.py"
    huge.touch()
    os.truncate(huge, 60_000_000)
    tracemalloc.start()
    try:
        problem = read_text(str(huge))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert problem == Problem(str(huge), 1, "60000000 bytes are more than a source file has")
    assert most < 1_000_000
