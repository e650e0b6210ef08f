"""`ostinato bench plans`: measures once how a model's layers are best computed on this GPU."""

from __future__ import annotations

import json
import os
from enum import StrEnum
from typing import Annotated

import typer

from ostinato.cli.bench_options import AsJson, BudgetS, Device, numbers, tell, words
from ostinato.cli.run import DeviceName
from ostinato.cli.streaming import prepare_stdout, write_now


class Matrices(StrEnum):
    """How the layers' matrices are kept."""

    NONE = "none"
    INT8 = "int8"
    FP8 = "fp8"


def plans(
    models: Annotated[
        str,
        typer.Option(
            help="Comma-separated: llama3-8b, llama3.2-1b, smollm2-135m, or transformers folders. "
            "Default: the three."
        ),
    ] = "",
    quantize: Annotated[
        Matrices, typer.Option(help="How the layers' matrices are kept.")
    ] = Matrices.NONE,
    tokens: Annotated[
        str, typer.Option(help="Comma-separated numbers of tokens. Default: all that matter.")
    ] = "",
    device: Device = DeviceName.AUTO,
    again: Annotated[
        bool, typer.Option("--again", help="Measure what was measured before, too.")
    ] = False,
    budget_s: BudgetS = None,
    as_json: AsJson = False,
) -> None:
    """Measure once how models' layers are best computed on this GPU, for the engines to come."""
    prepare_stdout()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from ostinato.bench.decode import PlanOptions, plans_as_text, run_plans

    options = PlanOptions(
        models=words(models),
        quantize=quantize.value,
        tokens=numbers("tokens", tokens) if tokens else (),
        device=device.value,
        budget_s=budget_s,
        again=again,
    )
    result = run_plans(options, tell=tell)
    if not as_json:
        write_now(plans_as_text(result) + "\n\n")
    write_now(json.dumps(result, allow_nan=False) + "\n")
