"""`Accelerated`: a drop-in for a transformers model whose `generate` replays its decode steps.

It reads the request, takes the session that holds it and runs it; or it calls the model's own
`generate` and says why. Everything else that is asked of it, the model answers.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn

from ostinato.graphs import Outcome
from ostinato.hf.admission import Admission
from ostinato.hf.decoding import Produced, produce
from ostinato.hf.delegation import Delegated, DelegateError, Delegation
from ostinato.hf.probe import Anatomy, is_training, refuse_draws, study, vocabulary_sizes
from ostinato.hf.report import AccelerationReport, Answer, Generation
from ostinato.hf.request import Request, read_request
from ostinato.hf.room import require_room, telling_room
from ostinato.hf.session import Recorded, Session, SessionOptions
from ostinato.hf.sessions import Sessions
from ostinato.hf.weights import update_in_place

_STEPS_PER_LOOK = 8
_STEPS_PER_LOOP = 64  # of a series that ends by itself: enough to hide a look, few to wait for

# `fast = fast.eval()` must not lose the acceleration on the way.
_RETURN_THE_MODEL = frozenset(
    {"eval", "train", "to", "cuda", "cpu", "half", "float", "bfloat16", "double", "requires_grad_"}
)


class Accelerated:
    """A transformers model whose `generate` runs on recordings; `accelerate` makes it.

    Attributes:
        model: The model itself, unchanged.
        last: What became of the last `generate`; None before the first, while one is under way, and
            where one raised that was not handed over.
    """

    model: Any
    last: Generation | None

    def __init__(
        self,
        model: nn.Module,
        *,
        max_cache_len: int | None,
        prefill_buckets: Sequence[int] | None,
        eos_check_every: int | None,
        options: SessionOptions,
    ) -> None:
        # Setting an attribute sets it on the model (see `__setattr__`), hence this way.
        self.__dict__.update(
            model=model,
            last=None,
            _options=options,
            _eos_check_every=eos_check_every,
            _lock=threading.RLock(),
            _is_busy=False,
            _is_closed=False,
            _sessions=Sessions(max_cache_len, prefill_buckets),
            _lengths=(max_cache_len, prefill_buckets),
            _known=None,
            _delegated=Counter(),
            _counts=Counter(),
        )

    def generate(self, *args: Any, **kwargs: Any) -> Any:
        """Generate as `model.generate` does: same arguments, same result.

        One call at a time: others wait. A request that the static step does not serve is answered
        by the model's own `generate`; `last.reason` and `report()` say why.
        """
        with self._lock:
            self._counts["generates"] += 1
            self.__dict__["last"] = None
            try:
                # State made under a caller's inference mode could not be updated outside it.
                with torch.inference_mode(False), torch.no_grad():
                    return self._generate(args, kwargs)
            except DelegateError as handed_over:
                delegation = handed_over.delegation
            return self._delegate(delegation, args, kwargs)

    def _generate(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        if self._is_closed:
            raise DelegateError(Delegated.CLOSED, "close() was called")
        if self._is_busy:
            raise DelegateError(Delegated.BUSY, "a streamer called generate from within it")
        device = self.model.device.type
        if torch.is_autocast_enabled(device):
            dtype = torch.get_autocast_dtype(device)
            raise DelegateError(Delegated.AUTOCAST_ON, f"torch.autocast({device!r}, {dtype}) is on")
        admission, anatomy = self._know_model()
        request = read_request(self.model, args, kwargs)
        session, bucket = self._session_for(request, admission, anatomy)
        self.__dict__["_is_busy"] = True
        try:
            is_streamed = request.streamer is not None
            produced = produce(
                session, request, bucket, lambda recorded: self._look_every(recorded, is_streamed)
            )
        finally:
            self.__dict__["_is_busy"] = False
        self._note(produced)
        new_tokens = produced.new_tokens_BN.to(request.given.device)
        return torch.cat((request.given, new_tokens), dim=1)

    def _delegate(
        self, delegation: Delegation, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        self._delegated[str(delegation.reason)] += 1
        self.__dict__["last"] = Generation(Answer.DELEGATED, delegation.reason, delegation.detail)
        return self.model.generate(*args, **kwargs)

    def _know_model(self) -> tuple[Admission, Anatomy]:
        """Study the model once, and again if it is of another kind, dtype or mode than then."""
        config = self.model.config.get_text_config()
        kind = (self.model.device, self.model.dtype, config._attn_implementation)
        trains = is_training(self.model)
        fingerprint = (*kind, trains, vocabulary_sizes(self.model))
        known = self._known
        if known is None or known[0] != fingerprint:
            self._sessions.close()
            known = (fingerprint, study(self.model, self.model.device))
            self.__dict__["_known"] = known
        if isinstance(known[1], Delegation):
            raise DelegateError(known[1].reason, known[1].detail)
        admission, anatomy = known[1]
        if trains:  # rates of dropout may have changed since
            refuse_draws(self.model, admission.call, self.model.device)
        return admission, anatomy

    def _session_for(
        self, request: Request, admission: Admission, anatomy: Anatomy
    ) -> tuple[Session, int | None]:
        columns = request.prompt + request.max_new_tokens - 1
        most = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
        if admission.has_learned_positions and most is not None and columns > most:
            raise DelegateError(
                Delegated.LONGER_THAN_POSITIONS,
                f"{columns} columns are needed, the model has {most} positions",
            )

        device, rows = self.model.device, request.rows

        def make(length: int) -> Session:
            with telling_room(rows, length):
                return Session(
                    self.model,
                    admission,
                    anatomy,
                    rows=rows,
                    length=length,
                    device=device,
                    options=self._options,
                )

        def require(length: int, held: int) -> None:
            require_room(anatomy, rows, length, device, held)

        found: tuple[Session, int | None] = self._sessions.find_or_make(
            rows, request.prompt, columns, make, require
        )
        return found

    def _look_every(self, recorded: Recorded, is_streamed: bool) -> int:
        if self._eos_check_every is not None:
            return int(self._eos_check_every)
        is_cpu = self.model.device.type == "cpu"
        if is_streamed:
            return 1 if is_cpu else _STEPS_PER_LOOK
        # Steps that are not recorded, or are queued one by one, all run, whatever they find.
        last = recorded.decode.last
        is_looped = last is not None and last.outcome is not Outcome.EAGER
        if is_looped and recorded.steps.why_queued is None:
            return _STEPS_PER_LOOP
        return _STEPS_PER_LOOK

    def _note(self, produced: Produced) -> None:
        steps, width = produced.steps, produced.new_tokens_BN.shape[1]
        self._counts.update(new_tokens=width, steps=steps.total, replayed_steps=steps.replayed)
        decision, prefill = steps.last, produced.prefill
        self.__dict__["last"] = Generation(
            Answer.REPLAYED if steps.replayed else Answer.EAGER,
            reason=getattr(decision, "reason", None),
            detail=getattr(decision, "detail", ""),
            new_tokens=width,
            steps=steps.total,
            replayed_steps=steps.replayed,
            prefill_replayed=prefill is not None and prefill.outcome is Outcome.REPLAYED,
        )

    def report(self) -> AccelerationReport:
        """Return what happened since `accelerate`."""
        with self._lock:
            return AccelerationReport(
                generates=self._counts["generates"],
                delegated=dict(self._delegated),
                new_tokens=self._counts["new_tokens"],
                steps=self._counts["steps"],
                replayed_steps=self._counts["replayed_steps"],
                runners=self._sessions.totals(),
                cache_bytes=self._sessions.cache_bytes,
                fusion=self._sessions.fusion,
            )

    def update_weights(self, state_dict: Mapping[str, Tensor]) -> None:
        """Copy new weights into the model's own tensors, so that recordings stay valid.

        Raises:
            UsageError: OST3003, it is empty, a name is unknown, or a value does not fit; nothing
                was changed.
            WrongTypeError: OST3003, it is no state dict, or a value is no tensor.
        """
        with self._lock:
            update_in_place(self.model, state_dict)

    def close(self) -> None:
        """Give back caches and recordings; `generate` then is the model's own."""
        with self._lock:
            self._sessions.close()
            self.__dict__["_is_closed"] = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model's forward, unrecorded."""
        return self.model(*args, **kwargs)

    def __reduce__(self) -> tuple[object, ...]:
        # Copies and other processes get one without recordings: those are addresses.
        return (_rebuild, (self.model, *self._lengths, self._eos_check_every, self._options))

    def __getattr__(self, name: str) -> Any:
        if "model" not in self.__dict__:  # while being unpickled or copied
            raise AttributeError(name)
        value = getattr(self.model, name)
        if name not in _RETURN_THE_MODEL:
            return value

        def keep_accelerated(*args: Any, **kwargs: Any) -> Accelerated:
            value(*args, **kwargs)
            return self

        return keep_accelerated

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self.model, name, value)

    def __repr__(self) -> str:
        return f"Accelerated({type(self.model).__name__})"


def _rebuild(
    model: nn.Module,
    max_cache_len: int | None,
    prefill_buckets: Sequence[int] | None,
    eos_check_every: int | None,
    options: SessionOptions,
) -> Accelerated:
    return Accelerated(
        model,
        max_cache_len=max_cache_len,
        prefill_buckets=prefill_buckets,
        eos_check_every=eos_check_every,
        options=options,
    )
