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
        first_s: How long a client waits for the first token, and with it for the head.
        between_s: And for each further one.
        status: Of answers, where it is not 200.
        asked: How many requests for an answer have come.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.first_s = 0.01
        self.between_s = 0.01
        self.status = 200
        self.asked = 0
        self.breaker = Breaker(QUICK)

    async def answer(self, request: Request) -> Response:
        self.asked += 1
        if self.status != 200:
            return JSONResponse({"error": "broken"}, self.status)
        if not self.breaker.admits(0, monotonic()):
            return JSONResponse({"error": "shed"}, 429, {"retry-after": "1"})
        await asyncio.sleep(self.first_s)
        self.breaker.observe(monotonic(), ttft_s=self.first_s)
        return StreamingResponse(
            self._tokens(), media_type="text/event-stream", headers={"x-replica": self.name}
        )

    async def _tokens(self) -> AsyncIterator[str]:
        for token in range(TOKENS):
            yield f"data: {self.name} {token}\n\n"
            await asyncio.sleep(self.between_s)
        yield "data: [DONE]\n\n"

    async def ready(self, request: Request) -> Response:
        is_ready = self.breaker.is_ready(monotonic())
        return JSONResponse({"state": self.breaker.state(monotonic())}, 200 if is_ready else 503)

    async def become(self, request: Request) -> Response:
        told = request.query_params
        self.first_s = float(told.get("first_s", self.first_s))
        self.between_s = float(told.get("between_s", self.between_s))
        self.status = int(told.get("status", self.status))
        return JSONResponse({})

    async def count(self, request: Request) -> Response:
        return Response(str(self.asked))


def main() -> None:
    """Serve until killed."""
    replica = Replica(sys.argv[2])
    routes = [
        Route("/v1/completions", replica.answer, methods=["POST"]),
        Route("/readyz", replica.ready),
        Route("/become", replica.become, methods=["POST"]),
        Route("/asked", replica.count),
        *(Route(path, replica.ready) for path in ("/admin/weights", "/metrics", "/ui")),
    ]
    uvicorn.run(Starlette(routes=routes), port=int(sys.argv[1]), log_level="error")


if __name__ == "__main__":
    main()
