"""Learning to Fly: TD3 whose critics see what the actor cannot, such as the state of the motors.

    π reads all but the last `hidden` numbers of s;  Q_k(s, a), y, L_Q and L_π as in TD3

Eschmann et al. 2024, arXiv:2311.13081. `networks.shown` False hides them from the critics too. Left out: the history of
actions that the actor reads for the motors' delay, a curriculum of the reward's weights, noise on what the actor sees,
random parameters of the vehicle, and a real one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from isocost.control.methods import td3
from isocost.control.networks import Mlp, Network
from isocost.control.seams import Agent
from isocost.control.types import Space
from isocost.errors import UserError
from isocost.found import Card

CARD = Card("Learning to Fly", "2311.13081", 2023, "td3", "A critic that sees more than its actor teaches it faster.")


@dataclass(frozen=True)
class Blind(Mlp):
    """A network that does not see `hidden` numbers of its input: those before the last `behind`."""

    hidden: int = 0
    behind: int = 0

    def __call__(self, weights: Tensor, x: Tensor) -> Tensor:
        if x.shape[-1] > self.inputs:       # once: the network may call itself
            seen, _, rest = x.split((self.inputs - self.behind, self.hidden, self.behind), -1)
            x = seen if not self.behind else torch.cat((seen, rest), -1)
        return super().__call__(weights, x)


def networks(space: Space, agent: Agent, *, hidden: int = 2, shown: bool = True) -> Mapping[str, Network]:
    """TD3's. Raises UserError if nothing is left to see."""
    if hidden >= space.observation:
        raise UserError(f"hidden is {hidden}, and an observation has {space.observation} numbers: --set "
                        "networks.hidden=1")
    seen, size = space.observation - hidden, (agent.width, agent.depth)
    actor = Blind(seen, space.actions, *size, slow=True, hidden=hidden)
    critic = Blind(seen + space.actions, 1, *size, members=agent.members, slow=True, hidden=hidden,
                   behind=space.actions)
    return {**td3.networks(space, agent), "actor": actor, **({} if shown else {"critic": critic})}


def agent(**changes: Any) -> Agent:
    return td3.agent(name="fly", networks=partial(networks, hidden=2, shown=True)).but(**changes)
