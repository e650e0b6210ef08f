"""Greedy generation by transformers on SmolLM2-135M, as people write it first."""

import sys

from ostinato import checkpoints

NEW_TOKENS = int(sys.argv[1]) if len(sys.argv) > 1 else 64

checkpoint = checkpoints.load("smollm2", device="cpu")
prompt = checkpoint.tokenizer("Tell me about the sea.", return_tensors="pt")
answer = checkpoint.model.generate(**prompt, max_new_tokens=NEW_TOKENS, do_sample=False)
print(checkpoint.tokenizer.decode(answer[0], skip_special_tokens=True))  # noqa: T201
