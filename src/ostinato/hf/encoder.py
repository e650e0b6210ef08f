"""An encoder of transformers as one function from token ids to vectors, fit to be recorded.

Pooling and normalisation stand inside it, so that a recording holds all that happens between the
ids and the vectors. Read from the folder as sentence-transformers writes it; a folder that says
nothing of pooling gets the mean over its real tokens, of length 1.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ostinato.checkpoints import choose_device
from ostinato.checkpoints.json_file import read_json
from ostinato.checkpoints.placement import choose_dtype
from ostinato.errors import UsageError


class Pooling(StrEnum):
    """How the vectors of a text's tokens become one."""

    MEAN = "mean"
    FIRST = "first"
    LAST = "last"
    MAX = "max"


_WORDS = {
    "pooling_mode_mean_tokens": Pooling.MEAN,
    "pooling_mode_cls_token": Pooling.FIRST,
    "pooling_mode_lasttoken": Pooling.LAST,
    "pooling_mode_max_tokens": Pooling.MAX,
}


class Encoder(nn.Module):
    """Ids and mask, padded on the right, to one float32 vector for each row."""

    def __init__(self, model: nn.Module, pooling: Pooling, *, is_normalised: bool) -> None:
        super().__init__()
        self.model = model
        self.pooling = pooling
        self.is_normalised = is_normalised

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Return (rows, size); a row's mask is 1 for its real tokens, of which there is one.

        Capture:
            Safe, for attention that transformers computes by torch's own operation.
        """
        found = self.model(input_ids=input_ids, attention_mask=attention_mask)
        pooled = self._pool(found.last_hidden_state.float(), attention_mask)
        return nn.functional.normalize(pooled, dim=-1) if self.is_normalised else pooled

    def _pool(self, hidden: Tensor, mask: Tensor) -> Tensor:
        if self.pooling is Pooling.FIRST:
            return hidden[:, 0]
        real = mask[..., None].to(hidden.dtype)
        if self.pooling is Pooling.MEAN:
            return (hidden * real).sum(1) / real.sum(1)
        if self.pooling is Pooling.MAX:
            lowest = torch.finfo(hidden.dtype).min
            return torch.where(real > 0, hidden, lowest).amax(1)
        last = (mask.sum(1) - 1)[:, None, None].expand(-1, 1, hidden.shape[-1])
        return hidden.gather(1, last)[:, 0]


def load_encoder(folder: str | Path, device: str = "auto") -> Encoder:
    """Read an encoder from a folder; nothing is fetched, and no code of the folder runs.

    Raises:
        UsageError: OST6062, transformers cannot read it as an encoder, or its pooling is another;
            OST2029, there is no such device.
    """
    path = Path(folder)
    target = choose_device(device)
    try:
        from transformers import AutoModel

        config = read_json(path / "config.json")
        dtype = choose_dtype("auto", target, config)
        model: Any = AutoModel.from_pretrained(
            path, local_files_only=True, dtype=dtype, attn_implementation="sdpa"
        )
    except (OSError, ValueError, ImportError, RuntimeError, KeyError) as error:
        said = " ".join(str(error).split())
        raise _unfit(f"{path} cannot be read as an encoder: {said:.300}") from error
    pooling, is_normalised = _read_pooling(path)
    return Encoder(model, pooling, is_normalised=is_normalised).eval().to(target)


def _read_pooling(folder: Path) -> tuple[Pooling, bool]:
    modules = folder / "modules.json"
    if not modules.is_file():
        return Pooling.MEAN, True
    parts = _read(modules)
    if not (isinstance(parts, list) and all(_names_its_type(part) for part in parts)):
        raise _unfit(f"{modules} lists no parts of an encoder")
    kinds = {one["type"].rpartition(".")[2]: str(one.get("path", "")) for one in parts}
    strange = kinds.keys() - {"Transformer", "Pooling", "Normalize"}
    if strange:
        raise _unfit(f"{folder} has a part that is not done here: {sorted(strange)[0]}")
    pooling = Pooling.MEAN
    if "Pooling" in kinds:
        said = _read(folder / kinds["Pooling"] / "config.json")
        words = said if isinstance(said, dict) else {}
        chosen = [word for word, value in words.items() if word.startswith("pooling_") and value]
        if len(chosen) != 1 or chosen[0] not in _WORDS:
            raise _unfit(f"{folder} pools in a way that is not done here: {', '.join(chosen)}")
        pooling = _WORDS[chosen[0]]
    return pooling, "Normalize" in kinds


def _names_its_type(part: object) -> bool:
    return isinstance(part, dict) and isinstance(part.get("type"), str)


def _read(file: Path) -> Any:
    try:
        return read_json(file)
    except (OSError, ValueError) as error:
        raise _unfit(f"{file} cannot be read: {error}") from error


def _unfit(problem: str) -> UsageError:
    return UsageError(
        problem,
        code="OST6062",
        remedy="name a folder of an encoder with its tokenizer.json, such as all-MiniLM-L6-v2",
    )
