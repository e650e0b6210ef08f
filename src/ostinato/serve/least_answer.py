"""The least that an answer to a JSON schema can be: a bound below which none is whole.

An answer that ends at max_tokens in the middle of its JSON is of no use to anybody, and where a
little arithmetic shows that every answer would, the request is refused at once. It is a lower
bound: what it does not understand counts as one byte. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

_MOST_PARTS = 2000
"""Of a schema that are looked at: some 5 ms; the rest counts as one byte each."""
_DEEPEST = 40
_NO_MORE = 1 << 62
_BYTES = {"boolean": 4, "null": 4, "string": 2, "array": 2, "object": 2}
"""Of the shortest value of a type; numbers have one."""


@dataclass(frozen=True, slots=True)
class Least:
    """What every answer has.

    Attributes:
        bytes: Of the whole text.
        commas: Outside of strings; there is a value between any two of them.
    """

    bytes: int = 1
    commas: int = 0

    def plus(self, other: Least, times: int = 1) -> Least:
        """Return what both have together, the other so many times."""
        return Least(
            min(_NO_MORE, self.bytes + times * other.bytes),
            min(_NO_MORE, self.commas + times * other.commas),
        )


def least_of(several: Iterable[Least]) -> Least:
    """Return what each of several answers has; there must be one."""
    return _pick(min, several)


def least_answer(schema: object) -> Least:
    """Return a lower bound of the answers to a schema, as a request's option `schema` gives it."""
    if not isinstance(schema, Mapping):
        return Least()
    choices = schema.get("choices")
    if isinstance(choices, list | tuple) and choices:
        return Least(min(len(str(choice).encode(errors="replace")) for choice in choices))
    return _Walk(schema).of(schema)


class _Walk:
    """Through one schema, once."""

    def __init__(self, root: Mapping[Any, Any]) -> None:
        self._root = root
        self._left, self._depth = _MOST_PARTS, 0
        self._inside: set[str] = set()

    def of(self, schema: object) -> Least:
        self._left -= 1
        if self._left < 0 or self._depth == _DEEPEST or not isinstance(schema, Mapping):
            return Least()
        self._depth += 1
        try:
            return self._whole(schema)
        finally:
            self._depth -= 1

    def _whole(self, schema: Mapping[Any, Any]) -> Least:
        all_of = [self._own(schema), *map(self.of, _listed(schema.get("allOf")))]
        if isinstance(schema.get("$ref"), str):
            all_of.append(self._meant(schema["$ref"]))
        for name in ("anyOf", "oneOf"):
            branches = _listed(schema.get(name))
            if branches:
                all_of.append(_pick(min, map(self.of, branches)))
        return _pick(max, all_of)

    def _meant(self, ref: str) -> Least:
        if ref in self._inside or not ref.startswith("#"):  # what holds itself may be left out
            return Least()
        found: Any = self._root
        for name in ref[1:].split("/")[1:]:
            found = found.get(name) if isinstance(found, Mapping) else None
        self._inside.add(ref)
        try:
            return self.of(found)
        finally:
            self._inside.discard(ref)

    def _own(self, schema: Mapping[Any, Any]) -> Least:
        if "const" in schema:
            return self._of_value(schema["const"])
        if _listed(schema.get("enum")):
            return _pick(min, map(self._of_value, schema["enum"]))
        kinds = schema.get("type")
        if kinds is None:
            return Least()
        kinds = kinds if isinstance(kinds, list) else [kinds]
        return _pick(min, (self._of_type(kind, schema) for kind in kinds or [None]))

    def _of_type(self, kind: object, schema: Mapping[Any, Any]) -> Least:
        if kind == "json_object":
            kind = "object"
        least = Least(_BYTES.get(str(kind), 1))
        if kind == "string":
            return least.plus(Least(_count(schema.get("minLength"))))
        if kind == "array":
            return self._array(least, schema)
        return self._object(least, schema) if kind == "object" else least

    def _array(self, least: Least, schema: Mapping[Any, Any]) -> Least:
        items, count = schema.get("items"), _count(schema.get("minItems"))
        first, rest = _listed(schema.get("prefixItems")), items
        if isinstance(items, list):  # as older drafts have it
            first, rest = items, schema.get("additionalItems")
        for one in first[:count]:
            least = least.plus(self.of(one))
        if count > len(first):
            least = least.plus(self.of(rest), count - len(first))
        return least.plus(Least(1, 1), max(0, count - 1))

    def _object(self, least: Least, schema: Mapping[Any, Any]) -> Least:
        properties = schema.get("properties")
        properties = properties if isinstance(properties, Mapping) else {}
        names = {name for name in _listed(schema.get("required")) if isinstance(name, str)}
        for name in names:
            least = least.plus(_name(name)).plus(self.of(properties.get(name)))
        count = max(len(names), _count(schema.get("minProperties")))
        least = least.plus(Least(len('"":0')), count - len(names))
        return least.plus(Least(1, 1), max(0, count - 1))

    def _of_value(self, value: object) -> Least:
        """Return what a value is written in; one that nests deeply would be no recursion's task."""
        least, left = Least(0), [value]
        while left:
            one = left.pop()
            self._left -= 1
            if self._left < 0 or not isinstance(one, list | Mapping):
                least = least.plus(_scalar(one) if self._left >= 0 else Least())
                continue
            commas = max(0, len(one) - 1)
            least = least.plus(Least(2 + commas, commas))
            if isinstance(one, Mapping):
                least = Least(least.bytes + sum(_name(name).bytes for name in one), least.commas)
            left += one.values() if isinstance(one, Mapping) else one
        return least


def _name(name: object) -> Least:
    """Return what a key is written in, and its colon."""
    return Least(len(_written(str(name))) + 1)


def _scalar(value: object) -> Least:
    if isinstance(value, float):
        digits = repr(value)
        # 1.0 is written as 1; where an exponent would be, and how long, is not for us to say.
        return Least(1 if "e" in digits else len(digits.removesuffix(".0")))
    return Least(len(_written(value)))


def _written(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode(errors="replace")


def _pick(which: Callable[..., int], found: Iterable[Least]) -> Least:
    return reduce(lambda a, b: Least(which(a.bytes, b.bytes), which(a.commas, b.commas)), found)


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _count(value: object) -> int:
    return max(0, value) if isinstance(value, int) and not isinstance(value, bool) else 0
