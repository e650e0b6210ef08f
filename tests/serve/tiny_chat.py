"""A tiny random model that converses: one token per byte, so that it can write any text."""

from __future__ import annotations

import json
from pathlib import Path

import tokenizers
import torch
import transformers
from tokenizers import decoders, models, pre_tokenizers

SPECIAL = ("<|end|>", "<|start|>")
VOCABULARY = 256 + len(SPECIAL)
END = 256
TEMPLATE = (
    "{% for message in messages %}<|start|>{{ message['role'] }}\n{{ message['content'] }}<|end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)


def write(folder: Path, seed: int = 0) -> None:
    """Write a transformers folder with weights drawn from `seed`."""
    torch.manual_seed(seed)
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=4096,
        eos_token_id=END,
        bos_token_id=END,
    )
    transformers.LlamaForCausalLM(config).float().save_pretrained(folder)
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: at for at, letter in enumerate(letters)}
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.save(str(folder / "tokenizer.json"))
    said = {"chat_template": TEMPLATE, "eos_token": SPECIAL[0]}
    (folder / "tokenizer_config.json").write_text(json.dumps(said))
