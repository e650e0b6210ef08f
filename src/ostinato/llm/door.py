"""What a request must be to be let in: checked at once, in the thread of whoever asks.

Behind the door nothing is checked again: an id past the vocabulary would be a fault of the whole
device, not of one request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ostinato.errors import UsageError, WrongTypeError
from ostinato.llm.refusals import check_answers, shown
from ostinato.llm.reply import Reply
from ostinato.llm.sampling_state import BIAS_ROOM, STOP_ROOM
from ostinato.llm.text import AnswerText
from ostinato.llm.values import whole_numbers

if TYPE_CHECKING:
    from ostinato.llm.params import SamplingParams
    from ostinato.llm.request import Request
    from ostinato.llm.tokenizer import Tokenizer

Prompt = str | Sequence[int] | Sequence[Mapping[str, Any]]
"""A text or token ids, gone on from as they stand, or a conversation: messages with "role" and
"content", which the model's chat template writes."""

_GOLDEN = 0x9E3779B97F4A7C15  # 2**64 / golden ratio: neighbours get seeds far apart
_MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Door:
    """Knows what the model can take.

    Attributes:
        vocabulary: Tokens of the model.
        stop_ids: By which the model ends an answer.
        most_logprobs: Likeliest tokens that may be asked for.
        seed: Of the engine.
        max_waiting: The most requests that may wait, so the most answers to one prompt; None: no
            bound.
        last: Parameters that were let in, and the tokens that end an answer with them: most callers
            ask with the same again and again, and they never change.
    """

    tokenizer: Tokenizer | None
    vocabulary: int
    stop_ids: tuple[int, ...]
    most_logprobs: int
    seed: int
    max_waiting: int | None = None
    last: list[tuple[SamplingParams, tuple[int, ...]]] = field(default_factory=list, init=False)

    def read_prompt(self, prompt: Prompt) -> tuple[int, ...]:
        """Return a prompt's token ids.

        Raises:
            UsageError: OST5040, a text and no tokenizer; OST5041 and OST2030, a conversation that
                the model's chat template does not take; OST5042, a text with half a character.
            WrongTypeError: OST5042, none of the three.
        """
        if isinstance(prompt, str):
            return tuple(self._needed_tokenizer("a text").encode(prompt))
        # A list first: it takes a tenth of the time to be told from one than from any `Sequence`.
        if isinstance(prompt, (list, Sequence)) and not isinstance(prompt, bytes):
            ids = whole_numbers(prompt)
            if ids is not None:
                return ids
            if all(isinstance(one, Mapping) for one in prompt):
                messages: Any = prompt
                return tuple(self._needed_tokenizer("a conversation").encode_chat(messages))
        raise no_prompt(prompt)

    def _needed_tokenizer(self, what: str) -> Tokenizer:
        if self.tokenizer is None:
            raise UsageError(
                f"{what} was given, and the model has no tokenizer",
                code="OST5040",
                remedy="pass token ids, or add the model's tokenizer.json to its folder",
            )
        return self.tokenizer

    def replies(self, request: Request, count: int) -> list[Reply]:
        """Return one reply per answer that a request asks for, checked.

        Args:
            request: What is asked.
            count: How many requests came before: names the seed of one without.

        Raises:
            UsageError: OST5020 and OST5021, stop ids or biases that do not fit; OST5043, a token
                that is none; OST5044, more log probabilities than there are; OST5040, a stop text
                without a tokenizer; OST5047, more answers than may wait.
        """
        params, stop_ids = request.params, self._judge(request)
        seed = params.seed if params.seed is not None else self.seed + _GOLDEN * (count + 1)
        replies, asked = [], request
        for index in range(params.n):
            if index:
                asked = replace(request, request_id=f"{request.request_id}#{index}")
            reply = Reply(
                asked,
                seed=(seed + _GOLDEN * index) & _MASK,
                stop_ids=stop_ids,
                watch=self.text(params) if params.stop else None,
            )
            replies.append(reply)
        return replies

    def stop_ids_of(self, params: SamplingParams) -> tuple[int, ...]:
        """Return the tokens that end an answer."""
        own = () if params.ignore_eos else self.stop_ids
        return tuple(dict.fromkeys((*own, *params.stop_token_ids)))

    def text(self, params: SamplingParams) -> AnswerText | None:
        """Return what makes text of an answer's tokens; None without a tokenizer."""
        if self.tokenizer is None:
            return None
        return AnswerText(self.tokenizer.decode, tuple(params.stop), params.min_tokens)

    def check(self, request: Request) -> None:
        """Refuse what the model cannot take.

        Raises:
            UsageError: As `replies`.
        """
        self._judge(request)

    def _judge(self, request: Request) -> tuple[int, ...]:
        """Do as `check`, and return the tokens that end an answer."""
        last = self.last  # at most one entry, which other threads replace as a whole
        if last and last[0][0] is request.params:
            stop_ids = last[0][1]
        else:
            stop_ids = self._judge_params(request.params)
            last[:] = [(request.params, stop_ids)]
        self._check_tokens("the prompt", request.prompt_ids)
        return stop_ids

    def _judge_params(self, params: SamplingParams) -> tuple[int, ...]:
        if self.max_waiting is not None:  # before the replies are built: n may be any number
            check_answers(params.n, self.max_waiting)
        if params.stop:
            self._needed_tokenizer("a stop text")
        self._check_tokens("stop_token_ids", params.stop_token_ids)
        if params.logit_bias and max(params.logit_bias) >= self.vocabulary:
            strange = next(token for token in params.logit_bias if token >= self.vocabulary)
            raise self._stranger("logit_bias", strange, "OST5021")
        stop_ids = self.stop_ids_of(params)
        _check_room("stop ids", len(stop_ids), STOP_ROOM)
        _check_room("logit biases", len(params.logit_bias), BIAS_ROOM)
        if (params.logprobs or 0) > self.most_logprobs:
            raise UsageError(
                f"{params.logprobs} log probabilities are asked for beside each token, and the "
                f"engine reports {self.most_logprobs}",
                code="OST5044",
                remedy=f"ask for at most {self.most_logprobs}, or raise most_logprobs",
            )
        return stop_ids

    def _check_tokens(self, where: str, ids: Sequence[int]) -> None:
        if ids and not (min(ids) >= 0 and max(ids) < self.vocabulary):
            strange = next(token for token in ids if not 0 <= token < self.vocabulary)
            raise self._stranger(where, strange, "OST5043")

    def _stranger(self, where: str, token: int, code: str) -> UsageError:
        return UsageError(
            f"{where} names token {shown(token)}, and the vocabulary ends at {self.vocabulary - 1}",
            code=code,
            remedy=f"take that token out of {where}; is it another model's tokenizer?",
        )


def no_prompt(value: object) -> WrongTypeError:
    """Return the refusal of something that is no prompt."""
    return WrongTypeError(
        f"a prompt is a text, a list of token ids or a list of messages, got {shown(value)}",
        code="OST5042",
        remedy="pass a text, [1, 2, 3] (of an array: its .tolist()), or "
        '[{"role": "user", "content": "..."}]',
    )


def _check_room(what: str, given: int, room: int) -> None:
    if given > room:
        raise UsageError(
            f"a request has {given} {what}, a row holds {room}",
            code="OST5020",
            remedy=f"give at most {room} {what}",
        )
