"""T1: many attempts at high temperature, an entropy bonus, and a reference that follows the policy.

    L = −(1/R) Σ_i A_i log π(y_i) − α H(π) + β KL(π ‖ π_ref),   A_i = r_i − mean_{j≠i} r_j,   64 attempts
    θ_ref ← κ θ_ref + (1 − κ) θ after each step        r_i ← r_i − p if y_i is truncated or ends in repetition
    Hou et al. 2025, arXiv:2501.11651
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from isocost.batch import Batch, Forward
from isocost.methods import Card, reinforce, rloo
from isocost.methods.isoeasy import entropy_bonus, plus, to_reference
from isocost.parts import enrich, pace
from isocost.parts.improve import policy
from isocost.parts.loss import Out
from isocost.parts.reward import verified
from isocost.seams import Improve, Recipe
from isocost.traits import asks, bounds
from isocost.types import Group, Rollout, Stop
from isocost.world import World

if TYPE_CHECKING:
    from isocost.ledger import Ledger

CARD = Card("T1", "2501.11651", 2025, "rloo", "Trained on many diverse attempts, it gains more from inference.")


@bounds(penalty="[0, inf)", span="[1, inf)", times="[2, inf)")
async def reward(group: Group, world: World, *, penalty: float = 0.5, span: int = 8, times: int = 4) -> Group:
    """The verifier's score, less `penalty` for an attempt that is truncated or ends in repetition (T1).

    Repetition: the last tokens are one sequence of at most `span` tokens, `times` in a row. Parts: `right` and `form`.
    """
    group = await verified(group, world)
    return group.of(_charged(r, penalty * (r.stop is Stop.LENGTH or repeats(r, span, times))) for r in group.rollouts)


def repeats(rollout: Rollout, span: int, times: int) -> bool:
    """Whether what the policy wrote, without an end token, ends in one sequence of up to `span` tokens `times` over."""
    text = rollout.segments[-1]
    said = text.tokens[text.own].tolist()
    said = said[:-1] if rollout.stop is Stop.DONE else said
    return any(len(said) >= k * times and said[-k:] * times == said[-k * times :] for k in range(1, span + 1))


def _charged(rollout: Rollout, fine: float) -> Rollout:
    if (score := rollout.score) is None:
        return rollout
    return rollout.scored(replace(score, value=score.value - fine, parts={"right": score.value, "form": -fine}))


@asks("entropy")
@enrich.reads_reference
@bounds(kl="[0, inf)", entropy="[0, inf)")
def loss(out: Forward, batch: Batch, *, kl: float = 1e-2, entropy: float = 1e-3) -> Out:
    """REINFORCE, with the entropy bonus and the KL to the reference as it is now."""
    terms = (reinforce.loss, partial(to_reference, scale=kl), partial(entropy_bonus, scale=entropy))
    return plus(out, batch, terms=terms)


@asks("weights")
@bounds(keep="[0, 1]")
def improve(
    batch: Batch, recipe: Recipe, world: World, ledger: Ledger, *, keep: float = 0.99, inner: Improve = policy
) -> dict[str, float]:
    """Any improvement, and then the reference moves to `keep` of itself and 1 − `keep` of the policy's weights."""
    seen = inner(batch, recipe, world, ledger)
    world.follow(keep)
    return seen


def recipe(**changes: Any) -> Recipe:
    # 64 attempts at up to temperature 1.2 are the paper's; α, β, κ and the penalty are not published in numbers that
    # carry over. Garbled text is not looked for. Left out: imitation of long attempts with errors and corrections
    # before RL, and the probe in which thinking is truncated and a summary is forced, of which mrt and brpo have forms.
    return rloo.recipe(
        name="t1", reward=partial(reward, penalty=0.5, span=8, times=4), enrich=(enrich.reference,),
        loss=partial(loss, kl=1e-2, entropy=1e-3), improve=partial(improve, keep=0.99, inner=policy),
        pace=partial(pace.warmed, temperature=1.2), rollouts=64,
    ).but(**changes)
