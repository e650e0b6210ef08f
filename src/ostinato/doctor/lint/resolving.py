"""The project as a whole: which name means what, and what a symbol turns out to be.

Every lookup follows imports and base classes through the files that were read; what lies outside
them is unknown, unless it is torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ostinato.doctor.lint import calls, operations
from ostinato.doctor.lint.facts import Class, Function, Module, Wants
from ostinato.doctor.lint.torch_names import words
from ostinato.doctor.lint.values import (
    OUTPUT,
    TENSOR,
    UNKNOWN,
    Kind,
    Op,
    Symbol,
    Trait,
    Value,
    instance,
    join,
)

Bound = Mapping[str, Value]

_DEEPEST = 14
_DEEPEST_CALL = 5
_NOTHING: Bound = {}
_SAME = words("to cuda eval train half float bfloat16 cpu requires_grad_ double compile")
# Classes outside the project whose heirs are modules.
_MODULE_NAMES = re.compile(
    r"(?:Module|PreTrainedModel|ModelMixin|LightningModule|PretrainedModel)$"
)
_OUTPUT_NAMES = re.compile(r"(?:Output\w*|Outputs|ModelOutput)$")
_TENSOR_ONLY_METHODS = words(
    "masked_fill masked_fill_ unsqueeze masked_select index_select scatter gather softmax "
    "log_softmax logsumexp new_zeros new_ones new_full detach topk bmm sigmoid"
)


class Project:
    """Every file that was read."""

    def __init__(self, modules: Iterable[Module]) -> None:
        self.modules = {module.name: module for module in modules}
        self.functions: dict[str, Function] = {}
        self.classes: dict[str, Class] = {}
        self.module_of: dict[str, Module] = {}
        for module in self.modules.values():
            self.classes.update(module.classes)
            for function in module.functions:
                self.functions[function.name] = function
                self.module_of[function.name] = module
        self._replacers = {one for module in self.modules.values() for one in module.replacers}
        self._names: dict[str, str] = {}
        self._lines: dict[str, tuple[Class, ...]] = {}
        self._modules: dict[str, bool] = {}
        self._returns: dict[tuple[str, tuple[Value, ...]], Value] = {}
        self._attributes: dict[tuple[str, str], Value] = {}
        self._calls: list[str] = []

    def full_name(self, dotted: str) -> str:
        """Return where a name is defined, re-exports followed."""
        found = self._names.get(dotted)
        if found is None:
            found = self._names[dotted] = self._follow(dotted, 8)
        return found

    def _follow(self, dotted: str, steps: int) -> str:
        if dotted in self.functions or dotted in self.classes or not steps:
            return dotted
        head, _, rest = dotted.rpartition(".")
        tail: list[str] = [rest]
        while head:
            module = self.modules.get(head)
            if module is not None:
                alias = module.aliases.get(tail[0])
                if alias is None or alias == ".".join([head, tail[0]]):
                    return dotted
                return self._follow(".".join([alias, *tail[1:]]), steps - 1)
            if head in self.classes and len(tail) == 1:
                method = self.method(head, tail[0])
                return dotted if method is None else method.name
            head, _, rest = head.rpartition(".")
            tail.insert(0, rest)
        return dotted

    def ancestors(self, dotted: str) -> tuple[Class, ...]:
        """Return a class of the project and its bases in it, nearest first."""
        dotted = self.full_name(dotted)
        found = self._lines.get(dotted)
        if found is None:
            self._lines[dotted] = ()
            own = self.classes.get(dotted)
            line = [] if own is None else [own]
            for base in own.bases if own else ():
                line += [one for one in self.ancestors(base) if one not in line]
            found = self._lines[dotted] = tuple(line)
        return found

    def method(self, class_: str, attr: str) -> Function | None:
        """Return the method that a class has or inherits."""
        for one in self.ancestors(class_):
            name = one.methods.get(attr)
            if name is not None and name in self.functions:
                return self.functions[name]
        return None

    def is_module(self, class_: str) -> bool:
        """Return whether the class is a torch module."""
        found = self._modules.get(class_)
        if found is None:
            line = self.ancestors(class_)
            bases = [self.full_name(base) for one in line for base in one.bases] or [class_]
            found = self._modules[class_] = any(map(_is_outer_module, bases))
        return found

    def has_own_forward(self, class_: str) -> bool:
        """Return whether the forward in the source is the one that runs."""
        return not any(
            self.full_name(one) in self._replacers
            for line in self.ancestors(class_)
            for one in line.decorators
        )

    def attribute(self, class_: str, attr: str) -> Value:
        """Return what an attribute of an instance of the class is."""
        key = (class_, attr)
        found = self._attributes.get(key)
        if found is None:
            self._attributes[key] = UNKNOWN
            found = self._attributes[key] = self._find_attribute(class_, attr)
        return found

    def _find_attribute(self, class_: str, attr: str) -> Value:
        for one in self.ancestors(class_):
            if attr in one.properties:
                return self.returns(self.functions.get(one.methods[attr]), (), ())
            if attr in one.methods:
                return Value(Kind.NAME, one.methods[attr])
            stored = one.attributes.get(attr)
            if stored is not None and stored.kind is not Kind.UNKNOWN:
                return self.resolve(stored)
        if _OUTPUT_NAMES.search(class_):
            return operations.attribute(UNKNOWN, attr)
        return UNKNOWN

    def returns(
        self,
        function: Function | None,
        args: tuple[Value, ...],
        keywords: tuple[tuple[str, Value], ...],
    ) -> Value:
        """Return what a function gives for these arguments."""
        if function is None or function.returns is None or function.is_async:
            return UNKNOWN
        if function.returns.kind in (Kind.TENSOR, Kind.PYTHON, Kind.HOST, Kind.ARRAY):
            return function.returns
        if function.name in self._calls or len(self._calls) >= _DEEPEST_CALL:
            return UNKNOWN
        bound = bind(function, args, keywords)
        key = (function.name, tuple(bound.values()))
        found = self._returns.get(key)
        if found is None:
            self._calls.append(function.name)
            found = self._returns[key] = self.resolve(function.returns, bound)
            self._calls.pop()
        return found

    def resolve(self, value: Value, bound: Bound = _NOTHING, depth: int = 0) -> Value:
        """Return what a value is, given what the parameters of its function are."""
        if depth > _DEEPEST:
            return UNKNOWN
        if value.kind is Kind.ITEMS:
            parts = tuple(self.resolve(part, bound, depth + 1) for part in value.of)
            return Value(Kind.ITEMS, parts, value.traits)
        if value.kind is Kind.EACH:
            return Value(Kind.EACH, self.resolve(value.of, bound, depth + 1), value.traits)
        if value.kind is Kind.WRAPPED:
            how, inner, *rest = value.of
            return Value(Kind.WRAPPED, (how, self.resolve(inner, bound, depth + 1), *rest))
        if value.kind is Kind.NAME:
            return self._held(value)
        if value.kind is not Kind.SYMBOL:
            return value
        found = self._symbol(value.of, bound, depth)
        if found.kind is Kind.SYMBOL:
            return UNKNOWN
        return found.with_traits(value.traits & ~int(Trait.TRANSPOSED))

    def _held(self, value: Value) -> Value:
        """Return what a module's own name holds, where it is no function or class."""
        dotted = self.full_name(value.of)
        head, _, tail = dotted.rpartition(".")
        module = self.modules.get(head)
        held = module.values.get(tail) if module is not None else None
        if held is None or held.kind in (Kind.NAME, Kind.SYMBOL):
            return Value(Kind.NAME, dotted)
        return held

    def _symbol(self, what: Symbol, bound: Bound, depth: int) -> Value:
        parts = what.parts
        if what.op is Op.PARAM:
            return bound.get(parts[0], UNKNOWN)
        if what.op in (Op.MIX, Op.JOIN):
            values = [self.resolve(part, bound, depth + 1) for part in parts]
            if what.op is Op.MIX:
                return operations.mix(*values)
            result = values[0]
            for other in values[1:]:
                result = join(result, other)
            return result
        base = self.resolve(parts[0], bound, depth + 1)
        if what.op is Op.OUTPUT:
            return OUTPUT if base.kind is Kind.UNKNOWN else base
        if what.op is Op.ATTRIBUTE:
            return self._attribute_of(base, parts[1])
        if what.op is Op.ITEM:
            return self._item(base, parts[1])
        args = tuple(self.resolve(part, bound, depth + 1) for part in parts[-2])
        keywords = tuple((key, self.resolve(part, bound, depth + 1)) for key, part in parts[-1])
        if what.op is Op.METHOD:
            return self._method_of(base, parts[1], args, keywords)
        return self.called(base, args, keywords)

    def _attribute_of(self, base: Value, attr: str) -> Value:
        if base.kind is Kind.INSTANCE and base != OUTPUT:
            return self.attribute(base.of, attr)
        return operations.attribute(base, attr)

    def _item(self, base: Value, index: Value) -> Value:
        if base.kind is Kind.INSTANCE and base != OUTPUT:
            is_output = _OUTPUT_NAMES.search(base.of) and operations.known(index) == 0
            return TENSOR if is_output else UNKNOWN
        return operations.item(base, index)

    def _method_of(
        self,
        base: Value,
        attr: str,
        args: tuple[Value, ...],
        keywords: tuple[tuple[str, Value], ...],
    ) -> Value:
        if base.kind is not Kind.INSTANCE or base == OUTPUT:
            if base.kind is Kind.UNKNOWN and attr in _TENSOR_ONLY_METHODS:
                return operations.method(TENSOR, attr, args, keywords)
            if base.kind is Kind.NAME:
                return self.called(Value(Kind.NAME, f"{base.of}.{attr}"), args, keywords)
            return operations.method(base, attr, args, keywords)
        method = self.method(base.of, attr)
        if method is not None:
            return self.returns(method, (base, *args), keywords)
        if attr in _SAME:
            return base
        stored = self.attribute(base.of, attr)
        return self.called(stored, args, keywords) if stored.kind is not Kind.UNKNOWN else UNKNOWN

    def called(
        self, target: Value, args: tuple[Value, ...], keywords: tuple[tuple[str, Value], ...]
    ) -> Value:
        """Return what calling a resolved value gives."""
        if target.kind is Kind.WRAPPED:
            found = self.called(target.of[1], args, keywords)
            return OUTPUT if found.kind is Kind.UNKNOWN else found
        if target.kind is Kind.NAME:
            dotted = self.full_name(target.of)
            if dotted in self.functions:
                return self.returns(self.functions[dotted], args, keywords)
            if dotted in self.classes:
                return instance(dotted)
            if dotted.rpartition(".")[2][:1].isupper() and not dotted.startswith("torch."):
                return instance(dotted)
            found = calls.call(Value(Kind.NAME, dotted), args, keywords)
            return UNKNOWN if found.kind is Kind.SYMBOL else found
        if target.kind is Kind.INSTANCE:
            method = self.runs(target)
            if method is not None:
                return self.returns(method, (target, *args), keywords)
        found = calls.call(target, args, keywords)
        return UNKNOWN if found.kind is Kind.SYMBOL else found

    def runs(self, target: Value) -> Function | None:
        """Return the function of the project that runs when a resolved value is called."""
        if target.kind is Kind.WRAPPED:
            return self.runs(target.of[1])
        if target.kind is Kind.NAME:
            return self.functions.get(self.full_name(target.of))
        if target.kind is Kind.INSTANCE:
            if self.is_module(target.of):
                has_own = self.has_own_forward(target.of)
                return self.method(target.of, "forward") if has_own else None
            return self.method(target.of, "__call__")
        return None

    def holds(self, value: Value, wants: Wants, bound: Bound) -> bool:
        """Return whether a value turns out to be what a sighting wants."""
        if wants is Wants.ANYTHING:
            return True
        found = self.resolve(value, bound)
        found = TENSOR if found == OUTPUT else found
        if wants is Wants.TENSOR:
            return found.kind is Kind.TENSOR
        if wants is Wants.BOOL_TENSOR:
            return found.kind is Kind.TENSOR and found.has(Trait.BOOL)
        if wants is Wants.NOT_HOST:
            return found.kind in (Kind.TENSOR, Kind.UNKNOWN)
        if found.kind is Kind.INSTANCE:
            return self.is_module(found.of) or found.of not in self.classes
        return found.kind is Kind.UNKNOWN


def bind(
    function: Function, args: tuple[Value, ...], keywords: tuple[tuple[str, Value], ...]
) -> dict[str, Value]:
    """Return what each parameter gets in a call."""
    bound = dict(zip((key for key, _ in function.params), args, strict=False))
    names = {key for key, _ in function.params}
    bound.update((key, value) for key, value in keywords if key in names)
    return bound


def _is_outer_module(base: str) -> bool:
    if base in ("torch.nn.Module", "torch.jit.ScriptModule"):
        return True
    if base.startswith("torch.nn.") and base.rpartition(".")[2][:1].isupper():
        return True
    return bool(_MODULE_NAMES.search(base))
