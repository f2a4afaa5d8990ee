"""Intervals of time: what an answer says, and the overlap of two. A frame that a letter names is 1 long: A is 0 to 1.
"""

from __future__ import annotations

import re

Interval = tuple[float, float]      # begin and end, in any one unit
_LETTERS, _NUMBERS = re.compile(r"([A-Z])([A-Z])"), re.compile(r"(\d+(?:\.\d+)?)(?: |-|, ?| to )(\d+(?:\.\d+)?)")


def numbered(frame: str) -> int:
    """The number of a frame, from 0; also of characters that name none."""
    return ord(frame) - ord("A")


def parsed(said: str) -> Interval | None:
    """The interval of an answer: two letters, its first and last frame, or two numbers; None if it is none, or empty.

    Between numbers is a space, "-", a comma, or " to ".
    """
    if found := _LETTERS.fullmatch(said):
        begin, end = float(numbered(found[1])), float(numbered(found[2]) + 1)
    elif found := _NUMBERS.fullmatch(said):
        begin, end = float(found[1]), float(found[2])
    else:
        return None
    return (begin, end) if begin < end else None


def overlap(a: Interval, b: Interval) -> float:
    """Temporal IoU: what both share, over what either covers; 0 where they do not touch."""
    both = max(min(a[1], b[1]) - max(a[0], b[0]), 0.0)
    return both / (a[1] - a[0] + b[1] - b[0] - both)
