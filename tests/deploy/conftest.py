"""What a busy service offers, read once."""

from __future__ import annotations

import pytest

from deploy.promql import offered


@pytest.fixture(scope="session")
def offer() -> dict[str, dict[str, set[str]]]:
    """Series -> label -> values, of a service in which everything happened once."""
    return offered()
