"""The tape: replays of every kind of call return exactly what eager returns."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from graphs.backends.taping import check_replays

Made = tuple[Callable[[], object], list[Tensor], list[Tensor]]
functional = nn.functional

MODES = [torch.no_grad, torch.inference_mode]


def rows() -> Tensor:
    return torch.randn(3, 4)


def scalars() -> Made:
    x = rows()
    return (
        lambda: (
            x * 2,
            x + True,
            1 / x,
            x**2,
            2**x,
            x % 2,
            torch.where(x > 0, x, 0.0),
            torch.where(x > 0, 1.0, x),
            x.clamp(-1, 1),
            torch.maximum(x, x * 0),
        ),
        [x],
        [],
    )


def joining() -> Made:
    x = rows()
    return (
        lambda: (
            torch.cat([x, x * 2, x]),
            torch.stack([x, x + 1], 1),
            torch.cat([x[:1], x.new_zeros(2, 4)]),
        ),
        [x],
        [],
    )


def lists() -> Made:
    x = torch.randn(6, 4)
    return (
        lambda: [*x.split(2), *x.chunk(3), *(x * 2).unbind(1), *torch.split(x + 1, [1, 5])],
        [x],
        [],
    )


def attention() -> Made:
    q = torch.randn(2, 4, 5, 8)
    attend = functional.scaled_dot_product_attention
    return (
        lambda: (
            attend(q, q, q),
            attend(q, q, q, is_causal=True),
            attend(q, q, q, attn_mask=torch.zeros(5, 5)),
            attend(q, q[:, :2], q[:, :2], enable_gqa=True),
            attend(q, q, q, dropout_p=0.5),
        ),
        [q],
        [],
    )


def convolutions() -> Made:
    x = torch.randn(2, 3, 8, 8)
    conv = nn.Conv2d(3, 4, 3, padding=1)
    norm = nn.BatchNorm2d(4).eval()
    group = nn.GroupNorm(2, 4)
    return (
        lambda: (
            functional.max_pool2d(norm(conv(x)).relu_(), 2),
            group(conv(x)),
            functional.adaptive_avg_pool2d(x, 1),
            functional.interpolate(x, scale_factor=2),
            conv(x.to(memory_format=torch.channels_last)),
            functional.max_pool2d(x, 2, return_indices=True),
        ),
        [x],
        [],
    )


def norms() -> Made:
    x = rows()
    layer, root = nn.LayerNorm(4), nn.RMSNorm(4)
    return (
        lambda: (
            layer(x),
            root(x),
            functional.softmax(x, -1),
            functional.normalize(x),
            x.std(),
            functional.gelu(x, approximate="tanh"),
            functional.silu(x),
            functional.glu(x),
        ),
        [x],
        [],
    )


def losses() -> Made:
    x, target = rows(), torch.tensor([0, 1, 2])
    return (
        lambda: (
            functional.cross_entropy(x, target),
            functional.mse_loss(x, x * 2),
            functional.binary_cross_entropy_with_logits(x, x.sigmoid()),
            functional.kl_div(x, x.softmax(-1), reduction="batchmean"),
        ),
        [x, target],
        [],
    )


def indexing() -> Made:
    x, picked = torch.randn(5, 4), torch.tensor([0, 2, 1])

    def step() -> object:
        y = x.clone()
        y[picked] = 1.0
        y[picked, 0] += 2
        y.index_put_((picked,), torch.ones(3, 4), accumulate=True)
        y.scatter_(0, picked[None], 3.0)
        y.index_add_(0, picked, torch.ones(3, 4))
        y[y > 0] = -1.0
        y[:, 1:3] = 5
        return y, x.index_select(0, picked), x[picked], x.gather(0, picked[None])

    return step, [x, picked], []


def embedding() -> Made:
    ids = torch.tensor([[0, 1, 2]])
    table = nn.Embedding(5, 4, padding_idx=0)
    return lambda: (table(ids), table.weight[ids]), [ids], []


def ordering() -> Made:
    x = rows()
    return (
        lambda: (
            x.cumsum(0),
            x.sort(-1),
            x.topk(2),
            x.argmax(),
            x.max(1),
            x.median(1),
            x.flip(0),
            x.cummax(0),
            x.logsumexp(1),
            (x > 0).all(1),
        ),
        [x],
        [],
    )


def complex_numbers() -> Made:
    x = torch.randn(3, 4, dtype=torch.complex64)
    return (
        lambda: (
            x.conj(),
            (x * 2).conj(),
            x.imag * 2,
            torch.view_as_real(x * 1j),
            x.conj() @ x.T,
            torch.fft.fft(x),
            (x * 2).conj().imag,
        ),
        [x],
        [],
    )


def numbers_in_tensors() -> Made:
    x, n = torch.tensor(3.0), torch.tensor(2)
    return (
        lambda: (x + 1, x * n, n.float(), x.to(torch.int64), x.half().float(), (x > 1).int()),
        [x, n],
        [],
    )


def factories() -> Made:
    x = rows()

    def step() -> object:
        zeros = torch.zeros(3, 4)
        zeros[1] = x[0]
        full = torch.full((3, 4), 2.0).mul_(x)
        like = torch.zeros_like(x)
        like[0] = 1
        ramp = torch.arange(12.0).view(3, 4)
        filled = torch.empty(3, 4).copy_(x)
        number = torch.tensor(3.0).add_(x[0, 0])
        return zeros, full, like, ramp * x, torch.arange(12.0), torch.tensor([1.0]), filled, number

    return step, [x], []


def recurrent() -> Made:
    lstm, gru, x = nn.LSTM(4, 5, 2), nn.GRU(4, 3), torch.randn(6, 2, 4)
    return lambda: (lstm(x), gru(x)), [x], []


def transformer() -> Made:
    layer, x = nn.TransformerEncoderLayer(8, 2, 16), torch.randn(5, 2, 8)
    return lambda: layer(x), [x], []


def products() -> Made:
    x = torch.randn(2, 3, 4)
    return (
        lambda: (
            torch.einsum("bij,bkj->bik", x, x),
            torch.baddbmm(torch.zeros(2, 3, 3), x, x.mT),
            torch.addmm(torch.zeros(3, 3), x[0], x[1].T),
            x[0] @ x[1, 0],
            torch.linalg.vector_norm(x),
        ),
        [x],
        [],
    )


def many_at_once() -> Made:
    x = rows()

    def step() -> object:
        pair = [x * 1, x * 2]
        torch._foreach_add_(pair, 1.0)
        return pair, torch._foreach_mul(pair, 2.0)

    return step, [x], []


def mixed_precision() -> Made:
    x, linear = rows(), nn.Linear(4, 4)

    def step() -> object:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            low = linear(x)
        return low, linear(x)

    return step, [x], []


def own_functions() -> Made:
    x = rows()
    linear = nn.Linear(4, 4)

    class Triple(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, a: Tensor) -> Tensor:
            return a * 3

    return lambda: (Triple.apply(linear(x)), torch.func.vmap(lambda r: (r * 2).sum())(x)), [x], []


def other_weights() -> Made:
    x, linear = rows(), nn.Linear(4, 4)
    weights = {"weight": torch.randn(4, 4), "bias": torch.zeros(4)}
    return lambda: torch.func.functional_call(linear, weights, (x,)), [x], []


CASES = [
    scalars,
    joining,
    lists,
    attention,
    convolutions,
    norms,
    losses,
    indexing,
    embedding,
    ordering,
    complex_numbers,
    numbers_in_tensors,
    factories,
    recurrent,
    transformer,
    products,
    many_at_once,
    mixed_precision,
    own_functions,
    other_weights,
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", CASES)
def test_a_replay_returns_what_eager_returns(case: Callable[[], Made], mode: type) -> None:
    step, inputs, state = case()
    with mode():
        check_replays(step, inputs, state)
