"""What a watch costs: the time of a step with it and without it, in short blocks that take turns.

    PYTHONPATH=src python3 benchmarks/watch_overhead.py [--out FILE] [--seconds 120]

Each program (`watch_programs.py`) runs in two processes (`watch_worker.py`), of which one is
watched as `ostinato doctor run` watches, from block to block: one that has just begun looks and
saves more often than ever after. A round is four short blocks that mirror each other, plain,
watched, watched, plain, and then the other way about: what drifts evenly meanwhile favours neither.
Whoever has no block sleeps, and the watch's clock stands still (`standing_clock.py`). Half-way the
two change places, for processes differ by more than a watch costs; a round of the first half and
one of the second make one ratio, from which that difference has gone.

The median over the rounds is what a watch costs, and an interval of 95 % (bootstrap) says how
surely: the claim, at most 3 % with the default choices, is borne out if all of the interval keeps
to it, refuted if none of it does, and open otherwise; then the rounds that may settle it are told.
Of a block the median step counts that was not looked at: whatever interrupts a few says nothing.
What is rare is added, in the mean over all rounds: what steps take more that are looked at, and
what the watch's own threads do. The first steps of a thread, which are all looked at, and rounds
within a watch's first second of steps are told apart and judge nothing.

On a GPU the time of the clock counts. On a CPU it is the time that the whole process had a CPU, and
blocks are as long by that time: what else the machine does is in neither. The file is written every
few seconds and so is worth reading when the run is cut short.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from math import sqrt
from pathlib import Path
from statistics import fmean, median
from time import perf_counter
from types import TracebackType
from typing import Any, Self

from ostinato.bench.paired import Interval, Standing, beyond, interval, mirrored, narrowing
from ostinato.device import default_device, describe
from ostinato.doctor.pace import ALL_OF_THE_FIRST
from ostinato.measure import Spread

MOST = 0.03
LEAD_S, BLOCK_S = 0.02, 0.12
"""Of a block: what does not count, and what does."""
EARLY_S = 1.0
"""Until then a watch saves more often; see `doctor/saving.py`."""
MOST_ROUNDS = 100
"""Of each half; more would narrow an interval little."""
WRITE_S = 5.0
"""So often the file is written, for drawing intervals takes a while."""
PROGRAMS = ("decode", "waits", "encoder")
PLAIN, WATCHED = "plain", "watched"
BY = "step_us"
RARE = ("looks_us", "sampling_us", "saving_us")
"""Of a block; see `watch_worker.Block`."""


class Process:
    """One worker, which does what it is told and then sleeps."""

    def __init__(self, name: str, size: str) -> None:
        script = Path(__file__).with_name("watch_worker.py")
        self._process = subprocess.Popen(
            [sys.executable, str(script), name, size],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def hear(self) -> dict[str, Any]:
        """Wait for its answer.

        Raises:
            RuntimeError: It has ended.
        """
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a worker ended with status {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def tell(self, **order: Any) -> dict[str, Any]:
        """Give an order, and wait for its answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return self.hear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()  # without orders it ends
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@dataclass(frozen=True, slots=True)
class Round:
    """Blocks of one round.

    Attributes:
        half: 0, or 1 once the processes have changed places.
        age_s: For how long blocks had run within the watch when the round began.
        blocks: What each kind's blocks gave; see `watch_worker.Block`.
    """

    half: int
    age_s: float
    blocks: dict[str, list[dict[str, float]]]

    def beyond(self, by: str) -> float:
        """Return what watched blocks took beyond plain ones, in each step."""
        of, base = ([each[by] for each in self.blocks[kind]] for kind in (WATCHED, PLAIN))
        return beyond(of, base)


def rarely(rounds: Sequence[Round], by: str) -> float:
    """Return what is not in each step, in the mean over all rounds, as a share of a plain one."""
    taken, whole = (
        [
            sum(block.get(name, 0.0) for name in names)
            for each in rounds
            for block in each.blocks[of]
        ]
        for of, names in ((WATCHED, RARE), (PLAIN, (by,)))
    )
    return fmean(taken) / fmean(whole)


@dataclass(slots=True)
class Program:
    """One program in two processes.

    Attributes:
        bound_by: What decides how long a step takes.
        lead, steps: Steps of a block that do not count, and that do.
        age_s: For how long blocks have run within the watch that is on.
        started_us, stopped_us: What that took, each time.
        first: The blocks of the steps that a watch begins with and looks at one by one.
    """

    name: str
    pair: tuple[Process, Process]
    bound_by: str = ""
    lead: int = 0
    steps: int = 0
    age_s: float = 0.0
    rounds: list[Round] = field(default_factory=list)
    started_us: list[float] = field(default_factory=list)
    stopped_us: list[float] = field(default_factory=list)
    first: list[dict[str, float]] = field(default_factory=list)

    def settle(self, scale: float) -> None:
        """Hear of both processes how long a step is, and choose the blocks."""
        told = [process.hear() for process in self.pair]
        step_us = min(each["step_us"] for each in told)
        self.bound_by = told[0]["bound_by"]
        self.lead, self.steps = (
            max(1, int(each * scale * 1e6 / step_us)) for each in (LEAD_S, BLOCK_S)
        )

    def watch(self, half: int, how: str) -> None:
        """Begin to watch one of the two, and let the steps pass that are all looked at."""
        watched = self.pair[1 - half]
        self.started_us.append(watched.tell(do="watch", how=how)["us"])
        self.first.append(watched.tell(do="block", lead=0, steps=ALL_OF_THE_FIRST))
        self.age_s = self.first[-1]["age_s"]

    def unwatch(self, half: int) -> None:
        """End that."""
        self.stopped_us.append(self.pair[1 - half].tell(do="unwatch")["us"])

    def a_round(self, number: int, half: int) -> None:
        """Run two blocks of each kind."""
        processes = {PLAIN: self.pair[half], WATCHED: self.pair[1 - half]}
        blocks: dict[str, list[dict[str, float]]] = {PLAIN: [], WATCHED: []}
        began_s = self.age_s
        for kind in mirrored((PLAIN, WATCHED), number):
            blocks[kind].append(processes[kind].tell(do="block", lead=self.lead, steps=self.steps))
        self.age_s = blocks[WATCHED][-1]["age_s"]
        self.rounds.append(Round(half, began_s, blocks))


def crossed(rounds: Sequence[Round], by: str) -> list[float]:
    """Return a ratio for each two rounds, one of either half: what processes differ by is out."""
    halves = [[each.beyond(by) for each in rounds if each.half == half] for half in (0, 1)]
    return [sqrt((1 + a) * (1 + b)) - 1 for a, b in zip(*halves, strict=False)]


def summary(program: Program, by: str, early_s: float) -> dict[str, Any]:
    """Return what the rounds of one program come to."""
    late = [each for each in program.rounds if each.age_s >= early_s]
    early = [each for each in program.rounds if each.age_s < early_s]
    found: dict[str, Any] = {
        "bound_by": program.bound_by,
        "lead_steps": program.lead,
        "steps_per_block": program.steps,
        "rounds": len(late),
        "start_us": median(program.started_us),
        "stop_us": median(program.stopped_us) if program.stopped_us else None,
    }
    for kind in (PLAIN, WATCHED):
        blocks = [block for each in late for block in each.blocks[kind]]
        found[kind] = {
            name: asdict(Spread.of([block[name] for block in blocks]))
            # Looks and saves are rare: the median block has none.
            | {"mean_us": fmean(block[name] for block in blocks)}
            for name in (blocks[0] if blocks else ())
        }
    if program.first:
        found["first"] = fmean(block[by] for block in program.first)
    for when, rounds in (("late", late), ("early", early)):
        rare = rarely(rounds, by) if rounds else 0.0
        ratios = [ratio + rare for ratio in crossed(rounds, by)]
        if ratios:
            overhead = interval(ratios)
            found[when] = {
                "overhead": asdict(overhead),
                "rare": rare,
                "standing": overhead.standing(MOST),
                "rounds_to_settle": overhead.rounds_to_settle(MOST),
                "narrowing": [asdict(each) for each in narrowing(ratios)],
                "overheads": ratios,
            }
        else:  # the processes have not changed places yet
            found[when] = {"uncrossed": [each.beyond(by) for each in rounds]}
    return found


def told(name: str, found: dict[str, Any], by: str) -> Iterator[str]:
    """Yield the lines that people read."""
    yield (
        f"{name}, bound by {found['bound_by']}: {found['rounds']} rounds, blocks of "
        f"{found['steps_per_block']} steps"
    )
    for when, words in (("late", "a watch costs"), ("early", "in its first second")):
        one = found[when]
        if "overhead" not in one:
            continue
        line = f"  {words} {Interval(**one['overhead'])}: {one['standing']}"
        if one["standing"] == Standing.OPEN:
            line += f"; some {one['rounds_to_settle'] or 'endless'} rounds may settle it"
        yield line
        yield "    its interval: " + ", ".join(
            f"{each['high'] - each['low']:.2%} after {each['rounds']}" for each in one["narrowing"]
        )
    if found[WATCHED]:
        plain, watched = found[PLAIN], found[WATCHED]
        yield (
            f"  {plain[by]['median_us']:.1f} and {watched[by]['median_us']:.1f} us a step; looks "
            f"{watched['looks_us']['mean_us']:.1f} us, its threads: sampling "
            f"{watched['sampling_us']['mean_us']:.1f} us, saving "
            f"{watched['saving_us']['mean_us']:.1f} us; each of its first {ALL_OF_THE_FIRST} steps "
            f"{found['first']:.1f} us"
        )


def main(words: Sequence[str] | None = None) -> None:
    """Measure, print, and write what was asked for."""
    began = perf_counter()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seconds", type=float, default=120.0, help="for all of it")
    parser.add_argument("--early-s", type=float, default=EARLY_S, help="of a watch, told apart")
    parser.add_argument("--how", default="saved", choices=("saved", "watched"))
    parser.add_argument("--programs", default=",".join(PROGRAMS))
    parser.add_argument("--tiny", action="store_true", help="toys: to see that everything runs")
    options = parser.parse_args(words)
    size = "tiny" if options.tiny else "real"
    with ExitStack() as stack:
        everything = []
        for name in options.programs.split(","):
            first, second = (stack.enter_context(Process(name, size)) for _ in range(2))
            everything.append(Program(name, (first, second)))
        for program in everything:
            program.settle(0.02 if options.tiny else 1.0)
        device = default_device()
        by = BY
        clock = "CPU time" if device.type == "cpu" or options.tiny else "time by the clock"
        document = {"machine": describe(device).to_dict(), "most": MOST, "by": clock}
        document |= {"how": options.how, "early_s": options.early_s, "is_tiny": options.tiny}
        found: dict[str, Any] = {}
        number = 0
        started = perf_counter()
        for half in (0, 1):
            until = started + (began + options.seconds - started) * (half + 1) / 2
            for program in everything:
                program.watch(half, options.how)
            longest, rounds, written_s = 0.0, 0, perf_counter()
            while rounds == 0 or (perf_counter() + longest < until and rounds < MOST_ROUNDS):
                now = perf_counter()
                for program in everything:
                    program.a_round(number + rounds, half)
                rounds += 1
                if perf_counter() - written_s > WRITE_S:
                    written_s = perf_counter()
                    write(options.out, {**document, "programs": summaries(everything, by, options)})
                longest = max(longest, perf_counter() - now)
            number += rounds
            found = summaries(everything, by, options)
            write(options.out, {**document, "programs": found})
            for program in everything:
                program.unwatch(half)
    sys.stdout.write(f"{clock} of a step; a watch may cost {MOST:.0%}\n")
    for name, entry in found.items():
        sys.stdout.write("\n".join(told(name, entry, by)) + "\n")
    sys.stdout.write(f"at most {MOST:.0%} of a step, in all of them: {worst(found)}\n")


def summaries(
    everything: Sequence[Program], by: str, options: argparse.Namespace
) -> dict[str, dict[str, Any]]:
    """Return what the rounds so far come to, by program."""
    return {each.name: summary(each, by, options.early_s) for each in everything}


def worst(found: dict[str, Any]) -> Standing:
    """Return what becomes of the claim for all programs."""
    standings = {entry["late"].get("standing", Standing.OPEN) for entry in found.values()}
    order = (Standing.REFUTED, Standing.OPEN, Standing.BORNE_OUT)
    return next(each for each in order if each in standings)


def write(out: Path | None, values: dict[str, Any]) -> None:
    """Write the file, whole or not at all."""
    if out is not None:
        part = out.with_name(f"{out.name}.part")
        part.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
        part.replace(out)


if __name__ == "__main__":
    main()
