"""A call that no recording answers: it runs eagerly, and the reason is recorded or raised."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch

from ostinato.graphs.chronicle import Chronicle
from ostinato.graphs.drawing import drawing_run
from ostinato.graphs.fitting import Call
from ostinato.graphs.options import Options
from ostinato.graphs.outputs import lease_all
from ostinato.graphs.raising import error_for
from ostinato.graphs.reasons import Reason


class Eagerly:
    """Runs the calls of one runner eagerly.

    Args:
        fn: The callable.
        options: As checked: whether to raise instead, and how results are handed out.
        chronicle: Is told why.
    """

    def __init__(self, fn: Callable[..., Any], options: Options, chronicle: Chronicle) -> None:
        self._fn = fn
        self._raises = options.on_unfit == "raise"
        self._is_leased = options.outputs == "leased"
        self._chronicle = chronicle

    def run(self, call: Call, reason: Reason, detail: str = "") -> object:
        """Say why, and answer the call.

        Raises:
            OstinatoError: The reason, with `on_unfit="raise"`; the callable has not run then.
        """
        self._chronicle.ran_eagerly(reason, detail)
        self.raise_if_asked(reason, detail)
        return self.owned(self.plainly(call))

    def plainly(self, call: Call) -> object:
        """Answer the call, and say nothing."""
        args, kwargs = call
        with drawing_run() if torch.cuda.is_initialized() else nullcontext():
            return self._fn(*args, **kwargs)

    def owned(self, result: object) -> object:
        """Return the result of an eager run as the runner hands results out."""
        return lease_all(result) if self._is_leased else result

    def raise_if_asked(self, reason: Reason, detail: str) -> None:
        """Raise the reason with `on_unfit="raise"`, unless it passes by itself."""
        if self._raises:
            error = error_for(self._chronicle.name, reason, detail)
            if error is not None:
                raise error
