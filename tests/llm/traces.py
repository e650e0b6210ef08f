"""The real traces as requests: token ids drawn at random, with the lengths and blocks recorded."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from pathlib import Path
from random import Random

from ostinato.llm.request import Request, SamplingParams

BLOCK_TOKENS = 512


def azure(shared: Path, kind: str, count: int, scale: int, longest: int) -> Iterator[Request]:
    """Yield the first `count` requests of a trace, their lengths divided by `scale`."""
    random = Random(0)
    path = shared / "data" / "traces" / f"azure_llm_2023_{kind}.csv"
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(islice(csv.DictReader(lines), count)):
            arrived = datetime.fromisoformat(line["TIMESTAMP"][:26])
            prompt = min(longest, max(1, int(line["ContextTokens"]) // scale))
            answer = max(1, int(line["GeneratedTokens"]) // scale)
            yield Request(
                f"azure-{number}",
                tuple(random.choices(range(1000), k=prompt)),
                SamplingParams(max_tokens=answer),
                priority=random.choice([0, 0, 0, 1, -1]),
                arrival_s=arrived.timestamp(),
            )


def mooncake(shared: Path, scale: int, count: int | None = None) -> Iterator[tuple[Request, int]]:
    """Yield requests with the number of their blocks; a block is `BLOCK_TOKENS / scale` tokens."""
    size = BLOCK_TOKENS // scale
    path = shared / "data" / "traces" / "mooncake_conversation.jsonl"
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(islice(lines, count)):
            entry = json.loads(line)
            length = -(-entry["input_length"] // scale)
            # A block is known by its number alone: the tokens only have to differ as numbers do.
            tokens = [block * size + at for block in entry["hash_ids"] for at in range(size)]
            request = Request(
                f"mooncake-{number}",
                tuple(tokens[:length]),
                SamplingParams(max_tokens=max(1, entry["output_length"] // scale)),
                arrival_s=entry["timestamp"] / 1000,
            )
            yield request, len(entry["hash_ids"])
