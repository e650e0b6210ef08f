"""The package: light to import, and honest about its names."""

import subprocess
import sys

import pytest

from ostinato import checkpoints


def test_importing_it_imports_neither_torch_nor_transformers() -> None:
    program = (
        "import sys, ostinato.checkpoints\n"
        "from ostinato.checkpoints import smollm2_folder, render_chat, Detokenizer, load\n"
        "print(sorted({'torch', 'transformers'} & set(sys.modules)))\n"
    )
    shown = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert shown.stdout == "[]\n"


@pytest.mark.parametrize("name", checkpoints.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(checkpoints, name) is not None


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        checkpoints.nothing  # noqa: B018
