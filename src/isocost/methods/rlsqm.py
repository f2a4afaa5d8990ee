"""RLSQM: the reward is what a static check of the answer says, metric by metric, without running it.

    r = Σ_j w_j m_j / Σ_j w_j,   m_j ∈ {0, 1}, all 0 for what cannot be read;   PPO's loss + β KL(π ‖ base)
    one metric alone, several in one sum, or one after the other in runs that go on
    Steenhoek et al. 2023, "RL from automatic feedback for high-quality unit test generation", arXiv:2310.02368
"""

from __future__ import annotations

from functools import partial
from typing import Any

from isocost.errors import UserError
from isocost.methods import Card, isoeasy, ppo
from isocost.parts import enrich, loss
from isocost.parts.reward import verified
from isocost.scorers import checks_of
from isocost.seams import Recipe
from isocost.traits import trait
from isocost.types import Group, Score
from isocost.world import World

CARD = Card("RLSQM", "2310.02368", 2023, "ppo", "Static checks as rewards raise quality, and no answer is less right.")
METRICS = ("parses", "reads", "acts", "folded")


@trait("not_whether_right")
async def reward(group: Group, world: World, *, metrics: tuple[str, ...] = METRICS) -> Group:
    """The mean of `metrics`, each "NAME" or "WEIGHT*NAME"; of other problems than `expressions` the verifier's score.

    The metrics are those of `isocost.scorers.checks_of`: it can be read, reads its input, has no operation without
    effect, no two constants that make one, and `saved`. The parts are `right`, the verifier's score, and every metric.
    Raises UserError for an unknown metric.
    """
    asked = [(float(w or 1), name) for w, _, name in (m.rpartition("*") for m in metrics)]
    made, out = await verified(group, world), []
    for r in made.rollouts:
        said = checks_of(group.problem, r.final)
        if said and r.score is not None:
            if unknown := [name for _, name in asked if name not in said] or ["nothing"][: not asked]:
                raise UserError(f"reward.metrics has {unknown[0]!r}; expected some of {', '.join(said)}")
            value = sum(w * said[name] for w, name in asked) / sum(w for w, _ in asked)
            r = r.scored(Score(value, {"right": r.score.value, **said}))
        out.append(r)
    return made.of(out)


def recipe(**changes: Any) -> Recipe:
    # The paper's answers are unit tests, and its metrics what a parser sees of them, such as an assertion, a call of
    # the function in question, and no branches; it fits a reward model to each metric, or to their sum, and here the
    # check is the reward. β is 0.05. One metric after the other is two runs: the second begins from the first one's
    # model. Left out: the imitation of good tests before RL.
    clip = partial(loss.clipped, low=0.2, high=0.2)
    near = partial(isoeasy.to_reference, scale=0.05, estimate="k3")
    return ppo.recipe(
        name="rlsqm", reward=partial(reward, metrics=METRICS), enrich=(ppo.enrich, enrich.reference),
        loss=partial(isoeasy.plus, terms=(clip, near)),
    ).but(**changes)
