"""A call, as the rules see it."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from ostinato.doctor.lint.operations import Args, Keywords, keyword
from ostinato.doctor.lint.values import UNKNOWN, Value


@dataclass(slots=True)
class Event:
    """A call.

    Attributes:
        attr: The name after the last dot of what is called; empty for a plain name.
        function: Its dotted name, such as "torch.tensor"; empty if it has none.
        base: What stands before that dot.
        result: What the call gives; a rule that knows more puts it here.
    """

    node: ast.Call
    attr: str
    function: str
    base: Value
    target: Value
    args: Args
    keywords: Keywords
    result: Value

    @property
    def first(self) -> Value:
        """The first argument; UNKNOWN if there is none."""
        return self.args[0] if self.args else UNKNOWN

    def keyword(self, wanted: str) -> Value | None:
        """Return the argument given by that name."""
        return keyword(self.keywords, wanted)

    def subject(self, package: str = "torch.") -> tuple[str, Value]:
        """Return the operation and the tensor it is about: `x.f()` and `torch.f(x)` are alike."""
        if self.function.startswith(package):
            return self.function.rpartition(".")[2], self.first
        return (self.attr, self.base) if not self.function else ("", UNKNOWN)
