"""Needle: find a detail in pictures that are first seen coarsely. The actions of a visual search agent, without pixels.

    >K            the question: what is K?
    SK            a turn: search; the pictures that may show K, best first, some of them wrong
    261:          pictures 2, 6 and 1
    L2            a turn: look at picture 2 from afar: its four quarters, each as one name
    BKQM:         K is in the second quarter (1)
    Z21           a turn: zoom into quarter 1 of picture 2
    K7:           K is 7
    A7            a turn: the answer, which ends the episode and pays 1 if it is right

`gold` of the pictures show what is asked, all with the same digit. A search returns all of them and as many others, in
an order that is drawn for the problem. `final` is the answer and, after a space, the pictures in the order in which
they were first looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from isocost import chance
from isocost.envs.environment_set import EnvironmentKind, EnvironmentSet
from isocost.envs.tiny.rooms import NAMES
from isocost.options import NamedOptions
from isocost.types import Fault, Message, Problem, Shown
from isocost.world import BaseEpisode, Luck

QUARTERS = 4


@dataclass(frozen=True)
class Needle(NamedOptions):
    """Which pictures, and how many questions."""

    pictures: int = 8     # at most 10
    gold: int = 2         # pictures that show what is asked
    count: int = 400      # problems
    seed: int = 0

    def __post_init__(self) -> None:
        self.refuse(
            (not 2 <= self.pictures <= 10, f"pictures is 2 to 10, not {self.pictures}"),
            (not 1 <= self.gold <= self.pictures // 2, f"gold is 1 to half of pictures, not {self.gold}"),
            (self.count < 1, f"count is at least 1, not {self.count}"),
        )


def problems(which: Needle) -> Iterator[Problem]:
    """`count` questions, each with pictures of its own. The level is the place of the first gold one among those found.
    """
    for i in range(which.count):
        rng = chance.generator(which.seed, chance.Purpose.CHOOSE, which.pictures, which.gold, i)
        asked = NAMES[int(rng.integers(len(NAMES)))]
        others = [n for n in NAMES if n != asked]
        order = rng.permutation(which.pictures).tolist()
        gold, found = order[: which.gold], order[: 2 * which.gold]
        digit = int(rng.integers(10))
        pictures = []
        for k in range(which.pictures):
            names = [others[j] for j in rng.permutation(len(others))[:QUARTERS].tolist()]
            facts = [f"{n}{d}" for n, d in zip(names, rng.integers(10, size=QUARTERS).tolist(), strict=True)]
            if k in gold:
                facts[int(rng.integers(QUARTERS))] = f"{asked}{digit}"
            pictures.append(tuple(facts))
        ranked = tuple(found[j] for j in rng.permutation(len(found)).tolist())
        level = 1 + min(ranked.index(g) for g in gold)
        meta = {"pictures": tuple(pictures), "gold": tuple(sorted(gold)), "found": ranked, "asked": asked,
                "level": level, "source": "needle", "exact": False}
        yield Problem(f"needle-{which.seed}-{i}", (Message("user", f">{asked}"),), str(digit), meta=meta)


class Hunt(BaseEpisode):
    """One question: an `isocost.world.Environment`."""

    def __init__(self, problem: Problem):
        self.problem, self.meta, self.said = problem, problem.meta, ""
        self.looked, self.last = list[int](), ""

    async def open(self) -> Shown:
        return Shown(tuple(self.problem.prompt), key=self._key())

    async def step(self, said: str, luck: Luck) -> Shown:
        if said[:1] == "A":
            self.said = said[1:]
            return Shown((Message("tool", ""),), True, float(self.said == self.problem.answer), self._key())
        shown = self._shown(said)
        if shown is None:
            return Shown((Message("tool", "!:"),), False, 0.0, self._key(), Fault.model("no such action"))
        self.last = said
        return Shown((Message("tool", f"{shown}:"),), False, 0.0, self._key())

    def final(self) -> str:
        return f"{self.said} {''.join(map(str, self.looked))}"

    def expert(self) -> str:
        """A turn of one that searches, looks in the order found, and zooms where the name is."""
        asked, pictures = self.meta["asked"], self.meta["pictures"]
        if not self.last:
            return f"S{asked}"
        kind, at = self.last[0], int(self.last[1]) if self.last[1].isdecimal() else -1
        if kind == "Z" and pictures[at][int(self.last[2])][0] == asked:
            return f"A{pictures[at][int(self.last[2])][1]}"
        there = [k for k, fact in enumerate(pictures[at]) if fact[0] == asked] if kind == "L" else []
        if there:
            return f"Z{at}{there[0]}"
        return f"L{next((k for k in self.meta['found'] if k not in self.looked), self.meta['gold'][0])}"

    def _shown(self, said: str) -> str | None:
        """What an action shows; None if it is none."""
        pictures, kind, rest = self.meta["pictures"], said[:1], said[1:]
        if kind == "S" and len(rest) == 1 and rest in NAMES:
            if rest == self.meta["asked"]:
                return "".join(map(str, self.meta["found"]))
            return "".join(str(k) for k, p in enumerate(pictures) if any(f[0] == rest for f in p))
        if not (rest.isascii() and rest.isdecimal()) or int(rest[0]) >= len(pictures):
            return None
        at = int(rest[0])
        if kind == "L" and len(rest) == 1:
            self._saw(at)
            return "".join(f[0] for f in pictures[at])
        if kind == "Z" and len(rest) == 2 and int(rest[1]) < QUARTERS:
            self._saw(at)
            return str(pictures[at][int(rest[1])])
        return None

    def _saw(self, at: int) -> None:
        if at not in self.looked:
            self.looked.append(at)

    def _key(self) -> str:
        """The last action that was one."""
        return self.last or "?"


def open_set(spec: str) -> EnvironmentSet:
    return EnvironmentSet(spec, Hunt, partial(problems, Needle.of(spec)), max_turns=12, max_tokens=4,
                          model="tiny-tools")


ENVIRONMENT = EnvironmentKind("find a detail in pictures: search, look, zoom, answer", vars(Needle()), open_set)
