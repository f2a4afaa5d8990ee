"""Pages: find a fact in a house of rooms with a page in each. What is read grows every turn; most of it is of no use.

    >K C:ADF B3Q1M0     the question: what is K? The policy is in C, whose doors lead to A, D and F; its page says that
                        B is 3, Q is 1 and M is 0
    D                   its turn: it goes to D
    D:CEH T4K7V2        what it sees there: K is 7
    7                   its turn: it answers, which ends the episode and pays 1 if it is right

`copies` of the rooms have a page with the answer. Pages are drawn for each problem (`draws` times for each start and
question), so training can learn by heart where an answer is, but not for problems that it has not met; it can learn to
walk without reading a page twice. A walker that has read r of the other rooms' pages knows the answer with probability
1 − C(S − 1 − r, copies) / C(S − 1, copies) in a house of S rooms: concave in r. With `asked` 2 the question names two
facts, on pages of their own, and the answer is both digits, so the first must be remembered. A problem's level is the
least number of moves to read all that was asked.

The model that ships hardly finds a fact in what it has read: it is right in one of seven attempts, where guessing is
right in one of ten.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import product
from math import comb

from isocost import chance
from isocost.envs.environment_set import EnvironmentKind, EnvironmentSet
from isocost.envs.tiny.rooms import NAMES, House, State, _house, distances
from isocost.options import NamedOptions
from isocost.types import Fault, Message, Problem, Shown
from isocost.world import BaseEpisode, Luck


@dataclass(frozen=True)
class Pages(NamedOptions):
    """Which house, what its pages hold, and what is asked."""

    size: int = 16        # rooms
    degree: int = 3       # doors of a room, on average
    keys: int = 0         # 1: half of the house is behind a locked door
    copies: int = 3       # rooms whose page has a fact that is asked for
    facts: int = 3        # facts on a page
    asked: int = 1        # facts that a question names: 1 or 2
    level: int = 0        # only problems that need this many moves; 0: all
    draws: int = 1        # of pages for each start and question: with few, training learns their answers by heart
    seed: int = 0         # of the house and its pages

    def __post_init__(self) -> None:
        self.refuse(
            (not 4 <= self.size <= len(NAMES), f"size is 4 to {len(NAMES)}, not {self.size}"),
            (not 2 <= self.degree < self.size // 2, f"degree is 2 to {self.size // 2 - 1}, not {self.degree}"),
            (self.keys not in (0, 1), f"keys is 0 or 1, not {self.keys}"),
            (self.asked not in (1, 2), f"asked is 1 or 2, not {self.asked}"),
            (not 1 <= self.draws <= 1000, f"draws is 1 to 1000, not {self.draws}"),
            (not 1 <= self.facts <= 8, f"facts is 1 to 8, not {self.facts}"),
            (not 1 <= self.copies * self.asked < self.size,
             f"copies times asked is 1 to {self.size - 1}, not {self.copies * self.asked}"),
        )

    @cached_property
    def house(self) -> House:
        return _house(self.size, self.degree, self.keys, self.seed)


def known(which: Pages, read: int) -> float:
    """The probability that `read` pages besides the first one hold the answer to a question about one fact."""
    others = which.size - 1
    return 1 - comb(max(others - read, 0), which.copies) / comb(others, which.copies)


def problems(which: Pages) -> Iterator[Problem]:
    """`draws` problems for each start and each fact or pair of facts that can be asked for, in a fixed order."""
    subjects = [(a, b) for a, b in product(NAMES, NAMES) if (a == b if which.asked == 1 else a < b)]
    each = [(start, pair[: which.asked], draw) for draw in range(which.draws) for start in range(which.size)
            for pair in subjects]
    order = chance.generator(which.seed, chance.Purpose.CHOOSE, which.size, 1).permutation(len(each))
    for start, subject, draw in (each[i] for i in order.tolist()):
        made = problem(which, start, subject, draw)
        if made is not None and which.level in (0, made.meta["level"]):
            yield made


def problem(which: Pages, start: int, subject: Sequence[str], draw: int = 0) -> Problem | None:
    """To find this from this room with the pages of this draw; None if no route leads to all that is asked."""
    words, pages = "".join(subject), _pages(which, start, subject, draw)
    answer = "".join(next(p[p.index(s) + 1] for p in pages if s in p) for s in subject)
    level = moves(which, start, subject, pages)
    if not level:
        return None
    asked = Message("user", f">{words} {sight(which, pages, start)}")
    meta = {"start": start, "subject": words, "pages": pages, "level": level, "house": which, "source": "pages",
            "exact": False}
    return Problem(f"pages-{NAMES[start]}{words}" + f".{draw}" * (draw > 0), (asked,), answer, meta=meta)


def _pages(which: Pages, start: int, subject: Sequence[str], draw: int) -> tuple[str, ...]:
    """The page of each room. What is asked is on no page of the first room, and is the same wherever it is."""
    again = (draw,) if draw else ()         # the first draw is that of records made without others
    rng = chance.generator(which.seed, chance.Purpose.CHOOSE, which.size, 2, start, *map(ord, subject), *again)
    digits = rng.integers(10, size=len(subject)).tolist()
    others = [n for n in NAMES if n not in subject]
    rooms = (r for r in rng.permutation(which.size).tolist() if r != start)
    where = {next(rooms): k for _ in range(which.copies) for k in range(len(subject))}
    out = []
    for room in range(which.size):
        names = [others[i] for i in rng.permutation(len(others))[: which.facts].tolist()]
        facts = [f"{n}{d}" for n, d in zip(names, rng.integers(10, size=which.facts).tolist(), strict=True)]
        if room in where:
            facts[int(rng.integers(which.facts))] = f"{subject[where[room]]}{digits[where[room]]}"
        out.append("".join(facts))
    return tuple(out)


def moves(which: Pages, start: int, subject: Sequence[str], pages: Sequence[str]) -> int:
    """The least number of moves after which every fact that is asked has been read; 0 if there is no such route."""
    first = [which.house.start(start)]
    reached = {(first[0], _read("", subject, pages[start]))}
    front, count = list(reached), 0
    while front:
        if any(len(seen) == len(subject) for _, seen in front):
            return count
        count += 1
        new = {(to, _read(seen, subject, pages[to[0]])) for state, seen in front for to in which.house.moves(*state)}
        front = [x for x in new if x not in reached]
        reached |= new
    return 0


def _read(seen: str, subject: Sequence[str], page: str) -> str:
    return "".join(s for s in subject if s in seen or s in page)


def sight(which: Pages, pages: Sequence[str], room: int) -> str:
    """What a room shows: its name, its doors and its page."""
    star = "*" if room == which.house.key else ""
    return f"{NAMES[room]}:{''.join(NAMES[to] for to in which.house.doors[room])}{star} {pages[room]}"


class Search(BaseEpisode):
    """One search: an `isocost.world.Environment`. A digit for each fact that is asked ends it."""

    def __init__(self, problem: Problem):
        meta = problem.meta
        self.which: Pages = meta["house"]
        self.pages: tuple[str, ...] = meta["pages"]
        self.subject: str = meta["subject"]
        self.asked, self.answer, self.said = tuple(problem.prompt), problem.answer, ""
        self.state = self.which.house.start(meta["start"])
        self.seen = ""

    async def open(self) -> Shown:
        return Shown(self.asked, key=self._key())

    async def step(self, said: str, luck: Luck) -> Shown:
        if said.isdecimal() and len(said) == len(self.subject):
            self.said = said
            right = float(said == self.answer)
            return Shown((Message("tool", ""),), True, right, self._key())
        moves = dict(self.which.house.moves(*self.state))
        to = NAMES.find(said) if len(said) == 1 else -1
        fault = None if to in moves else Fault.model("no such door")
        if fault is None:
            self.state = (to, moves[to])
            self.seen = _read(self.seen, self.subject, self.pages[to])
        shown = ("!" if fault else "") + sight(self.which, self.pages, self.state[0])
        return Shown((Message("tool", shown),), False, 0.0, self._key(), fault)

    def expert(self) -> str:
        """A turn of one that knows where the answer is: the next move to the nearest page, and then the answer."""
        missing = [s for s in self.subject if s not in self.seen]
        if not missing:
            return str(self.answer)
        goals = [r for r, p in enumerate(self.pages) if any(s in p for s in missing)]
        near = [distances(self.which.house, goal) for goal in goals]

        def far(state: State) -> int:
            return min(known.get(state, 10**6) for known in near)

        return NAMES[min(self.which.house.moves(*self.state), key=far)[0]]

    def _key(self) -> str:
        """The room, "*" with the key, and "=" where its page has what is asked."""
        room, has_key = self.state
        here = any(s in self.pages[room] for s in self.subject)
        return NAMES[room] + "*" * has_key + "=" * here


def open_set(spec: str) -> EnvironmentSet:
    which = Pages.of(spec)
    return EnvironmentSet(spec, Search, partial(problems, which), max_turns=12, max_tokens=1 + which.asked,
                          model="tiny-tools")


ENVIRONMENT = EnvironmentKind("find a fact on the pages of a house's rooms, one letter a move", vars(Pages()), open_set)
