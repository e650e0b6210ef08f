"""Lines that wait: I/O, sleeps, models, `await`.

Alone they are no fault. Under a `threading.Lock` everybody else waits too (lock-across-wait), and
in a coroutine the whole event loop does (blocking-call-in-event-loop). Waits for the GPU are noted
by the rules that see them.
"""

from __future__ import annotations

import ast
import re

from ostinato.doctor.lint.facts import Pause, Wants
from ostinato.doctor.lint.operations import known
from ostinato.doctor.lint.rules.event import Event
from ostinato.doctor.lint.scene import Scene, is_model_name
from ostinato.doctor.lint.torch_names import words
from ostinato.doctor.lint.values import OUTPUT, Kind, Op, Value, instance, symbol

_NETWORK = (
    "requests.", "urllib.request.", "httpx.get", "httpx.post", "httpx.put", "httpx.delete",
    "httpx.request", "httpx.stream", "urllib3.", "socket.create_connection",
    "socket.getaddrinfo", "socket.gethostbyname", "boto3.", "paramiko.", "smtplib.",
    "huggingface_hub.hf_hub_download", "huggingface_hub.snapshot_download", "ftplib.",
    "psycopg2.connect", "pymysql.connect",
)  # fmt: skip
_NETWORK_TYPES = re.compile(r"^(requests\.(Session|session)|httpx\.Client|urllib3\.\w+)$")
_NOT_WAITING = re.compile(r"\.(Session|session|Request|Retry|HTTPAdapter|Timeout|exceptions\.\w+)$")
_VERBS = words("get post put delete patch head options request send")
_PROCESSES = frozenset(
    "subprocess." + word for word in ("run", "call", "check_call", "check_output", "getoutput")
) | {"os.system", "os.waitpid", "os.wait"}
_SLEEPS = frozenset({"time.sleep"})
_FILES = frozenset({"builtins.open", "torch.load", "torch.save", "numpy.load", "io.open"})
_PATH_METHODS = frozenset({"read_text", "read_bytes", "write_text", "write_bytes"})
_PATHS = frozenset({"pathlib.Path", "pathlib.PosixPath", "pathlib.WindowsPath"})
# Others may be non-blocking: in the back end of an event loop they are.
_SOCKETS = frozenset({"socket.socket", "socket.create_connection"})
_SOCKET_METHODS = frozenset({"recv", "recv_into", "sendall", "accept", "connect", "recvfrom"})
_FUTURE = instance("concurrent.futures.Future")
_FUTURE_NAMES = re.compile(r"(?:^|_)(?:fut|future|futures|task|promise)s?$", re.IGNORECASE)
_QUEUE_NAMES = re.compile(r"(?:^|_)(?:q|queue|inbox|mailbox|requests)$", re.IGNORECASE)
_THREAD_NAMES = re.compile(r"(?:^|_)(?:thread|worker|process|proc)$", re.IGNORECASE)
_GENERATES = frozenset({"generate", "encode", "predict", "transcribe", "forward"})


def awaiting(scene: Scene, node: ast.Await) -> None:
    """See an `await`."""
    if scene.locks:
        scene.wait(Pause.AWAIT, node, "the coroutine is suspended here")


def multiplied(scene: Scene, node: ast.BinOp) -> None:
    """See a matrix product in a loop."""
    scene.wait(Pause.MODEL, node, "matrix products run, or are launched, one after another")


def called(scene: Scene, event: Event) -> None:
    """See a call."""
    function = event.function
    if function in _SLEEPS:
        scene.wait(Pause.SLEEP, event.node, "`time.sleep` stops the thread")
    elif function in _PROCESSES:
        scene.wait(Pause.IO, event.node, "it waits for another process")
    elif function.startswith(_NETWORK) and not _NOT_WAITING.search(function):
        scene.wait(Pause.IO, event.node, "it waits for the network")
    elif function in _FILES:
        _file(scene, event)
    elif event.attr and not function:
        _method(scene, event)
    if (event.attr == "submit" and not function) or function == "asyncio.run_coroutine_threadsafe":
        event.result = _FUTURE
    if event.attr == "replay" and not function and not event.args:
        scene.runs_model(event.node, replays=True)
    if not function or function.rpartition(".")[2] in _GENERATES:
        _model(scene, event)


def _file(scene: Scene, event: Event) -> None:
    mode = known(event.args[1]) if len(event.args) > 1 else known(event.keyword("mode"))
    if isinstance(mode, str) and ("a" in mode or "w" in mode) and "open" in event.function:
        return  # a lock round a log file is there for the file
    scene.wait(Pause.FILE, event.node, "it waits for the disk")


def _method(scene: Scene, event: Event) -> None:
    attr, word = event.attr, _word(event.node)
    if event.base.kind is Kind.INSTANCE and _NETWORK_TYPES.match(event.base.of):
        if attr in _VERBS:
            scene.wait(Pause.IO, event.node, "it waits for the network")
    elif attr in _SOCKET_METHODS and _is_made_by(event.base, _SOCKETS):
        scene.wait(Pause.IO, event.node, "it waits for the network")
    elif attr in _VERBS and word in ("session", "_session", "http", "http_client"):
        if event.base.kind is not Kind.INSTANCE:
            scene.wait(Pause.IO, event.node, "it waits for the network")
    elif attr in _PATH_METHODS and _is_path(event):
        scene.wait(Pause.FILE, event.node, "it waits for the disk")
    elif attr in ("result", "exception") and event.base == _FUTURE:
        scene.wait(Pause.IO, event.node, "it waits for another thread")
    elif attr == "result" and _FUTURE_NAMES.search(word):
        # In a coroutine it is more often a task, which is done by then.
        scene.wait(Pause.THREAD, event.node, "it waits for another thread")
    elif (attr == "result" and isinstance(_before(event.node), ast.Call)) or (
        attr == "join" and _THREAD_NAMES.search(word)
    ):
        scene.wait(Pause.IO, event.node, "it waits for another thread")
    elif attr == "get" and _QUEUE_NAMES.search(word) and not event.args:
        if known(event.keyword("block")) is not False and not _is_asyncio(event.base):
            scene.wait(Pause.IO, event.node, "it waits for another thread")
    elif attr == "communicate":
        scene.wait(Pause.IO, event.node, "it waits for another process")


def _is_path(event: Event) -> bool:
    before = _before(event.node)
    divided = isinstance(before, ast.BinOp) and isinstance(before.op, ast.Div)
    # What is annotated as a path is plain Python, of which nothing else has such a method.
    return divided or event.base.kind is Kind.PYTHON or _is_made_by(event.base, _PATHS)


def _is_made_by(value: Value, classes: frozenset[str]) -> bool:
    """Return whether the value is an instance of one of these: annotated, or just made."""
    if value.kind is Kind.INSTANCE:
        return value.of in classes
    made = value.of.parts[0] if value.kind is Kind.SYMBOL and value.of.op is Op.RETURN else None
    return isinstance(made, Value) and made.kind is Kind.NAME and made.of in classes


def _is_asyncio(value: Value) -> bool:
    return value.kind is Kind.INSTANCE and bool(value.of.startswith("asyncio."))


def _model(scene: Scene, event: Event) -> None:
    """Note the call of what is plainly a model: by what it is, or by what everybody calls it."""
    word = _word(event.node) if event.attr in _GENERATES else _called_word(event.node)
    named = is_model_name(word) and not (event.attr == "encode" and word.endswith("coder"))
    is_module = is_torch_module(event.target)
    is_whole = event.attr in _GENERATES
    if not (named or is_module):
        return
    if event.target.kind is Kind.NAME and not is_whole:
        return  # a class or a function of that name
    if not is_whole or event.attr == "forward":
        scene.runs_model(event.node)
        if event.result.kind is Kind.UNKNOWN:
            event.result = OUTPUT
        elif event.result.kind is Kind.SYMBOL:
            event.result = symbol(Op.OUTPUT, event.result)
    fact = f"`{event.attr or word}` runs the model before it returns"
    asked = event.base if is_whole and event.attr else event.target
    scene.wait(Pause.MODEL, event.node, fact, asked, Wants.MODEL)


def is_torch_module(value: Value) -> bool:
    """Return whether the value can only be a torch module, or a compiled or recorded one."""
    if value.kind is Kind.WRAPPED:
        return True
    return value.kind is Kind.INSTANCE and (
        value.of.startswith("torch.nn.") or value.of.startswith("transformers.AutoModel")
    )


def _before(node: ast.Call) -> ast.expr:
    return node.func.value if isinstance(node.func, ast.Attribute) else node.func


def _word(node: ast.Call) -> str:
    """Return the last name of what stands before the dot: `model` in `self.model.generate()`."""
    before = _before(node)
    if isinstance(before, ast.Name):
        return before.id
    return before.attr if isinstance(before, ast.Attribute) else ""


def _called_word(node: ast.Call) -> str:
    if isinstance(node.func, ast.Name):
        return node.func.id
    return node.func.attr if isinstance(node.func, ast.Attribute) else ""
