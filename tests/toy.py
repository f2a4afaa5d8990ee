"""Batches made by hand, and expectations taken by listing every reply of the toy policy."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence

import numpy as np
import torch

from isocost.batch import Batch, Forward
from isocost.ledger import Ledger
from isocost.loop import train
from isocost.pack import pack
from isocost.types import Group, Place, Problem, Role, Rollout, Said, Sampling, Score, Segment, Stop
from isocost.worlds.toy import ALPHABET, END, SAYS, ToyLearner, questions

QUESTION = questions()[0]
LETTERS = range(SAYS - 1)


def attempt(reply: Sequence[int], reward: float | None, number: int = 0, problem: Problem = QUESTION, *,
            version: int = 0, stop: Stop = Stop.DONE, logp: Sequence[float] | None = None,
            sampling: Sampling = Sampling(), cohort: str = "") -> Rollout:
    """A rollout that said `reply` to "0?" (or another question) and earned `reward`."""
    said = Said(np.array(reply), np.array(logp if logp is not None else [-1.0] * len(reply), dtype=np.float32),
                np.full(len(reply), version), stop)
    start = Segment.empty(sampling).read([ALPHABET.index(problem.id[0]), ALPHABET.index("?")], Role.PROMPT)
    score = None if reward is None else Score(float(reward))
    return Rollout(problem, (start.wrote(said),), "", stop, number, score, cohort)


def group(rewards: Sequence[float], lengths: Sequence[int] | None = None, slot: int = 0, **settings) -> Group:
    """Siblings with these rewards and reply lengths, saying "abca.." and the end."""
    lengths = lengths or [3] * len(rewards)
    replies = [[k % 3 for k in range(n - 1)] + [END] for n in lengths]
    made = [attempt(y, r, i, **settings) for i, (y, r) in enumerate(zip(replies, rewards, strict=True))]
    return Group(settings.get("problem", QUESTION), tuple(made), Place(0, 0, slot))


def batch_of(*rewards: Sequence[float], lengths: Sequence[Sequence[int]] | None = None, version: int = 0) -> Batch:
    """A packed batch: one list of rewards (and one of lengths) for each group."""
    lengths = lengths or [[3] * len(r) for r in rewards]
    made = [group(r, n, slot) for slot, (r, n) in enumerate(zip(rewards, lengths, strict=True))]
    return pack(made, version)


def per_rollout(x: torch.Tensor, batch: Batch) -> list[float]:
    """The credit of each rollout, read off its first sampled token."""
    first = batch.mask.float().argmax(-1)
    return x[torch.arange(len(x)), first].tolist()


def ratios(values: Sequence[float], credit: Sequence[float]) -> tuple[Forward, Batch, torch.Tensor]:
    """A forward pass whose ratios to the old policy are `values`, on tokens with this credit; and its log-probs."""
    batch = batch_of([1.0] * len(values), lengths=[[1] * len(values)])
    logp = torch.full_like(batch.logp, -1.0).where(batch.mask, torch.tensor(0.0))
    now = (logp + torch.tensor(values).log()[:, None] * batch.mask).requires_grad_()
    batch = batch.but(old=logp, advantage=torch.tensor(credit)[:, None] * batch.mask)
    return Forward(now, torch.zeros_like(now)), batch, now


def replies(most: int) -> list[tuple[int, ...]]:
    """Everything the policy can say in at most `most` tokens: what ended, then what was cut."""
    ended = [(*w, END) for k in range(most) for w in itertools.product(LETTERS, repeat=k)]
    return ended + list(itertools.product(LETTERS, repeat=most))


def chances(learner: ToyLearner, said: Sequence[Sequence[int]]) -> torch.Tensor:
    """The probability of each reply to the first question, differentiable."""
    batch = pack([Group(QUESTION, tuple(attempt(y, 0.0, i) for i, y in enumerate(said)))], 0)
    return learner.forward(batch).logp.sum(-1).exp()


def flat_gradient(learner: ToyLearner) -> torch.Tensor:
    return torch.cat([p.grad.flatten().clone() for p in learner.policy.parameters()])


def run(recipe, world, rollouts: int, seed: int = 0) -> tuple[Ledger, list]:
    """Train until the budget of rollouts is spent."""
    ledger = Ledger(seed=seed)

    async def go() -> list:
        return [step async for step in train(recipe, world, ledger, {"rollouts": rollouts})]

    return ledger, asyncio.run(go())
