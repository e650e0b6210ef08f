"""Prefill: the same keys and values recorded or not, in any company, in buckets of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor

from llm.models.tiny_folders import write
from llm.paged_model import PAGE_TOKENS, PagedModel
from ostinato.bench.decode.models import MODELS
from ostinato.graphs import Outcome
from ostinato.llm.attention import PrefillBatch, PromptChunk, SdpaAttention
from ostinato.llm.kv.store import KvStore
from ostinato.llm.models import DecoderConfig
from ostinato.llm.prefill import Prefiller, PrefillStep, buckets_for, tokens_per_plan


@dataclass(frozen=True)
class MaskedAttention:
    """All tokens against all chunks' keys, masked: slow, and no layout is read on the host."""

    inner: SdpaAttention
    name: str = "masked"
    cost_follows_table: bool = True
    captures_prefill: bool = True

    def decode(self, *_: Any) -> Tensor:
        raise AssertionError("these tests only prefill")

    def prefill(self, layer: int, q_THD: Tensor, store: KvStore, batch: PrefillBatch) -> Tensor:
        at_T = torch.arange(len(q_THD), device=q_THD.device)
        owner_T = torch.searchsorted(batch.row_start_S1[1:], at_T, right=True)
        is_real_T = at_T < batch.row_start_S1[-1]
        pages_TP = batch.pages_SP.index_select(0, owner_T.clamp(max=len(batch.starts_S) - 1))
        lengths_T = (batch.positions_T + 1).masked_fill(~is_real_T, 0)
        return self.inner.decode(layer, q_THD, store, pages_TP, lengths_T)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prefill") / "llama"
    write("llama", folder)
    return folder


def chunks_of(model: PagedModel, sizes: Sequence[tuple[int, int]], seed: int) -> list[PromptChunk]:
    random = Random(seed)
    return [
        PromptChunk(
            [random.randrange(3, 90) for _ in range(count)], start, model.grow(row, start + count)
        )
        for row, (start, count) in enumerate(sizes)
    ]


def made(folder: Path, **options: Any) -> tuple[PagedModel, Prefiller]:
    model = PagedModel.load(folder, is_invariant=True)
    assert isinstance(model.backend, SdpaAttention)
    model.store.keys.zero_()
    model.store.values.zero_()
    return model, Prefiller(
        model.decoder, MaskedAttention(model.backend), model.store, max_pages=8, **options
    )


def stored(model: PagedModel) -> Tensor:
    return torch.stack([model.store.keys, model.store.values])[:, :, 1:]


SIZES = ([(0, 5)], [(0, 30), (0, 1), (0, 17)], [(0, 12)], [(0, 3), (0, 40)], [(0, 16)], [(0, 90)])


def test_a_recorded_prefill_caches_what_an_eager_one_does(folder: Path) -> None:
    model, prefiller = made(folder, buckets=(16, 64))
    twin, eager = made(folder, buckets=())
    for turn in range(3):
        for seed, sizes in enumerate(SIZES):
            chunks = chunks_of(model, sizes, seed + 100 * turn)
            prefiller.run(chunks)
            chunks_of(twin, sizes, seed)
            eager.run(chunks)
            assert torch.equal(stored(model), stored(twin)), (turn, sizes)
    report = prefiller.report()
    assert (report.recordings, report.recaptures) == (2, 0)
    assert report.replays == 3 * 5 - 4  # two buckets, each eager once and recorded once
    assert set(report.reasons) == {"not-admitted-yet"}


def test_chunks_after_chunks_cache_what_whole_prompts_do(folder: Path) -> None:
    model, prefiller = made(folder, buckets=(16, 64))
    twin, whole = made(folder, buckets=(16, 64))
    ids = [list(range(3, 50)), list(range(40, 10, -1))]
    for prefill in (prefiller, whole):
        for _ in range(2):
            prefill.warm(16, 2)
            prefill.warm(64, 2)
    pages = [model.grow(row, len(each)) for row, each in enumerate(ids)]
    for start in range(0, 48, 8):
        prefiller.run(
            [
                PromptChunk(each[start : start + 8], start, page)
                for each, page in zip(ids, pages, strict=True)
                if start < len(each)
            ]
        )
    for each, page in zip(ids, pages, strict=True):
        whole.run([PromptChunk(each, 0, page)])
    for page, each in zip(pages, ids, strict=True):
        for used in range(len(each)):
            at = page[used // PAGE_TOKENS], used % PAGE_TOKENS
            assert torch.equal(model.store.keys[:, *at], twin.store.keys[:, *at])
            assert torch.equal(model.store.values[:, *at], twin.store.values[:, *at])
    assert prefiller.report().replays == 6
    assert whole.report().replays == 2


LONG = ([(0, 90), (0, 64)], [(0, 30), (0, 100), (0, 17)], [(8, 70)], [(0, 64), (0, 1)])


def test_a_prefill_too_long_for_a_recording_runs_as_several_that_are_recorded(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ostinato.llm.prefill._PART", 64)
    model, prefiller = made(folder, buckets=(16, 64))
    twin, eager = made(folder, buckets=())
    assert (prefiller.part_tokens, eager.part_tokens) == (64, None)
    for tokens in prefiller.buckets:
        prefiller.warm(tokens)
    for seed, sizes in enumerate(LONG):
        last_SE = prefiller.run(chunks_of(model, sizes, seed))
        assert torch.equal(last_SE, eager.run(chunks_of(twin, sizes, seed))), sizes
        assert torch.equal(stored(model), stored(twin)), sizes
    assert prefiller.report().replays == prefiller.report().calls == 3 + 3 + 2 + 2
    monkeypatch.setattr(PrefillStep, "prefill", lambda *_: pytest.fail("it ran eagerly"))
    assert prefiller.warm(65) is None


def test_a_long_prompt_runs_in_the_recording_of_many_short_ones(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ostinato.llm.prefill.SHORT", 4)
    model, prefiller = made(folder, buckets=(16, 64))
    prefiller.warm(64, chunks=17)
    prefiller.run(chunks_of(model, [(0, 50)], 1))
    report = prefiller.report()
    assert (report.recordings, report.replays) == (1, 1)


def test_short_recordings_are_no_parts(folder: Path) -> None:
    _, prefiller = made(folder, buckets=(16, 64))
    assert prefiller.part_tokens is None


def test_warming_records_and_caches_nothing(folder: Path) -> None:
    model, prefiller = made(folder, buckets=(16, 64))
    before = stored(model).clone()
    decision = prefiller.warm(40)
    assert decision is not None
    assert decision.outcome is Outcome.RECORDED
    assert torch.equal(stored(model), before)
    assert prefiller.warm(65) is None
    assert prefiller.warm(16, 257) is None


def test_a_backend_that_reads_the_layout_on_the_host_is_never_recorded(folder: Path) -> None:
    model = PagedModel.load(folder)
    prefiller = Prefiller(model.decoder, model.backend, model.store, buckets=(16, 64))
    chunks = chunks_of(model, [(0, 20), (0, 7)], 3)
    expected = PagedModel.load(folder)
    expected.prefill([(row, 0, chunk.token_ids) for row, chunk in enumerate(chunks)])
    for _ in range(3):
        prefiller.run(chunks)
    for row, chunk in enumerate(chunks):
        for used in range(len(chunk.token_ids)):
            at = expected.pages[row][used // PAGE_TOKENS], used % PAGE_TOKENS
            assert torch.equal(model.store.keys[:, *at], expected.store.keys[:, *at])
    assert prefiller.report().calls == 0
    assert prefiller.warm(16) is None


def test_nothing_to_cache_is_nothing_to_do(folder: Path) -> None:
    _, prefiller = made(folder)
    prefiller.run([])
    assert prefiller.report().calls == 0


def made_on_gpu(folder: Path, buckets: tuple[int, ...]) -> tuple[PagedModel, Prefiller]:
    from ostinato.llm.attention import choose
    from ostinato.llm.models import build, read_config

    device, config = torch.device("cuda:0"), read_config(folder)
    decoder = build(config, dtype=torch.float32, device=device, folder=folder)
    backend, _ = choose(config.attention, device=device, dtype=torch.float32, wanted="triton")
    model = PagedModel(decoder)
    model.store.keys.zero_()
    model.store.values.zero_()
    return model, Prefiller(decoder, backend, model.store, max_pages=8, buckets=buckets)


@pytest.mark.gpu
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_on_a_gpu_the_recorded_prefill_caches_what_an_eager_one_does(
    folder: Path, sizes: list[tuple[int, int]]
) -> None:
    stores = []
    for buckets in ((128,), ()):
        model, prefiller = made_on_gpu(folder, buckets)
        for seed in range(4):
            prefiller.run(chunks_of(model, sizes, seed))
        assert prefiller.report().replays == (2 if buckets else 0)
        stores.append(stored(model))
    torch.testing.assert_close(*stores, atol=1e-4, rtol=1e-4)


@pytest.mark.gpu
def test_on_a_gpu_a_prefill_in_parts_gives_what_an_eager_one_does(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ostinato.llm.prefill._PART", 64)
    made = [made_on_gpu(folder, buckets) for buckets in ((16, 64), ())]
    for turn in range(3):
        for seed, sizes in enumerate(LONG):
            lasts = [p.run(chunks_of(model, sizes, seed + 9 * turn)) for model, p in made]
            torch.testing.assert_close(*lasts, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(*(stored(model) for model, _ in made), atol=1e-4, rtol=1e-4)
    assert made[0][1].report().replays > 0


@pytest.mark.parametrize(
    ("name", "most_tokens", "longest"),
    [
        ("smollm2-135m", 8448, 8448),
        ("smollm2-135m", 2000, 2048),
        ("smollm2-135m", 8200, 8256),
        ("smollm2-135m", 8, 64),
        ("smollm2-135m", 100_000, 8192),
        ("llama3.2-1b", 8192, 2048),
        ("llama3-8b", 8192, 1024),
    ],
)
def test_what_takes_the_device_long_or_much_memory_is_not_recorded(
    name: str, most_tokens: int, longest: int
) -> None:
    config = DecoderConfig.from_dict(dict(MODELS[name]))
    buckets = buckets_for(config, torch.bfloat16, most_tokens)
    assert list(buckets) == sorted(buckets)
    assert buckets[-1] == longest
    assert len(set(buckets)) == len(buckets)


@pytest.mark.parametrize(
    ("name", "most", "tokens"),
    [
        ("smollm2-135m", 8192, 8192),  # recorded whole
        ("llama3.2-1b", 8192, 4096),  # in parts of 2048
        ("llama3.2-1b", 3000, 3000),
        ("llama3-8b", 8192, 8192),  # its recordings are too short to be parts
    ],
)
def test_a_plan_is_no_more_than_two_parts(name: str, most: int, tokens: int) -> None:
    config = DecoderConfig.from_dict(dict(MODELS[name]))
    assert tokens_per_plan(config, torch.bfloat16, most) == tokens


def test_a_model_whose_inner_width_is_not_known_has_buckets_too() -> None:
    config = replace(DecoderConfig.from_dict(dict(MODELS["llama3-8b"])), inner=0)
    assert buckets_for(config, torch.bfloat16, 8192)[-1] == 1024
