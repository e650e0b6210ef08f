"""Record the seeded programs on a GPU, into one file; `unpack` makes the committed evidence of it.

    PYTHONPATH=src:tests python3 tests/doctor/seeded/record.py OUT/seeded.json [NAME ...]
    PYTHONPATH=src:tests python3 tests/doctor/seeded/record.py --unpack OUT/seeded.json

Programs that need a GPU are recorded under their names, and some of the others a second time, as
they are on a GPU, with "on_gpu_" before the name.
"""

from __future__ import annotations

import gc
import json
import sys
import time
import traceback
import warnings
from dataclasses import replace
from pathlib import Path

import torch

from doctor.seeded.suite import EVIDENCE, Program, programs, watch_program
from ostinato.doctor.diagnose import diagnose
from ostinato.doctor.evidence import Evidence, from_json, to_json
from ostinato.doctor.watching import Choices

ALSO_ON_A_GPU = (
    "item_in_forward",
    "branch_on_a_tensor",
    "boolean_mask_in_forward",
    "stop_word_between_steps",
    "lock_over_a_read",
    "every_length_is_new",
    "weights_swapped_each_time",
    "steady_recording",
    "attention_as_it_should_be",
    "result_handed_out_once",
    "three_threads_of_python",
    "tokenizer_thread_holds_the_gil",
    "threads_that_wait_for_queues",
)


def record(target: Path, names: list[str]) -> None:
    """Watch each program once, or those named, and write everything after each."""
    recorded: dict[str, object] = {}
    torch.cuda.init()
    torch.ones(8, device="cuda").sum().item()
    for program in in_order():
        if names and program.name not in names:
            continue
        name = program.name if program.needs_gpu else f"on_gpu_{program.name}"
        began = time.perf_counter()
        try:
            evidence = watch_program(program, "cuda", Choices(profile=True, trials=True))
        except Exception:  # noqa: BLE001 - one that fails costs the others nothing
            recorded[name] = {"failed": traceback.format_exc()}
            print(f"FAILED {name}\n{traceback.format_exc()}", flush=True)  # noqa: T201
        else:
            recorded[name] = json.loads(to_json(small(evidence)))
            _say(program, name, evidence, time.perf_counter() - began)
        target.write_text(json.dumps(recorded), encoding="utf-8")
        gc.collect()
        torch.cuda.empty_cache()


def in_order() -> list[Program]:
    """Return what is to be recorded: what needs a GPU first, what compiles for long last."""
    wanted = [
        program
        for program in (*programs("planted"), *programs("healthy"))
        if program.needs_gpu or program.name in ALSO_ON_A_GPU
    ]
    return sorted(wanted, key=lambda each: ("overhead" in each.name, not each.needs_gpu))


def _say(program: Program, name: str, evidence: Evidence, took_s: float) -> None:
    findings = diagnose(evidence).findings
    codes = {finding.code for finding in findings}
    right = program.expect in codes if program.expect else not codes
    extra = codes - {program.expect, *program.companions}
    word = "ok" if right and not extra else "LOOK"
    print(f"{word} {name} expects {program.expect or 'nothing'}, {took_s:.1f} s", flush=True)  # noqa: T201
    for finding in findings:
        print(f"    {finding.code} {finding.fact} | {finding.place}", flush=True)  # noqa: T201
    for problem in evidence.problems:
        print(f"    problem: {problem}", flush=True)  # noqa: T201


def small(evidence: Evidence) -> Evidence:
    """Return the evidence without what no probe reads, and without this machine's paths."""
    text = to_json(
        replace(
            evidence,
            steps=evidence.steps[-96:],
            spans=(),
            stacks=(),
            waits=tuple(replace(wait, step_us=wait.step_us[-64:]) for wait in evidence.waits[:32]),
        )
    )
    root = str(Path(__file__).parents[3])
    return from_json(text.replace(root + "/", ""))


def unpack(source: Path) -> None:
    """Write one file of evidence for each program that was recorded."""
    EVIDENCE.mkdir(exist_ok=True)
    for name, document in json.loads(source.read_text(encoding="utf-8")).items():
        if "failed" not in document:
            text = to_json(from_json(json.dumps(document)))
            (EVIDENCE / f"{name}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    if sys.argv[1] == "--unpack":
        unpack(Path(sys.argv[2]))
    else:
        record(Path(sys.argv[1]), sys.argv[2:])
