"""From texts to vectors: tokenised in threads, padded to recorded lengths, batched by the model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ostinato.errors import UsageError
from ostinato.llm.tokenizer import Tokenizer
from ostinato.serve.callable import Array, CallableService, Limits, served
from ostinato.serve.embeddings.facts import Facts, read_facts

Text = str | Sequence[int]
_FACTORY = "ostinato.serve.embeddings.factory:factory"
_IDS, _MASK, _VECTOR = "input_ids", "attention_mask", "vector"
_LONGEST_S = 60.0


@dataclass(frozen=True, slots=True)
class Embedded:
    """Vectors, one row for each text, and how many tokens the texts had."""

    vectors: np.ndarray
    tokens: int


class Embedder:
    """One encoder, asked for texts."""

    def __init__(self, service: CallableService, tokenizer: Tokenizer, facts: Facts) -> None:
        self.service = service
        self.facts = facts
        self._tokenizer = tokenizer
        self._frame = tokenizer.encode("")  # the special tokens that every text stands between

    @property
    def is_ready(self) -> bool:
        """Whether it can be asked now."""
        return self.service.is_ready

    async def embed(
        self, texts: Sequence[Text], *, priority: int = 0, timeout_s: float = _LONGEST_S
    ) -> Embedded:
        """Return the vectors of texts, in their order.

        Raises:
            UsageError: OST6063, a text is empty, too long, or no text of this model.
            OstinatoError: As `CallableService.infer` has them.
        """
        encoded = await asyncio.to_thread(self._encode, texts)
        requests = self._requests([len(ids) for ids in encoded])
        answers = await asyncio.gather(
            *(
                self._ask([encoded[place] for place in places], length, priority, timeout_s)
                for length, places in requests
            )
        )
        vectors = np.empty((len(texts), self.facts.dimensions), np.float32)
        for (_, places), found in zip(requests, answers, strict=True):
            vectors[places] = found
        return Embedded(vectors, sum(map(len, encoded)))

    def _requests(self, tokens: Sequence[int]) -> list[tuple[int, list[int]]]:
        """Return which texts go together: of one padded length, no more than a batch holds."""
        by_length: dict[int, list[int]] = {}
        for place, count in enumerate(tokens):
            by_length.setdefault(self.facts.length_for(count), []).append(place)
        most = self.service.description.max_batch
        return [
            (length, places[start : start + most])
            for length, places in by_length.items()
            for start in range(0, len(places), most)
        ]

    async def _ask(
        self, texts: Sequence[Sequence[int]], length: int, priority: int, timeout_s: float
    ) -> np.ndarray:
        ids = np.full((len(texts), length), self.facts.pad_id, np.int64)
        mask = np.zeros((len(texts), length), np.int64)
        for row, text in enumerate(texts):
            ids[row, : len(text)] = text
            mask[row, : len(text)] = 1
        inputs = {
            _IDS: Array("INT64", ids.shape, ids.tobytes()),
            _MASK: Array("INT64", mask.shape, mask.tobytes()),
        }
        outputs = await self.service.infer(inputs, priority=priority, timeout_s=timeout_s)
        found = outputs[_VECTOR]
        return np.frombuffer(found.data, np.float32).reshape(found.shape)

    def _encode(self, texts: Sequence[Text]) -> list[list[int]]:
        encoded = [self._ids(text) for text in texts]
        for place, ids in enumerate(encoded):
            if len(ids) > self.facts.max_tokens:
                raise _refused(
                    f"text {place} has {len(ids)} tokens, and {self.facts.name} reads "
                    f"{self.facts.max_tokens}",
                    "send it in parts",
                )
        return encoded

    def _ids(self, text: Text) -> list[int]:
        if not text:
            raise _refused("a text is empty", "send texts of at least one letter or token")
        if isinstance(text, str):
            return self._tokenizer.encode(text)
        if not all(0 <= token < self.facts.vocabulary for token in text):
            strange = next(token for token in text if not 0 <= token < self.facts.vocabulary)
            raise _refused(
                f"{strange} is no token of {self.facts.name}",
                f"send tokens from 0 to {self.facts.vocabulary - 1}",
            )
        frame = self._frame
        if len(frame) != 2 or text[0] == frame[0]:
            return list(text)
        return [frame[0], *text, frame[1]]


def _refused(problem: str, remedy: str) -> UsageError:
    return UsageError(problem, code="OST6063", remedy=remedy)


@asynccontextmanager
async def embedding_service(
    folder: Path,
    *,
    name: str | None = None,
    device: str = "auto",
    limits: Limits | None = None,
    wait: bool = True,
    share: Path | None = None,
) -> AsyncIterator[Embedder]:
    """Serve a folder's encoder from a process of its own, as long as the context lasts.

    Args:
        wait: Until it is warm; else `embedder.service.is_ready` says when it is.
        share: As `served` takes it.

    Raises:
        UsageError: OST6062, it is no folder of an encoder.
        ResourceError: OST6056, its process ended before it was ready.
    """
    facts = read_facts(folder, name)
    tokenizer = await asyncio.to_thread(Tokenizer.load, folder)
    if tokenizer is None:
        raise UsageError(
            f"{folder} has no tokenizer.json",
            code="OST6062",
            remedy="save the tokenizer into the folder, in its fast form",
        )
    arguments = (str(folder), device)
    async with served(
        _FACTORY, *arguments, limits=limits, wait=wait, share=share, name=facts.name
    ) as service:
        yield Embedder(service, tokenizer, facts)
