"""What a busy service offers, read once."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def offer() -> dict[str, dict[str, set[str]]]:
    """Series -> label -> values, of a service in which everything happened once."""
    pytest.importorskip("promql_parser", reason="needs promql-parser")
    from deploy.promql import offered

    return offered()
