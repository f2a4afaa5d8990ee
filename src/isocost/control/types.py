"""The types of control. Letters for shapes, in all of `isocost.control`:

    S  runs in a stack      B  transitions in a batch       K  members of an ensemble, such as two critics
    O  numbers of an observation                            A  numbers of an action
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy import ndarray
from torch import Tensor


@dataclass(frozen=True)
class Space:
    """What an agent sees and does. Agents act in [-1, 1], or name one of `choices` actions by its number."""

    observation: int        # O
    actions: int            # A; 1 if discrete
    choices: int = 0        # number of discrete actions; 0: continuous
    goal: int = 0           # G: the last G numbers of an observation are the goal of its first G; 0: none
    held: int = 0           # J: the last J numbers say which step since the last decision; before: now, then, in halves
    frames: int = 0         # H: an observation is so many frames, the newest last; frames before the first are 0
    tasks: int = 0          # K: the last K numbers of an observation are one-hot, for the task; 0: one task

    @property
    def discrete(self) -> bool:
        return self.choices > 0


class Transitions(NamedTuple):
    """A batch from the replay. `discount` is gamma^k after k steps, and 0 after a terminal state.

    An episode that was cut by its time limit goes on for the learner: its last discount is not 0.
    """

    observation: Tensor     # (S, B, O)
    action: Tensor          # (S, B, A), in [-1, 1]; the number of a discrete action
    reward: Tensor          # (S, B), the discounted sum of k steps
    following: Tensor       # (S, B, O)
    discount: Tensor        # (S, B)
    others: Mapping[str, Tensor] = MappingProxyType({})     # what a method's sample adds, (S, B, ...), such as goals


@dataclass(frozen=True)
class Progress:
    """How far a run is, in samples (environment steps) and updates. `first`: the updates that it makes on a set before
    its first sample."""

    samples: int
    updates: int
    first: int = 0

    @property
    def before(self) -> bool:
        """Whether updates on the set are left."""
        return self.updates < self.first


@dataclass(frozen=True)
class Tempo:
    """What a run does next: whether it explores at random, learns, resets its networks, and how it averages."""

    random: bool = False                # actions are uniform
    acts: bool = True                   # the run takes samples; if not, it learns from a fixed set, update by update
    keeps: bool = False                 # a run that acts learns from its set too: its sample reads `Replay.prior`
    sampled: bool = False               # evaluations sample actions too: the mean of several modes is none of them
    learns: bool = True                 # updates are owed for the next samples
    every: Mapping[str, int] = field(default_factory=dict)      # network -> k: trained in every k-th update
    tau: float = 0.005                  # slow <- slow + tau (network - slow)
    slow_every: int = 1                 # k: the slow copies move after every k-th update
    reset: bool = False                 # networks start again before the next update; the replay stays


@runtime_checkable
class Choosable(Protocol):
    """A task whose episodes a teacher can choose, besides the mazes and families that teachers know themselves."""

    @property
    def contexts(self) -> int: ...      # P: numbers in [0, 1] that name an episode
    def begin_in(self, context: ndarray, rng: np.random.Generator) -> ndarray: ...     # (P,) -> (D,)


class ControlTask(Protocol):
    """An environment as arrays: each row is one episode, of any run. Float64, so that a row's bits are its own.

    A task is pure: a state is numbers. Where it is `live`, as Gymnasium's, `slot` names the place of an episode, and a
    resumed run plays its episode again.
    """

    @property
    def name(self) -> str: ...          # as `open_task` reads it
    @property
    def space(self) -> Space: ...
    @property
    def live(self) -> bool: ...
    @property
    def limit(self) -> int: ...         # steps after which an episode is cut
    @property
    def bounds(self) -> tuple[ndarray, ndarray]: ...    # (A,) lowest and highest actions; empty if discrete
    @property
    def reference(self) -> float: ...   # the return that is 1 on the scale: the optimum, or a known one
    def begin(self, rng: np.random.Generator, slot: tuple[str, int, int]) -> ndarray: ...      # (D,)
    def observe(self, state: ndarray) -> ndarray: ...   # (n, D) -> (n, O)
    def step(self, state: ndarray, action: ndarray) -> tuple[ndarray, ndarray, ndarray]: ...
    # (n, D), (n, A) in the task's own bounds -> (n, D), reward (n,), terminal (n,)
