"""One batch size's resident state with its recorded callables.

The key-value cache and all counters live as long as the session; a request only refills them. A
request that needs more columns than there are gets a new session, and the recordings of the old one
go with it.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ostinato.graphs import Decision, Outcome, Runner, graphed
from ostinato.graphs.ambient import mode_around
from ostinato.graphs.options import BackendName, check_options
from ostinato.hf.admission import Admission
from ostinato.hf.fusing import Fusion, Strayed
from ostinato.hf.plan import Plan
from ostinato.hf.probe import Anatomy
from ostinato.hf.report import RunnerTotals
from ostinato.hf.request import Request
from ostinato.hf.state import DecodeState
from ostinato.hf.steps import DecodeStep, Parts, PrefillStep

MOST_PLANS = 4
"""Kinds of sampling whose recordings a session keeps; the one unused longest goes first."""


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """What `accelerate` was told about recordings."""

    budget: int | str
    backend: BackendName
    fuse: bool | None


def check_session_options(model: nn.Module, options: SessionOptions) -> None:
    """Refuse now what `graphed` would refuse at the first request.

    Raises:
        UsageError: OST1001, OST1011.
    """
    check_options(
        model,
        buckets=None,
        admit_after=1,
        warmups=1,
        budget=options.budget,
        outputs="leased",
        drop_unprofitable=True,
        on_unfit="eager",
        verify_every=0,
        backend=options.backend,
        scratch=(),
        memory="own",
    )


class Recorded:
    """The two callables of one plan, as they run and as they are recorded.

    Attributes:
        steps: The decode steps in series, until every row has finished.
    """

    def __init__(self, parts: Parts, options: SessionOptions) -> None:
        self.plain_prefill = PrefillStep(parts)
        self.prefill = _record(self.plain_prefill, options, admit_after=2)
        self._step = DecodeStep(parts)
        is_on_gpu = parts.state.device.type == "cuda"
        is_wanted = is_on_gpu if options.fuse is None else options.fuse
        self._may_fuse = is_wanted and options.backend != "eager"
        self.decode = _record(self._step, options, admit_after=1)
        self.steps = self.decode.loop(parts.state.device, until=parts.state.finished_B)

    @property
    def runners(self) -> tuple[Runner[..., Any], Runner[..., Any]]:
        """Both runners."""
        return self.prefill, self.decode

    def record_ahead(self) -> None:
        """Record the decode step if it is not yet, so that a request's first step is a replay too.

        Leaves state, cache and random numbers as they are. After an attempt that failed nothing is
        done here: the runner knows when the next one is due.
        """
        last = self.decode.last
        if last is not None and last.outcome is Outcome.EAGER and not _strayed(last):
            return
        # A mode of the caller's keeps the step from being recorded, and would hear the trial.
        may_fuse = self._may_fuse and mode_around() is None
        if may_fuse and self.fusion is None:
            self._step.fuse()
        if _strayed(self.steps.warm()) and may_fuse:
            # What the model calls has changed since, by a hook or a flag of the caller's.
            self._step.fuse()
            self.steps.warm()

    @property
    def fusion(self) -> Fusion | None:
        """What is fused in the decode step; None before it was first to be recorded."""
        return self._step.fusion


def _strayed(decision: Decision) -> bool:
    return decision.detail.startswith(Strayed.__name__)


def _record(step: nn.Module, options: SessionOptions, *, admit_after: int) -> Runner[..., Any]:
    # A prompt's length that comes once is not worth a recording; a decode step always comes again.
    return graphed(
        step,
        admit_after=admit_after,
        budget=options.budget,
        backend=options.backend,
        outputs="leased",  # there are none: results stay in the state
        drop_unprofitable=True,
        warmups=1,
    )


class Session:
    """State and recordings for batches of `rows` with room for `length` columns."""

    def __init__(
        self,
        model: nn.Module,
        admission: Admission,
        anatomy: Anatomy,
        *,
        rows: int,
        length: int,
        device: torch.device,
        options: SessionOptions,
    ) -> None:
        self.rows, self.length = rows, length
        self.state = DecodeState(
            anatomy.layers,
            rows=rows,
            length=length,
            vocabulary=anatomy.vocabulary,
            dtype=anatomy.dtype,
            device=device,
        )
        self._model, self._admission, self._options = model, admission, options
        self._recorded: OrderedDict[Plan, Recorded] = OrderedDict()
        self._closed = RunnerTotals()
        self._last_use = torch.cuda.Event() if device.type == "cuda" else None

    def recorded_for(self, plan: Plan) -> Recorded:
        """Return the callables of `plan`, made if need be."""
        recorded = self._recorded.get(plan)
        if recorded is None:
            if len(self._recorded) >= MOST_PLANS:
                self._retire(self._recorded.popitem(last=False)[1])
            call, rule = self._admission.call, self._admission.rule
            recorded = Recorded(Parts(self._model, call, rule, self.state, plan), self._options)
            self._recorded[plan] = recorded
        self._recorded.move_to_end(plan)
        return recorded

    def begin(self, request: Request, bucket: int | None) -> Any:
        """Prefill, and produce the first token; returns the runner's decision.

        Args:
            request: Its rows are this session's.
            bucket: Length to pad the prompt to; None runs the exact length, unrecorded.
        """
        if self._last_use is not None:
            # The request before this one may have run on another stream.
            torch.cuda.current_stream(self.state.device).wait_event(self._last_use)
        device = self.state.device
        ids, valid = request.ids_BP.to(device), request.valid_BP.to(device)
        self.state.begin(ids, valid, request.sampling, request.pad)
        positions = (valid.long().cumsum(-1) - 1).clamp(min=0)
        extra = (bucket or request.prompt) - request.prompt
        inputs = [nn.functional.pad(each, (0, extra)) for each in (ids, positions, valid)]
        if not (request.is_padded or self._admission.rule.is_always_given):
            inputs.pop()
        mask = inputs[2] if len(inputs) == 3 else None
        recorded = self.recorded_for(request.plan)
        if bucket is None:
            recorded.plain_prefill(inputs[0], inputs[1], mask)
            return None
        recorded.prefill(inputs[0], inputs[1], mask)
        return recorded.prefill.last

    def end(self) -> None:
        """Mark the state as in use up to here, for a next request on another stream."""
        if self._last_use is not None:
            self._last_use.record(torch.cuda.current_stream(self.state.device))

    @property
    def fusion(self) -> Fusion | None:
        """What is fused in the step that was used last."""
        return next(reversed(self._recorded.values())).fusion if self._recorded else None

    def close(self) -> None:
        """Give back the recordings; the state goes with the session."""
        while self._recorded:
            self._retire(self._recorded.popitem()[1])

    def _retire(self, recorded: Recorded) -> None:
        for runner in recorded.runners:
            self._closed.add(runner.report().to_dict(), is_alive=False)
            runner.close()

    def totals(self) -> RunnerTotals:
        """Return the counts of all runners, closed ones included."""
        totals = self._closed.copy()
        for recorded in self._recorded.values():
            for runner in recorded.runners:
                totals.add(runner.report().to_dict(), is_alive=True)
        return totals
