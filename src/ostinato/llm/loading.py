"""From the options of an engine to what it runs on: decoder, tokenizer, attention, store, limits.

The order is that of a patient operator: names, files and numbers are checked first, then the
weights take their memory, and keys and values get a share of what is left.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from ostinato.checkpoints import choose_device, smollm2_folder, telling_memory
from ostinato.checkpoints.json_file import read_json
from ostinato.checkpoints.placement import choose_dtype
from ostinato.errors import UsageError, WrongTypeError
from ostinato.llm.attention import AttentionBackend, Choice, choose
from ostinato.llm.kv.memory import check_kv_bytes, pages_for_memory
from ostinato.llm.kv.store import KvStore, bytes_per_page
from ostinato.llm.limits import Limits
from ostinato.llm.models import DecoderConfig, build, read_config
from ostinato.llm.prefill import tokens_per_plan
from ostinato.llm.refusals import shown
from ostinato.llm.resident_state import row_bytes
from ostinato.llm.sampling_state import check_vocabulary
from ostinato.llm.tokenizer import Tokenizer

if TYPE_CHECKING:
    from ostinato.llm.config import EngineConfig
    from ostinato.llm.models import Decoder

_SMOLLM2 = "smollm2"
_STEPS_ON_GPU = 8
_PREFILL_ON_GPU, _PREFILL_ON_CPU = 8192, 2048
_MOST_STEPS = 1024
"""Tokens are read when a launch ends, and a ring of them is kept for every row."""
_MOST_PREFILL = 1 << 20
"""What a step computes for each of its tokens stands in memory while it runs."""
_FEW_LOGPROBS = 20  # by default: no reason to refuse a model of fewer tokens


@dataclass(frozen=True, slots=True)
class Loaded:
    """What an engine runs on.

    Attributes:
        name: The model's name.
        folder: Where it was read from; None for dummy weights of a config alone.
        stop_ids: Tokens by which the model ends an answer.
        choice: Which attention backend runs, and why not a faster one.
        limits: What the scheduler may plan with.
    """

    name: str
    folder: Path | None
    decoder: Decoder
    decoder_config: DecoderConfig
    tokenizer: Tokenizer | None
    stop_ids: tuple[int, ...]
    attention: AttentionBackend
    choice: Choice
    store: KvStore
    limits: Limits

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.store.keys.device


def load(config: EngineConfig) -> Loaded:
    """Load a model, and take the memory that its engine needs.

    Raises:
        UsageError: OST2010 to OST2029, OST5030 to OST5033, OST5201 to OST5211: what is wrong with
            the options, the folder or the model.
        ResourceError: OST2012, OST2025, OST5034: not enough disk or memory.
    """
    _check_options(config)
    folder, decoder_config = _find(config)
    device = _device(config)
    name = str(config.dtype).removeprefix("torch.")  # torch.float32 is as good as "float32"
    dtype = choose_dtype(name, device, {"dtype": decoder_config.stored_dtype})
    dtype = dtype or torch.bfloat16
    max_model_len = _max_model_len(config, decoder_config)
    page_bytes = _page_bytes(decoder_config, config.page_tokens, dtype)
    check_kv_bytes(config.kv_bytes, page_bytes)
    is_invariant = True if config.deterministic else None
    attention, choice = choose(
        decoder_config.attention,
        device=device,
        dtype=dtype,
        wanted=config.attention,
        is_invariant=is_invariant,
    )
    tokenizer = None if folder is None else Tokenizer.load(folder)
    check_vocabulary(decoder_config.vocabulary)
    _check_most_logprobs(config.most_logprobs, decoder_config.vocabulary)
    most_pages = 1 + config.max_batch * -(-max_model_len // config.page_tokens)
    state_bytes = _state_bytes(config, decoder_config, max_model_len, device)
    # What fits in no memory that is free now fits still less behind the weights.
    pages_for_memory(
        config.kv_bytes, page_bytes, most=most_pages, state_bytes=state_bytes, device=device
    )
    decoder = build(
        decoder_config,
        dtype=dtype,
        device=device,
        load=config.load,
        folder=folder,
        is_invariant=is_invariant,
        quantize=config.quantize,
    )
    decoder.choose_plans()
    pages = pages_for_memory(
        config.kv_bytes, page_bytes, most=most_pages, state_bytes=state_bytes, device=device
    )
    store = _store(decoder_config, pages, config.page_tokens, dtype, device)
    return Loaded(
        name=_name(config, decoder_config),
        folder=folder,
        decoder=decoder,
        decoder_config=decoder_config,
        tokenizer=tokenizer,
        stop_ids=_stop_ids(folder, decoder_config),
        attention=attention,
        choice=choice,
        store=store,
        limits=_limits(config, max_model_len, decoder_config, attention, store),
    )


def _check_options(config: EngineConfig) -> None:
    if not isinstance(config.device, str | torch.device):
        raise WrongTypeError(
            f"device must be a name, got {shown(config.device)}",
            code="OST5031",
            remedy="pass 'auto', 'cpu', 'cuda' or 'cuda:1', or leave it out",
        )
    for name, what, most, enough in (
        ("steps_per_launch", "a launch takes", _MOST_STEPS, "a few are enough"),
        ("prefill_tokens", "a step takes", _MOST_PREFILL, "thousands are enough"),
    ):
        value = getattr(config, name)
        if value != "auto" and value > most:
            raise UsageError(
                f"{name} is {value}, and {what} at most {most}",
                code="OST5031",
                remedy=f"pass at most {most}, or leave it out; {enough}",
            )


def _state_bytes(
    config: EngineConfig, decoder_config: DecoderConfig, max_model_len: int, device: torch.device
) -> int:
    each = row_bytes(
        vocabulary=decoder_config.vocabulary,
        pages=-(-max_model_len // config.page_tokens),
        page_tokens=config.page_tokens,
        ring=_steps(config, device),
        logprobs=config.most_logprobs,
    )
    return config.max_batch * each


def _device(config: EngineConfig) -> torch.device:
    try:
        device = choose_device(config.device)
    except UsageError as error:
        remedy = "pass 'auto' or 'cpu' as device"
        raise UsageError(str(error.args[0]), code=error.code, remedy=remedy) from error.__cause__
    if config.backend == "cuda" and device.type != "cuda":
        raise UsageError(
            f"backend is 'cuda', and the model is to run on {device}",
            code="OST5031",
            remedy="leave backend out, or pass a device of torch's kind cuda where there is one",
        )
    return device


def _check_most_logprobs(most_logprobs: int, vocabulary: int) -> None:
    if most_logprobs > max(vocabulary, _FEW_LOGPROBS):
        raise UsageError(
            f"most_logprobs is {most_logprobs}, and the model knows {vocabulary} tokens",
            code="OST5031",
            remedy=f"pass a number of at most {vocabulary}, or leave it out; a few are enough",
        )


def _find(config: EngineConfig) -> tuple[Path | None, DecoderConfig]:
    if isinstance(config.model, DecoderConfig):
        return None, config.model
    folder = smollm2_folder() if config.model == _SMOLLM2 else Path(config.model).expanduser()
    return folder, read_config(folder)


def _name(config: EngineConfig, decoder_config: DecoderConfig) -> str:
    if isinstance(config.model, DecoderConfig):
        return f"dummy-{decoder_config.architecture}"
    return Path(config.model).name


def _max_model_len(config: EngineConfig, decoder_config: DecoderConfig) -> int:
    most = decoder_config.max_positions
    wanted = config.max_model_len
    if wanted is not None and wanted > most:
        raise UsageError(
            f"max_model_len is {wanted}, and the model takes {most} tokens",
            code="OST5032",
            remedy=f"pass a max_model_len of at most {most}, or leave it out",
        )
    return wanted or most


def _page_bytes(config: DecoderConfig, page_tokens: int, dtype: torch.dtype) -> int:
    return bytes_per_page(config.layers, page_tokens, config.kv_heads, config.head_dim, dtype)


def _store(
    config: DecoderConfig, pages: int, page_tokens: int, dtype: torch.dtype, device: torch.device
) -> KvStore:
    with telling_memory("making room for keys and values"):
        return KvStore(
            config.layers, pages, page_tokens, config.kv_heads, config.head_dim, dtype, device
        )


def _limits(
    config: EngineConfig,
    max_model_len: int,
    decoder: DecoderConfig,
    attention: AttentionBackend,
    store: KvStore,
) -> Limits:
    return Limits(
        max_batch=config.max_batch,
        max_model_len=max_model_len,
        page_tokens=config.page_tokens,
        prefill_tokens=_prefill_tokens(config, decoder, attention, store),
        steps_per_launch=_steps(config, store.keys.device),
        newcomer_steps=1,
        max_waiting=config.max_waiting,
        max_waiting_tokens=config.max_waiting_tokens,
    )


def _prefill_tokens(
    config: EngineConfig, decoder: DecoderConfig, attention: AttentionBackend, store: KvStore
) -> int:
    if config.prefill_tokens != "auto":
        return config.prefill_tokens
    if not store.keys.is_cuda:
        return _PREFILL_ON_CPU
    if not attention.captures_prefill:
        return _PREFILL_ON_GPU
    return tokens_per_plan(decoder, store.keys.dtype, _PREFILL_ON_GPU)


def _steps(config: EngineConfig, device: torch.device) -> int:
    if config.steps_per_launch == "auto":
        return _STEPS_ON_GPU if device.type == "cuda" else 1
    return config.steps_per_launch


def _stop_ids(folder: Path | None, config: DecoderConfig) -> tuple[int, ...]:
    """Return the model's ends of text: models that converse name more in generation_config.json."""
    found = dict.fromkeys(config.eos_token_ids)
    file = None if folder is None else folder / "generation_config.json"
    if file is not None and file.is_file():
        try:
            named = read_json(file).get("eos_token_id")
        except (OSError, ValueError, AttributeError) as error:
            raise UsageError(
                f"{file} cannot be read: {error}",
                code="OST2021",
                remedy="give a folder written by save_pretrained, or remove that file",
            ) from error
        ids = named if isinstance(named, list) else [named]
        found |= dict.fromkeys(token for token in ids if isinstance(token, int))
    return tuple(found)
