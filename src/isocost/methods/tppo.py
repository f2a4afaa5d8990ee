"""T-PPO: write at most a window of tokens a step, train on them at once, and go on with the text in the next step.

    A_t = Σ_k λ^k δ_{t+k},   δ_t = r_t + V(s_{t+1}) − V(s_t);   cut after token l − 1: V(s_l) := V(s_{l−1})
    PPO's clipped loss on the tokens of this window;   V to the final reward on all tokens of finished texts alone
    Fan et al. 2025, "Truncated Proximal Policy Optimization", arXiv:2506.15050
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from isocost.batch import Batch
from isocost.gather import together
from isocost.methods import Card, april, ppo
from isocost.ops import EPS, gae, spread
from isocost.parts.improve import policy, rows_of
from isocost.parts.play import fork, lent
from isocost.parts.reward import verified
from isocost.seams import Attempts, Recipe
from isocost.traits import bounds, gives, requires, trait
from isocost.types import Group, Problem, Role, Rollout, Score, Stop
from isocost.world import World

if TYPE_CHECKING:
    from isocost.ledger import Ledger

CARD = Card("T-PPO", "2506.15050", 2025, "ppo", "Short windows reach PPO's accuracy in less than half of its time.",
            acts="unfinished")
CUT = "unfinished"      # the note: 1 of a text that goes on in the next step


@trait("in_parts", "defers_groups", "not_as_posed")
@requires("deferred groups first", at="choose", why="a text that was cut would wait until its problem is drawn again; "
          "april.choose draws it next")
@bounds(window="[1, inf)")
async def schedule(
    problem: Problem, attempts: Sequence[int], play: Attempts, ledger: Ledger, *, window: int = 256
) -> list[Rollout]:
    """First the group's texts that were cut go on by `window` tokens each, then new ones begin (T-PPO).

    Each window is a fork of the one before it, so it is charged as a rollout, and earlier tokens have no credit again.
    A text is cut until it has `max_tokens`. The note `unfinished` is 1 where it is. Requires attempts of one segment.
    """
    going = april.resumed_group(problem, ledger).rollouts
    on, new = list(zip(going, attempts, strict=False)), attempts[len(going) :]
    most = play.pace.max_tokens

    async def longer(r: Rollout, number: int) -> list[Rollout]:
        text = r.segments[-1]
        room = min(text.written + window, most)
        return await fork(r.but(attempt=-1), len(text), [number], play.world, replace(play.pace, max_tokens=room),
                          play.place, play=play.play)

    made = await together(*(longer(*x) for x in on), *([play(problem, new, max_tokens=window)] if new else []))
    whole = [r for some in made for r in some]
    cut = [r for r in whole if r.stop is Stop.LENGTH and r.segments[-1].written < most]
    if cut or going[len(on) :]:
        ledger.kept[april.UNFINISHED].append(Group(problem, (*cut, *going[len(on) :]), play.place))
    noted = [r.but(notes={**r.notes, CUT: float(any(r is x for x in cut))}) for r in whole]
    return [lent(r, r.parent[1]) if r.parent and r.parent[0] < 0 else r for r in noted]


@trait("not_whether_right")
async def reward(group: Group, world: World) -> Group:
    """The verifier's score of a finished text; 0 of one that was cut, which is not verified."""
    done = await verified(group.of(r for r in group.rollouts if not r.numbers.get(CUT)), world)
    marked = {r.attempt: r for r in done.rollouts}
    return group.of(marked.get(r.attempt, r.scored(Score(0.0))) for r in group.rollouts)


def cut_of(batch: Batch) -> Tensor:
    """Whether each rollout goes on in the next step: (R,)."""
    return torch.tensor([bool(r.numbers.get(CUT)) for g in batch.groups for r in g.rollouts]).to(batch.reward.device)


@trait("by_token")
@ppo.reads_values
@requires("a critic", at="improve", why="it needs a critic that is trained; tppo.improve trains one")
@bounds(lam="[0, 1]", eps="[0, inf)")
def advantage(
    batch: Batch, ledger: object, *, lam: float = 0.95, whiten: bool = True, eps: float = EPS
) -> Tensor:  # -> (N, T)
    values, mask = batch.extra["values"], batch.mask
    at = torch.arange(mask.shape[1], device=mask.device)
    end = torch.where(mask, at, -1).amax(-1)                                # the last token of each row
    last = torch.zeros_like(batch.reward).index_add(
        0, batch.rollout, (values * (at == end[:, None])).sum(-1).to(batch.reward))
    credit = gae(values, batch.but(reward=torch.where(cut_of(batch), last, batch.reward)), lam=lam)
    here = credit[mask]
    return (credit - here.mean()) / (here.std(correction=0) + eps) * mask if whiten else credit


@gives("a critic")
@ppo.reads_values
@bounds(faster="(0, inf)", epochs="[1, inf)", minibatches="[1, inf)")
def improve(
    batch: Batch, recipe: Recipe, world: World, ledger: Ledger, *, faster: float = 1.0, epochs: int = 1,
    minibatches: int = 1,
) -> dict[str, float]:
    """`improve.policy`, and `epochs` updates of the critic on all tokens of finished texts, towards their rewards.

    The critic's learning rate is `faster` times the policy's.
    """
    assert world.critic is not None
    cut, seen = cut_of(batch), dict[str, float]()
    if not bool(cut.all()):
        done = batch.rows(rows_of(torch.nonzero(~cut)[:, 0], batch))
        done = done.but(mask=(done.role == int(Role.OWN)) | (done.role == int(Role.HINT)))
        for _ in range(epochs):
            seen = world.critic.fit(done, spread(done.reward, done), lr=recipe.pace(ledger).lr * faster)
    return {**policy(batch, recipe, world, ledger, epochs=epochs, minibatches=minibatches), **seen,
            CUT: float(cut.float().mean())}


def recipe(**changes: Any) -> Recipe:
    # The paper's window is 8k of 24k tokens; here 256 of 1,024. C counts windows: a text of three is three rollouts, so
    # compare with PPO in tokens or seconds. Pass rates in the ledger count a text that was cut as wrong. Left out: the
    # tokens next to a cut that the paper may drop, and a critic that is trained before the policy.
    return ppo.recipe(
        name="tppo", choose=april.choose, schedule=partial(schedule, window=256), reward=reward,
        advantage=partial(advantage, lam=0.95), improve=partial(improve, faster=1.0, minibatches=4),
    ).but(**changes)
