"""Fitting: equal situations get equal signatures, also when they are recognised at a glance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from ostinato.graphs import Buckets, Reason
from ostinato.graphs.fitting import Fitting, Situation
from ostinato.graphs.memo import Memo
from ostinato.graphs.signature import differences


def step(x: Tensor, y: Any = None, **more: Any) -> Tensor:
    return x


def sign(fitting: Fitting, *args: Any, training: tuple[bool, ...] = (), **kw: Any) -> Situation:
    leaves, structure = fitting.open(args, kw)
    return fitting.sign(leaves, structure, training)


def test_a_call_that_came_before_gets_the_very_same_signature() -> None:
    fitting = Fitting(step, {})
    first = sign(fitting, torch.ones(3), 2.0)
    again = sign(fitting, torch.zeros(3), 2.0)
    assert again is first
    assert again.signature is first.signature


def ones(*shape: int, **options: Any) -> Tensor:
    return torch.ones(*shape, **options)


SHARED = torch.ones(12)
# Each differs from `(ones(4), 1.5, ones(4))` in one thing that a recording depends on.
CHANGED: dict[str, Callable[[], tuple[Any, ...]]] = {
    "shape": lambda: (ones(5), 1.5, ones(4)),
    "more-dimensions": lambda: (ones(2, 2), 1.5, ones(4)),
    "stride": lambda: (ones(8)[::2], 1.5, ones(4)),
    "dtype": lambda: (ones(4, dtype=torch.float64), 1.5, ones(4)),
    "gradient": lambda: (ones(4, requires_grad=True), 1.5, ones(4)),
    "value": lambda: (ones(4), 2.5, ones(4)),
    "kind-of-value": lambda: (ones(4), True, ones(4)),
    "none": lambda: (ones(4), None, ones(4)),
    "value-for-tensor": lambda: (ones(4), 1.5, 3),
    "tensor-for-value": lambda: (ones(4), ones(1), ones(4)),
    "overlap": lambda: (SHARED[:4], 1.5, SHARED[2:6]),
    "same": lambda: (SHARED[:4],) * 1 + (1.5, SHARED[:4]),
    "nested": lambda: ([ones(4)], 1.5, ones(4)),
}


@pytest.mark.parametrize("what", CHANGED)
def test_a_call_that_differs_in_one_thing_is_told_apart(what: str) -> None:
    def three(x: Any, y: Any, z: Any) -> Any:
        return x

    fitting = Fitting(three, {})
    base = sign(fitting, ones(4), 1.5, ones(4))
    assert sign(fitting, ones(4), 1.5, ones(4)).signature is base.signature
    other = sign(fitting, *CHANGED[what]())
    assert other.signature != base.signature
    assert other.signature is not None
    assert base.signature is not None
    assert differences(other.signature, base.signature)
    # And back: neither is taken for the other once both are known.
    assert sign(fitting, ones(4), 1.5, ones(4)).signature == base.signature
    assert sign(fitting, *CHANGED[what]()).signature == other.signature


def _deterministic() -> Any:
    class On:
        def __enter__(self) -> None:
            torch.use_deterministic_algorithms(True)

        def __exit__(self, *_: object) -> None:
            torch.use_deterministic_algorithms(False)

    return On()


def _swapped(read: Callable[[], Any], write: Callable[[Any], None], value: Any) -> Any:
    class Swapped:
        def __enter__(self) -> None:
            self.before = read()
            write(value)

        def __exit__(self, *_: object) -> None:
            write(self.before)

    return Swapped()


SETTINGS: dict[str, Callable[[], Any]] = {
    "no-grad": torch.no_grad,
    "inference": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu"),
    "autocast-half": lambda: torch.autocast("cpu", dtype=torch.float16),
    "deterministic": _deterministic,
    "default-device": lambda: torch.device("meta"),
    "default-dtype": lambda: _swapped(
        torch.get_default_dtype, torch.set_default_dtype, torch.float64
    ),
    "matmul-precision": lambda: _swapped(
        torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "medium"
    ),
}


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("tensors", [0, 1])
def test_a_setting_that_changes_results_changes_the_signature(setting: str, tensors: int) -> None:
    fitting = Fitting(step, {})
    given = (ones(4) if tensors else 1,)
    base = sign(fitting, *given).signature
    assert sign(fitting, *given).signature is base
    with SETTINGS[setting]():
        inside = sign(fitting, *given).signature
        assert inside != base
        assert sign(fitting, *given).signature == inside
    assert sign(fitting, *given).signature is base


def test_the_two_fast_matmul_precisions_are_told_apart() -> None:
    fitting = Fitting(step, {})
    keys = []
    for precision in ("high", "medium", "high"):
        with _swapped(
            torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, precision
        ):
            keys.append(sign(fitting, ones(4)).signature)
    assert keys[0] == keys[2] != keys[1]


def test_two_default_devices_are_told_apart() -> None:
    fitting = Fitting(step, {})
    with torch.device("cpu"):
        first = sign(fitting, ones(4)).signature
    with torch.device("meta"):
        assert sign(fitting, torch.ones(4, device="cpu")).signature != first


def test_inference_mode_is_told_from_no_grad() -> None:
    fitting = Fitting(step, {})
    with torch.no_grad():
        base = sign(fitting, 1).signature
        with torch.inference_mode():
            assert sign(fitting, 1).signature != base


def test_training_flags_change_the_signature() -> None:
    fitting = Fitting(step, {})
    keys = [sign(fitting, ones(4), training=t).signature for t in ((True,), (False,), (True,))]
    assert keys[0] == keys[2] != keys[1]


def test_more_situations_than_are_remembered_at_once_still_get_equal_signatures() -> None:
    fitting = Fitting(step, {})
    first = [sign(fitting, ones(n)).signature for n in range(1, 40)]
    assert [sign(fitting, ones(n)).signature for n in range(1, 40)] == first
    assert len(set(first)) == 39


def test_a_size_is_rounded_up_and_its_padding_told() -> None:
    fitting = Fitting(step, {"x": Buckets(dim=1, sizes=(4, 8)), "y": Buckets(dim=0, sizes=(4, 8))})
    for _ in range(2):  # described, then recognised
        situation = sign(fitting, ones(2, 5), ones(5))
        assert situation.sizes == (5,)
        assert situation.padded_rows == 3
        assert situation.signature == sign(fitting, ones(2, 7).t().t(), ones(7)).signature
        assert situation.signature != sign(fitting, ones(2, 5), ones(6)).signature
        assert situation.signature != sign(fitting, ones(2, 3), ones(3)).signature


@pytest.mark.parametrize(("size", "reason"), [(0, Reason.EMPTY_BATCH), (9, Reason.OUTSIDE_BUCKETS)])
def test_a_size_that_fits_no_bucket_has_no_signature(size: int, reason: Reason) -> None:
    fitting = Fitting(step, {"x": Buckets(dim=0, sizes=(8,))})
    situation = sign(fitting, ones(size))
    assert situation.signature is None
    assert situation.unfit is not None
    assert situation.unfit[0] is reason
    assert sign(fitting, ones(8)).signature is not None


def test_a_memo_keeps_no_tensor_and_no_object_alive() -> None:
    import gc
    import weakref

    class Thing:
        pass

    tensor, thing = ones(3), Thing()
    gone = [weakref.ref(tensor), weakref.ref(thing)]
    memo = Memo([tensor, thing], (), None)
    assert memo.holds([tensor, thing], ())
    assert not memo.holds([tensor, Thing()], ())
    del tensor, thing
    gc.collect()
    assert [ref() for ref in gone] == [None, None]


def test_recognising_a_call_agrees_with_describing_it(monkeypatch: pytest.MonkeyPatch) -> None:
    quick, slow = Fitting(step, {}), Fitting(step, {})
    calls = [(ones(n, m), v) for n in (1, 2) for m in (1, 3) for v in (0.0, -0.0, 1, True, "a")]
    found = [sign(quick, *call).signature for call in calls for _ in range(2)][::2]
    monkeypatch.setattr("ostinato.graphs.fitting.try_memo", lambda *_: None)
    assert [sign(slow, *call).signature for call in calls] == found
    assert not slow._memos
    assert quick._memos
