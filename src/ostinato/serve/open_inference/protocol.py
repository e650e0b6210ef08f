"""The protocol's gRPC messages, from the description of them that lies beside this file.

`open_inference_grpc.proto` is the Open Inference Protocol's own (github.com/kserve/
open-inference-protocol, Apache-2.0, unchanged), and `open_inference_grpc.binpb` what grpcio-tools
makes of it:

    python -m grpc_tools.protoc -I. --descriptor_set_out=open_inference_grpc.binpb \
        open_inference_grpc.proto

Generated modules would do the same, but put the messages into the one pool that all of a process
shares: a client of the same protocol in that process, such as tritonclient, has its own, and the
second to be imported fails. They would also demand the protobuf that made them, or a later one.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any, Final

from google.protobuf import (  # type: ignore[import-untyped]
    descriptor_pb2,
    descriptor_pool,
    message_factory,
)

SERVICE: Final = "inference.GRPCInferenceService"


@cache
def messages() -> dict[str, Any]:
    """Return the classes of all messages, by name."""
    described = resources.files(__package__).joinpath("open_inference_grpc.binpb").read_bytes()
    files = descriptor_pb2.FileDescriptorSet.FromString(described)
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    names = [message.name for message in files.file[0].message_type]
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"inference.{name}"))
        for name in names
    }


@cache
def methods() -> dict[str, tuple[Any, Any]]:
    """Return what each method of the service takes and gives, by its name."""
    known = messages()
    described = known["ModelInferRequest"].DESCRIPTOR.file.services_by_name["GRPCInferenceService"]
    return {
        name: (known[method.input_type.name], known[method.output_type.name])
        for name, method in described.methods_by_name.items()
    }
