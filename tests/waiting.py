"""Waiting for another process: by what it has done, never by how long that usually takes."""

import time
from collections.abc import Callable

PATIENCE = 300.0       # seconds: a bound for a machine that is stuck, not a measurement


def until(happened: Callable[[], object], pause: float = 0.01) -> bool:
    """Whether this became true within `PATIENCE`; it is tried every `pause` seconds."""
    deadline = time.monotonic() + PATIENCE
    while not happened():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
    return True
