"""The environment of a run. A laptop and a cluster differ in the `World` passed to the loop, never in the loop.

The policy is two objects: the Engine samples, at some version, and the Learner is trained. The contract of every world
is that the two agree on the log-probs of sampled tokens, after updates too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from numpy.random import Generator

from isocost.batch import Batch, Forward
from isocost.can import Can
from isocost.errors import UserError
from isocost.gather import together
from isocost.meter import Meter
from isocost.types import Group, Message, Place, Problem, Rollout, Said, Sampling, Score, Segment, Shown

if TYPE_CHECKING:
    from torch import Tensor

Weights: TypeAlias = "Mapping[str, Tensor]"
_CRITIC, _REFERENCE = "critic.", "reference."      # prefixes of the names of their tensors in a checkpoint
# A loss, unreduced (N, T), and metrics like it.
Surrogate: TypeAlias = "Callable[[Forward, Batch], tuple[Tensor, dict[str, Tensor]]]"


OnTokens: TypeAlias = "Callable[[int, Sequence[int]], None]"     # the number of an attempt, and what it wrote next


class Engine(Protocol):
    """Samples tokens. Independent of rewards, tools and groups.

    Charges the meter for every token, and says how many continuations it started (`Meter.charge(started=...)`); whether
    these are rollouts is for the caller to say (`meter.begins`).
    """

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
        ends: Sequence[int] = (),
        on_tokens: OnTokens | None = None,
    ) -> list[Said]:
        """Continue one start once per attempt, under `start.sampling`.

        Called once per group: the start is read once physically, and charged once per attempt. `place`, `turn` and the
        number of an attempt address its random numbers, so its tokens depend on nothing else that is sampled. A start
        that ends in OWN tokens is resumed, and draws what it would have drawn. Of the tokens read, `Segment.known` says
        which are charged as `reread` as well. Cancelling the awaiting task stops decoding; what was decoded by then is
        charged.

        Besides the `Text.ends`, and strings in `stop`, an attempt stops after any id in `ends`, with `Stop.STEP`: its
        text is not over. A start that leaves no room in the context gives `Stop.LENGTH` where the policy has written a
        part of it. `on_tokens` is given tokens as they come, by engines that can; by others when an attempt ends.
        """
        ...

    def halt(self, place: Place) -> None:
        """Stop all decoding for a wave (seed, number and purpose of `place`): rollouts return with `Stop.CANCELLED`.

        Later calls for that wave return at once. The tokens written so far are kept in the returned rollouts.
        """
        ...

    async def load(self, weights: Weights) -> None:
        """Take these weights; `version` grows by one. Nothing computed under the old ones is reused."""
        ...

    def restore(self, weights: Weights, version: int) -> None:
        """Take weights as of a version, when a run is resumed from a checkpoint. No call may be unfinished."""
        ...


class Start(NamedTuple):
    """A text to continue once for each of these attempts, by at most `max_tokens` each."""

    text: Segment
    attempts: Sequence[int]
    max_tokens: int


async def generate_many(
    engine: Engine, starts: Sequence[Start], *, place: Place, turn: int, stop: Sequence[str] = (),
    ends: Sequence[int] = (),
) -> list[list[Said]]:
    """`Engine.generate` of every start at the same time: in one call where the engine has a `generate_many`, too."""
    if (many := getattr(engine, "generate_many", None)) is not None:
        return await many(starts, place=place, turn=turn, stop=stop, ends=ends)
    return await together(*(
        engine.generate(text, attempts, place=place, turn=turn, max_tokens=most, stop=stop, ends=ends)
        for text, attempts, most in starts
    ))


class Learner(Protocol):
    """The policy that is trained."""

    parameters: int                                 # how many numbers it has, all read for every token
    learned: int                                    # how many it trains: as many, or those of an adapter
    vocabulary: int                                 # tokens that the policy chooses from; 0: not known
    can: frozenset[Can]                             # of `isocost.can.LEARNER`

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
        """One optimiser update with such a gradient, or a sum of some; returns its norm. The last part of `update`."""
        ...

    def forget(self) -> None:
        """Reset the optimiser's moments and counters; the weights stay."""
        ...

    def weights(self) -> Weights:
        """The weights by name, not copies: an update changes them."""
        ...

    def state(self) -> dict[str, Tensor]:
        """All tensors that an exact continuation needs: weights, optimiser moments, counters."""
        ...

    def restore(self, state: Mapping[str, Tensor]) -> None: ...


class Overlap(Protocol):
    """How the engine and the learner of one machine compute at the same time, each in its own thread."""

    on: bool        # else they take turns

    def ahead(self) -> None:
        """Rollouts will be older than the learner's weights: the engine keeps nothing for the learner."""
        ...

    def share(self, *, sampling: bool, learning: bool) -> None:
        """Divide the cores between the sides that are under way; alone, a side has all. Results do not depend on it."""
        ...


class WholeWave(Protocol):
    """Plays and scores all groups of a wave of one recipe."""

    async def __call__(
        self, problems: Sequence[Problem], counts: Sequence[int], places: Sequence[Place], pace: Any, world: World,
        score: Callable[[Group], Awaitable[Group]],
    ) -> list[Group] | None:
        """The groups that have attempts, as the recipe's `schedule`, `play` and `reward` make them, charged alike.

        None, and nothing is charged, where only these can do it. `score` scores one group as `reward` does.
        """
        ...


class Fast(Protocol):
    """Second forms, which are only faster: each gives the bytes of the plain form. `isocost.fast` has them."""

    def wave(self, recipe: Any) -> WholeWave | None:
        """For the feed: how to play and score whole waves of a recipe; None if each group is by itself."""
        ...

    def pack(self, groups: Sequence[Group], version: int) -> Batch | None:
        """For `isocost.credit`: what `isocost.pack.pack` gives; None where only that can make it."""
        ...

    def line(self, line: Any) -> str:
        """For the journal's writer: what `isocost.ledger.JournalLine.text` gives."""
        ...


class Critic(Protocol):
    """Predicts at every token the reward of its rollout; a second learner with its own parameters."""

    def values(self, batch: Batch) -> Tensor:
        """(N, T), for each sampled token the value predicted before it was sampled; 0 elsewhere.

        Without gradient, charged as `score` tokens.
        """
        ...

    def fit(self, batch: Batch, target: Tensor, *, lr: float) -> dict[str, float]:
        """One update on half the mean squared error of the values; charged like `Learner.update`."""
        ...

    def state(self) -> dict[str, Tensor]:
        """All tensors that an exact continuation needs; empty before the first value was requested."""
        ...

    def restore(self, state: Mapping[str, Tensor]) -> None: ...


class Reader(Critic, Protocol):
    """One whose values are probabilities, for scorers that learn."""

    def states(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """(N, S) what the tokens of each prompt are to the model. Charged as `score` tokens."""
        ...


class Text(Protocol):
    """Converts between messages and tokens. The only place with a chat template."""

    def __hash__(self) -> int: ...      # what is known of a vocabulary is kept by it

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


Luck = Callable[[], Generator]      # the random numbers of an environment in one turn, made when they are first needed


class EnvironmentFault(Exception):
    """An environment's own words for why it failed: a few, and the same each time. They are recorded."""


class Environment(Protocol):
    """One episode, for a single use: it is opened, answers turns, and is closed.

    What it shows depends on the problem, on what the policy said, and on the luck of each turn, and on nothing else. So
    a dialogue can be resumed from its words, and all attempts at one problem open alike. Whatever it raises is a fault
    of the environment: the rollout then has no score. Calls that wait must not block the event loop: use
    `asyncio.to_thread` around them.

    It may also have `wrote(text, of)`, called before `step` with the segment that ends with the turn and its `Text`;
    `cut()`, a coroutine like `step` for an episode that the limit of turns ends; `drives = True` if it limits the time
    of its calls itself, and decides itself what follows a turn that ran out of tokens; and `imagined = True` if it is a
    learned model of another environment, whose steps are not charged as steps.
    """

    async def open(self) -> Shown:
        """What the policy reads first."""
        ...

    async def step(self, said: str, luck: Luck) -> Shown:
        """The answer to a turn of the policy. Random numbers come from `luck()` alone."""
        ...

    def final(self) -> str:
        """What the verifier reads at the end."""
        ...

    async def close(self) -> None:
        """Release what it holds. Called once, however the episode ended; nothing is called after it."""
        ...


class BaseEpisode:
    """What most environments have in common: the verifier reads what was said last, and nothing is held open."""

    said = ""

    def final(self) -> str:
        """See `Environment`."""
        return self.said

    async def close(self) -> None:
        """See `Environment`."""


class Grade(Protocol):
    """Marks finished rollouts, charging one verifier call each. None if the verifier failed or timed out."""

    async def __call__(self, rollouts: Sequence[Rollout]) -> list[Score | None]: ...


class Exact(Protocol):
    """The probability in [0, 1], per problem, that one attempt at this sampling is right. No sampling noise."""

    def __call__(self, problems: Sequence[Problem], sampling: Sampling) -> list[float]: ...


class Ask(BaseEpisode):
    """The simplest environment: one question, one answer."""

    def __init__(self, problem: Problem):
        self.problem, self.said = problem, ""

    async def open(self) -> Shown:
        return Shown(self.problem.prompt)

    async def step(self, said: str, luck: Luck) -> Shown:
        self.said = said
        return Shown(over=True)


@dataclass(frozen=True)
class About:
    """What is known of where a world's policy is. Records and the doctor read it, no recipe does."""

    model: Any = None               # `isocost.local.weights.Model` without its weights; None: it is not on this machine
    device: str = "cpu"
    dtype: str = ""                 # of its body
    kernels: str = ""               # what computes it
    kernels_why: str = ""           # why not the native ones
    batch_dependent: str = ""       # how a rollout's last bits depend on the rollouts computed with it
    lora: int | None = None         # rank of the adapter that is trained
    service: Mapping[str, Any] = field(default_factory=dict)    # the server that has it, for the record
    notes: Callable[[], list[str]] = list                       # what the end of a run says of it
    server: Callable[[], dict[str, Any]] | None = None          # the tally of requests to a server that only samples


@dataclass
class World:
    """Everything that a run happens in."""

    problems: Sequence[Problem]               # the training pool
    engine: Engine
    learner: Learner
    text: Text
    grade: Grade
    meter: Meter
    reference: Learner | None = None          # the policy before training, for KL terms; or a mean of it (`follow`)
    truth: Grade | None = None                # what evaluations report, if `grade` is only what trains
    exact: Exact | None = None                # pass@1 without sampling, if the problems allow it
    env: Callable[[Problem], Environment] = Ask
    env_seconds: float = 60.0                 # for each call of an environment; after that it is a fault
    failures: Counter[str] = field(default_factory=Counter)   # of environments, by cause
    critic: Critic | None = None              # a value function, for methods that learn one
    about: About = About()                    # where its policy is
    new_critic: Callable[[], Reader] | None = None    # a copy of the policy as it is
    critics: dict[str, Reader] = field(default_factory=dict)  # learned scorers in use, by their folder
    others: dict[str, World] = field(default_factory=dict)    # other models by name, such as one that writes verdicts
    open_other: Callable[[str], World] | None = None          # opens one of these, by its name as in --model
    extra: dict[str, Any] = field(default_factory=dict)   # of a user's methods alone, such as teachers by name
    overlap: Overlap | None = None            # of sampling and learning; None: they take turns
    fast: Fast | None = None                  # second forms, where the engine writes whole waves
    close: Callable[[], None] = lambda: None  # ends what it holds outside this process, such as connections
    _followed: bool = field(default=False, init=False, repr=False)

    def follow(self, keep: float) -> None:
        """Move the reference towards the policy, to `keep` of itself and 1 − `keep` of the policy's weights.

        From then on a checkpoint has it. Raises ValueError without a reference.
        """
        if self.reference is None:
            raise ValueError("this world has no reference to move: open it with reference=True")
        now, self._followed = self.learner.weights(), True
        for k, own in self.reference.weights().items():
            own.lerp_(now[k], 1 - keep)

    def other(self, name: str) -> World:
        """The world of another model, opened when it is first asked for; it charges this world's meter.

        Raises UserError for a model that is not open and cannot be opened.
        """
        if name not in self.others:
            if self.open_other is None or not name:
                raise UserError(f"no model {name!r} is open; there are {', '.join(self.others) or 'none'}")
            self.others[name] = self.open_other(name)
        return self.others[name]

    def state(self) -> dict[str, Tensor]:
        """The tensors of a checkpoint: all that an exact continuation needs."""
        critic = self.critic.state() if self.critic else {}
        anchor = self.reference.weights() if self.reference and self._followed else {}
        return {**self.learner.state(), **{f"{_CRITIC}{k}": v for k, v in critic.items()},
                **{f"{_REFERENCE}{k}": v.clone() for k, v in anchor.items()}}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Continue from `state()`."""
        self.learner.restore({k: v for k, v in state.items() if not k.startswith((_CRITIC, _REFERENCE))})
        moved = {k.removeprefix(_REFERENCE): v for k, v in state.items() if k.startswith(_REFERENCE)}
        self._followed = bool(moved)
        for k, own in self.reference.weights().items() if self.reference and moved else ():
            own.copy_(moved[k])
        if self.critic:
            critic = {k.removeprefix(_CRITIC): v for k, v in state.items() if k.startswith(_CRITIC)}
            self.critic.restore(critic)
