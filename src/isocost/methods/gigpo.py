"""GiGPO: add to the advantage of a dialogue that of each of its turns, among all turns taken in the same state.

    A_i = r_i − mean r,   A_it = R_it − mean of R over the turns of the group in state s_it,   R_it = r_it + γ R_i,t+1
    A = A_i + ω A_it for all tokens of turn t;   A_it = 0 for the only turn of a state
    Feng et al. 2025, arXiv:2505.10978
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from torch import Tensor

from isocost.batch import Batch
from isocost.methods import FAILS, HOLDS, UNMEASURED, Card, drgrpo, grpo
from isocost.ops import EPS, in_states, spread_turns, to_go, turns_of
from isocost.parts import pace
from isocost.seams import Recipe
from isocost.traits import bounds, trait

CARD = Card("GiGPO", "2505.10978", 2025, "grpo", "Turns taken in the same state tell which of them helped, at no cost.")


@trait("compares_siblings", "by_token", "needs_turns")
@trait("by_group_spread", std=True)
@bounds(omega="[0, inf)", gamma="[0, 1]", eps="[0, inf)")
def advantage(
    batch: Batch, ledger: object, *, omega: float = 1.0, gamma: float = 0.95, std: bool = False, eps: float = EPS
) -> Tensor:  # -> (N, T)
    turns = turns_of(batch)
    step = in_states(to_go(turns, gamma=gamma), turns.key, std=std, eps=eps)
    episode = grpo.advantage(batch, ledger, eps=eps) if std else drgrpo.advantage(batch, ledger)
    return episode + omega * spread_turns(step, turns, batch)


def needs(profile: Mapping[str, Any]) -> tuple[str, str]:
    """Dialogues of several turns, and siblings that differ."""
    if profile.get("mean") is None:
        return UNMEASURED, "no turns per rollout: `isocost profile --env ...` measures them"
    turns = profile.get("dialogues", {}).get("turns", {}).get("mean", 1.0)
    if turns <= 1:
        return FAILS, "one question and one answer: an environment that answers turns (--env) is needed"
    state, why = grpo.needs(profile)
    return (HOLDS, f"{turns:.1f} turns per rollout; {why}") if state == HOLDS else (state, why)


def recipe(**changes: Any) -> Recipe:
    # States are those that the environment names; the paper's optional grouping of similar observations is left out,
    # and so are its KL term and its reward of −0.1 for an invalid action. The mean is over rollouts, where the released
    # code's is over their turns. Tokens are averaged as in GRPO. With std=true both terms are in units of a spread.
    credit = partial(advantage, omega=1.0, gamma=0.95, std=False)
    return grpo.recipe(name="gigpo", advantage=credit, pace=partial(pace.warmed, max_turns=30)).but(**changes)
