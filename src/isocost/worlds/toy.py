"""The smallest world: a table of logits over four tokens, so that all replies can be enumerated.

It meets the contract of the large worlds, in double precision and milliseconds. Method files are checked in it, and
expectations from papers can be computed in it exactly.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor, nn

from isocost import chance
from isocost.batch import Batch, Forward
from isocost.meter import Meter, payer
from isocost.recipe import functions
from isocost.seams import SEAMS, Recipe
from isocost.types import Cost, Fault, Message, Place, Problem, Rollout, Said, Sampling, Score, Segment, Shown, Stop
from isocost.world import BaseEpisode, Luck, OnTokens, World
from isocost.worlds.tiny.learner import ModuleLearner, TableAdam

ALPHABET = "abc.0123456789?!"     # the policy writes the first four; it only reads the rest
SAYS, END = 4, 3
LONGEST = 8                       # tokens of one turn at most
BUSY = 0.25                       # probability that the tool of a dialogue fails


class Policy(nn.Module):
    """logits(t) = first[token 0] + last[token t]: a term of the question plus a term of the last token."""

    def __init__(self, seed: int, right: Mapping[int, int]):
        super().__init__()
        noise = torch.from_numpy(chance.generator(seed, chance.Purpose.INIT).normal(size=(2, len(ALPHABET), SAYS)))
        self.first, self.last = nn.Parameter(0.3 * noise[0]), nn.Parameter(0.3 * noise[1])
        with torch.no_grad():       # so that small groups have right and wrong attempts
            for question, answer in right.items():
                self.first[question, answer] += 1.0
            self.last[:SAYS, END] += 1.5

    def forward(self, tokens: Tensor) -> Tensor:  # (N, T) -> (N, T, 4), the logits of the token after each
        return self.first[tokens[:, :1]] + self.last[tokens]


class Letters:
    """Text is its characters; "." ends a turn."""

    ends = (END,)

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        return self.encode("".join(m.content for m in messages))

    def encode(self, text: str) -> list[int]:
        return [ALPHABET.index(c if c in ALPHABET else "?") for c in text]     # a view may add words of its own

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(ALPHABET[t] for t in tokens if t != END)

    def answer(self, messages: Sequence[Message]) -> list[int]:
        return self.prompt(messages)


def distribution(logits: Tensor, sampling: Sampling) -> Tensor:
    """Log-probs of (.., 4) logits at this temperature, over what top-k and top-p keep; -inf elsewhere."""
    logp = torch.log_softmax(logits / sampling.temperature, -1)
    ranked, order = logp.sort(dim=-1, descending=True, stable=True)
    before = ranked.exp().cumsum(-1) - ranked.exp()
    drop = before >= sampling.top_p if sampling.top_p < 1 else torch.zeros_like(before, dtype=torch.bool)
    drop[..., sampling.top_k or SAYS :] = True
    return torch.log_softmax(logp.masked_fill(torch.zeros_like(drop).scatter(-1, order, drop), -torch.inf), -1)


@dataclass(frozen=True)
class _Next:
    """What the next token is drawn from: cumulative probabilities and log-probs of all four, and the kept ones."""

    up_to: list[float]
    logp: list[float]
    kept: ndarray
    last: int

    @classmethod
    def of(cls, logp: ndarray) -> _Next:
        kept = np.flatnonzero(np.isfinite(logp))
        return cls(np.exp(logp).cumsum().tolist(), logp.tolist(), kept, int(kept[-1]))


@dataclass
class _Row:
    """The tokens of one attempt so far in a call."""

    tokens: list[int]
    logp: list[float]
    kept: list[ndarray]
    stop: Stop = Stop.LENGTH


class ToyEngine:
    """Writes one token for each attempt, then yields to the event loop, until all of its attempts have ended."""

    def __init__(self, policy: Policy, meter: Meter, text: Letters):
        self.policy, self.meter, self.text, self.version = policy, meter, text, 0
        self.halted: set[tuple[int, int, int]] = set()
        self._known: dict[tuple[int, int, Sampling], list[_Next]] = {}     # of these weights

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
        said, paying = int((start.turn == turn).sum()), payer()
        room = min(max_tokens, LONGEST - said)
        rows = [_Row([], [], []) for _ in attempts]
        draws, after = chance.uniforms(place, attempts, turn, said, max(room, 1)), self._after(start)
        try:
            for tick in range(room):
                if place.wave_key in self.halted:
                    for row in rows:
                        row.stop = Stop.CANCELLED if row.stop is Stop.LENGTH else row.stop
                    break
                for attempt, row, draw in zip(attempts, rows, draws[:, tick].tolist(), strict=True):
                    if row.stop is Stop.LENGTH:
                        self._write(row, after, draw, stop, ends)
                        if on_tokens is not None:
                            on_tokens(attempt, row.tokens[-1:])
                if all(row.stop is not Stop.LENGTH for row in rows):
                    break
                await asyncio.sleep(0)
        finally:
            started = sum(bool(row.tokens) for row in rows)
            decoded = sum(len(row.tokens) for row in rows)
            again = start.known(self.version) * started
            cost = Cost(prefill=len(start) * started, decode=decoded, reread=again)
            self.meter.charge(cost, to=paying, started=started)
        return [self._said(row, start.sampling) for row in rows]

    def halt(self, place: Place) -> None:
        self.halted.add(place.wave_key)

    def _after(self, start: Segment) -> list[_Next]:
        """What follows each token that the policy says, and, last, the start."""
        key = int(start.tokens[0]), int(start.tokens[-1]), start.sampling
        if key not in self._known:
            last = torch.tensor([*range(SAYS), key[1]])
            with torch.no_grad():
                logits = self.policy.first[key[0]] + self.policy.last[last]
                self._known[key] = [_Next.of(x) for x in distribution(logits, start.sampling).numpy()]
        return self._known[key]

    def _write(
        self, row: _Row, after: Sequence[_Next], draw: float, stop: Sequence[str], ends: Sequence[int]
    ) -> None:
        here = after[row.tokens[-1] if row.tokens else SAYS]
        token = min(bisect_left(here.up_to, draw), here.last)
        row.tokens.append(token)
        row.logp.append(here.logp[token])
        row.kept.append(here.kept)
        if token == END or any(s in self.text.decode(row.tokens) for s in stop):
            row.stop = Stop.DONE
        elif token in ends:
            row.stop = Stop.STEP

    def _said(self, row: _Row, sampling: Sampling) -> Said:
        version = np.full(len(row.tokens), self.version)
        kept = tuple(row.kept) if sampling.truncates else ()
        return Said(np.array(row.tokens, dtype=np.int64), np.array(row.logp, dtype=np.float32), version, row.stop, kept)

    async def load(self, weights: Mapping[str, Tensor]) -> None:
        self.restore(weights, self.version + 1)

    def restore(self, weights: Mapping[str, Tensor], version: int) -> None:
        self.policy.load_state_dict(dict(weights))
        self.version = version
        self._known.clear()


class ToyLearner(ModuleLearner):
    """Adam on the table."""

    vocabulary = SAYS

    def forward(self, batch: Batch) -> Forward:
        logits = self.policy(batch.tokens)[:, :-1] / batch.temperature[:, None, None]
        logp = torch.log_softmax(logits.masked_fill(~_kept(batch)[:, 1:], -torch.inf), -1)
        entropy = -(logp.exp() * logp.masked_fill(logp == -torch.inf, 0.0)).sum(-1)
        chosen = logp.gather(-1, batch.tokens[:, 1:, None].clamp(max=SAYS - 1))[..., 0]
        here = batch.mask[:, 1:]
        chosen, entropy = chosen.masked_fill(~here, 0.0), entropy.masked_fill(~here, 0.0)
        return Forward(nn.functional.pad(chosen, (1, 0)), nn.functional.pad(entropy, (1, 0)))


class ToyCritic:
    """Adam on another table: a term of the question plus a term of the last token. It starts at 0."""

    def __init__(self, meter: Meter):
        self.meter = meter
        self.restore({})

    def _predicted(self, batch: Batch) -> Tensor:
        before = self.first[batch.tokens[:, :1]] + self.last[batch.tokens[:, :-1]]
        return nn.functional.pad(before, (1, 0)) * batch.mask

    @torch.no_grad()
    def values(self, batch: Batch) -> Tensor:
        self.meter.charge(Cost(score=int(batch.length.sum())))
        return self._predicted(batch).to(batch.logp)

    def fit(self, batch: Batch, target: Tensor, *, lr: float) -> dict[str, float]:
        self.adam.zero_grad()
        loss = (self._predicted(batch) - target)[batch.mask].square().mean() / 2
        loss.backward()
        self.adam.step(lr)
        self.meter.charge(Cost(train=int(batch.length.sum()), updates=1))
        return {"critic/loss": float(loss.detach())}

    def state(self) -> dict[str, Tensor]:
        own = {"first": self.first.detach().clone(), "last": self.last.detach().clone()}
        return own | self.adam.state() if self.adam.steps else {}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        self.first, self.last = (nn.Parameter(torch.zeros(len(ALPHABET), dtype=torch.float64)) for _ in range(2))
        self.adam = TableAdam([self.first, self.last])
        if state:
            self.first.data.copy_(state["first"])
            self.last.data.copy_(state["last"])
            self.adam.restore(state)


def _kept(batch: Batch) -> Tensor:
    """The tokens that each was drawn from: (N, T, 4); all four in rows that recorded none."""
    kept = torch.ones(*batch.tokens.shape, SAYS, dtype=torch.bool)
    for row, ids in ((i, ids) for i, ids in enumerate(batch.kept) if ids):
        for at, some in zip(torch.nonzero(batch.mask[row])[:, 0].tolist(), ids, strict=True):
            kept[row, at] = False
            kept[row, at, torch.from_numpy(some)] = True
    return kept


@dataclass
class ToyGrader:
    """Right is the one letter of the answer and then the end. It fails for the problems in `broken`."""

    meter: Meter
    broken: set[str] = field(default_factory=set)

    async def __call__(self, rollouts: Sequence[Rollout]) -> list[Score | None]:
        self.meter.charge(Cost(verify=len(rollouts)))
        return [None if r.problem.id in self.broken else Score(float(_right(r))) for r in rollouts]


def _right(rollout: Rollout) -> bool:
    return rollout.stop is not Stop.LENGTH and rollout.final == rollout.problem.answer


def questions(count: int = 10) -> list[Problem]:
    """Up to ten questions, "0?" to "9?", each with a letter as answer and reference solution."""
    letters = ["abc"[k % 3] for k in range(count)]
    return [
        Problem(str(k), (Message("user", f"{k}?"),), x, meta={"solution": x, "expert": (x,)})
        for k, x in enumerate(letters)
    ]


def world(seed: int = 0, *, count: int = 10, micro: int | None = None) -> World:
    """A world of `count` questions with a base pass rate of about one in four."""
    problems, text, meter = questions(count), Letters(), Meter()
    right = {ALPHABET.index(p.id): ALPHABET.index(p.answer) for p in problems}
    sampled, learned, start = (Policy(seed, right) for _ in range(3))

    def exact(problems: Sequence[Problem], sampling: Sampling) -> list[float]:
        rows = torch.tensor([text.prompt(p.prompt) + text.encode(p.answer) for p in problems])
        logp = distribution(learned(rows).detach()[:, 1:], sampling)
        return (logp[:, 0].gather(-1, rows[:, 2:])[:, 0] + logp[:, 1, END]).exp().tolist()

    return World(
        problems, ToyEngine(sampled, meter, text), ToyLearner(learned, meter, micro), text, ToyGrader(meter), meter,
        reference=ToyLearner(start, meter), exact=exact, critic=ToyCritic(meter),
    )


class Guess(BaseEpisode):
    """One dialogue: the answer ends it and pays 1. One turn in four meets a tool that is busy, and is lost."""

    def __init__(self, problem: Problem):
        self.problem, self.said = problem, ""

    async def open(self) -> Shown:
        return Shown(self.problem.prompt, key="?")

    async def step(self, said: str, luck: Luck) -> Shown:
        busy = bool(luck().random() < BUSY)
        self.said = "" if busy else said
        right = self.said == self.problem.answer
        fault = Fault.tool("busy") if busy else Fault.model("not one letter") if len(said) != 1 else None
        shown = "!" if fault else "?"
        return Shown((Message("tool", shown),), right, float(right), shown, fault)

    def expert(self) -> str:
        """The answer."""
        return str(self.problem.answer)


def world_of(recipe: Recipe) -> World:
    """The world that a recipe is tried in."""
    return dialogues() if holds_dialogues(recipe) else world()


def holds_dialogues(recipe: Recipe) -> bool:
    """Whether one of its functions declares that it needs turns."""
    used = (x for seam in SEAMS for x in functions(getattr(recipe, seam)))
    return any(x.declared.has("needs_turns", x.settings) for x in used)


def dialogues(seed: int = 0, *, count: int = 10, micro: int | None = None) -> World:
    """The same world in which each question is a dialogue: a wrong answer, or a fault, is followed by another turn."""
    made = world(seed, count=count, micro=micro)
    made.env, made.exact = Guess, None
    return made
