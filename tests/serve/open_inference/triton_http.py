"""tritonclient over HTTP, closed where it was opened and nowhere else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tritonclient.http


class _Client(tritonclient.http.InferenceServerClient):  # type: ignore[misc]
    def __del__(self) -> None:
        # The original closes it again, in whichever thread frees it: gevent does not take that.
        pass


@contextmanager
def http_client(port: int) -> Iterator[Any]:
    """A client of the server on this machine."""
    with _Client(f"127.0.0.1:{port}", concurrency=4) as made:
        yield made
