"""Which weights an engine runs with, which it ran with before, and how it changes between them.

What is in use is written to a file, so that an engine that was killed comes back with the weights
it had and not with those it once started with.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from time import time
from typing import TYPE_CHECKING, Any, Literal

from ostinato.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ostinato.llm import Engine


@dataclass(frozen=True, slots=True)
class Version:
    """Some weights.

    Attributes:
        label: How people call them.
        folder: Where they can be read again; None for random ones.
        since: When they came into use, in seconds since 1970.
    """

    label: str
    folder: str | None
    since: int


class Versions:
    """The weights of one engine.

    Args:
        first: Those it starts with.
        tokenizer_folder: Where its tokenizer lies, whatever its weights; None if it has none.
        file: Remembers what is in use; None: nothing does.
        changed: Told after each change.
    """

    def __init__(
        self,
        first: Version,
        *,
        tokenizer_folder: str | None,
        file: Path | None = None,
        changed: Callable[[], None] | None = None,
    ) -> None:
        self.tokenizer_folder = tokenizer_folder
        self.changed = changed
        self._history = [first]
        self._file = file
        self._lock = Lock()

    @property
    def now(self) -> Version:
        """What is in use."""
        return self._history[-1]

    def resume(self, engine: Engine) -> None:
        """Bring an engine that was started anew to where the last one was."""
        if self._file is None or not self._file.is_file():
            return
        kept = [Version(**each) for each in json.loads(self._file.read_text(encoding="utf-8"))]
        if kept and kept[-1].folder is not None and kept[-1].folder != self.now.folder:
            engine.update_weights(kept[-1].folder)
        self._history = kept or self._history

    def update(
        self,
        engine: Engine,
        folder: str,
        label: str,
        in_flight: Literal["finish", "restart"] = "finish",
    ) -> dict[str, Any]:
        """Change to the weights in `folder`; requests go on.

        Raises:
            UsageError: OST6010, a label that is in use or none; and as `Engine.update_weights`.
        """
        if not label or not label.isprintable() or label == self.now.label:
            raise UsageError(
                f"new weights need a printable label that is not in use, got {label!r}",
                code="OST6010",
                remedy=f"call them otherwise than {self.now.label!r}",
            )
        with self._lock:
            before = self.now
            engine.update_weights(folder, in_flight)
            self._set([before, Version(label, folder, int(time()))])
        return {"version": label, "previous": before.label}

    def rollback(
        self, engine: Engine, in_flight: Literal["finish", "restart"] = "finish"
    ) -> dict[str, Any]:
        """Change back to the weights before.

        Raises:
            UsageError: OST6011, there are none, or they cannot be read again.
        """
        with self._lock:
            before = self._history[-2] if len(self._history) > 1 else None
            if before is None or before.folder is None:
                raise UsageError(
                    f"the weights before {self.now.label!r} cannot be read again"
                    if before
                    else f"there were no weights before {self.now.label!r}",
                    code="OST6011",
                    remedy="give the weights you want to /admin/weights, with a label",
                )
            left = self.now
            engine.update_weights(before.folder, in_flight)
            self._set([replace(before, since=int(time()))])
        return {"version": before.label, "previous": left.label}

    def _set(self, history: list[Version]) -> None:
        self._history = history
        if self._file is not None:
            fresh = self._file.with_suffix(".new")
            rows = [{"label": v.label, "folder": v.folder, "since": v.since} for v in history]
            fresh.write_text(json.dumps(rows), encoding="utf-8")
            os.replace(fresh, self._file)
        if self.changed is not None:
            self.changed()
