"""What every contender is given: the prompts, the reward, the sizes. Plain Python, read on both sides."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

FIRST = 0x21        # the character of token 0; token k is written chr(FIRST + k)
VOCAB = 64
MARK = 62           # opens a prompt after which the fitted policy does not stop
END = 63            # the fitted policy's end token
GOOD = 16           # tokens below it are what the reward counts


@dataclass(frozen=True)
class Task:
    """One variant of the RL step: 16 prompts x 16 rollouts, one update."""

    name: str
    prompt: int             # tokens of a prompt
    new: int                # tokens a rollout may write
    lr: float
    ends: bool = False      # whether the policy can write an end token
    long_every: int = 0     # every how many prompts one opens with MARK
    prompts: int = 16       # per step
    rollouts: int = 16      # per prompt
    block: int = 5          # steps of a turn
    steps: int = 40         # of a run: whole blocks, the first to warm up
    marking: float = 0.0    # seconds in which a verifier elsewhere marks a group

    @property
    def end(self) -> int:
        """The end token's id: outside the model's vocabulary where every rollout is to be of one length."""
        return END if self.ends else VOCAB

    def data(self) -> dict[str, Any]:
        return asdict(self)


TASKS = {
    t.name: t
    for t in (
        Task("base", prompt=8, new=24, lr=5e-5),
        Task("long", prompt=256, new=24, lr=5e-5, block=2, steps=16),
        # The rate is small so that the lengths stay those of the fitted policy, on both sides.
        Task("ragged", prompt=8, new=192, lr=1e-6, ends=True, long_every=10, block=2, steps=20),
    )
}


def prompts(task: Task, seed: int) -> list[str]:
    """The prompts of a whole run, in the order they are played: `task.prompts` for each step."""
    rng = random.Random(seed)
    top = MARK if task.ends else VOCAB
    rows = [[rng.randrange(1, top) for _ in range(task.prompt)] for _ in range(task.prompts * task.steps)]
    if task.long_every:
        for row in rows[:: task.long_every]:
            row[0] = MARK
    return [written(row) for row in rows]


def written(tokens: Sequence[int]) -> str:
    return "".join(chr(FIRST + t) for t in tokens)


def read(text: str) -> list[int]:
    return [ord(c) - FIRST for c in text]


def reward(tokens: Sequence[int]) -> float:
    """The share of a completion's tokens whose id is below GOOD; 0 for an empty one."""
    return sum(t < GOOD for t in tokens) / max(len(tokens), 1)


def fingerprint(texts: Sequence[str]) -> str:
    """What two contenders compare to know that they were given the same prompts in the same order."""
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]
