"""One tiny llama for the tests of the engine, written once, and where Triton's kernels run."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from llm.models.tiny_folders import VOCABULARY, write


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny llama's folder without a tokenizer; not to be changed."""
    folder = tmp_path_factory.mktemp("engine") / "tiny"
    write("llama", folder)
    return folder


@pytest.fixture(scope="session")
def speaking(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny llama's folder with a tokenizer of one word per token, and a chat template."""
    import json

    import tokenizers
    from tokenizers import models, pre_tokenizers

    folder = tmp_path_factory.mktemp("engine") / "speaking"
    write("llama", folder)
    words = {f"w{token}": token for token in range(VOCABULARY)}
    tokenizer = tokenizers.Tokenizer(models.WordLevel(words, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    template = "{% for message in messages %}{{ message['content'] }} w9 {% endfor %}"
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    return folder


@pytest.fixture(params=[pytest.param("interpreter"), pytest.param("gpu", marks=pytest.mark.gpu)])
def kernel_device(request: pytest.FixtureRequest) -> torch.device:
    """The CPU with interpreted kernels, a GPU with compiled ones: a process has one of them."""
    triton = pytest.importorskip("triton")
    if request.param == "gpu":
        return torch.device("cuda:0")
    if not triton.knobs.runtime.interpret:
        pytest.skip("kernels are compiled in this process: it has a GPU")
    return torch.device("cpu")
