"""The seeded programs of the doctor, read instead of run: most faults are seen, none is made up."""

import re
from functools import cache
from pathlib import Path

import pytest

from ostinato.doctor.lint import CODES, Settings, lint

SEEDED = Path(__file__).parent.parent / "seeded"
EXPECT = re.compile(r'^EXPECT = "(OST\d{3})"', re.MULTILINE)

pytestmark = pytest.mark.skipif(not SEEDED.is_dir(), reason="the seeded programs are not here")


@cache
def found(folder: str) -> dict[str, set[str]]:
    result = lint([SEEDED / folder], Settings(), processes=1)
    names = {Path(one.path).name for one in result.findings}
    return {
        name: {one.code for one in result.findings if Path(one.path).name == name} for name in names
    }


def test_nothing_is_found_in_the_healthy_programs() -> None:
    assert found("healthy") == {}


def test_four_of_five_faults_that_have_a_code_of_the_lint_are_found() -> None:
    planted = {
        path.name: code[1]
        for path in (SEEDED / "planted").glob("*.py")
        if (code := EXPECT.search(path.read_text(encoding="utf-8"))) and code[1] in CODES
    }
    seen = {name for name, code in planted.items() if code in found("planted").get(name, set())}
    assert len(planted) >= 20
    assert len(seen) >= 0.8 * len(planted), sorted(planted.keys() - seen)
