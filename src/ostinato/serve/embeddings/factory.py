"""What the process of an encoder serves: ids and mask in, vectors out, recorded by rows and length.

Batches hold texts of one padded length; `graphed` pads their rows up to a recorded number.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from ostinato.graphs import Buckets, graphed
from ostinato.hf import load_encoder
from ostinato.serve.callable import Servable, TensorSpec
from ostinato.serve.embeddings.facts import read_facts

IDS: Final = "input_ids"
MASK: Final = "attention_mask"
VECTOR: Final = "vector"
_ROWS: Final = (1, 2, 4, 8, 16, 32)
_ROWS_ON_CPU: Final = (1, 2, 4, 8)


def factory(folder: str, device: str = "auto") -> Servable:
    """Return the encoder of a folder.

    On a GPU everything is recorded before it is ready. On a CPU only short texts are: recording
    the rest takes minutes there, and the first call of each size does it as well.

    Raises:
        UsageError: OST6062, it is no encoder; OST2029, there is no such device.
    """
    encoder = load_encoder(folder, device)
    facts = read_facts(Path(folder))
    target = next(encoder.parameters()).device
    is_gpu = target.type == "cuda"
    sizes = _ROWS if is_gpu else _ROWS_ON_CPU
    rows = Buckets(0, sizes, fill="repeat-last")
    run = graphed(
        encoder, buckets={IDS: rows, MASK: rows}, admit_after=1, memory="shared", budget="4GiB"
    )
    spec = TensorSpec("INT64", (-1, -1))
    lengths = facts.lengths if is_gpu else facts.lengths[:1]
    return Servable(
        run,
        inputs={IDS: spec, MASK: spec},
        outputs=(VECTOR,),
        batch_sizes=sizes,
        device=str(target),
        warm=tuple({IDS: (length,), MASK: (length,)} for length in lengths),
    )
