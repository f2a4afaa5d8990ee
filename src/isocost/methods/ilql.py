"""ILQL: as with MC returns, but values are those of the best turns that were seen, by an expectile of one-step backups.

    Q_t = r_t + γ V(s_{t+1});   V ← argmin E |τ − 1{Q < V}| (Q − V)²;   w_t = min(exp(β (Q_t − V(s_t))), w_max)
    Snell et al. 2022, arXiv:2206.11871, as a baseline of LMRL-Gym, arXiv:2311.18232
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from torch import Tensor

from isocost.batch import Batch
from isocost.methods import Card, mcawr, ppo
from isocost.methods.vldac import explained, first_tokens
from isocost.ops import at_turns, gae_turns, spread_turns, turns_of
from isocost.parts import improve as improving
from isocost.seams import Improve, Recipe
from isocost.traits import bounds, gives, requires, shares, trait
from isocost.world import World

if TYPE_CHECKING:
    from isocost.ledger import Ledger

CARD = Card("ILQL", "2206.11871", 2022, "mcawr", "Values of the best turns seen join parts of different dialogues.")

needs = mcawr.needs


@trait("by_token", "needs_turns")
@ppo.reads_values
@requires("a critic", at="improve", why="it needs a critic that is trained; ilql.improve trains one")
@shares(gamma="gamma")
@bounds(gamma="[0, 1]", beta="[0, inf)", most="[1, inf)")
def advantage(
    batch: Batch, ledger: object, *, gamma: float = 0.95, beta: float = 4.0, most: float = 20.0
) -> Tensor:  # -> (N, T)
    turns = turns_of(batch)
    gain = gae_turns(at_turns(batch.extra["values"], turns, batch), turns, gamma=gamma, lam=0.0)
    return mcawr.weights(gain, turns, batch, beta=beta, most=most)


@gives("a critic")
@shares(gamma="gamma")
@bounds(gamma="[0, 1]", tau="(0, 1)", faster="(0, inf)", fits="[1, inf)")
def improve(
    batch: Batch, recipe: Recipe, world: World, ledger: Ledger, *,
    gamma: float = 0.95, tau: float = 0.7, faster: float = 3.0, fits: int = 4, inner: Improve = improving.policy,
) -> dict[str, float]:
    """Any improvement, and `fits` updates of a critic of turns towards an expectile `tau` of their one-step backups."""
    turns, critic = turns_of(batch), world.critic
    assert critic is not None
    only, lr = batch.but(mask=first_tokens(batch, turns)), recipe.pace(ledger).lr * faster
    seen = list[dict[str, float]]()
    value = back = turns.reward
    for _ in range(fits):
        value = at_turns(critic.values(only), turns, batch)
        back = value + gae_turns(value, turns, gamma=gamma, lam=0.0)
        seen.append(critic.fit(only, spread_turns(expectile(value, back, tau), turns, batch), lr=lr))
    return {**inner(batch, recipe, world, ledger), **{k: sum(t[k] for t in seen) / len(seen) for k in seen[0]},
            "critic/explained": explained(value, back)}


def expectile(value: Tensor, target: Tensor, tau: float) -> Tensor:
    """Targets of a square loss with the gradient, at these values, of |τ − 1{target < value}| (target − value)². ->
    (S,)
    """
    gap = target - value
    return value + 2 * (tau - (gap < 0).to(gap)).abs() * gap


def recipe(**changes: Any) -> Recipe:
    # τ = 0.7 as in the paper's tasks. Its Q is learnt beside V, for every token; here it is the backup of the turn that
    # was taken, which in an environment with luck favours lucky turns. The policy is as in mcawr. Left out: the
    # conservative term, which lowers Q of the tokens that were not taken.
    plain = partial(improving.policy, ratios=False)
    fits = partial(improve, gamma=0.95, tau=0.7, faster=3.0, fits=4, inner=plain)
    learn = partial(improving.replayed, fresh=0.5, room=512, mixed=False, inner=fits)
    return mcawr.recipe(name="ilql", improve=learn, advantage=partial(advantage, gamma=0.95, beta=4.0, most=20.0)).but(
        **changes
    )
