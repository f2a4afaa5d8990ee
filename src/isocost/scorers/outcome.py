"""The verifier of the task, as a scorer: what it marks of a finished text, limited to [0, 1]; 0.5 of one under way.

With the verifier that also reports accuracy it is exact, and best-of is pass@n. Each call is charged.
"""

from __future__ import annotations

from collections.abc import Sequence

from isocost.types import Problem, Rollout
from isocost.world import World


async def score(
    problem: Problem, texts: Sequence[Rollout], over: Sequence[bool], world: World
) -> list[float | None]:
    """The verifier's mark of each finished text; None where the verifier fails."""
    marks = iter(await world.grade([t for t, done in zip(texts, over, strict=True) if done]))
    found = (next(marks) if done else None for done in over)
    return [0.5 if not done else None if m is None else min(max(m.value, 0.0), 1.0)
            for done, m in zip(over, found, strict=True)]
