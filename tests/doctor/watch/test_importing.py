"""Importing what judges and prints must not wait for torch."""

import subprocess
import sys

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
