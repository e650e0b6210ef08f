"""Any graphed PyTorch module as a service, its requests batched as they come.

    # shop.py
    def factory() -> Servable:
        model = torchvision.models.resnet50().eval().cuda()
        pixels = TensorSpec("FP32", (-1, 3, 224, 224))
        return Servable(model, inputs={"pixels": pixels}, device="cuda")

    $ ostinato serve --callable shop:factory

`declaration` is what a factory returns; `batching` decides, pure; `batcher` is the queue; `model`
runs a batch on torch; `process` holds it apart from the event loop of HTTP, `keeper` keeps that
process running and `client` is a front end's way to it.
"""

from ostinato.serve.callable.arrays import Array, Arrays, TensorSpec
from ostinato.serve.callable.batching import Limits
from ostinato.serve.callable.declaration import Servable
from ostinato.serve.callable.faults import Fault, fault_of
from ostinato.serve.callable.keeper import served
from ostinato.serve.callable.service import CallableService, Description, Numbers

__all__ = [
    "Array",
    "Arrays",
    "CallableService",
    "Description",
    "Fault",
    "Limits",
    "Numbers",
    "Servable",
    "TensorSpec",
    "fault_of",
    "served",
]
