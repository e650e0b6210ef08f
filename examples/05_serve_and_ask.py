"""Serve a model, ask it over HTTP as any client of OpenAI would, and stop it in order."""

import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

command = [sys.executable, "-m", "ostinato.cli", "serve", "--port", "0"]
server = subprocess.Popen(
    [*command, "--device", "cpu", "--engine", "max_model_len=256", "--log-level", "error"],
    stdout=subprocess.PIPE,
    text=True,
)
assert server.stdout is not None
url = server.stdout.readline().split()[-1]


def is_ready() -> bool:
    try:
        urllib.request.urlopen(f"{url}/readyz").close()
    except urllib.error.HTTPError:  # 503 until the model is loaded
        return False
    return True


while not is_ready():
    time.sleep(0.1)

body = {
    "messages": [{"role": "user", "content": "Say hello."}],
    "max_tokens": 8,
    "temperature": 0,
    "stream": True,
}
request = urllib.request.Request(
    f"{url}/v1/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"}
)
with urllib.request.urlopen(request) as answer:
    for line in answer:
        if line.startswith(b"data: {"):
            choice = json.loads(line[6:])["choices"][0]
            print(choice["delta"].get("content", ""), end="", flush=True)
print()
print("finished:", choice["finish_reason"])

server.send_signal(signal.SIGTERM)
print("exit status:", server.wait())
server.stdout.close()
