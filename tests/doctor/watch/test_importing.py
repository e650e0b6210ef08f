"""Importing what judges and prints must not wait for torch."""

import os
import subprocess
import sys
from pathlib import Path

PURE = (
    "ostinato.doctor",
    "ostinato.doctor.catalog",
    "ostinato.doctor.diagnose",
    "ostinato.doctor.evidence",
    "ostinato.doctor.render",
    "ostinato.doctor.render.html",
    "ostinato.doctor.supervise",
    "ostinato.cli.doctor",
)


def test_judging_and_printing_never_import_torch() -> None:
    code = f"import sys, {', '.join(PURE)}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_ctrl_c_while_a_command_is_imported_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise KeyboardInterrupt\n", encoding="utf-8")
    ended = subprocess.run(
        [sys.executable, "-m", "ostinato.cli", "explain", "OST101"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "ostinato: interrupted\n")
