"""What a run happens in. A laptop and a cluster differ in the `World` handed to the same loop, never in the loop.

"Policy" is deliberately two objects: what writes (Engine, at some version) and what learns (Learner). The contract
of every world is that the two agree on the log-probs of sampled tokens, after updates too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor

from isocost.batch import Batch, Forward
from isocost.meter import Meter
from isocost.types import Message, Place, Problem, Rollout, Said, Sampling, Score, Segment

Weights = Mapping[str, Tensor]
_CRITIC = "critic."                    # what the names of its tensors begin with in a checkpoint
Surrogate = Callable[[Forward, Batch], tuple[Tensor, dict[str, Tensor]]]   # unreduced (N, T), and metrics like it


class Engine(Protocol):
    """Writes tokens. Knows nothing of rewards, tools or groups, and charges the meter for every token."""

    version: int

    async def generate(
        self,
        start: Segment,
        attempts: Sequence[int],
        *,
        place: Place,
        turn: int,
        max_tokens: int,
        stop: Sequence[str] = (),
    ) -> list[Said]:
        """Continue one start once per attempt, under `start.sampling`.

        Asked once per group: the start is read once physically, once per attempt logically. `place`, `turn` and the
        attempt's number address the random numbers, so what an attempt says depends on nothing else in flight. A
        start that ends in OWN tokens is resumed, and draws what it would have drawn.
        Cancelling the awaiting task stops decoding; what was decoded by then is charged.
        """
        ...

    def halt(self, place: Place) -> None:
        """Send home whoever writes for a wave (seed, number and purpose of `place`) as far as it got: `Stop.CANCELLED`.

        So it is with whoever asks for that wave later. What a start ends with when it is resumed is not lost.
        """
        ...

    async def load(self, weights: Weights) -> None:
        """Take these weights; `version` grows by one. Nothing computed under the old ones is reused."""
        ...

    def restore(self, weights: Weights, version: int) -> None:
        """Take weights as of a version, when a run goes on from a checkpoint. Nothing may be in flight."""
        ...


class Learner(Protocol):
    """The policy as a differentiable thing."""

    parameters: int                                 # how many numbers it learns

    def forward(self, batch: Batch) -> Forward:
        """Log-probs and entropies, with gradient. Each row's temperature and kept sets are applied."""
        ...

    def score(self, batch: Batch) -> Forward:
        """The same without gradient, charged as `score` tokens."""
        ...

    def update(self, batch: Batch, loss: Surrogate, *, lr: float) -> dict[str, float]:
        """One optimiser update: micro-batches inside, `sum(loss * weight)` over the mask, exact under any split."""
        ...

    def gradients(self, batch: Batch, loss: Surrogate) -> Iterator[tuple[Tensor, dict[str, float]]]:
        """The gradient of `sum(loss * weight)` of each rollout alone, flat, in their order, and `update`'s metrics.

        Charged as `train` tokens. A gradient may be overwritten when the next is asked for.
        """
        ...

    def step(self, gradient: Tensor, *, lr: float) -> float:
        """One optimiser update down such a gradient, or a sum of some, and its norm: what `update` ends with."""
        ...

    def forget(self) -> None:
        """Begin the optimiser's moments and counters again; the weights stay."""
        ...

    def weights(self) -> Weights: ...

    def state(self) -> dict[str, Tensor]:
        """All that an exact continuation needs: weights, optimiser moments, counters, as tensors."""
        ...

    def restore(self, state: Mapping[str, Tensor]) -> None: ...


class Critic(Protocol):
    """Foresees at every token what its rollout will earn: another learner, whose parameters are its own."""

    def values(self, batch: Batch) -> Tensor:
        """(N, T), for each sampled token what was to be expected before it was chosen; 0 elsewhere.

        Without gradient, charged as `score` tokens.
        """
        ...

    def fit(self, batch: Batch, target: Tensor, *, lr: float) -> dict[str, float]:
        """One update down the mean square of values less targets, halved; charged like `Learner.update`."""
        ...

    def state(self) -> dict[str, Tensor]:
        """All that an exact continuation needs; nothing as long as nobody has asked for a value."""
        ...

    def restore(self, state: Mapping[str, Tensor]) -> None: ...


class Text(Protocol):
    """Between messages and tokens. The one place that knows a chat template."""

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        """What the policy reads before its first word, generation prompt included."""
        ...

    def encode(self, text: str) -> list[int]:
        """Plain text; special-token spellings inside it stay plain text."""
        ...

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of tokens, end tokens left out."""
        ...

    def answer(self, messages: Sequence[Message]) -> list[int]:
        """What the policy reads when the environment answers: these messages, then the generation prompt."""
        ...

    @property
    def ends(self) -> tuple[int, ...]:
        """Every id that ends a turn."""
        ...


class Env(Protocol):
    """One episode; single use: build it, play it, drop it."""

    def open(self) -> Sequence[Message]: ...
    async def step(self, said: str) -> tuple[Sequence[Message], bool]:
        """What comes back, and whether that was all."""
        ...
    def final(self) -> str:
        """What the verifier reads."""
        ...


class Grade(Protocol):
    """Marks finished rollouts, charging one verifier call each. None where the verifier failed or ran out of time."""

    async def __call__(self, rollouts: Sequence[Rollout]) -> list[Score | None]: ...


class Exact(Protocol):
    """The chance in [0, 1], per problem, that one attempt at this sampling is right. No sampling noise."""

    def __call__(self, problems: Sequence[Problem], sampling: Sampling) -> list[float]: ...


class Ask:
    """The simplest environment: one question, one answer."""

    def __init__(self, problem: Problem):
        self.problem, self.said = problem, ""

    def open(self) -> Sequence[Message]:
        return self.problem.prompt

    async def step(self, said: str) -> tuple[Sequence[Message], bool]:
        self.said = said
        return (), True

    def final(self) -> str:
        return self.said


@dataclass
class World:
    """Everything a run happens in."""

    problems: Sequence[Problem]               # the training pool
    engine: Engine
    learner: Learner
    text: Text
    grade: Grade
    meter: Meter
    reference: Learner | None = None          # where the run began, for KL terms
    exact: Exact | None = None                # pass@1 without sampling, where the problems allow it
    env: Callable[[Problem], Env] = Ask
    critic: Critic | None = None              # a value function, for methods that learn one
    extra: dict[str, Any] = field(default_factory=dict)   # teachers: named by the methods that need them

    def state(self) -> dict[str, Tensor]:
        """What all that learns needs to go on exactly: a checkpoint's tensors."""
        critic = self.critic.state() if self.critic else {}
        return {**self.learner.state(), **{f"{_CRITIC}{k}": v for k, v in critic.items()}}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Continue from `state()`."""
        self.learner.restore({k: v for k, v in state.items() if not k.startswith(_CRITIC)})
        if self.critic:
            critic = {k.removeprefix(_CRITIC): v for k, v in state.items() if k.startswith(_CRITIC)}
            self.critic.restore(critic)
