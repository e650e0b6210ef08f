"""The programs that `watch_overhead.py` watches: real steps, bound by the host or by the device.

`decode` is transformers' own Llama at SmolLM2's sizes, one token against a cache of keys, eagerly:
some thousand launches a step, so on a GPU the host decides. `waits` is an encoder in whose every
layer the host reads a number: host and device wait for each other. `encoder` is one whose products
fill a GPU, so that the device decides. Each step ends with its result read by the host.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature

import torch
from torch import nn

from ostinato.bench.decode.models import MODELS, TINY

Step = Callable[[], object]

_HOST_BOUND, _DEVICE_BOUND = 0.8, 0.5
"""Of a step's time, that of queueing it: from so much on the host decides, up to so much the
device."""


class Encoder(nn.Module):
    """Layers of attention and a feed-forward net; with `waits`, one read by the host in each."""

    def __init__(self, layers: int, width: int, *, waits: bool = False) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 8, 4 * width, batch_first=True) for _ in range(layers)
        )
        self.waits = waits

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the encoded tokens."""
        for layer in self.layers:
            x = layer(x)
            if self.waits and float(x[0, 0, 0]) > 1e9:
                x = x / 2
        return x


def programs(device: torch.device, *, tiny: bool = False) -> dict[str, Step]:
    """Return one step of each program, by name, without the read of its result."""

    def encoding(model: nn.Module, *shape: int, dtype: torch.dtype = torch.float32) -> Step:
        model = model.to(device, dtype).train(False)
        tokens = torch.randn(*shape, device=device, dtype=dtype)
        return lambda: model(tokens).argmax(-1)

    if tiny:
        return {
            "decode": decoding(device, layers=1, cached=8, tiny=True),
            "waits": encoding(Encoder(1, 32, waits=True), 1, 2, 32),
            "encoder": encoding(Encoder(1, 64), 1, 8, 64),
        }
    if device.type == "cpu":
        return {
            "decode": decoding(device, layers=8, cached=64, tiny=True),
            "waits": encoding(Encoder(6, 128, waits=True), 1, 24, 128),
            "encoder": encoding(Encoder(4, 256), 2, 32, 256),
        }
    return {
        "decode": decoding(device, layers=30, cached=256),
        "waits": encoding(Encoder(6, 512, waits=True), 2, 32, 512),
        # 8192 tokens: 1.2 TFLOP of products, some two milliseconds of an H200.
        "encoder": encoding(Encoder(6, 1024), 16, 512, 1024, dtype=torch.bfloat16),
    }


def decoding(device: torch.device, *, layers: int, cached: int, tiny: bool = False) -> Step:
    """Return a step that gives one token, again and again the one behind `cached` others."""
    from transformers import AutoModelForCausalLM, DynamicCache, LlamaConfig

    sizes = dict(TINY if tiny else MODELS["smollm2-135m"]) | {"num_hidden_layers": layers}
    told = {key: each for key, each in sizes.items() if key not in ("torch_dtype", "model_type")}
    dtype = torch.float32 if device.type == "cpu" else torch.bfloat16
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(LlamaConfig(**told), dtype=dtype).eval()
        prompt = torch.randint(3, model.config.vocab_size, (1, cached))
    cache = DynamicCache(config=model.config)
    # Newer versions have renamed it.
    named = {
        "cache" if "cache" in signature(model.forward).parameters else "past_key_values": cache
    }
    with torch.inference_mode():
        model(prompt, **named)

    def step() -> object:
        logits = model(prompt[:, -1:], **named).logits
        cache.crop(-1)  # the next one finds as many keys
        return logits[:, -1].argmax(-1)

    return step


def bound_by(queued_us: float, step_us: float) -> str:
    """Say what decides how long a step takes, by what queueing it takes the host."""
    share = queued_us / step_us
    return "host" if share >= _HOST_BOUND else "device" if share <= _DEVICE_BOUND else "both"
