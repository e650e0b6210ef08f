"""Structured output: answers that keep to a JSON schema, a regex or a list of choices.

    compiler = Compiler(tokenizer, vocabulary=49152, stop_ids=(2,))
    compiled = compiler.compile(params.schema).result()   # off the step loop, with a timeout
    grammar = compiled.start()                            # one for each answer

`schema` reads what a request asks for; `compiler` turns it into a grammar, after `trial` has shown
in a process of its own that this ends; `grammar` says before each token what may come.

The compiler of grammars is llguidance, an extra: `pip install 'ostinato[structured]'`. Importing
this package imports neither it nor torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ostinato.llm.structured.compiler import Compiled, Compiler
    from ostinato.llm.structured.grammar import Grammar
    from ostinato.llm.structured.schema import Schema, SchemaKind, read_schema

_HOMES = {
    "Compiled": "compiler",
    "Compiler": "compiler",
    "Grammar": "grammar",
    "Schema": "schema",
    "SchemaKind": "schema",
    "read_schema": "schema",
}

__all__ = ["Compiled", "Compiler", "Grammar", "Schema", "SchemaKind", "read_schema"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
