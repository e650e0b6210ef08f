"""One JSON object a line to standard error: what happened, never what anybody said.

No prompt, answer, key or address of a client is logged; a request is known by its id.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from ostinato.serve.settings import Settings

_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "taskName"}


class JsonLines(logging.Formatter):
    """Writes records as JSON.

    Args:
        process: The name of this process.
    """

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        """Return one line."""
        at = datetime.fromtimestamp(record.created, UTC)
        said: dict[str, Any] = {
            "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "process": self._process,
            "logger": record.name,
            "message": record.getMessage(),
        }
        said |= {name: value for name, value in vars(record).items() if name not in _OWN}
        if record.exc_info:
            said["exception"] = self.formatException(record.exc_info)
        try:
            return msgspec.json.encode(said, enc_hook=str).decode()
        except UnicodeEncodeError:  # half a character, in somebody else's words
            return json.dumps(said, default=str)


def set_up(settings: Settings, process: str) -> None:
    """Let everything this process logs go to standard error, as JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines(process))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.log_level.upper())
    for noisy in ("uvicorn.access", "uvicorn.error", "asyncio", "httpx", "httpcore"):
        logging.getLogger(noisy).setLevel("WARNING")
