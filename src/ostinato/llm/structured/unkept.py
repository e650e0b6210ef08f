"""What a JSON schema asks for and no grammar can hold an answer to, found before one is compiled.

The compiler of grammars takes some of this without a word: the answers would break the schema, or
never end. Nothing here imports it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ostinato.llm.refusals import shown
from ostinato.llm.structured.problems import not_kept

_LEAST, _MOST = -(2**63), 2**64 - 1
_NAMED = ("properties", "patternProperties", "$defs", "definitions")
_LISTED = ("anyOf", "allOf", "oneOf", "prefixItems", "items")
_SINGLE = ("additionalProperties", "additionalItems", "items")


def check_numbers(schema: Mapping[Any, Any]) -> None:
    """Refuse whole numbers that do not fit into 64 bits, anywhere in a schema.

    Raises:
        UsageError: OST5062, with the keyword that holds one.
    """
    left: list[tuple[Any, Any]] = [("", schema)]
    while left:
        keyword, value = left.pop()
        if isinstance(value, Mapping):
            left += value.items()
        elif isinstance(value, list | tuple):
            left += ((keyword, each) for each in value)
        elif isinstance(value, int) and not _LEAST <= value <= _MOST:
            raise not_kept(f"{keyword} has a whole number that does not fit into 64 bits")


def check_kept(schema: Mapping[str, Any]) -> None:
    """Refuse what answers would break though the compiler takes it.

    Raises:
        UsageError: OST5062, with the keyword that could not be kept.
    """
    for part in _parts(schema):
        _check_count(part)
        _check_bounds(part)
    _check_ends(schema)


def _check_count(schema: Mapping[str, Any]) -> None:
    """Refuse to count keys: no grammar remembers which there were, so that one may come twice.

    Required keys come once each, and no other is called like them: one other is one more.
    """
    least, required = schema.get("minProperties"), schema.get("required")
    if not isinstance(least, int | float) or not _may_be_object(schema):
        return
    count = len(set(map(str, required))) if isinstance(required, list | tuple) else 0
    if least > count + 1:
        raise not_kept(
            f"minProperties is {least:g} and {count} keys are required; that more than one other "
            "key differs from the rest cannot be kept, so list the keys under required"
        )


def _check_bounds(schema: Mapping[str, Any]) -> None:
    """Refuse a bound without a number: `true` beside `minimum` is draft 4's, and kept as such."""
    for exclusive, plain in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if schema.get(exclusive) is True and plain not in schema:
            raise not_kept(
                f"{exclusive} is true and there is no {plain} that it could exclude; write the "
                f"number, as in {exclusive!r}: 3"
            )


def _check_ends(schema: Mapping[str, Any]) -> None:
    """Refuse a definition whose every answer must hold another of itself."""
    named = {
        f"#/{keyword}/{name}": part
        for keyword in ("$defs", "definitions")
        if isinstance(parts := schema.get(keyword), Mapping)
        for name, part in parts.items()
    }
    # Follow what is needed in depth, each once: what leads back to where one comes from is a ring.
    done, ahead, path = set[str](), dict[str, list[str]](), list[str]()
    for start in named:
        path += [start] * (start not in done)
        while path:
            here = path[-1]
            if here not in ahead:
                ahead[here] = [each for each in _needed(named[here]) if each in named]
            if not ahead[here]:
                done.add(path.pop())
                continue
            after = ahead[here].pop()
            if after in ahead and after not in done:
                raise not_kept(f"$ref {shown(after)} requires itself, and no answer would end")
            path += [after] * (after not in done)


def _needed(schema: Any) -> set[str]:
    """Return the references that every answer to a schema must follow; alternatives need none."""
    needed: set[str] = set()
    left: list[Any] = [schema]
    while left:
        part = left.pop()
        if not isinstance(part, Mapping):
            continue
        if isinstance(reference := part.get("$ref"), str):
            needed.add(reference)
        if isinstance(parts := part.get("allOf"), list | tuple):
            left += parts
        properties, required = part.get("properties"), part.get("required")
        if part.get("type") == "object" and isinstance(properties, Mapping):
            names = required if isinstance(required, list | tuple) else ()
            left += (properties.get(name) for name in names if isinstance(name, str))
        least = part.get("minItems")
        if part.get("type") == "array" and isinstance(least, int | float) and least >= 1:
            left.append(_first_item(part))
    return needed


def _first_item(schema: Mapping[str, Any]) -> Any:
    first = schema.get("prefixItems")
    return first[0] if isinstance(first, list | tuple) and first else schema.get("items")


def _may_be_object(schema: Mapping[str, Any]) -> bool:
    named = schema.get("type", "object")
    return "object" in named if isinstance(named, list | tuple) else named == "object"


def _parts(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield a schema and all schemas in it; what is data there, such as `enum`, is none."""
    left: list[Any] = [schema]
    while left:
        part = left.pop()
        if not isinstance(part, Mapping):
            continue
        yield part
        for keyword in _NAMED:
            if isinstance(named := part.get(keyword), Mapping):
                left += named.values()
        for keyword in _LISTED:
            if isinstance(listed := part.get(keyword), list | tuple):
                left += listed
        left += (part.get(keyword) for keyword in _SINGLE)
