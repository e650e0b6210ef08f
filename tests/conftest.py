"""What every test may ask for: a backend and its device, a passing listener, shared data."""

from __future__ import annotations

import os
import signal

# Before torch is imported: two workers on two cores must not run eight threads.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from old_triton import mend_interpreter

# Triton asks this once, when it is first imported: without a GPU its kernels run in Python.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
    mend_interpreter()

from ostinato import instruments
from ostinato.instruments import Instrument

REPOSITORY = Path(__file__).parent.parent

_NEEDS_GPUS = {"gpu": 1, "gpu2": 2}
_TOLD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


# torch.compile's advice on what a GPU could do, given only where there is one.
_COMPILERS_ADVICE = "ignore:TensorFloat32 tensor cores for float32 matrix multiplication"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("filterwarnings", _COMPILERS_ADVICE)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    present = torch.cuda.device_count() if torch.cuda.is_available() else 0
    for item in items:
        needed = max(
            (n for mark, n in _NEEDS_GPUS.items() if item.get_closest_marker(mark)), default=0
        )
        if needed > present:
            reason = f"needs {needed} CUDA GPU{'s' * (needed > 1)}, this machine has {present}"
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session", autouse=True)
def _no_signal_is_ignored_from_the_start() -> Iterator[None]:
    """What ran the tests may ignore some, as under `nohup`, and programs inherit that."""
    ignored = [number for number in _TOLD if signal.getsignal(number) is signal.SIG_IGN]
    for number in ignored:
        is_ctrl_c = number is signal.SIGINT
        signal.signal(number, signal.default_int_handler if is_ctrl_c else signal.SIG_DFL)
    yield
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)


@pytest.fixture(autouse=True)
def _signals_are_handled_as_before() -> Iterator[None]:
    """A handler that a test leaves behind would act in whatever test sends that signal later."""
    before = [signal.getsignal(number) for number in _TOLD]
    yield
    after = [signal.getsignal(number) for number in _TOLD]
    for number, then, now in zip(_TOLD, before, after, strict=True):
        if now is not then:
            signal.signal(number, then)
    assert after == before, "this test left a signal's handler behind"


@pytest.fixture(params=[pytest.param("tape"), pytest.param("cuda", marks=pytest.mark.gpu)])
def backend_name(request: pytest.FixtureRequest) -> str:
    """Each recorder in turn; the CUDA one is skipped where there is no GPU."""
    return str(request.param)


@pytest.fixture
def device(backend_name: str) -> torch.device:
    """The device that `backend_name` records."""
    return torch.device("cpu" if backend_name == "tape" else "cuda:0")


@pytest.fixture(autouse=True)
def _same_random_numbers() -> None:
    torch.manual_seed(0)


@pytest.fixture
def listen() -> Iterator[Callable[[Instrument], None]]:
    """Add an instrument for the length of one test."""
    added: list[Instrument] = []

    def listen(instrument: Instrument) -> None:
        added.append(instrument)
        instruments.add(instrument)

    yield listen
    for instrument in added:
        instruments.remove(instrument)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of shared cases and traces beside the checkout; without it the test is skipped."""
    folder = REPOSITORY.parent / "shared"
    if not folder.is_dir():
        pytest.skip("needs the folder ../shared beside the checkout")
    return folder


@pytest.fixture(scope="session")
def repository() -> Path:
    """The checkout."""
    return REPOSITORY
