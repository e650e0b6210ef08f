"""The log probabilities that an answer reports, of the model's own distribution.

They are taken from the logits as the model gave them, before bias, penalties, temperature and
cuts: vLLM's `raw_logprobs`, its default, and OpenAI's. Every row gets the same fixed number of
likeliest tokens; who asked for fewer is given fewer when the ring is read.

Shapes: B rows, V vocabulary, N likeliest tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Logprobs:
    """Log probabilities of one token per row.

    Attributes:
        chosen_B: Of the chosen token, f32.
        ids_BN: The likeliest tokens, likeliest first, int64.
        top_BN: Their log probabilities, f32.
    """

    chosen_B: Tensor
    ids_BN: Tensor
    top_BN: Tensor


def logprobs(logits_BV: Tensor, token_B: Tensor, most: int) -> Logprobs:
    """Return the log probabilities of `token_B` and of the `most` likeliest tokens.

    Capture:
        Safe.
    """
    logs_BV = logits_BV.float().log_softmax(dim=-1)
    top_BN, ids_BN = logs_BV.topk(min(most, logs_BV.shape[1]), dim=-1)
    return Logprobs(logs_BV.gather(1, token_B[:, None])[:, 0], ids_BN, top_BN)
