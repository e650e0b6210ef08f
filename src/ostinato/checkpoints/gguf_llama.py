"""The llama architecture: its GGUF names and numbers in the words of transformers.

llama.cpp stores the query and key projections with the two halves of each rotary pair interleaved;
`unpermuted` puts them back as transformers expects them. What a file says and a `LlamaForCausalLM`
cannot express (another architecture, rotary scaling, experts) is refused by name.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from ostinato.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ostinato.checkpoints.gguf import GgufFile

_OUTER_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_BLOCK_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_BLOCK_NAME = re.compile(r"blk\.(\d+)\.(\w+)\.weight")


def llama_config(file: GgufFile) -> dict[str, Any]:
    """Return the `config.json` of the model in `file`.

    Raises:
        UsageError: OST2003, not a llama model, or one with a feature transformers' Llama lacks.
    """
    architecture = file.metadata.get("general.architecture")
    if architecture != "llama":
        raise _unsupported(file, f"its architecture is {architecture!r}, and only 'llama' is known")
    scaling = file.metadata.get("llama.rope.scaling.type", "none")
    if scaling != "none":
        raise _unsupported(file, f"it scales its rotary positions ({scaling!r})")
    heads = _number(file, "llama.attention.head_count")
    hidden = _number(file, "llama.embedding_length")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "float32",
        "hidden_act": "silu",
        "hidden_size": hidden,
        "intermediate_size": _number(file, "llama.feed_forward_length"),
        "num_hidden_layers": _number(file, "llama.block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": file.metadata.get("llama.attention.head_count_kv", heads),
        "head_dim": file.metadata.get("llama.attention.key_length", hidden // heads),
        "max_position_embeddings": _number(file, "llama.context_length"),
        "rms_norm_eps": _short(_number(file, "llama.attention.layer_norm_rms_epsilon")),
        "rope_theta": _short(file.metadata.get("llama.rope.freq_base", 10000.0)),
        "vocab_size": _tensor_rows(file, "token_embd.weight"),
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "attention_bias": False,
        "mlp_bias": False,
        **_special_token_ids(file),
    }


def transformers_name(file: GgufFile, name: str) -> str:
    """Return the name transformers' Llama gives to the tensor called `name` in `file`.

    Raises:
        UsageError: OST2003, transformers' Llama has no such tensor.
    """
    if name in _OUTER_NAMES:
        return _OUTER_NAMES[name]
    found = _BLOCK_NAME.fullmatch(name)
    if found is None or found[2] not in _BLOCK_NAMES:
        raise _unsupported(file, f"the tensor {name!r} has no place in a LlamaForCausalLM")
    return f"model.layers.{found[1]}.{_BLOCK_NAMES[found[2]]}.weight"


def unpermuted(
    name: str, weight: NDArray[np.float32], config: dict[str, Any]
) -> NDArray[np.float32]:
    """Undo llama.cpp's interleaving of rotary pairs in a query or key weight; pass others on."""
    heads = {
        "attn_q": config["num_attention_heads"],
        "attn_k": config["num_key_value_heads"],
    }.get(name.split(".")[-2] if "." in name else "")
    if heads is None:
        return weight
    rows, columns = weight.shape
    pairs = weight.reshape(heads, rows // heads // 2, 2, columns)
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows, columns)


def _special_token_ids(file: GgufFile) -> dict[str, int]:
    keys = {
        "bos_token_id": "tokenizer.ggml.bos_token_id",
        "eos_token_id": "tokenizer.ggml.eos_token_id",
        "pad_token_id": "tokenizer.ggml.padding_token_id",
    }
    return {ours: file.metadata[key] for ours, key in keys.items() if key in file.metadata}


def _number(file: GgufFile, key: str) -> Any:
    value = file.metadata.get(key)
    if not isinstance(value, int | float) or value <= 0:
        raise _unsupported(file, f"its {key} is {value!r}, not a positive number")
    return value


def _tensor_rows(file: GgufFile, name: str) -> int:
    if name not in file.tensors:
        raise _unsupported(file, f"it has no tensor {name!r}")
    return file.tensors[name].shape[0]


def _short(value: float) -> float:
    """Undo the rounding to float32: 9.999999747378752e-06 was written as 1e-05."""
    return float(str(np.float32(value)))


def _unsupported(file: GgufFile, what: str) -> UsageError:
    return UsageError(
        f"{file.path.name} cannot become a transformers model: {what}",
        code="OST2003",
        remedy="use the safetensors folder of the same model: ostinato run --model DIR",
    )
