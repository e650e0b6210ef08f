"""What a decoder is, read from the config.json of a transformers folder.

Every architecture answers to one `DecoderConfig`; what transformers leaves to a class's defaults is
filled in here. What this engine cannot compute is refused, never skipped: a model that ignores half
of its own config runs, and talks nonsense.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ostinato.checkpoints.json_file import read_json
from ostinato.errors import UsageError
from ostinato.llm.attention.base import AttentionShape
from ostinato.llm.models.fields import MOST_LAYERS, Fields, refuse
from ostinato.llm.models.layers import ACTIVATIONS
from ostinato.llm.models.rope import Llama3Scaling, Rope, YarnScaling


@dataclass(frozen=True, slots=True)
class Foreign:
    """A model that only transformers knows.

    Attributes:
        config: Its config.json.
        reason: Why no decoder of this engine's own runs it.
    """

    config: str
    reason: str


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """One decoder-only model.

    Attributes:
        architecture: "llama", "mistral", "qwen2", "qwen3", "gpt2", or one that transformers has.
        inner: Width of the MLP; of a foreign model this, `norm_eps`, `activation` and `rope` are
            not known here.
        max_positions: The longest sequence it takes.
        activation: A key of `layers.ACTIVATIONS`.
        rope: None: positions are learned.
        scales, windows: Per layer; see `AttentionShape`.
        is_tied: Whether the output head is the embedding.
        stored_dtype: The number type its config names, such as "bfloat16"; None: it names none.
        eos_token_ids: Tokens that end an answer.
        foreign: How transformers runs the model (`any_hf.py`); None: this engine has its own code.
    """

    architecture: str
    vocabulary: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int
    max_positions: int
    norm_eps: float
    activation: str
    rope: Rope | None
    scales: tuple[float, ...]
    windows: tuple[int | None, ...]
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    has_qk_norm: bool = False
    is_tied: bool = False
    stored_dtype: str | None = None
    eos_token_ids: tuple[int, ...] = ()
    foreign: Foreign | None = None

    @property
    def attention(self) -> AttentionShape:
        """What the model asks of an attention backend."""
        return AttentionShape(self.heads, self.kv_heads, self.head_dim, self.scales, self.windows)

    @classmethod
    def from_dict(cls, config: Mapping[str, Any]) -> DecoderConfig:
        """Read a transformers config.

        Raises:
            UsageError: OST5201, an architecture that neither this engine nor transformers has;
                OST5202, a value that is missing, impossible, or not computed here; OST5207 and
                OST5208, transformers cannot run it with this engine's attention, or is missing.
        """
        kind = str(config.get("model_type"))
        if config.get("quantization_config"):
            raise refuse("its weights are quantised (quantization_config)")
        if kind in _FAMILIES:
            return _FAMILIES[kind](kind, Fields(config))
        # Only here: the module loads transformers.
        from ostinato.llm.models.any_hf import describe

        known = ", ".join(_FAMILIES)
        return describe(config, f"its architecture {kind!r} is none of the engine's own: {known}")


def read_config(folder: str | Path) -> DecoderConfig:
    """Read the config.json of a transformers folder.

    Raises:
        UsageError: OST2020, no such folder; OST2021, no readable config.json in it; OST5201 and
            OST5202, as `DecoderConfig.from_dict`.
    """
    path = Path(folder).expanduser()
    if not path.is_dir():
        raise UsageError(
            f"the model folder {path} {'is a file' if path.exists() else 'does not exist'}",
            code="OST2020",
            remedy="give a folder with config.json and model.safetensors, or the name smollm2",
        )
    try:
        config = read_json(path / "config.json")
    except (OSError, ValueError) as error:
        raise _not_a_model(f"{path} has no config.json that can be read: {error}") from error
    if not isinstance(config, dict) or not isinstance(config.get("model_type"), str):
        raise _not_a_model(f"{path / 'config.json'} names no model_type")
    return DecoderConfig.from_dict(config)


def _not_a_model(problem: str) -> UsageError:
    return UsageError(
        problem,
        code="OST2021",
        remedy="give a folder written by save_pretrained: config.json, safetensors, tokenizer",
    )


def _rotary(kind: str, fields: Fields) -> DecoderConfig:
    """Read the config of a Llama or one of its relatives."""
    heads, hidden = fields.count("num_attention_heads"), fields.count("hidden_size")
    layers = fields.count("num_hidden_layers", most=MOST_LAYERS)
    head_dim = _head_dim(kind, fields, hidden, heads)
    has_bias = kind in ("llama", "qwen3") and fields.flag("attention_bias", default=False)
    return DecoderConfig(
        architecture=kind,
        vocabulary=fields.count("vocab_size"),
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=_kv_heads(fields, heads, 8 if kind == "mistral" else heads),
        head_dim=head_dim,
        inner=fields.count("intermediate_size"),
        max_positions=fields.count("max_position_embeddings"),
        norm_eps=fields.number("rms_norm_eps", 1e-6, most=1.0),
        activation=_activation(fields, "hidden_act", "silu"),
        rope=_rope(fields),
        scales=(head_dim**-0.5,) * layers,
        windows=_windows(kind, fields, layers),
        qkv_bias=has_bias or kind == "qwen2",
        out_bias=has_bias,
        mlp_bias=kind == "llama" and fields.flag("mlp_bias", default=False),
        has_qk_norm=kind == "qwen3",
        is_tied=fields.flag("tie_word_embeddings", default=False),
        stored_dtype=fields.dtype(),
        eos_token_ids=fields.token_ids("eos_token_id"),
    )


def _gpt2(kind: str, fields: Fields) -> DecoderConfig:
    heads, hidden = fields.count("n_head"), fields.count("n_embd")
    layers = fields.count("n_layer", most=MOST_LAYERS)
    if hidden % heads:
        raise refuse(f"n_embd {hidden} is not a multiple of n_head {heads}")
    if fields.flag("add_cross_attention", default=False):
        raise refuse("it attends to an encoder (add_cross_attention)")
    scale = (hidden // heads) ** -0.5 if fields.flag("scale_attn_weights", default=True) else 1.0
    by_layer = fields.flag("scale_attn_by_inverse_layer_idx", default=False)
    return DecoderConfig(
        architecture=kind,
        vocabulary=fields.count("vocab_size"),
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=heads,
        head_dim=hidden // heads,
        inner=fields.count("n_inner", 4 * hidden),
        max_positions=fields.count("n_positions"),
        norm_eps=fields.number("layer_norm_epsilon", 1e-5, most=1.0),
        activation=_activation(fields, "activation_function", "gelu_new"),
        rope=None,
        scales=tuple(scale / (layer + 1 if by_layer else 1) for layer in range(layers)),
        windows=(None,) * layers,
        qkv_bias=True,
        out_bias=True,
        mlp_bias=True,
        is_tied=fields.flag("tie_word_embeddings", default=True),
        stored_dtype=fields.dtype(),
        eos_token_ids=fields.token_ids("eos_token_id"),
    )


def _head_dim(kind: str, fields: Fields, hidden: int, heads: int) -> int:
    default = 128 if kind == "qwen3" else hidden // heads
    if fields.optional("head_dim") is None and kind != "qwen3" and hidden % heads:
        raise refuse(f"hidden_size {hidden} is not a multiple of num_attention_heads {heads}")
    head_dim = fields.count("head_dim", default)
    if head_dim % 2:
        raise refuse(f"its heads have {head_dim} numbers, and positions turn pairs of them")
    return head_dim


def _kv_heads(fields: Fields, heads: int, default: int) -> int:
    kv_heads = fields.count("num_key_value_heads", default)
    if heads % kv_heads:
        raise refuse(f"{heads} attention heads are not a multiple of {kv_heads} key-value heads")
    return kv_heads


def _activation(fields: Fields, key: str, default: str) -> str:
    name = fields.text(key, default)
    if name not in ACTIVATIONS:
        raise refuse(f"its activation {key} = {name!r} is not one of {', '.join(ACTIVATIONS)}")
    return name


def _windows(kind: str, fields: Fields, layers: int) -> tuple[int | None, ...]:
    """Return how far each layer sees."""
    if kind == "llama":
        return (None,) * layers
    if kind == "mistral":
        return (fields.window("sliding_window", 4096),) * layers
    window = None
    if fields.flag("use_sliding_window", default=False):
        window = fields.window("sliding_window", 4096)
    first = fields.count("max_window_layers", 28, least=0)
    kinds = fields.layer_types(layers) or [
        "full_attention" if layer < first else "sliding_attention" for layer in range(layers)
    ]
    return tuple(window if each == "sliding_attention" else None for each in kinds)


def _rope(fields: Fields) -> Rope:
    """Read the rotary positions, as transformers writes them now (5) and as it did (4)."""
    parameters = fields.part("rope_parameters") or fields.part("rope_scaling")
    theta = parameters.number("rope_theta", fields.number("rope_theta", 10_000.0), least=1.0)
    kind = parameters.text("rope_type", parameters.text("type", "default"))
    share = parameters.number("partial_rotary_factor", fields.number("partial_rotary_factor", 1.0))
    if share != 1.0:
        raise refuse(f"only a part of each head turns (partial_rotary_factor {share})")
    if kind == "default":
        return Rope(theta)
    if kind == "linear":
        return Rope(theta, factor=parameters.number("factor"))
    if kind == "llama3":
        scaling = Llama3Scaling(
            factor=parameters.number("factor"),
            low_freq_factor=parameters.number("low_freq_factor"),
            high_freq_factor=parameters.number("high_freq_factor"),
            original_max_positions=parameters.count("original_max_position_embeddings"),
        )
        return Rope(theta, llama3=scaling)
    if kind == "yarn":
        return Rope(theta, yarn=_yarn(parameters, fields))
    raise refuse(f"its rope_type {kind!r} is not one of default, linear, llama3, yarn")


def _yarn(parameters: Fields, fields: Fields) -> YarnScaling:
    mscale, mscale_all = (parameters.optional(key) for key in ("mscale", "mscale_all_dim"))
    if mscale and mscale_all:
        raise refuse("its yarn scaling has an mscale and an mscale_all_dim")
    return YarnScaling(
        factor=parameters.number("factor"),
        original_max_positions=parameters.count(
            "original_max_position_embeddings", fields.count("max_position_embeddings")
        ),
        beta_fast=parameters.number("beta_fast", 32.0),
        beta_slow=parameters.number("beta_slow", 1.0),
        amplitude=parameters.optional("attention_factor"),
        is_rounded=parameters.flag("truncate", default=True),
    )


_FAMILIES: Mapping[str, Callable[[str, Fields], DecoderConfig]] = MappingProxyType(
    {"llama": _rotary, "mistral": _rotary, "qwen2": _rotary, "qwen3": _rotary, "gpt2": _gpt2}
)
