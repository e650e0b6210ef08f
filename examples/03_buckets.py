"""Buckets: three recordings serve every length, and padding never shows."""

import torch
from torch import nn

import ostinato


class Tagger(nn.Module):
    """Scores each token of a text by its neighbours, and ignores padding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(1000, 64)
        self.attention = nn.MultiheadAttention(64, 4, batch_first=True)
        self.head = nn.Linear(64, 5)

    def forward(self, ids: torch.Tensor, is_padding: torch.Tensor) -> torch.Tensor:
        x = self.embedding(ids)
        x, _ = self.attention(x, x, x, key_padding_mask=is_padding, need_weights=False)
        return self.head(x)


tagger = Tagger().eval()
traffic = [int(n) for n in torch.randint(4, 60, (200,))]
learnt = ostinato.Buckets.learn(traffic, max_graphs=3, dim=1)
print("sizes learnt from traffic:", learnt.sizes)

g = ostinato.graphed(
    tagger,
    buckets={
        "ids": learnt,
        "is_padding": ostinato.Buckets(dim=1, sizes=learnt.sizes, fill=True),
    },
)

with torch.inference_mode():
    for length in traffic:
        ids = torch.randint(0, 1000, (1, length))
        is_padding = torch.zeros(1, length, dtype=torch.bool)
        scores = g(ids, is_padding)
        assert scores.shape == (1, length, 5)
        torch.testing.assert_close(scores, tagger(ids, is_padding), atol=1e-4, rtol=1e-4)

report = g.report()
print(report.heat_map())
print(f"{report.recordings} recordings, {report.reuse_rate:.0%} of {report.calls} calls replayed")
