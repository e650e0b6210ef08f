"""The one place that imports Ray, which is large and has types of its own for a part of it only."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

serve: Final[Any] = import_module("ray.serve")
AutoscalingConfig: Final[Any] = import_module("ray.serve.config").AutoscalingConfig
AutoscalingPolicy: Final[Any] = import_module("ray.serve.config").AutoscalingPolicy
RequestRouterConfig: Final[Any] = import_module("ray.serve.config").RequestRouterConfig
RequestRouter: Final[Any] = import_module("ray.serve.request_router").RequestRouter

RayActorError: Final[Any] = import_module("ray.exceptions").RayActorError
RayTaskError: Final[Any] = import_module("ray.exceptions").RayTaskError
BackPressureError: Final[Any] = import_module("ray.serve.exceptions").BackPressureError
DeploymentUnavailableError: Final[Any] = import_module(
    "ray.serve.exceptions"
).DeploymentUnavailableError
