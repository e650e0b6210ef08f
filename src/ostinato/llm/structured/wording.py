"""Why no grammar can be made of a schema, said of the schema.

The compiler of grammars speaks of its own parts. What it means is known for what people get wrong,
and said as something about the schema or the pattern that they gave.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_Match = re.Match[str]
_MOST_LETTERS = 80


def said_of_schema(problem: str) -> str:
    """Return what is wrong with a schema, for what its compiler says."""
    for pattern, say in _REASONS:
        found = re.search(pattern, problem, re.DOTALL)
        if found is not None:
            return say if isinstance(say, str) else say(found)
    return "it asks for something that no answer can be kept to"


def _short(text: str) -> str:
    return repr(text if len(text) <= _MOST_LETTERS else text[:_MOST_LETTERS] + "...")


def _keys(found: _Match) -> str:
    names = re.findall(r'"([^"]*)"', found.group(1))
    return f"it uses {' and '.join(names)}, to which no answer can be kept"


def _pattern(found: _Match) -> str:
    pattern, why = found.groups()
    pattern = re.sub(r"[ ^]+$", "", pattern)
    return f"its pattern {_short(pattern)} {_PATTERNS.get(_first(why), 'cannot be read')}"


def _first(why: str) -> str:
    return next((words for words in _PATTERNS if words in why), "")


def _unsatisfiable(found: _Match) -> str:
    bounds = re.match(r"(\w+) \(([^)]*)\) is greater than (\w+) \(([^)]*)\)", found.group(1))
    if bounds is not None:
        return "nothing satisfies it: {} {} is above {} {}".format(*bounds.groups())
    if "anyOf is empty" in found.group(1):
        return "nothing satisfies it: it leaves no alternative"
    if "incompatible types" in found.group(1):
        return "nothing satisfies it: two of its types exclude each other"
    return "nothing satisfies it"


def _range(found: _Match) -> str:
    bounds = [
        f"{name} {value}"
        for name, short in (("minimum", "min"), ("maximum", "max"))
        for value in re.findall(rf"{short}=Some\(([^)]*)\)", found.group(1))
    ]
    return f"no number can be written for {' and '.join(bounds) or 'its minimum and maximum'}"


_PATTERNS = {
    "look-around": "looks ahead or behind, which is not done; say it without",
    "lookaround": "looks ahead or behind, which is not done; say it without",
    "backreference": "refers back to a group, which is not done; say it without",
    "unclosed group": "opens a group that is never closed",
    "unopened group": "closes a group that was never opened",
    "unclosed character class": "opens a class of letters that is never closed",
    "class range": "has a range of letters that ends before it begins",
    "Unicode property": "names a property of letters that there is not",
    "repetition": "repeats nothing, or not as often as it says",
}
_REASONS: tuple[tuple[str, str | Callable[[_Match], str]], ...] = (
    (r"Unimplemented keys: \[([^\]]*)", _keys),
    (r"oneOf constraints", "it uses oneOf, to which no answer can be kept; anyOf will do"),
    (r"Unknown format: (.*)", lambda m: f"it has the format {_short(m[1])}, which is not known"),
    (
        r"Invalid type: (.*?)(?: \d+ \||$)",
        lambda m: f"it has the type {_short(m[1])}, which is none",
    ),
    (r"Pointer '([^']*)' does not exist", lambda m: f"its $ref {_short(m[1])} leads nowhere"),
    (
        r"Resource '([^']*)' is not present",
        lambda m: f"its $ref {_short(m[1])} leads out of the schema, and nothing is fetched",
    ),
    (r"Unsatisfiable schema: (.*)", _unsatisfiable),
    (
        r"Expected positive integer for '([^']*)', got (.*?)(?: \d+ \||$)",
        lambda m: f"{m[1]} must be a whole number from 0, got {_short(m[2])}",
    ),
    (
        r"Expected f64 for '([^']*)', got (.*?)(?: \d+ \||$)",
        lambda m: f"{m[1]} must be a number, got {_short(m[2])}",
    ),
    (
        r"Expected string for '([^']*)'( item)?, got (.*?)(?: \d+ \||$)",
        lambda m: f"{'an item of ' if m[2] else ''}{m[1]} must be a text, got {_short(m[3])}",
    ),
    (r"Failed to generate regex for (?:integer|float) range: (.*)", _range),
    (
        r"min/maxProperties only supported",
        "it counts properties by minProperties or maxProperties, and not all are required",
    ),
    (r"Expected array for '([^']*)'", lambda m: f"{m[1]} must be a list"),
    (r"(\w+) must be an array", lambda m: f"{m[1]} must be a list"),
    (r"(\w+) must be an object(?! or)", lambda m: f"{m[1]} must be an object"),
    (r"must be an object or boolean", "a schema in it is no object, and not true or false"),
    (r"multiple of", "multipleOf must be above 0"),
    (r"regex parse error: (.*?) error: (.*)", _pattern),
    (r'invalid regex "(.*?)" \(in regex\): (.*)', _pattern),
    (r"regex parse error: (.*)()", _pattern),  # cut off before it says why
    (r"(?i)recursion|nest|deep", "it nests too deeply"),
    (r"(?i)too (?:big|large|many)|limit", "it is too large"),
)
