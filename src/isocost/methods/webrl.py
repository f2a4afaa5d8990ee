"""WebRL: tasks like those that failed, neither hopeless nor easy, and a squared loss that keeps near the last policy.

    choose x with 0.05 < V(x) < 0.75 among tasks like the failed ones
    A_t = λ (r_t + V(s_{t+1}) − V(s_t)) + (1 − λ) (R_t − V(s_t))
    L = (1/2β) (β ℓ_t − A_t)²,   ℓ_t the mean over turn t of log π / π_ref:   least at ℓ_t = A_t / β
    Qi et al. 2024, arXiv:2411.02337
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from isocost import chance, ops
from isocost.batch import Batch, Forward
from isocost.credit import credited
from isocost.methods import Card, gigpo, kimi, ppo
from isocost.ops import at_turns, spread_turns, to_go, turns_of
from isocost.pack import pack
from isocost.parts import pace, weight
from isocost.parts.choose import first
from isocost.parts.improve import SHELF, policy, remember
from isocost.parts.loss import Out, credit
from isocost.seams import Recipe
from isocost.traits import bounds, gives, trait
from isocost.types import Group, Problem
from isocost.world import World

if TYPE_CHECKING:
    from isocost.ledger import Ledger

CARD = Card("WebRL", "2411.02337", 2024, "kimi", "A curriculum from failures keeps solving new tasks.")

needs = gigpo.needs


@trait("tracks_pass_rate")
@bounds(each="[1, inf)", low="[0, 1]", high="[0, 1]", share="[0, 1]")
def choose(
    pool: Sequence[Problem], ledger: Ledger, count: int, rng: np.random.Generator, *,
    each: int = 8, low: float = 0.05, high: float = 0.75, share: float = 0.75,
) -> list[Problem]:
    """A `share` of problems like those that failed in the phases before, the rest from all (WebRL, arXiv:2411.02337).

    A phase has `each` steps. Like a failed problem are those of its `meta["level"]` whose value is between `low` and
    `high`: the mean reward so far at the level and at the problem itself, the level counting as one more attempt.
    """
    phase = ledger.step - ledger.step % each
    level = {p.id: p.meta.get("level") for p in pool}
    total: dict[str, float] = {}
    tries: dict[str, int] = {}
    for step in range(phase):
        for seen in ledger.history.get(step, ()):
            total[seen.id] = total.get(seen.id, 0.0) + seen.right
            tries[seen.id] = tries.get(seen.id, 0) + len(seen.rewards)
    means = {k: (sum(total[i] for i in total if level.get(i) == k), sum(tries[i] for i in tries if level.get(i) == k))
             for k in set(level.values())}
    failed = {level[i] for i in total if i in level and total[i] < tries[i]}
    like = [p for p in pool if level[p.id] in failed and low < _worth(p, total, tries, means[level[p.id]]) < high]
    wanted = round(share * count) if like else 0
    some = first(like, rng.permutation(len(like)), wanted) if wanted else []
    return [*some, *first(pool, rng.permutation(len(pool)), count - wanted)]


def _worth(
    problem: Problem, total: dict[str, float], tries: dict[str, int], at_level: tuple[float, int]
) -> float:
    """The value of a problem: its mean reward, with the mean of its level as one more attempt."""
    prior = at_level[0] / at_level[1] if at_level[1] else 0.5
    return (total.get(problem.id, 0.0) + prior) / (tries.get(problem.id, 0) + 1)


@trait("by_token")
@ppo.reads_values
@bounds(lam="[0, 1]")
def advantage(batch: Batch, ledger: object, *, lam: float = 0.5) -> Tensor:  # -> (N, T)
    turns = turns_of(batch)
    now = at_turns(batch.extra["values"], turns, batch)
    same = torch.zeros_like(now)
    same[:-1] = (turns.rollout[1:] == turns.rollout[:-1]).to(now)
    after = torch.cat((now[1:], now.new_zeros(1))) * same
    reward = turns.reward.to(now)
    each = lam * (reward + after - now) + (1 - lam) * (to_go(turns, gamma=1.0).to(now) - now)
    return spread_turns(each, turns, batch)


@bounds(beta="(0, inf)")
def loss(out: Forward, batch: Batch, *, beta: float = 0.5) -> Out:
    """(β ℓ − A)² / 2β, with the mean log-ratio ℓ of each turn (WebRL, arXiv:2411.02337).

    At ℓ = 0 its gradient is REINFORCE's; it is least where a turn's mean log-ratio is A / β.
    """
    mean = _turn_mean(ops.log_ratio(out, batch), batch)
    return (beta * mean - credit(batch)).square() / (2 * beta) * batch.mask, {"log_ratio": mean.detach()}


def _turn_mean(x: Tensor, batch: Batch) -> Tensor:
    """The mean over the sampled tokens of each turn in a row, at each of them. -> (N, T)"""
    at = batch.turn.clamp(min=0)
    width = int(at.max()) + 1 if at.numel() else 1
    mask = batch.mask.to(x)
    total, count = (x.new_zeros(len(x), width).scatter_add(1, at, v) for v in (x * mask, mask))
    return (total / count.clamp(min=1)).gather(1, at) * mask


@gives("a critic")
@bounds(room="[1, inf)", fresh="(0, 1]", low="[1, inf)", high="[1, inf)", minibatches="[1, inf)")
def improve(
    batch: Batch, recipe: Recipe, world: World, ledger: Ledger, *,
    room: int = 256, fresh: float = 0.75, low: float = 1 / 0.95, high: float = 1 / 0.5, minibatches: int = 4,
    inner: Callable[..., dict[str, float]] = policy,
) -> dict[str, float]:
    """The critic towards the reward to go; then `inner` on the batch and on right attempts of earlier steps.

    Of the remembered groups those are drawn whose perplexity under the policy now is between `low` and `high`: neither
    learnt already nor out of reach (WebRL, arXiv:2411.02337). The optimiser's state is reset as in Kimi's.
    """
    critic = world.critic
    assert critic is not None
    turns = turns_of(batch)
    fits = critic.fit(batch, spread_turns(to_go(turns, gamma=1.0), turns, batch), lr=recipe.pace(ledger).lr)
    shelf = list(ledger.kept[SHELF])
    wanted = min(round(len(batch.groups) * (1 - fresh) / fresh), len(shelf))
    draw = chance.generator(ledger.seed, chance.Purpose.REPLAY, ledger.step)
    drawn = [shelf[i] for i in sorted(draw.permutation(len(shelf))[:wanted].tolist())]
    again = [g for g, p in zip(drawn, perplexities(drawn, world), strict=True) if low <= p <= high]
    for group in batch.groups:
        if right := [r for r in group.rollouts if r.score is not None and r.score.value > 0]:
            remember(group.of(right), ledger, room)
    if again:
        batch = credited([*batch.groups, *again], recipe, world, ledger)
    learn = partial(inner, minibatches=minibatches)
    return {**kimi.improve(batch, recipe, world, ledger, inner=learn), **fits, "replayed": float(len(again))}


def perplexities(groups: Sequence[Group], world: World) -> list[float]:
    """exp of the mean −log π of each group's sampled tokens, under the policy now; charged as `score` tokens."""
    if not groups:
        return []
    batch = pack(groups, version=world.engine.version)
    order = {id(g): i for i, g in enumerate(batch.groups)}
    whose = torch.repeat_interleave(torch.arange(len(batch.groups)), torch.tensor([g.size for g in batch.groups]))
    row = whose[batch.rollout]
    logp, mask = world.learner.score(batch).logp * batch.mask, batch.mask
    zero = torch.zeros(len(groups), dtype=logp.dtype)
    total, count = (zero.index_add(0, row, x.sum(-1).to(logp)) for x in (logp, mask))
    each = (-total / count.clamp(min=1)).exp().tolist()
    return [each[order[id(g)]] for g in groups]


def recipe(**changes: Any) -> Recipe:
    # The reference is the policy that sampled, and the optimiser starts anew for each batch, as in Kimi's: a phase of
    # the reference is one batch. β = 0.5 and λ = 0.5 are ours: the release thresholds A to +1 and −0.6, with β = 5 for
    # tokens it is sure of. New tasks are problems of the pool like the failed ones: no model writes tasks here, and the
    # verifier takes the place of the outcome reward model. The critic has a squared loss, not a cross-entropy.
    # Left out: in the release the turns that the threshold puts at −0.6 have no loss at all; here all turns have one.
    return kimi.recipe(
        name="webrl", choose=partial(choose, each=8, low=0.05, high=0.75, share=0.75), enrich=(ppo.enrich,),
        advantage=partial(advantage, lam=0.5), loss=partial(loss, beta=0.5), weight=weight.token_mean,
        improve=partial(improve, room=256, fresh=0.75, minibatches=4), pace=partial(pace.warmed, max_turns=30),
    ).but(**changes)
