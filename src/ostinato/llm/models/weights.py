"""Puts a checkpoint's tensors into a decoder: by name, in place, checked before the first is moved.

The same way serves the first load and a hot swap between two launches. Weights keep their
addresses, so recorded steps see the new values and need not be recorded again.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from ostinato.errors import UsageError
from ostinato.llm.models.sources import FolderSource, StateSource, WeightSource

if TYPE_CHECKING:
    from torch import Tensor

    from ostinato.llm.models.decoder import Decoder

_NUMBERS = frozenset({"F64", "F32", "F16", "BF16"})
_HEAD = "lm_head.weight"


def load_weights(
    decoder: Decoder, given: Mapping[str, Tensor] | Path | str, *, is_partial: bool = False
) -> None:
    """Copy weights into `decoder`, in place; nothing is changed if any of them is refused.

    Args:
        given: A state dict with transformers' names, or a folder of safetensors files.
        is_partial: Let tensors that are not given keep their values.

    Raises:
        UsageError: OST2021 to OST2023, files are missing or corrupt; OST5203, tensors are missing;
            OST5204, a shape is wrong; OST5205, a number type is none for weights; OST5206, a tensor
            has no place in the model.

    Capture:
        Unsafe: call it between launches.
    """
    source = source_of(given)
    places = check(decoder, source, is_partial=is_partial)
    if decoder.config.is_tied:
        _require_tied(decoder, source, places)
    with torch.inference_mode():
        destinations = decoder.destinations()
        for stored, here in places.items():
            if here in destinations:
                destinations[here].copy_(source.read(stored))


def source_of(given: Mapping[str, Tensor] | Path | str) -> WeightSource:
    """Return where weights come from, files checked."""
    return StateSource(given) if isinstance(given, Mapping) else FolderSource(Path(given))


def check(decoder: Decoder, source: WeightSource, *, is_partial: bool = False) -> dict[str, str]:
    """Hold what `source` has against what `decoder` needs; the decoder may be on the meta device.

    Returns:
        The name in the decoder of each stored name.

    Raises:
        UsageError: as `load_weights`.
    """
    needed = decoder.destinations()
    places = {
        stored: here
        for stored in source.shapes()
        if (here := decoder.name_here(stored)) is not None
    }
    missing = sorted(needed.keys() - places.values())
    if missing and not is_partial:
        raise _bad("OST5203", f"the checkpoint lacks {_listed(missing)}")
    tied = {_HEAD} if decoder.config.is_tied else set()
    extra = sorted(set(places.values()) - needed.keys() - tied)
    if extra:
        raise _bad("OST5206", f"the model has no place for {_listed(extra)} of the checkpoint")
    for stored, here in places.items():
        _check_one(stored, source, (needed[here] if here in needed else decoder.head()).shape)
    return places


def _check_one(stored: str, source: WeightSource, shape: torch.Size) -> None:
    found, number = source.shapes()[stored]
    if found != tuple(shape):
        raise _bad("OST5204", f"{stored} has the shape {found}, and the model needs {tuple(shape)}")
    if number not in _NUMBERS:
        raise _bad("OST5205", f"{stored} is stored as {number}, which is no plain number type")


def _require_tied(decoder: Decoder, source: WeightSource, places: Mapping[str, str]) -> None:
    """Refuse a checkpoint that ties its output head to the embedding, and holds two of them."""
    stored = {here: name for name, here in places.items()}
    table = decoder.table
    if _HEAD not in stored:
        return
    if table not in stored or not source.read(stored[_HEAD]).equal(source.read(stored[table])):
        raise _bad(
            "OST5206",
            f"{_HEAD} of the checkpoint differs from {table}, and its config.json ties the two",
        )


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - 1} more tensors" if len(names) > 1 else ""
    return f"the tensor {names[0]}{more}"


_REMEDIES = {
    "OST5203": "give a checkpoint saved whole, by save_pretrained of a causal language model",
    "OST5204": "check that the weights and config.json belong to the same model",
    "OST5205": "save the model in float32, bfloat16 or float16; quantised weights are not read",
    "OST5206": "check that the weights and config.json belong to the same model",
}


def _bad(code: str, problem: str) -> UsageError:
    return UsageError(problem, code=code, remedy=_REMEDIES[code])
