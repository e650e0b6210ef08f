"""The two refusals that a server must tell apart: come back later, and never with this prompt.

They carry their numbers as attributes, so that `serve` can answer 429 with a wait or 400 with the
limit without reading the text of an error.
"""

from __future__ import annotations

from ostinato.errors import ResourceError, UsageError


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
