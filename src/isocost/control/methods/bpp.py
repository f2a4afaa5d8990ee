"""BPP: cloning with a memory of key frames alone. Whole histories are too many to be covered by a set.

    K = {k <= t − Δ: φ_k = 1 and φ_{k−1} = 0},  φ: the last number of a frame, such as "inside of a room"
    π(a | o_t, the newest M frames of K), cloned as flow BC does; slots without a frame are 0

    Big Picture Policies, arXiv:2602.15010. There φ is a vision-language model, and Δ its delay, also in training.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from isocost.control.methods import flowbc
from isocost.control.networks import Mlp, Network
from isocost.control.seams import Agent
from isocost.control.types import Space
from isocost.errors import UserError
from isocost.found import Card
from isocost.traits import bounds

CARD = Card("BPP", "2602.15010", 2026, "flowbc", "Key frames are a better memory for cloning than whole histories.")
MANY = 4        # M


def read(frames: Tensor, kept: str, delay: int) -> Tensor:
    """(.., H, F) -> what a network reads of the frames, (.., numbers): all of them for "whole", the newest for "last",
    and for "keys" also the newest M key frames that are at least `delay` frames old."""
    if kept == "keys":
        seen = frames[..., -1] > 0
        rises = seen & ~torch.cat((torch.zeros_like(seen[..., :1]), seen[..., :-1]), -1)
        rises[..., max(frames.shape[-2] - delay, 0) :] = False
        after = rises.flip(-1).cumsum(-1).flip(-1)      # 1 for the newest of them
        slot = rises[..., None] & (after[..., None] == torch.arange(MANY, 0, -1))
        frames = torch.cat((slot.to(frames.dtype).transpose(-1, -2) @ frames, frames[..., -1:, :]), -2)
    return (frames[..., -1:, :] if kept == "last" else frames).flatten(-2)


@dataclass(frozen=True)
class FrameReader(Mlp):
    """A network whose first H F inputs are frames."""

    frames: int = 1
    each: int = 1       # F
    kept: str = "keys"
    delay: int = 0

    def __call__(self, weights: Tensor, x: Tensor) -> Tensor:
        many = self.frames * self.each
        past = read(x[..., :many].unflatten(-1, (self.frames, self.each)), self.kept, self.delay)
        plain = Mlp(self.inputs, self.outputs, self.width, self.depth)
        return plain(weights, torch.cat((past, x[..., many:]), -1))


@bounds(delay="[0, inf)")
def networks(space: Space, agent: Agent, *, kept: str = "keys", delay: int = 0) -> Mapping[str, Network]:
    """Velocities of an action. `kept`: "keys", "whole" or "last"; `delay`: Δ, in frames. Raises UserError for another,
    and for a task without frames."""
    read_of = {"keys": MANY + 1, "whole": space.frames, "last": 1}
    if not space.frames or kept not in read_of:
        raise UserError("the observations of this task are not frames: take rooms" if kept in read_of else
                        f"networks.kept is {kept!r}: expected {', '.join(read_of)}")
    each = space.observation // space.frames
    return {"actor": FrameReader(read_of[kept] * each + space.actions + 1, space.actions, agent.width, agent.depth,
                            frames=space.frames, each=each, kept=kept, delay=delay)}


def agent(**changes: Any) -> Agent:
    return flowbc.agent(name="bpp", networks=partial(networks, kept="keys", delay=0)).but(**changes)
