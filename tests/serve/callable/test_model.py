"""A batch of requests is one graphed call, padded to a recorded size; each answer its own rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch

from ostinato.errors import OstinatoError, ResourceError, UsageError
from ostinato.graphs import graphed
from ostinato.serve.callable import Array, Servable, TensorSpec
from ostinato.serve.callable.arrays import from_numbers, numbers
from ostinato.serve.callable.declaration import make
from ostinato.serve.callable.model import Model
from serve.callable import small_models


def row(*values: float) -> dict[str, Array]:
    return {"x": from_numbers("x", "FP32", (1, len(values)), list(values))}


def output(answer: Mapping[str, Array] | OstinatoError, name: str = "output") -> list[object]:
    assert not isinstance(answer, OstinatoError)
    return numbers(answer[name])


def test_requests_of_one_batch_are_one_replay_and_padding_is_cut_off() -> None:
    model = Model(small_models.scaled())
    model.warm()
    before = model.runner.report()
    first, second, third = model.run([row(1, 1, 1, 1), row(2, 2, 2, 2), row(3, 0, 0, 0)])
    after = model.runner.report()
    assert output(first) == [1, 2, 3, 4]
    assert output(second) == [2, 4, 6, 8]
    assert output(third) == [3, 0, 0, 0]
    assert (after.replays - before.replays, after.recordings - before.recordings) == (1, 0)
    assert after.padded_rows - before.padded_rows == 1  # 3 rows run on the recording of 4


def test_a_model_that_mixes_rows_answers_each_request_alone_once_padding_shows_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    spec = {"x": TensorSpec("FP32", (-1, 2))}
    model = Model(Servable(lambda x: x - x.mean(0), spec, batch_sizes=(1, 2, 4)))
    model.warm()  # of zeros nothing can be seen
    assert not model.mixes_rows
    for _ in range(2):
        for batch in ([row(1, 2), row(3, 4), row(5, 9)], [row(1, 2), row(3, 4)]):
            assert [output(answer) for answer in model.run(batch)] == [[0, 0]] * len(batch)
    assert model.mixes_rows
    assert sum("rows depend on each other" in each.message for each in caplog.records) == 1


@pytest.mark.parametrize(("count", "place"), [(2, 0), (2, 1), (4, 0), (4, 1), (4, 3)])
def test_a_model_that_mixes_rows_is_seen_before_a_full_batch_is_answered(
    count: int, place: int
) -> None:
    spec = {"x": TensorSpec("FP32", (-1, 2))}
    model = Model(Servable(lambda x: x - x.mean(0), spec, batch_sizes=(1, 2, 4)))
    model.warm()
    same = [row(3, 4)] * count
    assert [output(answer) for answer in model.run(same)] == [[0, 0]] * count
    assert not model.mixes_rows  # of equal rows nothing can be seen, and nothing is wrong
    batch = [*same[:place], row(1, 2), *same[place + 1 :]]
    assert [output(answer) for answer in model.run(batch)] == [[0, 0]] * count
    assert model.mixes_rows


def test_a_batch_that_cannot_be_tried_is_answered_as_ever() -> None:
    model = Model(small_models.picky())
    model.warm()
    for _ in range(2):
        good, bad = model.run([row(1, 2), row(13, 2)])
        assert output(good) == [2, 3]
        assert isinstance(bad, OstinatoError)


def test_a_model_whose_rows_are_independent_goes_on_in_batches() -> None:
    model = Model(small_models.scaled())
    model.warm()
    model.run([row(1, 1, 1, 1), row(2, 2, 2, 2), row(3, 0, 0, 0)])
    assert not model.mixes_rows


def test_a_request_of_several_rows_gets_them_back() -> None:
    model = Model(small_models.scaled())
    model.warm()
    two = {"x": from_numbers("x", "FP32", (2, 4), [1, 1, 1, 1, 2, 2, 2, 2])}
    one, both = model.run([row(9, 9, 9, 9), two])
    assert output(one) == [9, 18, 27, 36]
    assert not isinstance(both, OstinatoError)
    assert both["output"].shape == (2, 4)
    assert output(both) == [1, 2, 3, 4, 2, 4, 6, 8]


def test_outputs_are_described_once_it_is_warm() -> None:
    model = Model(small_models.convolution())
    model.warm()
    assert model.outputs == {"logits": TensorSpec("FP32", (-1, 5))}


def test_a_size_that_follows_the_input_is_described_as_varying() -> None:
    spec = {"x": TensorSpec("FP32", (-1, -1))}
    model = Model(Servable(lambda x: {"up": x + 1, "sum": x.sum(1)}, spec))
    model.warm()
    assert model.outputs == {"up": TensorSpec("FP32", (-1, -1)), "sum": TensorSpec("FP32", (-1,))}


def test_a_convolution_answers_as_eager_does() -> None:
    servable = small_models.convolution()
    model = Model(servable)
    model.warm()
    pixels = torch.randn(3, 3, 8, 8)
    asked = [{"input": Array("FP32", (1, 3, 8, 8), one.numpy().tobytes())} for one in pixels]
    answers = [output(one, "logits") for one in model.run(asked)]
    with torch.no_grad():
        torch.testing.assert_close(torch.tensor(answers), servable.fn(pixels))


def test_one_bad_request_of_a_batch_fails_alone_and_the_log_alone_has_its_words(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = Model(small_models.picky())
    model.warm()
    good, bad, fine = model.run([row(1, 2), row(13, 0), row(5, 6)])
    assert output(good) == [2, 3]
    assert output(fine) == [6, 7]
    assert isinstance(bad, OstinatoError)
    assert bad.code == "OST6055"
    assert "ValueError" in str(bad)
    assert "13 is not taken" not in str(bad)
    assert "13 is not taken" in caplog.text
    assert "Traceback" in caplog.text


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x: (x * 2)[:1],
        lambda x: (x * 2)[:0],
        lambda x: (x * 2).sum(),
        lambda x: (x * 2).double(),
        lambda _: None,
    ],
    ids=["fewer-rows", "no-rows", "one-number", "another-dtype", "nothing"],
)
def test_what_the_description_does_not_promise_is_the_models_fault_and_nobodys_answer(
    wrong: Callable[[torch.Tensor], object],
) -> None:
    def sometimes(x: torch.Tensor) -> object:
        return wrong(x) if bool(x[0, 0] > 0) else x * 2

    model = Model(Servable(sometimes, {"x": TensorSpec("FP32", (-1, 4))}))
    model.warm()
    two = {"x": from_numbers("x", "FP32", (2, 4), [1.0] * 8)}
    (answer,) = model.run([two])
    assert isinstance(answer, ResourceError)
    assert answer.code == "OST6055"
    (fine,) = model.run([row(-1, 0, 0, 0)])
    assert output(fine) == [-2, 0, 0, 0]


@pytest.mark.parametrize("made", [lambda x: x, lambda x: (x,), lambda x: {"y": x}])
def test_fewer_outputs_than_are_named_are_refused_before_traffic_comes(
    made: Callable[[torch.Tensor], object],
) -> None:
    declared = Servable(made, {"x": TensorSpec("FP32", (-1, 4))}, outputs=("y", "z"))
    with pytest.raises(UsageError, match=r"'z'|1 outputs, and 2 are named"):
        Model(declared).warm()


def test_padding_is_a_row_that_the_model_is_known_to_take() -> None:
    table = torch.nn.Embedding(5, 2)

    def look_up(ids: torch.Tensor) -> torch.Tensor:
        return table(ids - 1)  # a row of zeros is none of these

    model = Model(Servable(look_up, {"ids": TensorSpec("INT64", (-1,))}, batch_sizes=(1, 4)))
    asked = [{"ids": from_numbers("ids", "INT64", (1,), [n])} for n in (1, 2, 3)]
    answers = model.run(asked)
    assert [output(one) for one in answers] == table.weight[:3].tolist()
    assert model.runner.report().reasons == {}  # else it could not be recorded with the padding


def test_what_is_graphed_already_keeps_its_own_options() -> None:
    runner = graphed(small_models.Scaled().eval(), admit_after=1)
    model = Model(Servable(runner, {"x": TensorSpec("FP32", (-1, 4))}, batch_sizes=(1, 2)))
    assert model.runner is runner
    model.warm()
    assert runner.report().recordings == 2


def test_bfloat16_goes_in_and_comes_out() -> None:
    model = Model(Servable(lambda x: x * 2, {"x": TensorSpec("BF16", (-1, 2))}))
    model.warm()
    [answer] = model.run([{"x": from_numbers("x", "BF16", (1, 2), [1.5, -3.0])}])
    assert output(answer) == [3.0, -6.0]


@pytest.mark.parametrize(
    ("fn", "inputs", "said"),
    [
        (lambda x: x.sum(), ("x",), "for 1 rows"),
        (lambda x: (x, 3), ("x",), "no tensor"),
        (lambda x: "text", ("x",), "returned a str"),
        (lambda x: x, ("y",), "no argument of the callable"),
    ],
)
def test_a_callable_that_cannot_be_served_is_refused(
    fn: Callable[..., object], inputs: tuple[str, ...], said: str
) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        Model(Servable(fn, {name: TensorSpec("FP32", (-1, 4)) for name in inputs})).warm()
    assert caught.value.code == "OST6052"


SPEC = TensorSpec("FP32", (-1, 4))


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("fn", 3, "fn is 3, a int"),
        ("inputs", SPEC, "inputs is TensorSpec.*TensorSpec"),
        ("inputs", {}, "inputs is {}, a dict"),
        ("inputs", {"x": (-1, 4)}, "inputs is .*a dict"),
        ("inputs", {0: SPEC}, "inputs is .*a dict"),
        ("inputs", ("x",), "inputs is .*a tuple"),
        ("outputs", {"y": SPEC}, "outputs is .*a dict"),
        ("outputs", "logits", "outputs is 'logits', a str"),
        ("outputs", (SPEC,), "outputs is .*a tuple"),
        ("outputs", {"a", "b"}, "outputs is .*a set"),
        ("outputs", None, "outputs is None"),
        ("batch_sizes", 8, "batch_sizes is 8, a int"),
        ("batch_sizes", (), "batch_sizes is ()"),
        ("batch_sizes", (0, 1), "batch_sizes is "),
        ("batch_sizes", ("1",), "batch_sizes is "),
        ("version", 7, "version is 7, a int"),
        ("warm", {"x": (4,)}, "warm is .*a dict"),
        ("warm", [{"y": (4,)}], "warm is .*a list"),
        ("warm", [{"x": 4}], "warm is .*a list"),
        ("warm", [{"x": (1, 4)}], "warm is .*a list"),
    ],
)
def test_a_declaration_of_a_wrong_type_is_refused(field: str, value: object, said: str) -> None:
    fields: dict[str, Any] = {"fn": lambda x: x, "inputs": {"x": SPEC}, field: value}
    with pytest.raises(UsageError, match=said) as caught:
        Servable(**fields)
    assert caught.value.code == "OST6052"


def test_a_callable_that_fails_on_zeros_says_so() -> None:
    def broken(x: torch.Tensor) -> torch.Tensor:
        raise KeyError("weights")

    with pytest.raises(OstinatoError, match="KeyError") as caught:
        Model(Servable(broken, {"x": TensorSpec("FP32", (-1, 4))})).warm()
    assert caught.value.code == "OST6055"


def test_a_factory_is_found_by_its_path() -> None:
    assert make("serve.callable.small_models:scaled").inputs == {"x": TensorSpec("FP32", (-1, 4))}


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("small_models", "no path to a factory"),
        ("no_such_module:factory", "No module named"),
        ("serve.callable.small_models:absent", "AttributeError"),
        ("serve.callable.small_models:unfit", "returned a int"),
    ],
)
def test_a_path_that_leads_to_no_factory_is_refused(path: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        make(path)
    assert caught.value.code == "OST6052"


@pytest.mark.parametrize("raised", [SystemExit(3), KeyboardInterrupt()])
def test_what_is_meant_to_end_a_program_fails_one_request_alone(raised: BaseException) -> None:
    def leave(x: torch.Tensor) -> torch.Tensor:
        if bool((x == 13).any()):
            raise raised
        return x + 1

    model = Model(Servable(leave, {"x": TensorSpec("FP32", (-1, 2))}, batch_sizes=(1, 2, 4)))
    model.warm()
    good, bad, fine = model.run([row(1, 2), row(13, 0), row(5, 6)])
    assert (output(good), output(fine)) == ([2, 3], [6, 7])
    assert isinstance(bad, OstinatoError)
    assert bad.code == "OST6055"
    assert type(raised).__name__ in str(bad)


def test_a_callable_that_would_end_the_program_at_its_warm_up_is_told() -> None:
    def leave(x: torch.Tensor) -> torch.Tensor:
        raise SystemExit(3)

    with pytest.raises(ResourceError, match="SystemExit") as caught:
        Model(Servable(leave, {"x": TensorSpec("FP32", (-1, 2))})).warm()
    assert caught.value.code == "OST6055"
