"""Find the fastest plans for decoding the benchmark's models on this GPU, within a few minutes.

    PYTHONPATH=src python3 benchmarks/tune_decode.py OUT.json [--seconds 150] [--quantize int8]
    PYTHONPATH=src python3 benchmarks/tune_decode.py OUT.json --ship

Every product and the attention of three models at each batch: the package's candidates, compiled
beforehand by several processes, compared with torch's products and attention, and timed as whole
steps of a few layers, recorded. What is known is in OUT.json after each trial, and a run goes on
where the last one was cut short. `--ship` puts the winners into the package's table, for layers of
these sizes on such a GPU; attention's are for reading, because its plans are rules
(`triton_plans.py`).

`--tiny` is a toy in float32, which Triton's interpreter can run on a CPU.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from ostinato.bench.decode.models import MODELS, TINY
from ostinato.llm.attention import SdpaAttention
from ostinato.llm.attention.triton_attention import TritonAttention
from ostinato.llm.attention.triton_plans import LONG, DecodePlans
from ostinato.llm.kernels.paged_decode import DecodePlan, Workspace
from ostinato.llm.kernels.paged_decode_few import FewRowsPlan
from ostinato.llm.kernels.tiled_rows import SplitRoom
from ostinato.llm.models import DecoderConfig, build
from ostinato.llm.models.fused import Fused, sizes_of
from ostinato.llm.models.fused_plans import LayerPlan, LayerPlans, plans_for
from ostinato.llm.models.llama import LlamaDecoder
from ostinato.llm.models.measuring import Bench, key_of, number_bytes_of
from ostinato.llm.models.plan_candidates import candidates
from ostinato.llm.models.plan_choice import ORDER, fastest, is_faster, merged
from ostinato.llm.models.plan_file import PACKAGED, keep_plans, plan_of, read_plans, written
from ostinato.measure import Spread

BATCHES = (32, 256, 8, 128, 1)
# Programs of attention on each processor, keys taken in at a time, warps, stages.
ATTENTION = (
    *((2, 64, 4, 5), (2, 64, 4, 3), (3, 64, 4, 4), (4, 32, 4, 4), (4, 64, 4, 3)),
    *((4, 32, 2, 5), (6, 32, 2, 5), (8, 32, 1, 4), (8, 32, 2, 3), (8, 16, 2, 4), (16, 16, 1, 4)),
    # A row's 192 keys or more as one piece: nothing is put together through memory.
    *((1, 256, 4, 2), (1, 128, 4, 3), (2, 128, 4, 2)),
)
# Where a few rows are attended by programs of their own: pieces of a row's keys, keys taken in at a
# time, warps.
FEW_ATTENTION = (
    (1, 256, 4),
    (1, 256, 8),
    (2, 128, 4),
    (2, 128, 2),
    (2, 256, 8),
    (4, 64, 2),
    (8, 32, 1),
)
FEW_ATTENDED = 32
_BYTES = 800e6
"""Weights of the layers that are timed: far more than the cache holds, or it would answer, and so
much that a step takes longer than the host to launch it."""
_VOCABULARY = 1024  # heads are no part of this
_COMPILING = 0.4  # of the time
_APART = 0.01
"""So far from torch's attention another is wrong; rounding to bfloat16 does a third of it."""


@dataclass
class Notes:
    """What is known, in a file after every trial.

    Attributes:
        earlier: The trials of earlier runs, which are not made again.
    """

    file: Path
    known: dict[str, Any]
    earlier: frozenset[str]

    @classmethod
    def at(cls, file: Path) -> Notes:
        """Read what an earlier run wrote, if one did."""
        known = {"trials": {}, "best": {}, "failed": {}}
        if file.is_file():
            known |= json.loads(file.read_text(encoding="utf-8"))
        return cls(file, known, frozenset(known["trials"]))

    def trial(self, name: str, run: Callable[[], Spread | None]) -> Spread | None:
        """Return what a trial gives, or gave in an earlier run; None if it cannot be made."""
        trials = self.known["trials"]
        if name not in self.earlier:
            trials[name] = None
            try:
                with self.failing(name):
                    spread = run()
                    trials[name] = None if spread is None else asdict(spread)
            finally:
                self.write()
        return None if trials[name] is None else Spread(**trials[name])

    @contextmanager
    def failing(self, name: str) -> Iterator[None]:
        """Let what fails cost itself alone, and note why; a device that has failed ends it all."""
        try:
            yield
        except Exception as error:
            self.known["failed"][name] = f"{error!r:.300}"
            if isinstance(error, torch.AcceleratorError):
                raise

    def write(self) -> None:
        """Write the file, whole or not at all."""
        part = self.file.with_name(f"{self.file.name}.part")
        part.write_text(json.dumps(self.known, indent=1) + "\n", encoding="utf-8")
        part.replace(self.file)


@dataclass(frozen=True)
class Tuned:
    """One model at one batch.

    Attributes:
        key: Under which the package's table has its plans.
    """

    name: str
    batch: int
    bench: Bench
    key: str
    most: int

    @property
    def start(self) -> LayerPlan:
        """Where the search begins."""
        return self.bench.fused.plans.fit(self.batch)

    def products(self) -> dict[str, list[Any]]:
        """Return what may compute each product."""
        decoder = self.bench.fused.decoder
        sizes, width = sizes_of(decoder.config), number_bytes_of(decoder)
        found = {
            each: list(candidates(getattr(sizes, each), self.batch, number_bytes=width))
            for each in ORDER
        }
        return {each: plans[: self.most] for each, plans in found.items()}

    def attentions(self) -> Iterator[DecodePlan | FewRowsPlan]:
        """Yield what may attend."""
        device = self.bench.fused.decoder.embedding.weight.device
        is_gpu = device.type == "cuda"
        count = torch.cuda.get_device_properties(device).multi_processor_count if is_gpu else 2
        for each, block, warps, stages in ATTENTION[: self.most] if self.batch > 4 else ():
            yield DecodePlan(each * count, block, warps, stages)
        few = FEW_ATTENTION[: self.most] if self.batch <= FEW_ATTENDED else ()
        for pieces, block, warps in few:
            yield FewRowsPlan(pieces, block, warps, long=LONG)

    def attending(self, plan: DecodePlan | FewRowsPlan) -> Bench:
        """Return a bench whose rows attend by a plan."""
        backend = self.bench.backend
        assert isinstance(backend, TritonAttention)
        shape, device = backend.shape, self.bench.fused.decoder.embedding.weight.device
        if isinstance(plan, DecodePlan):
            plans = DecodePlans((), (plan,), shape.heads)
        else:
            usual = backend.decode_plans
            plans = replace(usual, next_up_to=(self.batch,), next_plans=(plan,))
        programs = plans.programs
        room = Workspace.empty(2 * programs, programs, shape.group, shape.head_dim, device)
        return replace(self.bench, backend=replace(backend, decode_plans=plans, shared=room))

    def attended(self, bench: Bench) -> torch.Tensor:
        """Return the attention of one layer over random keys, rows of unequal length."""
        _, store = bench.step(self.start, self.batch)
        shape = self.bench.backend.shape  # type: ignore[attr-defined]
        device, chance = store.keys.device, torch.Generator(store.keys.device).manual_seed(1)
        each = (store.pages - 1) // self.batch
        q = torch.randn(
            self.batch, shape.heads, shape.head_dim, generator=chance, device=device
        ).to(store.keys.dtype)
        pages = torch.arange(1, store.pages, dtype=torch.int32, device=device).view(-1, each)
        lengths = torch.randint(
            0, each * store.page_tokens + 1, (self.batch,), generator=chance, device=device
        ).int()
        backend = bench.backend
        if not isinstance(backend, TritonAttention):
            return backend.decode(0, q, store, pages, lengths)
        if (
            device.type == "cuda"
        ):  # it reads lengths and pages before what writes them here has ended
            torch.cuda.synchronize(device)
        return backend.decode_next(0, q, store, pages, lengths)


def tuned(
    name: str,
    batch: int,
    device: torch.device,
    *,
    quantize: str,
    tiny: bool,
    layers: int | None,
) -> Tuned:
    """Build a few layers of a model, and what times them."""
    told = dict(TINY if tiny else MODELS[name])
    config, dtype = DecoderConfig.from_dict(told), torch.float32 if tiny else torch.bfloat16
    sizes = sizes_of(config)
    numbers = sum(
        each.inputs * each.outputs * (1 + each.in_pairs)
        for each in (sizes.qkv, sizes.out, sizes.gate_up, sizes.down)
    )
    width = dtype.itemsize if quantize == "none" else 1
    few = 1 if tiny else layers or min(max(math.ceil(_BYTES / numbers / width), 2), config.layers)
    told |= {"num_hidden_layers": few, "vocab_size": _VOCABULARY}
    cut = DecoderConfig.from_dict(told)
    decoder = build(cut, dtype=dtype, device=device, load="dummy", quantize=quantize)
    assert isinstance(decoder, LlamaDecoder)
    if decoder.fused is None and tiny:  # a CPU, where the interpreter runs the kernels
        room = SplitRoom.empty(device)
        plans = plans_for(sizes, is_quantised=quantize != "none")
        decoder.fused = Fused(decoder, plans, room, is_early=False)
    if decoder.fused is None:
        raise SystemExit(f"plans cannot be tuned here: {decoder.decode_path.why}")
    key = key_of(decoder, config.layers)
    plans = read_plans(PACKAGED, key) or decoder.fused.plans
    backend = TritonAttention.on(
        cut.attention, device=device, dtype=dtype, is_invariant=False, programs=5 if tiny else None
    )
    bench = Bench(replace(decoder.fused, plans=plans), backend, has_own_pages=True)
    if tiny:
        bench = replace(bench, rounds=1, replays=1)
    return Tuned(labelled(name, quantize), batch, bench, key, most=2 if tiny else 99)


def labelled(name: str, quantize: str) -> str:
    """Return a model's name in the notes."""
    return name if quantize == "none" else f"{name} in {quantize}"


def tune(work: Tuned, notes: Notes, is_over: Callable[[], bool]) -> None:
    """Find the fastest plans of one model at one batch; note them if time did not run out."""
    oracle = replace(work.bench, backend=SdpaAttention(work.bench.backend.shape, in_blocks=False))  # type: ignore[attr-defined]
    expected_NE = oracle.expected(work.batch)

    def timed(bench: Bench, plan: LayerPlan, about: str) -> Spread | None:
        words = f"{work.name}, {work.batch}, {about}: {json.dumps(written(plan))}"
        return notes.trial(words, lambda: bench.time(plan, work.batch, expected_NE))

    plan = fastest(
        work.start, work.products(), lambda each: timed(work.bench, each, "own"), is_over
    )
    if plan is None:
        return
    found: dict[str, Any] = {"plan": written(plan), "key": work.key, "attention": None}
    best = timed(work.bench, plan, "own")
    attended = work.attended(oracle).double()
    for each in work.attentions():
        if is_over():
            return
        name = f"{work.name}, {work.batch}, {each}"
        with notes.failing(name):
            bench = work.attending(each)
            off = float((work.attended(bench).double() - attended).norm() / attended.norm())
            if not off < _APART:  # no number is not less
                raise ValueError(f"{off} apart")
            taken = timed(bench, plan, str(each))
            if taken is not None and (best is None or is_faster(taken, best)):
                best, found["attention"] = taken, asdict(each)
    found["us"] = None if best is None else best.median_us
    found["before_us"] = getattr(timed(work.bench, work.start, "own"), "median_us", None)
    notes.known["best"][f"{work.name}, {work.batch}"] = found
    notes.write()


def compile_some(work: Tuned, part: int, parts: int) -> None:
    """Run some of the candidates once, so that they lie compiled on the disk for the trials."""
    products = [(name, plan) for name, plans in work.products().items() for plan in plans]
    steps: list[tuple[Bench, LayerPlan]] = [
        (work.bench, replace(work.start, **{name: plan})) for name, plan in products[part::parts]
    ]
    steps += [(work.attending(each), work.start) for each in list(work.attentions())[part::parts]]
    for bench, plan in steps:
        try:
            bench.step(plan, work.batch)[0]()
        except Exception as error:  # noqa: BLE001 -- a plan that cannot be is no plan; the others are tried
            sys.stderr.write(f"{work.name}, {work.batch}, {plan}: {error!r:.200}\n")


def compile_beforehand(given: argparse.Namespace, seconds: float) -> None:
    """Let several processes compile; end those that take too long, the rest is compiled later."""
    until = time.monotonic() + seconds
    asked = [given.out, "--models", given.models, "--batches", given.batches]
    asked += ["--quantize", given.quantize]
    started = [
        subprocess.Popen(
            [sys.executable, __file__, *map(str, asked), "--part", f"{part}/{given.workers}"]
        )
        for part in range(given.workers)
    ]
    for process in started:
        try:
            process.wait(max(until - time.monotonic(), 0))
        except subprocess.TimeoutExpired:
            process.terminate()
            process.wait()


def ship(notes: Notes, table: Path) -> None:
    """Put the winners into a table of plans, each in the place of the plan that served its batch.

    What serves other batches stays as it is, whether it was measured or follows from a rule.
    """
    won: dict[str, dict[int, LayerPlan]] = {}
    for name, found in notes.known["best"].items():
        batch = int(name.split(", ")[1])
        won.setdefault(found["key"], {})[batch] = plan_of(found["plan"])
    for key, best in won.items():
        before = read_plans(table, key) or LayerPlans((), (best[max(best)],))
        keep_plans(
            table, key, merged(best, sorted({*best, *before.up_to, *before.measured}), before)
        )


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=150)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--batches", default=",".join(map(str, BATCHES)))
    parser.add_argument("--quantize", default="none", choices=("none", "int8", "fp8"))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--workers", type=int, default=12, help="processes that compile")
    parser.add_argument("--part", default="", help=argparse.SUPPRESS)
    parser.add_argument("--ship", action="store_true", help="put the winners into the package")
    parser.add_argument("--table", type=Path, default=PACKAGED, help=argparse.SUPPRESS)
    parser.add_argument("--tiny", action="store_true")
    given = parser.parse_args(words)
    until = time.monotonic() + given.seconds
    notes, device = Notes.at(given.out), torch.device(given.device)
    if given.ship:
        ship(notes, given.table)
        return
    # What is asked for most first: each batch of all models, before the next batch of any.
    every = [
        (name, int(batch)) for batch in given.batches.split(",") for name in given.models.split(",")
    ]
    how = {"quantize": given.quantize, "tiny": given.tiny}
    if given.part:
        part, parts = map(int, given.part.split("/"))
        with torch.inference_mode():
            for name, batch in every:
                compile_some(tuned(name, batch, device, **how, layers=1), part, parts)
        return
    if given.workers and not given.tiny:
        compile_beforehand(given, given.seconds * _COMPILING)
    with torch.inference_mode():
        for name, batch in every:
            label = f"{labelled(name, given.quantize)}, {batch}"
            if time.monotonic() < until and label not in notes.known["best"]:
                sys.stderr.write(f"{label} rows\n")
                tune(
                    tuned(name, batch, device, **how, layers=None),
                    notes,
                    lambda: time.monotonic() >= until,
                )
    for name, found in notes.known["best"].items():
        sys.stdout.write(f"{name}: {found['us']} us, was {found['before_us']}\n")


if __name__ == "__main__":
    main()
