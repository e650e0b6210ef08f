"""What an engine has done since it began, in numbers; added to by the thread of its steps alone."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ostinato.llm.standing import EngineCounts

if TYPE_CHECKING:
    from ostinato.errors import OstinatoError
    from ostinato.llm.books import Books
    from ostinato.llm.request import FinishReason
    from ostinato.llm.resident_launch import Launch, Produced


@dataclass(slots=True)
class Tally:
    """Counts of requests that ended, of failures, and of decode steps.

    Attributes:
        ends: Answers by how they ended.
        failures: Errors by code, and steps that failed under "step".
        new_tokens: Of answers that ended.
        steps: Decode steps.
        bucket_steps, bucket_tokens: Steps, and their tokens, by rows of the recording.
        device_s: What the launches took on the device.
    """

    ends: Counter[FinishReason] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    new_tokens: int = 0
    steps: int = 0
    bucket_steps: Counter[int] = field(default_factory=Counter)
    bucket_tokens: Counter[int] = field(default_factory=Counter)
    device_s: float = 0.0

    def count_launch(self, launch: Launch | None, produced: Produced) -> None:
        """Count a launch that has been read, and what each row gave."""
        if launch is not None and launch.steps:
            counts = [len(tokens) for tokens in produced.tokens.values()]
            steps = max(counts, default=0)
            self.steps += steps
            self.bucket_steps[launch.bucket_rows] += steps
            self.bucket_tokens[launch.bucket_rows] += sum(counts)
            self.device_s += launch.device_s

    def count_end(self, finish: FinishReason, produced: int, error: OstinatoError | None) -> None:
        """Count an answer that ended with `produced` tokens."""
        self.ends[finish] += 1
        self.new_tokens += produced
        if error is not None:
            self.failures[error.code] += 1

    def counts(self, books: Books) -> EngineCounts:
        """Return how things stand, with what `books` say; from any thread."""
        return EngineCounts(
            scheduler=books.counts(),
            ends=dict(self.ends),
            failures=dict(self.failures),
            new_tokens=self.new_tokens,
            steps=self.steps,
            device_s=self.device_s,
            bucket_steps=dict(self.bucket_steps),
            bucket_tokens=dict(self.bucket_tokens),
            pages=books.capacity,
        )
