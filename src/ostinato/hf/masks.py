"""Attention masks as fixed-shape device work, with no look at their values.

transformers builds the same masks, but looks at the padding on the host to skip some of them, which
a recording cannot hold. The rule of which layers slide is the one of its own static caches.

Shapes: B rows, Q query columns, L cache columns. True means "may attend".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

FULL = "full_attention"
SLIDING = "sliding_attention"


@dataclass(frozen=True, slots=True)
class MaskRule:
    """Which masks one model wants.

    Attributes:
        layer_types: The kinds of its layers when the forward takes one mask per kind, else None.
        window: Columns that a sliding layer sees; None when every layer sees all.
        barred: What says "may not attend": a flag, or a number that is added to the scores, the
            dtype's lowest (eager attention) or minus infinity.
        is_always_given: Whether a prompt without padding needs a mask too.
    """

    layer_types: tuple[str, ...] | None
    window: int | None
    barred: Literal["flag", "lowest", "infinite"]
    is_always_given: bool = False

    def decode(self, columns_L: Tensor, column: Tensor, valid_BL: Tensor, like: Tensor) -> Any:
        """Return the mask of one new token at `column`; `like` gives the dtype of numbers.

        Capture:
            Safe. Compares on the device.
        """
        causal = valid_BL & (columns_L <= column)
        near = causal & (columns_L > column - self.window) if self.window is not None else causal
        return self._pick(causal[:, None, None, :], near[:, None, None, :], like)

    def prefill(self, valid_BQ: Tensor, like: Tensor) -> Any:
        """Return the mask of a whole prompt of Q columns, padding on either side.

        Capture:
            Safe. A padding column sees itself, so that no row of scores is empty.
        """
        columns = torch.arange(valid_BQ.shape[1], device=valid_BQ.device)
        query, key = columns[:, None], columns[None, :]
        causal = (valid_BQ[:, None, :] & (key <= query)) | (key == query)
        near = causal & (key > query - self.window) if self.window is not None else causal
        return self._pick(causal[:, None], near[:, None], like)

    def _pick(self, full: Tensor, near: Tensor, like: Tensor) -> Any:
        if self.layer_types is None:
            return self._shape(near, like)
        by_type = {FULL: full, SLIDING: near}
        return {kind: self._shape(by_type[kind], like) for kind in self.layer_types}

    def _shape(self, mask: Tensor, like: Tensor) -> Tensor:
        if self.barred == "flag":
            return mask
        bar = -torch.inf if self.barred == "infinite" else torch.finfo(like.dtype).min
        return torch.where(mask, like.new_zeros(()), bar)


def mask_rule(config: Any) -> MaskRule | None:
    """Read the rule off a model's config; None when it has layers of another kind."""
    barred: Literal["flag", "lowest"] = "flag"
    if config._attn_implementation == "eager":
        barred = "lowest"
    window = getattr(config, "sliding_window", None)
    given = config.model_type in _LOOK_AT_PADDING and config.pad_token_id is not None
    if hasattr(config, "layer_types"):
        kinds = tuple(dict.fromkeys(config.layer_types))
        if not set(kinds) <= {FULL, SLIDING} or (SLIDING in kinds and window is None):
            return None
        return MaskRule(kinds, window if SLIDING in kinds else None, barred, given)
    if getattr(config, "attention_chunk_size", None) is not None:
        return None
    return MaskRule(None, window, barred, given)


# Given no mask, these forwards look for padding among the ids on the host, and warn of ours.
_LOOK_AT_PADDING = frozenset({"gpt2", "openai-gpt", "imagegpt"})
