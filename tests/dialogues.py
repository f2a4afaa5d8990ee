"""Dialogues made by hand: attempts of several turns, as an environment would have answered them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from isocost.batch import Batch
from isocost.pack import pack
from isocost.types import Fault, Group, Place, Problem, Role, Rollout, Said, Score, Segment, Stop, Turn
from isocost.worlds.toy import ALPHABET, END
from toy import QUESTION

ANSWER = ALPHABET.index("?")


def told(words: str, *, logp: float = -1.0, version: int = 0) -> Said:
    """What a turn says, and its end."""
    tokens = [ALPHABET.index(c) for c in words] + [END]
    k = len(tokens)
    return Said(np.array(tokens), np.full(k, logp, dtype=np.float32), np.full(k, version), Stop.DONE)


def dialogue(
    keys: Sequence[str], rewards: Sequence[float], *, number: int = 0, score: float | None = None,
    words: Sequence[str] = (), faults: Sequence[Fault | None] = (), stop: Stop = Stop.DONE, problem: Problem = QUESTION,
    cohort: str = "",
) -> Rollout:
    """An attempt that took its turns in the states `keys` and earned `rewards`; its score is their sum."""
    words = words or ["a"] * len(keys)
    text = Segment.empty().read([ALPHABET.index(problem.id[0]), ANSWER], Role.PROMPT)
    for i, word in enumerate(words):
        text = text.wrote(told(word))
        if i < len(words) - 1:
            text = text.read([ANSWER])
    each = list(faults) or [None] * len(keys)
    turns = tuple(Turn(k, float(r), f) for k, r, f in zip(keys, rewards, each, strict=True))
    made = Score(float(sum(rewards)) if score is None else score)
    return Rollout(problem, (text,), words[-1], stop, number, made, cohort, turns=turns)


def batch_of(*groups: Sequence[Rollout]) -> Batch:
    """A packed batch; attempts are numbered in order."""
    return pack([
        Group(g[0].problem, tuple(r.but(attempt=i) for i, r in enumerate(g)), Place(0, 0, slot))
        for slot, g in enumerate(groups)
    ], 0)


def by_turn(x, batch: Batch) -> list[list[float]]:
    """What each rollout's turns have: the value at their first token."""
    out: list[list[float]] = [[] for _ in range(len(batch.reward))]
    for row in range(len(x)):
        for turn in range(int(batch.turn[row].max()) + 1):
            at = ((batch.turn[row] == turn) & batch.mask[row]).nonzero()[:, 0]
            if len(at):
                assert (x[row, at] == x[row, at[0]]).all(), "all tokens of a turn have the same"
                out[int(batch.rollout[row])].append(float(x[row, at[0]]))
    return out
