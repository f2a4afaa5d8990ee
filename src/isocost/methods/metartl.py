"""Meta-RTL: from the same weights, learn each source task alone, and average the results by what each did for a target.

    θ_i = θ after an update on source i alone;   r_i = L(θ) − L(θ_i), L the loss on the target's rollouts
    w = softmax(φ);   θ ← Σ_i w_i θ_i;   φ_i ← φ_i + η w_i (r_i − r̄),   r̄ = Σ_j w_j r_j
    Fu et al. 2024, arXiv:2409.19075
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from isocost.batch import Batch, Forward
from isocost.methods import Card, grpo
from isocost.parts.improve import policy, rows_of
from isocost.seams import Improve, Recipe
from isocost.traits import asks, bounds
from isocost.world import World

if TYPE_CHECKING:
    from isocost.ledger import Ledger

CARD = Card("Meta-RTL", "2409.19075", 2024, "grpo", "Sources that help the target, weighed more, teach it more.")


@asks("weights", "forget")
@bounds(rate="[0, inf)")
def improve(
    batch: Batch, recipe: Recipe, world: World, ledger: Ledger, *, target: str = "", by: str = "source",
    rate: float = 10.0, inner: Improve = policy,
) -> dict[str, float]:
    """Any improvement of each source of the batch, `meta[by]`, averaged by its weight; for `target`, a value of it too.

    Without a `target` it is the last of the problems' sources by the alphabet. A batch without it, or with nothing
    else, is improved as it is. A source that is not in the batch keeps its φ. Metrics are means over the sources, φ and
    r of each, and `sources`: how many taught, 0 where the batch was improved as it is.
    """
    target = target or max(str(p.meta.get(by, "")) for p in world.problems)
    of = [str(g.problem.meta.get(by, "")) for g in batch.groups for _ in g.rollouts]
    names = sorted(set(of) - {target})
    if target not in of or not names:
        return {**inner(batch, recipe, world, ledger), "sources": 0.0}
    known = {n: next((x[f"phi/{n}"] for x in reversed(ledger.steps) if f"phi/{n}" in x), 0.0) for n in names}
    goal = _part(batch, of, target, recipe)
    now = world.learner.score(goal)
    goal = goal.but(old=now.logp.to(goal.logp) * goal.mask)
    start, ends, gains, seen = world.learner.state(), [], {}, []
    for name in names:
        world.learner.restore(start)
        world.learner.forget()      # moments would carry what other sources have taught into this one
        seen.append(inner(_part(batch, of, name, recipe), recipe, world, ledger))
        ends.append(world.learner.state())
        gains[name] = _loss(now, goal, recipe) - _loss(world.learner.score(goal), goal, recipe)
    weights = simplex(known)
    world.learner.restore({k: _mean(x, [end[k] for end in ends], list(weights.values())) for k, x in start.items()})
    after = moved(known, gains, rate)
    told = {k: [x[k] for x in seen if k in x] for own in seen for k in own}
    return {**{k: sum(x) / len(x) for k, x in told.items()}, "sources": float(len(names)),
            **{f"gain/{n}": gains[n] for n in names}, **{f"phi/{n}": after[n] for n in names}}


def simplex(phi: Mapping[str, float]) -> dict[str, float]:
    """The weights of the sources, which sum to 1."""
    z = np.exp(np.array(list(phi.values())) - max(phi.values()))
    return dict(zip(phi, (z / z.sum()).tolist(), strict=True))


def moved(phi: Mapping[str, float], gains: Mapping[str, float], rate: float) -> dict[str, float]:
    """φ after a step along the gradient of Σ w r."""
    weights = simplex(phi)
    middle = sum(weights[n] * gains[n] for n in phi)
    return {n: x + rate * weights[n] * (gains[n] - middle) for n, x in phi.items()}


def _part(batch: Batch, of: list[str], name: str, recipe: Recipe) -> Batch:
    own = torch.tensor([i for i, n in enumerate(of) if n == name], device=batch.rollout.device)
    part = batch.rows(rows_of(own, batch))
    return part.but(weight=recipe.weight(part))


def _loss(out: Forward, batch: Batch, recipe: Recipe) -> float:
    assert batch.weight is not None
    return float((recipe.loss(out, batch)[0] * batch.weight)[batch.mask].sum())


def _mean(start: torch.Tensor, ends: list[torch.Tensor], weights: list[float]) -> torch.Tensor:
    """The start and the weighted mean of the ways from it, so that what no source has changed stays as it is."""
    if not start.is_floating_point():       # a count of updates: equal in all
        return ends[0]
    return start + sum(w * (end - start) for w, end in zip(weights, ends, strict=True))


def recipe(**changes: Any) -> Recipe:
    # The paper's φ is an LSTM that reads earlier losses, trained by REINFORCE; here φ is a number for each source, and
    # the gradient of its expected reward is exact, because every source's θ_i is known in each step. Its losses are of
    # labelled examples; here L is the method's own loss on rollouts of the target. r grows with the learning rate, and
    # is noisy where a batch has few of the target's rollouts, so η is to be tuned. Every θ_i begins with an optimiser
    # without a past, as in Reptile. The target's rollouts weigh the sources and teach nothing else, though the record
    # counts them as trained on; fine-tuning on the target afterwards is left out. A mix such as `--data "sums:level=1 +
    # sums:level=2"` has its levels as tasks with improve.by=level.
    learn = partial(improve, target="", by="source", rate=10.0, inner=policy)
    return grpo.recipe(name="metartl", improve=learn).but(**changes)
