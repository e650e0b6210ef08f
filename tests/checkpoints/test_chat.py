"""Chat templates: the text is the one that transformers writes, to the letter."""

import json
from pathlib import Path
from typing import Any

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from ostinato.checkpoints import GgufFile, chat, render_chat
from ostinato.checkpoints.smollm2 import find_gguf
from ostinato.errors import UsageError

USER = {"role": "user", "content": "<b>2 > 1 & 'é'</b>\n"}
CHATS = [
    [USER],
    [{"role": "system", "content": "Be brief."}, USER],
    [USER, {"role": "assistant", "content": "  yes "}, {"role": "user", "content": "and {{ 3 }}?"}],
]
TEMPLATES = {
    "blocks": "{% for m in messages %}\n    {% if m.role == 'user' %}\nU {{ m.content }}\n"
    "    {% endif %}\n{% endfor %}\n",
    "json": "{{ messages | tojson }} {{ messages | tojson(indent=2) }}",
    "loop": "{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}{{ m.role }}"
    "{% endfor %}",
    "namespace": "{% set n = namespace(x=1) %}{% set n.x = 2 %}{{ n.x }}",
    "generation": "a{% generation %}{{ messages[0].content }}{% endgeneration %}b",
    "specials": "{{ bos_token }}{{ tools is none }}{{ documents is none }}{{ missing }}",
    "date": "{{ strftime_now('%Y') }}",
}


@pytest.fixture(scope="module")
def smollm2_template() -> str:
    with GgufFile(find_gguf()) as file:
        return str(file.metadata["tokenizer.chat_template"])


def by_transformers(template: str, chat: list[dict[str, str]], **variables: Any) -> str:
    rendered, _ = render_jinja_template([chat], chat_template=template, **variables)
    return str(rendered[0])


@pytest.mark.parametrize("chat", CHATS)
@pytest.mark.parametrize("add", [True, False])
def test_smollm2_chats_are_those_of_transformers(
    smollm2_template: str, chat: list[dict[str, str]], add: bool
) -> None:
    ours = render_chat(smollm2_template, chat, add_generation_prompt=add)
    assert ours == by_transformers(smollm2_template, chat, add_generation_prompt=add)
    assert ours.endswith("<|im_start|>assistant\n") is add


@pytest.mark.parametrize("template", TEMPLATES.values(), ids=TEMPLATES)
def test_what_templates_do_gives_the_text_of_transformers(template: str) -> None:
    expected = by_transformers(template, CHATS[2], bos_token="<s>")
    assert (
        render_chat(
            template, CHATS[2], add_generation_prompt=False, special_tokens={"bos_token": "<s>"}
        )
        == expected
    )


def test_variables_reach_the_template() -> None:
    tools = [{"name": "clock"}]
    assert json.loads(render_chat("{{ tools | tojson }}", [USER], tools=tools)) == tools
    assert render_chat("{{ mood }}", [USER], mood="calm") == "calm"


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{% for %}", "Expected"),
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ messages[0].content + 1 }}", "can only concatenate str"),
        ("{{ missing.deeper }}", "'missing' is undefined"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ messages.append(1) }}", "'append' of 'list' object is unsafe"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "maximum recursion depth"),
    ],
)
def test_a_template_that_fails_or_reaches_for_more_is_one_clear_error(
    template: str, words: str
) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        render_chat(template, [USER])
    assert caught.value.code == "OST2030"


def test_a_template_cannot_reach_the_file_system(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    with pytest.raises(UsageError):
        render_chat(f"{{% include '{tmp_path}/secret' %}}", [USER])


def test_a_template_is_compiled_once_however_many_conversations_it_writes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = []
    usual = chat._environment

    def environment() -> Any:
        made.append(1)
        return usual()

    monkeypatch.setattr(chat, "_environment", environment)
    template = "{# seen by this test alone #}{{ messages[0].content }}"
    written = [render_chat(template, [{"role": "user", "content": str(n)}]) for n in range(3)]
    assert written == ["0", "1", "2"]
    assert len(made) == 1


def test_what_a_template_sets_is_forgotten_with_the_text() -> None:
    template = (
        "{{ seen }}{% set seen = 1 %}{% set n = namespace(x=0) %}{% set n.x = n.x + 1 %}{{ n.x }}"
    )
    assert [render_chat(template, [USER]) for _ in range(2)] == ["1", "1"]


def test_a_template_that_cannot_be_compiled_is_refused_each_time() -> None:
    for _ in range(2):
        with pytest.raises(UsageError) as caught:
            render_chat("{% for %}", [USER])
        assert caught.value.code == "OST2030"
