"""A small server that a balancer cannot tell from a replica: `python -m deploy.replica PORT NAME`.

It streams tokens as slowly as it is told to, keeps a real breaker, and says by it whether it is
ready. Its objectives are the default ones, in a fortieth of the time.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from time import monotonic

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from ostinato.serve.slo import Breaker, Objectives, Rule

TOKENS = 4
QUICK = Objectives(rules=(Rule(window_s=2, confirm_s=1, for_s=1),), least=5, climb_s=1, calm_s=2)


class Replica:
    """One server.

    Attributes:
        first_s: How long a client waits for the first token.
        failing: Answers are 500.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.first_s = 0.01
        self.failing = False
        self.breaker = Breaker(QUICK)

    async def answer(self, request: Request) -> Response:
        if self.failing:
            return JSONResponse({"error": "broken"}, 500)
        if not self.breaker.admits(0, monotonic()):
            return JSONResponse({"error": "shed"}, 429, {"retry-after": "1"})
        return StreamingResponse(
            self._tokens(), media_type="text/event-stream", headers={"x-replica": self.name}
        )

    async def _tokens(self) -> AsyncIterator[str]:
        await asyncio.sleep(self.first_s)
        self.breaker.observe(monotonic(), ttft_s=self.first_s)
        for token in range(TOKENS):
            yield f"data: {self.name} {token}\n\n"
            await asyncio.sleep(0.01)
        yield "data: [DONE]\n\n"

    async def ready(self, request: Request) -> Response:
        is_ready = self.breaker.is_ready(monotonic())
        return JSONResponse({"state": self.breaker.state(monotonic())}, 200 if is_ready else 503)

    async def become(self, request: Request) -> Response:
        self.first_s = float(request.query_params.get("first_s", self.first_s))
        self.failing = request.query_params.get("failing", "") == "yes"
        return JSONResponse({})


def main() -> None:
    """Serve until killed."""
    replica = Replica(sys.argv[2])
    routes = [
        Route("/v1/completions", replica.answer, methods=["POST"]),
        Route("/readyz", replica.ready),
        Route("/become", replica.become, methods=["POST"]),
        *(Route(path, replica.ready) for path in ("/admin/weights", "/metrics", "/ui")),
    ]
    uvicorn.run(Starlette(routes=routes), port=int(sys.argv[1]), log_level="error")


if __name__ == "__main__":
    main()
