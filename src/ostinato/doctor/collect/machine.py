"""The machine's facts at the end of a watch, read at rest: nothing is loaded for them."""

from __future__ import annotations

import os
from typing import Any

from ostinato.doctor.collect.host import collect_host
from ostinato.doctor.host_evidence import HostEvidence


class Machine:
    """Looks at the machine under the watched program."""

    name = "host"

    def __init__(self) -> None:
        self._found: HostEvidence | None = None

    def start(self) -> None:
        """Nothing to do: what counts is how the program was placed in the end."""

    def stop(self) -> None:
        """Look, while the program's memory is still there."""
        self._found = collect_host(os.getpid(), under_load=False)

    def fields(self) -> dict[str, Any]:
        """Return what was found."""
        return {"host": self._found}
