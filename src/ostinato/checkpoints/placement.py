"""Where a model goes and in which number type: what "auto" means, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ostinato.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

DTYPES = ("float32", "bfloat16", "float16")


def choose_device(device: str) -> torch.device:
    """Return the device meant by "auto", "cpu", "cuda" or "cuda:1".

    Raises:
        UsageError: OST2029, there is no such device.
    """
    import torch

    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device == "auto":
        return torch.device("cuda" if gpus else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError as error:
        raise _no_device(f"{device!r} is not a device") from error
    if chosen.type not in ("cpu", "cuda"):
        raise _no_device(f"models run on 'cpu' or 'cuda', not on {device!r}")
    if chosen.type == "cuda" and (chosen.index or 0) >= gpus:
        build = "" if torch.version.cuda else f" (torch {torch.__version__} is built without CUDA)"
        raise _no_device(f"the device {device!r} is not there: torch sees {gpus} GPUs{build}")
    return chosen


def choose_dtype(dtype: str, device: torch.device, config: Mapping[str, Any]) -> torch.dtype | None:
    """Return the number type to load in; None means as the folder says.

    "auto" is float32 on a CPU (few have fast bfloat16 units, and float32 always fits the range)
    and the type that `config` names on a GPU.

    Raises:
        UsageError: OST2029, `dtype` is none of `DTYPES`.
    """
    import torch

    if dtype == "auto":
        if device.type == "cpu":
            return torch.float32
        dtype = str(config.get("dtype") or config.get("torch_dtype") or "").removeprefix("torch.")
        if dtype not in DTYPES:
            return None
    if dtype not in DTYPES:
        raise UsageError(
            f"{dtype!r} is not a number type for weights",
            code="OST2029",
            remedy=f"choose auto or one of {', '.join(DTYPES)}",
        )
    return {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[dtype]


def _no_device(problem: str) -> UsageError:
    return UsageError(problem, code="OST2029", remedy="choose --device cpu, or auto")
