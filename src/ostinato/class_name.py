"""The name of a class as Python keeps it, whatever its metaclass says when it is asked."""

from __future__ import annotations

from typing import cast

_kept = type.__dict__["__name__"].__get__


def class_name(value: object) -> str:
    """Return the name of the class of `value`."""
    return own_name(type(value))


def own_name(kind: type) -> str:
    """Return the name of a class."""
    return cast("str", _kept(kind))
