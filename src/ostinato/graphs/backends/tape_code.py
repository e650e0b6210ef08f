"""Turn a planned run into straight-line Python.

A replay is one generated function: a line per call, tensors and arguments as globals of its own
namespace, locals only for what a replay makes anew. Nothing is interpreted while it runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ostinato.graphs.aten_calls import tensors_in
from ostinato.graphs.backends.tape_arena import Arena
from ostinato.graphs.backends.tape_doors import Invocation, fastest
from ostinato.graphs.backends.tape_plan import Making, Place, Plan, making
from ostinato.graphs.backends.tape_program import Call, Program, Ref
from ostinato.graphs.backends.tape_variants import out_variant

_TAB = " " * 8
_ZERO = torch.ops.aten.zero_.default
_COPY = torch.ops.aten.copy_.default


class Writer:
    """Writes the replay function of one program.

    Attributes:
        calls: Calls written so far.
        namespace: Globals of the replay; clearing it frees everything that the replay holds.
    """

    def __init__(self, program: Program, plan: Plan) -> None:
        self._program = program
        self._plan = plan
        self._arena = Arena(plan.arena_bytes, plan.starts)
        self._storages: dict[int, torch.UntypedStorage] = {}
        self._tensors: dict[int, Tensor] = {}
        self._names: dict[int, str] = {}  # by id of a tensor in `_tensors`
        self._locals: set[int] = set()
        self._lines: list[str] = []
        self.calls = 0
        self.namespace: dict[str, Any] = {
            "_inference": torch._C._InferenceMode,
            "_no_autocast": torch._C._DisableAutocast,
        }

    def write(self) -> Callable[[], None]:
        """Return the replay function."""
        for index in self._plan.calls:
            self._write_call(index)
        body = "".join(_TAB + line + "\n" for line in self._lines or ["pass"])
        source = f"def replay():\n    with _inference(True), _no_autocast():\n{body}"
        exec(compile(source, "<ostinato tape>", "exec"), self.namespace)
        replay: Callable[[], None] = self.namespace["replay"]
        return replay

    def _write_call(self, index: int) -> None:
        call = self._program.calls[index]
        given = [value for _, value in call.outs if self._is_given(value, index)]
        if given and len(given) == len(call.outs) and index in self._plan.filling:
            self._write_into(call, given)
        else:
            self._write_fresh(call, index, given)
        dead = [v for v in sorted(self._locals) if self._plan.last_use.get(v, index) <= index]
        if dead:
            self._lines.append("del " + ", ".join(f"v{value}" for value in dead))
            self._locals.difference_update(dead)

    def _write_into(self, call: Call, targets: list[int]) -> None:
        """The call fills memory at fixed addresses."""
        outs = [self._tensor(value) for value in targets]
        how = making(call.func)
        args: tuple[Any, ...] = self._resolve(call.args)
        if how is Making.ZERO:
            self._emit("", fastest(_ZERO, (outs[0],), {}))
        elif how is Making.COPY:
            self._emit("", fastest(_COPY, (outs[0], args[0]), {}))
        elif how is Making.OUT:
            variant = out_variant(call.func)
            assert variant is not None
            kwargs = variant.kwargs({name: self._resolve(v) for name, v in call.kwargs.items()})
            kwargs.update(zip(variant.outs, outs, strict=True))
            self._emit("", fastest(variant.func, args, kwargs))

    def _write_fresh(self, call: Call, index: int, given: list[int]) -> None:
        """The call makes its results; those that belong at a fixed address are copied there."""
        args: tuple[Any, ...] = self._resolve(call.args)
        kwargs = {name: self._resolve(arg) for name, arg in call.kwargs.items()}
        bound = [(path, value) for path, value in call.outs if self._is_bound(value, index, call)]
        target = ""
        if len(bound) == 1 and bound[0][0] == ():
            target = f"v{bound[0][1]} = "
        elif bound:
            target = "r = "
        self._emit(target, fastest(call.func, args, kwargs))
        if target == "r = ":
            for path, value in bound:
                steps = "".join(f"[{step}]" for step in path)
                self._lines.append(f"v{value} = r{steps}")
            self._lines.append("del r")
        for _, value in bound:
            self._locals.add(value)
            if value in given:
                self._lines.append(f"{self._global(self._tensor(value))}.copy_(v{value})")
                self.calls += 1

    def _is_given(self, value: int, index: int) -> bool:
        """Whether call `index` makes this value's memory, and it belongs at a fixed address."""
        region = self._program.region_of(value)
        is_new = self._program.regions[region].maker == index
        return is_new and self._plan.places[region] is not Place.FRESH

    def _is_bound(self, value: int, index: int, call: Call) -> bool:
        """Whether the result has to become a local of the replay."""
        if self._is_given(value, index):
            return True
        is_fresh = self._plan.places[self._program.region_of(value)] is Place.FRESH
        is_used_later = self._plan.last_use[value] > index
        return is_fresh and is_used_later and value not in call.taken()

    def _tensor(self, value: int) -> Tensor:
        """Return the tensor at its fixed address, or a stand-in for one that a replay makes."""
        if value not in self._tensors:
            window = self._program.values[value]
            if self._plan.places[window.region] is Place.FRESH:
                self._tensors[value] = window.stand_in()
                self._names[id(self._tensors[value])] = f"v{value}"
            else:
                self._tensors[value] = window.over(self._storage(window.region))
        return self._tensors[value]

    def _storage(self, region: int) -> torch.UntypedStorage:
        if region not in self._storages:
            recorded = self._program.regions[region]
            if self._plan.places[region] is Place.ARENA:
                self._storages[region] = self._arena.storage(region, recorded.nbytes)
            else:
                assert recorded.storage is not None
                self._storages[region] = recorded.storage
        return self._storages[region]

    def _resolve(self, arg: Any) -> Any:
        if isinstance(arg, Ref):
            return self._tensor(arg.value)
        if isinstance(arg, list | tuple):
            return type(arg)(self._resolve(item) for item in arg)
        return arg

    def _emit(self, target: str, invocation: Invocation) -> None:
        args = [self._expression(arg) for arg in invocation.args]
        args += [f"{name}={self._expression(arg)}" for name, arg in invocation.kwargs.items()]
        door = self._global(invocation.door)
        self._lines.append(f"{target}{door}({', '.join(args)})")
        self.calls += 1

    def _expression(self, arg: Any) -> str:
        if arg is None or isinstance(arg, bool | str) or type(arg) is int:
            return repr(arg)
        if isinstance(arg, Tensor) and id(arg) in self._names:
            return self._names[id(arg)]
        if isinstance(arg, list | tuple) and any(id(t) in self._names for t in tensors_in(arg)):
            return "[" + ", ".join(self._expression(item) for item in arg) + "]"
        return self._global(arg)

    def _global(self, value: Any) -> str:
        name = f"g{id(value)}"  # the namespace keeps the value alive, so the id stays its own
        self.namespace[name] = value
        return name
