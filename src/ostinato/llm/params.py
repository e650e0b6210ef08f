"""How a request wants its tokens drawn and when it wants to stop: checked once, at the door.

Names and meanings are vLLM's and OpenAI's. Every value is checked here, so that nothing behind
(the scheduler, the sampling state on the device) has to ask again whether a number makes sense.
`LLM.generate` and the server build one per request; `SamplingParams.read` reads a plain mapping,
as it stands in a file or a request's body.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from math import inf, isfinite
from types import MappingProxyType
from typing import Any

from ostinato.errors import UsageError, WrongTypeError
from ostinato.llm.refusals import no_params, shown
from ostinato.llm.structured.schema import read_schema

_SEEDS = (-(2**63), 2**64 - 1)  # what torch.manual_seed takes
_BIAS = 100.0
_MOST = 2**63 - 1  # the rows on the device hold whole numbers of 64 bits
_REPETITION = (1e-6, 1e6)  # past these, logits in float32 would soon be infinite


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How tokens are drawn, and when a request has enough of them.

    Attributes:
        max_tokens: The most new tokens, at least 1.
        temperature: 0 takes the likeliest token; from there upwards the draw grows more even.
        top_p: Draw from the likeliest tokens whose probabilities sum to this; 1 is off.
        top_k: Draw from that many of the likeliest tokens; 0 or -1 is off.
        min_p: Draw from tokens at least this likely, as a share of the likeliest one's; 0 is off.
        seed: Makes the draws repeatable; None takes one from the engine.
        n: Answers per prompt.
        stop: Texts that end the answer and are cut from it.
        stop_token_ids: Tokens that end the answer.
        min_tokens: No stop before so many new tokens.
        ignore_eos: Go on past the model's own end of text.
        repetition_penalty: Above 1 makes tokens of the prompt and the answer less likely; 1 is off.
        presence_penalty: Taken once from each token that is in the answer.
        frequency_penalty: Taken from a token as often as it is in the answer.
        logit_bias: Token id to what is added to its logit, -100 to 100; kept as a read-only copy.
        logprobs: How many of the likeliest tokens to report beside each one drawn; None for none.
        schema: What the answer must keep to: a JSON schema, a pydantic model class,
            {"regex": ...}, {"choices": [...]} or {"type": "json_object"}. It says when the answer
            ends: min_tokens, ignore_eos and stop_token_ids do not count beside it.

    Raises:
        UsageError: OST5001, a value is out of its range; OST5060, a schema of no known kind.
        WrongTypeError: OST5001, OST5060, a value has the wrong type.
    """

    max_tokens: int = 16
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    n: int = 1
    stop: str | Sequence[str] = ()
    stop_token_ids: Sequence[int] = ()
    min_tokens: int = 0
    ignore_eos: bool = False
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict, hash=False)
    logprobs: int | None = None
    schema: Any = field(default=None, hash=False)

    def __post_init__(self) -> None:
        self._check_counts()
        self._check_numbers()
        if not isinstance(self.ignore_eos, bool):
            raise _wrong_type("ignore_eos", "True or False", self.ignore_eos)
        # The one moment of change: afterwards every sequence is a tuple and nothing is shared.
        object.__setattr__(self, "top_k", max(self.top_k, 0))
        object.__setattr__(self, "stop", _texts(self.stop))
        object.__setattr__(self, "stop_token_ids", _token_ids(self.stop_token_ids))
        object.__setattr__(self, "logit_bias", _biases(self.logit_bias))
        object.__setattr__(self, "schema", read_schema(self.schema))

    def _check_counts(self) -> None:
        _check_count("max_tokens", self.max_tokens, 1)
        _check_count("top_k", self.top_k, -1)
        _check_count("n", self.n, 1)
        _check_count("min_tokens", self.min_tokens, 0)
        if self.min_tokens > self.max_tokens:
            raise _out_of_range(
                "min_tokens", f"at most max_tokens, {self.max_tokens}", self.min_tokens
            )
        if self.logprobs is not None:
            _check_count("logprobs", self.logprobs, 0)
        if self.seed is not None:
            _check_count("seed", self.seed, *_SEEDS)

    def _check_numbers(self) -> None:
        _check_number("temperature", self.temperature, 0.0, inf)
        _check_number("top_p", self.top_p, 0.0, 1.0, above_low=True)
        _check_number("min_p", self.min_p, 0.0, 1.0)
        _check_number("repetition_penalty", self.repetition_penalty, *_REPETITION)
        _check_number("presence_penalty", self.presence_penalty, -2.0, 2.0)
        _check_number("frequency_penalty", self.frequency_penalty, -2.0, 2.0)

    def __getstate__(self) -> dict[str, Any]:
        # A mapping proxy can be neither pickled nor copied; its content can.
        values = {option.name: getattr(self, option.name) for option in fields(self)}
        return {**values, "logit_bias": dict(self.logit_bias)}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        for name, value in state.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "logit_bias", MappingProxyType(self.logit_bias))

    @property
    def is_greedy(self) -> bool:
        """Whether the likeliest token is taken, so that no random number is drawn."""
        return self.temperature == 0

    @classmethod
    def read(cls, options: Mapping[str, Any]) -> SamplingParams:
        """Build from a plain mapping of option names to values.

        Raises:
            UsageError: OST5003, an option that does not exist; OST5001 as the class itself.
            WrongTypeError: OST5046, `options` is no mapping.
        """
        if not isinstance(options, Mapping):
            raise no_params(options)
        known = [option.name for option in fields(cls)]
        for name in options:
            if name not in known:
                near = get_close_matches(str(name), known, n=1)
                raise UsageError(
                    f"no sampling option is called {name!r}",
                    code="OST5003",
                    remedy=f"did you mean {near[0]}?"
                    if near
                    else f"take it out; the options are {', '.join(known)}",
                )
        return cls(**options)


def _check_count(name: str, value: object, least: int, most: int = _MOST) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise _wrong_type(name, "a whole number", value)
    if value < least:
        raise _out_of_range(name, f"at least {least}", value)
    if value > most:
        raise _out_of_range(name, f"at most {most}", value)


def _check_number(
    name: str, value: object, low: float, high: float, *, above_low: bool = False
) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise _wrong_type(name, "a number", value)
    try:
        number = float(value)
    except OverflowError:  # a whole number too large for any float
        number = inf
    inside = isfinite(number) and (low < number if above_low else low <= number) and number <= high
    if not inside:
        bound = f"{'above' if above_low else 'at least'} {low:g}"
        raise _out_of_range(name, bound + (f" and at most {high:g}" if high < inf else ""), value)


def _texts(stop: object) -> tuple[str, ...]:
    texts = (stop,) if isinstance(stop, str) else stop
    if not isinstance(texts, Sequence) or not all(isinstance(text, str) for text in texts):
        raise _wrong_type("stop", "a text or a list of texts", stop)
    if not all(texts):
        raise _out_of_range("stop", "texts of at least one letter", stop)
    if not all(is_whole(text) for text in texts):
        raise _out_of_range("stop", "texts of whole characters, no lone surrogates", stop)
    return tuple(texts)


def is_whole(text: str) -> bool:
    """Whether a text has no half of a character (a lone surrogate), which no tokenizer takes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _token_ids(ids: object) -> tuple[int, ...]:
    if not isinstance(ids, Sequence) or isinstance(ids, str):
        raise _wrong_type("stop_token_ids", "a list of token ids", ids)
    for token in ids:
        _check_count("stop_token_ids", token, 0)
    return tuple(ids)


def _biases(biases: object) -> Mapping[int, float]:
    if not isinstance(biases, Mapping):
        raise _wrong_type("logit_bias", "a mapping of token ids to numbers", biases)
    for token, bias in biases.items():
        _check_count("a key of logit_bias", token, 0)
        _check_number("logit_bias", bias, -_BIAS, _BIAS)
    return MappingProxyType({token: float(bias) for token, bias in biases.items()})


def _out_of_range(name: str, wanted: str, value: object) -> UsageError:
    return UsageError(
        f"{name} must be {wanted}, got {shown(value)}",
        code="OST5001",
        remedy=f"pass a {name} that is {wanted}, or leave it out",
    )


def _wrong_type(name: str, wanted: str, value: object) -> WrongTypeError:
    return WrongTypeError(
        f"{name} must be {wanted}, got {shown(value)}",
        code="OST5001",
        remedy=f"pass {wanted} as {name}, or leave it out",
    )
