"""What a request may ask its answer to look like, read once, at the door.

    {"type": "object", "properties": {...}}      a JSON schema, as a mapping or as JSON text
    MyModel                                      a pydantic model class
    {"type": "json_object"}                      any JSON object (OpenAI's spelling)
    {"regex": "[0-9]{4}-[0-9]{2}"}               all of the answer matches
    {"choices": ["yes", "no"]}                   the answer is one of these texts
    {"lark": "start: ..."}                       all of the answer is derived from this grammar

Only the kind is decided here, and that its numbers can travel. Whether a grammar can be made of it
is for `compiler` to find out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from itertools import islice

from ostinato.errors import UsageError, WrongTypeError
from ostinato.llm.refusals import shown
from ostinato.llm.structured.unkept import check_numbers

MOST_BYTES = 64 * 1024
"""Of one schema: so much is compiled in well under a second."""

_SHOWN, _SHOWN_KEYS = 120, 20
_REMEDY = "pass a JSON schema, a pydantic model class, {'regex': ...} or {'choices': [...]}"
_TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
_WORDS = (
    "$anchor $comment $defs $id $ref $schema additionalItems additionalProperties allOf anyOf "
    "const contains default definitions dependentRequired dependentSchemas description else enum "
    "examples exclusiveMaximum exclusiveMinimum format if items maxContains maxItems maxLength "
    "maxProperties maximum minContains minItems minLength minProperties minimum multipleOf not "
    "oneOf pattern patternProperties prefixItems properties propertyNames readOnly required then "
    "title type unevaluatedItems unevaluatedProperties uniqueItems writeOnly"
)
_KEYWORDS = frozenset(_WORDS.split())


class SchemaKind(StrEnum):
    """What an answer keeps to."""

    JSON = "json"
    REGEX = "regex"
    CHOICES = "choices"
    LARK = "lark"


@dataclass(frozen=True, slots=True)
class Schema:
    """What one answer keeps to.

    Attributes:
        text: The JSON schema, the regular expression, the choices as a JSON list, or the grammar
            in llguidance's dialect of Lark.
    """

    kind: SchemaKind
    text: str


def read_schema(given: object) -> Schema | None:
    """Read what a request gives as its `schema`; None is none.

    Raises:
        UsageError: OST5060, it is of no known kind, or larger than `MOST_BYTES`; OST5062, it has
            a whole number of more than 64 bits.
        WrongTypeError: OST5060, it or its content has the wrong type.
    """
    if given is None or isinstance(given, Schema):
        return given
    if isinstance(given, str):
        given = _from_text(given)
    elif isinstance(given, type) and hasattr(given, "model_json_schema"):
        given = given.model_json_schema()
    if not isinstance(given, Mapping):
        raise _wrong_type(
            f"schema must be a mapping, JSON text or a model class, got {shown(given)}"
        )
    readers = {SchemaKind.REGEX: _regex, SchemaKind.CHOICES: _choices, SchemaKind.LARK: _lark}
    for kind, read in readers.items():
        if kind.value in given:
            if len(given) > 1:
                raise _unknown(f"a schema with {kind.value!r} has other keys too: {_listed(given)}")
            return _checked(kind, read(given[kind.value]))
    return _checked(SchemaKind.JSON, _json_schema(given))


def _from_text(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _unknown(f"schema is a text, but not JSON: {error}") from error


def _regex(pattern: object) -> str:
    if not isinstance(pattern, str) or not pattern:
        raise _wrong_type(f"regex must be a text of at least one letter, got {shown(pattern)}")
    return pattern


def _lark(grammar: object) -> str:
    if not isinstance(grammar, str) or not grammar:
        raise _wrong_type(f"lark must be a text of at least one letter, got {shown(grammar)}")
    return grammar


def _choices(texts: object) -> str:
    listed = texts if isinstance(texts, Sequence) and not isinstance(texts, str) else ()
    if not listed or not all(isinstance(text, str) for text in listed):
        raise _wrong_type(f"choices must be a list of at least one text, got {shown(texts)}")
    return json.dumps(list(listed), ensure_ascii=False)


def _json_schema(given: Mapping[object, object]) -> str:
    schema = {key: given[key] for key in given if key != "x-guidance"}  # the compiler's own options
    if schema.get("type") == "json_object":
        schema["type"] = "object"
    _check_type(schema.get("type", "object"))
    if schema and not _KEYWORDS & schema.keys():
        raise _unknown(f"no kind of schema has the keys {_listed(schema)}", next(iter(schema)))
    try:
        text = json.dumps(schema, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise _wrong_type(f"schema cannot be written as JSON: {error}") from error
    check_numbers(schema)
    return text


def _check_type(named: object) -> None:
    for name in named if isinstance(named, list | tuple) else (named,):
        if name not in _TYPES:
            raise _unknown(f"schema has the type {shown(name)}; there are {', '.join(_TYPES)}")


def _checked(kind: SchemaKind, text: str) -> Schema:
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise _unknown(f"schema holds what is no Unicode text: {error}") from error
    if size > MOST_BYTES:
        raise UsageError(
            f"schema has {size} bytes, at most {MOST_BYTES} are read",
            code="OST5060",
            remedy="ask for less in one answer: leave out descriptions and what is not needed",
        )
    return Schema(kind, text)


def _listed(keys: Iterable[object]) -> str:
    """Return keys as they are shown: a request may have any number of any length."""
    return shown(list(islice(keys, _SHOWN_KEYS)))


def _unknown(problem: str, key: object = None) -> UsageError:
    near = (
        get_close_matches(key[:_SHOWN], [*_KEYWORDS, "regex", "choices", "lark"], n=1)
        if isinstance(key, str)
        else []
    )
    return UsageError(
        problem, code="OST5060", remedy=f"did you mean {near[0]}?" if near else _REMEDY
    )


def _wrong_type(problem: str) -> WrongTypeError:
    return WrongTypeError(problem, code="OST5060", remedy=_REMEDY)
