"""How one engine is set up: every option, checked when it is given and never changed afterwards.

Names are vLLM's where they mean the same. `LLM` and the command line pass options by name and come
in through `EngineConfig.read`, which tells a misspelt one. What "auto" means is decided where it is
known: `loading` (device, number type, memory), `core` (steps of a launch).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ostinato.errors import UsageError
from ostinato.llm.refusals import shown
from ostinato.llm.values import Check, require_known, whole
from ostinato.units import parse_bytes

if TYPE_CHECKING:
    import torch

    from ostinato.llm.models.config import DecoderConfig

_LOADS = ("auto", "dummy")
_BACKENDS = ("auto", "cuda", "tape", "eager")
_QUANTIZATIONS = ("none", "int8", "fp8")
_COUNTS = {
    "max_batch": 1,
    "max_model_len": 2,
    "steps_per_launch": 1,
    "page_tokens": 1,
    "prefill_tokens": 1,
    "max_waiting": 1,
    "max_waiting_tokens": 1,
    "most_logprobs": 0,
    "seed": None,
}
"""The options that are whole numbers, and the least each can be; None: a seed."""
_OPEN = {"max_model_len": None, "steps_per_launch": "auto", "prefill_tokens": "auto"}
"""What stands in some of them for no number."""
_MOST = 2**63 - 1  # more than any machine has of anything
_SEEDS = (-(2**63), 2**64 - 1)  # as those of a request
_CHECK = Check("OST5031")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """The options of one engine.

    Attributes:
        model: "smollm2", a transformers folder, or, for dummy weights, a `DecoderConfig`.
        device: "auto" (a GPU if there is one), "cpu", "cuda" or "cuda:1".
        dtype: "auto" (float32 on a CPU, as stored on a GPU), "float32", "bfloat16", "float16", or
            torch's own.
        max_batch: Requests that run at the same time.
        max_model_len: Tokens, prompt and answer together; None: as many as the model takes.
        kv_memory: Memory for keys and values, such as "4GiB"; "auto": most of what a GPU has left
            behind the weights, a modest share on a CPU, and never more than could be used.
        steps_per_launch: Decode steps per launch; "auto": 8 on a GPU, and 1 on a CPU, where a
            launch of one step costs nothing more and gives every token at once.
        deterministic: Whether a request's tokens must not depend, to the bit, on those that run
            beside it. On a CPU in float32 they never do.
        quantize: "int8" or "fp8" keeps the layers' matrices in one byte a weight, with a scale for
            every output: half the memory, and half of what a step reads.
        load: "auto" reads the weights; "dummy" makes small random ones, for benchmarks.
        attention: An attention backend by name, or "auto".
        page_tokens: Tokens in a page of keys and values.
        prefill_tokens: The most prompt tokens in one step, for which those who decode wait; many
            short steps cost more in all. "auto": 2048 on a CPU; on a GPU 8192, or 4096 for a model
            whose longer prefills go in recorded parts.
        prefix_cache: Whether prompts that begin alike share what was computed.
        max_waiting: The most requests that wait; one more is refused.
        max_waiting_tokens: The most prompt tokens that wait.
        seed: Requests without a seed of their own get one derived from it.
        backend: How steps are recorded: "cuda", "tape", or "eager" for not at all. "auto" records
            on a GPU, and not on a CPU, where it would take longer than it saves.
        most_logprobs: The most likeliest tokens a request may have reported beside each token.
        shape_profile: A file that keeps which shapes were in use, so that the next start records
            those first; None: no file.

    Raises:
        UsageError: OST5031, a value is out of its range.
        WrongTypeError: OST5031, a value has the wrong type.
    """

    model: str | Path | DecoderConfig
    device: str = "auto"
    dtype: str | torch.dtype = "auto"
    max_batch: int = 256
    max_model_len: int | None = None
    kv_memory: int | str = "auto"
    steps_per_launch: int | Literal["auto"] = "auto"
    deterministic: bool = False
    quantize: Literal["none", "int8", "fp8"] = "none"
    load: Literal["auto", "dummy"] = "auto"
    attention: str = "auto"
    page_tokens: int = 16
    prefill_tokens: int | Literal["auto"] = "auto"
    prefix_cache: bool = True
    max_waiting: int = 1024
    max_waiting_tokens: int = 4 * 1024 * 1024
    seed: int = 0
    backend: Literal["auto", "cuda", "tape", "eager"] = "auto"
    most_logprobs: int = 20
    shape_profile: str | Path | None = None

    def __post_init__(self) -> None:
        # The one moment of change: afterwards every whole number is an int.
        for name, least in _COUNTS.items():
            value = getattr(self, name)
            is_word = isinstance(value, str | None)
            if is_word and _OPEN.get(name, "") == value:
                continue
            if is_word and name in _OPEN:
                raise _CHECK.wrong_type(name, f"a whole number or {_OPEN[name]!r}", value)
            bounds = _SEEDS if least is None else (least, _MOST)
            object.__setattr__(self, name, _CHECK.count(name, value, *bounds))
        _CHECK.choice("load", self.load, _LOADS)
        _CHECK.choice("backend", self.backend, _BACKENDS)
        _CHECK.choice("quantize", self.quantize, _QUANTIZATIONS)
        for name in ("deterministic", "prefix_cache"):
            _CHECK.flag(name, getattr(self, name))
        memory = whole(self.kv_memory)
        if memory is not None:
            object.__setattr__(self, "kv_memory", memory)
        if self.kv_memory != "auto":
            _check_bytes("kv_memory", self.kv_memory)
        if isinstance(self.model, str) and not self.model.strip():
            raise _no_model(self.model)
        if self.load == "auto" and not isinstance(self.model, str | Path):
            raise _no_model(self.model)

    @property
    def kv_bytes(self) -> int | None:
        """Memory for keys and values as a number; None if the engine is to choose."""
        return None if self.kv_memory == "auto" else parse_bytes(self.kv_memory)

    @classmethod
    def read(cls, options: Mapping[str, Any]) -> EngineConfig:
        """Build from option names and values.

        Raises:
            UsageError: OST5030, an option that does not exist; OST5031 as the class itself.
            WrongTypeError: OST5031, `options` is no mapping.
        """
        if not isinstance(options, Mapping):
            raise _CHECK.wrong_type("options", "a mapping of names to values", options)
        known = [option.name for option in fields(cls)]
        require_known(options, known, "option of the engine", "OST5030")
        return cls(**options)


def _no_model(value: object) -> UsageError:
    return UsageError(
        f"model must be a name or a folder, got {shown(value)}",
        code="OST5031",
        remedy="pass 'smollm2' or the folder of a transformers model; a DecoderConfig goes with "
        "load='dummy'",
    )


def _check_bytes(name: str, value: Any) -> None:
    wanted = 'an amount of bytes, such as "4GiB" or 4096'
    if not isinstance(value, int | str) or isinstance(value, bool):
        raise _CHECK.wrong_type(name, wanted, value)
    try:
        amount = value if isinstance(value, int) else parse_bytes(value)
    except (UsageError, OverflowError):  # the latter: digits beyond any float
        amount = -1
    if amount < 0:
        raise _CHECK.out_of_range(name, wanted, value)
    if amount > _MOST:
        raise _CHECK.out_of_range(name, f"at most {_MOST} bytes", value)
