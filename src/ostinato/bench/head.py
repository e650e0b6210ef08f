"""The head of a result: when, where and with which versions it was measured."""

from __future__ import annotations

import datetime
import os
import platform
from importlib import metadata
from typing import Any

import torch

_PACKAGES = ("torch", "transformers", "triton", "numpy")


def describe_run(device: torch.device) -> dict[str, Any]:
    """Return date, machine and versions as plain values."""
    now = datetime.datetime.now(tz=datetime.UTC)
    return {
        "benchmark": "graphs",
        "date": now.date().isoformat(),
        "time_utc": now.strftime("%H:%M"),
        "device": str(device),
        "machine": _machine(device),
        "versions": _versions(),
    }


def _machine(device: torch.device) -> dict[str, Any]:
    try:
        from ostinato.device import describe

        return describe(device).to_dict()
    except ModuleNotFoundError:  # run from a checkout where not every dependency is installed
        gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else None
        return {
            "cpu": platform.processor() or platform.machine(),
            "cores": len(os.sched_getaffinity(0)),
            "threads": torch.get_num_threads(),
            "accelerator": None if gpu is None else {"name": gpu, "cuda": torch.version.cuda},
        }


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "ostinato": version_of("ostinato")}
    found |= {name: version_of(name) for name in _PACKAGES}
    found["watch"] = "compiled" if _has_extension() else "Python"
    return found


def version_of(package: str) -> str:
    """Return a package's version, or say that it runs from a checkout or is absent."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "from a checkout" if package == "ostinato" else "absent"


def _has_extension() -> bool:
    """Whether the compiled check of watched places was built; it decides what a call costs."""
    try:
        from ostinato.graphs import _unchanged  # noqa: F401
    except ImportError:
        return False
    return True
