"""Puts a checkpoint's tensors into a decoder: by name, in place, checked before the first is moved.

The same way serves the first load and a hot swap between two launches. Weights keep their
addresses, so recorded steps see the new values and need not be recorded again.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from ostinato.errors import InternalError, UsageError, WrongTypeError
from ostinato.llm.models.sources import FolderSource, StateSource, WeightSource

if TYPE_CHECKING:
    from torch import Tensor

    from ostinato.llm.models.decoder import Decoder

_NUMBERS = frozenset({"F64", "F32", "F16", "BF16"})


class WeightsLost(InternalError):
    """Weights were being replaced, and some are the old ones and some the new."""


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
        WrongTypeError: OST5205, neither a state dict nor a folder.
        WeightsLost: OST5212, copying failed half-way: the decoder is good for nothing any more.

    Capture:
        Unsafe: call it between launches.
    """
    source = decoder.translate(source_of(given))
    places = _prepare(decoder, source, is_partial=is_partial)
    try:
        _copy(decoder, source, places)
    except Exception as error:
        raise WeightsLost(
            "the weights were replaced in part, and then the rest could not be: "
            f"{type(error).__name__}: {error}",
            code="OST5212",
            remedy="load the model anew; its weights are of two kinds now",
        ) from error


def fill(decoder: Decoder, source: WeightSource, *, is_partial: bool = False) -> None:
    """Do as `load_weights`, from a source that has the decoder's names."""
    _copy(decoder, source, _prepare(decoder, source, is_partial=is_partial))


def _prepare(decoder: Decoder, source: WeightSource, *, is_partial: bool) -> dict[str, str]:
    places = check(decoder, source, is_partial=is_partial)
    _require_tied(decoder, source, places)
    return places


def _copy(decoder: Decoder, source: WeightSource, places: Mapping[str, str]) -> None:
    with torch.inference_mode():
        destinations = decoder.destinations()
        for stored, here in places.items():
            if here in destinations:
                destinations[here].copy_(source.read(stored))


def source_of(given: Mapping[str, Tensor] | Path | str) -> WeightSource:
    """Return where weights come from, files checked."""
    if isinstance(given, Mapping):
        return StateSource(given)
    if isinstance(given, str | Path):
        return FolderSource(Path(given).expanduser())
    raise WrongTypeError(
        f"weights are a state dict or a folder, got {given!r:.80}",
        code="OST5205",
        remedy="pass model.state_dict(), or the folder that save_pretrained wrote",
    )


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
    tied = decoder.tied()
    extra = sorted(name for name, here in places.items() if here not in {**needed, **tied})
    if extra:
        raise _bad("OST5206", f"the model has no place for {_listed(extra)} of the checkpoint")
    for stored, here in places.items():
        _check_one(stored, source, needed[tied.get(here, here)].shape)
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
    for name, table in decoder.tied().items():
        if name not in stored:
            continue
        if table not in stored or not _is_same(
            source.read(stored[name]), source.read(stored[table])
        ):
            raise _bad(
                "OST5206",
                f"{name} of the checkpoint differs from {table}, and its config.json ties the two",
            )


def _is_same(one: Tensor, other: Tensor) -> bool:
    return one.dtype == other.dtype and one.equal(other.to(one.device))


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
