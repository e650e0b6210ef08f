"""Public names: few, in order, and each imported when it is first used."""

import subprocess
import sys

import pytest

import ostinato


def run(program: str) -> None:
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_public_names_are_these_in_order() -> None:
    assert ostinato.__all__ == [
        "Buckets",
        "CaptureError",
        "Decision",
        "InternalError",
        "LLM",
        "Lease",
        "OstinatoError",
        "OstinatoWarning",
        "Outcome",
        "Reason",
        "ResourceError",
        "SamplingParams",
        "StaleLease",
        "UsageError",
        "__version__",
        "accelerate",
        "graphed",
    ]
    assert sorted(ostinato.__all__) == ostinato.__all__


@pytest.mark.parametrize("name", ostinato.__all__)
def test_every_public_name_can_be_had(name: str) -> None:
    assert getattr(ostinato, name) is not None


def test_the_public_names_are_listed_before_they_are_used() -> None:
    run("import ostinato; assert set(ostinato.__all__) <= set(dir(ostinato))")


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'grafed'"):
        ostinato.grafed  # noqa: B018


@pytest.mark.parametrize(
    "statement",
    [
        "import ostinato",
        "import ostinato; ostinato.UsageError, ostinato.__version__",
        "import ostinato.explain as e; e.find('host-sync')",
        "import ostinato.units, ostinato.errors, ostinato.instruments",
        "import ostinato.prometheus",
        "import ostinato.cli",
        "import ostinato; ostinato.SamplingParams",
    ],
)
def test_it_does_not_import_torch(statement: str) -> None:
    run(f"import sys; {statement}; assert 'torch' not in sys.modules, 'torch was imported'")


def test_a_name_is_imported_only_once() -> None:
    run(
        "import ostinato; first = ostinato.UsageError; "
        "assert vars(ostinato)['UsageError'] is first is ostinato.UsageError"
    )


def test_importing_every_public_name_with_a_star_works() -> None:
    run("from ostinato import *; graphed, accelerate, Buckets, Reason")
