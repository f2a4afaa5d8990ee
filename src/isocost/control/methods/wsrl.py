"""WSRL: Cal-QL on a set, samples by the policy that it trained, then plain SAC on these alone, without the set.

    first, on the set:  y = r + γ min_{k ∈ M} Q'_k(s', a'),  M: 2 of 10;  L_Q as in Cal-QL, L_π as in SAC
    then:  `warmup` samples by π without an update;  the same y;  L_Q = Σ_k mean (Q_k(s, a) − y)²,  nothing from the set

    Zhou et al. 2024, arXiv:2412.07762. Ten critics with LayerNorm, no entropy in y. The paper makes four updates per
    sample (`--updates-per-sample 4`), and one of the actor on their four batches together; here every fourth update
    trains the actor. `sample.old` is the share of each batch from the set; the paper's is 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from torch import Tensor

from isocost.control.luck import Luck
from isocost.control.methods import calql, sac
from isocost.control.networks import Mlp, Network, Params
from isocost.control.parts import improve, tempo
from isocost.control.parts.heads import least_of
from isocost.control.parts.mix import beside
from isocost.control.replay import Replay
from isocost.control.seams import Agent
from isocost.control.types import Space, Transitions
from isocost.found import Card
from isocost.traits import bounds

CARD = Card("WSRL", "2412.07762", 2024, "sac", "A warm start by the set's policy makes keeping the set unnecessary.")


def networks(space: Space, agent: Agent) -> Mapping[str, Network]:
    """SAC's, with LayerNorm in the critics."""
    critic = Mlp(space.observation + space.actions, 1, agent.width, agent.depth, agent.members, norm=True, slow=True)
    return {**sac.networks(space, agent), "critic": critic}


@bounds(old="[0, 1]")
def sample(replay: Replay, count: int, luck: Luck, *, gamma: float = 0.99, old: float = 0.0) -> Transitions:
    """Before the first sample rows of the set with their "return"; then `beside`."""
    if replay.fixed:
        return calql.sample(replay, count, luck, gamma=gamma)
    return beside(replay, count, luck, gamma=gamma, old=old)


def target(batch: Transitions, params: Params, slow: Params, luck: Luck, *, drawn: int = 2) -> Tensor:
    """r + γ times the least of `drawn` critics: (S, B)."""
    action, _ = improve.squashed(params, batch.following, luck.normal("next", *batch.action.shape[1:]))
    return batch.reward + batch.discount * least_of(slow("critic", batch.following, action)[..., 0], drawn, luck)


def losses(
    batch: Transitions, target: Tensor, params: Params, luck: Luck, *, alpha: float = 5.0, drawn: int = 10
) -> dict[str, Tensor]:
    """Cal-QL's where the batch has returns, which the set alone has; else SAC's."""
    if "return" in batch.others:
        return calql.losses(batch, target, params, luck, alpha=alpha, drawn=drawn)
    return sac.losses(batch, target, params, luck)


def agent(**changes: Any) -> Agent:
    return sac.agent(
        name="wsrl", networks=networks, sample=partial(sample, gamma=0.99, old=0.0), target=partial(target, drawn=2),
        losses=partial(losses, alpha=5.0, drawn=10), tempo=partial(tempo.from_set, warmup=5000, actor_every=4),
        members=10,
    ).but(**changes)
