"""Gated activations: `silu(gate) * up`."""

from __future__ import annotations

from collections.abc import Iterator

from ostinato.hf.fusing.plan import Kind, Launch, Match, Slot
from ostinato.hf.fusing.stream import FLOATS, Stream

_MUL, _SILU = "aten.mul.Tensor", "aten.silu.default"


def gates(stream: Stream) -> Iterator[Match]:
    """Yield every gated activation in the stream."""
    for last, op in enumerate(stream.ops):
        if op.name != _MUL or op.kwargs:
            continue
        for at in (0, 1):
            bending = stream.passing(op.args[at], _SILU)
            if bending is None:
                continue
            gate, out = stream.ops[bending].args[0], op.outs[0]
            if gate.dtype in FLOATS and gate.is_like(op.args[1 - at]) and gate.is_like(out):
                takes = {"gate": Slot(bending, 0), "up": Slot(last, 1 - at)}
                launch = Launch("gate", (bending, last), takes, {"out": Slot(last)})
                yield Match(Kind.GATE, (launch,))
                break
