"""Event loops: a module that runs on a loop's thread blocks it, whoever runs the callbacks."""

from __future__ import annotations

import asyncio
from collections import Counter

from ostinato.doctor.collect.event_loop import EventLoops
from ostinato.doctor.collect.notebook import Notebook
from ostinato.doctor.collect.patches import Patches
from ostinato.doctor.finding import Place

LINE = Place("app.py", 9, code="model(x)")
MS = 1_000_000


def test_a_long_call_on_a_loop_whose_callbacks_are_not_timed_is_a_block() -> None:
    loops = EventLoops(Notebook(), Patches())
    loops.hear_step(LINE, 0, 80 * MS)
    loops.hear_step(LINE, 0, 60 * MS)
    loops.hear_step(LINE, 0, 5 * MS)
    (block,) = loops.fields()["loop_blocks"]
    assert (block.place, block.count, block.longest_us) == (LINE, 2, 80e3)
    assert block.each_us == (80e3, 60e3)


def test_a_callback_that_is_timed_already_is_not_counted_twice() -> None:
    patches = Patches()
    loops = EventLoops(Notebook(), patches)
    loops.start()

    async def call() -> None:
        loops.hear_step(LINE, 0, 80 * MS)

    try:
        asyncio.run(call())
    finally:
        patches.undo()
        loops.stop()
    assert loops.fields()["loop_blocks"] == ()


def test_callbacks_that_nobody_looked_at_count_where_their_coroutine_stood() -> None:
    loops = EventLoops(Notebook(), Patches())
    coroutine, at = Place("service.py", 3), Place("model.py", 40, code="model(x)")
    loops._met[coroutine] = Counter({at: 2})
    for place, took_ms in ((at, 30), (coroutine, 50), (Place("other.py", 1), 70)):
        loops._count(place, 0, took_ms * 1_000_000)
    blocks = loops.fields()["loop_blocks"]
    found = [(b.place.path, b.op, b.count, b.longest_us) for b in blocks]
    assert found == [
        ("model.py", "model(x)", 2, 50_000.0),
        ("other.py", "a callback", 1, 70_000.0),
    ]
    assert blocks[0].each_us == (30_000.0, 50_000.0)
