"""Writes greedy.json: what transformers answers, greedily, with SmolLM2's real weights.

Run by hand, when the prompts change: python tests/llm/golden/record_greedy.py
Float32, on a CPU, one prompt at a time, 64 tokens each; an end of text is a token like any other.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
import transformers

from ostinato.checkpoints import smollm2_folder

TOKENS = 64
PROMPTS = (
    "The capital of France is",
    "def fibonacci(n):\n",
    "Once upon a time there lived a fox who would not share, and every autumn",
    "1, 1, 2, 3, 5, 8,",
    "Water boils at",
    "A",
    "Dear Sir or Madam,\n\nI am writing to",
    "import torch\n\n\nclass Attention(torch.nn.Module):\n    def __init__(self, heads):",
    "The three laws of robotics are:\n1.",
    "In 1969, two astronauts",
    "SELECT name, count(*) FROM users",
    "Photosynthesis is the process by which",
    "Roses are red,\nViolets are blue,\n",
    "Q: What is 17 times 3?\nA:",
    "The quick brown fox jumps over the lazy dog. " * 6,
    "Ingredients:\n- 2 eggs\n- 100 g of flour\n-",
    "Der schnelle braune Fuchs",
    "She opened the old wooden door, and behind it",
    "The derivative of x^2 is 2x. The derivative of x^3 is",
    "Breaking news: scientists at the university have today announced that",
)


@torch.inference_mode()
def main() -> None:
    folder = smollm2_folder()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.generation_config.eos_token_id = None
    found = []
    for prompt in PROMPTS:
        ids = tokenizer(prompt)["input_ids"]
        whole = model.generate(
            torch.tensor([ids]),
            attention_mask=torch.ones(1, len(ids), dtype=torch.int64),
            max_new_tokens=TOKENS,
            do_sample=False,
        )
        found.append({"prompt": prompt, "ids": ids, "answer": whole[0, len(ids) :].tolist()})
    lines = ",\n".join(json.dumps(each) for each in found)
    Path(__file__).with_name("greedy.json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
