"""A lock is held during I/O, and another thread stands in line."""

import threading
import time

EXPECT = "OST502"


def fetch(lock: threading.Lock) -> None:
    for _ in range(4):
        with lock:
            time.sleep(0.04)  # <- here


def main(device: str) -> None:
    lock = threading.Lock()
    threads = [threading.Thread(target=fetch, args=(lock,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
