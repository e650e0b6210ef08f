"""Record traces of one small model on a real GPU: eager, replayed, and reading values.

Run with the repository's `src` and `tests` on the path; takes a few seconds of the GPU:

    PYTHONPATH=src:tests python -m doctor.trace.record tests/doctor/trace/recorded
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity

from ostinato import measure

STEPS, LAYERS = 10, 24


def block() -> nn.Module:
    """Return a stack of small layers: many launches, little work."""
    layers = [part for _ in range(LAYERS) for part in (nn.Linear(64, 64), nn.GELU())]
    return nn.Sequential(*layers).cuda().eval()


def record(name: str, step: Callable[[], object], folder: Path) -> dict[str, float]:
    """Write one trace, and return what the profiler itself counted."""
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    with measure.profiler(*activities, with_stack=True, record_shapes=True) as profiler:
        for _ in range(STEPS):
            with torch.profiler.record_function("step model"):
                step()
        torch.cuda.synchronize()
    plain = folder / f"{name}.json"
    profiler.export_chrome_trace(str(plain))
    # Packed here: torch would read it as text, and now and then a name in it is no text.
    (folder / f"{name}.json.gz").write_bytes(gzip.compress(plain.read_bytes(), mtime=0))
    plain.unlink()
    on_device = [e for e in profiler.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    return {"events": len(on_device), "us": float(sum(e.device_time_total for e in on_device))}


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    model, x = block(), torch.randn(8, 64, device="cuda")

    def eager() -> Tensor:
        result: Tensor = model(x)
        return result

    def reads() -> Tensor:
        y = eager()
        largest = y.max().item()
        return y[y >= largest / 2].cpu()

    with torch.no_grad():
        graph = torch.cuda.CUDAGraph()
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            eager()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            eager()
        counted = {
            "eager": record("eager", eager, folder),
            "replayed": record("replayed", graph.replay, folder),
            "reads": record("reads", reads, folder),
        }
    about = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, **counted}
    (folder / "about.json").write_text(json.dumps(about, indent=1) + "\n", "utf-8")
    sys.stdout.write(json.dumps(about) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
