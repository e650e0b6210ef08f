"""Kernels that begin before the ones ahead have ended: bit for bit what they are without."""

from __future__ import annotations

import pytest
import torch

from llm.models.decoding import STEPS, Decoding, lengths_of

pytestmark = [pytest.mark.gpu]


@pytest.mark.parametrize("rows", [1, 16, 64, 100])
@pytest.mark.parametrize("name", ["8b", "135m", "qwen3"])
@torch.inference_mode()
def test_beginning_early_changes_no_bit(name: str, rows: int) -> None:
    decoding = Decoding(name, lengths_of(rows, 300))
    ends = []
    for is_early, trials in ((False, 1), (True, 8)):
        decoding.launch(is_early)
        decoding.begin()
        decoding.step()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            decoding.step()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            decoding.step()
        for _ in range(trials):
            decoding.begin()
            for _ in range(STEPS):
                graph.replay()
            # Page 0 is where rows of padding write, in whichever order.
            written = (decoding.store.keys[:, 1:], decoding.store.values[:, 1:])
            ends.append([tensor.clone() for tensor in (decoding.tokens_B, *written)])
    is_there = decoding.lengths_B > 0
    for tokens, keys, values in ends[1:]:
        assert torch.equal(tokens[is_there], ends[0][0][is_there])
        assert torch.equal(keys, ends[0][1])
        assert torch.equal(values, ends[0][2])
