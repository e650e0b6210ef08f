"""Fields of OpenAI's that this server knows and cannot obey: refused, unless they say nothing.

A request that was written for OpenAI works as it stands where its fields ask for what happens
anyway; where one asks for more, its sender is told which, and not left to find out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from ostinato.serve.openai.errors import HttpProblem

_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Unless:
    """What a field may say here.

    Attributes:
        harmless: Values that ask for what happens anyway; null is always one.
        why: Why no other is taken, and what to do, as a clause.
    """

    why: str
    harmless: tuple[Any, ...] = ()


_ONLY_TEXT = "this server answers in text alone; leave it out"
_NOT_KEPT = "nothing is kept here between two requests; leave it out, or send false"
_NO_TOOLS = "/v1/responses has no tools here; /v1/chat/completions has"
_STATELESS = "nothing is kept here between two requests; send the whole conversation as input"
_SHARED = {
    "store": Unless(_NOT_KEPT, (False,)),
    "service_tier": Unless("there is one tier here; send auto or default", ("auto", "default")),
    "moderation": Unless("this server judges no texts; leave it out"),
}
CHAT: Mapping[str, Unless] = MappingProxyType(
    {
        **_SHARED,
        "audio": Unless(f"this server makes no sound; {_ONLY_TEXT}"),
        "modalities": Unless(_ONLY_TEXT, (["text"],)),
        "prediction": Unless("this server does not read predicted outputs; leave it out"),
        "web_search_options": Unless("this server does no web search; leave it out"),
        "functions": Unless("it is OpenAI's former word; give tools", ([],)),
        "function_call": Unless("it is OpenAI's former word; give tool_choice", ("none",)),
        "verbosity": Unless(
            "no model here is told how much to say; send medium, or ask for it in a message",
            ("medium",),
        ),
    }
)
COMPLETION: Mapping[str, Unless] = MappingProxyType(
    {
        **{name: _SHARED[name] for name in ("store", "service_tier")},
        "suffix": Unless("this server does not fill in before a suffix; leave it out", ("",)),
    }
)
RESPONSE: Mapping[str, Unless] = MappingProxyType(
    {
        **_SHARED,
        "tools": Unless(_NO_TOOLS, ([],)),
        "tool_choice": Unless(_NO_TOOLS, ("auto", "none")),
        "previous_response_id": Unless(_STATELESS, ("",)),
        "conversation": Unless(_STATELESS),
        "prompt": Unless("no prompts are kept here; send it as input"),
        "background": Unless("every request is answered at once; leave it out", (False,)),
        "background_options": Unless("every request is answered at once; leave it out"),
        "truncation": Unless(
            "this server cuts nothing out of a prompt; send disabled, or less input", ("disabled",)
        ),
        "top_logprobs": Unless("/v1/chat/completions has logprobs; leave it out, or send 0", (0,)),
        "context_management": Unless(
            "this server cuts nothing out of a prompt; leave it out", ([],)
        ),
        "access_programs": Unless("this server has none; leave it out"),
        "image": Unless(_ONLY_TEXT),
    }
)
TOKENIZE: Mapping[str, Unless] = MappingProxyType(
    {
        "add_generation_prompt": Unless(
            "a conversation ends where the assistant begins to speak; send true", (True,)
        ),
        "add_special_tokens": Unless(
            "a text gets the tokens that it is answered with; send true", (True,)
        ),
    }
)
EFFORT = Unless(
    "the model's chat template does not read it; send none or medium, or leave it out",
    ("none", "medium"),
)


def refuse(asked: object, limits: Mapping[str, Unless]) -> None:
    """Refuse what cannot be obeyed.

    Raises:
        HttpProblem: 400, with the field.
    """
    for name, limit in limits.items():
        refuse_value(name, getattr(asked, name), limit)


def refuse_value(name: str, value: object, limit: Unless) -> None:
    """Refuse one value; see `refuse`."""
    if value is None or value in limit.harmless:
        return
    text = repr(value)
    text = text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
    raise HttpProblem(
        400, f"{name} cannot be {text}: {limit.why}", param=name, code="unsupported_value"
    )
