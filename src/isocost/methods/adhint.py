"""ADHint: give longer hints for harder problems; weight success by the difficulty with and without a hint.

    hint ratio h = h_max (1 − p), p the share right without          Â: GRPO's, within those with and those without
    A = Â D_c / D̄ if Â > 0, else Â (1 − D_c) / (1 − D̄),   D_c the share wrong of either, D̄ the mean of the two
    hint tokens: A c_t if A > 0, else 0,   c_t = min(H_t, H̄) / max(H_t, H̄)          Zhang et al. 2025, arXiv:2512.13095
    (the roles of D and c_t are public, their factors are not: these are the simplest that are 1 without a hint)
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from isocost.batch import Batch, Forward
from isocost.methods import Card, grpo, pope
from isocost.ops import EPS, row_mean, spread
from isocost.parts import guide, improve, reward
from isocost.parts.loss import Out, clipped
from isocost.parts.play import opened, sample
from isocost.seams import Loss, Pace, Recipe
from isocost.traits import asks, bounds, trait
from isocost.types import Place, Problem, Role, Rollout, Segment
from isocost.world import World

CARD = Card("ADHint", "2512.13095", 2025, "grpo", "Hints by difficulty raise success without hints.")
HINTED = "hinted"     # the variant whose attempts are given hints, and the cohort of those that were

needs = pope.needs


@asks("text")
@trait("one_call", "casts_roles")
@bounds(plain="(0, 1]", most="[0, 1]")
async def play(
    problem: Problem, attempts: Sequence[int], world: World, pace: Pace, place: Place, start: Segment | None = None, *,
    plain: float = 0.5, most: float = 0.5,
) -> list[Rollout]:
    """A share `plain` of the attempts runs first; the others continue from a hint (ADHint, arXiv:2512.13095).

    The fewer of the first were right, the longer the hint: the share `most` · (1 − right) of the solution's pieces,
    rounded, without the part that contains the answer. Attempts with a hint are the cohort "hinted". If the hint is
    empty, the others are attempts like the first.
    """
    count = min(max(round(plain * len(attempts)), 1), len(attempts))
    if problem.variant != HINTED or start is not None or count == len(attempts):
        return await sample(problem, attempts, world, pace, place, start)
    first = await reward.marked(await sample(problem, attempts[:count], world, pace, place), problem, place, world)
    hint = hint_for(problem, [r.score.value for r in first if r.score is not None], most)
    posed = opened(first) if hint else None
    with_hint = None if posed is None else posed.read(world.text.encode(hint), Role.TEACHER)
    others = await sample(problem, attempts[count:], world, pace, place, with_hint)
    return [*first, *(r if with_hint is None else r.but(cohort=HINTED) for r in others)]


def hint_for(problem: Problem, rewards: Sequence[float], most: float) -> str:
    """The hint for a problem whose plain attempts earned these rewards; empty if there are none."""
    if not rewards:
        return ""
    pieces = guide.pieces_of(str(problem.meta.get("solution") or ""))
    right = sum(min(max(r, 0.0), 1.0) for r in rewards) / len(rewards)
    length = min(round(most * (1 - right) * len(pieces)), len(pieces) - 1)
    while length > 0 and guide.says(problem.answer, "".join(pieces[:length])):
        length -= 1
    return "".join(pieces[: max(length, 0)])


@trait("compares_siblings", "by_group_spread")
@bounds(eps="[0, inf)")
def advantage(batch: Batch, ledger: object, *, eps: float = EPS) -> Tensor:  # -> (N, T)
    lead = grpo.advantage(batch, ledger, eps=eps)
    wrong, usual = difficulty(batch)
    harder = torch.where(usual > 0, wrong / usual.clamp(min=eps), 1.0)
    easier = torch.where(usual < 1, (1 - wrong) / (1 - usual).clamp(min=eps), 1.0)
    return lead * torch.where(lead > 0, spread(harder, batch), spread(easier, batch))


def difficulty(batch: Batch) -> tuple[Tensor, Tensor]:
    """(R,) the share wrong of each rollout's cohort, and the mean of its group's cohorts."""
    sizes = torch.tensor([len(g.rollouts) for g in batch.groups])
    wrong, usual = torch.zeros_like(batch.reward), torch.zeros_like(batch.reward)
    for members in torch.arange(len(batch.reward)).split(sizes.tolist()):
        cohorts = [members[batch.group[members] == c] for c in batch.group[members].unique()]
        for cohort in cohorts:
            wrong[cohort] = 1 - batch.reward[cohort].clamp(0, 1).mean()
        usual[members] = torch.stack([wrong[c[0]] for c in cohorts]).mean()
    return wrong, usual


@asks("entropy")
def loss(out: Forward, batch: Batch, *, inner: Loss) -> Out:
    """Any loss, with a teacher's tokens weighted by how close their entropy is to the policy's own (ADHint).

    The weight is min(H_t, H̄) / max(H_t, H̄), a constant: H_t is the entropy at the token, H̄ its mean over the row's
    own tokens.
    """
    loss, seen = inner(out, batch)
    taught, entropy = batch.role == int(Role.TEACHER), out.entropy.detach()
    usual = row_mean(entropy, batch.mask & ~taught).expand_as(entropy)
    agreed = (torch.minimum(entropy, usual) + EPS) / (torch.maximum(entropy, usual) + EPS)
    return torch.where(taught, agreed * loss, loss), seen


def recipe(**changes: Any) -> Recipe:
    return grpo.recipe(
        name="adhint",
        guide=partial(guide.as_variant, name=HINTED),
        play=partial(play, plain=0.5, most=0.5),   # h_max is not public; half leaves half to be solved
        advantage=advantage,
        loss=partial(loss, inner=partial(clipped, low=0.2, high=0.2)),
        improve=improve.imitating,
    ).but(**changes)
