"""A tiny llama as a transformers folder, made from a GGUF file: random weights, noise for text."""

from pathlib import Path

from checkpoints.written_gguf import tiny_metadata, tiny_tensors, write_gguf
from ostinato.checkpoints.convert import convert_gguf
from ostinato.checkpoints.progress import silent


def write_tiny_llama(place: Path) -> Path:
    """Write the folder `place/llama`, 2 layers and 260 tokens, with a chat template."""
    source = write_gguf(place / "tiny.gguf", tiny_metadata(), tiny_tensors())
    folder = place / "llama"
    folder.mkdir()
    convert_gguf(source, folder, silent)
    return folder
