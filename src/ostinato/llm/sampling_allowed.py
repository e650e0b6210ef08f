"""Bars the tokens that a row's grammar does not let come next.

The host says which are allowed, one bit per token, before each step of such a row; see
`structured`. Rows without a grammar are left as they are, whatever their bits.

Shapes: B rows, V vocabulary, X words.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ostinato.llm.sampling_state import SamplingState

_BITS = 32


def bar(scores_BV: Tensor, state: SamplingState) -> None:
    """Set the f32 logits of barred tokens to -inf in place. A logit that is no number stays so.

    Capture:
        Safe.
    """
    bit_of_word = torch.arange(_BITS, dtype=torch.int32, device=scores_BV.device)
    bits_BV = (state.allowed_BX[:, :, None] >> bit_of_word).flatten(1)[:, : scores_BV.shape[1]] & 1
    is_barred_BV = bits_BV < state.is_bound[:, None]
    # Adding keeps a NaN, so that a broken row is seen to be broken behind its grammar too.
    scores_BV += scores_BV.new_zeros(()).masked_fill(is_barred_BV, -torch.inf)
