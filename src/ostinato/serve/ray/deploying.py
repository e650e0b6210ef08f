"""`application(...)`: engines and front ends as one application of Ray Serve."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ostinato.errors import UsageError
from ostinato.serve.ray.door import (
    AutoscalingConfig,
    AutoscalingPolicy,
    RequestRouterConfig,
    serve,
)
from ostinato.serve.ray.engine_replica import EngineReplica
from ostinato.serve.ray.front_end import FrontEnd
from ostinato.serve.ray.prefix_router import PrefixRouter

if TYPE_CHECKING:
    from ostinato.serve.settings import Settings

ENGINES, FRONT_ENDS = "engines", "front-ends"
_MOST_ONGOING = 1024
_HEALTH_EVERY_S = 2.0
_LOOK_EVERY_S = 0.5


def application(
    settings: Settings,
    *,
    engines: tuple[int, int] = (1, 4),
    front_ends: int = 1,
    engine_resources: Mapping[str, Any] | None = None,
    scaling: Mapping[str, Any] | None = None,
    slack: int = 8,
) -> Any:
    """Return an application for `ray.serve.run`.

    Args:
        settings: Of the service. Where to listen, TLS and the number of front ends are Ray's.
        engines: The fewest and the most of them; as many as the work that waits asks for.
        engine_resources: What each engine needs, as Ray's `ray_actor_options`; None: one GPU, or
            one CPU where the settings say that the engine runs there.
        scaling: Further fields of Ray's `AutoscalingConfig`, such as `upscale_delay_s`.
        slack: Requests that an engine may have more than the idlest one and still be preferred for
            a prompt whose beginning it knows.

    Raises:
        UsageError: OST6066, the numbers cannot be, or the settings are of something else.
    """
    fewest, most = engines
    if not 1 <= fewest <= most or front_ends < 1:
        raise _wrong(f"there must be at least one of each, got {engines} and {front_ends}")
    if settings.callable is not None:
        raise _wrong("the settings are of a callable, and Ray serves engines here")
    written = settings.to_json()
    on_cpu = settings.engine.get("device") == "cpu"
    needs = dict(engine_resources or ({"num_cpus": 1} if on_cpu else {"num_gpus": 1}))
    room = settings.engine.get("max_waiting", _MOST_ONGOING) + settings.engine.get("max_batch", 256)
    engine = serve.deployment(EngineReplica).options(
        name=ENGINES,
        ray_actor_options=needs,
        max_ongoing_requests=room,
        max_queued_requests=room,
        autoscaling_config=AutoscalingConfig(
            min_replicas=fewest,
            max_replicas=most,
            initial_replicas=fewest,
            policy=AutoscalingPolicy(policy_function="ostinato.serve.ray.scaling:by_queue"),
            **(scaling or {}),
        ),
        request_router_config=RequestRouterConfig(
            request_router_class=PrefixRouter, request_router_kwargs={"slack": slack}
        ),
        # A replica that is to go answers what it has, within the bound.
        graceful_shutdown_timeout_s=settings.drain_s,
        graceful_shutdown_wait_loop_s=_LOOK_EVERY_S,
        health_check_period_s=_HEALTH_EVERY_S,
    )
    front = serve.deployment(serve.ingress()(FrontEnd)).options(
        name=FRONT_ENDS,
        num_replicas=front_ends,
        ray_actor_options={"num_cpus": 0},
        max_ongoing_requests=settings.max_connections,
        graceful_shutdown_timeout_s=settings.drain_s,
        graceful_shutdown_wait_loop_s=_LOOK_EVERY_S,
    )
    return front.bind(written, engine.bind(written))


def _wrong(problem: str) -> UsageError:
    return UsageError(
        problem,
        code="OST6066",
        remedy="pass the settings of a model that writes, engines=(1, 4) and front_ends=1",
    )
