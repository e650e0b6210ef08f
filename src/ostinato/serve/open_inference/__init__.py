"""The Open Inference Protocol, version 2: what Triton and KServe speak, for any model served here.

`routes` is the way in over HTTP (with the binary extension that tritonclient uses by default),
`grpc_server.GrpcServer` the one over gRPC. `inference` holds requests and replies as plain values,
`models` says what can be asked; `rest_bodies` and `grpc_messages` are the two forms of a request.
"""

from ostinato.serve.open_inference.rest import routes

__all__ = ["routes"]
