"""Three threads compute in Python, one at a time."""

import threading
import time

EXPECT = "OST501"


def burn(until: float) -> int:
    total = 0
    while time.perf_counter() < until:
        for number in range(1000):
            total += number % 3
    return total


def main(device: str) -> None:
    until = time.perf_counter() + 1.0
    threads = [threading.Thread(target=burn, args=(until,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
