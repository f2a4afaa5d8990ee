"""The nouns: everything that crosses a seam is one of these, or a `isocost.batch.Batch`.

Letters used for shapes, everywhere:
    T  tokens in one row (ragged, or padded to the longest row of a batch)
    G  rollouts in one group          R  rollouts in a batch
    N  rows in a batch (N >= R: a rollout may span several rows)
    V  vocabulary

Letters used for sizes, everywhere: n rollouts per problem, B problems per update, M steps, C = n B M rollouts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum, StrEnum
from functools import cached_property
from operator import add, attrgetter, sub
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray

__all__ = [
    "Cost", "End", "Fate", "Fault", "FaultSource", "Group", "Message", "Place", "Problem", "Role", "Rollout", "Said",
    "Sampling", "Score", "Segment", "Shown", "Stop", "Turn",
]
_cost = tuple.__new__     # half of the time of `Cost._make`
PLAIN = "plain"    # the role of text that is read as it is, without a chat template: it is the only message then


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a dialogue."""

    role: str      # "system", "user", "assistant", "tool"; or PLAIN
    content: str


@dataclass(frozen=True, slots=True)
class Problem:
    """A question that the verifier can mark. Guides make variants of it and never change it."""

    id: str                                # stable across runs: the ledger's key
    prompt: tuple[Message, ...]            # what the policy reads
    answer: Any = None                     # for the verifier alone
    prefix: str = ""                       # words before the policy's first token, as part of its answer
    variant: str = ""                      # "" is the problem as posed; guides name their variants
    meta: Mapping[str, Any] = field(default_factory=dict, hash=False)  # source, solution, level

    @property
    def text(self) -> str:
        return "\n".join(m.content for m in self.prompt)


class Role(IntEnum):
    """Who wrote a token. Only OWN tokens have credit unless a method changes that."""

    PROMPT = 0
    OWN = 1       # the policy chose it
    SEEN = 2      # the environment answered
    HINT = 3      # given by a guide as part of the answer
    TEACHER = 4   # another model, or a correction


# Plain ints: numpy compares with them ten times faster than with an enum.
_PROMPT, _OWN, _SEEN = int(Role.PROMPT), int(Role.OWN), int(Role.SEEN)
# Parts of these are appended to segments: a dialogue appends twice a turn, and making them takes longer than that.
_NEVER, _ZEROS = np.full(256, -1), np.zeros(256, dtype=np.float32)
_GIVEN = np.array([role in (Role.PROMPT, Role.SEEN) for role in Role])       # by role: it ends a reply
_ROLES = {role: np.full(256, int(role)) for role in Role}


class Stop(StrEnum):
    """Why a rollout ended."""

    DONE = "done"            # an end token or a stop string
    STEP = "step"            # at one of the ids that the caller of the engine named: the text is not over
    LENGTH = "length"        # out of tokens: truncated, so it has no end token
    TURNS = "turns"          # out of turns
    CANCELLED = "cancelled"  # stopped by its schedule
    ERROR = "error"          # its environment failed, or the server that samples it


class Fate(StrEnum):
    """The outcome of a rollout that was paid for. Every started rollout has exactly one; they sum to the meter."""

    TRAINED = "trained"        # carried an advantage into an update
    DEAD = "dead"              # no advantage in its update: its group had equal rewards, or it was the pivot
    FILTERED = "filtered"      # dropped by `select`
    STALE = "stale"            # older than `max_age` steps when it was complete
    SURPLUS = "surplus"        # more than the step had room for
    CANCELLED = "cancelled"    # stopped by `schedule`, or unfinished when the run was stopped
    UNCHOSEN = "unchosen"      # a try of a strategy that chose another one (`isocost.strategies`)
    LOST = "lost"              # its verifier failed, or the process died before the next checkpoint
    EVALUATION = "evaluation"  # measured, never trained on


class Cost(NamedTuple):      # which is made in a quarter of the time of a frozen dataclass: ten for each charge
    """The cost of a computation, in units that add. FLOPs and money are derived, never stored.

    Token counts are *logical*: what the method requested. What the machine did (after prefix sharing and skipped rows)
    is a second Cost, so that a faster engine never changes a law.
    """

    rollouts: int = 0    # attempts that began, cancelled ones and best-of-n losers included: see `isocost.meter`
    prefill: int = 0     # tokens read by the engine
    decode: int = 0      # tokens written by the engine
    score: int = 0       # tokens through a forward pass without gradient: reference, old log-probs, critic
    train: int = 0       # tokens through forward and backward
    updates: int = 0     # optimiser updates (several per step when a batch is used for several epochs)
    env_steps: int = 0   # environment steps
    verify: int = 0      # verifier calls
    seconds: float = 0.0 # measured, and so never part of what a seed determines
    reread: int = 0      # of `prefill`: tokens that the rollout had read or written before, under the same weights

    def __add__(self, other: Cost) -> Cost:     # type: ignore[override]
        return _cost(Cost, map(add, self, other))

    def __sub__(self, other: Cost) -> Cost:
        return _cost(Cost, map(sub, self, other))

    @property
    def fresh(self) -> int:
        """Tokens read for the first time: `prefill` without `reread`."""
        return self.prefill - self.reread

    def counts(self) -> dict[str, int]:
        """Everything but seconds: what the seed determines. `reread` only where there is any."""
        counts = self._asdict()
        del counts["seconds"]
        if not self.reread:
            del counts["reread"]
        return counts

    def data(self) -> dict[str, int | float]:
        return {**self.counts(), "seconds": round(self.seconds, 6)}

    @staticmethod
    def of(data: Mapping[str, Any]) -> Cost:
        """The cost that `data()` wrote."""
        return Cost(**data)

    def flops(self, parameters: int, learned: int | None = None) -> float:
        """2P per token read or written; per token trained, 2P forward, 2P to the activations and 2P to the weights.

        With an adapter only the `learned` numbers have the last of these: 4P + 2 learned. A token that is read again
        costs nothing here: an engine that keeps keys and values need not read it. What a machine without them computed
        is in the physical cost.
        """
        own = parameters if learned is None else learned
        forward = self.fresh + self.decode + self.score
        return 2.0 * parameters * forward + (4.0 * parameters + 2.0 * own) * self.train


@dataclass
class End:
    """Why a run ended: "spent" (the budget), "starved" (nothing that was sampled survived selection), "unbilled" (more
    rollouts were settled than billed), or a reason of `isocost.runs.files`. `why` is more about it.

    `bound` is the unit of the budget in which no further step fits; empty if the run ended before.
    """

    reason: str = ""
    bound: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are drawn. Recorded with every segment: the learner needs it to give the same log-probs."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0       # 0 keeps all
    effort: str = ""     # of reasoning, for servers that know it; empty: the server's own

    @property
    def truncates(self) -> bool:
        return self.top_p < 1.0 or self.top_k > 0

    @property
    def trained(self) -> dict[str, float]:
        """What a recipe's pace has of it: models that know an effort are not trained here."""
        return {"temperature": self.temperature, "top_p": self.top_p, "top_k": self.top_k}


@dataclass(frozen=True, slots=True)
class Place:
    """The position of a group in a run: its identity, and the address of its random numbers."""

    seed: int
    wave: int
    slot: int
    purpose: int = 0     # chance.Purpose: training, evaluation and probes never share draws

    @property
    def wave_key(self) -> tuple[int, int, int]:
        """What all places of its wave have in common: seed, number and purpose."""
        return self.seed, self.wave, self.purpose


class FaultSource(StrEnum):
    """What caused a fault in a turn."""

    ENVIRONMENT = "environment"  # it raised, hung or cannot go on: the rollout has no score
    TOOL = "tool"                # a tool that was called correctly failed; the episode goes on
    MODEL = "model"              # the policy's turn was no valid action or call; the episode goes on


@dataclass(frozen=True, slots=True)
class Fault:
    """What went wrong in a turn, in a word or two: `Fault.model("no such move")`."""

    source: FaultSource
    what: str = ""

    @classmethod
    def environment(cls, what: str) -> Fault:
        return cls(FaultSource.ENVIRONMENT, what)

    @classmethod
    def tool(cls, what: str) -> Fault:
        return cls(FaultSource.TOOL, what)

    @classmethod
    def model(cls, what: str) -> Fault:
        return cls(FaultSource.MODEL, what)

    @classmethod
    def of(cls, text: str) -> Fault | None:
        """The fault that `str` wrote; None for an empty text."""
        source, _, what = text.partition(": ")
        return cls(FaultSource(source), what) if text else None

    def __str__(self) -> str:
        return f"{self.source}: {self.what}"


@dataclass(frozen=True, slots=True)
class Shown:
    """What an environment shows: when it opens, and after each turn of the policy."""

    messages: tuple[Message, ...] = ()
    over: bool = False          # the episode has ended: the messages are not read any more
    reward: float = 0.0         # for the turn that it answers; an episode's rewards sum to its score
    key: str = ""               # names the state that the policy is now in: turns with equal keys can be compared
    fault: Fault | None = None  # of the turn that it answers
    seconds: float = 0.0        # that the turn took, as the environment states them, the same each time; 0: not stated
    whole: bool = False         # the messages are all that the policy reads next: if they do not begin with what it has
                                # read and written, a segment begins
    max_tokens: int = 0         # of the next turn, if the pace allows as many; 0: the pace's
    stop: tuple[str, ...] = ()  # strings that end the next turn, besides those of the pace


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of a rollout, as its environment answered it."""

    key: str = ""               # the state in which the policy took it
    reward: float = 0.0
    fault: Fault | None = None
    luck: tuple[int, ...] = ()  # address of the random numbers that it was answered with; see `isocost.chance.luck`
    seconds: float = 0.0        # that it took, as its environment stated them


@dataclass(frozen=True, slots=True)
class Said:
    """What the engine wrote for one attempt in one call."""

    tokens: Int[ndarray, "T"]
    logp: Float[ndarray, "T"]                  # under the sampling distribution: temperature and kept set applied
    version: Int[ndarray, "T"]                 # policy version that chose each token
    stop: Stop                                 # DONE, STEP, LENGTH; CANCELLED: the wave was halted; ERROR: no answer
    kept: tuple[ndarray, ...] = ()             # ids that survived top-p and top-k, per token; empty when off

    @classmethod
    def nothing(cls, stop: Stop) -> Said:
        """No token."""
        return cls(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.float32), np.zeros(0, dtype=np.int64), stop)


@dataclass(frozen=True, slots=True)
class Segment:
    """One context of the policy, from its first token to its last. An append-only dialogue is a single segment.

    `read` and `wrote` append and return a new segment; `cut` returns a start to resume or fork from.
    """

    tokens: Int[ndarray, "T"]
    role: Int[ndarray, "T"]       # Role of each token
    logp: Float[ndarray, "T"]     # log-prob when it was chosen; 0 unless OWN
    turn: Int[ndarray, "T"]       # which policy turn; -1 unless OWN
    version: Int[ndarray, "T"]    # policy version that chose it; -1 unless OWN
    sampling: Sampling = Sampling()
    kept: tuple[ndarray, ...] = ()  # for each OWN token in order, the ids it was drawn from; empty when all
    first: int = 0                  # number of its first turn: turns are counted over all segments of a rollout

    @classmethod
    def empty(cls, sampling: Sampling = Sampling(), first: int = 0) -> Segment:
        i = np.zeros(0, dtype=np.int64)
        return cls(i, i, np.zeros(0, dtype=np.float32), i, i, sampling, (), first)

    @classmethod
    def given(cls, tokens, role: Role, sampling: Sampling = Sampling()) -> Segment:
        """A start that the policy has not written: what `empty(sampling).read(tokens, role)` gives."""
        k = len(tokens)
        words, never = np.array(tokens, dtype=np.int64), np.full(k, -1)
        return cls(words, np.full(k, int(role)), np.zeros(k, dtype=np.float32), never, never, sampling)

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def own(self) -> Bool[ndarray, "T"]:
        return self.role == _OWN

    @property
    def written(self) -> int:
        """How many tokens of it the policy sampled."""
        return int(np.count_nonzero(self.role == _OWN))

    def cut(self, t: int) -> Segment:
        """The first t tokens."""
        own = int(np.count_nonzero(self.role[:t] == _OWN))
        tokens, role, logp, turn, version = (
            x[:t] for x in (self.tokens, self.role, self.logp, self.turn, self.version)
        )
        return Segment(tokens, role, logp, turn, version, self.sampling, self.kept[:own], self.first)

    def read(self, tokens, role: Role = Role.SEEN) -> Segment:
        k = len(tokens)
        if k > len(_NEVER):
            never, roles, logp = np.full(k, -1), np.full(k, int(role)), np.zeros(k, dtype=np.float32)
        else:
            never, roles, logp = _NEVER[:k], _ROLES[role][:k], _ZEROS[:k]
        return self._append(tokens, roles, logp, never, never, ())

    def wrote(self, said: Said) -> Segment:
        k, turn = len(said.tokens), self.turn_now
        roles = _ROLES[Role.OWN][:k] if k <= len(_NEVER) else np.full(k, _OWN)
        return self._append(said.tokens, roles, said.logp, np.full(k, turn), said.version, said.kept)

    @property
    def turn_now(self) -> int:
        """Number of the turn that the next token belongs to: the last one if it is unfinished."""
        if len(self.role) and self.role[-1] == _OWN:
            return int(self.turn[-1])
        return int(np.maximum.reduce(self.turn, initial=self.first - 1)) + 1

    def known(self, version: int) -> int:
        """How many of its first tokens were read or written under these weights: all up to the policy's last one.

        0 if other weights wrote that token: keys and values are then computed again.
        """
        own = np.flatnonzero(self.role == _OWN)
        return int(own[-1]) + 1 if len(own) and self.version[own[-1]] == version else 0

    def reply(self) -> Int[ndarray, "T"]:
        """Everything since the last token that the policy was given, hints included."""
        (shown,) = _GIVEN[self.role].nonzero()
        return self.tokens[shown[-1] + 1 if len(shown) else 0 :]

    def _append(self, tokens, role, logp, turn, version, kept) -> Segment:
        return Segment(
            _grown(self.tokens, tokens), _grown(self.role, role), _grown(self.logp, logp), _grown(self.turn, turn),
            _grown(self.version, version), self.sampling, self.kept + tuple(kept), self.first,
        )


def _grown(old: ndarray, more: Any) -> ndarray:
    return np.concatenate((old, np.asarray(more, dtype=old.dtype)))


@dataclass(frozen=True, slots=True)
class Score:
    """The score of an attempt. If the verifier failed there is no Score, never a zero."""

    value: float                                                  # the scalar the method optimises
    parts: Mapping[str, float] = field(default_factory=dict)      # named components
    turns: tuple[float, ...] = ()                                 # per-turn reward, if the grader gives one


@dataclass(frozen=True, slots=True)
class Rollout:
    """One attempt at one problem."""

    problem: Problem
    segments: tuple[Segment, ...]           # several after compaction or summarise-and-restart
    final: str                              # what the verifier reads
    stop: Stop = Stop.DONE
    attempt: int = 0                        # its number within the group, over all phases
    score: Score | None = None              # None until scored, and if the verifier failed
    cohort: str = ""                        # a baseline compares siblings of one group *and* one cohort
    origin: str = "policy"                  # or "resumed" (started in an earlier wave), "replay", "expert", "peer"
    parent: tuple[int, int] | None = None   # forked from which attempt, at which token
    # What seams attach to it, by name: a number, which is a column of the journal, or one (T,) per segment, which is
    # packed into `batch.extra`.
    notes: Mapping[str, float | tuple[ndarray, ...]] = field(default_factory=dict)
    mark: Score | None = None               # the verifier's score; `score` is what `reward` made of it
    turns: tuple[Turn, ...] = ()            # as its environment answered them; empty for one question and one answer
    fault: Fault | None = None              # of its environment outside a turn: while it opened, or at its end

    @property
    def faults(self) -> tuple[Fault, ...]:
        """Those of its turns, and its own."""
        own = () if self.fault is None else (self.fault,)
        return (*(t.fault for t in self.turns if t.fault is not None), *own)

    def cut(self, t: int) -> Rollout:
        """The same up to token t of its last segment: a start to resume or fork from, with the turns in it."""
        text = self.segments[-1].cut(t)
        return replace(self, segments=(*self.segments[:-1], text), turns=self.turns[: text.turn_now], final="",
                       score=None, mark=None, fault=None)

    def but(self, **changes) -> Rollout:
        """The same with other values of these fields, in half the time of `replace`: a search changes each step's."""
        values = list(_VALUES(self))
        for name, value in changes.items():
            values[_NUMBER[name]] = value
        return Rollout(*values)

    @property
    def numbers(self) -> dict[str, float]:
        """The notes that are numbers."""
        return {k: v for k, v in self.notes.items() if not isinstance(v, tuple)}

    def scored(self, score: Score | None) -> Rollout:
        """The same rollout with this score. Called for every rollout; `replace` takes three times as long."""
        return Rollout(
            self.problem, self.segments, self.final, self.stop, self.attempt, score, self.cohort, self.origin,
            self.parent, self.notes, self.mark, self.turns, self.fault,
        )

    def marked(self, mark: Score | None) -> Rollout:
        """The same rollout with the verifier's mark, which is its score until `reward` changes it."""
        return Rollout(
            self.problem, self.segments, self.final, self.stop, self.attempt, mark, self.cohort, self.origin,
            self.parent, self.notes, mark, self.turns, self.fault,
        )


_NUMBER = {f.name: i for i, f in enumerate(fields(Rollout))}
_VALUES = attrgetter(*_NUMBER)


@dataclass(frozen=True)
class Group:
    """Siblings: attempts at the same variant of the same problem, from the same start."""

    problem: Problem
    rollouts: tuple[Rollout, ...]
    place: Place = Place(0, 0, 0)

    @property
    def size(self) -> int:
        return len(self.rollouts)

    @property
    def attempts(self) -> list[int]:
        return [r.attempt for r in self.rollouts]

    @property
    def scores(self) -> list[Score | None]:
        return [r.score for r in self.rollouts]

    @property
    def stops(self) -> list[Stop]:
        return [r.stop for r in self.rollouts]

    @property
    def scored(self) -> Group:
        """The group without the rollouts that have no score."""
        return self if None not in self.scores else self.of(r for r in self.rollouts if r.score is not None)

    @property
    def ages(self) -> bool:
        """Whether the policy wrote any of it in its own wave: replays, and what an earlier wave started, do not age."""
        return any(r.origin == "policy" for r in self.rollouts)

    @property
    def noted(self) -> tuple[Rollout, ...]:
        """The rollouts, for their notes, turns and origin; empty where none has any."""
        return self.rollouts

    @property
    def rewards(self) -> Float[ndarray, "G"]:
        """Of the rollouts that have a score."""
        return np.array([s.value for s in self.scores if s is not None], dtype=np.float32)

    @cached_property
    def version(self) -> int:
        """The oldest policy version that wrote any of it, without replays and what an earlier wave started."""
        fresh = [s.version for r in self.rollouts if r.origin == "policy" for s in r.segments]
        chosen = np.concatenate(fresh) if fresh else np.zeros(0, dtype=np.int64)
        chosen = chosen[chosen >= 0]
        return int(chosen.min()) if len(chosen) else 0

    @cached_property
    def lengths(self) -> list[int]:
        """Tokens that the policy sampled in each rollout, over all its segments."""
        roles = [s.role for r in self.rollouts for s in r.segments]
        if not roles:
            return [0] * len(self.rollouts)
        whose = np.repeat(np.arange(len(self.rollouts)), [sum(map(len, r.segments)) for r in self.rollouts])
        return np.bincount(whose[np.concatenate(roles) == _OWN], minlength=len(self.rollouts)).tolist()

    def of(self, rollouts) -> Group:
        return Group(self.problem, tuple(rollouts), self.place)


def plain(x: Any) -> dict[str, Any]:
    """A small frozen dataclass as JSON-ready data."""
    return {f.name: getattr(x, f.name) for f in fields(x)}
