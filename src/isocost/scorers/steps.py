"""The step checker of a built-in family: whether all steps so far are legal, and of a finished text the answer too.

It knows what is legal, not what is promising: a countdown's step may be right and lead nowhere.
"""

from __future__ import annotations

from collections.abc import Sequence

from isocost.errors import UserError
from isocost.tasks.builtin import families
from isocost.traits import bounds
from isocost.types import Cost, Problem, Rollout
from isocost.world import World


@bounds(sure="(0.5, 1]")
async def score(
    problem: Problem, texts: Sequence[Rollout], over: Sequence[bool], world: World, *, sure: float = 0.9,
    ends: bool = True,
) -> list[float]:
    """`sure` where the steps are right, else 1 - `sure`; a finished text is judged by its answer.

    Without `ends` it is judged by its steps before the answer, as by a model of the process. Charged as one verifier
    call a text. Raises UserError for problems without a step checker.
    """
    family = families.of(problem)
    if family is None:
        known = ", ".join(families.FAMILIES)
        raise UserError(f"scorer steps: problem {problem.id!r} has no step checker; those of {known} have one. Use "
                        "scorer=outcome, scorer=likelihood or scorer=your_file.py:function")
    world.meter.charge(Cost(verify=len(texts)))
    found = [family.check_steps(problem, t.final) for t in texts]
    right = [f[-1] if done and ends else all(f[:-1]) for f, done in zip(found, over, strict=True)]
    return [sure if r else 1 - sure for r in right]
