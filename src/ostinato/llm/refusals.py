"""The two refusals that a server must tell apart: come back later, and never with this prompt.

They carry their numbers as attributes, so that `serve` can answer 429 with a wait or 400 with the
limit without reading the text of an error.
"""

from __future__ import annotations

from ostinato.errors import ResourceError, UsageError, WrongTypeError

_SHOWN = 200  # letters of a value that stand in a refusal


def shown(value: object) -> str:
    """Return a value as a refusal names it, cut where it is long."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - an int of thousands of digits has none; a class may do worse
        text = f"a {type(value).__name__} that cannot be written out"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


class QueueFull(ResourceError):
    """The waiting queue is at its bound; the same request may be taken a little later."""


class PromptTooLong(UsageError):
    """The prompt leaves the model no room for a new token, now or later."""


def queue_full(
    waiting: int, waiting_tokens: int, most: int, most_tokens: int, prompt_tokens: int
) -> QueueFull:
    """Return the refusal of one prompt by a queue that is full in requests or in tokens."""
    return QueueFull(
        f"the queue is full: {waiting} of {most} requests and {waiting_tokens} of {most_tokens} "
        f"prompt tokens wait, and this prompt has {prompt_tokens}",
        code="OST5101",
        remedy="send the request again when others have finished, or raise max_waiting or "
        "max_waiting_tokens",
    )


def taken_name(request_id: str) -> UsageError:
    """Return the refusal of a request whose name a living one has."""
    return UsageError(
        f"a request called {shown(request_id)} is still running",
        code="OST5008",
        remedy="give every request an id of its own, such as str(uuid.uuid4())",
    )


def no_params(value: object) -> WrongTypeError:
    """Return the refusal of something that stands where sampling parameters belong."""
    return WrongTypeError(
        f"sampling parameters are a SamplingParams, got {shown(value)}",
        code="OST5046",
        remedy="pass SamplingParams(...) or SamplingParams.read(mapping)",
    )


def check_answers(answers: int, max_waiting: int) -> None:
    """Refuse more answers to one prompt than can ever wait together.

    Raises:
        UsageError: OST5047.
    """
    if answers > max_waiting:
        raise UsageError(
            f"n asks for {answers} answers to one prompt, and max_waiting lets {max_waiting} wait",
            code="OST5047",
            remedy=f"ask for n of at most {max_waiting}, or raise max_waiting",
        )


def prompt_too_long(prompt_tokens: int, most: int, held_back_by: str) -> PromptTooLong:
    """Return the refusal of a prompt of more than `most` tokens.

    Args:
        prompt_tokens: How long the prompt is.
        most: The longest prompt that leaves room for one new token.
        held_back_by: What sets the limit, as a clause: "the model holds 2048 tokens in all".
    """
    return PromptTooLong(
        f"the prompt has {prompt_tokens} tokens and at most {most} fit, for {held_back_by}",
        code="OST5002",
        remedy=f"shorten the prompt to {most} tokens or fewer",
    )
