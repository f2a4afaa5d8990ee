"""GRPO-RoC: sample twice as many as are trained on; of the right ones keep those with the fewest faults.

    n_pos = round(|P| G/2G) of least failed/calls + form,   n_neg = G − n_pos at random,   each at least min(2, there)
    rStar2-Agent: Shang et al. 2025, arXiv:2508.20722
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from isocost import chance
from isocost.methods import Card, grpo
from isocost.parts import loss, weight
from isocost.parts.reward import verified
from isocost.parts.select import mark
from isocost.seams import Recipe
from isocost.traits import bounds, gives, requires
from isocost.types import Group, Role, Rollout, Segment, Stop, Turn
from isocost.world import World

if TYPE_CHECKING:
    from isocost.ledger import Ledger

CARD = Card("GRPO-RoC", "2508.20722", 2025, "grpo", "Right answers come with fewer failed tool calls.", rule=2)


@gives("faults")
async def reward(
    group: Group, world: World, *, failed: str = "error", opens: str = "<answer>", closes: str = "</answer>"
) -> Group:
    """The verifier's score; the part `faults` measures the quality of the trace (GRPO-RoC, arXiv:2508.20722).

    Faults of tools: the share of the calls that had a fault, of the tool or of the call, as their environment recorded
    them; where it recorded no turns, the share of its answers that contain the word `failed`; 0.5 if no tool was
    called. A turn is a call, with one fault at most, unless it ended the dialogue without a fault: that is the answer.
    Faults of form: 1 if answer tags are missing or unmatched, else every answer after the first, per turn, at most 1; 0
    if `opens` is empty, for an environment without such tags. The value is the verifier's alone.
    """
    group = await verified(group, world)
    return group.of(_with_faults(r, world, failed, opens, closes) for r in group.rollouts)


def _with_faults(rollout: Rollout, world: World, failed: str, opens: str, closes: str) -> Rollout:
    if (score := rollout.score) is None:
        return rollout
    replies = [text.lower() for s in rollout.segments for text in _spoken(s, int(Role.SEEN), world)]
    said = [text for s in rollout.segments for text in _spoken(s, int(Role.OWN), world)]
    wrong = [t.fault is not None for t in calls(rollout)] if rollout.turns else [failed in text for text in replies]
    tools = sum(wrong) / len(wrong) if wrong else 0.5
    opened, closed = ("".join(said).count(tag) for tag in (opens, closes))
    form = 0.0 if not opens else min((opened - 1) / len(said), 1.0) if opened == closed > 0 else 1.0
    return rollout.scored(replace(score, parts={**score.parts, "faults": tools + form}))


def calls(rollout: Rollout) -> Sequence[Turn]:
    """The turns of a dialogue that called a tool: all of them, less a last one that ended it without a fault."""
    ended = rollout.stop in (Stop.DONE, Stop.LENGTH) and rollout.turns[-1].fault is None
    return rollout.turns[:-1] if ended else rollout.turns


def _spoken(text: Segment, role: int, world: World) -> list[str]:
    """The texts of one role, one for each turn."""
    own = np.flatnonzero(text.role == role)
    turns = np.split(own, np.flatnonzero(np.diff(own) > 1) + 1) if len(own) else []
    return [world.text.decode(text.tokens[at].tolist()) for at in turns]


@requires(
    "faults", at="reward",
    why="it keeps the right answers with the fewest faults, which roc.reward records; without it all "
        "have none",
)
@bounds(keep="(0, 1]", least="[0, inf)")
def select(
    group: Group, ledger: Ledger, *, keep: float = 0.5, least: int = 2, by: str = "faults"
) -> Group | None:
    """A share of a mixed group: right attempts with the fewest faults, wrong ones at random (arXiv:2508.20722).

    Right and wrong keep their proportion, rounded half to even, with at least `least` of each if there are as many;
    ties go to the first attempt, and the wrong are drawn with equal probability. `by` names the score's part that
    counts faults. Nothing of a group with equal rewards.
    """
    scored = [r for r in group.rollouts if r.score is not None]
    right, wrong = [r for r in scored if mark(r) > 0], [r for r in scored if mark(r) <= 0]
    if not right or not wrong:
        return None
    size = max(round(keep * len(scored)), 2)
    kept = round(len(right) * size / len(scored))
    kept = min(max(kept, min(least, len(right)), size - len(wrong)), size - min(least, len(wrong)), len(right))
    rng = chance.generator(ledger.seed, chance.Purpose.SELECT, group.place.wave, group.place.slot)
    ranked = sorted(right, key=lambda r: (r.score.parts.get(by, 0.0) if r.score else 0.0, r.attempt))
    drawn = [wrong[i] for i in rng.permutation(len(wrong))[: max(size - kept, 0)]]
    return group.of(sorted(ranked[:kept] + drawn, key=lambda r: r.attempt))


def recipe(**changes: Any) -> Recipe:
    # The paper draws the wrong ones uniformly; its code also sorts them by penalty. n counts all that are sampled and
    # paid for: 32, of which 16 are trained on. Several calls in one turn count as one. Rule 1 divided the faults by all
    # turns, and an attempt without a call had none.
    return grpo.recipe(
        name="roc",
        reward=reward,
        select=partial(select, keep=0.5, least=2),
        loss=partial(loss.clipped, low=0.2, high=0.28),
        weight=weight.token_mean,
        rollouts=32,
    ).but(**changes)
