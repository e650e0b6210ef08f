"""Any decoder-only model of transformers, with this engine's attention in the place of its own.

For architectures that have no file of their own here. Everything but attention is transformers'
code, so it is right by construction and slower: matrices are not merged, and a step has several
times the kernels. transformers' attention interface leads to `attend`; no mask is built and there
is no cache object, since keys and values live in pages. Which model came this way, and why, is in
`DecoderConfig.foreign`, and `Decoder.path` says so.

What could go wrong in silence does not: a model that asks more of attention than the engine has is
refused before its weights are read (`any_hf_calls.py`), and one that is loaded must give the logits
that transformers' own attention gives on a short text, or it is refused too (`any_hf_decoder.py`).

Decoding can be recorded, experts included. Only experts in float32 on a GPU cannot, since torch
copies their sizes to the host there: then steps run eagerly, and the report names the line.

This is the engine's one door to transformers, opened when such a model is met.

Shapes: N tokens, H query heads, D head size.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ostinato.errors import UsageError
from ostinato.llm.models.any_hf_calls import Call, cannot, rope_types, shape_of
from ostinato.llm.models.config import DecoderConfig, Foreign
from ostinato.llm.models.fields import MOST, MOST_LAYERS, Fields, refuse
from ostinato.llm.refusals import shown

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from ostinato.llm.attention import Attend

_RUNS, _NOTES = "ostinato", "ostinato-notes"
# Their frequencies follow the longest sequence of a batch: a token's result would then depend on
# the rows beside it, and the host would have to look at positions in every step.
_ROPES_BY_LENGTH = frozenset({"dynamic", "longrope"})
_SIZES = (
    *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers"),
    *("num_attention_heads", "num_key_value_heads", "max_position_embeddings"),
)
# What a layer sees is asked of its own code, position by position.
_FEWER = MappingProxyType({"num_hidden_layers": MOST_LAYERS, "max_position_embeddings": 1 << 25})


@dataclass(frozen=True, slots=True)
class _Step:
    """What attention needs to know while a model runs."""

    attend: Attend
    slots_N: Tensor


@dataclass(frozen=True, slots=True)
class _Notes:
    """What a model asked for while it ran on the meta device."""

    calls: list[Call]
    masks: list[tuple[Tensor, Any]]


_step: ContextVar[_Step] = ContextVar("step")
_notes: ContextVar[_Notes] = ContextVar("notes")


def _transformers() -> Any:
    """Import transformers and make the attention functions known to it, which may be repeated."""
    try:
        import transformers
    except ImportError as error:
        raise UsageError(
            "this model runs through transformers, which is not installed",
            code="OST5208",
            remedy="install it with: pip install 'ostinato[hf]'",
        ) from error
    transformers.AttentionInterface.register(_RUNS, _attention)
    transformers.AttentionInterface.register(_NOTES, _noted_attention)
    # Under the first name there is no mask function, and then transformers builds no mask.
    transformers.AttentionMaskInterface.register(_NOTES, _noted_mask)
    return transformers


def _attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any
) -> tuple[Tensor, None]:
    """Stand in for the model's attention: (1, heads, N, D) each in, (1, N, H, D) out."""
    step = _step.get()
    q, k, v = (each[0].transpose(0, 1).contiguous() for each in (query, key, value))
    return step.attend(_layer(module), q, k, v, step.slots_N)[None], None


def _noted_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **more: Any,
) -> tuple[Tensor, None]:
    notes = _notes.get()
    rules = [rule for mask, rule in notes.masks if mask is attention_mask]
    call = Call(
        layer=_layer(module),
        q=tuple(query.shape),
        k=tuple(key.shape),
        v=tuple(value.shape),
        scale=scaling,
        rule=rules[0] if rules else None,
        is_causal=getattr(module, "is_causal", True) and more.get("is_causal") is not False,
        more=more,
    )
    notes.calls.append(call)
    return query.transpose(1, 2).contiguous(), None


def _noted_mask(*, mask_function: Any, **_: Any) -> Tensor:
    mask = torch.empty(1, 1, 1, 1, device="meta")
    _notes.get().masks.append((mask, mask_function))
    return mask


def _layer(module: nn.Module) -> Any:
    return getattr(module, "layer_idx", None)


def describe(values: Mapping[str, Any], reason: str) -> DecoderConfig:
    """Return what a model of transformers is, from its config.json; no weights are needed.

    Args:
        values: The config.
        reason: Why no decoder of this engine's own runs it.

    Raises:
        UsageError: OST5201, no causal language model of transformers; OST5202, a config that cannot
            be followed; OST5207, attention that the engine does not have; OST5208, no transformers.
    """
    config = _config(values)
    by_length = sorted(_ROPES_BY_LENGTH.intersection(rope_types(values)))
    if by_length:
        raise refuse(f"its rope_type {by_length[0]!r} follows the length of the sequence")
    if getattr(config, "is_encoder_decoder", False):
        raise cannot("it is an encoder and a decoder")
    _check_sizes(config)
    foreign = Foreign(json.dumps(dict(values), sort_keys=True), reason)
    # bfloat16: some products of transformers have no other form on the meta device.
    model = construct(foreign, torch.bfloat16, torch.device("meta"), attention=_NOTES)
    calls = _notes_of(model).calls
    if not calls:
        raise cannot("its layers never call it")
    positions = _whole(config, "max_position_embeddings")
    layers = _whole(config, "num_hidden_layers")
    shape = shape_of(calls, layers=layers, max_positions=positions)
    fields = Fields(values)
    return DecoderConfig(
        architecture=str(values["model_type"]),
        vocabulary=model.get_output_embeddings().weight.shape[0],
        hidden=_whole(config, "hidden_size"),
        layers=len(shape.scales),
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        inner=0,
        max_positions=positions,
        norm_eps=0.0,
        activation="",
        rope=None,
        scales=shape.scales,
        windows=shape.windows,
        is_tied=model.get_output_embeddings().weight is model.get_input_embeddings().weight,
        stored_dtype=fields.dtype(),
        eos_token_ids=fields.token_ids("eos_token_id"),
        foreign=foreign,
    )


def _notes_of(model: Any) -> _Notes:
    """Run the model on two tokens without memory."""
    notes = _Notes([], [])
    held = _notes.set(notes)
    ids = torch.zeros(1, 2, dtype=torch.int64, device="meta")
    try:
        with torch.inference_mode():
            body_of(model)(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                position_ids=ids,
                use_cache=False,
            )
    except Exception as error:  # any model's code, which may raise anything
        raise cannot(f"it stopped with {type(error).__name__}: {_first_line(error)}") from error
    finally:
        _notes.reset(held)
    return notes


def _config(values: Mapping[str, Any]) -> Any:
    transformers = _transformers()
    kind = str(values.get("model_type"))
    models = transformers.MODEL_FOR_CAUSAL_LM_MAPPING
    if kind not in transformers.CONFIG_MAPPING or transformers.CONFIG_MAPPING[kind] not in models:
        raise UsageError(
            f"neither the engine nor transformers {transformers.__version__} has a decoder-only "
            f"language model of the architecture {kind!r}",
            code="OST5201",
            remedy="check model_type in config.json, or install the version of transformers that "
            "the model was made for; code that comes with a model is never run",
        )
    try:
        return transformers.CONFIG_MAPPING[kind].from_dict(dict(values))
    except Exception as error:  # any model's checks
        raise refuse(f"transformers does not take it ({_first_line(error)})") from error


def _check_sizes(config: Any) -> None:
    """Refuse sizes that no model has, before it is built: that would take long, or fail oddly."""
    for name in _SIZES:
        value = getattr(config, name, None)
        most = _FEWER.get(name, MOST)
        if isinstance(value, int) and not 1 <= value <= most:
            raise refuse(f"{name} is {shown(value)}, not a whole number from 1 to {most}")


def construct(
    foreign: Foreign, dtype: torch.dtype, device: torch.device, *, attention: str = _RUNS
) -> Any:
    """Build the model with its buffers computed and its weights left as they come."""
    transformers = _transformers()
    from transformers.initialization import no_init_weights

    config = _config(json.loads(foreign.config))
    try:
        with torch.device(device), no_init_weights():
            model = transformers.AutoModelForCausalLM.from_config(
                config, attn_implementation=attention, dtype=dtype
            )
    except KeyError as error:
        if attention in str(error):  # it looks its attention up in a table of its own
            raise cannot("its attention does not go through it") from error
        raise cannot(f"it cannot be built (no {error})") from error
    except Exception as error:  # any model's code, which may raise anything
        raise cannot(f"it cannot be built ({_first_line(error)})") from error
    if not isinstance(getattr(model, model.base_model_prefix, None), nn.Module):
        raise cannot(f"a {type(model).__name__} has no body apart from its output head")
    model.tie_weights()
    return model.requires_grad_(False).eval()


def body_of(model: Any) -> Any:
    """Return the model without its output head."""
    return getattr(model, model.base_model_prefix)


def _whole(config: Any, name: str) -> int:
    value = getattr(config, name, None)
    if not isinstance(value, int):
        raise cannot(f"its config names no {name}")
    return value


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


@contextmanager
def attending(attend: Attend, slots_N: Tensor) -> Iterator[None]:
    """Let attention lead to `attend` while the block runs."""
    held = _step.set(_Step(attend, slots_N))
    try:
        yield
    finally:
        _step.reset(held)


@contextmanager
def own_attention(model: Any) -> Iterator[None]:
    """Let the model compute attention by its own plain code while the block runs."""
    model.config._attn_implementation = "eager"
    try:
        yield
    finally:
        model.config._attn_implementation = _RUNS


def has_other_spellings(model: Any) -> bool:
    """Whether checkpoints of this architecture may name or pack tensors unlike the model."""
    from transformers.conversion_mapping import get_model_conversion_mapping

    return bool(get_model_conversion_mapping(model, add_legacy=False))


def read(
    model: Any,
    foreign: Foreign,
    *,
    folder: Path | None = None,
    state: Mapping[str, Tensor] | None = None,
) -> Mapping[str, Tensor] | None:
    """Read a checkpoint, on the host, into the names of `model`; None: it does not fit."""
    with _quiet():
        fresh, told = type(model).from_pretrained(
            folder,
            config=_config(json.loads(foreign.config)),
            state_dict=None if state is None else dict(state),
            dtype=next(model.parameters()).dtype,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
            local_files_only=True,
        )
    if told["missing_keys"] or told["mismatched_keys"] or told["unexpected_keys"]:
        return None
    found: Mapping[str, Tensor] = fresh.state_dict()
    return found


@contextmanager
def _quiet() -> Iterator[None]:
    """Leave what a load found to the error that follows, which says it once."""
    logging = _transformers().utils.logging
    level = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
