"""`ostinato doctor host`: the machine under the program, and what is wrong with it.

Works without a GPU, without permissions and inside containers: what cannot be read is one line.
The report goes to stdout. The status is 0, whatever was found: a machine is not an error.
"""

from __future__ import annotations

import json as json_format
from pathlib import Path
from typing import Annotated

import typer

from ostinato.cli.streaming import prepare_stdout, write_now
from ostinato.errors import UsageError


def host_command(
    pid: Annotated[
        int | None,
        typer.Option(min=1, help="Also look at this process: its memory, CPUs and switches."),
    ] = None,
    load: Annotated[
        bool,
        typer.Option(
            "--load/--no-load",
            help="Copy and fill for two seconds a GPU: links and clocks at rest prove nothing.",
        ),
    ] = True,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one line of JSON: the evidence and the findings.")
    ] = False,
) -> None:
    """Look at CPUs, NUMA, PCIe, driver, clocks, MPS, container limits and huge pages."""
    prepare_stdout()
    from ostinato.doctor.collect.host import collect_host
    from ostinato.doctor.collect.host.words import as_text
    from ostinato.doctor.diagnose import diagnose
    from ostinato.doctor.evidence import Evidence, Subject
    from ostinato.doctor.plain import to_plain
    from ostinato.doctor.render.text import finding_text

    if pid is not None and not Path(f"/proc/{pid}").exists():
        raise UsageError(
            f"there is no process {pid} here",
            code="OST7053",
            remedy="name the number of a running process, as this container sees it",
        )
    host = collect_host(pid, under_load=load)
    device = host.gpus[0].name if host.gpus else ""
    evidence = Evidence(
        source="host",
        subject=Subject(title="this machine", accelerator=device, cpu=host.cpu),
        collected=("host",),
        host=host,
    )
    report = diagnose(evidence)
    if as_json:
        whole = {
            "version": 1,
            "host": to_plain(host),
            "findings": to_plain(report.findings),
            "abstentions": to_plain(report.abstentions),
        }
        write_now(json_format.dumps(whole, allow_nan=False) + "\n")
        return
    write_now(as_text(host))
    for finding in report.findings:
        write_now("\n" + finding_text(finding) + "\n")
    for each in report.abstentions:
        write_now(f"\n{each.code} {each.name}: not told, {each.why}\n  try    {each.settles_it}\n")
