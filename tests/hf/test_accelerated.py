"""The accelerated model stands in for the model: attributes, threads, weights, closing."""

from __future__ import annotations

import copy
import ctypes
import pickle
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ostinato.errors import UsageError, WrongTypeError
from ostinato.graphs import Decision, Outcome, Reason
from ostinato.graphs.backends.tape import TapeRecording
from ostinato.hf import Answer, Delegated, accelerate

Make = Callable[..., Any]


def test_what_is_asked_of_it_the_model_answers(tiny: Make, prompt: Make) -> None:
    model = tiny()
    fast = accelerate(model)
    assert fast.config is model.config
    assert fast.device == model.device
    assert fast.model is model
    assert torch.equal(fast(**prompt()).logits, model(**prompt()).logits)
    with pytest.raises(AttributeError, match="no_such_thing"):
        _ = fast.no_such_thing


def test_what_is_set_on_it_is_set_on_the_model(tiny: Make, prompt: Make) -> None:
    from transformers import GenerationConfig

    model = tiny()
    fast = accelerate(model)
    fast.generation_config = GenerationConfig(max_new_tokens=3, eos_token_id=2, pad_token_id=0)
    assert model.generation_config.max_new_tokens == 3
    assert fast.generate(**prompt(1, 9)).shape == (1, 12)


def test_methods_that_return_the_model_keep_the_acceleration(tiny: Make) -> None:
    fast = accelerate(tiny())
    assert fast.train() is fast
    assert fast.model.training
    assert fast.eval().to(torch.float64) is fast
    assert fast.dtype is torch.float64


def test_another_dtype_is_noticed(tiny: Make, prompt: Make) -> None:
    model = tiny()
    with accelerate(model) as fast:
        fast.generate(**prompt(), max_new_tokens=5)
        model.double()
        ours = fast.generate(**prompt(), max_new_tokens=25)
        assert fast.last.outcome is not Answer.DELEGATED
        assert fast._sessions[1].state.cache.layers[0].keys.dtype is torch.float64
    assert ours.tolist() == model.generate(**prompt(), max_new_tokens=25).tolist()


@pytest.mark.parametrize("rows", [120, 64])
def test_another_vocabulary_is_noticed(rows: int, tiny: Make, prompt: Make) -> None:
    model, inputs = tiny(), prompt()
    inputs["input_ids"] = inputs["input_ids"] % 64
    options: dict[str, Any] = {"max_new_tokens": 6, "min_new_tokens": 6, "repetition_penalty": 1.3}
    with accelerate(model) as fast:
        fast.generate(**inputs, **options)
        model.resize_token_embeddings(rows, mean_resizing=False)
        for _ in range(2):
            expected = model.generate(**inputs, **options)
            assert torch.equal(fast.generate(**inputs, **options), expected)
            assert fast.last.outcome is Answer.REPLAYED, fast.last


def test_another_attention_is_noticed(tiny: Make, prompt: Make) -> None:
    model = tiny()
    with accelerate(model) as fast:
        fast.generate(**prompt(2), max_new_tokens=25)
        model.set_attn_implementation("eager")
        ours = fast.generate(**prompt(2), max_new_tokens=25)
        assert fast.last.outcome is not Answer.DELEGATED
    assert ours.tolist() == model.generate(**prompt(2), max_new_tokens=25).tolist()


@pytest.mark.parametrize("how", ["update", "load", "assign", "rebind"])
def test_new_weights_are_used_from_the_next_call_on(how: str, tiny: Make, prompt: Make) -> None:
    model = tiny()
    torch.manual_seed(99)
    other = {name: torch.randn_like(value) * 0.5 for name, value in model.state_dict().items()}
    with accelerate(model) as fast:
        before = [fast.generate(**prompt(), max_new_tokens=25).tolist() for _ in range(3)][-1]
        if how == "update":
            fast.update_weights(other)
        elif how == "rebind":
            for name, parameter in model.named_parameters():
                parameter.data = other[name]
        else:
            model.load_state_dict(other, assign=how == "assign")
        ours = fast.generate(**prompt(), max_new_tokens=25).tolist()
        assert fast.last.outcome is not Answer.DELEGATED
    assert ours == model.generate(**prompt(), max_new_tokens=25).tolist() != before


def test_weights_that_do_not_fit_change_nothing(tiny: Make) -> None:
    model = tiny()
    fast = accelerate(model)
    name = "model.norm.weight"
    kept = model.get_parameter(name).clone()
    odd: list[Any] = [
        {name: torch.zeros(32), "nobody": torch.zeros(1)},
        {name: torch.zeros(32), 3: torch.zeros(1)},
        {name: torch.zeros(31)},
        {name: torch.zeros(32, device="meta")},
        {name: torch.zeros(32).to_sparse()},
        {name: torch.zeros(32, dtype=torch.complex64)},
        {},
    ]
    for wrong in odd:
        with pytest.raises(UsageError) as caught:
            fast.update_weights(wrong)
        assert caught.value.code == "OST3003"
    assert torch.equal(model.get_parameter(name), kept)


@pytest.mark.parametrize(
    ("given", "what"),
    [(None, "NoneType"), (3, "int"), ([1], "list"), ({"model.norm.weight": 3}, "is of type int")],
)
def test_what_is_no_state_dict_is_refused_by_its_type(given: Any, what: str, tiny: Make) -> None:
    with pytest.raises(WrongTypeError, match=what) as caught:
        accelerate(tiny()).update_weights(given)
    assert caught.value.code == "OST3003"
    assert "state_dict" in caught.value.remedy


def test_weights_that_trade_places_do_so(tiny: Make) -> None:
    model = tiny()
    names = [f"model.layers.{layer}.self_attn.q_proj.weight" for layer in (0, 1)]
    first, second = (model.get_parameter(name) for name in names)
    wanted = second.clone(), first.clone()
    accelerate(model).update_weights({names[0]: second, names[1]: first})
    assert torch.equal(first, wanted[0])
    assert torch.equal(second, wanted[1])


def test_threads_take_turns(tiny: Make, prompt: Make) -> None:
    model = tiny()
    wanted = {
        seed: model.generate(**prompt(seed=seed), max_new_tokens=12).tolist() for seed in range(8)
    }
    results: dict[int, Any] = {}
    with accelerate(model) as fast:

        def serve(seed: int) -> None:
            results[seed] = fast.generate(**prompt(seed=seed), max_new_tokens=12).tolist()

        threads = [threading.Thread(target=serve, args=(seed,)) for seed in wanted]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert fast.report().delegated == {}
    assert results == wanted


def test_a_closed_one_is_the_model_alone(tiny: Make, prompt: Make) -> None:
    model = tiny()
    with accelerate(model) as fast:
        fast.generate(**prompt(), max_new_tokens=9)
    assert not fast._sessions
    ours = fast.generate(**prompt(), max_new_tokens=9)
    assert fast.last.reason is Delegated.CLOSED
    assert ours.tolist() == model.generate(**prompt(), max_new_tokens=9).tolist()


def test_accelerating_twice_is_accelerating_once(tiny: Make) -> None:
    model = tiny()
    assert accelerate(accelerate(model)).model is model


def test_something_that_cannot_generate_is_refused() -> None:
    with pytest.raises(WrongTypeError, match="Linear") as caught:
        accelerate(torch.nn.Linear(2, 2))
    assert caught.value.code == "OST3001"


@pytest.mark.parametrize("options", [{"max_cache_len": 0}, {"eos_check_every": -1}], ids=str)
def test_lengths_that_cannot_be_are_refused(options: dict[str, Any], tiny: Make) -> None:
    with pytest.raises(UsageError, match="positive integer") as caught:
        accelerate(tiny(), **options)
    assert caught.value.code == "OST3002"


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"budget": "zz"}, "OST1001"),
        ({"backend": "foo"}, "OST1011"),
        ({"backend": "cuda"}, "OST1011"),
        ({"prefill_buckets": 3}, "OST3002"),
    ],
    ids=str,
)
def test_options_that_cannot_be_are_refused_at_once(
    options: dict[str, Any], code: str, tiny: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(UsageError) as caught:
        accelerate(tiny(), **options)
    assert caught.value.code == code


@pytest.mark.parametrize("how", [copy.deepcopy, lambda fast: pickle.loads(pickle.dumps(fast))])
def test_a_copy_has_its_own_model_and_the_same_options(
    how: Callable[[Any], Any], tiny: Make, prompt: Make
) -> None:
    with accelerate(tiny(), max_cache_len=32, eos_check_every=3, backend="eager") as fast:
        wanted = fast.generate(**prompt(), max_new_tokens=9)
        with how(fast) as other:
            assert other.model is not fast.model
            assert other.report().generates == 0
            assert torch.equal(other.generate(**prompt(), max_new_tokens=9), wanted)
            assert other.report().generates == 1
            other.generate(**prompt(), max_new_tokens=25)
            assert other.last.reason is Delegated.LONGER_THAN_CACHE
            assert (other._eos_check_every, other._options) == (3, fast._options)


@pytest.mark.parametrize("sampling", [{}, {"do_sample": True, "top_k": 9}], ids=["greedy", "drawn"])
def test_every_step_of_the_first_request_is_a_replay(
    kind: str, sampling: dict[str, Any], device: torch.device, tiny: Make, prompt: Make
) -> None:
    options = {"max_new_tokens": 20, "eos_token_id": None, **sampling}
    model = tiny(kind, device)
    answers = []
    with accelerate(model) as fast:
        for generates in (1, 2):
            torch.manual_seed(3)
            tokens = fast.generate(**prompt(2, 9, device), **options).tolist()
            answers.append((tokens, torch.rand(1, device=device).item()))
            report = fast.report().to_dict()
            assert fast.last.replayed_steps == fast.last.steps == 19, fast.report()
            assert report["replayed_steps"] == report["steps"] == 19 * generates
            assert report["calls"] == (19 + 1) * generates  # the prompt is a call too
    assert answers[0] == answers[1], "recording ahead has left a trace"
    torch.manual_seed(3)
    if not sampling:
        assert answers[0][0] == model.generate(**prompt(2, 9, device), **options).tolist()


def test_a_request_of_one_token_records_no_step(tiny: Make, prompt: Make) -> None:
    with accelerate(tiny()) as fast:
        fast.generate(**prompt(), max_new_tokens=1)
        assert fast.report().to_dict()["recordings"] == 0


@pytest.mark.filterwarnings("ignore:.*Python side effect")
def test_a_step_that_cannot_be_recorded_is_not_tried_anew_by_every_request(
    tiny: Make, prompt: Make
) -> None:
    model = tiny()
    runs = ctypes.c_long()  # the extra runs of an attempt put attributes back, and not this
    model.seen = 0

    def count(*_: object) -> None:
        runs.value += 1
        model.seen += 1

    model.model.layers[0].register_forward_pre_hook(count)
    options = {"max_new_tokens": 3, "eos_token_id": None}
    with accelerate(model) as fast:
        for _ in range(12):
            fast.generate(**prompt(), **options)
        assert fast.last.reason is Reason.PYTHON_SIDE_EFFECT
    assert runs.value - model.seen <= 12


def test_all_but_the_first_token_are_replays_in_steady_state(
    kind: str, device: torch.device, tiny: Make, prompt: Make
) -> None:
    with accelerate(tiny(kind, device)) as fast:
        for rows in (1, 2):
            inputs = prompt(rows, 9, device)
            for _ in range(3):
                fast.generate(**inputs, max_new_tokens=20, eos_token_id=None)
            assert fast.last.new_tokens == 20
            assert fast.last.replayed_steps == fast.last.steps == 19, fast.report()
            assert fast.last.prefill_replayed, fast.report()
            assert fast.last.reason is None
        report = fast.report().to_dict()
    assert report["replayed_steps"] == report["new_tokens"] - report["generates"]
    assert report["bytes"] > 0
    assert report["delegated"] == {}


def test_the_report_keeps_the_counts_of_dropped_sessions(tiny: Make, prompt: Make) -> None:
    with accelerate(tiny()) as fast:
        fast.generate(**prompt(1, 9), max_new_tokens=12, eos_token_id=None)
        before = fast.report().to_dict()
        fast.generate(**prompt(1, 9), max_new_tokens=100, eos_token_id=None)
        after = fast.report().to_dict()
    assert after["steps"] == before["steps"] + 99
    assert after["replays"] == before["replays"] + 99
    assert "decode steps    110" in str(fast.report())


@pytest.mark.parametrize(
    ("outcome", "why_queued", "steps"),
    [
        (Outcome.RECORDED, None, 64),
        (Outcome.REPLAYED, None, 64),
        (Outcome.REPLAYED, "it draws", 8),
        (Outcome.EAGER, None, 8),
        (None, None, 8),
    ],
)
def test_only_steps_that_end_with_the_answer_are_looked_at_rarely(
    outcome: Outcome | None, why_queued: str | None, steps: int, tiny: Make
) -> None:
    last = None if outcome is None else Decision(outcome)
    recorded = SimpleNamespace(
        decode=SimpleNamespace(last=last), steps=SimpleNamespace(why_queued=why_queued)
    )
    assert accelerate(tiny())._look_every(recorded, is_streamed=False) == steps


def test_a_series_that_ends_on_the_device_is_counted_as_far_as_it_came(
    tiny: Make, prompt: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = TapeRecording.repeat

    def on_the_device(self: TapeRecording, times: int, ending: Any) -> int:
        queue(self, times, ending)
        return times  # the host cannot tell how many it were

    monkeypatch.setattr(TapeRecording, "repeat", on_the_device)
    model, inputs = tiny(), prompt()
    with accelerate(model) as fast:
        plain = fast.generate(**inputs, max_new_tokens=60, eos_token_id=None)
        eos = int(plain[0, 9 + 20])  # ends there at the latest
        before = fast.report().to_dict()
        ours = fast.generate(**inputs, max_new_tokens=60, eos_token_id=eos)
        steps = ours.shape[1] - 9 - 1
        report = fast.report().to_dict()
        assert fast.last.steps == fast.last.replayed_steps == steps < 59
        assert report["replayed_steps"] == before["replayed_steps"] + steps
        # The prompt came the second time, so it was recorded, and no replay yet.
        assert report["replays"] == before["replays"] + steps
        assert sum(graph["hits"] for graph in report["graphs"]) == report["replays"]


@pytest.mark.parametrize("side", ["past the last", "negative"])
def test_ids_that_have_no_embedding_cost_no_recording(side: str, tiny: Make, prompt: Make) -> None:
    model = tiny()
    wrong = -1 if side == "negative" else model.config.vocab_size
    with accelerate(model) as fast:
        for _ in range(3):
            fast.generate(**prompt(), max_new_tokens=4, eos_token_id=None)
        assert fast.last.prefill_replayed
        recordings = fast.report().runners.graphs
        bad = prompt()
        bad["input_ids"][0, 4] = wrong
        with pytest.raises(IndexError):
            fast.generate(**bad, max_new_tokens=4)
        assert fast.last.reason is Delegated.INVALID_REQUEST
        assert f"the id {wrong}" in fast.last.detail
        fast.generate(**prompt(), max_new_tokens=4, eos_token_id=None)
        assert fast.last.prefill_replayed
        ids = [graph["graph_id"] for graph in recordings]
        assert [graph["graph_id"] for graph in fast.report().runners.graphs] == ids


def test_kinds_of_sampling_take_turns_and_the_oldest_is_dropped(tiny: Make, prompt: Make) -> None:
    with accelerate(tiny()) as fast:
        options = {"do_sample": True, "max_new_tokens": 4, "eos_token_id": None}
        for top_k in (1, 2, 3, 4, 5, 6):
            fast.generate(**prompt(), top_k=top_k, **options)
        alive = len(fast.report().runners.graphs)
        fast.generate(**prompt(), top_k=6, **options)
        assert fast.last.replayed_steps == 3
        assert alive == 4
        assert fast.report().to_dict()["recordings"] >= 6


def test_after_weights_moved_every_step_is_a_replay_again(tiny: Make, prompt: Make) -> None:
    model = tiny()
    with accelerate(model) as fast:
        fast.generate(**prompt(), max_new_tokens=9, eos_token_id=None)
        for parameter in model.parameters():
            parameter.data = parameter.data * 1.5
        ours = fast.generate(**prompt(), max_new_tokens=9, eos_token_id=None)
        assert fast.last.replayed_steps == fast.last.steps == 8
    theirs = model.generate(**prompt(), max_new_tokens=9, eos_token_id=None)
    assert ours.tolist() == theirs.tolist()
