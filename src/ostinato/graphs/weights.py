"""Swap weights in place, so that recordings, which read by address, stay valid."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn

from ostinato.errors import UsageError, WrongTypeError

_SHOWN = 3


def find_module(modules: Sequence[tuple[str, nn.Module]]) -> nn.Module:
    """Return the one module that holds all others a callable reaches.

    Raises:
        UsageError: OST1014, there is none, or there are several.
    """
    inner = {id(child) for _, module in modules for child in module.children()}
    roots = [(name, module) for name, module in modules if id(module) not in inner]
    if len(roots) == 1:
        return roots[0][1]
    names = ", ".join(name or type(module).__name__ for name, module in roots[:_SHOWN])
    raise UsageError(
        f"update_weights needs the callable to reach one module, it reaches {len(roots)}"
        + (f" ({names})" if roots else ""),
        code="OST1014",
        remedy="copy into the parameters with `param.copy_(...)`: recordings see that at once",
    )


def copy_into(
    module: nn.Module, state_dict: Mapping[str, Tensor], *, takes_some: bool = False
) -> None:
    """Copy `state_dict` into the module's own parameters and buffers; all of it or nothing.

    Values are cast to the dtype and moved to the device of what they replace. Of weights that are
    tied, one name is enough.

    Args:
        takes_some: Whether some of the names are enough; buffers outside the state dict then have
            names too. None at all is refused all the same.

    Raises:
        UsageError: OST1013, names are missing or unknown, shapes differ, tied weights do, or a
            value cannot stand where it should.
        WrongTypeError: OST1013, it is no state dict, or a value is not a tensor.
    """
    own: dict[str, object] = dict(module.state_dict(keep_vars=True))
    if takes_some:
        own = {**dict(module.named_buffers(remove_duplicate=False)), **own}
    if not isinstance(state_dict, Mapping):
        raise _refuse(
            f"update_weights takes a state dict, got {type(state_dict).__name__}", WrongTypeError
        )
    tensors = {name: value for name, value in own.items() if isinstance(value, Tensor)}
    tied = _tied(tensors)
    _check_names(own, state_dict, tied, takes_some=takes_some)
    _check_values(tensors, state_dict)
    _check_ties(state_dict, tied)
    homes = {_home(target) for target in tensors.values()}
    with torch.no_grad():
        # Values that are the module's own weights could be overwritten before their turn.
        values = {
            name: state_dict[name].clone() if _home(state_dict[name]) in homes else state_dict[name]
            for name in tensors
            if name in state_dict
        }
        for name, value in values.items():
            tensors[name].detach().copy_(value)


def _home(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr() if tensor.layout is torch.strided else 0


def _tied(own: Mapping[str, Tensor]) -> list[list[str]]:
    names: dict[tuple[object, ...], list[str]] = {}
    for name, tensor in own.items():
        if tensor.numel() and tensor.layout is torch.strided and not tensor.is_meta:
            key = (tensor.device, tensor.data_ptr(), tensor.shape, tensor.stride())
            names.setdefault(key, []).append(name)
    return [group for group in names.values() if len(group) > 1]


def _check_names(
    own: Mapping[str, object],
    given: Mapping[str, Tensor],
    tied: list[list[str]],
    *,
    takes_some: bool,
) -> None:
    stood_for = {name for group in tied if any(n in given for n in group) for name in group}
    missing = [name for name in own if name not in given and name not in stood_for]
    unknown = [name for name in given if name not in own]
    if takes_some and not given:
        raise _refuse("the state dict is empty")
    if takes_some:
        missing = []
    lacks = [f"lacks {len(missing)} names{_some(missing)}"] if missing else []
    has = [f"has {len(unknown)} unknown ones{_some(unknown)}"] if unknown else []
    if lacks or has:
        raise _refuse(f"the state dict {' and '.join(lacks + has)}")


def _check_values(own: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> None:
    for name, target in own.items():
        if name not in given:
            continue
        value = given[name]
        if not isinstance(value, Tensor):
            raise _refuse(f"{name} is of type {type(value).__name__}, not a tensor", WrongTypeError)
        if problem := _unlike(value, target):
            raise _refuse(f"{name} {problem}")


def _unlike(value: Tensor, target: Tensor) -> str | None:
    """Say why `value` cannot be copied over `target`: afterwards would be too late."""
    if value.layout is not target.layout or value.is_nested:
        kind = "nested" if value.is_nested else f"{value.layout}"
        return f"is {kind}, the module's is {target.layout}"
    if value.shape != target.shape:
        return f"has shape {list(value.shape)}, the module's has {list(target.shape)}"
    if value.is_meta:
        return "lies on the meta device and has no values"
    if target.is_meta:
        return "has no memory in the module: it lies on the meta device"
    if value.is_complex() and not target.is_complex():
        return f"is {value.dtype}, the module's is {target.dtype}"
    return None


def _check_ties(given: Mapping[str, Tensor], tied: list[list[str]]) -> None:
    for group in tied:
        present = [name for name in group if name in given]
        for other in present[1:]:
            one, two = given[present[0]], given[other]
            if one is not two and not torch.equal(one.to(two.device), two):
                raise _refuse(f"{present[0]} and {other} are tied in the module and differ here")


def _some(names: Iterable[object]) -> str:
    shown = [str(name) for name in names]
    return f" ({', '.join(shown[:_SHOWN])}{', …' if len(shown) > _SHOWN else ''})" if shown else ""


def _refuse(problem: str, kind: type[UsageError] = UsageError) -> UsageError:
    return kind(problem, code="OST1013", remedy="pass module.state_dict() of the same architecture")
