"""Agent-RLVR: where all attempts at a task fail, try again with guidance, and learn without it which of them passed.

    attempts at x; if all fail, attempts at (x, g) with a hint g;  each is trained on as an attempt at x
    L = −E log σ(β [log π/π_ref (y⁺ | x) − log π/π_ref (y⁻ | x)]) over pairs of a pass and a failure of one task
    Da et al. 2025, arXiv:2506.11425; DPO: Rafailov et al. 2023, arXiv:2305.18290
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from isocost.batch import Batch
from isocost.gather import together
from isocost.methods import Card, gigpo, reinforce
from isocost.ops import spread
from isocost.pack import pack
from isocost.parts import enrich as enriching
from isocost.parts import pace, reward
from isocost.parts.play import opened
from isocost.seams import Attempts, Recipe
from isocost.traits import asks, bounds, gives, requires, trait
from isocost.types import Group, Message, Problem, Rollout, Score, Segment, Stop
from isocost.world import World

if TYPE_CHECKING:
    from isocost.ledger import Ledger

CARD = Card("Agent-RLVR", "2506.11425", 2025, "reinforce", "Guided attempts make tasks solvable that never were.")

needs = gigpo.needs


@asks("text")
@trait("in_parts", "not_as_posed", "needs_turns")
@bounds(first="(0, 1]")
async def schedule(
    problem: Problem, attempts: Sequence[int], play: Attempts, ledger: Ledger, *,
    first: float = 0.5, words: str = "{problem}\\n\\nGuidance: {hint}", hint: str = "solution",
) -> list[Rollout]:
    """A share `first` of the attempts as posed; the others with guidance, if none of these passed (arXiv:2506.11425).

    Guidance is `words` with the problem's last message and `meta[hint]`; of a list its items, joined. A guided attempt
    becomes one at the problem as posed: the same turns after the unguided opening, with the log-probs that they have
    there, charged as `score` tokens. Without guidance, with a pass, or if no environment opened, all attempts are as
    posed.
    """
    count = max(round(first * len(attempts)), 1)
    whole = await play(problem, attempts[:count])
    whole = list(await reward.marked(whole, problem, play.place, play.world))
    known, left, plain = problem.meta.get(hint), attempts[count:], opened(whole)
    if not left:
        return whole
    if not known or plain is None or any(r.score is not None and r.score.value > 0 for r in whole):
        return [*whole, *await play(problem, left)]
    said = known if isinstance(known, str) else " ".join(map(str, known))
    *before, last = problem.prompt
    posed = words.replace("{hint}", said).replace("{problem}", last.content)
    guided = replace(problem, variant="guided", prompt=(*before, Message(last.role, posed)))
    made = await play(guided, left)
    return [*whole, *await together(*(_unguided(r, problem, plain, play) for r in made))]


async def _unguided(rollout: Rollout, problem: Problem, plain: Segment, play: Attempts) -> Rollout:
    """A guided dialogue as one at the problem as posed."""
    text = rollout.segments[0]
    own = np.flatnonzero(text.own)
    if rollout.stop is Stop.ERROR or not len(own) or len(rollout.segments) > 1:
        return rollout.but(problem=problem)
    k = int(own[0])
    joined = replace(
        text, tokens=np.concatenate([plain.tokens, text.tokens[k:]]), role=np.concatenate([plain.role, text.role[k:]]),
        logp=np.concatenate([plain.logp, text.logp[k:]]), turn=np.concatenate([plain.turn, text.turn[k:]]),
        version=np.concatenate([plain.version, text.version[k:]]),
    )
    whole = rollout.but(problem=problem, segments=(joined,))
    scored = whole.scored(Score(0.0))       # any score serves
    batch = pack([Group(problem, (scored,), play.place)], play.world.engine.version)
    logp = play.world.learner.score(batch).logp[0].float().cpu().numpy()[: len(joined)]
    return whole.but(segments=(replace(joined, logp=np.where(joined.own, logp, 0.0).astype(np.float32)),))


@gives("now")
def enrich(batch: Batch, world: World) -> Batch:
    """Log-probs of the policy before the update, as `extra["now"]`; charged as `score` tokens."""
    return batch.but(extra={**batch.extra, "now": world.learner.score(batch).logp})


@trait("compares_siblings")
@enriching.reads_reference
@requires("now", at="enrich", why="it compares with the current policy; add agentrlvr.enrich to `enrich`")
@bounds(beta="(0, inf)")
def advantage(batch: Batch, ledger: object, *, beta: float = 0.1) -> Tensor:  # -> (N, T)
    moved = ((batch.extra["now"] - batch.extra["reference"]) * batch.mask).sum(-1).to(batch.reward)
    each = torch.zeros_like(batch.reward).index_add(0, batch.rollout, moved)
    return spread(pulls(each, batch, beta), batch)


def pulls(moved: Tensor, batch: Batch, beta: float) -> Tensor:
    """Minus the gradient of DPO's loss by each rollout's log-prob, times R over the number of pairs. -> (R,)

    A pair is of siblings of which one earned more. With a weight of 1 / R a token and one update, REINFORCE's loss with
    these advantages has the gradient of the mean of DPO's loss over the pairs.
    """
    r = batch.reward
    better = (r[:, None] > r[None, :]) & (batch.group[:, None] == batch.group[None, :])       # (R, R): i over j
    pull = beta * torch.sigmoid(-beta * (moved[:, None] - moved[None, :])) * better
    return (pull.sum(1) - pull.sum(0)) * len(r) / better.sum().clamp(min=1)


def recipe(**changes: Any) -> Recipe:
    # Half of the attempts are guided. The paper builds guidance from failing tests and files of the reference; here it
    # is what the problem's meta has, and chat models need words around it. Its advantage is the exact gradient of DPO
    # at the policy before one update. β is not stated. Left out: the model of rewards for best-of-k.
    retry = partial(schedule, first=0.5, hint="solution")
    return reinforce.recipe(
        name="agentrlvr", schedule=retry, enrich=(enriching.reference, enrich), advantage=partial(advantage, beta=0.1),
        pace=partial(pace.warmed, max_turns=30),
    ).but(**changes)
