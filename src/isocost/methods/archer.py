"""ArCHer: a critic of whole turns, learnt from replayed dialogues, above a policy gradient over tokens.

    Q(s, a) ← r + γ V(s')  on replayed and fresh turns;   V(s) ← Q(s, a)  on fresh ones, where a is the policy's
    A(s, a) = r + γ V(s') − V(s);   L = −(1/R) Σ A(s, a) log π(a | s),  a a turn of several tokens
    Zhou et al. 2024, arXiv:2402.19446
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from isocost import chance
from isocost.batch import Batch
from isocost.methods import Card, gigpo, ppo, reinforce
from isocost.methods.vldac import explained
from isocost.ops import Turns, at_turns, gae_turns, spread_turns, turn_ends, turns_of
from isocost.pack import pack
from isocost.parts import pace
from isocost.parts.improve import policy
from isocost.seams import Recipe
from isocost.traits import bounds, gives, requires, shares, trait
from isocost.types import Group
from isocost.world import World

if TYPE_CHECKING:
    from isocost.ledger import Ledger

CARD = Card("ArCHer", "2402.19446", 2024, "reinforce", "A replayed critic of turns learns from far fewer dialogues.")
BUFFER = "dialogues"      # the ledger keeps groups for the critic under this name

needs = gigpo.needs


@trait("by_token", "needs_turns")
@ppo.reads_values
@requires("a critic of turns", at="improve", why="it needs values of turns that are learnt; archer.improve learns them")
@shares(gamma="gamma")
@bounds(gamma="[0, 1]")
def advantage(batch: Batch, ledger: object, *, gamma: float = 0.95) -> Tensor:  # -> (N, T)
    turns = turns_of(batch)
    value = at_turns(batch.extra["values"], turns, batch)
    return spread_turns(gae_turns(value, turns, gamma=gamma, lam=0.0), turns, batch)


@gives("a critic", "a critic of turns")
@ppo.reads_values
@shares(gamma="gamma")
@bounds(gamma="[0, 1]", faster="(0, inf)", fits="[1, inf)", old="[0, inf)", room="[0, inf)", epochs="[1, inf)")
def improve(
    batch: Batch, recipe: Recipe, world: World, ledger: Ledger, *,
    gamma: float = 0.95, faster: float = 3.0, fits: int = 4, old: int = 16, room: int = 128, epochs: int = 1,
) -> dict[str, float]:
    """`improve.policy`, and `fits` updates of a critic of turns, on this step's dialogues and `old` earlier groups.

    One network is both: before the first token of a turn it predicts V, before the last Q. The targets of an update are
    its own values before it. Of a turn of one token there is V alone. The ledger keeps the latest `room` groups. Needs
    `ppo.enrich`; `gamma` must equal the advantage's. The critic's learning rate is `faster` times the policy's.
    """
    critic, kept = world.critic, list(ledger.kept[BUFFER])
    assert critic is not None
    draw = chance.generator(ledger.seed, chance.Purpose.REPLAY, ledger.step)
    again = [kept[i] for i in sorted(draw.permutation(len(kept))[:old].tolist())]
    ledger.kept[BUFFER] = [*kept, *map(_replayed, batch.groups)][-room:] if room else []
    whole = pack([*batch.groups, *again], version=world.engine.version) if again else batch
    known = {(g.place.wave, g.place.slot) for g in batch.groups}
    fresh = torch.tensor([(g.place.wave, g.place.slot) in known for g in whole.groups for _ in range(g.size)])
    turns, lr, seen = turns_of(whole), recipe.pace(ledger).lr * faster, list[dict[str, float]]()
    for _ in range(fits):
        mask, target = targets(critic.values(whole), fresh, turns, whole, gamma=gamma)
        seen.append(critic.fit(whole.but(mask=mask), target, lr=lr))
    now = turns_of(batch)
    value = at_turns(batch.extra["values"], now, batch)
    return {
        **policy(batch, recipe, world, ledger, epochs=epochs),
        **{k: sum(t[k] for t in seen) / len(seen) for k in seen[0]},
        "critic/explained": explained(value, value + gae_turns(value, now, gamma=gamma, lam=0.0)),
    }


def targets(
    values: Tensor, fresh: Tensor, turns: Turns, batch: Batch, *, gamma: float
) -> tuple[Tensor, Tensor]:
    """Which tokens the critic is fitted at, and towards what: the first of a fresh turn to Q, the last of any to r + γ
    V'.

    `fresh` (R,) says of which rollouts. Of a turn of one token V is fitted to the backup. -> (N, T), (N, T)
    """
    first, last = turn_ends(turns, batch)
    V, Q = values[turns.row, first], values[turns.row, last]
    backup = V + gae_turns(V, turns, gamma=gamma, lam=0.0)
    mask, target = torch.zeros_like(batch.mask), torch.zeros_like(values)
    mask[turns.row, first] = fresh[turns.rollout]
    target[turns.row, first] = Q
    long = first != last
    mask[turns.row[long], last[long]] = True
    target[turns.row, last] = backup
    return mask, target


def _replayed(group: Group) -> Group:
    return group.of(r.but(origin="replay") for r in group.rollouts)


def recipe(**changes: Any) -> Recipe:
    # γ is the paper's. It has two Q and two V heads on a small model, targets that follow by 0.1, 50 passes of the
    # critic over its buffer for 3 of the policy, and 20 iterations of the critic alone; here one critic with four
    # updates of three times the policy's rate. The advantage has the backup of Q instead of Q. Its variants with a
    # token's baseline, PPO's clip and offline data are left out.
    learn = partial(improve, gamma=0.95, faster=3.0, fits=4, old=16, room=128)
    return reinforce.recipe(
        name="archer", enrich=(ppo.enrich,), advantage=partial(advantage, gamma=0.95), improve=learn,
        pace=partial(pace.warmed, max_turns=30),
    ).but(**changes)
