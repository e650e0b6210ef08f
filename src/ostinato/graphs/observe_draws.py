"""Whether random numbers were drawn: the states of the default generators, before and after."""

from __future__ import annotations

import torch

from ostinato.graphs.seeds import default_generators


def generator_states(device: torch.device) -> list[bytes]:
    """Return the states of the default generators that a step on `device` may draw from."""
    return [bytes(generator.get_state().numpy()) for generator in default_generators(device)]


def is_default(generator: torch.Generator) -> bool:
    """Whether `generator` is one that `torch.manual_seed` seeds."""
    defaults = (torch.default_generator, *torch.cuda.default_generators)
    return any(is_same(generator, default) for default in defaults)


def is_same(one: torch.Generator, other: torch.Generator) -> bool:
    """Whether two objects are one generator: a dispatch mode may be given a wrapper of its own."""
    return bool(one._cdata == other._cdata)  # type: ignore[attr-defined]
