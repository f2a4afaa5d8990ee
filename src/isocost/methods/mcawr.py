"""MC returns: imitate the policy's own turns, each weighted by how much its return exceeded the value of its state.

    V(s_t) ← R_t = r_t + γ R_{t+1};   L = −(1/Σ|a|) Σ w_t log π(a_t | s_t),   w_t = min(exp(β (R_t − V(s_t))), w_max)
    the Monte-Carlo baseline of LMRL-Gym, Abdulhai et al. 2023, arXiv:2311.18232; weights as in AWR, arXiv:1910.00177
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from torch import Tensor

from isocost.batch import Batch
from isocost.methods import Card, fbc, gigpo, ppo
from isocost.methods.vldac import explained, first_tokens
from isocost.ops import Turns, at_turns, spread_turns, to_go, turns_of
from isocost.parts import improve as improving
from isocost.parts import pace, select
from isocost.seams import Improve, Recipe
from isocost.traits import bounds, gives, requires, shares, trait
from isocost.world import World

if TYPE_CHECKING:
    from isocost.ledger import Ledger

CARD = Card(
    "MC returns (LMRL-Gym)", "2311.18232", 2023, "fbc", "Weights by a turn's return beat a filter by the dialogue's.",
)

needs = gigpo.needs


@trait("by_token", "needs_turns")
@ppo.reads_values
@requires("a critic", at="improve", why="it needs a critic that is trained; mcawr.improve trains one")
@shares(gamma="gamma")
@bounds(gamma="[0, 1]", beta="[0, inf)", most="[1, inf)")
def advantage(
    batch: Batch, ledger: object, *, gamma: float = 0.95, beta: float = 4.0, most: float = 20.0
) -> Tensor:  # -> (N, T)
    turns = turns_of(batch)
    gain = to_go(turns, gamma=gamma) - at_turns(batch.extra["values"], turns, batch)
    return weights(gain, turns, batch, beta=beta, most=most)


def weights(gain: Tensor, turns: Turns, batch: Batch, *, beta: float, most: float) -> Tensor:
    """min(exp(β gain), w_max), with one gain for each turn, at every token of the turn: (S,) -> (N, T)."""
    return spread_turns((beta * gain).exp().clamp(max=most), turns, batch)


@gives("a critic")
@ppo.reads_values
@shares(gamma="gamma")
@bounds(gamma="[0, 1]", faster="(0, inf)", fits="[1, inf)")
def improve(
    batch: Batch, recipe: Recipe, world: World, ledger: Ledger, *,
    gamma: float = 0.95, faster: float = 3.0, fits: int = 2, inner: Improve = improving.policy,
) -> dict[str, float]:
    """Any improvement, and `fits` updates of a critic of turns towards their returns. Needs `ppo.enrich`."""
    turns = turns_of(batch)
    returns = to_go(turns, gamma=gamma)
    value = at_turns(batch.extra["values"], turns, batch)
    target, lr, critic = spread_turns(returns, turns, batch), recipe.pace(ledger).lr * faster, world.critic
    assert critic is not None
    only = batch.but(mask=first_tokens(batch, turns))
    seen = [critic.fit(only, target, lr=lr) for _ in range(fits)]
    return {**inner(batch, recipe, world, ledger), **{k: sum(t[k] for t in seen) / len(seen) for k in seen[0]},
            "critic/explained": explained(value, returns)}


def recipe(**changes: Any) -> Recipe:
    # LMRL-Gym learns from a fixed data set, and its policy is that of imitation with exp(β Q) applied to each token
    # while it samples. A critic of states has no Q for tokens that were not sampled, so the weights are in the loss.
    # Half of an update is fresh, as in filtered BC. β = 4 and the largest weight are choices; γ is not stated.
    plain = partial(improving.policy, ratios=False)
    fits = partial(improve, gamma=0.95, faster=3.0, fits=2, inner=plain)
    learn = partial(improving.replayed, fresh=0.5, room=512, mixed=False, inner=fits)
    return fbc.recipe(
        name="mcawr", select=select.everything, enrich=(ppo.enrich,), improve=learn,
        advantage=partial(advantage, gamma=0.95, beta=4.0, most=20.0), pace=partial(pace.warmed, max_turns=30),
    ).but(**changes)
