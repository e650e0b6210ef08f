"""One prompt put to one loaded model: ready to be answered, by any `generate`, and timed.

`run.py` answers it eagerly and replayed. The prompt is written by the model's chat template, or
taken as it is when the model has none, and must fit the model together with its answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch

from ostinato.checkpoints import Detokenizer, render_chat, telling_memory
from ostinato.cli.streaming import TokenStream
from ostinato.errors import UsageError
from ostinato.measure import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ostinato.checkpoints import Checkpoint


@dataclass(frozen=True, slots=True)
class Answer:
    """New tokens, the end-of-text token included, and the wall time of the whole call."""

    ids: tuple[int, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Conversation:
    """A prompt on a model's device.

    Attributes:
        inputs: What `generate` takes: ids and mask of one row.
    """

    checkpoint: Checkpoint
    inputs: Mapping[str, Any]
    prompt_tokens: int
    max_new_tokens: int

    @property
    def device(self) -> Any:
        """The torch device of the model."""
        return self.checkpoint.model.device

    @property
    def columns(self) -> int:
        """Places in a key-value cache that hold the prompt, rounded up, and the answer."""
        # A prompt is recorded at a rounded length, at most a quarter longer (16 for a short one).
        return self.prompt_tokens + max(16, self.prompt_tokens // 4) + self.max_new_tokens

    def describe(self) -> str:
        """Say in one line what answers where."""
        model = self.checkpoint.model
        millions = sum(weight.numel() for weight in model.parameters()) / 1e6
        number_type = str(model.dtype).removeprefix("torch.")
        return f"{self.checkpoint.name}: {millions:.1f} M parameters, {number_type}, {self.device}"

    def answer(
        self,
        generate: Callable[..., Any],
        write: Callable[[str], None] | None = None,
        counted: Callable[[int], None] | None = None,
    ) -> Answer:
        """Answer greedily through `generate`, passing text on to `write` as it becomes certain.

        Raises:
            ResourceError: OST2025, memory ran out.
        """
        streamer = TokenStream(Detokenizer(self.decode), write, counted)
        with telling_memory("answering"):
            wait_for(self.device)
            began = perf_counter()
            ids = generate(
                **self.inputs,
                max_new_tokens=self.max_new_tokens,
                do_sample=False,
                streamer=streamer,
            )
            wait_for(self.device)
            seconds = perf_counter() - began
        return Answer(tuple(ids[0, self.prompt_tokens :].tolist()), seconds)

    def require_numbers(self) -> None:
        """Ask for one token, and refuse a model whose scores for it are no numbers.

        Raises:
            UsageError: OST4013, some are NaN.
            ResourceError: OST2025, memory ran out.
        """
        with telling_memory("answering"):
            first = self.checkpoint.model.generate(
                **self.inputs,
                max_new_tokens=1,
                do_sample=False,
                output_logits=True,
                return_dict_in_generate=True,
            )
        count = int(first.logits[0].isnan().sum())
        if count:
            raise UsageError(
                f"{count} of the {first.logits[0].numel()} scores that {self.checkpoint.name} "
                "gives for its first token are NaN, so it has no answer",
                code="OST4013",
                remedy="load it with --dtype float32; if that is no better, copy its weights again",
            )

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of `ids`, special tokens left out and every space as it is."""
        text: str = self.checkpoint.tokenizer.decode(
            ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return text

    def difference(self, ours: Sequence[int], theirs: Sequence[int]) -> str | None:
        """Say where two answers part and how close the call was; None if they are the same."""
        from ostinato.hf import first_divergence

        prompt = self.inputs["input_ids"].cpu()
        whole = [
            torch.cat((prompt, torch.tensor([ids], device=prompt.device)), dim=1)
            for ids in (ours, theirs)
        ]
        divergence = first_divergence(self.checkpoint.model, *whole)
        return None if divergence is None else str(divergence)


def open_conversation(checkpoint: Checkpoint, prompt: str, max_new_tokens: int) -> Conversation:
    """Put `prompt` to a loaded model.

    Raises:
        UsageError: OST2030, the chat template refuses it; OST4012, it does not fit the model.
    """
    inputs = _tokenise(checkpoint, prompt)
    prompt_tokens = int(inputs["input_ids"].shape[1])
    limit = checkpoint.context_tokens
    if limit is not None and prompt_tokens + max_new_tokens > limit:
        raise UsageError(
            f"the prompt has {prompt_tokens} tokens and the answer may have {max_new_tokens}: "
            f"more than the {limit} that {checkpoint.name} takes",
            code="OST4012",
            remedy="shorten the prompt, or lower --max-new-tokens",
        )
    on_device = {name: tensor.to(checkpoint.model.device) for name, tensor in inputs.items()}
    return Conversation(checkpoint, on_device, prompt_tokens, max_new_tokens)


def _tokenise(checkpoint: Checkpoint, prompt: str) -> Mapping[str, Any]:
    template = checkpoint.chat_template
    if template is not None:
        messages = [{"role": "user", "content": prompt}]
        specials = checkpoint.tokenizer.special_tokens_map
        prompt = render_chat(template, messages, special_tokens=specials)
    # A template writes the opening token itself; a bare prompt gets it from the tokenizer.
    encoded = checkpoint.tokenizer(
        prompt, add_special_tokens=template is None, return_tensors="pt", verbose=False
    )
    return {name: encoded[name] for name in ("input_ids", "attention_mask")}
