"""What is added to and taken from logits before a token is chosen, in vLLM's order.

    l += -inf                          for stop ids, while fewer than min_tokens were produced;
                                       not where a grammar says when the answer may end
    l += bias                          logit_bias (OpenAI)
    l  = l / r if l > 0 else l * r     repetition, for tokens of the prompt or the output
    l -= frequency * count             count of the token in the output (OpenAI)
    l -= presence * (count > 0)

Sources: `vllm/model_executor/layers/utils.py` (`apply_penalties`), `vllm/v1/sample/sampler.py` for
the order, and OpenAI's API reference for bias, frequency and presence; the repetition penalty is
CTRL's (Keskar et al., 2019), as in transformers.

Only tokens that a row knows can be penalised, so the work follows the tokens known, not the
vocabulary: their logits are gathered, changed and put back.

Shapes: B rows, V vocabulary, W token ids looked at.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ostinato.llm.sampling_state import SamplingState


def adjust(scores_BV: Tensor, state: SamplingState, known_B: Tensor) -> None:
    """Change f32 logits in place. A logit that is no number stays so.

    Args:
        scores_BV: Logits.
        state: The rows.
        known_B: Tokens that each row knows, at least 1.

    Capture:
        Safe.
    """
    _bar_stops(scores_BV, state)
    scores_BV.scatter_add_(1, state.biased, state.biases)
    _penalise(scores_BV, state, known_B)


def _bar_stops(scores_BV: Tensor, state: SamplingState) -> None:
    early_B = (state.produced < state.min_tokens) & (state.is_bound == 0)
    barred_BS = early_B[:, None] & (state.stop_ids >= 0)
    # Adding keeps a NaN, and unused places add 0 to token 0 whatever else is added there.
    added_BS = torch.zeros_like(barred_BS, dtype=scores_BV.dtype)
    added_BS = added_BS.masked_fill(barred_BS, -torch.inf)
    scores_BV.scatter_add_(1, state.stop_ids.clamp(min=0), added_BS)


def _penalise(scores_BV: Tensor, state: SamplingState, known_B: Tensor) -> None:
    history_BW = state.history_BW[:, : state.width]
    columns_W = torch.arange(state.width, device=scores_BV.device)
    # Places past the end repeat the row's first token: whoever writes a token writes the same.
    is_known_BW = columns_W < known_B[:, None]
    ids_BW = torch.where(is_known_BW, history_BW, history_BW[:, :1]).long()
    known_BW = scores_BV.gather(1, ids_BW)
    repetition_B1 = state.repetition[:, None]
    changed_BW = torch.where(known_BW > 0, known_BW / repetition_B1, known_BW * repetition_B1)
    count_BW = state.counts_BV.gather(1, ids_BW)
    changed_BW -= state.frequency[:, None] * count_BW
    changed_BW -= state.presence[:, None] * (count_BW > 0)
    scores_BV.scatter_(1, ids_BW, changed_BW)
