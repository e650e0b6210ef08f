"""Prompts from a file: every line is checked at once, and finished answers are known again."""

import json
from pathlib import Path
from typing import Any

import pytest

from ostinato.cli.prompt_file import PromptLine, answered, read_prompts
from ostinato.errors import UsageError


def written(place: Path, *lines: object) -> Path:
    file = place / "prompts.jsonl"
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    file.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return file


def answer(line: PromptLine, **changes: Any) -> str:
    said = {"line": line.number, "prompt_sha256": line.digest, "text": "x", "error": None}
    return json.dumps({**said, **changes}) + "\n"


def test_lines_keep_their_number_name_and_options_and_blank_ones_are_passed_over(
    tmp_path: Path,
) -> None:
    file = written(
        tmp_path,
        {"prompt": "Hi", "id": "a"},
        "",
        {"prompt": [1, 2], "max_tokens": 3},
        {"messages": [{"role": "user", "content": "Hi"}], "logit_bias": {"5": -1}},
    )
    first, second, third = read_prompts(file, {"max_tokens": 9, "temperature": 0})
    assert (first.number, first.name, first.prompt) == (1, "a", "Hi")
    assert (first.params.max_tokens, second.params.max_tokens) == (9, 3)
    assert (second.number, second.prompt) == (3, [1, 2])
    assert third.params.logit_bias == {5: -1.0}
    assert third.params.is_greedy


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("nonsense", "not JSON"),
        ("[1]", "must be an object"),
        ("[" * 100_000, "not JSON"),
        ({"text": "Hi"}, 'either a "prompt" or "messages"'),
        ({"prompt": "Hi", "messages": []}, 'either a "prompt" or "messages"'),
        ({"prompt": 7}, "a text or a list of token ids"),
        ({"prompt": [1, True]}, "a text or a list of token ids"),
        ({"prompt": "  "}, "empty"),
        ('{"prompt": "a\\ud800"}', "half a character"),
        ('{"messages": [{"role": "user", "content": "\\udc00"}]}', "half a character"),
        ({"prompt": []}, "empty"),
        ({"messages": ["Hi"]}, "a list of objects"),
        ({"prompt": "Hi", "temprature": 1}, "temprature"),
        ({"prompt": "Hi", "max_tokens": 0}, "max_tokens must be at least 1"),
        ({"prompt": "Hi", "logit_bias": {"a": 1}}, "by number"),
        ({"prompt": "Hi", "id": "first"}, "'first' is that of line 1"),
        ({"prompt": "Hi", "id": [1]}, "a text or a whole number"),
        ({"prompt": "Hi", "id": True}, "a text or a whole number"),
    ],
)
def test_a_wrong_line_is_named_with_what_is_wrong(tmp_path: Path, line: object, why: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_prompts(written(tmp_path, {"prompt": "fine", "id": "first"}, line), {})
    assert caught.value.code == "OST4031"
    assert "line 2" in str(caught.value)
    assert why in str(caught.value)


def test_a_file_that_is_not_utf_8_and_one_without_prompts_are_told(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_bytes(b'{"prompt": "a"}\n{"prompt": "\xff"}\n')
    with pytest.raises(UsageError, match=r"line 2 of .* is not UTF-8"):
        read_prompts(file, {})
    file.write_text("\n \n")
    with pytest.raises(UsageError) as caught:
        read_prompts(file, {})
    assert caught.value.code == "OST4032"


def test_what_decides_an_answer_is_in_the_digest(tmp_path: Path) -> None:
    file = written(tmp_path, {"prompt": "Hi"})
    digests = {
        read_prompts(file, common, beside=beside)[0].digest
        for common, beside in [({}, ()), ({"seed": 1}, ()), ({}, ("smollm2",)), ({}, ("other",))]
    }
    assert len(digests) == 4


def test_finished_answers_are_found_and_failed_and_torn_ones_are_not(tmp_path: Path) -> None:
    lines = read_prompts(written(tmp_path, *({"prompt": f"p{i}"} for i in range(4))), {})
    out = tmp_path / "answers.jsonl"
    whole = answer(lines[0])
    out.write_text(whole + answer(lines[2], error={"code": "OST5002"}) + answer(lines[1])[:-20])
    assert answered(lines, out) == {1: whole.rstrip("\n")}


def test_no_answers_file_means_nothing_is_answered(tmp_path: Path) -> None:
    lines = read_prompts(written(tmp_path, {"prompt": "Hi"}), {})
    assert answered(lines, tmp_path / "none.jsonl") == {}


@pytest.mark.parametrize(
    "text",
    [
        "my own notes\n",
        '{"line": 1}\n',
        "[]\n",
        '{"line": 9, "prompt_sha256": "", "error": null}\n',
    ],
)
def test_a_file_that_is_no_answers_file_is_refused_and_left_alone(
    tmp_path: Path, text: str
) -> None:
    lines = read_prompts(written(tmp_path, {"prompt": "Hi"}), {})
    out = tmp_path / "answers.jsonl"
    out.write_text(text)
    with pytest.raises(UsageError) as caught:
        answered(lines, out)
    assert caught.value.code == "OST4033"
    assert out.read_text() == text


def test_answers_to_changed_prompts_are_refused(tmp_path: Path) -> None:
    out = tmp_path / "answers.jsonl"
    out.write_text(answer(read_prompts(written(tmp_path, {"prompt": "Hi"}), {})[0]))
    changed = read_prompts(written(tmp_path, {"prompt": "Ho"}), {})
    with pytest.raises(UsageError, match="another prompt"):
        answered(changed, out)
