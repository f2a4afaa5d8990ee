"""OTC: pay a right attempt more, the nearer its number of calls is to the fewest that were ever enough.

    m calls,  n the fewest of any right attempt at the problem so far;   r = α c(m, n) if right, else 0
    c = 1 if m = n = 0;  cos(mπ / (2m + s)) if n = 0;  sin(fπ / 2n) with f = 2nm / (m + n) otherwise
    A_i = GRPO's of r
    Wang et al. 2025, arXiv:2504.14870
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import cos, inf, pi, sin
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from isocost.batch import Batch
from isocost.methods import Card, gigpo, grpo
from isocost.parts import pace
from isocost.parts.reward import verified
from isocost.parts.select import mark
from isocost.seams import Advantage, Recipe
from isocost.traits import bounds, gives, requires, trait
from isocost.types import Group, Rollout, Stop
from isocost.world import World

if TYPE_CHECKING:
    from isocost.ledger import Ledger, Seen

CARD = Card("OTC", "2504.14870", 2025, "grpo", "As many right answers with far fewer calls.")
CALLS = "calls"       # the note with a rollout's number of calls
Fewest = dict[tuple[str, str], float]       # by problem and variant

needs = gigpo.needs


def answered(rollout: Rollout) -> float:
    """The turns after which the dialogue went on: all of them, less the one that ended it."""
    return float(max(len(rollout.turns) - (rollout.stop is Stop.DONE), 0))


@trait("needs_turns")
@gives(CALLS)
async def reward(group: Group, world: World, *, calls: Callable[[Rollout], float] = answered) -> Group:
    """The verifier's score; the note `calls` counts an attempt's calls (OTC, arXiv:2504.14870).

    The ledger keeps the notes, so that the fewest calls are known over the whole run. Rewards and pass rates stay those
    of the verifier: the advantage alone is of shaped rewards.
    """
    group = await verified(group, world)
    return group.of(r.but(notes={**r.notes, CALLS: calls(r)}) for r in group.rollouts)


@requires(CALLS, at="reward", why="it compares numbers of calls, which otc.reward notes; without it all have none")
@trait("compares_siblings", "tracks_pass_rate")
@bounds(scale="(0, inf)", smooth="(0, inf)")
def advantage(
    batch: Batch, ledger: Ledger, *, inner: Advantage = grpo.advantage, scale: float = 1.0, smooth: float = 4.0
) -> Tensor:  # -> (N, T)
    fewest = ledger.fold(_fewest, Fewest())
    paid: list[float] = []
    for group in batch.groups:
        made = [(mark(r), float(r.notes.get(CALLS, 0.0))) for r in group.rollouts]  # type: ignore[arg-type]
        least = min([fewest.get((group.problem.id, group.problem.variant), inf), *(m for r, m in made if r > 0)])
        paid += [scale * r * share(m, least, smooth) if r > 0 else 0.0 for r, m in made]
    return inner(batch.but(reward=torch.tensor(paid).to(batch.reward)), ledger)


def share(m: float, n: float, smooth: float) -> float:
    """What a right attempt with m calls is paid where n are the fewest: 1 for m = n, less for more and for fewer."""
    if n == 0:
        return cos(m * pi / (2 * m + smooth))
    return sin(2 * m / (m + n) * pi / 2)


def _fewest(known: Fewest, seen: Sequence[Seen]) -> Fewest:
    for s in seen:
        for reward, calls in zip(s.rewards, s.notes.get(CALLS, ()), strict=False):
            if reward > 0 and calls is not None:
                known[s.id, s.variant] = min(known.get((s.id, s.variant), inf), calls)
    return known


def recipe(**changes: Any) -> Recipe:
    # s is a smoothing constant, 4 here: the paper sets it to the largest number of calls in an attempt. A call is a
    # turn that the environment answered and the dialogue went on from, so a last turn that only answers is none;
    # reward.calls counts otherwise. The fewest include those of the group itself.
    # Left out: the form for PPO, which rewards few calls without comparing attempts.
    credit = partial(advantage, inner=grpo.advantage, scale=1.0, smooth=4.0)
    turns = partial(pace.warmed, max_turns=30)
    return grpo.recipe(name="otc", reward=partial(reward, calls=answered), advantage=credit, pace=turns).but(**changes)
