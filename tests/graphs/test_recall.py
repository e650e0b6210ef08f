"""A call that is as one before is answered at a glance; whatever differs goes the long way."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ostinato.graphs import Outcome, Reason, Runner, graphed
from ostinato.graphs.inline import recording_here
from ostinato.graphs.player import Player
from ostinato.graphs.recall import Recall
from ostinato.graphs.watch import recalls

pytest.importorskip("ostinato.graphs._unchanged")


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.shift = 0.5
        self.tags = {"a", "b"}

    def forward(self, x: Tensor, y: Tensor, by: float = 1.0, flag: bool = True) -> Tensor:
        return self.linear(x) * by + y + (self.shift if flag and "a" in self.tags else 0.0)


@pytest.fixture(autouse=True)
def _no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


@pytest.fixture
def module(device: torch.device) -> Scaled:
    return Scaled().to(device).eval().requires_grad_(False)


@pytest.fixture
def call(device: torch.device) -> tuple[Tensor, Tensor]:
    return torch.randn(2, 4, device=device), torch.randn(2, 4, device=device)


@contextmanager
def counting_the_long_way(monkeypatch: pytest.MonkeyPatch, runner: Runner[..., Any]) -> Any:
    player, ways = runner._player, []
    original = player._open

    def opened(*call: Any) -> Any:
        ways.append(call)
        return original(*call)

    with monkeypatch.context() as patch:
        patch.setattr(player, "_open", opened)
        yield ways


def recalled(module: Callable[..., Any], *args: Any, **kwargs: Any) -> Runner[..., Any]:
    """Return a runner that answers this call at a glance."""
    runner = graphed(module, admit_after=1)
    for _ in range(4):
        runner(*args, **kwargs)
    known = runner._player._recalls.known
    assert len(known) == 1
    assert recalls(known[0].then, args, kwargs)
    return runner


def test_the_long_way_is_gone_until_a_call_was_seen_twice(
    module: Scaled, call: tuple[Tensor, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = recalled(module, *call)
    with counting_the_long_way(monkeypatch, runner) as ways:
        for _ in range(3):
            others = [torch.randn_like(tensor) for tensor in call]
            torch.testing.assert_close(runner(*others), module(*others))
        assert not ways
        runner(call[0][:1], call[1])
        assert len(ways) == 1
    report = runner.report()
    assert (report.calls, report.recordings, report.replays) == (8, 2, 6)


def test_names_may_be_given_in_any_order(
    module: Scaled, call: tuple[Tensor, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = call
    runner = recalled(module, y=y, x=x, flag=False)
    with counting_the_long_way(monkeypatch, runner) as ways:
        torch.testing.assert_close(runner(y=x, x=y, flag=False), module(x=y, y=x, flag=False))
        assert not ways
        torch.testing.assert_close(runner(x=x, flag=False, y=y), module(x=x, y=y, flag=False))
        assert ways
    assert len(runner.report().graphs) == 1


def test_another_name_is_another_call(module: Scaled, call: tuple[Tensor, Tensor]) -> None:
    x, y = call
    runner = recalled(module, x, y=y)
    check_agreement(runner, (x,), {"by": y}, expected=False)
    check_agreement(runner, (x,), {"y": y}, expected=True)


def test_calls_that_alternate_are_all_known(
    module: Scaled, call: tuple[Tensor, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = [(call[0][:rows], call[1][:rows]) for rows in (1, 2)]
    runner = graphed(module, admit_after=1)
    for _ in range(4):
        for each in calls:
            runner(*each)
    with counting_the_long_way(monkeypatch, runner) as ways:
        for each in calls:
            torch.testing.assert_close(runner(*each), module(*each))
    assert not ways


# Whatever differs. `Python` is the long way, which looks at everything again.

Given = tuple[tuple[Any, ...], dict[str, Any]]
CALLS: dict[str, Callable[[Tensor, Tensor], Given]] = {
    "alike": lambda x, y: ((x.clone(), y.clone()), {}),
    "another-shape": lambda x, y: ((x[:1], y), {}),
    "more-dimensions": lambda x, y: ((x[None], y), {}),
    "strides": lambda x, y: ((x.t().contiguous().t(), y), {}),
    "dtype": lambda x, y: ((x, y.double()), {}),
    "a-subclass": lambda x, y: ((x, y.as_subclass(Sub)), {}),
    "a-parameter": lambda x, y: ((x, nn.Parameter(y, requires_grad=False)), {}),
    "a-number": lambda x, y: ((x, 1.0), {}),
    "one-more": lambda x, y: ((x, y, 1.0), {}),
    "by-name": lambda x, y: ((x,), {"y": y}),
    "the-same-twice": lambda x, y: ((x, x), {}),
    "overlapping": lambda x, y: (torch.cat([x, y]).unfold(0, 2, 1).mT[:2].unbind(), {}),
    "negated-on-reading": lambda x, y: ((x, torch._neg_view(y)), {}),
    "requires-grad": lambda x, y: ((x, y.clone().requires_grad_()), {}),
    "on-meta": lambda x, y: ((x, y.to("meta")), {}),
}


class Sub(Tensor):
    pass


@pytest.mark.parametrize("kind", CALLS)
def test_a_glance_and_the_long_way_agree_on_a_call(
    kind: str, module: Scaled, call: tuple[Tensor, Tensor]
) -> None:
    runner = recalled(module, *call)
    args, kwargs = CALLS[kind](*call)
    check_agreement(runner, args, kwargs, expected=kind == "alike")


def test_the_number_of_a_call_is_compared_by_identity_first(
    module: Scaled, call: tuple[Tensor, Tensor]
) -> None:
    runner = recalled(module, *call, 2.0)
    check_agreement(runner, (*call, 3.0), {}, expected=False)
    check_agreement(runner, (*call, True), {}, expected=False)
    known = runner._player._recalls.known[0]
    same = float("2.0")
    assert not recalls(known.then, (*call, same), {})  # too careful: the long way
    torch.testing.assert_close(runner(*call, same), module(*call, same))


@contextmanager
def setting(get: Callable[[], Any], put: Callable[[Any], Any], value: Any) -> Iterator[None]:
    before = get()
    put(value)
    try:
        yield
    finally:
        put(before)


SETTINGS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "nothing": nullcontext,
    "gradients": torch.enable_grad,
    "inference": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "a-device": lambda: torch.device("meta"),
    "dtype": lambda: setting(torch.get_default_dtype, torch.set_default_dtype, torch.float64),
    "precision": lambda: setting(
        torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "medium"
    ),
    "deterministic": lambda: setting(
        torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms, True
    ),
    "attention": lambda: setting(
        torch.backends.cuda.math_sdp_enabled, torch.backends.cuda.enable_math_sdp, False
    ),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_glance_and_the_long_way_agree_on_settings(
    name: str, module: Scaled, call: tuple[Tensor, Tensor]
) -> None:
    runner = recalled(module, *call)
    with SETTINGS[name]():
        check_agreement(runner, call, {}, expected=name == "nothing")
    check_agreement(runner, call, {}, expected=True)


CHANGES: dict[str, Callable[[Scaled], Any]] = {
    "in-place": lambda m: m.linear.weight.mul_(2),
    "data": lambda m: setattr(m.linear.weight, "data", m.linear.weight.data.clone()),
    "turned": lambda m: setattr(m.linear.weight, "data", m.linear.weight.data.t()),
    "negated": lambda m: setattr(m.linear.bias, "data", torch._neg_view(m.linear.bias.data)),
    "assigned": lambda m: m.linear.load_state_dict(
        {name: value.clone() for name, value in m.linear.state_dict().items()}, assign=True
    ),
    "swapped": lambda m: torch.utils.swap_tensors(
        m.linear.bias, nn.Parameter(torch.ones_like(m.linear.bias), requires_grad=False)
    ),
    "attribute": lambda m: setattr(m, "shift", 0.25),
    "set-in-place": lambda m: m.tags.discard("a"),
    "training": lambda m: m.train(),
    "training-below": lambda m: m.linear.train(),
    "hook": lambda m: m.linear.register_forward_hook(lambda module, args, out: out * 2),
    "replaced": lambda m: setattr(m, "linear", nn.Identity()),
}


@pytest.mark.filterwarnings("ignore::ostinato.graphs.OstinatoWarning")
@pytest.mark.parametrize("change", CHANGES)
def test_a_glance_and_the_long_way_agree_on_what_a_call_reaches(
    change: str, module: Scaled, call: tuple[Tensor, Tensor]
) -> None:
    runner = recalled(module, *call)
    CHANGES[change](module)
    check_agreement(runner, call, {}, expected=change == "in-place")
    for _ in range(4):
        torch.testing.assert_close(runner(*call), module(*call))


def check_agreement(
    runner: Runner[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], *, expected: bool
) -> None:
    """Ask both ways whether the recording may answer; answer nothing."""
    player = runner._player
    known = player._recalls.known[0]
    at_a_glance = recalls(known.then, args, kwargs) and known.may_answer(args, kwargs)
    the_long_way = _in_python(player, known, args, kwargs)
    assert (at_a_glance, the_long_way) == (expected, expected)


def _in_python(
    player: Player, known: Recall, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> bool:
    watch = player.watches._watches[()]
    if not watch.compared()[0].hold():
        return False
    leaves, structure = player._open(args, kwargs)
    found = player._sign(leaves, structure, watch.training_key())
    return found.signature == known.situation.signature and known.graph.addresses.hold()


# What it holds, and for how long.


def test_a_recording_that_is_dropped_is_let_go_with_what_it_read(
    module: Scaled, call: tuple[Tensor, Tensor]
) -> None:
    runner = recalled(module, *call)
    weight = weakref.ref(module.linear.weight)
    static = weakref.ref(runner._store.graphs()[0].inputs.tensors[0])
    module.linear = nn.Linear(4, 4).to(call[0].device).requires_grad_(False)
    runner(*call)
    gc.collect()
    assert (weight(), static()) == (None, None)


@pytest.mark.parametrize("how", ["close", "invalidate"])
def test_nothing_is_known_after_the_end(
    how: str, module: Scaled, call: tuple[Tensor, Tensor]
) -> None:
    runner = recalled(module, *call)
    getattr(runner, how)()
    assert runner._player._recalls.known == ()
    torch.testing.assert_close(runner(*call), module(*call))


def test_a_runner_that_its_module_holds_can_be_collected(call: tuple[Tensor, Tensor]) -> None:
    module = Scaled().to(call[0].device).eval().requires_grad_(False)
    object.__setattr__(module, "runner", recalled(module, *call))
    gone = weakref.ref(module)
    del module
    gc.collect()
    assert gone() is None


def test_a_recording_in_use_elsewhere_is_waited_for(
    module: Scaled, call: tuple[Tensor, Tensor]
) -> None:
    runner = recalled(module, *call)
    graph = runner._store.graphs()[0]
    answers: list[Tensor] = []

    def work() -> None:
        with torch.no_grad():
            answers.append(runner(*call))

    with graph.lock:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join(0.05)
        assert not answers
        module.linear.bias.data = torch.ones_like(module.linear.bias)  # it waits, and then looks
    thread.join()
    torch.testing.assert_close(answers[0], module(*call))


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        self.seen.add_(x)
        return self.seen * 2


def test_an_argument_that_shares_memory_with_written_state_goes_the_long_way(
    device: torch.device,
) -> None:
    module = Counting().to(device)
    runner = recalled(module, torch.ones(4, device=device))
    assert runner(module.seen.detach()).tolist() == [16.0] * 4  # 4 + 4, doubled
    assert runner.last is not None
    assert (runner.last.outcome, runner.last.reason) == (Outcome.EAGER, Reason.UNSUPPORTED_INPUT)


def test_a_replay_that_fails_is_given_up(
    module: Scaled, call: tuple[Tensor, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = recalled(module, *call)

    def fail(*args: Any) -> None:
        raise RuntimeError("the device is gone")

    monkeypatch.setattr(runner._store.graphs()[0].inputs, "fill", fail)
    torch.testing.assert_close(runner(*call), module(*call))
    assert runner.last is not None
    assert (runner.last.outcome, runner.last.reason) == (Outcome.EAGER, Reason.REPLAY_ERROR)
    assert runner._player._recalls.known == ()


def test_inside_a_mode_nothing_is_remembered(module: Scaled, call: tuple[Tensor, Tensor]) -> None:
    runner = graphed(module, admit_after=1)
    with torch.device("cpu"):  # another device would be a mode as well, and as many
        for _ in range(4):
            runner(*call)
    assert runner._player._recalls.known == ()


def test_verified_runners_look_at_every_call(module: Scaled, call: tuple[Tensor, Tensor]) -> None:
    runner = graphed(module, admit_after=1, verify_every=2)
    for _ in range(6):
        runner(*call)
    assert runner._player._recalls.known == ()


# What a glance asks that the long way asks elsewhere.


def test_a_setting_that_can_no_longer_be_read_is_not_as_it_was(
    module: Scaled, call: tuple[Tensor, Tensor]
) -> None:
    runner = recalled(module, *call)
    known = runner._player._recalls.known[0]

    def mixed_names() -> str:
        raise RuntimeError("mix of the old and the new names")

    def interrupted() -> str:
        raise KeyboardInterrupt

    then = list(known.then)
    then[3] = (mixed_names, "highest")
    assert not recalls(tuple(then), call, {})
    then[3] = (interrupted, "highest")
    with pytest.raises(KeyboardInterrupt):
        recalls(tuple(then), call, {})


OUTER: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "a recording of ours": recording_here,
    "the compiler": lambda: setting(
        torch.compiler.is_compiling,
        lambda flag: setattr(torch.compiler, "_is_compiling_flag", flag),
        True,
    ),
}


@pytest.mark.parametrize("outer", OUTER)
def test_a_known_call_inside_an_outer_recording_is_plain_code(
    outer: str, module: Scaled, call: tuple[Tensor, Tensor]
) -> None:
    runner = recalled(module, *call)
    calls = runner.report().calls
    with OUTER[outer]():
        torch.testing.assert_close(runner(*call), module(*call))
    assert runner.report().calls == calls
    runner(*call)
    assert runner.report().calls == calls + 1


@pytest.mark.gpu
def test_a_known_call_inside_a_user_s_own_graph_is_plain_code() -> None:
    runner = recalled(lambda x: x * 2, x := torch.ones(4, device="cuda"))
    calls = runner.report().calls
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=torch.cuda.Stream()):
        y = runner(x)
    assert runner.report().calls == calls
    x.fill_(3.0)
    graph.replay()
    assert y.tolist() == [6.0] * 4


def doubled(x: Tensor) -> Tensor:
    return x * 2


def written(x: Tensor) -> Tensor:
    return x.add_(1) * 2


def paired(x: Tensor) -> tuple[Tensor, Tensor]:
    return x * 2, x * 3


@pytest.mark.parametrize(
    ("fn", "is_straight"), [(doubled, True), (written, False), (paired, False)]
)
def test_one_tensor_that_gives_one_goes_straight(
    fn: Callable[[Tensor], Any], is_straight: bool, device: torch.device
) -> None:
    runner = recalled(fn, torch.ones(3, 2, device=device))
    known = runner._player._recalls.known[0]
    ways = (known.straight, known.graph.straight)
    assert [way is not None for way in ways] == [is_straight] * 2
    kept = []
    for value in range(3):
        x, same = (torch.full((3, 2), float(value), device=device) for _ in range(2))
        kept.append((runner(x), fn(same)))
        assert torch.equal(x, same)
    for mine, theirs in kept:  # owned: later calls left them alone
        torch.testing.assert_close(mine, theirs)
    assert runner.report().replays == 6
    assert known.graph.generation >= 6


def test_a_run_that_draws_or_needs_gradients_off_is_not_taken_straight(
    device: torch.device,
) -> None:
    x = torch.ones(3, 2, device=device)
    drawing = recalled(lambda x: nn.functional.dropout(x, 0.5), x)
    assert drawing._player._recalls.known[0].straight is None
    with torch.enable_grad():
        graph = recalled(doubled, x)._store.graphs()[0]
    assert graph.needs_no_grad
    assert graph.straight is None


def test_a_leased_answer_is_not_taken_straight(device: torch.device) -> None:
    runner = graphed(doubled, admit_after=1, outputs="leased")
    x = torch.ones(3, 2, device=device)
    leases = [runner(x) for _ in range(5)]
    assert [lease.is_stale for lease in leases[1:]] == [True, True, True, False]
