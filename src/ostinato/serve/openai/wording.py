"""What is wrong with a body, in our words: which field, what it must be, what it is, what to do.

The library that reads bodies says what it found in the words of its own types. Clients read a
sentence about their request instead, with the values that a field takes where these are few.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

from msgspec import DecodeError, ValidationError, inspect, json

from ostinato.serve.openai.json_faults import find_fault

TOO_DEEP = "the body nests too deeply to be read; send it flatter"

_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}
_MOST_LETTERS = 80
_PLACE = re.compile(r" - at (?:`key` in )?`\$\.?([^`]*)`$")
_STEP = re.compile(r"\[(?:\d+|\.\.\.)\]|[^.\[]+")
_UNKNOWN = re.compile(r"unknown field `(.*)`$", re.DOTALL)
_MISSING = re.compile(r"missing required field `([^`]*)`")
_WRONG_KIND = re.compile(r"^Expected `([^`]*)`, got `([^`]*)`")
_WRONG_LENGTH = re.compile(r"^Expected `(\w+)` of length (>=|<=) (\d+)")
_WRONG_SIZE = re.compile(r"^Expected `\w+` (>=|<=|>|<) (-?[\d.]+)")
_NO_VALUE = re.compile(r"^Invalid enum value (.*)$", re.DOTALL)
_BYTE = re.compile(r"\(byte (\d+)\)")
_BOUNDS = {">=": "at least", "<=": "at most", ">": "above", "<": "below"}
_PARTS = {"str": "letters", "array": "items", "object": "fields"}


def first_fault(error: Exception, body: bytes | memoryview) -> Exception:
    """Return what is wrong with a body before anything else: it is no JSON, or what was found.

    A body is read from its beginning, and a field may be wrong before the text breaks off.
    """
    if isinstance(error, ValidationError):
        try:
            json.decode(body)
        except ValidationError:
            return error
        except (DecodeError, UnicodeDecodeError, RecursionError) as earlier:
            return earlier
    return error


def of_body(error: Exception, kind: type, body: bytes | memoryview) -> tuple[str, str | None]:
    """Return a refusal of a body that could not be read as `kind`, and the field it is about."""
    error = first_fault(error, body)
    if isinstance(error, ValidationError):
        return of_field(str(error), kind)
    if isinstance(error, RecursionError):
        return TOO_DEEP, None
    fault = find_fault(bytes(body))
    if fault is not None:
        return f"the body is no JSON: {fault.said}", fault.path or None
    return of_json(str(error)), None


def of_field(found: str, kind: type) -> tuple[str, str | None]:
    """Return a refusal of a body that is JSON, and the field that it is about.

    Args:
        found: What msgspec says.
        kind: What the body was read as.
    """
    place = _PLACE.search(found)
    path = place.group(1) if place else ""
    found = found[: place.start()] if place else found
    unknown, missing = _UNKNOWN.search(found), _MISSING.search(found)
    if unknown:
        name = unknown.group(1)
        shown = _shown(_joined(path, name))
        return _unknown(shown, name, _fields(kind, path)), shown
    if missing:
        wanted = _joined(path, missing.group(1))
        return f"{wanted} is missing; every request must have it", wanted
    wrong = _WRONG_KIND.match(found)
    if wrong and not path:
        wanted = _kind(wrong.group(1))
        return f"the body must be {wanted}, got {_kind(wrong.group(2))}; send {wanted}", None
    return f"{path or 'the body'} {_wrong(found, kind, path)}", path or None


def of_json(found: str) -> str:
    """Return a refusal of a body that is no JSON."""
    byte = _BYTE.search(found)
    if "UTF-8" in found or "utf-8" in found:
        why = "it is not written in UTF-8"
    elif "trailing characters" in found and byte:
        why = f"something follows its end at byte {byte.group(1)}"
    elif byte:
        why = f"byte {byte.group(1)} cannot stand where it does"
    else:
        why = "it ends in the middle of a value or of a character"
    return f"the body is no JSON: {why}; send one JSON object"


def _wrong(found: str, kind: type, path: str) -> str:
    values = _values(kind, path)
    if wrong := _WRONG_KIND.match(found):
        wanted = _kind(wrong.group(1))
        otherwise = ", or leave it out" if _may_be_absent(kind, path) else ""
        is_fraction = wrong.group(2) == "float" and "float" not in wrong.group(1)
        given = "a fraction" if is_fraction and "int" in wrong.group(1) else _kind(wrong.group(2))
        return f"must be {wanted}, got {given}; send {wanted}{otherwise}"
    if wrong := _NO_VALUE.match(found):
        given = wrong.group(1)
        return f"must be {_listed(values)}, got {_shown(given)}; send one of those"
    if wrong := _WRONG_LENGTH.match(found):
        of, bound, count = wrong.groups()
        parts = _PARTS.get(of, "parts")
        most = f"{_BOUNDS[bound]} {count} {parts[:-1] if count == '1' else parts}"
        return f"must have {most}; send {'more' if bound == '>=' else 'fewer'}"
    if wrong := _WRONG_SIZE.match(found):
        bound = f"{_BOUNDS[wrong.group(1)]} {wrong.group(2)}"
        return f"must be {bound}; send a number that is {bound}"
    if found.startswith("Expected `str` matching"):
        return "has letters that it may not have, or too many; send letters, digits, _, - and ."
    if found.startswith(("Number out of range", "Integer value out of range")):
        return "is larger than any number that is read; send a smaller one"
    return "is not what it must be; see /openapi.json for what it takes"


def _unknown(shown: str, name: str, known: list[str]) -> str:
    near = get_close_matches(name[:_MOST_LETTERS], known, n=1)
    remedy = f"did you mean {near[0]}?" if near else "leave it out; /openapi.json lists all fields"
    return f"there is no field {shown!r}, an unknown field; {remedy}"


def _shown(text: str) -> str:
    return text if len(text) <= _MOST_LETTERS else text[:_MOST_LETTERS] + "..."


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _kind(named: str) -> str:
    """Return the kinds of a field as a reader says them; that null will do too goes unsaid."""
    kinds = named.split(" | ")
    return _listed([_KINDS.get(each, each) for each in kinds if each != "null" or len(kinds) == 1])


def _listed(words: list[str]) -> str:
    return " or ".join(filter(None, (", ".join(words[:-1]), *words[-1:]))) or "something else"


@lru_cache(maxsize=64)
def _type(kind: type) -> Any:
    return inspect.type_info(kind)


def _types(kind: type, path: str) -> list[Any]:
    """Return what may stand at a place of a body."""
    here = list(_members(_type(kind)))
    for step in _STEP.findall(path):
        here = [
            member for each in here for inner in _step(each, step) for member in _members(inner)
        ]
    return here


def _members(one: Any) -> Iterator[Any]:
    if isinstance(one, inspect.Metadata):
        yield from _members(one.type)
    elif isinstance(one, inspect.UnionType):
        for each in one.types:
            yield from _members(each)
    else:
        yield one


def _step(one: Any, step: str) -> Iterator[Any]:
    if step.startswith("["):
        if isinstance(one, inspect.ListType):
            yield one.item_type
        elif isinstance(one, inspect.DictType):
            yield one.value_type
    elif isinstance(one, inspect.StructType):
        yield from (each.type for each in one.fields if each.encode_name == step)


def _fields(kind: type, path: str) -> list[str]:
    return [
        each.encode_name
        for one in _types(kind, path)
        if isinstance(one, inspect.StructType)
        for each in one.fields
    ]


def _may_be_absent(kind: type, path: str) -> bool:
    """Whether a place is a field that a body may do without; an item of a list is none."""
    place, _, name = path.rpartition(".")
    return any(
        each.encode_name == name and not each.required
        for one in _types(kind, place)
        if isinstance(one, inspect.StructType)
        for each in one.fields
    )


def _values(kind: type, path: str) -> list[str]:
    return [
        str(value)
        for one in _types(kind, path)
        if isinstance(one, inspect.LiteralType)
        for value in one.values
    ]
