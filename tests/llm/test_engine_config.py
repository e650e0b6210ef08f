"""Options and memory: what is wrong is told before anything is loaded."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from checkpoints.tiny_models import write_tiny_llama
from llm.small_engine import OPTIONS, PAGE_BYTES, config
from ostinato.bench.decode.models import MODELS
from ostinato.errors import OstinatoError, ResourceError, UsageError, WrongTypeError
from ostinato.llm.config import _COUNTS, EngineConfig
from ostinato.llm.kv.memory import check_kv_bytes, pages_for_memory
from ostinato.llm.loading import _prefill_tokens, load
from ostinato.llm.models import DecoderConfig

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("max_batch", 0),
        ("max_batch", 2.0),
        ("max_batch", True),
        ("page_tokens", 0),
        ("prefill_tokens", -1),
        ("max_model_len", 1),
        ("max_waiting", 0),
        ("max_waiting_tokens", 0),
        ("steps_per_launch", 0),
        ("steps_per_launch", "many"),
        ("most_logprobs", -1),
        ("seed", "x"),
        ("load", "lazy"),
        ("backend", "metal"),
        ("deterministic", 1),
        ("prefix_cache", None),
        ("model", None),
        ("model", ""),
        ("model", " "),
        ("kv_memory", "lots"),
        ("kv_memory", 1.5),
        ("kv_memory", -1),
        ("kv_memory", "9" * 400 + "GiB"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_by_name(option: str, value: Any) -> None:
    with pytest.raises(UsageError) as caught:
        EngineConfig.read({"model": "smollm2", option: value})
    assert caught.value.code == "OST5031"
    assert option in str(caught.value)
    assert repr(value)[:200] in str(caught.value) or option == "model"


def test_options_take_numpy_s_whole_numbers_and_keep_python_s() -> None:
    given = {name: np.int64(9) for name in _COUNTS}
    made = EngineConfig.read({"model": "m", "kv_memory": np.int64(4096), **given})
    assert {type(getattr(made, name)) for name in (*given, "kv_memory")} == {int}
    assert (made.max_batch, made.steps_per_launch, made.kv_bytes) == (9, 9, 4096)


@pytest.mark.parametrize("option", sorted(_COUNTS))
def test_only_what_may_be_left_open_takes_none_or_auto(option: str) -> None:
    opened = {"max_model_len": None, "steps_per_launch": "auto", "prefill_tokens": "auto"}
    for value in (None, "auto"):
        if opened.get(option, "") == value:
            EngineConfig.read({"model": "m", option: value})
        else:
            words = "a whole number" + (f" or {opened[option]!r}" if option in opened else "")
            with pytest.raises(WrongTypeError, match=f"{option} must be {words}, got"):
                EngineConfig.read({"model": "m", option: value})


def test_memory_is_bytes_or_words() -> None:
    assert EngineConfig(model="m", kv_memory="1.5GiB").kv_bytes == 3 << 29
    assert EngineConfig(model="m", kv_memory=4096).kv_bytes == 4096
    assert EngineConfig(model="m").kv_bytes is None
    with pytest.raises(UsageError, match="kv_memory must be an amount of bytes"):
        EngineConfig(model="m", kv_memory="lots")


def test_an_unknown_option_names_all_when_none_is_near() -> None:
    with pytest.raises(UsageError, match="no option of the engine is called 'zzz'") as caught:
        EngineConfig.read({"model": "m", "zzz": 1})
    assert "max_batch" in caught.value.remedy


def test_pages_are_as_many_as_the_memory_holds_and_never_more_than_can_be_used() -> None:
    def pages(kv_bytes: int | None, most: int) -> int:
        return pages_for_memory(kv_bytes, 1000, most=most, state_bytes=0, device=CPU)

    assert pages(9_999, 100) == 9
    assert pages(1_000_000, 100) == 100
    assert pages(None, 100) == 100
    assert 100 < pages(None, 1 << 40) <= (2 << 30) // 1000


def test_memory_for_less_than_one_page_is_refused_with_the_numbers() -> None:
    with pytest.raises(UsageError, match=r"kv_memory is 1\.5 KiB, and one page .* takes 1\.0 KiB"):
        check_kv_bytes(1536, 1024)
    check_kv_bytes(2048, 1024)


def test_more_memory_than_is_free_is_refused_with_the_numbers() -> None:
    with pytest.raises(ResourceError, match=r"need 1\.0 TiB of host memory") as caught:
        pages_for_memory(1 << 40, 1 << 20, most=1 << 30, state_bytes=0, device=CPU)
    assert caught.value.code == "OST5034"
    with pytest.raises(ResourceError, match="can be used for them"):
        pages_for_memory(None, 1 << 40, most=1 << 30, state_bytes=0, device=CPU)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"max_model_len": 513}, "OST5032"),
        ({"kv_memory": PAGE_BYTES}, "OST5033"),
        ({"kv_memory": "1000TiB", "max_batch": 1 << 24, "page_tokens": 1 << 14}, "OST5034"),
        ({"dtype": "int8"}, "OST2029"),
        ({"device": "toaster"}, "OST2029"),
        ({"attention": "magic"}, "OST5211"),
        ({"model": "/nowhere"}, "OST2020"),
    ],
)
def test_what_cannot_be_loaded_is_told_by_its_code(
    tiny: Path, options: dict[str, Any], code: str
) -> None:
    with pytest.raises(OstinatoError) as caught:
        load(EngineConfig.read({"model": tiny, **OPTIONS, **options}))
    assert caught.value.code == code


def test_a_missing_shard_is_one_error(tiny: Path, tmp_path: Path) -> None:
    for file in list(tiny.iterdir())[::-1]:
        (tmp_path / file.name).write_bytes(file.read_bytes())
    next(iter(tmp_path.glob("model-*.safetensors"))).unlink()
    with pytest.raises(UsageError) as caught:
        load(config(tmp_path))
    assert caught.value.code in ("OST2021", "OST2022", "OST2023")


def test_a_generation_config_that_cannot_be_read_is_told(tiny: Path, tmp_path: Path) -> None:
    for file in tiny.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "generation_config.json").write_text("{")
    with pytest.raises(UsageError, match=r"generation_config\.json cannot be read"):
        load(config(tmp_path))


def test_what_auto_means_on_a_cpu(tiny: Path) -> None:
    loaded = load(EngineConfig(model=tiny, device="cpu"))
    assert loaded.limits.max_model_len == 512
    assert loaded.limits.steps_per_launch == 1
    assert loaded.store.keys.dtype == torch.float32
    assert loaded.store.pages == 1 + 256 * 32
    assert loaded.stop_ids == (2,)
    assert loaded.tokenizer is None
    assert loaded.choice.name == "sdpa"


def test_a_page_limits_what_a_prompt_may_be(tiny: Path) -> None:
    loaded = load(config(tiny, pages=3))
    assert loaded.store.pages == 4


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tokenizer.json", b'{"what": "is this"}'),
        ("tokenizer_config.json", b"{"),
        ("chat_template.jinja", b"\xff\xfe{{"),
    ],
)
def test_a_tokenizer_that_cannot_be_read_is_told(name: str, content: bytes, tmp_path: Path) -> None:
    folder = write_tiny_llama(tmp_path)
    (folder / name).write_bytes(content)
    with pytest.raises(UsageError, match=f"{name} cannot be read"):
        load(EngineConfig(model=folder, device="cpu"))


def test_templates_of_which_none_is_for_plain_talk_are_none(tmp_path: Path) -> None:
    folder = write_tiny_llama(tmp_path)
    for templates in ([5, "x"], [{"name": "tool_use", "template": "{{ tools }}"}], [{}], 7):
        (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": templates}))
        tokenizer = load(EngineConfig(model=folder, device="cpu")).tokenizer
        assert tokenizer is not None
        assert tokenizer.chat_template is None


@pytest.mark.parametrize(
    ("asked", "is_cuda", "captures", "tokens"),
    [
        ("auto", True, True, 4096),
        ("auto", True, False, 8192),
        ("auto", False, True, 2048),
        (77, True, True, 77),
    ],
)
def test_how_many_prompt_tokens_a_plan_takes(
    asked: Any, is_cuda: bool, captures: bool, tokens: int
) -> None:
    options = EngineConfig(model="m", prefill_tokens=asked)
    decoder = DecoderConfig.from_dict(dict(MODELS["llama3.2-1b"]))
    attention: Any = SimpleNamespace(captures_prefill=captures)
    store: Any = SimpleNamespace(keys=SimpleNamespace(is_cuda=is_cuda, dtype=torch.bfloat16))
    assert _prefill_tokens(options, decoder, attention, store) == tokens
