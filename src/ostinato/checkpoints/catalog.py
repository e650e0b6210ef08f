"""The one way to a model: a name this package knows, or a folder."""

from __future__ import annotations

from pathlib import Path

from ostinato.checkpoints.folder import Checkpoint, load_folder
from ostinato.checkpoints.progress import Progress, silent
from ostinato.checkpoints.smollm2 import NAME, smollm2_folder


def load(
    model: str | Path, *, device: str = "auto", dtype: str = "auto", progress: Progress = silent
) -> Checkpoint:
    """Load "smollm2", or the transformers folder at a path ("./smollm2" for one of that name).

    Args:
        model: A known name or a folder.
        device: "auto" (a GPU if there is one), "cpu", "cuda" or "cuda:1".
        dtype: "auto" (float32 on a CPU, as stored on a GPU), "float32", "bfloat16" or "float16".
        progress: Told what is being done and how much of it is done.

    Raises:
        UsageError: OST2001 to OST2029, what is wrong with the model, the folder or the call.
        ResourceError: OST2012, no room for the converted model; OST2025, not enough memory.
    """
    folder = smollm2_folder(progress) if model == NAME else Path(model)
    name = NAME if model == NAME else None
    return load_folder(folder, device=device, dtype=dtype, name=name, progress=progress)
