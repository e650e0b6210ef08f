"""Which field of a request a refusal is about that knows no fields: the engine's, the tokenizer's.

The engine speaks of its own options. What a client calls them depends on where it asked: a prompt
is `messages` to one and `input` to another.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ostinato.serve.openai.errors import HttpProblem

_ROLES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "context_length_exceeded": "prompt",
        "OST2030": "prompt",
        "OST5004": "prompt",
        "OST5040": "prompt",
        "OST5041": "prompt",
        "OST5042": "prompt",
        "OST5044": "logprobs",
        "OST5047": "n",
        "OST6004": "prompt",
        "OST5060": "schema",
        "OST5061": "schema",
        "OST5062": "schema",
        "OST5063": "schema",
        "OST5064": "schema",
        "OST5065": "schema",
        "OST6032": "schema",
    }
)
_WORDS: Final = (
    ("priority", "priority"),
    ("salt of", "cache_salt"),
    ("logit_bias", "logit_bias"),
    ("a key of logit_bias", "logit_bias"),
    ("a value of logit_bias", "logit_bias"),
    ("stop_token_ids", "stop_token_ids"),
    ("the prompt", "prompt"),
)
"""How a message begins that speaks of a field, where its code alone does not say which."""
_SPOKEN: Final = frozenset({"OST5001", "OST5009", "OST5020", "OST5021", "OST5043"})


def param_of(problem: HttpProblem, names: Mapping[str, str]) -> str | None:
    """Return the field that a refusal is about; None where it is about none.

    Args:
        names: What the request's fields are called: "prompt", "schema", "logprobs"; and "line 3",
            the one that became the third line of its grammar.
    """
    role = _ROLES.get(problem.code or "")
    if role is not None:
        by_line = names.get(f"line {problem.line}") if role == "schema" else None
        return by_line or names.get(role, "n" if role == "n" else None)
    if problem.code not in _SPOKEN:
        return None
    said = str(problem)
    if problem.code == "OST5020":
        return "stop_token_ids" if "stop ids" in said else "logit_bias"
    field = next((field for opening, field in _WORDS if said.startswith(opening)), None)
    return names.get("prompt") if field == "prompt" else field
