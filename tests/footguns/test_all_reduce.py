"""Collectives inside a recording, and the end of their group (pytorch#115388: hang on exit)."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

# Every rank runs this; the last line is what it has to say. It must reach its end and leave.
PROGRAM = """
import os, sys, torch, torch.distributed as dist
import ostinato
from ostinato import Outcome

rank, world, backend, ending = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
device = torch.device("cpu" if backend == "gloo" else f"cuda:{rank}")
if backend == "nccl":
    torch.cuda.set_device(device)
dist.init_process_group(
    backend, init_method=f"file://{sys.argv[5]}", rank=rank, world_size=world,
    **({"device_id": device} if backend == "nccl" else {}),
)
warm = torch.ones(1, device=device)
dist.all_reduce(warm)  # the communicator exists before anything is recorded


def step(x):
    y = x * 2
    dist.all_reduce(y)
    return y + 1


g = ostinato.graphed(step, admit_after=1)
outcomes = []
with torch.no_grad():
    for number in range(6):
        x = torch.full((4,), float(number + rank), device=device)
        for graph in g._store.graphs():
            for made in graph.hand_out.made:
                made.zero_()
        y = g(x)
        wanted = sum(2.0 * (number + other) for other in range(world)) + 1
        assert y.tolist() == [wanted] * 4, (number, y.tolist(), wanted)
        outcomes.append(str(g.last))
if ending == "close-first":
    g.close()
    dist.destroy_process_group()
elif ending == "group-first":
    dist.destroy_process_group()
    g.close()
elif ending == "group-only":
    dist.destroy_process_group()
elif ending == "use-after":
    dist.destroy_process_group()
    try:
        g(torch.ones(4, device=device))
    except Exception as error:
        print("raised", type(error).__name__)
    else:
        # Whatever it did, a collective without a group cannot have been right for two ranks.
        assert world == 1, "a call after the end of its group answered"
    g.close()
print(outcomes[-1].split(" ")[0], flush=True)
"""


def run_ranks(world: int, backend: str, ending: str, folder: Path, limit_s: int) -> list[str]:
    """Run one process a rank; a rank that hangs is killed and the test fails."""
    program = folder / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    environment = dict(os.environ, OMP_NUM_THREADS="1", PYTHONPATH=os.pathsep.join(sys.path))
    ranks = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", str(program), str(rank), str(world), backend, ending,
             str(folder / "store")],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment,
        )
        for rank in range(world)
    ]  # fmt: skip
    said = []
    try:
        for rank in ranks:
            text, _ = rank.communicate(timeout=limit_s)
            assert rank.returncode == 0, text
            own = [line for line in text.strip().splitlines() if not line.startswith("[rank")]
            said.append(own[-1])  # torch itself speaks as [rank0]
    finally:
        for rank in ranks:
            if rank.poll() is None:
                rank.kill()
                rank.communicate()
    return said


ENDINGS = ["close-first", "group-first", "group-only", "nothing"]

needs_gloo = pytest.mark.skipif(
    not (torch.distributed.is_available() and torch.distributed.is_gloo_available()),
    reason="this torch has no gloo",
)


@needs_gloo
@pytest.mark.slow
@pytest.mark.parametrize(
    ("world", "ending"), [(1, "group-only"), (2, "close-first"), (2, "group-first")]
)
def test_an_all_reduce_on_cpus_is_right_and_every_rank_leaves(
    world: int, ending: str, tmp_path: Path
) -> None:
    said = run_ranks(world, "gloo", ending, tmp_path, limit_s=600)
    assert said == ["eager"] * world  # the host itself exchanges data, which no recording holds


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.parametrize("ending", [*ENDINGS, "use-after"])
def test_an_all_reduce_of_one_rank_on_a_gpu_ends_in_any_order(ending: str, tmp_path: Path) -> None:
    assert run_ranks(1, "nccl", ending, tmp_path, limit_s=120) == ["replayed"]


@pytest.mark.gpu2
@pytest.mark.slow
@pytest.mark.parametrize("ending", ENDINGS)
def test_an_all_reduce_across_two_gpus_is_right_and_both_ranks_leave(
    ending: str, tmp_path: Path
) -> None:
    assert run_ranks(2, "nccl", ending, tmp_path, limit_s=180) == ["replayed"] * 2
