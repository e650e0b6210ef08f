"""When the evidence of a watched program is saved, so that a sudden end costs little. Pure."""

from __future__ import annotations

FIRST_SAVE_S = 0.1
_LEAST_S, _MOST_S = 0.1, 10.0  # from one save to the next
_SHARE = 0.002  # of the time may go into saving, where that is not too seldom
_MOST_SHARE = 0.003  # and in no case more


def pause_s(seen_s: float, cost_s: float) -> float:
    """Return how long to wait before the next save, in seconds.

    A save that costs much is made less often. But a sudden end costs half of the time seen and ten
    seconds at most, or three hundred times what a save costs where that is more: a millisecond
    while there is little to write, and five when all tables are full.

    Args:
        seen_s: How long the program had been watched at the last save.
        cost_s: How long that save had a CPU: for so long nobody else had the GIL.
    """
    wanted = min(cost_s / _SHARE, seen_s, _MOST_S)
    return max(_LEAST_S, cost_s / _MOST_SHARE, wanted)
