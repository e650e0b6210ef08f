"""Quieting: comments, baselines and settings, and how a finding is known again."""

import json
from pathlib import Path

import pytest

from ostinato.doctor.catalog import RULES
from ostinato.doctor.lint import CODES, LintFinding, Settings, combined, lint, read_settings
from ostinato.doctor.lint.baseline import read_baseline, write_baseline
from ostinato.doctor.lint.ignores import ignores_in
from ostinato.doctor.lint.settings import codes_named
from ostinato.errors import UsageError

HEAD = (
    "from torch import Tensor, nn\n\n\nclass Net(nn.Module):\n    def forward(self, x: Tensor):\n"
)


def write(folder: Path, *body: str, head: str = HEAD) -> Path:
    file = folder / "net.py"
    file.write_text(head + "".join(f"        {line}\n" for line in body))
    return file


def lines(file: Path, settings: Settings | None = None) -> list[int]:
    return [one.line for one in lint([file], settings or Settings()).findings]


def test_a_comment_speaks_for_a_statement_of_several_lines(tmp_path: Path) -> None:
    file = write(
        tmp_path, "y = x[", "    x > 0", "]  # ostinato: ignore[OST101]", "return x.item()"
    )
    assert lines(file) == [9]


def test_a_comment_alone_speaks_for_the_next_line_of_code(tmp_path: Path) -> None:
    file = write(tmp_path, "# ostinato: ignore[101]", "", "# more", "y = x.item()", "z = x.item()")
    assert lines(file) == [10]


def test_a_text_that_looks_like_the_comment_is_none(tmp_path: Path) -> None:
    file = write(tmp_path, 'return x.item(), "# ostinato: ignore"')
    assert lines(file) == [6]


def test_comments_that_silence_nothing_are_told_of(tmp_path: Path) -> None:
    file = write(tmp_path, "y = x.item()  # ostinato: ignore", "return y  # ostinato: ignore[502]")
    result = lint([file], Settings())
    assert [(one.line, one.codes) for one in result.unused] == [(7, ("502",))]


def test_several_codes_stand_in_one_comment() -> None:
    (ignore,) = ignores_in("x = 1  # noqa # ostinato: ignore[OST101, lock-across-wait 503]\n")
    assert [ignore.silences(f"OST{code}") for code in (101, 502, 503, 104)] == [
        True,
        True,
        True,
        False,
    ]


def test_a_baseline_holds_back_what_is_known_though_lines_moved(tmp_path: Path) -> None:
    file = write(tmp_path, "y = x.item()", "return y")
    baseline = tmp_path / "known.json"
    write_baseline(baseline, lint([file], Settings()).findings)
    file.write_text("import os\n\n" + file.read_text() + "        x.tolist()\n")
    file.write_text(file.read_text().replace("return y", "z = x.item()"))
    result = lint([file], Settings(baseline=baseline))
    # The second x.item() is a new one, though it reads like the first.
    assert [(one.line, one.expression) for one in result.findings] == [
        (9, "x.item()"),
        (10, "x.tolist()"),
    ]
    assert result.known == 1


def test_a_baseline_can_be_read_and_holds_no_lines(tmp_path: Path) -> None:
    file = write(tmp_path, "return x.item()")
    write_baseline(tmp_path / "known.json", lint([file], Settings()).findings)
    (entry,) = json.loads((tmp_path / "known.json").read_text())["findings"]
    assert entry["code"] == "OST101"
    assert (entry["function"], entry["expression"]) == ("Net.forward", "x.item()")
    assert "line" not in entry


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"version": 2, "findings": []}', "\x00"])
def test_what_is_no_baseline_is_refused(content: str, tmp_path: Path) -> None:
    file = tmp_path / "known.json"
    file.write_text(content)
    with pytest.raises(UsageError, match="is no baseline") as caught:
        read_baseline(file)
    assert caught.value.code == "OST7003"
    with pytest.raises(UsageError, match="no such file"):
        read_baseline(tmp_path / "gone.json")


@pytest.mark.parametrize(
    ("word", "codes"),
    [
        ("OST101", {"OST101"}),
        ("ost101", {"OST101"}),
        ("101", {"OST101"}),
        ("host-sync-in-step", {"OST101"}),
        ("HOST_SYNC_IN_STEP", {"OST101"}),
        ("OST5", {"OST502", "OST503", "OST505"}),
        ("4", {"OST402"}),
        ("101,502", {"OST101", "OST502"}),
        ("OST701", set()),
        ("all", CODES),
    ],
)
def test_codes_are_named_in_many_ways(word: str, codes: set[str]) -> None:
    assert codes_named([word]) == codes


@pytest.mark.parametrize("word", ["OST999", "sync", "host", "OST", "10 1"])
def test_a_code_that_does_not_exist_is_refused(word: str) -> None:
    with pytest.raises(UsageError, match="no finding has the code or the name") as caught:
        codes_named([word])
    assert caught.value.code == "OST7001"


def test_select_and_ignore_choose_what_is_reported(tmp_path: Path) -> None:
    file = write(tmp_path, "return x.item()")
    assert lines(file, combined(Settings(), select=["OST1"])) == [6]
    assert lines(file, combined(Settings(), select=["502"])) == []
    assert lines(file, combined(Settings(), ignore=["host-sync-in-step"])) == []


def section(folder: Path, text: str) -> Path:
    (folder / "pyproject.toml").write_text(f"[tool.ostinato.lint]\n{text}\n")
    return folder


def test_settings_are_those_of_the_nearest_pyproject(tmp_path: Path) -> None:
    section(tmp_path, 'ignore = ["OST1"]\nexclude = ["old/*"]\nbaseline = "known.json"')
    inner = tmp_path / "src" / "deep"
    inner.mkdir(parents=True)
    settings = read_settings(inner)
    assert settings.codes == {code for code in CODES if not code.startswith("OST1")}
    assert settings.exclude == ("old/*",)
    assert settings.baseline == tmp_path.resolve() / "known.json"


def test_the_command_line_wins_over_the_file(tmp_path: Path) -> None:
    settings = read_settings(section(tmp_path, 'select = ["502"]'))
    assert settings.codes == {"OST502"}
    assert combined(settings, select=["101"]).codes == {"OST101"}


def test_codes_can_be_left_out_for_some_files(tmp_path: Path) -> None:
    section(tmp_path, '[tool.ostinato.lint.per-file-ignores]\n"scripts/*" = ["OST101"]')
    (tmp_path / "scripts").mkdir()
    write(tmp_path / "scripts", "return x.item()")
    file = write(tmp_path, "return x.item()")
    result = lint([tmp_path])
    assert [Path(one.path) for one in result.findings] == [file]


def test_no_settings_are_the_defaults(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.other]\nx = 1\n")
    assert read_settings(tmp_path) == Settings()


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("selct = []", "'selct', which is no setting"),
        ('select = "OST101"', "'OST101'"),
        ("ignore = [1]", "holds 1, which is no text"),
        ("select = [", "is not TOML"),
        ("baseline = 3", "3"),
    ],
)
def test_settings_that_are_not_understood_are_refused(text: str, fact: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=fact) as caught:
        read_settings(section(tmp_path, text))
    assert caught.value.code == "OST7002"


def test_the_catalogue_knows_every_code_of_the_lint() -> None:
    assert set(RULES) >= CODES


def test_a_finding_says_where_it_ends_and_counts_characters(tmp_path: Path) -> None:
    file = write(tmp_path, 'é = "ü"; y = x.item()')
    (finding,) = lint([file], Settings()).findings
    assert isinstance(finding, LintFinding)
    assert (finding.line, finding.column, finding.end_line, finding.end_column) == (6, 22, 6, 30)
    assert finding.expression == "x.item()"
