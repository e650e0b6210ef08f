"""What one model caches, and whether the static step computes what the model computes.

A short forward with transformers' own cache shows the layers' shapes, whatever the architecture
calls them. Then a left-padded batch runs both ways, and the logits must agree: a model whose
forward cannot be driven from outside is found here, before a user sees a token of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache

from ostinato.graphs.observe_draws import generator_states
from ostinato.hf.admission import Admission, admit
from ostinato.hf.cache import LayerShape
from ostinato.hf.delegation import Delegated, DelegateError, Delegation
from ostinato.hf.forward import ForwardCall
from ostinato.hf.masks import MaskRule
from ostinato.hf.plan import Plan, Sampling
from ostinato.hf.state import DecodeState
from ostinato.hf.steps import DecodeStep, Parts, PrefillStep

# Largest difference allowed, as a share of the largest logit. A wrong mask or position changes
# logits by as much as they are; rounding by far less than these.
_TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-3, torch.float16: 0.05, torch.bfloat16: 0.2}


@dataclass(frozen=True, slots=True)
class Anatomy:
    """What the static step needs to know of a model.

    Attributes:
        layers: One shape per cached layer.
        vocabulary: Width of the logits.
        dtype: Of the logits, which is also that of additive masks.
    """

    layers: tuple[LayerShape, ...]
    vocabulary: int
    dtype: torch.dtype


def probe(model: nn.Module, call: ForwardCall, device: torch.device) -> Anatomy:
    """Run two tokens and read the shapes of what was cached.

    Raises:
        DelegateError: The model draws random numbers, or it does not keep plain keys and values per
            layer.
    """
    cache = DynamicCache()
    logits = _run_without_drawing(model, call, cache, device)
    layers = []
    for layer in cache.layers:
        keys, values = getattr(layer, "keys", None), getattr(layer, "values", None)
        if keys is None or values is None or keys.dim() != 4 or keys.shape[:3:2] != (1, 2):
            raise DelegateError(
                Delegated.CACHE_KIND, f"a {type(layer).__name__} does not hold keys and values"
            )
        layers.append(
            LayerShape(keys.shape[1], keys.shape[3], values.shape[3], keys.dtype, keys.device)
        )
    if not layers:
        raise DelegateError(Delegated.CACHE_KIND, "the model cached nothing")
    if len({layer.device for layer in layers}) > 1:
        raise DelegateError(Delegated.SPREAD_OVER_DEVICES, "its layers live on several devices")
    return Anatomy(tuple(layers), logits.shape[-1], logits.dtype)


def refuse_draws(model: nn.Module, call: ForwardCall, device: torch.device) -> None:
    """Run two tokens to see whether the forward draws random numbers; the user's stay as they were.

    Raises:
        DelegateError: It does. The static step would draw others than the model's own `generate`:
            its caches are longer and its prompts padded, and dropout draws for all of them.
    """
    _run_without_drawing(model, call, DynamicCache(), device)


def _run_without_drawing(
    model: nn.Module, call: ForwardCall, cache: DynamicCache, device: torch.device
) -> Tensor:
    ids = torch.zeros((1, 2), dtype=torch.long, device=device)
    columns = torch.arange(2, device=device)
    with _refusing_draws(model, device):
        return call(model, ids, mask=None, positions=columns[None], cache=cache, columns=columns)


@contextmanager
def _refusing_draws(model: nn.Module, device: torch.device) -> Iterator[None]:
    """Refuse a model that draws random numbers within; the user's stay as they were."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        before = generator_states(device)
        try:
            yield
        finally:  # whatever else it raised: that may come of the draws
            if generator_states(device) != before:
                mode = "training mode" if is_training(model) else "evaluation mode"
                raise DelegateError(
                    Delegated.DRAWS_IN_FORWARD, f"its forward draws random numbers in {mode}"
                )


def is_training(model: nn.Module) -> bool:
    """Whether the model, or a part of it, is in training mode."""
    return any(part.training for part in model.modules())


def check_agreement(
    model: nn.Module, call: ForwardCall, rule: MaskRule, anatomy: Anatomy, device: torch.device
) -> None:
    """Compare prefill and one decode step with a plain forward over the same tokens.

    Raises:
        DelegateError: They disagree by more than rounding.
    """
    tokens = 6
    ids = torch.arange(1, 2 * tokens + 1, device=device).reshape(2, tokens) % anatomy.vocabulary
    valid = torch.ones((2, tokens), dtype=torch.bool, device=device)
    valid[1, :2] = False
    positions = (valid.long().cumsum(-1) - 1).clamp(min=0)
    wanted = model(
        input_ids=ids, attention_mask=valid.long(), position_ids=positions, use_cache=False
    ).logits
    given = _static_logits(model, call, rule, anatomy, ids, valid, positions)
    allowed = _TOLERANCE.get(anatomy.dtype, 0.2) * float(wanted[:, -2:].abs().max())
    gap = float((given.float() - wanted[:, -2:].float()).abs().max())
    if not gap <= allowed:
        raise DelegateError(
            Delegated.STATIC_STEP_DISAGREES,
            f"logits of the static step are off by {gap:.3g}, where {allowed:.3g} is rounding",
        )


def _static_logits(
    model: nn.Module,
    call: ForwardCall,
    rule: MaskRule,
    anatomy: Anatomy,
    ids: Tensor,
    valid: Tensor,
    positions: Tensor,
) -> Tensor:
    rows, tokens = ids.shape
    state = DecodeState(
        anatomy.layers,
        rows=rows,
        length=2 * tokens,
        vocabulary=anatomy.vocabulary,
        dtype=anatomy.dtype,
        device=ids.device,
    )
    prompt = tokens - 1
    state.begin(ids[:, :prompt], valid[:, :prompt], Sampling(), pad=0)

    def padded(tensor: Tensor) -> Tensor:
        return nn.functional.pad(tensor[:, :prompt], (0, 3))

    parts = Parts(model, call, rule, state, Plan())
    first = PrefillStep(parts).logits(padded(ids), padded(positions), padded(valid))
    state.tokens_B1.copy_(ids[:, prompt:])
    second = DecodeStep(parts).logits()
    return torch.stack((first, second), dim=1)


def study(model: nn.Module, device: torch.device) -> tuple[Admission, Anatomy] | Delegation:
    """Admit, probe and check a model; a `Delegation` says why it cannot be accelerated."""
    try:
        admission = admit(model)
        anatomy = probe(model, admission.call, device)
        with _refusing_draws(model, device):  # some draw for a single token alone
            rule = _in_numbers(model, admission, anatomy, device)
            if rule is None:
                check_agreement(model, admission.call, admission.rule, anatomy, device)
    except DelegateError as refused:
        return refused.delegation
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - of whatever type: its own `generate` may never see it
        told = str(error).partition("\n")[0]
        return Delegation(
            Delegated.STATIC_STEP_FAILS,
            f"{type(model).__name__}.forward raised {type(error).__name__}: {told}",
        )
    return (admission if rule is None else replace(admission, rule=rule)), anatomy


def vocabulary_sizes(model: Any) -> tuple[object, ...]:
    """Return what tells one width of logits from another without a run: rows of the tables."""
    tables = (model.get_input_embeddings(), model.get_output_embeddings())
    return tuple(getattr(getattr(table, "weight", None), "shape", None) for table in tables)


def _in_numbers(
    model: nn.Module, admission: Admission, anatomy: Anatomy, device: torch.device
) -> MaskRule | None:
    """Return the rule with the numbers that torch makes of flags, if the model takes them.

    Given flags, scaled dot product attention makes the numbers anew in every layer, three kernels
    each; given numbers, it adds them. A model that does something of its own with flags is found
    here, as is one whose layers compute in another dtype.
    """
    if admission.rule.barred != "flag" or any(
        layer.dtype is not anatomy.dtype for layer in anatomy.layers
    ):
        return None
    rule = replace(admission.rule, barred="infinite")
    try:
        check_agreement(model, admission.call, rule, anatomy, device)
    except torch.OutOfMemoryError:
        raise
    except Exception:  # noqa: BLE001 - the model's own, of whatever type
        return None
    return rule
