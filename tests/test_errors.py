"""Errors: who must act, what to do, and where to read more."""

import pickle

import pytest

from ostinato.errors import (
    CaptureError,
    InternalError,
    OstinatoError,
    ResourceError,
    StaleLease,
    UsageError,
    WrongTypeError,
)

KINDS = [UsageError, WrongTypeError, CaptureError, StaleLease, ResourceError, InternalError]


def test_an_error_prints_the_fact_the_remedy_and_where_to_read_more() -> None:
    error = UsageError("got 3", code="OST1001", remedy="pass 4")
    assert str(error) == "OST1001: got 3\n  try:  pass 4\n  more: ostinato explain OST1001"


@pytest.mark.parametrize("kind", KINDS)
def test_every_error_is_an_ostinato_error(kind: type[OstinatoError]) -> None:
    assert issubclass(kind, OstinatoError)


def test_a_wrong_value_is_a_value_error_and_a_wrong_type_a_type_error_too() -> None:
    assert issubclass(UsageError, ValueError)
    assert issubclass(WrongTypeError, TypeError)


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_crosses_a_process_boundary_whole(kind: type[OstinatoError]) -> None:
    error = kind("got 3", code="OST1001", remedy="pass 4")
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy)) == (kind, str(error))


def test_a_capture_error_keeps_its_reason_across_a_process_boundary() -> None:
    error = CaptureError("read a value", code="OST1101", remedy="do not", reason="host-sync")
    assert pickle.loads(pickle.dumps(error)).reason == "host-sync"
