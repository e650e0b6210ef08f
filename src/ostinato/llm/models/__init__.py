"""Decoders: one file per architecture, all with the same four calls (`decoder.py`).

config = read_config(folder)
decoder = build(config, dtype=torch.float32, device=torch.device("cpu"), folder=folder)
"""

from ostinato.llm.models.building import build
from ostinato.llm.models.config import DecoderConfig, read_config
from ostinato.llm.models.decoder import Decoder
from ostinato.llm.models.weights import load_weights

__all__ = ["Decoder", "DecoderConfig", "build", "load_weights", "read_config"]
