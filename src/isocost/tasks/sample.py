"""A representative sample of a problem set."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from isocost.tasks import text
from isocost.types import Problem


def sample(problems: Sequence[Problem], count: int, seed: int = 0) -> tuple[Problem, ...]:
    """`count` of the problems, at random by seed, each level in proportion to its share; in their own order.

    Problems are sorted by level (`meta["level"]`; those without one first, then numbers, then words) and within a level
    by the hash of prompt and seed; every N / count-th is taken from a random start (systematic sampling). So
    the sample does not depend on the order of the problems. All are returned if there are no more than `count`.
    """
    if count >= len(problems):
        return tuple(problems)
    drawn = [_draw(f"{seed}\n{p.id}\n{text.kin(p)}") for p in problems]
    ranked = sorted(range(len(problems)), key=lambda i: (_level(problems[i]), drawn[i]))
    step, start = len(problems) / count, _draw(f"{seed}\nstart")
    return tuple(problems[i] for i in sorted(ranked[int((k + start) * step)] for k in range(count)))


def _level(problem: Problem) -> tuple[int, float, str]:
    level = problem.meta.get("level")
    if level is None:
        return 0, 0.0, ""
    return (2, 0.0, level) if isinstance(level, str) else (1, float(level), "")


def _draw(said: str) -> float:
    """A number in [0, 1) that depends on the text alone."""
    return int.from_bytes(hashlib.sha256(f"sample\n{said}".encode()).digest()[:6]) / 2**48
