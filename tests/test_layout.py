"""Layout: what import-linter cannot see of how the source is laid out."""

import ast
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "ostinato"
MODULES = sorted(SOURCE.rglob("*.py"))
VAGUE_NAMES = {"utils", "util", "common", "helpers", "helper", "misc", "manager"}


def name_of(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def test_there_are_modules_to_look_at() -> None:
    assert SOURCE / "errors.py" in MODULES


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_says_what_it_is_for(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert ast.get_docstring(tree), f"{name_of(path)} has no docstring"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_is_at_most_400_lines_and_not_named_for_nothing(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 400
    assert path.stem not in VAGUE_NAMES


def modules_that_say(pattern: str) -> set[str]:
    wanted = re.compile(pattern, re.MULTILINE)
    return {name_of(path) for path in MODULES if wanted.search(path.read_text(encoding="utf-8"))}


def test_there_is_one_door_to_cuda_graphs() -> None:
    doors = modules_that_say(r"^[^#\n]*\btorch\.cuda\.(CUDAGraph|graph)\(")
    # The benchmarks measure hand-written graphs, so they make their own.
    others = {door for door in doors if not door.startswith(("graphs/backends/cuda", "bench/"))}
    assert doors
    assert others == set()


def test_only_hf_and_what_stands_above_it_imports_transformers() -> None:
    importers = modules_that_say(r"^\s*(from|import) transformers\b")
    in_the_engine = {name for name in importers if name.startswith("llm/")}
    assert in_the_engine == {"llm/models/any_hf.py"}  # for models the engine has no code for
    others = {name.split("/")[0] for name in importers - in_the_engine}
    assert others <= {"hf", "bench", "cli", "checkpoints"}
