"""Can this model be accelerated at all? Read off its class and config, before anything runs.

The rule: what a model does not override, and what its config says about its layers, is known; all
else is left to the model's own `generate`, with a reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn
from transformers import GenerationMixin

from ostinato.hf.delegation import Delegated, DelegateError
from ostinato.hf.forward import ForwardCall, read_forward
from ostinato.hf.masks import MaskRule, mask_rule

ATTENTION_KINDS = ("sdpa", "eager")

# A model that changes one of these generates in its own way.
_GENERATION_METHODS = (
    "generate",
    "prepare_inputs_for_generation",
    "_sample",
    "_prefill",
    "_update_model_kwargs_for_generation",
    "_prepare_cache_for_generation",
    "_prepare_position_ids_for_generation",
    "_get_logits_processor",
    "_get_stopping_criteria",
)


@dataclass(frozen=True, slots=True)
class Admission:
    """How to drive an admitted model."""

    call: ForwardCall
    rule: MaskRule
    has_learned_positions: bool


def admit(model: nn.Module) -> Admission:
    """Decide whether `model` can be driven by a static step.

    Raises:
        DelegateError: It cannot; the reason names what stands in the way.
    """
    _check_generation(model)
    config: Any = model.config
    text: Any = config.get_text_config()
    if config.is_encoder_decoder:
        raise DelegateError(Delegated.ENCODER_DECODER, f"{config.model_type} has an encoder")
    _check_devices(model)
    call = read_forward(model)
    if call is None:
        raise DelegateError(
            Delegated.FORWARD_SIGNATURE,
            f"{type(model).__name__}.forward takes no position_ids, or no cache",
        )
    if text._attn_implementation not in ATTENTION_KINDS:
        raise DelegateError(Delegated.ATTENTION_KIND, f"attention is {text._attn_implementation!r}")
    if getattr(model, "_is_stateful", False):
        raise DelegateError(Delegated.CACHE_KIND, f"{text.model_type} keeps a state, not a cache")
    _check_rope(text)
    rule = mask_rule(text)
    if rule is None:
        raise DelegateError(
            Delegated.ATTENTION_KIND, f"{text.model_type} has layers of other kinds"
        )
    return Admission(call, rule, getattr(text, "rope_parameters", None) is None)


def _check_generation(model: nn.Module) -> None:
    kind = type(model)
    for name in _GENERATION_METHODS:
        ours = getattr(GenerationMixin, name, None)
        if getattr(kind, name, None) is not ours or name in vars(model):
            raise DelegateError(Delegated.OWN_GENERATE, f"{kind.__name__} has its own {name}")
    if hasattr(model, "create_masks_for_generate"):
        raise DelegateError(Delegated.OWN_GENERATE, f"{kind.__name__} makes its own masks")


def _check_devices(model: nn.Module) -> None:
    placed = getattr(model, "hf_device_map", None) or {}
    if len(set(placed.values())) > 1:
        places = sorted(str(place) for place in set(placed.values()))
        raise DelegateError(
            Delegated.SPREAD_OVER_DEVICES, f"the model is spread over {', '.join(places)}"
        )


def _check_rope(config: Any) -> None:
    rope = getattr(config, "rope_parameters", None) or {}
    tables = [rope, *(table for table in rope.values() if isinstance(table, dict))]
    kinds = {str(table.get("rope_type", "default")) for table in tables}
    changing = sorted(kind for kind in kinds if "dynamic" in kind or kind == "longrope")
    if changing:
        raise DelegateError(
            Delegated.LENGTH_DEPENDENT_ROPE,
            f"{changing[0]} rotary embeddings are recomputed on the host as the text grows",
        )
