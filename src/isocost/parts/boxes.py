"""Boxes on a grid of cells: the geometry of rewards for pointing at elements, and the vote of several boxes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy import ndarray

Box = tuple[int, int, int, int]     # left, top, right, bottom; the last two are the first cells outside
EDGE = 1e-6                         # an agreement of edges counts at least this, so that the harmonic mean exists


def parsed(said: str) -> Box | None:
    """The box of an answer of four digits; None if it is none, or empty."""
    if len(said) != 4 or not (said.isascii() and said.isdecimal()):
        return None
    left, top, right, bottom = map(int, said)
    return (left, top, right, bottom) if left < right and top < bottom else None


def area(box: Box) -> int:
    return max(box[2] - box[0], 0) * max(box[3] - box[1], 0)


def hit(box: Box | None, target: Box) -> bool:
    """Whether the middle of a box lies in the target."""
    if box is None:
        return False
    x, y = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
    return target[0] <= x < target[2] and target[1] <= y < target[3]


def overlap(a: Box, b: Box) -> float:
    """Intersection over union."""
    both = area((max(a[0], b[0]), max(a[1], b[1]), min(a[2], b[2]), min(a[3], b[3])))
    return both / (area(a) + area(b) - both)


def edges_agree(a: Box, b: Box, size: int) -> float:
    """The harmonic mean of 1 − |difference| / size over the four edges: 1 where they are equal."""
    each = [max(1 - abs(x - y) / size, EDGE) for x, y in zip(a, b, strict=True)]
    return 4 / sum(1 / e for e in each)


def votes(boxes: Sequence[Box | None], size: int) -> ndarray:
    """How many of the boxes cover each cell: (size, size), rows first."""
    grid = np.zeros((size, size), dtype=int)
    for box in boxes:
        if box is not None:
            grid[box[1] : box[3], box[0] : box[2]] += 1
    return grid


def consensus(grid: ndarray) -> Box | None:
    """The bounding box of the largest connected region of cells with the most votes; the first of equals."""
    if not grid.max(initial=0):
        return None
    left = {(int(r), int(c)) for r, c in np.argwhere(grid == grid.max())}
    best: list[tuple[int, int]] = []
    for start in sorted(left):
        if start not in left:
            continue
        region, front = [start], [start]
        left.discard(start)
        while front:
            r, c = front.pop()
            for cell in ((r - 1, c), (r + 1, c), (r, c - 1), (r, c + 1)):
                if cell in left:
                    left.discard(cell)
                    region.append(cell)
                    front.append(cell)
        best = max(best, region, key=len)
    rows, columns = zip(*best, strict=True)
    return min(columns), min(rows), max(columns) + 1, max(rows) + 1
