"""Flow BC: the actor is a flow that ends as the actions of the set. No rewards, no critic.

    L = mean |v(s, (1 − t) z + t a, t) − (a − z)|²,  z ~ N(0, 1), t ~ U(0, 1)        a = z carried by ten Euler steps

    As in FQL, Park et al. 2025, arXiv:2502.02538
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from torch import Tensor

from isocost.control.luck import Luck
from isocost.control.networks import Network, Params
from isocost.control.parts import backup, flow, tempo
from isocost.control.parts.mix import weighted
from isocost.control.seams import Agent
from isocost.control.types import Space, Transitions
from isocost.found import Card

CARD = Card("Flow BC", "2502.02538", 2025, None, "A flow clones actions that have several modes.")


def networks(space: Space, agent: Agent) -> Mapping[str, Network]:
    """Velocities of an action, of (s, x, t)."""
    return {"actor": flow.velocity(space.observation, space.actions, agent)}


def losses(batch: Transitions, target: Tensor, params: Params, luck: Luck) -> dict[str, Tensor]:
    """The flow alone."""
    return {"actor": flow.cloned(params, "actor", batch.observation, batch.action, luck)}


def agent(**changes: Any) -> Agent:
    return Agent(
        name="flowbc", acts="continuous", networks=networks,
        sample=partial(weighted, gamma=0.99, weighting="none", temperature=0.1), target=backup.nothing, losses=losses,
        explore=partial(flow.by_flow, steps=10), tempo=partial(tempo.offline, sampled=True),
    ).but(**changes)
