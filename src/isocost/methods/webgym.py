"""WebGym: imitate the policy's own right episodes, without the turns that changed nothing, recent ones more often.

    L = −(1/Σ|a|) Σ_i 1{r_i > 0} Σ_t 1{s_{t+1} ≠ s_t} log π(a_it | q, last 4 rounds)
    an update holds fresh episodes and remembered ones of the last k waves, drawn ∝ (1 − age / k)^2, twice
    Bai et al. 2026, arXiv:2601.02439
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from isocost import chance
from isocost.batch import Batch
from isocost.credit import credited
from isocost.methods import Card, fbc, gigpo
from isocost.ops import spread_turns, turns_of
from isocost.parts import pace, view
from isocost.parts.improve import SHELF, policy
from isocost.parts.play import viewed
from isocost.seams import Improve, Recipe
from isocost.traits import bounds, trait
from isocost.world import World

if TYPE_CHECKING:
    from isocost.ledger import Ledger

CARD = Card("WebGym", "2601.02439", 2026, "fbc", "Episodes that need no lockstep, and imitation of what had an effect.")

needs = gigpo.needs


@trait("by_token", "needs_turns")
def advantage(batch: Batch, ledger: object, *, over: float = 0.0) -> Tensor:  # -> (N, T)
    # A turn changed nothing if the next one is taken in a state of the same key; the last turn always counts.
    turns = turns_of(batch)
    same = torch.zeros(len(turns.key), dtype=torch.bool)
    same[:-1] = (turns.key[1:] == turns.key[:-1]) & (turns.rollout[1:] == turns.rollout[:-1])
    right = batch.reward[turns.rollout] > over
    return spread_turns((right & ~same).to(batch.reward), turns, batch)


@bounds(fresh="(0, 1]", waves="[1, inf)", power="[0, inf)")
def improve(
    batch: Batch, recipe: Recipe, world: World, ledger: Ledger, *,
    fresh: float = 0.5, waves: int = 4, power: float = 2.0, inner: Improve = policy,
) -> dict[str, float]:
    """`inner` on the fresh groups and on some of the last `waves` waves, in which recent ones are more likely.

    A share `fresh` of the update is new; the others are drawn without replacement, each with a probability
    proportional to (1 − age / waves)^power (WebGym, arXiv:2601.02439). They cost training tokens alone.
    """
    now = max(g.place.wave for g in batch.groups)
    shelf = [g for g in ledger.kept[SHELF] if now - g.place.wave < waves]
    wanted = min(round(len(batch.groups) * (1 - fresh) / fresh), len(shelf))
    rng = chance.generator(ledger.seed, chance.Purpose.REPLAY, ledger.step)
    recent = power * np.log([1 - (now - g.place.wave) / waves for g in shelf] or [1.0])
    order = np.argsort(-(recent + rng.gumbel(size=len(recent))), kind="stable")[:wanted]
    again = [shelf[i] for i in sorted(order.tolist())]
    ledger.kept[SHELF] = [*shelf, *(g.of(r.but(origin="replay") for r in g.rollouts) for g in batch.groups
                                    if all(r.origin != "replay" for r in g.rollouts))]
    if again:
        batch = credited([*batch.groups, *again], recipe, world, ledger)
    return {**inner(batch, recipe, world, ledger), "replayed": float(len(again))}


def recipe(**changes: Any) -> Recipe:
    # 2 epochs, 4 waves, power 2 and a window of 4 rounds are the released code's. Episodes are asynchronous in the
    # engine; `max_age` 1 also lets the next wave begin before the update. Recency is by wave, in a form of our own: the
    # release draws single steps by theirs. Left out: the rubric that judges screenshots
    # (here the verifier), and tasks made from parts of harder ones.
    near = partial(viewed, view=partial(view.window, rounds=4))
    learn = partial(improve, fresh=0.5, waves=4, power=2.0, inner=partial(policy, epochs=2, ratios=False))
    return fbc.recipe(
        name="webgym", play=near, advantage=advantage, improve=learn, max_age=1, pace=partial(pace.warmed, max_turns=30)
    ).but(**changes)
