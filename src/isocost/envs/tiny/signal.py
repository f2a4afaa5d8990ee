"""Signal: tell the level of a long, noisy signal of which a few samples are shown. A video and its frames, as digits.

    3735>         the question: at which digit is the signal most often? These are 4 samples of it, evenly spaced
    3             the answer, which ends the episode and pays 1 if it is right

A sample is at the level with probability `clear`, else at any other digit. Few samples may tie or mislead, all of them
rarely do, so a reader that is sure is likely to be right. How many are shown is `first`, or what the problem's data
say as `frames`: `isocost.strategies.sparse_to_dense` doubles them up to `most_frames`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from isocost import chance
from isocost.envs.environment_set import EnvironmentKind, EnvironmentSet
from isocost.options import NamedOptions
from isocost.types import Fault, Message, Problem, Shown
from isocost.world import BaseEpisode, Luck

DIGITS = 10


@dataclass(frozen=True)
class Signal(NamedOptions):
    """How long and how clear the signals are, and how many."""

    length: int = 32      # samples of a signal
    first: int = 4        # of them are shown where nothing else is asked for
    clear: float = 0.5    # probability that a sample is at the level
    count: int = 400      # problems
    seed: int = 0

    def __post_init__(self) -> None:
        self.refuse(
            (not 2 <= self.length <= 64, f"length is 2 to 64, not {self.length}"),
            (not 1 <= self.first <= self.length, f"first is 1 to {self.length}, the length, not {self.first}"),
            (not 0.1 < self.clear <= 1, f"clear is above 0.1 and at most 1, not {self.clear}"),
            (self.count < 1, f"count is at least 1, not {self.count}"),
        )


def problems(which: Signal) -> Iterator[Problem]:
    """`count` signals. The level of a problem is 1 where all of its samples agree with the first ones, else 2."""
    for i in range(which.count):
        rng = chance.generator(which.seed, chance.Purpose.CHOOSE, which.length, round(1000 * which.clear), i)
        level = int(rng.integers(DIGITS))
        noise = (level + rng.integers(1, DIGITS, which.length)) % DIGITS
        samples = [level if u < which.clear else int(x) for u, x in
                   zip(rng.random(which.length).tolist(), noise.tolist(), strict=True)]
        meta = {"samples": "".join(map(str, samples)), "frames": which.first, "most_frames": which.length,
                "level": 1 + (most(shown(samples, which.first)) != str(level)), "source": "signal", "exact": False}
        yield Problem(f"signal-{which.seed}-{i}", posed(meta), str(level), meta=meta)


def shown(samples: Any, frames: int) -> str:
    """So many samples, evenly spaced: the middle one of each of as many equal parts."""
    return "".join(str(samples[(2 * i + 1) * len(samples) // (2 * frames)]) for i in range(frames))


def most(seen: str) -> str:
    """The digit that is seen most often, ties to the first."""
    return Counter(seen).most_common(1)[0][0]


def posed(meta: Mapping[str, Any]) -> tuple[Message, ...]:
    """The question, with as many samples as the problem's data say."""
    return (Message("user", f"{shown(meta['samples'], meta['frames'])}>"),)


class SignalEpisode(BaseEpisode):
    """One question: an `isocost.world.Environment`."""

    def __init__(self, problem: Problem):
        self.problem, self.said = problem, ""

    async def open(self) -> Shown:
        return Shown(posed(self.problem.meta), key=str(self.problem.meta["frames"]))

    async def step(self, said: str, luck: Luck) -> Shown:
        self.said, fault = said, None if said in tuple("0123456789") else Fault.model("no digit")
        return Shown((), True, float(said == self.problem.answer), "", fault)

    def expert(self) -> str:
        """The digit that is shown most often."""
        return most(posed(self.problem.meta)[0].content[:-1])


def open_set(spec: str) -> EnvironmentSet:
    return EnvironmentSet(spec, SignalEpisode, partial(problems, Signal.of(spec)), max_turns=1, max_tokens=2,
                          model="tiny-tools")


ENVIRONMENT = EnvironmentKind("tell the level of a noisy signal from a few of its samples, in one turn", vars(Signal()),
                              open_set)
