"""Prompts from a file of JSON lines, and which of them an answers file has answered already.

A line is an object with a `prompt` (a text or token ids) or `messages` (a conversation), maybe an
`id`, and any sampling options by their names in `SamplingParams`. Each answer names its prompt by
line number and digest, so that a rerun knows what is done, and notices when the prompts changed.
Pure: nothing here knows a model.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from ostinato.errors import OstinatoError, UsageError
from ostinato.llm.params import SamplingParams

_OWN = ("id", "prompt", "messages")


@dataclass(frozen=True, slots=True)
class PromptLine:
    """One line of a prompts file.

    Attributes:
        number: Counted from 1.
        name: The line's own `id`; None if it has none.
        prompt: A text, token ids, or messages.
        digest: Names everything that decides the answer: the line and the common options.
    """

    number: int
    name: Any
    prompt: Any
    params: SamplingParams
    digest: str


def read_prompts(
    file: Path, common: Mapping[str, Any], *, beside: Sequence[object] = ()
) -> list[PromptLine]:
    """Read a whole file, so that its last line is known to be right before the first is answered.

    Args:
        common: Sampling options of all lines; a line's own win.
        beside: What else decides the answers, such as the model: goes into the digests.

    Raises:
        UsageError: OST4031, with the first line that is wrong; OST4032, there is no line.
    """
    lines: list[PromptLine] = []
    named: dict[object, int] = {}
    for number, text in enumerate(_text(file).split("\n"), start=1):
        if text.strip():
            try:
                lines.append(_read_line(number, text, common, beside))
                _check_name(lines[-1], named)
            except OstinatoError as error:
                raise _wrong_line(file, number, str(error.args[0])) from error
    if not lines:
        raise UsageError(
            f"{file} holds no prompt", code="OST4032", remedy='write lines such as {"prompt": "Hi"}'
        )
    return lines


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise UsageError(
            f"line {line} of {file} is not UTF-8: {error.reason} at byte {error.start} of the file",
            code="OST4031",
            remedy="save the file as UTF-8; nothing has been answered in this run",
        ) from error


def _read_line(
    number: int, text: str, common: Mapping[str, Any], beside: Sequence[object]
) -> PromptLine:
    line = _object(text)
    prompts = [line[key] for key in ("prompt", "messages") if key in line]
    if len(prompts) != 1:
        raise _wrong('it must have either a "prompt" or "messages"')
    prompt = prompts[0]
    if "messages" in line:
        if not _is_list_of(prompt, dict):
            raise _wrong('"messages" must be a list of objects with "role" and "content"')
    elif not (isinstance(prompt, str) or _is_list_of(prompt, int)):
        raise _wrong('"prompt" must be a text or a list of token ids')
    if not prompt or (isinstance(prompt, str) and not prompt.strip()):
        raise _wrong("its prompt is empty")
    options = {**common, **{key: value for key, value in line.items() if key not in _OWN}}
    _check_characters(line)
    params = SamplingParams.read(_with_biases(options))
    whole = json.dumps([prompt, options, *beside], sort_keys=True, default=str)
    return PromptLine(number, line.get("id"), prompt, params, sha256(whole.encode()).hexdigest())


def _check_name(line: PromptLine, named: dict[object, int]) -> None:
    """Refuse an id that does not tell this line from another, for whoever joins by it."""
    if line.name is None:
        return
    if not isinstance(line.name, str | int) or isinstance(line.name, bool):
        raise _wrong('its "id" must be a text or a whole number')
    if line.name in named:
        raise _wrong(f'its "id" {line.name!r} is that of line {named[line.name]}')
    named[line.name] = line.number


def _object(text: str) -> dict[str, Any]:
    try:
        line = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _wrong(f"it is not JSON ({error})") from error
    if not isinstance(line, dict):
        raise _wrong(f"it must be an object, not {text.strip():.40}")
    return line


def _check_characters(line: Mapping[str, Any]) -> None:
    try:
        json.dumps(line, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half = error.object[error.start]
        raise _wrong(f"it has {half!r}, which is half a character") from error


def _is_list_of(value: Any, kind: type) -> bool:
    return isinstance(value, list) and all(
        isinstance(one, kind) and not isinstance(one, bool) for one in value
    )


def _with_biases(options: Mapping[str, Any]) -> dict[str, Any]:
    """Give `logit_bias` the numbers for keys that JSON can write as texts only."""
    biases = options.get("logit_bias")
    if not isinstance(biases, Mapping):
        return dict(options)
    try:
        return {**options, "logit_bias": {int(key): value for key, value in biases.items()}}
    except ValueError as error:
        raise _wrong(f'"logit_bias" must name tokens by number ({error})') from error


def answered(lines: Iterable[PromptLine], out: Path) -> dict[int, str]:
    """Return the finished answers in `out`, as they stand there, by line number.

    An answer that ended in an error is not finished, and neither is a line cut short by a kill.

    Raises:
        UsageError: OST4033, `out` holds something else, or answers to other prompts.
    """
    if not out.exists():
        return {}
    of = {line.number: line for line in lines}
    texts = out.read_bytes().decode("utf-8", "replace").split("\n")
    done = {}
    for place, text in enumerate(texts, start=1):
        is_cut = place == len(texts)  # the line break is written with the line
        if not is_cut and text.strip():
            number, is_finished = _answer(text, of, partial(_strange, out, place))
            if is_finished:
                done[number] = text
    return done


def _answer(
    text: str, of: Mapping[int, PromptLine], strange: Callable[[str], UsageError]
) -> tuple[int, bool]:
    try:
        answer = json.loads(text)
        number, digest = answer["line"], answer["prompt_sha256"]
        is_finished = answer["error"] is None
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise strange("it is no answer of this command") from error
    if number not in of:
        raise strange(f"it answers line {number}, which the prompts file does not have")
    if of[number].digest != digest:
        raise strange(f"it answers another prompt, or other options, than line {number} now has")
    return number, is_finished


def _wrong(problem: str) -> UsageError:
    return UsageError(problem, code="OST4031", remedy="correct the line")


def _wrong_line(file: Path, number: int, problem: str) -> UsageError:
    return UsageError(
        f"line {number} of {file} cannot be used: {problem}",
        code="OST4031",
        remedy="correct that line; nothing has been answered in this run",
    )


def _strange(out: Path, place: int, why: str) -> UsageError:
    return UsageError(
        f"line {place} of {out} cannot be gone on from: {why}",
        code="OST4033",
        remedy="name another file with --out, or move that one away; it is left as it is",
    )
