"""Faults in a step: whom they concern is told, and nobody else notices."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from llm.models.tiny_folders import write
from llm.small_engine import Alone, Steps, greedy, ids
from ostinato.errors import UsageError
from ostinato.llm.faults import is_device_fault
from ostinato.llm.request import FinishReason, SamplingParams

PROMPTS = [ids(count, seed) for seed, count in enumerate((20, 5, 33, 2))]
WORDS = greedy(9)


@pytest.fixture(scope="module")
def alone(tiny: Path) -> Alone:
    return Alone(tiny)


def failing(call: Callable[..., Any], at: int, error: Exception) -> Callable[..., Any]:
    """`call`, which raises instead the `at`-th time."""
    calls = 0

    def once(*args: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == at:
            raise error
        return call(*args, **options)

    return once


def break_(steps: Steps, what: str, at: int, error: Exception) -> None:
    core: Any = steps.core
    owner, name = {
        "prefill": (core._prefiller, "run"),
        "launch": (core.resident, "launch"),
        "join": (core.resident, "join"),
        "pages": (core.resident, "set_pages"),
        "plan": (core._books, "plan"),
        "booking": (core._books._scheduler, "advance"),
    }[what]
    setattr(owner, name, failing(getattr(owner, name), at, error))


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("what", ["prefill", "launch", "join", "pages", "plan", "booking"])
def test_a_step_that_fails_ends_its_batch_and_the_rest_goes_on(
    tiny: Path, alone: Alone, depth: int, what: str
) -> None:
    steps = Steps(tiny, depth=depth, max_batch=2)
    break_(steps, what, 2, RuntimeError("the dog ate it"))
    names = [steps.submit(prompt, WORDS, stop_ids=()) for prompt in PROMPTS]
    steps.run()
    later = steps.submit(PROMPTS[0], WORDS, stop_ids=())
    steps.run()
    answers = [steps.answers[name] for name in [*names, later]]
    failed = [answer for answer in answers if answer.finish is FinishReason.ERROR]
    assert 1 <= len(failed) <= 2
    for answer in failed:
        assert answer.error is not None
        assert "failed: the dog ate it (RuntimeError; its traceback" in str(answer.error)
    for prompt, answer in zip([*PROMPTS, PROMPTS[0]], answers, strict=True):
        if answer.finish is FinishReason.LENGTH:
            assert answer.tokens == alone(prompt, WORDS, stop_ids=())
    assert answers[-1].finish is FinishReason.LENGTH
    assert steps.core.tally.failures["step"] == 1


@pytest.mark.parametrize("depth", [1, 2])
def test_a_plan_that_fails_after_it_preempted_leaves_no_row_taken(
    tiny: Path, alone: Alone, depth: int
) -> None:
    steps = Steps(tiny, depth=depth, pages=4, prefix_cache=False)
    books: Any = steps.core.books
    plan, lost = books.plan, []

    def plan_or_fail() -> Any:
        made = plan()
        if made.preempted and not lost:
            lost.append(made)
            raise RuntimeError("the plan is lost")
        return made

    books.plan = plan_or_fail
    names = [steps.submit(prompt, greedy(30), stop_ids=()) for prompt in PROMPTS]
    steps.run()
    assert lost
    for name, prompt in zip(names, PROMPTS, strict=True):
        answer = steps.answers[name]
        if name in lost[0].preempted:
            assert answer.finish is FinishReason.LENGTH
        if answer.finish is FinishReason.LENGTH:
            assert answer.tokens == alone(prompt, greedy(30), stop_ids=())


def test_a_plan_that_fails_again_and_again_ends_who_is_next_each_time(
    tiny: Path, alone: Alone
) -> None:
    steps = Steps(tiny)
    books: Any = steps.core.books
    plan = books.plan

    def plan_or_fail() -> Any:
        if any(reply.request_id == poison for reply in books.living()):
            raise TypeError("it cannot be planned")
        return plan()

    poison = steps.submit(PROMPTS[0], WORDS, stop_ids=())
    other = steps.submit(PROMPTS[1], WORDS, stop_ids=())
    books.plan = plan_or_fail
    steps.run(most=30)
    assert steps.answers[poison].finish is FinishReason.ERROR
    assert "it cannot be planned" in str(steps.answers[poison].error)
    assert steps.answers[other].tokens == alone(PROMPTS[1], WORDS, stop_ids=())
    assert steps.core.tally.failures["step"] == 1


def test_steps_that_fail_with_nobody_to_end_fail_the_engine(tiny: Path) -> None:
    steps = Steps(tiny)
    core: Any = steps.core
    core._step = failing(core._step, 1, ValueError("once"))
    steps.step()
    steps.step()  # it went well: what failed before does not count any more

    def fail() -> None:
        raise ValueError("for ever")

    core._step = fail
    for _ in range(7):
        steps.step()
    with pytest.raises(ValueError, match="for ever"):
        steps.step()


def test_a_launch_that_was_queued_before_the_fault_is_still_read(tiny: Path, alone: Alone) -> None:
    steps = Steps(tiny, depth=2, steps_per_launch=4)
    break_(steps, "launch", 3, RuntimeError("lost"))
    short = steps.submit(PROMPTS[1], greedy(3), stop_ids=())
    long = steps.submit(PROMPTS[0], greedy(12), stop_ids=())
    steps.run()
    assert steps.answers[short].finish is FinishReason.LENGTH
    assert steps.answers[short].tokens == alone(PROMPTS[1], greedy(3), stop_ids=())
    assert steps.answers[long].finish is FinishReason.ERROR
    assert len(steps.answers[long].tokens) == 5  # one in the first launch, four in the second


def test_a_device_fault_is_not_swallowed(tiny: Path) -> None:
    steps = Steps(tiny)
    break_(steps, "launch", 2, torch.AcceleratorError("CUDA error: an illegal memory access"))
    steps.submit(PROMPTS[0], WORDS)
    steps.step()
    with pytest.raises(torch.AcceleratorError):
        steps.step()


@pytest.mark.parametrize(
    ("error", "is_fault"),
    [
        (torch.AcceleratorError("CUDA error: unspecified launch failure"), True),
        (RuntimeError("CUDA error: device-side assert triggered"), True),
        (torch.OutOfMemoryError("CUDA out of memory"), False),
        (RuntimeError("shape mismatch"), False),
        (ValueError("CUDA error"), False),
    ],
)
def test_a_device_fault_is_told_from_others(error: Exception, is_fault: bool) -> None:
    assert is_device_fault(error) == is_fault


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose token 90 has no numbers for an embedding, only NaN."""
    folder = tmp_path_factory.mktemp("broken") / "tiny"
    model = write("llama", folder)
    with torch.no_grad():
        model.get_input_embeddings().weight[90] = torch.nan
    model.save_pretrained(folder)
    for shard in folder.glob("model-*.safetensors"):
        shard.unlink()
    (folder / "model.safetensors.index.json").unlink()
    model.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("params", [WORDS, SamplingParams(max_tokens=9, top_p=0.9)], ids=str)
def test_logits_that_are_no_numbers_end_their_request_alone(
    broken: Path, depth: int, params: SamplingParams
) -> None:
    good = [[7, 8, 9], [5] * 30]
    ideal = [Alone(broken)(prompt, params, stop_ids=()) for prompt in good]
    steps = Steps(broken, depth=depth)
    whole = [steps.submit(prompt, params, stop_ids=()) for prompt in good]
    bad = [steps.submit(prompt, params) for prompt in ([4, 90, 6], [90], [3] * 40 + [90] + [3] * 9)]
    steps.run()
    for name in bad:
        assert steps.answers[name].finish is FinishReason.ERROR
        assert steps.answers[name].tokens == []
        assert "not numbers" in str(steps.answers[name].error)
    assert [steps.answers[name].tokens for name in whole] == ideal
    assert steps.core.tally.failures["OST5143"] == 3


def test_what_a_broken_request_computed_is_not_found_by_others(broken: Path) -> None:
    steps = Steps(broken, prefill_tokens=16)
    for _ in range(2):
        steps.submit([3] * 20 + [90] + [3] * 40, WORDS)
        steps.run()
    # The first page and a bit is sound; what follows token 90 is not.
    assert steps.core.books.counts().cached_tokens <= 16


def state_of(folder: Path) -> dict[str, torch.Tensor]:
    from transformers import AutoModelForCausalLM

    return dict(AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).state_dict())


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("other") / "tiny"
    model = write("llama", folder)
    torch.manual_seed(77)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.1)
    model.save_pretrained(folder, max_shard_size="100KB")
    return folder


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("form", ["folder", "state"])
def test_new_weights_answer_as_if_they_had_been_loaded_and_nothing_is_recorded_anew(
    tiny: Path, other: Path, depth: int, form: str
) -> None:
    steps = Steps(tiny, depth=depth, backend="tape")
    for _ in range(2):
        steps.submit(PROMPTS[0], WORDS, stop_ids=())
        steps.run()
    before = steps.core.resident.report().recordings
    steps.core.update_weights(other if form == "folder" else state_of(other))
    name = steps.submit(PROMPTS[0], WORDS, stop_ids=())
    steps.run()
    assert steps.answers[name].tokens == Alone(other)(PROMPTS[0], WORDS, stop_ids=())
    assert steps.answers[name].tokens != Alone(tiny)(PROMPTS[0], WORDS, stop_ids=())
    report = steps.core.resident.report()
    assert report.recordings == before
    assert report.reasons == {}


@pytest.mark.parametrize("depth", [1, 2])
def test_restarted_requests_go_on_with_the_new_weights_from_what_they_have(
    tiny: Path, other: Path, depth: int
) -> None:
    long = greedy(40)
    steps = Steps(tiny, depth=depth)
    name = steps.submit(PROMPTS[0], long, stop_ids=())
    for _ in range(3):
        steps.step()
    steps.core.update_weights(other, "restart")
    steps.run()
    tokens = steps.answers[name].tokens
    assert len(tokens) == 40
    old = Alone(tiny)(PROMPTS[0], long, stop_ids=())
    # Those under way were computed with the old weights.
    kept = next(at for at in range(40) if tokens[at] != old[at])
    assert kept >= 8
    new = Alone(other)
    assert any(
        tokens[at:] == new([*PROMPTS[0], *tokens[:at]], greedy(40 - at), stop_ids=())
        for at in range(8, kept + 1)
    )


@pytest.mark.parametrize("in_flight", ["finish", "restart"])
def test_requests_in_flight_end_well_and_leave_no_old_page_to_be_found(
    tiny: Path, other: Path, in_flight: Any
) -> None:
    steps = Steps(tiny, depth=2)
    for prompt in PROMPTS:
        steps.submit(prompt, greedy(30), stop_ids=())
    for _ in range(3):
        steps.step()
    steps.core.update_weights(other, in_flight)
    steps.run()
    name = steps.submit(PROMPTS[2], WORDS, stop_ids=())
    steps.run()
    assert steps.answers[name].tokens == Alone(other)(PROMPTS[2], WORDS, stop_ids=())


def test_weights_that_do_not_fit_change_nothing(tiny: Path, other: Path, alone: Alone) -> None:
    steps = Steps(tiny)
    state = state_of(other)
    state["model.norm.weight"] = torch.zeros(3)
    with pytest.raises(UsageError, match=r"model\.norm\.weight has the shape"):
        steps.core.update_weights(state)
    name = steps.submit(PROMPTS[0], WORDS, stop_ids=())
    steps.run()
    assert steps.answers[name].tokens == alone(PROMPTS[0], WORDS, stop_ids=())
