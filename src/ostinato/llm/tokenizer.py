"""A model's tokenizer: prompts to ids, ids to text.

It is read from `tokenizer.json` by the tokenizers library alone; transformers is not needed. The
calls are safe from any thread: nothing in the tokenizer is changed after it is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tokenizers

from ostinato.checkpoints import render_chat
from ostinato.checkpoints.json_file import read_json
from ostinato.errors import UsageError
from ostinato.llm.params import is_whole
from ostinato.llm.refusals import shown

_SPECIAL = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token")


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """One tokenizer.

    Attributes:
        inner: The tokenizers library's own.
        chat_template: Jinja source; None if the model has none.
        special_tokens: What `bos_token` and its like mean in the chat template.
    """

    inner: tokenizers.Tokenizer
    chat_template: str | None = None
    special_tokens: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def load(cls, folder: Path) -> Tokenizer | None:
        """Read a folder's tokenizer; None if it has no tokenizer.json.

        Raises:
            UsageError: OST2021, there is one and it cannot be read.
        """
        file = folder / "tokenizer.json"
        if not file.is_file():
            return None
        config = _read_json(folder / "tokenizer_config.json")
        try:
            inner = tokenizers.Tokenizer.from_file(str(file))
        except Exception as error:  # the library raises nothing narrower
            raise _unreadable(file, error) from error
        # Saved for a model's training, they would cut and pad prompts here.
        inner.no_truncation()
        inner.no_padding()
        return cls(inner, _template(folder, config), _special_tokens(config))

    def encode(self, text: str) -> list[int]:
        """Return the ids of a plain text, with the special tokens that the model opens texts by.

        Raises:
            UsageError: OST5042, the text has half a character, a lone surrogate.
        """
        _check_whole(text)
        ids: list[int] = self.inner.encode(text).ids
        return ids

    def encode_chat(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        """Return the ids of a conversation, up to where the assistant begins to speak.

        Raises:
            UsageError: OST5041, the model has no chat template; OST2030, it refuses the messages;
                OST5042, they have half a character, a lone surrogate.
        """
        return self.encode_conversation(messages, None, {})

    def encode_conversation(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        variables: Mapping[str, Any],
    ) -> list[int]:
        """Do as `encode_chat`, for a template that reads `tools` or other `variables`.

        Raises:
            UsageError: As `encode_chat`.
        """
        if self.chat_template is None:
            raise UsageError(
                "the prompt is a conversation, and the model's tokenizer has no chat template",
                code="OST5041",
                remedy="pass the prompt as one text, or use a model that was trained to converse",
            )
        messages = [_read_message(*each) for each in enumerate(messages, start=1)]
        try:
            text = render_chat(
                self.chat_template,
                messages,
                special_tokens=self.special_tokens,
                tools=tools,
                **variables,
            )
        except UsageError as refused:
            raise _unwritten(refused, messages) from refused.__cause__
        _check_whole(text)
        ids: list[int] = self.inner.encode(text, add_special_tokens=False).ids
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids, special tokens left out."""
        text: str = self.inner.decode(ids, skip_special_tokens=True)
        return text


def _read_message(number: int, message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Refuse what a template would write as if it had been left empty on purpose.

    Content in parts, as OpenAI's clients send it, is joined: the templates add a text to others.
    """
    content = message.get("content")
    if not isinstance(message.get("role"), str):
        missing = 'text under "role"'
    elif "content" not in message and not message.get("tool_calls"):
        missing = '"content"'
    elif (content is None and message.get("tool_calls")) or isinstance(content, str):
        return message
    elif isinstance(content, list) and (texts := _texts(content)) is not None:
        return {**message, "content": "".join(texts)}
    else:
        missing = 'text under "content"'
    raise UsageError(
        f"message {number} of the conversation has no {missing}: {shown(dict(message))}",
        code="OST2030",
        remedy='give messages as {"role": "user", "content": "..."}',
    )


def _texts(parts: Sequence[Any]) -> list[str] | None:
    """Return what parts of content say; None if one of them is no text."""
    texts = [
        part["text"]
        for part in parts
        if isinstance(part, Mapping)
        and part.get("type") == "text"
        and isinstance(part.get("text"), str)
    ]
    return texts if len(texts) == len(parts) else None


def _unwritten(refused: UsageError, messages: Sequence[Mapping[str, Any]]) -> UsageError:
    """Return a template's refusal with the roles it was given, which most of them are about."""
    roles = ", ".join(str(message["role"]) for message in messages)
    return UsageError(
        str(refused.args[0]),
        code=refused.code,
        remedy="give the messages in the order of roles that the model's template asks for; these "
        f"are of {shown(roles)}",
    )


def _check_whole(text: str) -> None:
    if not is_whole(text):
        raise UsageError(
            f"the prompt has half a character, a lone surrogate: {shown(text)}",
            code="OST5042",
            remedy='drop it: text.encode("utf-8", "ignore").decode("utf-8")',
        )


def _template(folder: Path, config: Mapping[str, Any]) -> str | None:
    beside = folder / "chat_template.jinja"
    if beside.is_file():
        try:
            return beside.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise _unreadable(beside, error) from error
    template = config.get("chat_template")
    if isinstance(template, list):  # several named ones; this is the one for plain talk
        named = [each for each in template if isinstance(each, Mapping)]
        template = next((e.get("template") for e in named if e.get("name") == "default"), None)
    return template if isinstance(template, str) else None


def _special_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    found = {}
    for name in _SPECIAL:
        token = config.get(name)
        if isinstance(token, Mapping):
            token = token.get("content")
        if isinstance(token, str):
            found[name] = token
    return found


def _read_json(file: Path) -> Mapping[str, Any]:
    if not file.is_file():
        return {}
    try:
        content = read_json(file)
    except (OSError, ValueError) as error:
        raise _unreadable(file, error) from error
    return content if isinstance(content, Mapping) else {}


def _unreadable(file: Path, error: Exception) -> UsageError:
    return UsageError(
        f"{file} cannot be read: {error}",
        code="OST2021",
        remedy="give a folder written by save_pretrained: config.json, safetensors, tokenizer",
    )
