"""A text that cannot fit is refused by its length, and none that could."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest
import tokenizers
from tokenizers import AddedToken, models, normalizers, pre_tokenizers

from ostinato.llm.refusals import PromptTooLong
from ostinato.llm.tokenizer import Tokenizer
from ostinato.serve.fitting import check_count, check_fits, longest_token
from ostinato.serve.tokens import Tokens
from serve.running import Running

ROOM = 4096  # of the tiny model


def of_bytes(*, longest: int = 4) -> tokenizers.Tokenizer:
    """BPE of bytes whose longest token is so many letters "a"."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    runs = ["a" * count for count in range(2, longest + 1)]
    vocabulary = {token: at for at, token in enumerate([*letters, *runs])}
    merges = [("a" * (count - 1), "a") for count in range(2, longest + 1)]
    made = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return made


def test_of_bytes_the_longest_token_is_the_bound() -> None:
    made = of_bytes(longest=7)
    assert longest_token(made) == 7
    made.add_special_tokens(["<éé>!!!"])
    assert longest_token(made) == 9


def shortening(made: tokenizers.Tokenizer) -> None:
    made.normalizer = normalizers.NFC()


def removing(made: tokenizers.Tokenizer) -> None:
    cut = pre_tokenizers.Split(" ", "removed")
    made.pre_tokenizer = pre_tokenizers.Sequence([cut, made.pre_tokenizer])


def swallowing(made: tokenizers.Tokenizer) -> None:
    made.add_tokens([AddedToken("x", rstrip=True)])


def of_letters(made: tokenizers.Tokenizer) -> None:
    made.pre_tokenizer = pre_tokenizers.Whitespace()


@pytest.mark.parametrize("change", [shortening, removing, swallowing, of_letters])
def test_where_something_may_be_left_out_the_bound_is_generous(
    change: Callable[[tokenizers.Tokenizer], None],
) -> None:
    made = of_bytes()
    change(made)
    assert longest_token(made) == 64


def test_a_vocabulary_that_lacks_a_byte_leaves_it_out() -> None:
    made = tokenizers.Tokenizer(models.BPE(vocab={"a": 0, "b": 1}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    assert longest_token(made) == 64


def test_a_text_at_the_bound_is_tried_and_one_byte_more_is_not() -> None:
    check_fits("a" * 30 + "é" * 5, 10, 4)
    with pytest.raises(PromptTooLong, match="at least 11 tokens and at most 9 fit") as caught:
        check_fits("a" * 31 + "é" * 5, 10, 4)
    assert caught.value.code == "OST5002"


def test_half_a_character_is_for_the_tokenizer_to_refuse() -> None:
    check_fits("\ud800", 1, 3)


def test_only_more_tokens_than_the_model_holds_are_too_many_here() -> None:
    check_count(10, 10)  # for the engine to refuse
    with pytest.raises(PromptTooLong, match="has 11 tokens and at most 9 fit"):
        check_count(11, 10)


TEMPLATE = (
    "{% for m in messages %}{{ m['role'] }}{{ m['content'].split('</think>')[-1] }}"
    "{{ m['reasoning_content'] }}{% for c in m.get('tool_calls', []) %}{{ c }}{% endfor %}"
    "{% endfor %}{{ tools or '' }}"
)


class Uncut:
    """Cuts no text; says how long what it was given is."""

    def __init__(self, inner: tokenizers.Tokenizer) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def encode(self, text: str, **given: Any) -> Any:
        raise AssertionError(len(text))


def uncut() -> Tokens:
    inner: Any = Uncut(of_bytes())
    made = Tokenizer(inner, TEMPLATE)
    return Tokens(lambda: made)


def test_what_cannot_fit_is_never_cut_into_tokens() -> None:
    tokens = uncut()

    async def ask() -> None:
        with pytest.raises(PromptTooLong):
            await tokens.encode("a" * 401, 100)
        with pytest.raises(AssertionError):
            await tokens.encode("a" * 400, 100)
        with pytest.raises(AssertionError):  # whoever only wants tokens has no bound
            await tokens.encode("a" * 401)

    try:
        asyncio.run(ask())
    finally:
        tokens.close()


MUCH = "a" * 401


@pytest.mark.parametrize(
    ("message", "tools"),
    [
        ({"role": "user", "content": MUCH}, None),
        ({"role": "system", "content": MUCH}, None),
        ({"role": "assistant", "content": MUCH}, None),
        ({"role": "tool", "content": MUCH}, None),
        ({"role": "user", "content": [{"type": "text", "text": MUCH}]}, None),
        ({"role": "assistant", "content": "", "reasoning_content": MUCH}, None),
        ({"role": "assistant", "content": "", "tool_calls": [{"function": MUCH}]}, None),
        ({"role": "user", "content": "a"}, [{"function": MUCH}]),
    ],
)
def test_whatever_a_template_writes_counts(message: Any, tools: Any) -> None:
    tokens = uncut()
    try:
        with pytest.raises(PromptTooLong, match="at most 99 fit"):
            asyncio.run(tokens.encode_chat([message], tools, room_tokens=100))
    finally:
        tokens.close()


def test_what_a_template_leaves_out_does_not_count() -> None:
    tokens = uncut()
    message = {"role": "assistant", "content": f"<think>{MUCH}</think>b"}
    try:
        with pytest.raises(AssertionError, match="10"):
            asyncio.run(tokens.encode_chat([message], room_tokens=100))
    finally:
        tokens.close()


LONG = "x" * (len("<|start|>") * ROOM + 1)
SAID: Any = [{"role": "user", "content": LONG}]
ANSWERED: Any = [{"role": "assistant", "content": LONG}, {"role": "user", "content": "and?"}]


@pytest.mark.parametrize(
    ("path", "body", "status", "count"),
    [
        ("/v1/completions", {"prompt": LONG}, 400, "at least "),
        ("/v1/completions", {"prompt": [1] * (ROOM + 1)}, 400, ""),
        ("/v1/chat/completions", {"messages": SAID}, 400, "at least "),
        ("/v1/chat/completions", {"messages": ANSWERED}, 400, "at least "),
        ("/v1/responses", {"input": LONG, "store": False}, 400, "at least "),
        ("/v2/models/tiny/generate", {"text_input": LONG}, 422, "at least "),
    ],
)
def test_every_door_says_so_in_the_engine_s_words(
    service: Running, path: str, body: dict[str, Any], status: int, count: str
) -> None:
    answer = httpx.post(f"{service.url}{path}", json=body, timeout=120)
    assert answer.status_code == status
    assert f"has {count}" in answer.text
    assert "and at most 4095 fit, for the model holds 4096 tokens, the answer's in" in answer.text
    if status == 400:
        assert answer.json()["error"]["code"] == "context_length_exceeded"
        assert answer.json()["error"]["param"] in ("prompt", "messages", "input")
