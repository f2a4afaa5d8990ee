"""Sol-RL: many cheap candidates choose which seeds are worth an exact attempt, and only those are trained on.

    N candidates in few steps with rounded weights;   K seeds: the ⌈K/2⌉ best and the ⌊K/2⌋ worst of them
    the K seeds again, exactly, by the policy: their rewards and log-probs are the batch
    Li et al. 2026, "FP4 Explore, BF16 Train", arXiv:2604.06916
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from isocost import meter
from isocost.batch import Batch
from isocost.chance import Purpose
from isocost.methods import Card, grpo
from isocost.parts.improve import policy
from isocost.parts.play import opening, sample
from isocost.seams import Improve, Pace, Recipe
from isocost.traits import bounds, trait
from isocost.types import Place, Problem, Rollout, Segment
from isocost.world import Ask, World

if TYPE_CHECKING:
    from isocost.ledger import Ledger

CARD = Card("Sol-RL", "2604.06916", 2026, "grpo", "Cheap candidates give more reward for each unit of compute.")


@trait("one_call", "chosen_by_reward")
@bounds(times="[1, inf)", bits="0 or [2, 16]", steps="[1, 10]", price="(0, 1]")
async def play(
    problem: Problem, attempts: Sequence[int], world: World, pace: Pace, place: Place,
    start: Segment | Rollout | None = None, *, times: int = 4, bits: int = 4, steps: int = 6, price: float = 1.0,
) -> list[Rollout]:
    """`times` candidates for each attempt; those with the highest and the lowest rewards are attempts, played exactly.

    An attempt has the number, and so the random numbers, of its candidate. Its note `proxy` is the candidate's reward.
    A candidate is no rollout: its passes are charged as `price` of one each, and the verifier that marks it in full. An
    engine without a cheap form writes the candidates exactly: then they are rollouts, and the chosen ones are returned.
    What begins in the middle, a dialogue, and all that is not for training, is sampled plainly.
    """
    if place.purpose != Purpose.TRAIN or start is not None or world.env is not Ask or not attempts:
        return await sample(problem, attempts, world, pace, place, start)
    seeds = [times * a + j for a in attempts for j in range(times)]
    cheap = getattr(world.engine, "cheap", None)
    text = await opening(problem, world, pace, place)
    if cheap is None or text is None:
        made = await sample(problem, seeds, world, pace, place)
        meter.unchosen(len(made) - len(attempts))
    else:
        with meter.begins(False):
            said = await cheap(bits, steps, price).generate(
                text, seeds, place=place, turn=0, max_tokens=pace.max_tokens, stop=pace.stop)
        made = [Rollout(problem, (text.wrote(x),), world.text.decode(x.tokens.tolist()), x.stop, seed)
                for seed, x in zip(seeds, said, strict=True)]
    scores = await world.grade(made)
    marks = [None if s is None else s.value for s in scores]
    chosen = extremes(marks, len(attempts))
    exact = ([made[i].marked(scores[i]) for i in chosen] if cheap is None else
             await sample(problem, [seeds[i] for i in chosen], world, pace, place))
    told = [marks[i] for i in chosen]
    return [r if m is None else r.but(notes={**r.notes, "proxy": m}) for r, m in zip(exact, told, strict=True)]


def extremes(marks: Sequence[float | None], count: int) -> list[int]:
    """The positions of the best ⌈count/2⌉ and the worst ⌊count/2⌋, in order; others only where too few have a mark.

    Of equal marks the first are the best, and the last the worst.
    """
    known = sorted((i for i, m in enumerate(marks) if m is not None), key=lambda i: -(marks[i] or 0.0))
    worst = min(count, len(known)) // 2
    best = known[: len(known) - worst][: count - worst] + known[len(known) - worst :]
    return sorted((best + [i for i, m in enumerate(marks) if m is None])[:count])


def improve(
    batch: Batch, recipe: Recipe, world: World, ledger: Ledger, *, inner: Improve = policy
) -> dict[str, float]:
    """Any improvement. `rank_agreement` is Spearman's, of the candidates' rewards and the exact ones.

    It is the mean over the groups in which both differ, and left out where there is none.
    """
    found = []
    for group in batch.groups:
        told = [(r.notes["proxy"], r.score.value) for r in group.rollouts if r.score is not None and "proxy" in r.notes]
        if told and all(len(set(x)) > 1 for x in zip(*told, strict=True)):
            found.append(agreement(*zip(*told, strict=True)))
    return inner(batch, recipe, world, ledger) | ({"rank_agreement": float(np.mean(found))} if found else {})


def agreement(x: Sequence[float], y: Sequence[float]) -> float:
    """Spearman's correlation, in which equal values share the mean of their ranks."""
    ranks = [[float(np.less(z, a).sum() + np.less_equal(z, a).sum()) for a in z] for z in (x, y)]
    return float(np.asarray(np.corrcoef(ranks))[0, 1])


def recipe(**changes: Any) -> Recipe:
    # The paper's learner is DiffusionNFT, whose sampler has no noise but the first; here it is GRPO on flow-SDE, so a
    # seed is the noise of every step. Attempts that were chosen for their noise give a biased gradient, as in every
    # choice among siblings. The paper has 96 candidates of 6 steps in NVFP4 for 24 attempts of 10 steps in BF16; here
    # there are 32 for 8, and rows of weights are rounded to 4 bits in full-precision arithmetic. Nothing is faster for
    # that, so `price` is 1: a pass is a pass. Hardware with FP4 may have 1/4: with it rollouts of the paper's sizes are
    # 2.5 times cheaper than 96 exact ones, where the paper measured 2.4. Only the flow world has a cheap form.
    return grpo.recipe(
        name="solrl", play=partial(play, times=4, bits=4, steps=6, price=1.0), improve=partial(improve, inner=policy),
    ).but(**changes)
