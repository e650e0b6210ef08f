"""`ostinato bench graphs`: this runtime beside eager, torch.compile and hand-written CUDA graphs.

The table and the claims go to stdout, one line of JSON last; what is being measured goes to stderr.
"""

from __future__ import annotations

import json
import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ostinato.cli.streaming import prepare_stdout, write_now

if TYPE_CHECKING:
    from ostinato.bench import GraphsResult

app = typer.Typer(no_args_is_help=True)


class DeviceName(StrEnum):
    """Where to run."""

    AUTO = "auto"
    CPU = "cpu"
    CUDA = "cuda"


@app.callback()
def bench() -> None:
    """Measure this runtime beside what people use today."""


@app.command()
def graphs(
    models: Annotated[
        str,
        typer.Option(
            help="Comma-separated: bert-128, bert-512, resnet50, gpt2, minilm, smollm2-decode, "
            "traffic. Default: all."
        ),
    ] = "",
    contenders: Annotated[
        str,
        typer.Option(
            help="Comma-separated: eager, compile, reduce-overhead, callables, raw, owned, leased, "
            "inside. Default: all."
        ),
    ] = "",
    device: Annotated[DeviceName, typer.Option(help="auto: a GPU if there is one.")] = (
        DeviceName.AUTO
    ),
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the result here, after every part.")
    ] = None,
    minilm: Annotated[
        Path | None, typer.Option(metavar="DIR", help="A folder with MiniLM's real weights.")
    ] = None,
    smollm2: Annotated[
        Path | None, typer.Option(metavar="DIR", help="A folder with SmolLM2's real weights.")
    ] = None,
    traffic: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="CSV with ContextTokens and GeneratedTokens, such as azure_llm_2023_conv.csv. "
            "Default: lengths drawn with its statistics.",
        ),
    ] = None,
    budget_s: Annotated[
        float | None,
        typer.Option(min=0, help="After so many seconds, what remains is reported as not run."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer rounds and requests.")] = False,
    tiny: Annotated[
        bool, typer.Option("--tiny", help="Toy sizes: to see that everything runs.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the line of JSON and nothing else on stdout.")
    ] = False,
) -> None:
    """Time every contender on every model, and judge each claim about speed."""
    prepare_stdout()
    # Before torch and transformers are imported: nothing here is to be looked for on a hub.
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from ostinato.bench import as_text, read_options, run_graphs, to_dict

    options = read_options(
        models,
        contenders,
        device=device.value,
        minilm=minilm,
        smollm2=smollm2,
        trace=traffic,
        budget_s=budget_s,
        is_quick=quick,
        is_tiny=tiny,
    )
    result = run_graphs(options, tell=_tell, save=lambda so_far: _save(so_far, out))
    if not as_json:
        write_now(as_text(result) + "\n\n")
    write_now(json.dumps(to_dict(result), allow_nan=False) + "\n")


def _tell(what: str) -> None:
    sys.stderr.write(f"{what}\n")
    sys.stderr.flush()


def _save(result: GraphsResult, out: Path | None) -> None:
    if out is None:
        return
    from ostinato.bench import to_dict

    out.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(to_dict(result), allow_nan=False, indent=1)
    # Whole or not at all: a run that is killed leaves the file of the part before.
    part = out.with_name(f"{out.name}.part")
    part.write_text(f"{text}\n", encoding="utf-8")
    part.replace(out)
