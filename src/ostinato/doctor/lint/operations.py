"""What an operation on known values gives: attributes, calls, indexing, arithmetic.

The same functions serve twice: while a file is read, when much is still a symbol and the answer is
a larger symbol, and again when the symbols are resolved.
"""

from __future__ import annotations

from ostinato.doctor.lint import torch_names as torch_
from ostinato.doctor.lint.torch_names import words
from ostinato.doctor.lint.values import (
    ARRAY,
    OUTPUT,
    PYTHON,
    TENSOR,
    TENSORS,
    UNKNOWN,
    Kind,
    Op,
    Trait,
    Value,
    constant,
    each,
    instance,
    join,
    name,
    symbol,
)

Args = tuple[Value, ...]
Keywords = tuple[tuple[str, Value], ...]

TENSOR_KINDS = (Kind.TENSOR, Kind.HOST)
# What stays true of a tensor when it is computed with.
_KEPT = int(Trait.NO_GRAD)
_OF_PARTS = int(Trait.NO_GRAD | Trait.BOOL | Trait.TRANSPOSED)
_REDUCTIONS = words("sum mean max min any all prod norm argmax argmin amax amin std var")
_OUTPUT_FIELDS = words(
    "logits last_hidden_state pooler_output image_embeds text_embeds prediction_logits"
)
_NOT_OF_TENSORS = ("get_", "update", "load_", "save_", "from_", "prepare_", "forward", "generate")
_MAPPING_METHODS = words("keys values items get to_tuple pop update decode")


def keyword(keywords: Keywords, wanted: str) -> Value | None:
    """Return the argument given by that name."""
    return next((value for key, value in keywords if key == wanted), None)


def known(value: Value | None) -> object:
    """Return the constant that a value is, or None."""
    return value.of[0] if value is not None and value.kind is Kind.PYTHON and value.of else None


def attribute(base: Value, attr: str) -> Value:
    """Return `base.attr`."""
    if base.kind in TENSOR_KINDS:
        return _tensor_attribute(base, attr)
    if base.kind is Kind.NAME:
        return name(f"{base.of}.{attr}")
    if base is OUTPUT or base == OUTPUT:
        is_tensor = attr in _OUTPUT_FIELDS or attr == "loss"
        return TENSOR if is_tensor else PYTHON if attr in torch_.ATTRIBUTES_PYTHON else UNKNOWN
    if base.kind in (Kind.INSTANCE, Kind.SYMBOL):
        return symbol(Op.ATTRIBUTE, base, attr)
    if base.kind is Kind.WRAPPED:
        return attribute(base.of[1], attr)
    if base.kind is Kind.ARRAY:
        return PYTHON if attr in torch_.ATTRIBUTES_PYTHON or attr in ("size", "ndim") else ARRAY
    if base.kind is Kind.PYTHON:
        return PYTHON.with_read(base.read)
    return TENSOR if attr in _OUTPUT_FIELDS else UNKNOWN


def _tensor_attribute(base: Value, attr: str) -> Value:
    if attr == "shape":
        return Value(Kind.PYTHON, None, int(Trait.LENGTH))
    if attr == "device":
        return constant("cpu") if base.kind is Kind.HOST else PYTHON
    if attr in torch_.ATTRIBUTES_PYTHON:
        return PYTHON
    if attr in torch_.TRANSPOSES:
        return base.with_traits(Trait.TRANSPOSED)
    if attr == "data":
        return base.with_traits(Trait.NO_GRAD)
    return base


def method(base: Value, attr: str, args: Args, keywords: Keywords) -> Value:
    """Return `base.attr(*args)`."""
    if base.kind in TENSOR_KINDS:
        return tensor_method(base, attr, args, keywords)
    if attr in ("parameters", "buffers") and base.kind not in TENSOR_KINDS:
        return TENSORS
    if base == OUTPUT:
        return UNKNOWN if attr in _MAPPING_METHODS else tensor_method(TENSOR, attr, args, keywords)
    if base.kind in (Kind.INSTANCE, Kind.SYMBOL):
        traits = base.traits & (Trait.NO_GRAD | Trait.TRANSPOSED if attr != "contiguous" else 0)
        if attr in torch_.NO_GRAD_RESULTS:
            traits |= Trait.NO_GRAD
        if attr in torch_.TRANSPOSES:
            traits |= Trait.TRANSPOSED
        return symbol(Op.METHOD, base, attr, args, keywords, traits=int(traits))
    if base.kind is Kind.WRAPPED:
        return method(base.of[1], attr, args, keywords)
    if base.kind is Kind.ARRAY:
        return PYTHON if attr in ("item", "tolist") else ARRAY
    if base.kind is Kind.PYTHON:
        return PYTHON
    if base.kind is Kind.EACH and attr in ("pop", "popleft", "get", "__getitem__"):
        return Value(base.of.kind, base.of.of, base.of.traits)
    if base.kind is Kind.EACH and attr in ("values", "copy"):
        return base if attr == "copy" else base.without(int(Trait.MAPPING))
    if base.kind is Kind.EACH and attr == "keys":
        return each(PYTHON)
    if base.kind is Kind.EACH and attr == "items":
        return each(Value(Kind.ITEMS, (PYTHON, base.of)))
    return UNKNOWN


def tensor_method(base: Value, attr: str, args: Args, keywords: Keywords) -> Value:
    """Return what a method of a tensor gives; `torch.f(x)` is taken for `x.f()`."""
    if attr.startswith(_NOT_OF_TENSORS) and attr not in torch_.METHODS_PYTHON:
        return UNKNOWN  # its annotation is wrong: no tensor has this method
    if attr in torch_.METHODS_PYTHON or attr in torch_.HOST_ANSWERS:
        return Value(Kind.PYTHON, None, int(Trait.LENGTH) if attr in ("size", "numel") else 0)
    if attr == "type":
        return PYTHON if not args and not keywords else base
    if attr == "numpy":
        return ARRAY
    if attr in ("cpu", "cuda", "to", "pin_memory"):
        return _moved(base, attr, args, keywords)
    if attr.startswith("new_"):
        return made(f"torch.{attr}", args, keywords, unless=base.kind)
    if attr in torch_.METHODS_SEVERAL:
        return each(Value(base.kind, None, base.traits & _KEPT))
    result = _computed(base, attr, args, keywords)
    pairs = attr in torch_.METHODS_PAIR_BY_DIM and (
        any(value.kind is Kind.PYTHON for value in args) or keyword(keywords, "dim") is not None
    )
    if pairs or attr in torch_.METHODS_PAIR:
        return Value(Kind.ITEMS, (result, result.with_traits(Trait.NO_GRAD)))
    return result


def _computed(base: Value, attr: str, args: Args, keywords: Keywords) -> Value:
    traits = base.traits & (_KEPT | Trait.GROWS)
    if attr in torch_.NO_GRAD_RESULTS:
        traits |= Trait.NO_GRAD
    if attr in torch_.METHODS_BOOL:
        traits |= Trait.BOOL
    if attr in torch_.TRANSPOSES:
        traits |= Trait.TRANSPOSED
    if attr in _REDUCTIONS and not args and not keywords:
        traits = (traits | Trait.SCALAR) & ~Trait.GROWS
    if attr in ("unsqueeze", "squeeze", "expand", "clone", "detach", "flatten", "reshape", "view"):
        traits |= base.traits & (Trait.BOOL | Trait.PINNED)
    if attr in ("cumsum", "sum") and base.has(Trait.BOOL):
        traits |= Trait.NO_GRAD
    kind = base.kind
    if kind is Kind.HOST and any(value.kind is Kind.TENSOR for value in args):
        kind = Kind.TENSOR
    return Value(kind, None, int(traits), base.read)


def _moved(base: Value, attr: str, args: Args, keywords: Keywords) -> Value:
    """Return a tensor after `.cpu()`, `.cuda()`, `.pin_memory()` or `.to(...)`."""
    kept = base.traits & ~(Trait.PINNED | Trait.TRANSPOSED)
    if attr == "cpu":
        return Value(Kind.HOST, None, kept)
    if attr == "cuda":
        return Value(Kind.TENSOR, None, kept)
    if attr == "pin_memory":
        return Value(Kind.HOST, None, int(kept | Trait.PINNED))
    target = keyword(keywords, "device") or (args[0] if args else None)
    if target is None or is_dtype(target):
        is_bool = target is not None and target.of == "torch.bool"
        traits = (base.traits & ~Trait.BOOL) | (Trait.BOOL if is_bool else 0)
        return Value(base.kind, None, int(traits))
    if target.kind in TENSOR_KINDS:
        return Value(target.kind, None, kept)
    return Value(Kind.HOST if is_host_device(target) else Kind.TENSOR, None, kept)


def is_dtype(value: Value) -> bool:
    """Return whether the value can only be a number type, such as `torch.float32`."""
    if value.kind is Kind.NAME:
        return bool(value.of.startswith("torch.")) and value.of.count(".") == 1
    return value.kind is Kind.PYTHON and value.of == ("dtype",)


def is_host_device(value: Value | None) -> bool:
    """Return whether the value is the host as a device."""
    word = known(value)
    return isinstance(word, str) and word.split(":")[0] == "cpu"


def made(function: str, args: Args, keywords: Keywords, unless: Kind = Kind.HOST) -> Value:
    """Return what a factory makes: on the host, if no device is named."""
    device = keyword(keywords, "device")
    kind = unless
    if device is not None and device.of != (None,):
        kind = Kind.HOST if is_host_device(device) else Kind.TENSOR
    elif function in ("torch.as_tensor", "torch.asarray") and args:
        kind = Kind.TENSOR if args[0].kind in (Kind.TENSOR, Kind.UNKNOWN) else kind
    traits = Trait.NONE
    if keyword(keywords, "requires_grad") is None:
        traits |= Trait.NO_GRAD
    dtype = keyword(keywords, "dtype")
    if dtype is not None and dtype.of == "torch.bool":
        traits |= Trait.BOOL
    if known(keyword(keywords, "pin_memory")) is True:
        traits |= Trait.PINNED
    read = next((value.read for value in args if value.read), None)
    traits |= (args[0].traits & Trait.GROWS) if args else 0
    if any(part.has(Trait.VARIES) for value in args for part in parts_of(value)):
        traits |= Trait.GROWS  # another size in every round
    return Value(kind, None, int(traits), read)


def parts_of(value: Value) -> Args:
    """Return the values in a container, or the value itself."""
    if value.kind is Kind.ITEMS:
        return tuple(value.of)
    return (value.of,) if value.kind is Kind.EACH else (value,)


def iterated(value: Value) -> Value:
    """Return what a loop over the value gives."""
    if value.has(Trait.MAPPING):
        return PYTHON
    if value.kind is Kind.EACH:
        return Value(value.of.kind, value.of.of, value.of.traits)
    if value.kind is Kind.ITEMS:
        result = value.of[0] if value.of else UNKNOWN
        for other in value.of[1:]:
            result = join(result, other)
        return Value(result.kind, result.of, result.traits)
    if value.kind in TENSOR_KINDS:
        return Value(value.kind, None, int(value.traits & _OF_PARTS))
    if value.kind is Kind.SYMBOL:
        return symbol(Op.ITEM, value, PYTHON)
    if value.kind is Kind.INSTANCE and value.of in torch_.MODULES_LIST:
        return instance("torch.nn.Module")
    return value if value.kind in (Kind.PYTHON, Kind.ARRAY) else UNKNOWN


def item(base: Value, index: Value) -> Value:
    """Return `base[index]`."""
    if base.kind in TENSOR_KINDS:
        traits = base.traits & (Trait.NO_GRAD | Trait.BOOL | Trait.TRANSPOSED)
        return Value(base.kind, None, int(traits | (index.traits & Trait.GROWS)), base.read)
    if base.kind is Kind.ITEMS:
        place = known(index)
        if isinstance(place, int) and -len(base.of) <= place < len(base.of):
            found: Value = base.of[place]
            return found
        return base if index.kind is Kind.NAME else iterated(base)
    if base.kind is Kind.EACH:
        is_slice = index.of == ("slice",)
        return base if is_slice else iterated(base.without(int(Trait.MAPPING)))
    if base == OUTPUT:
        is_field = isinstance(known(index), str) and known(index) not in _OUTPUT_FIELDS
        is_later = isinstance(known(index), int) and known(index) not in (0, -1)
        return UNKNOWN if is_field or is_later else TENSOR
    if base.kind is Kind.SYMBOL or (base.kind is Kind.INSTANCE):
        if base.kind is Kind.INSTANCE and base.of in (torch_.MODULES_LIST | torch_.MODULES_DICT):
            return instance("torch.nn.Module")
        return symbol(Op.ITEM, base, index, traits=int(index.traits & Trait.GROWS))
    return base if base.kind in (Kind.PYTHON, Kind.ARRAY) else UNKNOWN


def mix(*operands: Value) -> Value:
    """Return what arithmetic on these gives: a tensor, if one of them is."""
    read = next((value.read for value in operands if value.read), None)
    operands = tuple(TENSOR if value == OUTPUT else value for value in operands)
    kinds = {value.kind for value in operands}
    spread = 0
    for value in operands:
        spread |= value.traits & (Trait.VARIES | Trait.LENGTH)
    if Kind.TENSOR in kinds or Kind.HOST in kinds:
        tensors = [value for value in operands if value.kind in TENSOR_KINDS]
        kind = Kind.TENSOR if Kind.TENSOR in kinds else Kind.HOST
        kept = int(Trait.NO_GRAD | Trait.GROWS)
        for value in tensors:
            kept &= value.traits | Trait.GROWS
        grows = any(value.has(Trait.GROWS) for value in tensors)
        bools = all(value.has(Trait.BOOL) for value in operands)
        kept = (kept & ~Trait.GROWS) | (Trait.GROWS if grows else 0) | (Trait.BOOL if bools else 0)
        return Value(kind, None, int(kept), read)
    if Kind.SYMBOL in kinds:
        return _mixed_symbols(operands, kinds).with_read(read)
    if Kind.ARRAY in kinds:
        return ARRAY
    if Kind.UNKNOWN in kinds or not kinds <= {Kind.PYTHON}:
        return UNKNOWN.with_read(read)
    return Value(Kind.PYTHON, None, int(spread), read)


def _mixed_symbols(operands: Args, kinds: set[Kind]) -> Value:
    symbols: list[Value] = []
    for value in operands:
        if value.kind is Kind.SYMBOL:
            inner = value.of.parts if value.of.op is Op.MIX else (value,)
            symbols += [one for one in inner if one not in symbols]
    traits = Trait.BOOL if all(value.has(Trait.BOOL) for value in operands) else 0
    if len(symbols) == 1 and kinds <= {Kind.SYMBOL, Kind.PYTHON}:
        return Value(Kind.SYMBOL, symbols[0].of, int(traits))  # a number changes nothing
    return symbol(Op.MIX, *symbols, traits=int(traits))


def compared(left: Value, right: Value) -> Value:
    """Return `left < right`: booleans where a tensor takes part."""
    result = mix(left, right)
    if result.kind in TENSOR_KINDS or result.kind is Kind.SYMBOL:
        if any(isinstance(known(side), str) for side in (left, right)):
            return PYTHON
        return Value(result.kind, result.of, int(Trait.BOOL | Trait.NO_GRAD))
    return PYTHON if result.kind is Kind.PYTHON else Value(result.kind)
