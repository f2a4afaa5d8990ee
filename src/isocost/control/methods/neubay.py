"""NEUBAY: long rollouts, each in one model of an ensemble as a posterior sample, without a penalty for uncertainty.

    a rollout uses one model, and ends after the step at which √ mean_d var_k ŝ'_k is above all of the data's
    y = r + γ (min_{k ∈ M} Q'_k(s', a') − α log π(a'|s')),  M: 2 of 10, also after such an end        L_π as in REDQ

arXiv:2512.04341. Left out: the recurrent agent, which infers its model from the rollout so far; the policy here sees
the state alone (the paper's Markov agent). The data's uncertainty is that of this update's batch, not of the whole set.
10 models for the paper's 100, rollouts of 32 steps for several hundred.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from isocost.control.methods import redq, wsrl
from isocost.control.networks import Network
from isocost.control.parts import improve, model, tempo
from isocost.control.parts.mix import weighted
from isocost.control.seams import Agent, ModelBased
from isocost.control.types import Space
from isocost.found import Card
from isocost.traits import bounds

CARD = Card("NEUBAY", "2512.04341", 2025, "redq", "Long rollouts of sampled models need no penalty for uncertainty.")


@bounds(models="[1, inf)")
def networks(space: Space, agent: Agent, *, models: int = 10) -> Mapping[str, Network]:
    """WSRL's, and `models` members of dynamics, all but the actor with LayerNorm."""
    return {**wsrl.networks(space, agent), "model": model.network(space, agent, models, norm=True)}


def agent(**changes: Any) -> Agent:
    return ModelBased(
        name="neubay", acts="continuous", networks=partial(networks, models=10),
        sample=partial(weighted, gamma=0.99, weighting="none", temperature=0.1),
        imagine=partial(model.imagined, gamma=0.99, horizon=32, real=0.05, doubtful=True),
        target=partial(model.target, rest=partial(redq.target, drawn=2)),
        losses=partial(model.losses, rest=redq.losses), explore=improve.by_policy,
        tempo=partial(tempo.model_first, fitted=1000, tau=0.005), members=10,
    ).but(**changes)
