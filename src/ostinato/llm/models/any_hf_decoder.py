"""The decoder around a model of transformers: pages below it, this engine's calls above it.

What it can be, and how attention gets here, is `any_hf.py`'s; this file runs it. Once its weights
are in, it must give the logits that transformers' own attention gives on a short text.

Shapes: N tokens, E hidden, V vocabulary.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ostinato.checkpoints.memory import available_bytes, require_memory, telling_memory
from ostinato.errors import UsageError
from ostinato.llm.attention import PrefillAttend, PromptChunk, SdpaAttention, pack
from ostinato.llm.kv.store import KvStore
from ostinato.llm.models import any_hf
from ostinato.llm.models.decoder import Decoder
from ostinato.llm.models.linear import InvariantLinear
from ostinato.llm.models.sources import FolderSource, StateSource

if TYPE_CHECKING:
    from torch import Tensor

    from ostinato.llm.attention import Attend
    from ostinato.llm.models.config import DecoderConfig
    from ostinato.llm.models.ops import LayerOps
    from ostinato.llm.models.sources import WeightSource

_PROOF_TOKENS = 24


class _Given(nn.Module):
    """Stands in for a model's body when only its output head is to run: gives back what it gets."""

    @property
    def decoder(self) -> _Given:
        """What some heads ask of the body: OPT's."""
        return self

    def forward(self, *given: Any, **named: Any) -> _Answer:
        # Some heads name their body's arguments and some do not; the others are all None.
        (hidden,) = (each for each in (*given, *named.values()) if isinstance(each, torch.Tensor))
        return _Answer(hidden)


class _Answer:
    """A body's output: the hidden states, by name and as the first of a tuple; the rest is None."""

    def __init__(self, last_hidden_state: Tensor) -> None:
        self.last_hidden_state = last_hidden_state

    def __getitem__(self, index: Any) -> Any:
        return (self.last_hidden_state,)[index]

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


class AnyHfDecoder(Decoder):
    """See the module."""

    def __init__(self, config: DecoderConfig, *, ops: LayerOps, is_invariant: bool) -> None:
        super().__init__(config, ops=ops, is_invariant=is_invariant)
        assert config.foreign is not None
        self._foreign = config.foreign
        self._place(torch.get_default_dtype(), torch.device("meta"))

    def to_empty(self, *, device: Any, recurse: bool = True) -> AnyHfDecoder:
        """Build the model anew on `device`: its buffers are computed by its own code only there."""
        self._place(next(self.parameters()).dtype, torch.device(device))
        return self

    def _place(self, dtype: torch.dtype, device: torch.device) -> None:
        self.model = any_hf.construct(self._foreign, dtype, device)
        self._names = frozenset(self.model.state_dict())
        self.is_invariant = self.is_invariant and _made_invariant(self.model)
        # The same model, with its body left out: whatever it does to logits, it does here too.
        # Kept from `modules`, where its weights would be found twice.
        head = copy.copy(self.model)
        head._modules = self.model._modules | {self.model.base_model_prefix: _Given()}
        self.__dict__["_head"] = head

    def run(self, tokens_N: Tensor, positions_N: Tensor, slots_N: Tensor, attend: Attend) -> Tensor:
        body = any_hf.body_of(self.model)
        with any_hf.attending(attend, slots_N):
            out = body(
                input_ids=tokens_N[None].long(),
                position_ids=positions_N[None].long(),
                use_cache=False,
            )
        hidden: Tensor = out.last_hidden_state[0]
        return hidden

    def head(self) -> Tensor:
        weight: Tensor = self.model.get_output_embeddings().weight
        return weight

    def logits(self, hidden_NE: Tensor) -> Tensor:
        out: Tensor = self.__dict__["_head"](inputs_embeds=hidden_NE[None]).logits[0]
        return out

    def destinations(self) -> dict[str, Tensor]:
        tied = self.tied()
        return {name: w.data for name, w in self.model.state_dict().items() if name not in tied}

    def tied(self) -> dict[str, str]:
        first: dict[int, str] = {}
        found = {}
        for name, weight in self.model.named_parameters(remove_duplicate=False):
            if first.setdefault(id(weight), name) != name:
                found[name] = first[id(weight)]
        return found

    def name_here(self, stored: str) -> str | None:
        prefixed = f"{self.model.base_model_prefix}.{stored}"
        if stored not in self._names and prefixed in self._names:
            return prefixed
        return None if stored.endswith("rotary_emb.inv_freq") else stored

    def translate(self, source: WeightSource) -> WeightSource:
        """Let transformers read a checkpoint that names or packs its tensors in an older way.

        Experts are such a case: a checkpoint has a matrix each, the model one tensor of them all.
        The weights then lie in host memory once more while they are read.
        """
        known = {self.name_here(stored) for stored in source.shapes()}
        if self.destinations().keys() <= known or not any_hf.has_other_spellings(self.model):
            return source
        needed = sum(weight.nbytes for weight in self.parameters())
        require_memory(needed, available_bytes(), "reading the checkpoint", "host")
        with telling_memory("reading the checkpoint"):
            if isinstance(source, FolderSource):
                state = any_hf.read(self.model, self._foreign, folder=source.folder)
            else:
                tensors = {name: source.read(name) for name in source.shapes()}
                state = any_hf.read(self.model, self._foreign, state=tensors)
        # Without an answer something is missing, and the checkpoint's own names say best what.
        return source if state is None else StateSource(state)

    @torch.inference_mode()
    def prove(self) -> None:
        """Compare with transformers' own attention on a short text.

        Raises:
            UsageError: OST5209, they differ.
        """
        weight = next(self.parameters())
        count = min(_PROOF_TOKENS, self.config.max_positions)
        ids = torch.arange(count, device=weight.device) * 7 % self.config.vocabulary
        ours = self._short_text(ids)
        with any_hf.own_attention(self.model):
            theirs = self.model(input_ids=ids[None], use_cache=False).logits[0]
        apart = float((ours - theirs).float().norm() / theirs.float().norm())
        # Lower precision: a chosen expert may flip, and then a token's logits are others.
        if not apart <= (1e-3 if weight.dtype == torch.float32 else 0.2):
            raise UsageError(
                f"through the engine's attention this {self.config.architecture} gives other "
                f"logits than transformers does: they are {apart:.1%} apart",
                code="OST5209",
                remedy="use the model in transformers, where ostinato.accelerate(model) "
                "speeds it up, and report the architecture",
            )

    def _short_text(self, ids: Tensor) -> Tensor:
        config, weight = self.config, next(self.parameters())
        count = len(ids)
        sizes = (config.layers, 2, count, config.kv_heads, config.head_dim)
        store = KvStore(*sizes, weight.dtype, weight.device)
        chunk = PromptChunk(ids.tolist(), 0, [1])
        batch = pack([chunk], page_tokens=count, device=weight.device)
        attend = PrefillAttend(SdpaAttention(config.attention), store, batch)
        return self.logits(self.prefill(batch, attend))


def _made_invariant(model: nn.Module) -> bool:
    """Give every product the form whose result for a token does not depend on its company.

    Returns:
        Whether that is all that the model does with matrices.
    """
    held: set[int] = set()
    for module in model.modules():
        if type(module) is nn.Linear:
            module.__class__ = InvariantLinear
        if isinstance(module, InvariantLinear | nn.Embedding):
            held.update(map(id, module.parameters(recurse=False)))
    return all(weight.ndim < 2 or id(weight) in held for weight in model.parameters())
