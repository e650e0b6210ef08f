"""On a machine that lacks a test's tool, the rest of the service's tests run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = (
    "grpc_health",
    "jsonschema_rs",
    "kubernetes_validate",
    "openai",
    "promql_parser",
    "schemathesis",
    "selenium",
    "tritonclient",
)
# Read by Python as it starts: from then on nobody finds them.
WITHOUT = f"""
import sys


class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {TOOLS}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)


sys.meta_path.insert(0, Hidden())
"""


@pytest.mark.slow
def test_what_needs_a_tool_that_is_not_there_is_skipped_and_says_so(
    tmp_path: Path, repository: Path
) -> None:
    (tmp_path / "hiding.py").write_text(WITHOUT, encoding="utf-8")
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    command = [sys.executable, "-m", "pytest", "-p", "hiding"]
    command += ["-p", "no:cacheprovider", "-p", "no:schemathesis"]
    done = subprocess.run(
        [*command, "--collect-only", "-q", "-rs", "tests/serve", "tests/deploy"],
        cwd=repository,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert "error" not in done.stdout.splitlines()[-1]
    assert "test_settings.py::" in done.stdout
    said = set(re.findall(r"needs ([\w-]+)$", done.stdout, re.MULTILINE))
    assert {"openai", "tritonclient", "promql-parser", "schemathesis"} <= said
