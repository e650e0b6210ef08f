"""Answers that keep to a schema: their grammars hold nobody else up, and fail nobody else."""

from __future__ import annotations

import json
import re
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from llm.models.tiny_folders import VOCABULARY, write
from llm.small_engine import OPTIONS, Alone, begun, greedy, ids
from ostinato import LLM, SamplingParams
from ostinato.errors import ResourceError, UsageError
from ostinato.llm.faults import EngineDown
from ostinato.llm.refusals import QueueFull
from ostinato.llm.structured import read_schema

pytest.importorskip("llguidance")

# A space is spelled so by byte-level tokenizers.
LETTERS = '{}[]",:.\u01200123456789abcdefghijklmnopqrstuvwxyz-'
DATE = {"regex": "[0-9]{4}-[0-9]{2}"}


@pytest.fixture(scope="module")
def spelling(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny llama whose tokens are single letters, and whose id 2 ends a text."""
    folder = tmp_path_factory.mktemp("engine") / "spelling"
    write("llama", folder)
    named = ["<unk>", "<s>", "</s>", *LETTERS]
    named += [f"<{at}>" for at in range(len(named), VOCABULARY)]
    words = {name: at for at, name in enumerate(named)}
    tokenizer = tokenizers.Tokenizer(models.BPE(words, [], unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture(scope="module", params=[1, 2])
def llm(spelling: Path, request: pytest.FixtureRequest) -> Any:
    with LLM(spelling, **OPTIONS) as made:
        core: Any = made.engine._core
        core._depth = request.param  # a launch ahead too, as on a GPU
        yield made
        assert made.engine.wait_drained(60)
        made.engine.check_integrity()


def test_answers_keep_to_their_schemas_while_others_run_freely(llm: LLM, spelling: Path) -> None:
    free = greedy(30, ignore_eos=True)
    bound = SamplingParams(max_tokens=30, temperature=1.5, schema=DATE)
    prompts = [ids(5 + at, at) for at in range(6)]
    outputs = llm.generate(prompts, [free, bound] * 3)
    alone = Alone(spelling)
    for prompt, output in zip(prompts[::2], outputs[::2], strict=True):
        assert list(output.token_ids) == alone(prompt, free, stop_ids=())
    texts = [output.text for output in outputs[1::2]]
    assert all(re.fullmatch("[0-9]{4}-[0-9]{2}", text) for text in texts)
    assert len(set(texts)) == 3
    assert {output.finish_reason for output in outputs[1::2]} == {"stop"}


def test_a_json_schema_is_kept_and_several_answers_differ(llm: LLM) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}},
        "required": ["a"],
        "additionalProperties": False,
    }
    params = SamplingParams(max_tokens=60, temperature=1.0, seed=3, n=3, schema=schema)
    (output,) = llm.generate("abc", params)
    answers = [json.loads(choice.text) for choice in output.choices if choice.text[-1:] == "}"]
    assert answers
    assert all(set(answer) == {"a"} and 0 <= answer["a"] <= 99 for answer in answers)


def test_a_schema_ends_the_answer_even_if_the_model_s_end_is_ignored(llm: LLM) -> None:
    (output,) = llm.generate("abc", greedy(30, ignore_eos=True, schema={"choices": ["yes", "no"]}))
    assert output.text in ("yes", "no")
    assert output.finish_reason == "stop"


def test_a_schema_that_cannot_be_kept_fails_its_request_alone(llm: LLM) -> None:
    bad = llm.engine.ask("abc", greedy(9, schema={"regex": "(("}))
    good = llm.engine.ask("abd", greedy(9, ignore_eos=True))
    output = bad.result(60)
    assert output.finish_reason == "error"
    assert isinstance(output.error, UsageError)
    assert good.result(60).finish_reason == "length"


@pytest.mark.parametrize(
    ("schema", "code"),
    [
        ({"regex": "(("}, "OST5062"),
        ({"type": "array", "uniqueItems": True}, "OST5062"),
        ({"lark": "start: nothing"}, "OST5062"),
        ({"$ref": "#"}, "OST5064"),
    ],
)
def test_generate_raises_for_a_schema_that_cannot_be_kept_before_it_begins_any_prompt(
    schema: dict[str, Any], code: str, llm: LLM
) -> None:
    before = begun(llm)
    with pytest.raises(UsageError, match=r"^OST\d+: prompts\[2\]: ") as caught:
        llm.generate(["abc", "abd", "abe"], [greedy(9), greedy(9), greedy(9, schema=schema)])
    assert caught.value.code == code
    assert begun(llm) == before


def test_of_one_prompt_the_place_is_not_told(llm: LLM) -> None:
    with pytest.raises(UsageError) as caught:
        llm.generate("abc", greedy(9, schema={"regex": "(("}))
    assert "prompts[" not in str(caught.value)


def test_a_schema_is_compiled_once_for_all_prompts_that_want_it(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler: Any = llm.engine._grammars._compiler  # type: ignore[attr-defined]
    compiled: list[object] = []
    tried = compiler._tried
    monkeypatch.setattr(
        compiler, "_tried", lambda schema: [compiled.append(schema), tried(schema)][1]
    )
    wanted = {"choices": ["once", "only"]}
    outputs = llm.generate(["abc"] * 5, [greedy(9, schema=dict(wanted)) for _ in range(5)])
    assert {output.text for output in outputs} <= {"once", "only"}
    assert len(compiled) == 1


def test_a_closed_engine_says_so_whatever_is_wrong_with_the_prompt(spelling: Path) -> None:
    with LLM(spelling, **OPTIONS) as made:
        pass
    with pytest.raises(EngineDown, match="the engine is closed"):
        made.generate(["abc", "abd"], greedy(9, schema={"regex": "(("}))
    closed = made.engine.compile(read_schema({"regex": "a"}))
    with pytest.raises(ResourceError, match="closed before the schema"):
        closed.result(60)


def test_what_is_no_schema_is_refused_at_once(llm: LLM) -> None:
    with pytest.raises(UsageError) as caught:
        llm.engine.ask("abc", SamplingParams(schema=7))
    assert caught.value.code == "OST5060"


def test_a_request_can_be_cancelled_while_its_grammar_is_made(llm: LLM) -> None:
    streams = [
        llm.engine.ask("abc", greedy(9, schema={"regex": f"[a-z]{{{at}}}"})) for at in range(2, 6)
    ]
    for stream in streams:
        stream.cancel()
    assert {stream.result(60).finish_reason for stream in streams} <= {"abort", "stop"}


def test_those_whose_grammar_is_being_made_count_as_waiting(spelling: Path) -> None:
    with LLM(spelling, **OPTIONS, max_waiting=2) as made:
        compiler: Any = made.engine._grammars._compiler  # type: ignore[attr-defined]
        being_made: Future[Any] = Future()
        params = greedy(9, schema=DATE)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(compiler, "compile", lambda _: being_made)
            streams = [made.engine.ask("abc", params) for _ in range(2)]
            with pytest.raises(QueueFull, match="2 of 2 requests"):
                made.engine.ask("abc", params)
            with pytest.raises(QueueFull, match="2 of 2 requests"):
                made.engine.ask("abc", greedy(9))
        being_made.set_result(compiler.compile(read_schema(DATE)).result(60))
        assert {len(stream.result(60).text) for stream in streams} == {7}
        (output,) = made.generate("abc", params)
        assert len(output.text) == 7


def test_a_preempted_answer_still_keeps_to_its_schema(spelling: Path) -> None:
    from llm.small_engine import PAGE_BYTES

    with LLM(spelling, **{**OPTIONS, "kv_memory": 10 * PAGE_BYTES}) as made:
        bound = SamplingParams(max_tokens=60, temperature=1.5, schema={"regex": "[a-f]{50}"})
        outputs = made.generate([ids(20, at) for at in range(6)], bound)
        assert made.engine.counts().scheduler.preemptions > 0
        assert all(re.fullmatch("[a-f]{50}", output.text) for output in outputs)
        made.engine.check_integrity()


def test_a_grammar_that_fails_on_the_way_ends_its_request_alone(llm: LLM) -> None:
    class Broken:
        is_finished = False

        def __init__(self, words: Any) -> None:
            self._words = words

        def accept(self, token_ids: Any) -> None:
            raise RuntimeError("lost the thread")

        def allowed_words(self) -> Any:
            return self._words

    core: Any = llm.engine._core
    admit = core.admit

    def broken(replies: Any, error: Any) -> None:
        for reply in replies:
            reply.grammar = Broken(reply.allowed)
        admit(replies, error)

    core.admit = broken
    try:
        outputs = llm.generate(["abc", "abd"], [greedy(9, schema=DATE), greedy(9, ignore_eos=True)])
    finally:
        core.admit = admit
    assert outputs[0].finish_reason == "error"
    assert "lost the thread" in str(outputs[0].error)
    assert outputs[1].finish_reason == "length"
