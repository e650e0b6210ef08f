"""Streaming text: never taken back, never lost, and as early as it is certain."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some
from tokenizers import Tokenizer, decoders
from tokenizers.models import BPE

from checkpoints.written_gguf import tiny_metadata, tiny_tensors, write_gguf
from ostinato.checkpoints import Detokenizer, GgufFile
from ostinato.checkpoints.gguf_tokenizer import tokenizer_json


@pytest.fixture(scope="module")
def byte_level(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path: Path = tmp_path_factory.mktemp("gguf") / "m.gguf"
    with GgufFile(write_gguf(path, tiny_metadata(), tiny_tensors())) as file:
        return Tokenizer.from_str(json.dumps(tokenizer_json(file)))


def sentencepiece() -> Tokenizer:
    """As Llama 2 has it: words with a mark for the space before, and bytes as a last resort."""
    words = ["<unk>", "▁the", "▁fox", "es", ".", *(f"<0x{byte:02X}>" for byte in range(256))]
    vocabulary = {word: index for index, word in enumerate(words)}
    tokenizer = Tokenizer(BPE(vocabulary, [], unk_token="<unk>", byte_fallback=True))
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return tokenizer


def stream(tokenizer: Tokenizer, ids: Sequence[int], step: int = 1) -> list[str]:
    detokenizer = Detokenizer(tokenizer.decode)
    pieces = [detokenizer.push(ids[start : start + step]) for start in range(0, len(ids), step)]
    return [*pieces, detokenizer.finish()]


@given(ids=some.lists(some.integers(0, 259), max_size=60), step=some.integers(1, 7))
def test_byte_level_pieces_join_to_the_whole_text(
    byte_level: Tokenizer, ids: list[int], step: int
) -> None:
    assert "".join(stream(byte_level, ids, step)) == byte_level.decode(ids)


@given(text=some.text(max_size=30))
def test_nothing_is_given_out_that_is_not_in_the_text(byte_level: Tokenizer, text: str) -> None:
    given_out = ""
    for piece in stream(byte_level, byte_level.encode(text).ids):
        given_out += piece
        assert text.startswith(given_out) or byte_level.decode(
            byte_level.encode(text).ids
        ).startswith(given_out)


@given(
    words=some.lists(some.sampled_from(["▁the", "▁fox", "es", ".", "é", "€", "🦊"]), max_size=20)
)
def test_sentencepiece_pieces_join_to_the_whole_text(words: list[str]) -> None:
    tokenizer = sentencepiece()
    ids = []
    for word in words:
        known = tokenizer.token_to_id(word)
        spelled = [tokenizer.token_to_id(f"<0x{byte:02X}>") for byte in word.encode()]
        ids += spelled if known is None else [known]
    assert "".join(stream(tokenizer, ids)) == tokenizer.decode(ids)


def test_a_character_of_several_tokens_comes_out_with_its_last(byte_level: Tokenizer) -> None:
    ids = byte_level.encode("a🦊b").ids
    assert len(ids) == 6
    assert stream(byte_level, ids) == ["a", "", "", "", "🦊", "b", ""]


def test_spaces_between_sentencepiece_words_are_kept() -> None:
    tokenizer = sentencepiece()
    ids = [tokenizer.token_to_id(word) for word in ["▁the", "▁fox", "es", "▁the"]]
    assert stream(tokenizer, ids) == ["the", " fox", "es", " the", ""]


def test_an_answer_that_ends_inside_a_character_ends_with_a_mark(byte_level: Tokenizer) -> None:
    ids = byte_level.encode("a€").ids[:-1]
    assert stream(byte_level, ids) == ["a", "", "", "�"]


def test_a_long_answer_is_decoded_in_short_windows(byte_level: Tokenizer) -> None:
    widths = []

    def decode(ids: Sequence[int]) -> str:
        widths.append(len(ids))
        return byte_level.decode(ids)

    detokenizer = Detokenizer(decode)
    for index in byte_level.encode("the fox and the hen " * 40).ids:
        detokenizer.push([index])
    assert max(widths) < 10


def test_a_finished_stream_can_begin_again(byte_level: Tokenizer) -> None:
    detokenizer = Detokenizer(byte_level.decode)
    said = [detokenizer.push(byte_level.encode("he").ids), detokenizer.finish()]
    assert [*said, detokenizer.push(byte_level.encode("he").ids)] == ["he", "", "he"]
