"""Prompts that begin alike: a trace that names its blocks, scaled down to pages. Pure.

The file is the conversation trace of Mooncake (FAST'25 release, Apache-2.0): one JSON object a line
with `input_length`, `output_length` and `hash_ids`, one id per block of 512 prompt tokens; two
prompts have a block in common where their ids are the same.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ostinato.errors import UsageError

BLOCK, PAGE = 512, 16
SCALE = BLOCK // PAGE
DRAWN = "drawn: conversations that go on, a third of the blocks known"


@dataclass(frozen=True, slots=True)
class Shared:
    """One request, scaled.

    Attributes:
        blocks: Names of its pages, in order; the last one may be filled in part.
        context: Tokens of the prompt.
        generated: Tokens of the answer.
    """

    blocks: tuple[int, ...]
    context: int
    generated: int

    def tokens(self, vocabulary: int) -> list[int]:
        """Return token ids: the same for every block of the same name."""
        ids: list[int] = []
        for block in self.blocks:
            chance = random.Random(block)
            ids += [chance.randrange(3, vocabulary) for _ in range(PAGE)]
        return ids[: self.context]


def read_shared(file: Path, most: int | None = None) -> list[Shared]:
    """Return the first `most` requests, every length divided by 32.

    Raises:
        UsageError: OST4022, the file holds something else.
    """
    found: list[Shared] = []
    try:
        with file.open(encoding="utf-8") as lines:
            for line in lines:
                if most is not None and len(found) >= most:
                    break
                if line.strip():
                    found.append(_scaled(json.loads(line)))
    except (ValueError, KeyError, TypeError) as error:
        raise _unreadable(file, repr(error)) from error
    if not found:
        raise _unreadable(file, "it holds no request")
    return found


def _scaled(line: dict[str, object]) -> Shared:
    blocks, context, generated = line["hash_ids"], line["input_length"], line["output_length"]
    if not isinstance(blocks, list) or not isinstance(context, int):
        raise TypeError("hash_ids must be a list, and input_length a number")
    # No prompt is shorter than the blocks that are full in the trace.
    tokens = max(-(-context // SCALE), (len(blocks) - 1) * PAGE + 1)
    return Shared(
        tuple(blocks), min(tokens, len(blocks) * PAGE), max(1, int(str(generated)) // SCALE)
    )


def draw_shared(count: int, seed: int = 0) -> list[Shared]:
    """Return conversations of a few turns, each of which repeats what was said before."""
    chance = random.Random(seed)
    found: list[Shared] = []
    talks: list[tuple[int, ...]] = []
    name = 1
    while len(found) < count:
        goes_on = bool(talks) and chance.random() < 0.3
        before = chance.choice(talks[-50:]) if goes_on else (0,)
        new = chance.randint(3, 20)
        blocks = before + tuple(range(name, name + new))
        name += new
        talks.append(blocks)
        context = (len(blocks) - 1) * PAGE + chance.randint(1, PAGE)
        found.append(Shared(blocks, context, chance.randint(2, 20)))
    return found


def ideal_share(requests: Iterable[Shared]) -> float:
    """Return how many of all blocks were seen before, in order, if nothing is ever forgotten."""
    seen: set[int] = set()
    known = total = 0
    for request in requests:
        is_known = True
        for block in request.blocks:
            is_known = is_known and block in seen
            known += is_known
        seen.update(request.blocks)
        total += len(request.blocks)
    return known / total if total else 0.0


def pages_needed(requests: Sequence[Shared]) -> int:
    """Return how many pages hold all prompts and answers at once, none forgotten."""
    distinct = len({block for request in requests for block in request.blocks})
    return distinct + sum(-(-request.generated // PAGE) + 1 for request in requests)


def _unreadable(file: Path, what: str) -> UsageError:
    return UsageError(
        f"{file} is no trace of shared prompts: {what:.120}",
        code="OST4022",
        remedy="name a file of JSON lines with hash_ids, input_length and output_length",
    )
