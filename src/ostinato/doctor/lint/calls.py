"""What a call gives: torch's functions and modules, Python's own; all else is a symbol."""

from __future__ import annotations

from ostinato.doctor.lint import torch_names as torch_
from ostinato.doctor.lint.operations import (
    TENSOR_KINDS,
    Args,
    Keywords,
    is_host_device,
    iterated,
    keyword,
    known,
    made,
    mix,
    parts_of,
    tensor_method,
)
from ostinato.doctor.lint.values import (
    ARRAY,
    HOST,
    OUTPUT,
    PYTHON,
    TENSOR,
    TENSORS,
    UNKNOWN,
    Kind,
    Op,
    Spot,
    Trait,
    Value,
    constant,
    each,
    instance,
    name,
    symbol,
)


def call(target: Value, args: Args, keywords: Keywords) -> Value:
    """Return what calling `target` gives."""
    if target.kind is Kind.NAME:
        return _named(target.of, args, keywords)
    if target.kind is Kind.INSTANCE:
        return _called_instance(target, args, keywords)
    if target.kind is Kind.SYMBOL:
        return symbol(Op.RETURN, target, args, keywords)
    if target.kind is Kind.WRAPPED:
        found = call(target.of[1], args, keywords)
        if found.kind is Kind.SYMBOL:
            return symbol(Op.OUTPUT, found)
        return OUTPUT if found.kind is Kind.UNKNOWN else found
    return UNKNOWN


def _called_instance(target: Value, args: Args, keywords: Keywords) -> Value:
    if target.of in torch_.MODULES_SEVERAL:
        return each(TENSOR)
    if target.of == "torch.nn.Module":
        return UNKNOWN
    if target.of.startswith(("torch.nn.", "torchvision.ops.")):
        on_host = bool(args) and args[0].kind is Kind.HOST
        return HOST if on_host else TENSOR
    return symbol(Op.RETURN, target, args, keywords)


def _named(function: str, args: Args, keywords: Keywords) -> Value:
    head, _, tail = function.rpartition(".")
    if head == "torch" or head == "torch.Tensor":
        return _torch_call(function, tail, args, keywords)
    if function.startswith(torch_.TENSOR_MODULES):
        if tail == "one_hot":
            return Value(_device_of(args), None, int(Trait.NO_GRAD))
        return Value(_device_of(args), None, 0, _read_of(args))
    if function in torch_.MODULES_LIST and args and args[0].kind in (Kind.EACH, Kind.ITEMS):
        return args[0]
    if function.startswith("torch.nn.") and tail[:1].isupper():
        return TENSOR if function in torch_.TENSOR_TYPES else instance(function)
    if function == "torch.amp.autocast" or function.startswith("torch.cuda.amp."):
        return instance("torch.autocast")
    if function.startswith(("torch.cuda.", "torch.utils.")) and tail[:1].isupper():
        return instance(function)
    if function.startswith(torch_.PACKAGES_PYTHON):
        return PYTHON
    if head in ("numpy", "np"):
        return ARRAY
    if head == "builtins":
        return _builtin(tail, args)
    if head == "math":
        return PYTHON.with_read(_read_of(args))
    if head == "threading" and tail in ("Lock", "RLock", "Condition", "Semaphore"):
        return instance(function)
    if head == "asyncio" and tail in ("Lock", "Semaphore", "Condition", "Queue", "Event"):
        return instance(function)
    if tail == "from_pretrained" or tail == "from_config":
        return instance(head)
    return symbol(Op.RETURN, name(function), args, keywords)


def _torch_call(function: str, tail: str, args: Args, keywords: Keywords) -> Value:
    if tail == "device":
        return constant("cpu") if args and is_host_device(args[0]) else PYTHON
    if function in torch_.FUNCTIONS_PYTHON:
        return PYTHON
    if function in torch_.FACTORIES:
        if tail == "as_tensor" and args and args[0].kind is Kind.TENSOR:
            return args[0]
        return made(function, args, keywords)
    if tail == "autocast":
        return instance("torch.autocast")
    if tail.endswith("_like"):
        base = args[0] if args else UNKNOWN
        return made(function, (), keywords, unless=_device_of((base,)))
    if function in torch_.FUNCTIONS_SEVERAL:
        return each(Value(_device_of(args), None, 0))
    if tail in ("cat", "stack", "concat", "where", "hstack", "vstack"):
        return _gathered(tail, args, keywords)
    if tail == "nonzero" or tail == "where":
        return TENSORS if known(keyword(keywords, "as_tuple")) is True else TENSOR
    if tail.startswith("unique") and len(keywords) + len(args) > 1:
        return TENSORS
    if args and args[0].kind in TENSOR_KINDS:
        return tensor_method(args[0], tail, args[1:], keywords)
    base = Value(_device_of(args), None, 0, _read_of(args))
    return tensor_method(base, tail, args[1:], keywords)


def _gathered(tail: str, args: Args, keywords: Keywords) -> Value:
    parts = args if tail == "where" else parts_of(args[0] if args else UNKNOWN)
    if tail == "where" and len(args) == 1:
        return each(Value(_device_of(args), None, int(Trait.NO_GRAD)))
    result = mix(*parts)
    kind = result.kind if result.kind in TENSOR_KINDS else Kind.TENSOR
    traits = result.traits & (Trait.GROWS | Trait.NO_GRAD)
    if parts and all(part.has(Trait.BOOL) for part in parts):
        traits |= Trait.BOOL
    return Value(kind, None, int(traits), result.read)


def _device_of(args: Args) -> Kind:
    """Return where the result of a computation on these lives."""
    if any(value.kind is Kind.TENSOR for value in args):
        return Kind.TENSOR
    if any(value.kind is Kind.HOST for value in args):
        return Kind.HOST
    inside = [part.kind for value in args for part in parts_of(value)]
    return Kind.HOST if inside and all(kind is Kind.HOST for kind in inside) else Kind.TENSOR


def _read_of(args: Args) -> Spot | None:
    return next((value.read for value in args if value.read), None)


def _builtin(tail: str, args: Args) -> Value:
    first = args[0] if args else UNKNOWN
    if tail in ("sum", "max", "min", "abs", "round"):
        if first.kind is Kind.EACH:
            return Value(first.of.kind, first.of.of, first.of.traits, first.of.read)
        return mix(*args) if first.kind is not Kind.ITEMS else mix(*first.of)
    if tail in ("list", "tuple", "set", "sorted", "reversed", "iter"):
        is_open = first.kind in (*TENSOR_KINDS, Kind.SYMBOL)
        return each(iterated(first)) if is_open else first
    if tail == "enumerate":
        count = Value(Kind.PYTHON, None, int(Trait.VARIES))
        return each(Value(Kind.ITEMS, (count, iterated(first))))
    if tail == "zip":
        return each(Value(Kind.ITEMS, tuple(map(iterated, args))))
    if tail == "next":
        return iterated(first)
    if tail == "range":
        return each(Value(Kind.PYTHON, None, int(Trait.VARIES)))
    if tail == "len":
        return Value(Kind.PYTHON, None, int(Trait.LENGTH | (first.traits & Trait.GROWS)))
    if tail in ("getattr", "super", "vars", "dict", "type", "object", "map", "filter"):
        return UNKNOWN
    kept = first.traits & Trait.VARIES if first.kind is Kind.PYTHON else 0
    return Value(Kind.PYTHON, None, kept, first.read if tail in ("int", "float") else None)
