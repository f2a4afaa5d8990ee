"""The seams of control: a method is one function for each of six, and an agent holds these and four sizes. One that
learns from its last rollout alone has a seventh, and the rollout's size; one that learns from transitions that a model
makes has another.

Every value is a top-level function or a `partial` of one, and its signature is the schema of its settings, as in
`isocost.seams`: `describe`, `fingerprint` and `tune` of `isocost.recipe` take an agent as they take a recipe. Every
array has the runs of the stack in front; a function must compute each run from that run's rows alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from torch import Tensor

from isocost.control.luck import Luck
from isocost.control.networks import Network, Params
from isocost.control.replay import Replay
from isocost.control.types import Progress, Space, Tempo, Transitions

__all__ = ["Agent", "Explore", "Imagine", "Losses", "ModelBased", "Networks", "OnPolicy", "Prepare", "Sample", "Target",
           "TempoFn", "as_drawn"]


class Networks(Protocol):
    """The networks by name. The paper's count of FLOP (10 N B) is of the one that is named "critic"."""
    def __call__(self, space: Space, agent: Agent) -> Mapping[str, Network]: ...
class Sample(Protocol):
    """A batch of `count` transitions of each run."""
    def __call__(self, replay: Replay, count: int, luck: Luck) -> Transitions: ...
class Target(Protocol):
    """What the critic is fitted to: (S, B), or (S, B, ...) for a distribution. Computed without gradient."""
    def __call__(self, batch: Transitions, params: Params, slow: Params, luck: Luck) -> Tensor: ...
class Losses(Protocol):
    """The loss of each network that this update trains, by its name: (S,). `params.due` names these networks.

    The losses are summed and differentiated once: a network that a loss must not train is read through
    `params.fixed`.
    """
    def __call__(self, batch: Transitions, target: Tensor, params: Params, luck: Luck) -> dict[str, Tensor]: ...
class Explore(Protocol):
    """The action for each observation: (S, R, O) -> (S, R, A). Without luck, the deterministic action of an
    evaluation; where the tempo is `sampled`, evaluations pass luck too."""
    def __call__(self, params: Params, observation: Tensor, luck: Luck | None) -> Tensor: ...
class TempoFn(Protocol):
    """What changes as a run goes on."""
    def __call__(self, so_far: Progress) -> Tempo: ...
class Prepare(Protocol):
    """Numbers of each sample of the rollout that ends now, (S, N, M), in the order of `Replay.newest`: computed once,
    with the weights that acted, and without gradient."""
    def __call__(self, replay: Replay, params: Params) -> Tensor: ...
class Imagine(Protocol):
    """The batch with transitions of a learned model in place of replayed rows: as many rows, without gradient."""
    def __call__(self, batch: Transitions, params: Params, luck: Luck) -> Transitions: ...


def as_drawn(batch: Transitions, params: Params, luck: Luck) -> Transitions:
    """The batch, unchanged."""
    return batch


@dataclass(frozen=True, kw_only=True)
class Agent:
    """A method of control. `acts` says for which actions it is: "continuous" or "discrete"."""

    name: str
    acts: str
    networks: Networks
    sample: Sample
    target: Target
    losses: Losses
    explore: Explore
    tempo: TempoFn
    batch: int = 256         # B: transitions per update
    width: int = 256         # units of a hidden layer
    depth: int = 2           # hidden layers
    members: int = 2         # K: critics

    @property
    def offline(self) -> bool:
        """Whether it learns from a fixed set, without samples of its own."""
        return not self.tempo(Progress(0, 0)).acts

    @property
    def warms(self) -> bool:
        """Whether it can learn from a fixed set first, and takes samples then."""
        return not self.offline and not self.tempo(Progress(0, 0, 1)).acts

    @property
    def rollout(self) -> int:
        """N: samples that updates wait for, and pay back together."""
        return 1

    @property
    def prepare(self) -> Prepare | None:
        return None

    @property
    def imagine(self) -> Imagine:
        return as_drawn

    @property
    def kept(self) -> tuple[str, ...]:
        """The names of the numbers that `prepare` computes, by which `Replay.named` gives them to `sample`."""
        return ()

    @property
    def sigma(self) -> float:
        """Updates per sample where none are given."""
        return 1.0

    def but(self, **changes: Any) -> Agent:
        return replace(self, **changes)


@dataclass(frozen=True, kw_only=True)
class OnPolicy(Agent):
    """An agent that learns from its last rollout alone. No update is made before the rollout's last sample, so one
    policy acts in all of it; then sigma N updates are made (sigma: updates per sample), which are sigma B epochs."""

    rollout: int = 2048
    prepare: Prepare | None = None
    kept: tuple[str, ...] = ()
    usual_epochs: int = 10      # where no updates per sample are given

    @property
    def sigma(self) -> float:
        return self.usual_epochs / self.batch


@dataclass(frozen=True, kw_only=True)
class ModelBased(Agent):
    """An agent that replaces rows of its batch by transitions of a learned model, before the target is computed."""

    imagine: Imagine = as_drawn
