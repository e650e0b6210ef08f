"""Real traffic: how many calls are replays, and what the first minutes cost.

The requests of a trace are served in order, batch 1. The lengths of the first ones are learnt
(`Buckets.learn`), and a bucketed runner then serves those (the warm-up) and all that follow. The
same requests are served once more with one graph for every exact prompt length. A decode step has
one shape whatever the length, so its one recording is counted for both.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any

import torch
from torch import Tensor

from ostinato import instruments
from ostinato.bench.attempt import Attempt, Deadline
from ostinato.bench.decoder import Decoder, DecoderShape
from ostinato.bench.forwards import Tell, forgotten_after
from ostinato.bench.models import dtype_for, short_name
from ostinato.bench.options import Effort, GraphsOptions
from ostinato.bench.results import Reuse, TrafficRow
from ostinato.bench.trace import DRAWN, Request, draw_trace, fit_to_context, read_trace
from ostinato.graphs import Buckets, Outcome, Runner, graphed
from ostinato.instruments import Captured, Instrument

_MOST_GRAPHS = 16
_ROOM = "64GiB"  # neither way is to lose a recording to its budget
_GPU = DecoderShape(layers=12, width=768, heads=12, vocabulary=32000, columns=4096)
_CPU = DecoderShape(layers=2, width=32, heads=2, vocabulary=128, columns=256)


class Recordings(Instrument):
    """Every recording made while it listens.

    Attributes:
        seconds: Time each took.
        nodes: Nodes of each by its name, by the runner's name.
    """

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.nodes: defaultdict[str, dict[str, int]] = defaultdict(dict)

    def captured(self, event: Captured) -> None:
        """Take down one recording."""
        self.seconds.append(event.seconds)
        self.nodes[event.runner][event.graph_id] = event.nodes


@dataclass(slots=True)
class _Tally:
    """Calls of one runner: the recordings that answered, and the reasons why none did."""

    replays: Counter[str] = field(default_factory=Counter)
    others: Counter[str] = field(default_factory=Counter)

    def take(self, runner: Runner[..., Any]) -> None:
        decision = runner.last
        assert decision is not None
        if decision.outcome is Outcome.REPLAYED:
            self.replays[str(decision.graph_id)] += 1
        else:
            self.others[str(decision.reason or decision.outcome)] += 1

    def reuse(self, nodes: dict[str, int]) -> Reuse:
        """Weigh the calls; one that was no replay counts as the average recording."""
        replays, others = self.replays.total(), self.others.total()
        average = sum(nodes.values()) / len(nodes) if nodes else 0.0
        replayed = float(sum(nodes[name] * count for name, count in self.replays.items()))
        return Reuse(replays + others, replays, replayed + others * average, replayed)


@dataclass(slots=True)
class _Served:
    """What serving the requests one way gave.

    Attributes:
        requests: Requests served, warm-up included.
        prefill, decode: Calls after the warm-up.
    """

    requests: int = 0
    prefill: _Tally = field(default_factory=_Tally)
    decode: _Tally = field(default_factory=_Tally)
    recordings: Recordings = field(default_factory=Recordings)


def measure_traffic(
    options: GraphsOptions, device: torch.device, deadline: Deadline, tell: Tell
) -> TrafficRow:
    """Return what the traffic showed, or why it was not run."""
    shape = _GPU if device.type == "cuda" and not options.is_tiny else _CPU
    model = f"{short_name(dtype_for(device))} {shape}"
    requests, source, fitted = requests_for(options, shape)
    row = TrafficRow(model, source, fitted, error=deadline.refusal)
    if row.error:
        return row
    with torch.inference_mode(), forgotten_after():
        measured = Attempt(lambda: _measure(row, requests, shape, options.effort, device, tell))
    return measured.value or replace(row, error=measured.error)


def requests_for(options: GraphsOptions, shape: DecoderShape) -> tuple[list[Request], str, str]:
    """Return the requests of the warm-up and after it, where they come from, and how they fit."""
    wanted = options.effort.learnt_from + options.effort.requests
    if options.trace is None:
        found, source = draw_trace(wanted), DRAWN
    else:
        found = read_trace(options.trace)
        source = f"the first {min(wanted, len(found))} of {len(found)} in {options.trace.name}"
    # A toy decoder would clip nearly all prompts to one length.
    scale = 1.0 if shape.columns >= 4096 else shape.columns / 4096
    fitted, how = fit_to_context(found[:wanted], shape.columns, scale=scale)
    return fitted, source, how


def _measure(
    row: TrafficRow,
    requests: Sequence[Request],
    shape: DecoderShape,
    effort: Effort,
    device: torch.device,
    tell: Tell,
) -> TrafficRow:
    torch.manual_seed(0)
    with device:
        decoder = Decoder(shape)
    decoder = decoder.to(device=device, dtype=dtype_for(device)).eval().requires_grad_(False)
    learnt_from = min(effort.learnt_from, len(requests) // 2)
    lengths = [each.context for each in requests]
    buckets = Buckets.learn(lengths[:learnt_from], _MOST_GRAPHS)
    server = _Server(decoder, shape, device, learnt_from, effort.traffic_s)
    tell("traffic: with buckets")
    bucketed = server.serve(requests, {"ids_T": buckets})
    tell("traffic: one graph for every prompt length")
    exact = server.serve(requests[: bucketed.requests], None)
    served = lengths[learnt_from : bucketed.requests]
    return replace(
        row,
        learnt_from=learnt_from,
        requests=len(served),
        buckets=buckets.sizes,
        prefill=bucketed.prefill.reuse(bucketed.recordings.nodes["prefill"]),
        decode=bucketed.decode.reuse(bucketed.recordings.nodes["decode"]),
        reasons=dict(bucketed.prefill.others + bucketed.decode.others),
        recordings=len(bucketed.recordings.seconds),
        recording_s=sum(bucketed.recordings.seconds),
        padded_share=buckets.padded_share([n for n in served if buckets.fit(n)]),
        exact_requests=exact.requests,
        exact_prefill=exact.prefill.reuse(exact.recordings.nodes["prefill"]),
        exact_recordings=len(exact.recordings.seconds),
        exact_recording_s=sum(exact.recordings.seconds),
        note=_shortened(bucketed, exact, len(requests), effort.traffic_s),
    )


def _shortened(bucketed: _Served, exact: _Served, wanted: int, limit_s: float) -> str:
    notes = []
    if bucketed.requests < wanted:
        notes.append(f"stopped after {limit_s:g} s at request {bucketed.requests} of {wanted}")
    if exact.requests < bucketed.requests:
        notes.append(
            f"one graph per shape stopped after {limit_s:g} s at request {exact.requests}: "
            "its whole cost would be higher"
        )
    return "; ".join(notes)


@dataclass(frozen=True, slots=True)
class _Server:
    """Serves requests one after the other.

    Attributes:
        warmup: Requests that are served and not counted.
        limit_s: No request begins after so many seconds.
    """

    decoder: Decoder
    shape: DecoderShape
    device: torch.device
    warmup: int
    limit_s: float

    def serve(self, requests: Sequence[Request], buckets: dict[str, Buckets] | None) -> _Served:
        """Serve `requests`; without buckets the prompts alone: answers would cost the same."""
        served, began = _Served(), monotonic()
        prefill = graphed(self.decoder.prefill, buckets=buckets, admit_after=1, budget=_ROOM)
        decode = graphed(self.decoder.decode, admit_after=1, budget=_ROOM)
        with _listening(served.recordings), prefill, decode:
            for number, request in enumerate(requests):
                if number > self.warmup and monotonic() - began > self.limit_s:
                    break
                tallies = (_Tally(), _Tally())
                if number >= self.warmup:
                    tallies = (served.prefill, served.decode)
                token = self._prompt(prefill, request, tallies[0])
                steps = request.generated - 1 if buckets is not None else min(1, number == 0)
                self._answer(decode, token, request.context, steps, tallies[1])
                served.requests += 1
        return served

    def _prompt(self, prefill: Runner[..., Tensor], request: Request, tally: _Tally) -> Tensor:
        ids_T = torch.randint(self.shape.vocabulary, (request.context,), device=self.device)
        last_1 = torch.full((1,), request.context - 1, device=self.device)
        token = prefill(ids_T, last_1)
        tally.take(prefill)
        return token

    def _answer(
        self,
        decode: Runner[..., tuple[Tensor, Tensor]],
        token_1: Tensor,
        position: int,
        steps: int,
        tally: _Tally,
    ) -> None:
        position_1 = torch.full((1,), position, device=self.device)
        for _ in range(steps):
            token_1, position_1 = decode(token_1, position_1)
            tally.take(decode)


@contextmanager
def _listening(recordings: Recordings) -> Iterator[None]:
    instruments.add(recordings)
    try:
        yield
    finally:
        instruments.remove(recordings)
