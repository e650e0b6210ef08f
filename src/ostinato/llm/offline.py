"""`LLM`: many prompts at once, from a script that waits for the answers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ostinato.errors import UsageError, WrongTypeError
from ostinato.llm.answers import Output
from ostinato.llm.config import EngineConfig
from ostinato.llm.door import Prompt, no_prompt
from ostinato.llm.engine import Engine
from ostinato.llm.faults import once_more
from ostinato.llm.params import SamplingParams
from ostinato.llm.precheck import checked_requests
from ostinato.llm.refusals import QueueFull, check_answers, no_params, shown
from ostinato.llm.stream import Stream

if TYPE_CHECKING:
    from torch import Tensor

    from ostinato.llm.core import InFlight
    from ostinato.llm.models import DecoderConfig
    from ostinato.llm.request import Request

Progress = Callable[[int, int], None]
"""Called with how many prompts are answered, and how many there are."""


class LLM:
    """One model, for a script.

    Args:
        model: "smollm2", a transformers folder, or, for dummy weights, a `DecoderConfig`.
        options: As `EngineConfig`.

    Raises:
        UsageError: OST5030, an option that does not exist; and as `Engine`.
        ResourceError: As `Engine`.
    """

    def __init__(self, model: str | Path | DecoderConfig, **options: Any) -> None:
        self.engine = Engine(EngineConfig.read({"model": model, **options}))

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        priority: int = 0,
        salt: str = "",
        progress: Progress | None = None,
    ) -> list[Output]:
        """Answer all prompts, and return the answers in the same order.

        Args:
            prompts: Texts and lists of token ids, which are gone on from as they stand, or
                conversations (lists of messages), which the model's chat template writes; or one
                alone.
            params: For all of them, or one for each; None: as `SamplingParams` is by default.
            priority: As in `Request`.
            salt: As in `Request`.
            progress: Told each time the next prompt in order is answered.

        Raises:
            UsageError: OST5045, as many params as prompts were expected; and as `Engine.read`,
                `Engine.check` and `Engine.compile`. All of this is found before the first prompt is
                begun, and told with its place among `prompts`.
            WrongTypeError: OST5042, no prompts; OST5046, no params, or a progress that cannot be
                called.
            ResourceError: OST5063, a schema takes too long or too much memory.
            EngineDown: OST5140, OST5141, the engine is closed, or its device has failed.
        """
        every = _every(prompts)
        each = _one_for_each(params, len(every))
        for wanted in each:  # all of them before the first is asked: it is all or none
            check_answers(wanted.n, self.engine.config.max_waiting)
        if progress is not None and not callable(progress):
            raise WrongTypeError(
                f"progress is called with two numbers, got {shown(progress)}",
                code="OST5046",
                remedy="pass a function, such as lambda done, total: print(done, total)",
            )
        requests = checked_requests(self.engine, every, each, priority=priority, salt=salt)
        streams: deque[Stream] = deque()
        outputs: list[Output] = []

        def take() -> None:
            outputs.append(streams.popleft().result())
            if progress is not None:
                progress(len(outputs), len(every))

        try:
            for request in requests:
                while (stream := self._try_submit(request, streams)) is None:
                    take()
                streams.append(stream)
            while streams:
                take()
        finally:  # an error, or Ctrl-C
            for stream in streams:
                stream.cancel()
        self._raise_if_down()
        return outputs

    def _try_submit(self, request: Request, before: deque[Stream]) -> Stream | None:
        try:
            return self.engine.submit(request)
        except QueueFull:
            if before:
                return None
        # Those of a call that was interrupted may still be on their way out.
        self.engine.between_steps(lambda: None).result()
        return self.engine.submit(request)

    def _raise_if_down(self) -> None:
        fault = self.engine.fault
        if fault is not None:
            raise once_more(fault)

    def update_weights(
        self, given: Mapping[str, Tensor] | Path | str, in_flight: InFlight = "finish"
    ) -> None:
        """Replace the model's weights in place; see `Engine.update_weights`."""
        self.engine.update_weights(given, in_flight)

    def close(self) -> None:
        """Give everything back; see `Engine.close`."""
        self.engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _is_one(prompts: Any) -> bool:
    """Whether this is one prompt: a text, ids, or messages."""
    return isinstance(prompts, str) or (
        isinstance(prompts, Sequence)
        and len(prompts) > 0
        and isinstance(prompts[0], Integral | Mapping)
    )


def _every(prompts: Any) -> list[Any]:
    if _is_one(prompts):
        return [prompts]
    # A mapping would be read as its keys, bytes as one prompt for each of them, a set in any order.
    if isinstance(prompts, Mapping | AbstractSet | bytes | bytearray) or not isinstance(
        prompts, Iterable
    ):
        raise no_prompt(prompts)
    return list(prompts)


def _one_for_each(params: Any, prompts: int) -> list[SamplingParams]:
    if params is None:
        return [SamplingParams()] * prompts
    if isinstance(params, SamplingParams):
        return [params] * prompts
    if not isinstance(params, Sequence) or isinstance(params, str | bytes):
        raise no_params(params)
    for one in params:
        if not isinstance(one, SamplingParams):
            raise no_params(one)
    if len(params) != prompts:
        raise UsageError(
            f"{prompts} prompts came with {len(params)} sampling parameters",
            code="OST5045",
            remedy="pass one SamplingParams for all prompts, or a list of one for each",
        )
    return list(params)
