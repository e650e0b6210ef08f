"""Copies from the host to the device in a step: built there, pageable, or growing.

A tensor made from Python values is made on the host and then copied, and pageable memory is copied
while the host waits, whatever `non_blocking` says. A recording repeats a copy from pinned memory
with its address, so that memory must outlive the function that is recorded.
"""

from __future__ import annotations

import ast

from ostinato.doctor.lint.facts import Pause, Scope, Wants
from ostinato.doctor.lint.operations import is_dtype, is_host_device, known
from ostinato.doctor.lint.rules import reads
from ostinato.doctor.lint.rules.event import Event
from ostinato.doctor.lint.scene import Scene
from ostinato.doctor.lint.values import HOST, UNKNOWN, Kind, Trait, Value

_MAKERS = frozenset({"torch.tensor", "torch.as_tensor", "torch.asarray"})
_PLAIN = (Kind.PYTHON, Kind.ARRAY, Kind.EACH, Kind.ITEMS, Kind.UNKNOWN, Kind.SYMBOL)
_TIMERS = frozenset({"time.perf_counter", "time.time", "time.perf_counter_ns", "time.monotonic"})
_SYNCHRONIZE = frozenset({"torch.cuda.synchronize", "torch.accelerator.synchronize"})


def called(scene: Scene, event: Event) -> None:
    """See a call."""
    if event.function in _MAKERS:
        _made(scene, event)
    elif event.attr == "new_tensor" and event.base.kind is Kind.TENSOR:
        _made_from(scene, event, "`new_tensor` is made on the host and copied")
    elif event.attr in ("to", "cuda") and not event.function:
        reads.moved_to_host(scene, event)
        _moved(scene, event)
    elif event.attr == "copy_" and event.base.kind is Kind.TENSOR:
        _recorded_copy(scene, event, event.first)
    elif event.function in _SYNCHRONIZE or (event.attr == "synchronize" and not event.function):
        _synchronized(scene, event)
    elif event.function in _TIMERS or event.attr == "elapsed_time":
        scene.env["timed()"] = HOST
    elif event.attr == "append" and scene.loops and event.node.args:
        _grown(scene, event)
    if event.result.has(Trait.PINNED) and _makes_pinned(event):
        event.result = event.result.with_traits(Trait.MADE_HERE)


def _makes_pinned(event: Event) -> bool:
    return event.attr == "pin_memory" or known(event.keyword("pin_memory")) is True


def _grown(scene: Scene, event: Event) -> None:
    """Note a list that grows in a loop."""
    before = event.node.func.value if isinstance(event.node.func, ast.Attribute) else None
    if isinstance(before, ast.Name):
        held = scene.lookup(before.id)
        if held.kind in (Kind.EACH, Kind.ITEMS, Kind.PYTHON, Kind.UNKNOWN):
            item = event.first
            kind = Kind.EACH if held.kind in (Kind.EACH, Kind.ITEMS) else held.kind
            of = Value(item.kind, item.of, item.traits) if kind is Kind.EACH else held.of
            scene.env[before.id] = Value(kind, of, int(held.traits | Trait.GROWS))


def _made(scene: Scene, event: Event) -> None:
    device = event.keyword("device")
    if device is None or device.of == (None,) or is_host_device(device):
        return
    word = event.function.rpartition(".")[2]
    _made_from(scene, event, f"`{word}` is made on the host, then copied while the host waits")


def _made_from(scene: Scene, event: Event, fact: str) -> None:
    source = event.first
    if source.kind not in _PLAIN:
        return
    if source.kind in (Kind.UNKNOWN, Kind.SYMBOL) and event.function != "torch.tensor":
        return  # as_tensor of a tensor that is there already copies nothing
    scene.sight(101, Scope.STEP, event.node, fact)
    scene.wait(Pause.GPU, event.node, fact)
    if any(
        part.has(Trait.GROWS) and not part.has(Trait.LENGTH)  # how many there are is one number
        for part in (source, *(source.of if source.kind is Kind.ITEMS else ()))
    ):
        _growing(scene, event)


def _moved(scene: Scene, event: Event) -> None:
    target = event.keyword("device") or (event.args[0] if event.args else UNKNOWN)
    stays = target.kind is Kind.HOST or is_host_device(target) or is_dtype(target)
    if event.base.kind is not Kind.HOST or stays:
        return
    if event.base.has(Trait.GROWS):
        _growing(scene, event)
    if not _waits(event) and not event.base.has(Trait.PINNED):
        fact = "non_blocking does nothing for memory that is not pinned: the host waits"
        scene.sight(101, Scope.STEP, event.node, fact)
        scene.wait(Pause.GPU, event.node, fact)
    elif event.attr == "cuda" or _is_device(event, target):
        _recorded_copy(scene, event, event.base)


def _waits(event: Event) -> bool:
    """Return whether a copy blocks: neither by name nor by place is it told not to."""
    return all(known(one) is not True for one in (*event.args, event.keyword("non_blocking")))


def _is_device(event: Event, target: Value) -> bool:
    """Return whether this is surely a device, or a tensor on one, and no number type."""
    if target.kind is Kind.TENSOR or isinstance(known(target), str):
        return True
    node = event.node.args[0] if event.node.args else None
    node = node.func if isinstance(node, ast.Call) else node
    word = node.attr if isinstance(node, ast.Attribute) else ""
    word = node.id if isinstance(node, ast.Name) else word
    return event.keyword("device") is not None or word.endswith("device")


def _recorded_copy(scene: Scene, event: Event, source: Value) -> None:
    """See a copy from the host to the device that a recording would have to repeat."""
    if source.kind is not Kind.HOST:
        return
    if _waits(event):
        fact = "the host waits for the copy to the device, and no recording can"
        scene.sight(101, Scope.CAPTURED, event.node, fact)
    elif source.has(Trait.PINNED) and source.has(Trait.MADE_HERE):
        fact = (
            "the recording keeps the address of pinned memory that was made inside it: "
            "each replay copies whatever lies there then"
        )
        scene.sight(204, Scope.CAPTURED, event.node, fact)


def _growing(scene: Scene, event: Event) -> None:
    fact = "what is copied to the device grows with every round"
    scene.sight(104, Scope.STEP, event.node, fact)


def _synchronized(scene: Scene, event: Event) -> None:
    fact = "`synchronize()` waits until the device has done all that was queued"
    scene.wait(Pause.GPU, event.node, fact)
    if "timed()" not in scene.env:  # somebody who measures must wait
        names = (part.id for part in ast.walk(event.node) if isinstance(part, ast.Name))
        is_for_each = any("dev" in name for name in names)  # a loop over devices waits for each
        scope = Scope.LOOP if scene.loops and not is_for_each else Scope.STEP
        scene.sight(101, scope, event.node, fact, UNKNOWN, Wants.ANYTHING)
