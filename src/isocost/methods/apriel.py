"""Apriel-Reasoner: draw domains so that their finished rollouts keep set shares, and shorten what is easy.

    the next problem is of domain d by chance ∝ target_d · clip(target_d / finished share_d, 0.1, 10)
    r_i ← r_i + p(|y_i|) · (solve rate)^γ if right, · φ if wrong;   p(L) = ((L_max − buffer) − L) / buffer in [−1, 0]
    loss of GSPO, averaged over tokens        Pardinas et al. 2026, arXiv:2604.02007
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from isocost.methods import Card, gspo
from isocost.parts import weight
from isocost.parts.reward import verified
from isocost.seams import Recipe
from isocost.traits import bounds, trait
from isocost.types import Group, Problem, Rollout, Stop
from isocost.world import World

if TYPE_CHECKING:
    from isocost.ledger import Ledger, Seen

CARD = Card("Apriel-Reasoner", "2604.02007", 2026, "gspo", "Answers become a third shorter and not less often right.")


@bounds(cold="[0, inf)", most="[1, inf)")
def choose(
    pool: Sequence[Problem], ledger: Ledger, count: int, rng: np.random.Generator, *,
    by: str = "source", cold: int = 50, most: float = 10.0,
) -> list[Problem]:
    """Problems of domains, `meta[by]`, each with the same target, so that finished attempts keep to it (Apriel).

    Until `cold` attempts are finished, domains are drawn by their targets. Within a domain problems are drawn without
    repetition in a wave while they last.
    """
    of = {p.id: str(p.meta.get(by, "")) for p in pool}
    domains = sorted(set(of.values()))
    target = np.full(len(domains), 1 / len(domains))
    done, start = Counter[str](), Counter[str]()
    for name, finished in ledger.fold(_finished, start).items():
        done[of.get(name, "")] += finished
    chance = target * factors(target, [done[d] for d in domains], cold=cold, most=most)
    orders = {d: [p for p in pool if of[p.id] == d] for d in domains}
    orders = {d: [own[i] for i in rng.permutation(len(own))] for d, own in orders.items()}
    drawn, out = Counter[str](), []
    for d in rng.choice(domains, count, p=chance / chance.sum()).tolist():
        out.append(orders[d][drawn[d] % len(orders[d])])
        drawn[d] += 1
    return out


def factors(target: np.ndarray, done: Sequence[int], *, cold: int = 50, most: float = 10.0) -> np.ndarray:
    """target / share of what is finished, within [1 / `most`, `most`]; 1 for all before `cold` are finished. (D,)"""
    if sum(done) < max(cold, 1):
        return np.ones(len(target))
    share = np.array(done) / sum(done)
    return np.where(share > 0, target / np.maximum(share, 1e-12), most).clip(1 / most, most)


def _finished(known: Counter[str], seen: Sequence[Seen]) -> Counter[str]:
    for s in seen:
        known[s.id] += len(s.rewards)
    return known


@trait("not_whether_right")
@bounds(limit="[1, inf)", buffer="[1, inf)", gamma="[0, inf)", wrong="[0, 1]")
async def reward(
    group: Group, world: World, *, limit: int = 1024, buffer: int = 1024, gamma: float = 1.0, wrong: float = 0.0
) -> Group:
    """The verifier's score less a penalty of length, the smaller the harder the problem is (Apriel).

    The penalty grows from 0 at `limit` − `buffer` tokens to 1 at `limit`, times the group's share of right attempts to
    the power `gamma`; of a wrong attempt times `wrong`. A truncated attempt has all of it. Parts: `right`, `length`.
    """
    group = await verified(group, world)
    values = [s.value for s in group.scores if s is not None]
    solved = float(np.clip(values, 0, 1).mean()) if values else 0.0
    scored = []
    for rollout, tokens in zip(group.rollouts, group.lengths, strict=True):
        scale = solved**gamma if rollout.score and rollout.score.value > 0 else wrong
        scale = 1.0 if rollout.stop is Stop.LENGTH else scale
        scored.append(_charged(rollout, scale * penalty(tokens, limit, buffer)))
    return group.of(scored)


def penalty(tokens: int, limit: int, buffer: int) -> float:
    """p(L), in [−1, 0]."""
    return min(max(((limit - buffer) - tokens) / buffer, -1.0), 0.0)


def _charged(rollout: Rollout, fine: float) -> Rollout:
    if (score := rollout.score) is None:
        return rollout
    return rollout.scored(replace(score, value=score.value + fine, parts={"right": score.value, "length": fine}))


def recipe(**changes: Any) -> Recipe:
    # The output budget is 16 K in the paper, and five domains; here all domains have one target. γ and the scale of
    # wrong attempts are settings of the released code. Left out: the asynchronous pipeline, of which max_age is a part.
    fine = partial(reward, limit=1024, buffer=1024, gamma=1.0, wrong=0.0)
    return gspo.recipe(
        name="apriel", choose=partial(choose, by="source", cold=50, most=10.0), reward=fine, weight=weight.token_mean,
    ).but(**changes)
