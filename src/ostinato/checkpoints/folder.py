"""Loads a local transformers folder: model, tokenizer and chat template.

What can be known to be wrong is found before transformers is asked to load: a folder that is none,
an unknown architecture, lost or cut-short weights, too little memory. What goes wrong after that is
foreign, and is told with transformers' own words. Nothing is ever fetched from a network, and no
code from the folder is run.
"""

from __future__ import annotations

import inspect
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ostinato.checkpoints.json_file import read_json
from ostinato.checkpoints.memory import available_bytes, require_memory, telling_memory
from ostinato.checkpoints.placement import choose_device, choose_dtype
from ostinato.checkpoints.progress import silent
from ostinato.checkpoints.weights import stored_tensors
from ostinato.errors import OstinatoError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import ModuleType

    import torch

    from ostinato.checkpoints.progress import Progress

# Besides the weights: buffers, the reader's own copies, the tokenizer. Measured as 110 MiB with
# SmolLM2 (transformers 5.24).
_EXTRA_BYTES = 160 << 20


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A loaded model with what is needed to talk to it.

    Attributes:
        model: A transformers causal language model, in eval mode.
        tokenizer: Its transformers tokenizer.
        chat_template: Jinja source of its chat format; None for a model without one.
        context_tokens: The longest sequence the model takes; None when its config does not say.
    """

    name: str
    folder: Path
    model: Any
    tokenizer: Any
    chat_template: str | None
    context_tokens: int | None


def load_folder(
    folder: str | Path,
    *,
    device: str = "auto",
    dtype: str = "auto",
    name: str | None = None,
    progress: Progress = silent,
) -> Checkpoint:
    """Load the model and tokenizer of a local folder.

    Args:
        folder: As written by `save_pretrained`.
        device: "auto" (a GPU if there is one), "cpu", "cuda" or "cuda:1".
        dtype: "auto" (float32 on a CPU, as stored on a GPU), or one of `placement.DTYPES`.
        name: What to call the model; None: the folder's name.
        progress: Told what is being done and how much of it is done.

    Raises:
        UsageError: OST2020 to OST2024 and OST2026 to OST2029, what is wrong with the folder or
            the call.
        ResourceError: OST2025, not enough memory.
    """
    path = Path(folder).expanduser()
    config = _read_config(path)
    tensors = stored_tensors(path)
    transformers = import_transformers()
    _require_architecture(path, config, transformers)
    target = choose_device(device)
    number_type = choose_dtype(dtype, target, config)
    item_bytes = None if number_type is None else number_type.itemsize
    weight_bytes = sum(tensor.bytes_as(item_bytes) for tensor in tensors.values())
    _require_room(path.name, weight_bytes, target)
    progress("loading the tokenizer", 0.0)
    tokenizer = _load_tokenizer(path, transformers)
    progress("loading the weights", 0.1)
    model = _load_model(path, transformers, number_type, target)
    progress("loading the weights", 1.0)
    return Checkpoint(
        name=name or path.name,
        folder=path,
        model=model,
        tokenizer=tokenizer,
        chat_template=_chat_template(tokenizer),
        context_tokens=getattr(model.config, "max_position_embeddings", None),
    )


def import_transformers() -> ModuleType:
    """Return the transformers package.

    Raises:
        UsageError: OST2026, it is not installed.
    """
    try:
        import transformers
    except ImportError as error:
        raise UsageError(
            f"loading a model needs the package transformers, which cannot be imported: {error}",
            code="OST2026",
            remedy="pip install 'ostinato[hf]'",
        ) from error
    return transformers


def _read_config(path: Path) -> Mapping[str, Any]:
    if not path.is_dir():
        kind = "is a file, not a folder" if path.exists() else "does not exist"
        raise UsageError(
            f"the model folder {path} {kind}",
            code="OST2020",
            remedy="give a folder with config.json and model.safetensors, or the name smollm2",
        )
    file = path / "config.json"
    try:
        config = read_json(file)
    except OSError as error:
        raise _not_a_model(f"{path} has no config.json that can be read") from error
    except ValueError as error:
        raise _not_a_model(f"{file} is not valid JSON: {error}") from error
    if not isinstance(config, dict) or not isinstance(config.get("model_type"), str):
        raise _not_a_model(f"{file} names no model_type")
    return config


def _require_architecture(path: Path, config: Mapping[str, Any], transformers: ModuleType) -> None:
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    kind = config["model_type"]
    if kind in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        return
    known = kind in transformers.CONFIG_MAPPING
    problem = "does not generate text" if known else "is unknown to"
    where = "" if known else f" transformers {transformers.__version__}"
    raise UsageError(
        f"the architecture {kind!r} of {path} {problem}{where}",
        code="OST2024",
        remedy="give the folder of a causal language model such as Llama, Qwen, Mistral or GPT-2"
        if known
        else "install a version of transformers that knows it; code inside a folder is never run",
    )


def _require_room(name: str, weight_bytes: int, device: torch.device) -> None:
    # The weights pass through host memory on their way to a GPU.
    require_memory(weight_bytes + _EXTRA_BYTES, available_bytes(), f"the model {name}", "host")
    if device.type == "cuda":
        import torch

        free, _ = torch.cuda.mem_get_info(device)
        require_memory(weight_bytes + _EXTRA_BYTES, free, f"the model {name}", str(device))


def _load_tokenizer(path: Path, transformers: ModuleType) -> Any:
    try:
        return transformers.AutoTokenizer.from_pretrained(path, local_files_only=True)
    except Exception as error:  # foreign code: it raises nearly every kind
        raise _not_a_model(f"{path} has no tokenizer that loads: {_first_line(error)}") from error


def _load_model(
    path: Path, transformers: ModuleType, dtype: torch.dtype | None, device: torch.device
) -> Any:
    keyword = dtype_keyword(transformers)
    try:
        with _without_bars(transformers), telling_memory(f"loading {path.name}"):
            model, info = transformers.AutoModelForCausalLM.from_pretrained(
                path,
                local_files_only=True,
                use_safetensors=True,
                output_loading_info=True,
                **{keyword: "auto" if dtype is None else dtype},
            )
            _require_all_weights(path, info)
            return model.to(device)
    except OstinatoError:
        raise
    except Exception as error:  # foreign code: it raises nearly every kind
        raise UsageError(
            f"transformers cannot load {path}: {type(error).__name__}: {_first_line(error)}",
            code="OST2028",
            remedy="check that config.json and the weights belong together, "
            "and that packages the model asks for are installed",
        ) from error


def dtype_keyword(transformers: ModuleType) -> str:
    """Return how this transformers calls the number type: newer ones deprecate `torch_dtype`."""
    config = getattr(transformers, "PreTrainedConfig", None) or transformers.PretrainedConfig
    return "dtype" if "dtype" in inspect.signature(config).parameters else "torch_dtype"


def _require_all_weights(path: Path, info: Mapping[str, Any]) -> None:
    """Refuse weights with holes: transformers would fill them with random numbers."""
    missing = sorted(map(str, info.get("missing_keys", ())))
    if missing:
        raise UsageError(
            f"the weights in {path} lack {len(missing)} tensors that its config.json asks for, "
            f"{missing[0]} first",
            code="OST2027",
            remedy="give a folder saved by save_pretrained from a causal language model",
        )


def _chat_template(tokenizer: Any) -> str | None:
    template = getattr(tokenizer, "chat_template", None)
    if isinstance(template, dict):  # several named ones; this is the one for plain talk
        template = template.get("default")
    return template if isinstance(template, str) else None


@contextmanager
def _without_bars(transformers: ModuleType) -> Iterator[None]:
    """Keep transformers' own progress bar out of the caller's output."""
    logging = transformers.utils.logging
    were_shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if were_shown:
            logging.enable_progress_bar()


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _not_a_model(problem: str) -> UsageError:
    return UsageError(
        problem,
        code="OST2021",
        remedy="give a folder written by save_pretrained: config.json, safetensors, tokenizer",
    )
