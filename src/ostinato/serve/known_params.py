"""Sampling parameters of a request, read once for all requests that ask alike.

Every option is checked in a front end, which knows the field's name, and again in the engine's
process: 13 us each (two shared cores, 2026-11). Most requests of a service ask with the same
options as one before, whose parameters are frozen and may be shared.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from ostinato.llm.params import SamplingParams

_KEPT = 256
_LARGEST_BYTES = 512
"""Of options that are kept: a bias for every token, say, is used once."""
_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder().decode


def read_params(options: Mapping[str, Any]) -> SamplingParams:
    """Do as `SamplingParams.read`.

    Raises:
        UsageError, WrongTypeError: As there; a refusal is not kept.
    """
    if options.get("schema") is not None:  # which need not be plain values
        return SamplingParams.read(options)
    try:
        packed = _pack(options)
    except (OverflowError, TypeError, ValueError):  # to be refused by its name
        return SamplingParams.read(options)
    return _read(packed) if len(packed) <= _LARGEST_BYTES else SamplingParams.read(options)


@lru_cache(_KEPT)
def _read(packed: bytes) -> SamplingParams:
    return SamplingParams.read(_unpack(packed))
