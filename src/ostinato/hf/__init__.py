"""Drop-in for transformers: `accelerate(model).generate(...)`, a thin client of `ostinato.graphs`.

A request is read (`request`), the model admitted once (`admission`, `probe`), and the whole decode
step recorded as one callable (`steps`, on the tensors of `state` and `cache`). What the static step
does not do goes to the model's own `generate` with a reason (`delegation`). An encoder needs none
of that: `load_encoder` returns one that plain `graphed` records.
"""

from ostinato.hf.accelerated import Accelerated
from ostinato.hf.delegation import Delegated
from ostinato.hf.divergence import Divergence, first_divergence
from ostinato.hf.drop_in import accelerate
from ostinato.hf.encoder import Encoder, load_encoder
from ostinato.hf.report import AccelerationReport, Answer, Generation

__all__ = [
    "Accelerated",
    "AccelerationReport",
    "Answer",
    "Delegated",
    "Divergence",
    "Encoder",
    "Generation",
    "accelerate",
    "first_divergence",
    "load_encoder",
]
