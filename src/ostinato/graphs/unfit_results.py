"""Results that no replay could hand out as the run did: each is refused with its reason."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

import torch
from torch import Tensor
from torch.nn import Parameter

from ostinato.class_name import class_name
from ostinato.errors import CaptureError
from ostinato.graphs.nodes import hidden_in
from ostinato.graphs.reasons import Reason, remedy
from ostinato.graphs.signature import ValueSpec
from ostinato.graphs.signing import value_spec
from ostinato.graphs.tree import Structure, flatten, opened

_COMPILERS_OWN = "_dynamo"


def refuse_unfit(
    result: object,
    observed: object,
    objects: Sequence[object],
    own: AbstractSet[int],
    handed_back: AbstractSet[int],
) -> None:
    """Refuse a result of which a replay could not hand out the like.

    Args:
        result: What the step returned while it was recorded; `observed` what another run did.
        objects: Leaves of the call; one of them may be handed back.
        own: Tensors of the callable's own, by id.
        handed_back: These and the static inputs: tensors that are returned themselves.

    Raises:
        CaptureError: OST1101.
    """
    leaves, structure = flatten(result)
    _refuse_other_values(leaves, flatten(observed)[0], structure, objects)
    _refuse_attributes(leaves, structure, own)
    _refuse_held(result, observed)
    _refuse_made_parameters(leaves, structure, handed_back)


def _refuse_other_values(
    leaves: Sequence[object],
    again: Sequence[object],
    structure: Structure,
    objects: Sequence[object],
) -> None:
    """Refuse results that are not the same in each run for another reason than their tensors."""
    given = {id(each) for each in objects}
    for index, (leaf, path) in enumerate(zip(leaves, structure.paths, strict=True)):
        other = again[index] if index < len(again) else None
        name = path or "the result"
        if isinstance(leaf, Tensor):
            if type(leaf) not in (Tensor, Parameter) or not is_plain(leaf) or leaf.is_quantized:
                raise _unfit(
                    f"{name} is no plain tensor: a {type(leaf).__name__}, {leaf.layout}",
                    Reason.UNSUPPORTED_OUTPUT,
                )
        elif leaf is other or id(leaf) in given:
            continue
        elif not isinstance(value_spec(leaf), ValueSpec):
            raise _unfit(
                f"{name} is of type {type(leaf).__name__}, made anew by each run",
                Reason.UNSUPPORTED_OUTPUT,
            )
        elif value_spec(leaf) != value_spec(other):
            raise _unfit(
                f"{name} was {other!r} in one run and {leaf!r} in the next",
                Reason.PYTHON_SIDE_EFFECT,
            )


def _refuse_attributes(
    leaves: Sequence[object], structure: Structure, itself: AbstractSet[int]
) -> None:
    """Refuse tensors that carry Python attributes: the copies would come without.

    What torch.compile notes on the tensors that it saw is its own, and no part of the result.
    """
    for leaf, path in zip(leaves, structure.paths, strict=True):
        if not isinstance(leaf, Tensor) or id(leaf) in itself:
            continue
        for name in vars(leaf):
            if not name.startswith(_COMPILERS_OWN):
                raise _unfit(
                    f"{path or 'the result'} is a tensor with an attribute {name!r}",
                    Reason.UNSUPPORTED_OUTPUT,
                )


def _refuse_made_parameters(
    leaves: Sequence[object], structure: Structure, itself: AbstractSet[int]
) -> None:
    """Refuse a parameter that each run makes anew: the copies would be plain tensors."""
    for leaf, path in zip(leaves, structure.paths, strict=True):
        if isinstance(leaf, Parameter) and id(leaf) not in itself:
            raise _unfit(
                f"{path or 'the result'} is a Parameter that each run makes anew",
                Reason.UNSUPPORTED_OUTPUT,
            )


def _refuse_held(result: object, observed: object) -> None:
    """Refuse a container that two runs return, or one run twice: a replay makes a copy of each.

    What the caller writes into a copy, the callable, or the other place, would not see.
    """
    before = {id(each) for _, each in opened(observed) if not isinstance(each, tuple)}
    for path, each in opened(result):
        if name := hidden_in(each):
            raise _unfit(
                f"{path or 'the result'} is a {class_name(each)} that holds {name!r}",
                Reason.UNSUPPORTED_OUTPUT,
            )
    places: dict[int, str] = {}
    for path, each in opened(result):
        if not isinstance(each, tuple) and places.setdefault(id(each), path) != path:
            raise _unfit(
                f"{places[id(each)]} and {path} are one {type(each).__name__}, "
                "and a replay would return two",
                Reason.UNSUPPORTED_OUTPUT,
            )
        if id(each) in before:
            raise _unfit(
                f"{path or 'the result'} is a {type(each).__name__} that the function keeps and "
                "returns itself, and a replay would return a copy",
                Reason.UNSUPPORTED_OUTPUT,
            )


def is_plain(tensor: Tensor) -> bool:
    """Whether the tensor is dense and one: such can be copied with all that it is."""
    return tensor.layout is torch.strided and not tensor.is_nested


def _unfit(problem: str, reason: Reason) -> CaptureError:
    return CaptureError(problem, code="OST1101", remedy=remedy(reason), reason=str(reason))
