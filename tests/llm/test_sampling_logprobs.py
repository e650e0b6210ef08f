"""Log probabilities are those of the model's own distribution."""

from __future__ import annotations

import torch

from ostinato.llm.sampling_logprobs import logprobs


def test_the_chosen_token_and_the_likeliest_have_their_log_softmax() -> None:
    logits = torch.randn(3, 40).bfloat16()
    token = torch.tensor([5, 0, 39])
    found = logprobs(logits, token, 4)
    exact = logits.double().log_softmax(-1)
    torch.testing.assert_close(found.chosen_B.double(), exact[range(3), token])
    assert found.ids_BN.tolist() == exact.topk(4).indices.tolist()
    torch.testing.assert_close(found.top_BN.double(), exact.topk(4).values)


def test_no_likeliest_tokens_may_be_asked_for_and_more_than_there_are() -> None:
    logits = torch.randn(2, 3)
    assert logprobs(logits, torch.tensor([0, 1]), 0).ids_BN.shape == (2, 0)
    assert logprobs(logits, torch.tensor([0, 1]), 9).ids_BN.shape == (2, 3)
