"""What happens to the scores of a step: transformers' processors, translated.

transformers itself builds the list of processors of a request. Each one known here becomes a flag
of the plan (which shapes the recording) and a number (which stays on the device, so that another
temperature needs no other recording). A processor that is not known, or stands in an unusual order,
means that the model's own `generate` must serve the request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import (
    LogitNormalization,
    MinLengthLogitsProcessor,
    MinNewTokensLengthLogitsProcessor,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    SuppressTokensAtBeginLogitsProcessor,
    SuppressTokensLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)
from transformers.generation import EosTokenCriteria, MaxLengthCriteria

from ostinato.hf.delegation import Delegated, DelegateError


@dataclass(frozen=True, slots=True)
class Plan:
    """The shape of one step's work after the forward: part of a recording's key.

    Attributes:
        samples: Draw from the distribution; False takes the largest score.
        stops: End-of-sequence ids exist, so rows finish and are padded.
        top_k: How many scores survive; 0 for all.
        penalises: A repetition penalty applies. The other flags likewise name one stage each.
    """

    samples: bool = False
    stops: bool = False
    penalises: bool = False
    holds_off_eos: bool = False
    suppresses: bool = False
    suppresses_first: bool = False
    tempers: bool = False
    top_k: int = 0
    cuts_top_p: bool = False
    cuts_min_p: bool = False
    normalises: bool = False


@dataclass(slots=True)
class Sampling:
    """The numbers of one request; they are copied to the device before it starts.

    Attributes:
        plan: Which stages run.
        min_new_tokens: Tokens before which `held_off` ids are barred.
        counts_padding: Whether the ids of a left padding count as seen by the penalty.
    """

    plan: Plan = field(default_factory=Plan)
    penalty: float = 1.0
    temperature: float = 1.0
    top_p: float = 1.0
    min_p: float = 0.0
    min_new_tokens: int = 0
    counts_padding: bool = True
    held_off: tuple[int, ...] = ()
    suppressed: tuple[int, ...] = ()
    suppressed_first: tuple[int, ...] = ()
    eos: tuple[int, ...] = ()


def read_processors(
    processors: Iterable[object], *, samples: bool, prompt: int, eos: tuple[int, ...] = ()
) -> Sampling:
    """Translate a request's processors.

    Args:
        processors: What transformers built, in its order.
        samples: Whether tokens are drawn.
        prompt: Columns of the prompt.
        eos: The ids that end a sequence.

    Raises:
        DelegateError: One of them has no translation, or a stage runs out of order.
    """
    sampling = Sampling(eos=eos)
    flags: dict[str, Any] = {"samples": samples, "stops": bool(eos)}
    reached = -1
    for processor in processors:
        stage = _ORDER.get(type(processor))
        if stage is None:
            raise DelegateError(
                Delegated.CUSTOM_PROCESSOR,
                f"{type(processor).__name__} has no device-side translation",
            )
        if stage <= reached:
            raise DelegateError(
                Delegated.CUSTOM_PROCESSOR,
                f"{type(processor).__name__} runs twice, or out of the usual order",
            )
        reached = stage
        _READERS[type(processor)](processor, sampling, flags, prompt)
    sampling.plan = Plan(**flags)
    return sampling


def read_stopping(criteria: Iterable[object]) -> tuple[int, ...]:
    """Return the end-of-sequence ids of a request's stopping criteria.

    Raises:
        DelegateError: There is a criterion besides length and end of sequence.
    """
    eos: list[int] = []
    for criterion in criteria:
        if type(criterion) is EosTokenCriteria:
            eos.extend(_ids(criterion.eos_token_id))
        elif type(criterion) is not MaxLengthCriteria:
            raise DelegateError(
                Delegated.CUSTOM_STOPPING,
                f"{type(criterion).__name__} needs the host at every token",
            )
    return tuple(dict.fromkeys(eos))


def _ids(value: Any) -> tuple[int, ...]:
    ids = torch.as_tensor(value, device="cpu").reshape(-1)
    if ids.numel() and (ids.is_floating_point() or ids.dtype is torch.bool):
        raise DelegateError(
            Delegated.UNSUPPORTED_OPTION, f"the token ids {ids.tolist()} are no whole numbers"
        )
    return tuple(int(each) for each in ids.tolist())


_Reader = Callable[[Any, Sampling, dict[str, Any], int], None]


def _penalty(given: Any, sampling: Sampling, flags: dict[str, Any], prompt: int) -> None:
    ignored = given.prompt_ignore_length
    if isinstance(ignored, int) and ignored:
        raise DelegateError(
            Delegated.CUSTOM_PROCESSOR, f"a repetition penalty that ignores {ignored} prompt tokens"
        )
    flags["penalises"] = True
    sampling.penalty = given.penalty
    # Newer versions leave the left padding out; they say so with one length per row.
    sampling.counts_padding = not isinstance(ignored, torch.Tensor)


def _min_length(given: Any, sampling: Sampling, flags: dict[str, Any], prompt: int) -> None:
    _hold_off(given, given.min_length - prompt, sampling, flags)


def _min_new(given: Any, sampling: Sampling, flags: dict[str, Any], prompt: int) -> None:
    beyond = given.prompt_length_to_skip + given.min_new_tokens - prompt
    _hold_off(given, beyond, sampling, flags)


def _hold_off(given: Any, tokens: int, sampling: Sampling, flags: dict[str, Any]) -> None:
    held = _ids(given.eos_token_id)
    if sampling.held_off and set(held) != set(sampling.held_off):
        raise DelegateError(Delegated.CUSTOM_PROCESSOR, "two minimum lengths bar different ids")
    flags["holds_off_eos"] = True
    sampling.held_off = held
    sampling.min_new_tokens = max(sampling.min_new_tokens, tokens)


def _suppress(given: Any, sampling: Sampling, flags: dict[str, Any], prompt: int) -> None:
    flags["suppresses"] = True
    sampling.suppressed = _ids(given.suppress_tokens)


def _suppress_first(given: Any, sampling: Sampling, flags: dict[str, Any], prompt: int) -> None:
    if given.begin_index == prompt:
        flags["suppresses_first"] = True
        sampling.suppressed_first = _ids(given.begin_suppress_tokens)


def _temperature(given: Any, sampling: Sampling, flags: dict[str, Any], prompt: int) -> None:
    flags["tempers"] = True
    sampling.temperature = given.temperature


def _top_k(given: Any, sampling: Sampling, flags: dict[str, Any], prompt: int) -> None:
    _usual_form(given)
    flags["top_k"] = given.top_k


def _top_p(given: Any, sampling: Sampling, flags: dict[str, Any], prompt: int) -> None:
    _usual_form(given)
    flags["cuts_top_p"] = True
    sampling.top_p = given.top_p


def _min_p(given: Any, sampling: Sampling, flags: dict[str, Any], prompt: int) -> None:
    _usual_form(given)
    flags["cuts_min_p"] = True
    sampling.min_p = given.min_p


def _usual_form(given: Any) -> None:
    if given.min_tokens_to_keep != 1 or given.filter_value != -torch.inf:
        raise DelegateError(
            Delegated.CUSTOM_PROCESSOR, f"{type(given).__name__} is not in its usual form"
        )


def _normalise(given: Any, sampling: Sampling, flags: dict[str, Any], prompt: int) -> None:
    flags["normalises"] = True


# In transformers' own order, which `sampling.py` keeps.
_READERS: dict[type, _Reader] = {
    RepetitionPenaltyLogitsProcessor: _penalty,
    MinLengthLogitsProcessor: _min_length,
    MinNewTokensLengthLogitsProcessor: _min_new,
    SuppressTokensLogitsProcessor: _suppress,
    SuppressTokensAtBeginLogitsProcessor: _suppress_first,
    TemperatureLogitsWarper: _temperature,
    TopKLogitsWarper: _top_k,
    TopPLogitsWarper: _top_p,
    MinPLogitsWarper: _min_p,
    LogitNormalization: _normalise,
}
_ORDER = {kind: place for place, kind in enumerate(_READERS)}
