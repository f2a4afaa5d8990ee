"""Desk: a tool that pays only when it is called rightly, and a store with rules. A few tokens a turn.

    47 85:         the question: the sum of 47 and 85
    C47 85         a turn: the calculator is called
    132:           it answers; "*:" if it failed, with probability `noise`; "!:" if the turn was neither call nor answer
    A132           a turn: the answer, which ends the episode

A right answer pays 1 − `fee` · calls, at least 0, and a wrong one 0: calling is worth it where the policy alone is
right less often than 1 − fee / (1 − noise), up to the turn limit (`worth`). The level is the number of digits.

With `store` the question is to copy one of that many registers to another, and the rule is to read a register before
writing it:

    2 3:           copy register 2 to register 3
    R2             a turn: read register 2
    47:            it holds 47
    W3 47          a turn: write 47 to register 3; "!:" if it was not read before
    A              a turn: done, which ends the episode and pays 1 if every register holds what it should

At least 4 turns are needed, and 4 are enough without noise. Without noise a problem lists what its expert says, turn by
turn, as `meta["expert"]`: a demonstration. Only characters of the rooms' alphabet are used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from isocost import chance
from isocost.envs.environment_set import EnvironmentKind, EnvironmentSet
from isocost.options import NamedOptions
from isocost.types import Fault, Message, Problem, Shown
from isocost.world import BaseEpisode, Luck

CALL, WRITE = re.compile(r"C(\d+) (\d+)"), re.compile(r"W(\d) (\d\d)")


@dataclass(frozen=True)
class Desk(NamedOptions):
    """Which questions, and how the tools behave."""

    digits: int = 2       # of the numbers to add; 0: one to three, mixed
    noise: float = 0.0    # probability that a tool fails
    fee: float = 0.0      # what a call takes from the pay of a right answer
    store: int = 0        # registers; 0: sums
    count: int = 400      # problems
    seed: int = 0

    def __post_init__(self) -> None:
        self.refuse(
            (not 0 <= self.digits <= 3, f"digits is 0 to 3, not {self.digits}"),
            (not 0 <= self.noise < 1, f"noise is at least 0 and below 1, not {self.noise}"),
            (not 0 <= self.fee <= 1, f"fee is 0 to 1, not {self.fee}"),
            (self.store == 1 or not 0 <= self.store <= 9, f"store is 0 or 2 to 9, not {self.store}"),
            (self.count < 1, f"count is at least 1, not {self.count}"),
        )


def worth(which: Desk, turns: int) -> float:
    """The expected pay of calling until the tool answers and then giving that answer, within a limit of turns."""
    return sum(which.noise**k * (1 - which.noise) * max(1 - which.fee * (k + 1), 0.0) for k in range(turns - 1))


def problems(which: Desk) -> Iterator[Problem]:
    """`count` problems, all different, drawn once for a seed."""
    rng, seen = chance.generator(which.seed, chance.Purpose.CHOOSE, which.digits, which.store), set[str]()
    digits_of = [which.digits] if which.digits else [1, 2, 3]
    most = 10**5 if which.store else sum((9 * 10 ** (d - 1)) ** 2 for d in digits_of)
    while len(seen) < min(which.count, most):
        digits = which.digits or 1 + int(rng.integers(3))
        if which.store:
            a, b = (int(x) for x in rng.permutation(which.store)[:2])
            held = tuple(f"{x:02d}" for x in rng.integers(100, size=which.store).tolist())
            name, words, answer = f"store-{a}{b}-{'.'.join(held)}", f"{a} {b}:", ",".join(copied(held, a, b))
            meta = {"held": held, "copy": (a, b), "level": which.store}
            shown = (f"R{a}", f"R{b}", *([f"W{b} {held[a]}"] if held[a] != held[b] else []), "A")
        else:
            low = 0 if digits == 1 else 10 ** (digits - 1)
            x, y = (int(v) for v in rng.integers(low, 10**digits, size=2))
            name, words, answer, meta = f"desk-{x}-{y}", f"{x} {y}:", str(x + y), {"level": digits}
            shown = (f"C{x} {y}", f"A{answer}")
        if not which.noise:         # what to say next is known beforehand only where no tool fails
            meta["expert"] = shown
        if name not in seen:
            seen.add(name)
            yield Problem(name, (Message("user", words),), answer,
                          meta={**meta, "desk": which, "source": "desk", "exact": False})


def copied(held: tuple[str, ...], a: int, b: int) -> tuple[str, ...]:
    """The registers after register a was copied to b."""
    return tuple(held[a] if i == b else x for i, x in enumerate(held))


class DeskEpisode(BaseEpisode):
    """One question at the desk: an `isocost.world.Environment`."""

    def __init__(self, problem: Problem):
        self.which: Desk = problem.meta["desk"]
        self.problem, self.said, self.told = problem, "", ""
        self.held, self.read, self.calls = list(problem.meta.get("held", ())), set[int](), 0

    async def open(self) -> Shown:
        return Shown(tuple(self.problem.prompt), key=self._key())

    async def step(self, said: str, luck: Luck) -> Shown:
        if said[:1] == "A":
            self.said = ",".join(self.held) if self.held and said == "A" else said[1:]
            right = self.said == self.problem.answer
            pay = max(1 - self.which.fee * self.calls, 0.0) if right else 0.0
            return Shown((Message("tool", ""),), True, pay, self._key())
        use = self._use(said)
        if use is None:
            return Shown((Message("tool", "!:"),), False, 0.0, self._key(), Fault.model("no such call"))
        self.calls += 1
        if self.which.noise and luck().random() < self.which.noise:
            return Shown((Message("tool", "*:"),), False, 0.0, self._key(), Fault.tool("failed"))
        kind, at, value = use
        if kind == "W" and at not in self.read:
            return Shown((Message("tool", "!:"),), False, 0.0, self._key(), Fault.model("written before it was read"))
        if kind == "W":
            self.held[at] = value
        else:
            self.read |= {at} if kind == "R" else set()
            self.told = self.held[at] if kind == "R" else value
        return Shown((Message("tool", f"{self.told if kind != 'W' else ''}:"),), False, 0.0, self._key())

    def expert(self) -> str:
        """A turn of one that uses the tools rightly and knows what they hold."""
        if not self.held:
            return f"A{self.told}" if self.told else f"C{self.problem.text[:-1]}"
        a, b = self.problem.meta["copy"]
        source = self.problem.meta["held"][a]
        todo = [f"R{x}" for x in (a, b) if x not in self.read] or [f"W{b} {source}"]
        return "A" if self.held[b] == source and b in self.read and a in self.read else todo[0]

    def _use(self, said: str) -> tuple[str, int, str] | None:
        """The call of a turn, as (tool, register, value); None if it is none."""
        if not self.held:
            found = CALL.fullmatch(said)
            return ("C", 0, str(int(found[1]) + int(found[2]))) if found else None
        if len(said) == 2 and said[0] == "R" and said[1].isdecimal() and int(said[1]) < len(self.held):
            return "R", int(said[1]), ""
        found = WRITE.fullmatch(said)
        return ("W", int(found[1]), found[2]) if found and int(found[1]) < len(self.held) else None

    def _key(self) -> str:
        """What was told, and the registers that were read and written."""
        if not self.held:
            return f":{self.told}"
        return f"{''.join(map(str, sorted(self.read)))}:{','.join(self.held)}"


def open_set(spec: str) -> EnvironmentSet:
    which = Desk.of(spec)
    room = 6 if which.store else 3 + 2 * (which.digits or 3)
    return EnvironmentSet(spec, DeskEpisode, partial(problems, which), max_turns=6, max_tokens=room, model="tiny-tools")


ENVIRONMENT = EnvironmentKind("a calculator with a fee and noise, or a store with rules", vars(Desk()), open_set)
