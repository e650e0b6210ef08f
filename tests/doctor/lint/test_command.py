"""`ostinato lint`: formats, exit status, and what it needs to run."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from ostinato import cli
from ostinato.doctor.lint.baseline import read_baseline
from ostinato.errors import UsageError

WAITS = """\
from torch import Tensor, nn


class Net(nn.Module):
    def forward(self, x: Tensor):
        if x.any():
            x = x + 1
        return x[x > 0]
"""
QUIET = "def f(x):\n    return x\n"

# What of SARIF 2.1.0 this tool writes; nothing else may be there.
REGION = {
    "type": "object",
    "required": ["startLine"],
    "additionalProperties": False,
    "properties": {
        **{
            key: {"type": "integer", "minimum": 1}
            for key in ("startLine", "startColumn", "endLine", "endColumn")
        },
        "snippet": {"type": "object", "required": ["text"]},
    },
}
LOCATION = {
    "type": "object",
    "required": ["physicalLocation"],
    "additionalProperties": False,
    "properties": {
        "physicalLocation": {
            "type": "object",
            "required": ["artifactLocation"],
            "additionalProperties": False,
            "properties": {
                "artifactLocation": {
                    "type": "object",
                    "required": ["uri"],
                    "properties": {"uri": {"type": "string", "format": "uri-reference"}},
                },
                "region": REGION,
            },
        },
        "logicalLocations": {
            "type": "array",
            "items": {"required": ["fullyQualifiedName", "kind"]},
        },
    },
}
MESSAGE = {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}}
LEVEL = {"enum": ["none", "note", "warning", "error"]}
RULE = {
    "type": "object",
    "required": ["id", "name", "shortDescription", "fullDescription", "help", "helpUri"],
    "additionalProperties": False,
    "properties": {
        "id": {"type": "string", "pattern": "^OST[0-9]{3}$"},
        "name": {"type": "string", "pattern": "^[A-Z][A-Za-z]+$"},
        "shortDescription": MESSAGE,
        "fullDescription": MESSAGE,
        "help": MESSAGE,
        "helpUri": {"type": "string", "pattern": "^[a-z]+://.+/OST[0-9]{3}\\.md$"},
        "defaultConfiguration": {"properties": {"level": LEVEL}},
        "properties": {"type": "object"},
    },
}
RESULT = {
    "type": "object",
    "required": ["ruleId", "ruleIndex", "level", "message", "locations", "partialFingerprints"],
    "additionalProperties": False,
    "properties": {
        "ruleId": {"type": "string"},
        "ruleIndex": {"type": "integer", "minimum": 0},
        "level": LEVEL,
        "message": MESSAGE,
        "locations": {"type": "array", "minItems": 1, "items": LOCATION},
        "partialFingerprints": {"type": "object", "additionalProperties": {"type": "string"}},
    },
}
SARIF = {
    "type": "object",
    "required": ["version", "runs", "$schema"],
    "additionalProperties": False,
    "properties": {
        "$schema": {"type": "string"},
        "version": {"const": "2.1.0"},
        "runs": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["tool", "results"],
                "additionalProperties": False,
                "properties": {
                    "tool": {
                        "type": "object",
                        "required": ["driver"],
                        "properties": {
                            "driver": {
                                "type": "object",
                                "required": ["name", "version", "rules"],
                                "properties": {"rules": {"type": "array", "items": RULE}},
                            }
                        },
                    },
                    "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
                    "invocations": {
                        "type": "array",
                        "items": {
                            "required": ["executionSuccessful"],
                            "properties": {
                                "toolExecutionNotifications": {
                                    "items": {
                                        "required": ["message"],
                                        "properties": {
                                            "level": LEVEL,
                                            "message": MESSAGE,
                                            "locations": {"items": LOCATION},
                                        },
                                    }
                                }
                            },
                        },
                    },
                    "results": {"type": "array", "items": RESULT},
                },
            },
        },
    },
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "net.py").write_text(WAITS)
    (tmp_path / "quiet.py").write_text(QUIET)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as left:
        cli.main(["lint", *words])
    shown = capsys.readouterr()
    assert isinstance(left.value.code, int)
    return left.value.code, shown.out, shown.err


def test_findings_exit_1_and_are_named_with_their_place_and_remedy(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = run(capsys, "net.py")
    assert (status, err) == (1, "")
    assert "net.py:6:12: OST101 host-sync-in-step\n  code   x.any()  in Net.forward" in out
    assert "net.py:8:16: OST101" in out
    assert out.count("ostinato explain OST101") == 1
    assert out.endswith("2 findings in 1 file\n")


def test_no_findings_exit_0(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "quiet.py") == (0, "no findings in 1 file\n", "")
    assert run(capsys, "quiet.py", "--format", "json") == (0, "[]\n", "")
    assert run(capsys, "quiet.py", "--format", "github") == (0, "", "")


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("gone.py",),
        ("net.py", "--format", "xml"),
        ("net.py", "--select", "OST999"),
        ("net.py", "--baseline", "gone.json"),
        ("net.py", "--bogus"),
    ],
)
def test_bad_use_exits_2_and_says_so_on_stderr(
    words: tuple[str, ...], project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = run(capsys, *words)
    assert (status, out) == (2, "")
    assert err
    assert "Traceback" not in err


def test_json_is_a_list_of_findings(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, ".", "--format", "json")
    found: list[dict[str, Any]] = json.loads(out)
    assert status == 1
    assert [(one["code"], one["name"], one["path"]) for one in found] == [
        ("OST101", "host-sync-in-step", "net.py")
    ] * 2
    assert [(one["line"], one["column"]) for one in found] == [(6, 12), (8, 16)]
    assert found[0]["function"] == "Net.forward"
    assert found[0]["fact"]


def test_sarif_is_what_code_scanning_takes(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "a b.py").write_text("def broken(:\n")
    status, out, _ = run(capsys, ".", "--format", "sarif")
    log = json.loads(out)
    jsonschema.validate(log, SARIF)
    (only,) = log["runs"]
    assert status == 1
    rules = only["tool"]["driver"]["rules"]
    assert [rules[one["ruleIndex"]]["id"] for one in only["results"]] == ["OST101", "OST101"]
    assert len({one["partialFingerprints"]["ostinatoLint/v1"] for one in only["results"]}) == 2
    region = only["results"][0]["locations"][0]["physicalLocation"]["region"]
    assert (region["startLine"], region["startColumn"], region["endColumn"]) == (6, 12, 19)
    (note,) = only["invocations"][0]["toolExecutionNotifications"]
    assert note["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "a%20b.py"


def test_sarif_without_findings_is_whole_too(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, _ = run(capsys, "quiet.py", "--format", "sarif")
    jsonschema.validate(json.loads(out), SARIF)
    assert (status, json.loads(out)["runs"][0]["results"]) == (0, [])


def test_github_gets_one_annotation_a_line(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "100%.py").write_text(WAITS)
    _, out, _ = run(capsys, "100%.py", "--format", "github")
    first, second = out.splitlines()
    assert first.startswith(
        "::warning title=OST101 host-sync-in-step,file=100%25.py,line=6,endLine=6,col=12::x.any(): "
    )
    assert second.endswith("(ostinato explain OST101)")


def test_unread_files_are_told_of_and_exit_1(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "bad.py").write_text("x = 1\ndef broken(:\n")
    status, out, err = run(capsys, "quiet.py", "bad.py")
    assert (status, out) == (1, "no findings in 2 files; 1 file could not be read whole\n")
    assert err == "bad.py:2: not read: it is not Python: invalid syntax\n"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"version": "2.1.0", "runs": []}', "it is of version 2.1.0, and 1 is wanted"),
        ("[]", "TypeError: list indices must be integers or slices, not str"),
        ('{"version": 1}', "KeyError: 'findings'"),
    ],
)
def test_another_file_is_no_baseline_and_is_told_so_once(
    project: Path, content: str, said: str
) -> None:
    (project / "other.sarif").write_text(content, encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        read_baseline(project / "other.sarif")
    assert str(caught.value).startswith(
        f"OST7003: {project / 'other.sarif'} is no baseline: {said}\n"
    )
    assert str(caught.value).count("OST7003") == 2  # before its words, and where to read more


def test_a_baseline_is_written_then_used(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, ".", "--write-baseline", "known.json") == (
        0,
        "",
        "2 findings written to known.json\n",
    )
    assert run(capsys, ".", "--baseline", "known.json") == (
        0,
        "no findings in 2 files, 2 more in the baseline\n",
        "",
    )
    (project / "net.py").write_text(
        "\n\n" + WAITS + "\n    def other(self, x: Tensor):\n        pass\n"
    )
    assert run(capsys, "./net.py", "--baseline", "known.json")[0] == 0


def test_comments_without_use_are_reported_on_request(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "quiet.py").write_text("x = 1  # ostinato: ignore[OST101]\n")
    assert run(capsys, "quiet.py")[0] == 0
    status, _, err = run(capsys, "quiet.py", "--unused-ignores")
    assert (status, err) == (1, "quiet.py:1: nothing to ignore for OST101\n")


def test_options_choose_codes_and_paths(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, ".", "--ignore", "OST101")[0] == 0
    assert run(capsys, ".", "--select", "lock-across-wait")[0] == 0
    assert run(capsys, ".", "--exclude", "net.py")[0] == 0
    assert run(capsys, ".", "--select", "1")[0] == 1


def test_neither_torch_nor_what_is_linted_is_imported(project: Path) -> None:
    (project / "boom.py").write_text("raise SystemExit('imported')\n")
    program = (
        "import sys\n"
        "from ostinato.doctor.lint import lint\n"
        "assert len(lint(['.']).findings) == 2\n"
        "print(sorted({'torch', 'numpy', 'transformers', 'boom'} & set(sys.modules)))\n"
    )
    shown = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (shown.returncode, shown.stdout) == (0, "[]\n"), shown.stderr


def test_the_help_names_the_table_of_the_settings_and_what_stays_quiet() -> None:
    command = [sys.executable, "-m", "ostinato.cli", "lint", "--help"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    words = " ".join(shown.stdout.split())
    assert "pyproject.toml under [tool.ostinato.lint]." in words
    assert "taken for training and stays quiet" in words
    assert "ignore[OST101]" in words
