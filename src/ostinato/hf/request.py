"""One call of `generate`, made plain: ids, padding, lengths and sampling.

transformers' own preparation runs in its own order, so that defaults, warnings and errors are its
own; it runs on the host, where looking at the padding costs nothing. What has no plain form goes to
the model's own `generate`.

Shapes: B rows, P prompt columns.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import torch
from torch import Tensor
from transformers.generation import GenerationMode

from ostinato.hf.delegation import Delegated, DelegateError
from ostinato.hf.plan import Plan, Sampling, read_processors, read_stopping
from ostinato.hf.state import EOS_ROOM


@dataclass(frozen=True, slots=True)
class Request:
    """What one call asks for.

    Attributes:
        given: The ids as the user gave them, rows repeated if several sequences are wanted.
        ids_BP: The same on the host.
        valid_BP: False at padding, on the host.
        is_padded: Whether there is any padding.
        max_new_tokens: At least 1.
        pad: What a finished row produces.
        streamer: transformers' streamer, or None.
    """

    given: Tensor
    ids_BP: Tensor
    valid_BP: Tensor
    is_padded: bool
    max_new_tokens: int
    pad: int
    sampling: Sampling
    streamer: Any

    @property
    def rows(self) -> int:
        """Rows of the batch."""
        return self.ids_BP.shape[0]

    @property
    def prompt(self) -> int:
        """Columns of the prompt, padding included."""
        return self.ids_BP.shape[1]

    @property
    def plan(self) -> Plan:
        """Which stages each step runs."""
        return self.sampling.plan


def read_request(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Request:
    """Read a call of `generate(*args, **kwargs)`.

    Raises:
        DelegateError: It asks for something that the static step does not do, or nobody does: then
            transformers says so in its own order and words.
    """
    try:
        return _read(model, args, kwargs)
    except DelegateError:
        raise
    except Exception as error:
        told = f"{type(error).__name__}: {error}".splitlines()[0]
        raise DelegateError(Delegated.INVALID_REQUEST, told) from error


def _read(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Request:
    options = _bind(model, args, kwargs)
    extras = options.pop("kwargs", {})
    _check_arguments(options)
    given_config = options.get("generation_config")
    has_default_max = _is_default("max_length", model, given_config, extras)
    has_default_min = _is_default("min_length", model, given_config, extras)
    # A None given is an option switched off, such as eos_token_id=None; it is no input.
    config, inputs = model._prepare_generation_config(given_config, **extras)
    inputs = {name: value for name, value in inputs.items() if value is not None}
    _check_config(config)
    given = _take_ids(options.get("inputs"), inputs)
    host_ids = given.cpu()
    _check_in_vocabulary(model, host_ids)
    mask = _take_mask(inputs, host_ids)
    _check_nothing_left(inputs)
    model._prepare_special_tokens(config, mask is not None, device="cpu", batch_size=len(given))
    if mask is None:
        mask = model._prepare_attention_mask_for_generation(host_ids, config, {})
    valid = mask != 0
    _check_padding(valid)
    if (copies := config.num_return_sequences or 1) > 1:
        given, host_ids, valid = (
            each.repeat_interleave(copies, dim=0) for each in (given, host_ids, valid)
        )
    max_new_tokens = _max_new_tokens(model, config, host_ids, has_default_max, has_default_min)
    sampling = _sampling(model, config, host_ids, valid, options)
    pad = config._pad_token_tensor
    return Request(
        given=given,
        ids_BP=host_ids.long(),
        valid_BP=valid,
        is_padded=not bool(valid.all()),
        max_new_tokens=max_new_tokens,
        pad=0 if pad is None else int(pad),
        sampling=sampling,
        streamer=options.get("streamer"),
    )


def _bind(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    try:
        bound = inspect.signature(type(model).generate).bind(model, *args, **kwargs)
    except TypeError as error:
        raise DelegateError(Delegated.INVALID_REQUEST, str(error)) from error
    options = dict(bound.arguments)
    options.pop("self")
    return options


_OPTION_REASONS = {
    "prefix_allowed_tokens_fn": Delegated.CUSTOM_PROCESSOR,
    "assistant_model": Delegated.ASSISTED,
    "custom_generate": Delegated.OWN_GENERATE,
}
_KNOWN_OPTIONS = frozenset(
    {"inputs", "generation_config", "logits_processor", "stopping_criteria", "streamer"}
)


def _check_arguments(options: dict[str, Any]) -> None:
    for name, value in options.items():
        if name not in _KNOWN_OPTIONS and value is not None and value is not False:
            reason = _OPTION_REASONS.get(name, Delegated.UNSUPPORTED_OPTION)
            raise DelegateError(reason, f"{name} was given")


def _is_default(name: str, model: Any, given_config: Any, extras: dict[str, Any]) -> bool:
    places = (given_config, model.generation_config)
    return extras.get(name) is None and all(getattr(each, name, None) is None for each in places)


_OFF = {
    "return_dict_in_generate": Delegated.STRUCTURED_OUTPUT,
    "output_attentions": Delegated.STRUCTURED_OUTPUT,
    "output_hidden_states": Delegated.STRUCTURED_OUTPUT,
    "stop_strings": Delegated.CUSTOM_STOPPING,
    "max_time": Delegated.CUSTOM_STOPPING,
    "token_healing": Delegated.UNSUPPORTED_OPTION,
    "prefill_chunk_size": Delegated.UNSUPPORTED_OPTION,
    "is_assistant": Delegated.ASSISTED,
}


def _check_config(config: Any) -> None:
    mode = config.get_generation_mode()
    if mode == GenerationMode.ASSISTED_GENERATION:
        raise DelegateError(Delegated.ASSISTED, "assisted generation was asked for")
    if mode not in (GenerationMode.GREEDY_SEARCH, GenerationMode.SAMPLE):
        raise DelegateError(Delegated.SEARCH_MODE, f"the mode is {mode.value}")
    if mode is GenerationMode.GREEDY_SEARCH and (config.num_return_sequences or 1) > 1:
        raise DelegateError(Delegated.INVALID_REQUEST, "several sequences without sampling")
    for name, reason in _OFF.items():
        if getattr(config, name, None):
            raise DelegateError(reason, f"{name} is {getattr(config, name)!r}")
    _check_kinds(config)
    if config.use_cache is False:
        raise DelegateError(Delegated.UNSUPPORTED_OPTION, "use_cache is False")
    if config.cache_implementation not in (None, "static", "dynamic"):
        kind = config.cache_implementation
        raise DelegateError(Delegated.UNSUPPORTED_OPTION, f"cache_implementation is {kind!r}")


def _check_kinds(config: Any) -> None:
    """Leave values of an unusual type, which transformers takes in its own way, to transformers."""
    for name in ("max_new_tokens", "max_length"):
        value = getattr(config, name)
        if value is not None and not isinstance(value, Integral):
            raise DelegateError(
                Delegated.UNSUPPORTED_OPTION, f"{name} is {value!r}, which is no whole number"
            )
    if not (config.do_sample is None or isinstance(config.do_sample, bool)):
        raise DelegateError(
            Delegated.UNSUPPORTED_OPTION, f"do_sample is {config.do_sample!r}, not True or False"
        )


def _take_ids(inputs: Any, extras: dict[str, Any]) -> Tensor:
    named = extras.pop("input_ids", None)
    if "inputs_embeds" in extras:
        raise DelegateError(Delegated.EMBEDDINGS_GIVEN, "inputs_embeds was given")
    if (inputs is None) == (named is None):
        raise DelegateError(Delegated.INVALID_REQUEST, "input ids are needed, and once only")
    ids = named if inputs is None else inputs
    if not isinstance(ids, Tensor) or ids.dim() != 2 or 0 in ids.shape:
        raise DelegateError(Delegated.INVALID_REQUEST, "input ids must be a filled (rows, columns)")
    if ids.dtype not in (torch.int64, torch.int32):
        raise DelegateError(Delegated.INVALID_REQUEST, f"input ids are {ids.dtype}")
    return ids


def _check_in_vocabulary(model: Any, ids: Tensor) -> None:
    """Leave ids that have no embedding to the model: a replay that met one would be given up."""
    rows = getattr(model.get_input_embeddings(), "num_embeddings", None)
    lowest, highest = (int(each) for each in torch.aminmax(ids))
    if isinstance(rows, int) and not 0 <= lowest <= highest < rows:
        wrong = lowest if lowest < 0 else highest
        raise DelegateError(
            Delegated.INVALID_REQUEST, f"there is no embedding of the id {wrong}, there are {rows}"
        )


def _take_mask(extras: dict[str, Any], ids: Tensor) -> Tensor | None:
    mask = extras.pop("attention_mask", None)
    if mask is None:
        return None
    if not isinstance(mask, Tensor) or mask.shape != ids.shape:
        raise DelegateError(
            Delegated.INVALID_REQUEST, "attention_mask has another shape than the ids"
        )
    return mask.cpu()


def _check_nothing_left(extras: dict[str, Any]) -> None:
    if extras:
        raise DelegateError(
            Delegated.UNSUPPORTED_OPTION, f"{', '.join(sorted(extras))} would go to the forward"
        )


def _check_padding(valid: Tensor) -> None:
    falls = bool((valid[:, :-1] & ~valid[:, 1:]).any())
    if falls or not bool(valid[:, -1].all()):
        raise DelegateError(
            Delegated.UNSUPPORTED_OPTION, "the prompt has padding that is not on its left"
        )


def _max_new_tokens(
    model: Any, config: Any, ids: Tensor, has_default_max: bool, has_default_min: bool
) -> int:
    prompt = ids.shape[1]
    config = model._prepare_generated_length(
        generation_config=config,
        has_default_max_length=has_default_max,
        has_default_min_length=has_default_min,
        model_input_name="input_ids",
        inputs_tensor=ids,
        input_ids_length=prompt,
    )
    if prompt >= config.max_length:
        raise DelegateError(
            Delegated.INVALID_REQUEST,
            f"the prompt of {prompt} fills max_length {config.max_length}",
        )
    model._validate_generated_length(config, prompt, has_default_max)
    return int(config.max_length) - prompt


def _list_given(options: dict[str, Any], name: str) -> Any:
    given = options.get(name)
    return [] if given is None else given  # what is no list is refused in transformers' own words


def _sampling(
    model: Any, config: Any, ids: Tensor, valid: Tensor, options: dict[str, Any]
) -> Sampling:
    # As in transformers, a mask without padding is no mask.
    mask = None if bool(valid.all()) else valid.long()
    processors = model._get_logits_processor(
        generation_config=config,
        input_ids_seq_length=ids.shape[1],
        encoder_input_ids=ids,
        logits_processor=_list_given(options, "logits_processor"),
        device="cpu",
        model_kwargs={"attention_mask": mask},
    )
    criteria = model._get_stopping_criteria(
        generation_config=config, stopping_criteria=_list_given(options, "stopping_criteria")
    )
    eos = read_stopping(criteria)
    if len(eos) > EOS_ROOM:
        raise DelegateError(Delegated.UNSUPPORTED_OPTION, f"{len(eos)} end-of-sequence ids")
    samples = config.do_sample is True
    return read_processors(processors, samples=samples, prompt=ids.shape[1], eos=eos)
