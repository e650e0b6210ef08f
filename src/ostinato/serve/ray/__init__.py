"""Several machines: engines and front ends as an application of Ray Serve.

    from ray import serve
    from ostinato.serve.ray import application
    from ostinato.serve.settings import Settings

    serve.run(application(Settings(model="smollm2"), engines=(1, 4)))

Engines come and go with the work that waits (`scaling`), a prompt goes where its beginning is known
(`placing`), and every piece of an answer leaves at once. `engine_replica` is one engine,
`front_end` the application in front of it, `ray_link` the way between, `prefix_router` what Ray
asks, `door` what imports it. `placing` and `scaling` are pure, so nothing here imports Ray before
`application` is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ostinato.serve.ray.deploying import application

__all__ = ["application"]


def __getattr__(name: str) -> object:
    if name != "application":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ostinato.serve.ray.deploying import application

    return application
