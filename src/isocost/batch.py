"""What an update is computed from: groups as padded tensors, and the learner's forward pass over them.

Shapes are in the letters of `isocost.types`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jaxtyping import Bool, Float, Int
from numpy import ndarray

from isocost.types import Group

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Batch:
    """Groups as tensors. Seams set fields with `but`; nothing is mutated."""

    tokens: Int[Tensor, "N T"]
    mask: Bool[Tensor, "N T"]            # tokens the policy sampled: the only ones with credit
    logp: Float[Tensor, "N T"]           # behaviour log-probs, from the engine
    role: Int[Tensor, "N T"]
    turn: Int[Tensor, "N T"]
    length: Int[Tensor, "N"]             # tokens in the row before padding
    temperature: Float[Tensor, "N"]      # one for each row, because `pace` may change it between waves
    rollout: Int[Tensor, "N"]            # row -> rollout
    reward: Float[Tensor, "R"]
    group: Int[Tensor, "R"]              # rollout -> (group, cohort), within which siblings are compared
    age: Int[Tensor, "R"]                # steps since the oldest of it was sampled
    groups: tuple[Group, ...]            # the groups that it was packed from
    kept: tuple[tuple[ndarray, ...], ...] = ()       # per row, per OWN token: ids drawn from; () when nothing truncates
    old: Float[Tensor, "N T"] | None = None          # learner's log-probs when it was sampled; None: the current
    advantage: Float[Tensor, "N T"] | None = None
    weight: Float[Tensor, "N T"] | None = None
    extra: Mapping[str, Float[Tensor, "N T"]] = field(default_factory=dict)

    def but(self, **changes) -> Batch:
        if unknown := changes.keys() - self.__dict__.keys():
            raise TypeError(f"a Batch has no {', '.join(sorted(unknown))}")
        out = object.__new__(type(self))     # `dataclasses.replace` takes ten times as long
        out.__dict__.update(self.__dict__)
        out.__dict__.update(changes)
        return out

    def rows(self, index: Tensor) -> Batch:
        """Some rows of it. Fields over rollouts stay whole, because `rollout` points into them."""
        pick = ("tokens", "mask", "logp", "role", "turn", "length", "temperature", "rollout", "old", "advantage",
                "weight")
        cut = {k: None if getattr(self, k) is None else getattr(self, k)[index] for k in pick}
        kept = tuple(self.kept[i] for i in index.tolist()) if self.kept else ()
        return self.but(**cut, kept=kept, extra={k: v[index] for k, v in self.extra.items()})


@dataclass(frozen=True)
class Forward:
    """The learner's forward pass, as a loss receives it. Differentiable.

    Position t holds the log-prob of token t given those before it, and the entropy of the distribution it was drawn
    from (the row's temperature and kept set applied). Position 0 is zero.
    """

    logp: Float[Tensor, "N T"]
    entropy: Float[Tensor, "N T"]
