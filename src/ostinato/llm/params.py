"""How a request wants its tokens drawn and when it wants to stop: checked once, at the door.

Names and meanings are vLLM's and OpenAI's. Every value is checked here, so that nothing behind
(the scheduler, the sampling state on the device) has to ask again whether a number makes sense.
`LLM.generate` and the server build one per request; `SamplingParams.read` reads a plain mapping,
as it stands in a file or a request's body.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from math import inf
from types import MappingProxyType
from typing import Any

from ostinato.llm.refusals import no_params
from ostinato.llm.structured.schema import read_schema
from ostinato.llm.values import Check, require_known

_SEEDS = (-(2**63), 2**64 - 1)  # what torch.manual_seed takes
_BIAS = 100.0
_MOST = 2**63 - 1  # the rows on the device hold whole numbers of 64 bits
_CHECK = Check("OST5001")
_REPETITION = (1e-6, 1e6)  # past these, logits in float32 would soon be infinite
_MOST_IDS = 2**16  # far beyond what a row holds: a range may name more than could ever be looked at


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
        # The one moment of change: afterwards every whole number is an int, every sequence a tuple,
        # and nothing is shared.
        self._read_counts()
        self._read_numbers()
        _CHECK.flag("ignore_eos", self.ignore_eos)
        object.__setattr__(self, "stop", _texts(self.stop))
        object.__setattr__(self, "stop_token_ids", _token_ids(self.stop_token_ids))
        object.__setattr__(self, "logit_bias", _biases(self.logit_bias))
        object.__setattr__(self, "schema", read_schema(self.schema))

    def _read_counts(self) -> None:
        counts: dict[str, int | None] = {
            "max_tokens": _CHECK.count("max_tokens", self.max_tokens, 1, _MOST),
            "top_k": max(0, _CHECK.count("top_k", self.top_k, -1, _MOST)),
            "n": _CHECK.count("n", self.n, 1, _MOST),
            "min_tokens": _CHECK.count("min_tokens", self.min_tokens, 0, _MOST),
        }
        if self.min_tokens > self.max_tokens:
            raise _CHECK.out_of_range(
                "min_tokens", f"at most max_tokens, {self.max_tokens}", self.min_tokens
            )
        if self.logprobs is not None:
            counts["logprobs"] = _CHECK.count("logprobs", self.logprobs, 0, _MOST)
        if self.seed is not None:
            counts["seed"] = _CHECK.count("seed", self.seed, *_SEEDS)
        for name, count in counts.items():
            object.__setattr__(self, name, count)

    def _read_numbers(self) -> None:
        numbers = {
            "temperature": _CHECK.number("temperature", self.temperature, 0.0, inf),
            "top_p": _CHECK.number("top_p", self.top_p, 0.0, 1.0, above_low=True),
            "min_p": _CHECK.number("min_p", self.min_p, 0.0, 1.0),
            "repetition_penalty": _CHECK.number(
                "repetition_penalty", self.repetition_penalty, *_REPETITION
            ),
            "presence_penalty": _CHECK.number("presence_penalty", self.presence_penalty, -2.0, 2.0),
            "frequency_penalty": _CHECK.number(
                "frequency_penalty", self.frequency_penalty, -2.0, 2.0
            ),
        }
        for name, number in numbers.items():
            object.__setattr__(self, name, number)

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
        require_known(options, known, "sampling option", "OST5003")
        return cls(**options)


def _texts(stop: object) -> tuple[str, ...]:
    texts = (stop,) if isinstance(stop, str) else stop
    if not isinstance(texts, Sequence) or not all(isinstance(text, str) for text in texts):
        raise _CHECK.wrong_type("stop", "a text or a list of texts", stop)
    if not all(texts):
        raise _CHECK.out_of_range("stop", "texts of at least one letter", stop)
    if not all(is_whole(text) for text in texts):
        raise _CHECK.out_of_range("stop", "texts of whole characters, no lone surrogates", stop)
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
        raise _CHECK.wrong_type("stop_token_ids", "a list of token ids", ids)
    if _is_longer(ids, _MOST_IDS):
        raise _CHECK.out_of_range("stop_token_ids", f"at most {_MOST_IDS} token ids", ids)
    return tuple(_CHECK.count("stop_token_ids", token, 0, _MOST) for token in ids)


def _is_longer(values: Sequence[object], most: int) -> bool:
    try:
        return len(values) > most
    except OverflowError:  # a range of more than 64 bits can count
        return True


def _biases(biases: object) -> Mapping[int, float]:
    if not isinstance(biases, Mapping):
        raise _CHECK.wrong_type("logit_bias", "a mapping of token ids to numbers", biases)
    return MappingProxyType(
        {
            _CHECK.count("a key of logit_bias", token, 0, _MOST): _CHECK.number(
                "a value of logit_bias", bias, -_BIAS, _BIAS
            )
            for token, bias in biases.items()
        }
    )
