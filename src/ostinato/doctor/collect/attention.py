"""Which backend attention ran on, and copies that were made only for their layout.

The first call with each set of shapes asks torch which backend it would take; the others are
counted. Where trials are wished, that first call is also timed on every backend that takes it, and
with its arguments made contiguous or left as they are.
"""

from __future__ import annotations

import random
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

from ostinato.doctor.activity import LayoutCopy
from ostinato.doctor.collect.notebook import Notebook
from ostinato.doctor.collect.patches import Patches, quietly
from ostinato.doctor.collect.places import place_of, users_frame
from ostinato.doctor.finding import Place
from ostinato.doctor.graph_use import AttentionUse, BackendTime

_BACKENDS = {
    SDPBackend.FLASH_ATTENTION: "flash",
    SDPBackend.EFFICIENT_ATTENTION: "efficient",
    SDPBackend.CUDNN_ATTENTION: "cudnn",
    SDPBackend.MATH: "math",
    SDPBackend.OVERRIDEABLE: "overrideable",
}
_RECENT = 48
_ALL_OF_THE_FIRST = 256
_ONE_OF = 8
_DEVICE_BYTES_PER_US = 3.0e6  # read and written, of a copy on a data-centre GPU
_TRIAL_REPEATS = 5


@dataclass(slots=True)
class _Call:
    place: Place | None
    query: tuple[int, ...]
    key: tuple[int, ...]
    facts: dict[str, Any]
    count: int = 0
    ns: int = 0


@dataclass(slots=True)
class _Copy:
    op: str
    place: Place | None
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    count: int = 0
    bytes: int = 0
    us: float = 0.0
    feeds: str = ""
    times: tuple[float, float] | None = None


@dataclass(slots=True)
class _Fresh:
    """A copy that was just made, to be known again when attention gets it."""

    pointer: int
    shape: tuple[int, ...]
    source_strides: tuple[int, ...]
    copy: _Copy = field(repr=False)


class Attention:
    """Notes calls of attention, and layout copies beside them."""

    name = "attention"

    def __init__(self, notebook: Notebook, patches: Patches, *, trials: bool) -> None:
        self._notebook = notebook
        self._patches = patches
        self._trials = trials
        self._calls: dict[tuple[Any, ...], _Call] = {}
        self._calls_seen = self._looked_at = self._next = 0
        self._weight = 1
        self._random = random.Random(0)
        self._copies: dict[tuple[Any, ...], _Copy] = {}
        self._fresh: deque[_Fresh] = deque(maxlen=_RECENT)

    def start(self) -> None:
        """Stand before attention, and before what copies."""
        self._patches.replace(F, "scaled_dot_product_attention", self._around_attention)
        self._patches.replace(Tensor, "contiguous", self._around_copy("contiguous"))
        self._patches.replace(Tensor, "reshape", self._around_copy("reshape"))

    def stop(self) -> None:
        """Nothing to do: the patches are undone together."""

    def _around_attention(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def attention(*args: Any, **kwargs: Any) -> Any:
            if is_compiling() or self._notebook.here.quiet or self._passes_over():
                return original(*args, **kwargs)
            began = perf_counter_ns()
            result = original(*args, **kwargs)
            ended = perf_counter_ns()
            quietly(self._note_call, original, args, kwargs, ended - began, sys._getframe(1))
            return result

        return attention

    def _passes_over(self) -> bool:
        """Whether this call is left out: after the first ones, about one of eight is looked at."""
        self._calls_seen += 1
        if self._calls_seen <= _ALL_OF_THE_FIRST or self._calls_seen >= self._next:
            self._weight = self._calls_seen - self._looked_at
            self._looked_at = self._calls_seen
            self._next = self._calls_seen + 1 + self._random.randrange(2 * _ONE_OF - 1)
            return False
        return True

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
            self._calls[known] = call
        call.count += self._weight
        call.ns += ns * self._weight
        self._follow(original, given)

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
        if self._trials and not torch.cuda.is_current_stream_capturing():
            facts["times"] = tuple(self._try_backends(original, given))
        return facts

    def _try_backends(self, original: Any, given: dict[str, Any]) -> list[BackendTime]:
        times = []
        detached = {k: v.detach() if isinstance(v, Tensor) else v for k, v in given.items()}
        with _Quiet(self._notebook), torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for backend, name in _BACKENDS.items():
                if backend is SDPBackend.OVERRIDEABLE:  # there for devices out of torch's tree
                    continue
                try:
                    with sdpa_kernel(backend):
                        us = _time_us(lambda: original(**detached), given["query"])
                except RuntimeError:  # it refuses these arguments
                    continue
                times.append(BackendTime(name, us))
        return times

    def _around_copy(self, op: str) -> Callable[[Any], Any]:
        def make(original: Any) -> Any:
            def copying(tensor: Any, *args: Any, **kwargs: Any) -> Any:
                if is_compiling() or tensor.is_contiguous() or self._notebook.here.quiet:
                    return original(tensor, *args, **kwargs)
                began = perf_counter_ns()
                result = original(tensor, *args, **kwargs)
                ended = perf_counter_ns()
                quietly(self._note_copy, op, tensor, result, ended - began, sys._getframe(1))
                return result

            return copying

        return make

    def _note_copy(self, op: str, source: Any, result: Any, ns: int, frame: Any) -> None:
        if not isinstance(result, Tensor) or result.data_ptr() == source.data_ptr():
            return  # a view was enough
        users = users_frame(frame)
        known = (op, frame.f_code, frame.f_lasti, source.shape)
        copy = self._copies.get(known)
        if copy is None:
            place = None if users is None else place_of(users, frame)
            copy = _Copy(op, place, tuple(source.shape), tuple(source.stride()))
            self._copies[known] = copy
        size = result.numel() * result.element_size()
        copy.count += 1
        copy.bytes += size
        copy.us += 2 * size / _DEVICE_BYTES_PER_US if result.is_cuda else ns / 1e3
        shape, strides = tuple(result.shape), tuple(source.stride())
        self._fresh.append(_Fresh(result.data_ptr(), shape, strides, copy))

    def _follow(self, original: Any, given: dict[str, Any]) -> None:
        """Find the arguments of attention among the copies that were just made."""
        if not self._fresh:
            return
        for name in ("query", "key", "value"):
            pointer, shape = given[name].data_ptr(), tuple(given[name].shape)
            for fresh in self._fresh:
                if fresh.pointer == pointer and fresh.shape == shape:
                    fresh.copy.feeds = "attention"
                    if self._trials and fresh.copy.times is None:
                        fresh.copy.times = self._try_layout(original, given, name, fresh)
        self._fresh.clear()

    def _try_layout(
        self, original: Any, given: dict[str, Any], name: str, fresh: _Fresh
    ) -> tuple[float, float]:
        """Return the time of one call with the copy, its making included, and without."""
        with _Quiet(self._notebook), torch.no_grad():
            copied = {k: v.detach() if isinstance(v, Tensor) else v for k, v in given.items()}
            loose = torch.empty_strided(
                fresh.shape,
                fresh.source_strides,
                dtype=given[name].dtype,
                device=given[name].device,
            )
            loose.copy_(copied[name])

            def with_copy() -> Any:
                return original(**(copied | {name: loose.contiguous()}))

            def without_copy() -> Any:
                return original(**(copied | {name: loose}))

            query = given["query"]
            return _time_us(with_copy, query), _time_us(without_copy, query)

    def fields(self) -> dict[str, Any]:
        """Return calls of attention and layout copies."""
        return {
            "attention": tuple(_use(call) for call in list(self._calls.values())),
            "layout_copies": tuple(_layout(copy) for copy in list(self._copies.values())),
        }


class _Quiet:
    """What this thread does within is the doctor's own."""

    def __init__(self, notebook: Notebook) -> None:
        self._here = notebook.here
        self._before = False

    def __enter__(self) -> None:
        self._before = self._here.quiet
        self._here.quiet = True

    def __exit__(self, *_: object) -> None:
        self._here.quiet = self._before


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


def _time_us(run: Callable[[], Any], like: Tensor) -> float:
    from ostinato.measure import time_us

    return time_us(run, device=like.device, repeats=_TRIAL_REPEATS, warmups=1).median_us


def _use(call: _Call) -> AttentionUse:
    return AttentionUse(
        place=call.place,
        count=call.count,
        query=call.query,
        key=call.key,
        us=call.ns / 1e3,
        **call.facts,
    )


def _layout(copy: _Copy) -> LayoutCopy:
    return LayoutCopy(
        op=copy.op,
        place=copy.place,
        count=copy.count,
        bytes=copy.bytes,
        us=copy.us,
        shape=copy.shape,
        strides=copy.strides,
        feeds=copy.feeds,
        with_copy_us=copy.times[0] if copy.times else None,
        without_copy_us=copy.times[1] if copy.times else None,
    )
