"""When the evidence of a watched program is saved, so that a sudden end costs little. Pure."""

from __future__ import annotations

FIRST_SAVE_S = 0.5
_LEAST_S, _MOST_S = 1.0, 10.0  # from one save to the next
_SHARE = 0.004  # of the time may go into saving, where that is not too seldom


def pause_s(seen_s: float, cost_s: float) -> float:
    """Return how long to wait before the next save, in seconds.

    A save that costs much is made less often. But a sudden end costs a third of the time seen and
    ten seconds at most, or a second where that is more.

    Args:
        seen_s: How long the program had been watched at the last save.
        cost_s: How long that save took.
    """
    return max(_LEAST_S, min(cost_s / _SHARE, seen_s / 2, _MOST_S))
