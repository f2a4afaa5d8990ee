"""APRIL: launch more groups than a step needs, stop when enough are home, and go on with the others in the next.

    of B groups launched the first B/2 to be complete are trained on; the rest keep what they wrote, with its log-probs
    log ρ_t = log π(y_t) − log μ_t,   μ_t the policy that wrote token t: of a resumed rollout there are several
    Zhou et al. 2025, arXiv:2509.18521
"""

from __future__ import annotations

from functools import partial
from typing import Any

from isocost.methods import Card, grpo
from isocost.parts import choose, schedule
from isocost.seams import Recipe

CARD = Card("APRIL", "2509.18521", 2025, "grpo", "No step waits for its longest rollouts; no token is lost.")


def recipe(**changes: Any) -> Recipe:
    # 64 launched for 32 in the released script. B counts what is launched, so half as many groups make an update.
    return grpo.recipe(
        name="april",
        choose=partial(choose.unfinished_first, inner=choose.uniform),
        schedule=partial(schedule.first_groups, home=0.5),
        groups=32,
    ).but(**changes)
