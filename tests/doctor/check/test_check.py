"""A check: pretended GPUs, assumed values, what is left as it was, and where it abstains."""

from __future__ import annotations

import inspect
import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from ostinato import graphed
from ostinato.doctor.check.run import check
from ostinato.doctor.check.verdict import Checked, Verdict
from ostinato.errors import UsageError

DEVICE = "cuda"


def check_step(step: object, *args: object) -> Checked:
    return check(lambda: (step, args), target="step")


def gpu(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.zeros(*shape, dtype=dtype, device=DEVICE)


def test_a_model_too_large_for_this_machine_is_checked_without_its_memory() -> None:
    def example() -> object:
        layers = nn.Sequential(*(nn.Linear(65_536, 65_536) for _ in range(8))).to(DEVICE)
        return layers.half().eval(), gpu(1, 65_536, dtype=torch.float16)

    checked = check(example)
    assert checked.verdict is Verdict.CAPTURABLE
    assert checked.estimate is not None
    assert checked.estimate.moved_bytes > 60e9
    assert checked.estimate.gpu_us > 10_000


def test_nothing_of_torch_is_changed_afterwards() -> None:
    before = (
        torch.cuda.is_available(),
        torch.cuda.is_available,
        torch.Generator,
        torch.cuda.Stream,
        torch.cuda.current_device,
        nn.Module._apply,
        torch.cuda.default_generators,
        torch.get_rng_state().tolist(),
        random.getstate(),
        torch._C._len_torch_dispatch_stack(),
        torch._C._len_torch_function_stack(),
        torch.is_autocast_enabled("cuda"),
    )

    def step(x: Tensor) -> Tensor:
        with torch.autocast(DEVICE):
            random.random()
            return x @ torch.rand(3, 3).to(DEVICE)

    check(lambda: (step, gpu(2, 3)))
    after = (
        torch.cuda.is_available(),
        torch.cuda.is_available,
        torch.Generator,
        torch.cuda.Stream,
        torch.cuda.current_device,
        nn.Module._apply,
        torch.cuda.default_generators,
        torch.get_rng_state().tolist(),
        random.getstate(),
        torch._C._len_torch_dispatch_stack(),
        torch._C._len_torch_function_stack(),
        torch.is_autocast_enabled("cuda"),
    )
    assert after == before


def test_what_the_call_changed_in_real_objects_is_put_back() -> None:
    class Keeps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(3))
            self.total: Tensor
            self.calls: list[int] = []

        def forward(self, x: Tensor) -> Tensor:
            self.calls.append(1)
            self.total += x
            return self.total * 2

    kept = Keeps()
    checked = check(lambda: (kept, torch.ones(3)))
    assert checked.reason == "python-side-effect"
    assert kept.calls == []
    assert kept.total.tolist() == [0, 0, 0]


def test_autocast_for_cuda_casts_as_on_a_gpu() -> None:
    linear, norm = nn.Linear(4, 4), nn.LayerNorm(4)
    low, full = torch.bfloat16, torch.float32

    def step(x: Tensor) -> Tensor:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            y = linear(x)
            z = norm(y)
            with torch.autocast("cuda", enabled=False):
                w = linear(x)
            dtypes = (y.dtype, z.dtype, y.softmax(-1).dtype, w.dtype, y.relu().dtype)
            if dtypes != (low, full, full, full, low):
                raise RuntimeError(dtypes)
        return linear(x) + z

    checked = check(lambda: (step, torch.ones(2, 4)))
    assert checked.verdict is Verdict.CAPTURABLE, checked.blockers
    assert "asks for a dtype under autocast" in checked.answers[7].evidence


@pytest.mark.parametrize("condition", [True, False])
def test_both_sides_of_a_branch_on_a_value_are_looked_at(condition: bool) -> None:
    def step(x: Tensor) -> Tensor:
        if bool((x > 0).any()) is condition:
            return x * 2
        return x[x > 0]

    checked = check_step(step, torch.ones(3))
    assert [each.reason for each in checked.blockers] == ["host-sync", "data-dependent-shape"]
    assert [each.is_branch for each in checked.blockers] == [True, False]
    assert [each.behind_assumption for each in checked.blockers] == [False, True]
    assert checked.verdict is Verdict.NOT_CAPTURABLE


def test_a_loop_that_no_answer_ends_is_given_up_and_said() -> None:
    def step(x: Tensor) -> Tensor:
        while x.sum().item() < 10:
            x = x + 1
        return x

    checked = check_step(step, torch.ones(3))
    assert checked.reason == "host-sync"
    assert checked.blockers[0].times >= 64
    assert "does not end" in checked.gaps[0].what


def test_values_of_the_host_are_computed_and_not_assumed() -> None:
    def step(x: Tensor) -> Tensor:
        for _ in range(int(torch.arange(4).sum())):
            x = x + 1
        return x

    checked = check_step(step, torch.ones(3))
    assert checked.assumed == 0
    assert checked.estimate is not None
    assert checked.estimate.calls == 6


def test_an_op_that_nobody_can_run_without_contents_leaves_the_verdict_open() -> None:
    @torch.library.custom_op("ostinato_check_tests::opaque", mutates_args=())
    def opaque(x: Tensor) -> Tensor:
        return x.clone()

    checked = check(lambda: (lambda x: opaque(x * 2), gpu(3)))
    assert checked.verdict is Verdict.UNKNOWN
    assert checked.estimate is None
    assert checked.gaps[0].place is not None
    assert "register_fake" in checked.gaps[0].settles_it
    assert {str(each.holds) for each in checked.answers} == {"unknown"}


def test_a_graphed_callable_is_checked_as_what_it_wraps() -> None:
    checked = check(lambda: (graphed(nn.Linear(4, 4)), torch.ones(2, 4)))
    assert checked.verdict is Verdict.CAPTURABLE


def test_arguments_left_on_the_host_are_said() -> None:
    checked = check(lambda: (nn.Linear(4, 4).to(DEVICE), torch.ones(2, 4)))
    assert checked.reason == "several-devices"
    assert "arguments and weights lie on cpu and cuda:0" in checked.blockers[0].detail


def test_tensors_of_two_devices_in_one_call_are_said_and_the_run_goes_on() -> None:
    def step(x: Tensor, y: Tensor) -> Tensor:
        z = x + y.cpu()
        return z[z > 0]

    checked = check(lambda: (step, (gpu(3), gpu(3))))
    reasons = [each.reason for each in checked.blockers]
    assert reasons == ["host-sync", "host-copy", "data-dependent-shape", "several-devices"]
    assert "eager fails on a GPU too" in checked.blockers[3].detail


def test_compiled_code_that_replays_graphs_of_its_own_is_in_the_way() -> None:
    def example(**options: str) -> object:
        inner = torch.compile(nn.Linear(4, 4), **options)
        return (lambda x: inner(x) + 1), torch.ones(2, 4)

    assert check(example).verdict is Verdict.CAPTURABLE
    checked = check(lambda: example(mode="reduce-overhead"))
    assert checked.reason == "compiled-inside"


def test_a_generator_of_the_host_that_draws_on_the_gpu_is_in_the_way() -> None:
    def example() -> object:
        generator = torch.Generator()
        return (lambda x: x + torch.rand(3, generator=generator, device=x.device)), gpu(3)

    assert check(example).reason == "unregistered-generator"


def test_a_result_that_no_replay_can_hand_out_is_in_the_way() -> None:
    class Cache:
        def __init__(self, kept: Tensor) -> None:
            self.kept = kept

    assert check(lambda: (lambda x: Cache(x * 2), gpu(3))).reason == "unsupported-output"


def test_a_factory_that_reads_values_is_run_on_the_cpu() -> None:
    def example() -> object:
        model = nn.Linear(4, 4)
        scale = float(model.weight.abs().max())
        return (lambda x: model(x) * scale), torch.ones(2, 4).to(DEVICE)

    assert check(example).verdict is Verdict.CAPTURABLE


SAVING = """
import sys
import torch
from torch import nn
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from ostinato.doctor.check.run import check

path = sys.argv[1]
save_file(nn.Linear(4, 4).state_dict(), path + ".safetensors")
torch.save(nn.Linear(4, 4).state_dict(), path + ".pt")

def opened():
    with safe_open(path + ".safetensors", "pt", device="cuda") as file:
        sliced = file.get_slice("bias")[:]
        assert sliced.device.type == "cuda", sliced.device
        return {name: file.get_tensor(name) for name in file.keys()}

WAYS = {
    "torch": lambda: torch.load(path + ".pt", map_location="cuda"),
    "host": lambda: load_file(path + ".safetensors"),
    "cuda": lambda: load_file(path + ".safetensors", device="cuda"),
    "open": opened,
}
for name, load in WAYS.items():
    def example():
        layer = nn.Linear(4, 4).cuda()
        layer.load_state_dict(load(), assign=True)
        return layer.cuda(), torch.ones(1, 4, device="cuda")
    assert str(check(example).verdict) == "capturable", name
assert safe_open.__module__ != "ostinato.doctor.check.pretended_files"
print("all read")
"""


@pytest.mark.slow
def test_weights_are_read_from_files_onto_the_pretended_gpu(tmp_path: Path) -> None:
    """In a process of its own: what writes into memory that is not there would end this one."""
    pytest.importorskip("safetensors")
    command = [sys.executable, "-c", SAVING, str(tmp_path / "weights")]
    shown = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (shown.returncode, shown.stdout) == (0, "all read\n"), shown.stderr[-2000:]


def test_a_factory_that_raises_is_an_error_with_its_words() -> None:
    def example() -> object:
        raise ValueError("no weights here")

    with pytest.raises(UsageError, match="ValueError: no weights here") as caught:
        check(example)
    assert caught.value.code == "OST7052"
    said = str(caught.value)
    assert said.count("no weights here") == 2  # the message, and the line that raises
    assert f"test_check.py:{line_of(example) + 1} `raise ValueError" in said
    assert "run by itself first\n" in said  # no command reaches a function in a function


def line_of(function: object) -> int:
    return inspect.getsourcelines(function)[1]  # type: ignore[arg-type]


def test_a_factory_that_fails_otherwise_without_values_is_told_with_both() -> None:
    def example() -> object:
        ready = torch.ones(2, device="cuda")
        raise KeyError("yes" if ready.sum().item() else "no")

    with pytest.raises(UsageError) as caught:
        check(example)
    said = str(caught.value)
    assert "raised KeyError: 'yes' at " in said
    assert "; on tensors without values it raised DataDependentOutputException" in said
    assert said.count(f"test_check.py:{line_of(example) + 2} ") == 2
    assert "let it take no values from tensors" in said


def raising() -> object:
    raise FileNotFoundError("no such weights")


def test_a_factory_that_raises_is_to_be_run_by_itself() -> None:
    with pytest.raises(UsageError) as caught:
        check(raising)
    command = f"python -c 'import {__name__}; {__name__}.raising()'"
    assert command in str(caught.value)


def test_a_factory_that_exits_is_an_error_with_its_status() -> None:
    def example() -> object:
        sys.exit(7)

    with pytest.raises(UsageError, match="SystemExit: 7") as caught:
        check(example)
    assert caught.value.code == "OST7052"


def test_a_call_on_a_gpu_that_is_not_pretended_is_told_so() -> None:
    def example() -> object:
        return nn.Linear(4, 4).to("cuda:1"), torch.ones(1, 4, device="cuda:1")

    checked = check(example)
    said = " ".join(blocker.detail for blocker in checked.blockers)
    assert "besides" not in said
    assert "there is no cuda:1 with 1 GPU" in said


def test_what_no_replay_repeats_is_noted() -> None:
    def step(x: Tensor) -> Tensor:
        print("now")  # noqa: T201 - what is tested
        return x * 2

    checked = check_step(step, torch.ones(3))
    assert checked.verdict is Verdict.CAPTURABLE
    assert any("prints, and no replay does" in note for note in checked.notes)


def test_hidden_waits_inside_kernels_are_known_by_name() -> None:
    checked = check(lambda: (lambda x: torch.normal(x, x), gpu(3)))
    assert checked.reason == "host-sync"
    assert "randn_like" in checked.blockers[0].instead


def test_two_parameters_that_are_one_stay_one_on_the_gpu() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(7, 4)
            self.head = nn.Linear(4, 7, bias=False)
            self.head.weight = self.embed.weight

    tied: list[bool] = []

    def example() -> object:
        model = Tied().to(DEVICE)
        tied.append(model.head.weight is model.embed.weight)
        return model.head, gpu(1, 4)

    check(example)
    assert tied == [True]


def test_data_without_elements_need_no_copy_to_the_gpu() -> None:
    def step(x: Tensor) -> Tensor:
        return torch.cat((torch.tensor([], device=x.device), x))

    assert check(lambda: (step, gpu(3))).verdict is Verdict.CAPTURABLE


def test_a_copy_of_data_from_the_host_is_said_once_for_its_line() -> None:
    def step(x: Tensor) -> Tensor:
        return x * torch.tensor([1.0, 2.0, 3.0], device=x.device)

    checked = check(lambda: (step, gpu(3)))
    assert [each.reason for each in checked.blockers] == ["host-copy"]


def test_a_branch_is_known_as_one_wherever_it_stands_in_its_line() -> None:
    checked = check(lambda: ((lambda x: x * 2 if x.sum() > 0 else x * 3), gpu(3)))
    assert [(each.reason, each.is_branch) for each in checked.blockers] == [("host-sync", True)]


def test_attention_with_its_dropout_off_draws_nothing() -> None:
    attend = nn.functional.scaled_dot_product_attention
    checked = check(lambda: ((lambda x: attend(x, x, x)), torch.ones(1, 2, 8, 16)))
    answers = {each.key: each for each in checked.answers}
    assert checked.verdict is Verdict.CAPTURABLE
    assert answers["generators"].evidence == ""


def test_streams_and_events_of_a_pretended_gpu_do_nothing_but_waiting_is_seen() -> None:
    def step(x: Tensor) -> Tensor:
        side = torch.cuda.Stream(torch.device("cuda", 0))
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            y = x * 2
        event = torch.cuda.Event()
        event.record()
        event.synchronize()
        return y

    checked = check(lambda: (step, gpu(3)))
    assert [each.reason for each in checked.blockers] == ["host-sync"]
    assert checked.blockers[0].place is not None
    assert checked.blockers[0].place.code == "event.synchronize()"


@pytest.mark.slow
def test_a_model_of_transformers_is_checked_as_its_users_call_it() -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2}
    config = transformers.LlamaConfig(
        num_hidden_layers=2, num_key_value_heads=1, vocab_size=40, **sizes
    )

    def example(**options: bool) -> object:
        model = transformers.LlamaForCausalLM(config).eval().to(DEVICE).half()
        ids = torch.zeros(1, 9, dtype=torch.long, device=DEVICE)
        return model, (), {"input_ids": ids, **options}

    assert check(lambda: example(use_cache=False)).verdict is Verdict.CAPTURABLE
    with_cache = check(lambda: example(use_cache=True))
    assert [each.reason for each in with_cache.blockers] == ["unsupported-output"]
