"""How much memory a decoder's weights take at the least, told from its config alone.

A decoder is built on the meta device, where it takes no memory and its exact size can be read. But
that takes time for each layer, and numbers that a tensor's size can hold: so a model that is far
too large for the machine is refused before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ostinato.llm.models.config import DecoderConfig


def least_bytes(config: DecoderConfig, number_bytes: int, layer_bytes: int) -> int:
    """Return what the matrices alone take; the rest is small beside them.

    Args:
        number_bytes: Of a weight.
        layer_bytes: Of a weight in one of the layers' matrices.
    """
    attention = (2 * config.heads + 2 * config.kv_heads) * config.head_dim
    # Of a foreign model the MLP is not known, and its width stands as 0.
    mlp = (2 if config.architecture == "gpt2" else 3) * config.inner
    tables = config.vocabulary * (1 if config.is_tied else 2)
    if config.rope is None and config.foreign is None:
        tables += config.max_positions
    layers = config.layers * (attention + mlp) * config.hidden
    return tables * config.hidden * number_bytes + layers * layer_bytes
