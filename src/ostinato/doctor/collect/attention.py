"""Which backend attention ran on, and why it was not a faster one.

The first call with each set of shapes asks torch which backend it would take; the others are
counted. Where trials are wished, that first call is also timed on every backend that takes it.
"""

from __future__ import annotations

import sys
import warnings
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.compiler import is_compiling
from torch.nn.attention import SDPBackend, sdpa_kernel

from ostinato.doctor.collect.gpu_use import is_capturing
from ostinato.doctor.collect.notebook import MOST_TIMES, Notebook
from ostinato.doctor.collect.patches import Patches
from ostinato.doctor.collect.places import place_of, users_frame
from ostinato.doctor.collect.trials import Quiet, time_us
from ostinato.doctor.finding import Place
from ostinato.doctor.graph_use import AttentionUse, BackendTime

_BACKENDS = {
    SDPBackend.FLASH_ATTENTION: "flash",
    SDPBackend.EFFICIENT_ATTENTION: "efficient",
    SDPBackend.CUDNN_ATTENTION: "cudnn",
    SDPBackend.MATH: "math",
    SDPBackend.OVERRIDEABLE: "overrideable",
}


@dataclass(slots=True)
class _Call:
    place: Place | None
    query: tuple[int, ...]
    key: tuple[int, ...]
    facts: dict[str, Any]
    count: int = 0
    ns: int = 0
    each_us: deque[float] = field(default_factory=lambda: deque(maxlen=MOST_TIMES))


class Attention:
    """Notes calls of attention."""

    name = "attention"

    def __init__(self, notebook: Notebook, patches: Patches, *, trials: bool) -> None:
        self._notebook = notebook
        self._patches = patches
        self._trials = trials
        self._calls: dict[tuple[Any, ...], _Call] = {}
        self.call_listeners: list[Callable[[Any, dict[str, Any]], None]] = []

    def start(self) -> None:
        """Stand before attention."""
        self._patches.replace(F, "scaled_dot_product_attention", self._around_attention)

    def stop(self) -> None:
        """Nothing to do: the patches are undone together."""

    def _around_attention(self, original: Callable[..., Any]) -> Callable[..., Any]:
        threads = self._notebook.threads

        def attention(*args: Any, **kwargs: Any) -> Any:
            if is_compiling() or not threads.mine.looks or threads.mine.quiet:
                return original(*args, **kwargs)
            began = perf_counter_ns()
            result = original(*args, **kwargs)
            ended = perf_counter_ns()
            self._notebook.note(
                self._note_call, original, args, kwargs, ended - began, sys._getframe(1)
            )
            return result

        return attention

    def _note_call(
        self, original: Any, args: Any, kwargs: dict[str, Any], ns: int, frame: Any
    ) -> None:
        given = _arguments(*args, **kwargs)
        query, key = given["query"], given["key"]
        if type(query) is not Tensor or query.ndim != 4:
            return
        mask = given["attn_mask"]
        known = (
            query.shape,
            key.shape,
            query.stride(),
            query.dtype,
            None if mask is None else (mask.shape, mask.dtype),
            given["is_causal"],
            frame.f_code,
        )
        call = self._calls.get(known)
        if call is None:
            users = users_frame(frame)
            facts = self._facts(original, given)
            place = None if users is None else place_of(users, frame)
            call = _Call(place, tuple(query.shape), tuple(key.shape), facts)
            call = self._calls.setdefault(known, call)
        weight = self._notebook.here.weight
        call.count += weight
        call.ns += ns * weight
        call.each_us.append(ns / 1e3)
        for listener in self.call_listeners:
            listener(original, given)

    def _facts(self, original: Any, given: dict[str, Any]) -> dict[str, Any]:
        """Return what decides on the backend, and the backend."""
        query, mask = given["query"], given["attn_mask"]
        facts: dict[str, Any] = {
            "value_size": int(given["value"].shape[-1]),
            "dtype": str(query.dtype).removeprefix("torch."),
            "device": query.device.type,
            "capability": _capability(query),
            "backend": _chosen(given),
            "mask": None if mask is None else tuple(mask.shape),
            "mask_dtype": "" if mask is None else str(mask.dtype).removeprefix("torch."),
            "mask_grad": mask is not None and mask.requires_grad,
            "causal": bool(given["is_causal"]),
            "dropout": float(given["dropout_p"]),
            "strides": tuple(query.stride()),
            "gqa": bool(given["enable_gqa"]),
            "needs_grad": query.requires_grad and torch.is_grad_enabled(),
            "only": _allowed(),
            "refusals": tuple(_refusals(given)),
        }
        if self._trials and not is_capturing():
            facts["times"] = tuple(self._try_backends(original, given))
        return facts

    def _try_backends(self, original: Any, given: dict[str, Any]) -> list[BackendTime]:
        times = []
        detached = {k: v.detach() if isinstance(v, Tensor) else v for k, v in given.items()}
        with Quiet(self._notebook), torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for backend, name in _BACKENDS.items():
                if backend is SDPBackend.OVERRIDEABLE:  # there for devices out of torch's tree
                    continue
                try:
                    with sdpa_kernel(backend):
                        us = time_us(lambda: original(**detached), given["query"])
                except RuntimeError:  # it refuses these arguments
                    continue
                times.append(BackendTime(name, us))
        return times

    def fields(self) -> dict[str, Any]:
        """Return the calls, by their shapes and their line."""
        return {"attention": tuple(_use(call) for call in list(self._calls.values()))}


def _arguments(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> dict[str, Any]:
    return {
        "query": query,
        "key": key,
        "value": value,
        "attn_mask": attn_mask,
        "dropout_p": dropout_p,
        "is_causal": is_causal,
        "scale": scale,
        "enable_gqa": enable_gqa,
    }


def _chosen(given: dict[str, Any]) -> str:
    """Return the backend that torch takes for these arguments."""
    number = torch._fused_sdp_choice(
        given["query"],
        given["key"],
        given["value"],
        given["attn_mask"],
        given["dropout_p"],
        given["is_causal"],
        scale=given["scale"],
        enable_gqa=given["enable_gqa"],
    )
    return next((n for backend, n in _BACKENDS.items() if backend.value == int(number)), "")


def _capability(query: Tensor) -> str:
    if not query.is_cuda:
        return ""
    major, minor = torch.cuda.get_device_capability(query.device)
    return f"{major}.{minor}"


def _allowed() -> tuple[str, ...]:
    """Return the backends that the program allows, or nothing where it allows all."""
    enabled = {
        "flash": torch.backends.cuda.flash_sdp_enabled(),
        "efficient": torch.backends.cuda.mem_efficient_sdp_enabled(),
        "cudnn": torch.backends.cuda.cudnn_sdp_enabled(),
        "math": torch.backends.cuda.math_sdp_enabled(),
    }
    return () if all(enabled.values()) else tuple(name for name, on in enabled.items() if on)


def _refusals(given: dict[str, Any]) -> list[str]:
    """Return torch's own words on why a fused backend cannot run; only a GPU's build says any."""
    if not given["query"].is_cuda:
        return []
    params = torch.backends.cuda.SDPAParams(
        given["query"],
        given["key"],
        given["value"],
        given["attn_mask"],
        given["dropout_p"],
        given["is_causal"],
        given["enable_gqa"],
    )
    words: list[str] = []
    for name, ask in (
        ("flash", torch.backends.cuda.can_use_flash_attention),
        ("efficient", torch.backends.cuda.can_use_efficient_attention),
    ):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            if not ask(params, debug=True):
                texts = [str(w.message).split(" (Triggered")[0] for w in caught]
                words += [f"{name}: {text}" for text in texts]
    return words


def _use(call: _Call) -> AttentionUse:
    return AttentionUse(
        place=call.place,
        count=call.count,
        query=call.query,
        key=call.key,
        us=call.ns / 1e3,
        each_us=tuple(call.each_us),
        **call.facts,
    )
