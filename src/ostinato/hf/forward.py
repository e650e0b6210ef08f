"""How this version of transformers wants its forward called: keywords chosen by signature.

Newer versions rename `past_key_values` to `cache` and deprecate the old name; some drop arguments.
The names are read from the forward itself, once per model, so that no version number is compared.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import nn

if TYPE_CHECKING:
    from torch import Tensor

_CACHE_NAMES = ("cache", "past_key_values")
_NEEDED = ("input_ids", "attention_mask", "position_ids")


@dataclass(frozen=True, slots=True)
class ForwardCall:
    """The keywords of one model's forward.

    Attributes:
        cache_name: "cache" or "past_key_values".
        keeps_logits: Whether `logits_to_keep` can select the column whose logits are wanted.
        takes_columns: Whether the forward still asks for `cache_position`.
    """

    cache_name: str
    keeps_logits: bool
    takes_columns: bool

    def __call__(
        self,
        model: nn.Module,
        input_ids: Tensor,
        *,
        mask: object,
        positions: Tensor,
        cache: object,
        columns: Tensor,
        keep: Tensor | None = None,
    ) -> Tensor:
        """Run the model and return logits (B, Q, V), or (B, 1, V) when `keep` selects a column."""
        keywords: dict[str, Any] = {self.cache_name: cache, "use_cache": True, "return_dict": True}
        if self.takes_columns:
            keywords["cache_position"] = columns
        if keep is not None and self.keeps_logits:
            keywords["logits_to_keep"] = keep
        output = model(input_ids=input_ids, attention_mask=mask, position_ids=positions, **keywords)
        logits: Tensor = output.logits
        if keep is not None and not self.keeps_logits:
            logits = logits.index_select(1, keep)
        return logits


def read_forward(model: nn.Module) -> ForwardCall | None:
    """Read the keywords off the model's forward; None when one that is needed is missing."""
    names = inspect.signature(model.forward).parameters
    cache_name = next((name for name in _CACHE_NAMES if name in names), None)
    if cache_name is None or any(name not in names for name in _NEEDED):
        return None
    return ForwardCall(cache_name, "logits_to_keep" in names, "cache_position" in names)
