"""Random generators on CUDA round a capture: which it takes into its service, and how one gets out.

Behind a `torch.Generator` stands a state that several may share, and that graphs know. A capture
tells each state it takes that a capture goes on; torch 2.11 tells it of the end only where that
could be captured. A state that was never told refuses every draw outside a capture for good.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def default_kept_out(device_index: int, *, draws: bool) -> Iterator[None]:
    """Begin a capture without the device's default generator, unless the step draws.

    A capture takes that generator into its service, and any other thread that then draws from it
    gets "Offset increment outside graph capture". A step that draws nothing needs none, so a
    stand-in is taken; should the step draw after all, its capture fails and says so.
    """
    if draws:
        yield
        return
    default = torch.cuda.default_generators[device_index]
    own = default.graphsafe_get_state()
    stand_in = torch.Generator(torch.device("cuda", device_index))
    default.graphsafe_set_state(stand_in.graphsafe_get_state())
    try:
        yield
    finally:
        default.graphsafe_set_state(own)


def get_out(generator: torch.Generator) -> None:
    """Have a generator draw again that still believes in a capture which is over.

    It gets a new state that goes on where the old one was. The old one stays as it is: graphs that
    were recorded with it are beyond the reach of this generator's seed, so that their replays had
    better go on raising. A generator that draws is left alone, for the same reason.

    Capture:
        Unsafe: draws a number, and puts the state back.
    """
    was = generator.get_state()
    try:
        torch.rand(1, device=generator.device, generator=generator)
    except RuntimeError:
        fresh = torch.Generator(generator.device)
        generator.graphsafe_set_state(fresh.graphsafe_get_state())
    generator.set_state(was)
