"""Log probabilities as OpenAI writes them, for chat and for completions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ostinato.serve.services import TokenBlock
    from ostinato.serve.tokens import Tokens

_LEAST = -9999.0
"""JSON has no infinity."""


@lru_cache(maxsize=1)
def _byte_letters() -> dict[str, int]:
    """Return which byte each letter of a byte-level vocabulary stands for."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    table = {chr(byte): byte for byte in printable}
    return table | {chr(256 + at): byte for at, byte in enumerate(others)}


def token_bytes(tokens: Tokens, token: int, piece: str) -> list[int]:
    """Return the bytes of a token, also of one that is a part of a character."""
    if "\ufffd" in piece:
        spelled = tokens.tokenizer.inner.id_to_token(token) or ""
        letters = _byte_letters()
        if spelled and all(letter in letters for letter in spelled):
            return [letters[letter] for letter in spelled]
    return list(piece.encode())


def chat_logprobs(tokens: Tokens, block: TokenBlock) -> dict[str, Any]:
    """Return those of a block, for a chat."""
    entries = []
    for token, (chosen, top) in zip(block.token_ids, block.logprobs or (), strict=True):
        entry = _entry(tokens, token, chosen)
        entry["top_logprobs"] = [_entry(tokens, other, value) for other, value in top]
        entries.append(entry)
    return {"content": entries, "refusal": None}


def _entry(tokens: Tokens, token: int, logprob: float) -> dict[str, Any]:
    piece = tokens.piece(token)
    return {
        "token": piece,
        "logprob": max(logprob, _LEAST),
        "bytes": token_bytes(tokens, token, piece),
    }


def completion_logprobs(tokens: Tokens, block: TokenBlock, offset: int) -> dict[str, Any]:
    """Return those of a block, for a completion.

    Args:
        offset: Letters of the answer before it.
    """
    pieces = [tokens.piece(token) for token in block.token_ids]
    reported: Sequence[tuple[float, list[tuple[int, float]]]] = block.logprobs or ()
    offsets = []
    for piece in pieces:
        offsets.append(offset)
        offset += len(piece)
    return {
        "tokens": pieces,
        "token_logprobs": [max(chosen, _LEAST) for chosen, _ in reported],
        "top_logprobs": [
            {tokens.piece(other): max(value, _LEAST) for other, value in top} for _, top in reported
        ],
        "text_offset": offsets,
    }
