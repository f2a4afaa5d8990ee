"""Rooms: find a room in a house, one letter a move. A few tokens a turn, and the shortest route is known.

    >K C:ADF      the question: find room K. The policy is in C, whose doors lead to A, D and F
    D             its turn: it goes to D
    D:CEH         what it sees there; "!" before it: that was no move, it stays where it is
    E:DK*         "*": the key is here. One door opens only for those who have been where the key is

The house is the same for all problems of one specification, so it can be learnt. A problem is a start and a goal, and
its level is the length of the shortest route, by search backwards over all states (room, key). With `slip` a move goes
to a random neighbour with that probability; with `alias` rooms show one of a few colours and numbered doors instead of
names, so that what was seen before matters.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial

from isocost import chance
from isocost.envs.environment_set import EnvironmentKind, EnvironmentSet
from isocost.errors import UserError
from isocost.options import NamedOptions
from isocost.types import Fault, Message, Problem, Shown
from isocost.world import BaseEpisode, Luck

NAMES = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
ALPHABET = NAMES + "0123456789>:*! "
State = tuple[int, bool]        # a room, and whether the policy has the key


@dataclass(frozen=True)
class Rooms(NamedOptions):
    """Which house, and which problems in it."""

    size: int = 16        # rooms
    degree: int = 3       # doors of a room, on average
    keys: int = 1         # 1: half of the house is behind a locked door; 0: no door is locked
    slip: float = 0.0     # probability that a move goes to a random neighbour
    alias: int = 0        # colours that rooms show instead of their names; 0: names
    level: int = 0        # only problems whose shortest route has this length; 0: all
    seed: int = 0         # of the house

    def __post_init__(self) -> None:
        self.refuse(
            (not 4 <= self.size <= len(NAMES), f"size is 4 to {len(NAMES)}, not {self.size}"),
            (not 2 <= self.degree < self.size // 2, f"degree is 2 to {self.size // 2 - 1}, not {self.degree}"),
            (self.keys not in (0, 1), f"keys is 0 or 1, not {self.keys}"),
            (not 0 <= self.slip < 1, f"slip is at least 0 and below 1, not {self.slip}"),
            (not 0 <= self.alias <= 10, f"alias is 0 to 10, not {self.alias}"),
        )

    @cached_property
    def house(self) -> House:
        return _house(self.size, self.degree, self.keys, self.seed)


@dataclass(frozen=True)
class House:
    """The doors of each room, in order; the one that is locked, and the room with its key."""

    doors: tuple[tuple[int, ...], ...]
    locked: tuple[int, int] | None
    key: int | None

    def moves(self, room: int, has_key: bool) -> list[State]:
        """Where the policy can go, and whether it then has the key."""
        open_now = [to for to in self.doors[room] if has_key or self.locked not in ((room, to), (to, room))]
        return [(to, has_key or to == self.key) for to in open_now]

    def start(self, room: int) -> State:
        return room, room == self.key


@cache
def _house(size: int, degree: int, keys: int, seed: int) -> House:
    """Each half of a house with a lock, or the whole one, is a ring with random chords."""
    rng = chance.generator(seed, chance.Purpose.INIT, size, degree, keys)
    half = size // 2 if keys else size
    edges: set[tuple[int, int]] = set()
    for low, high in ((0, half), (half, size)) if keys else ((0, size),):
        ring = (low + rng.permutation(high - low)).tolist()
        mine = {(min(pair), max(pair)) for pair in zip(ring, ring[-1:] + ring[:-1], strict=True)}
        while len(mine) < (high - low) * degree // 2:
            a, b = sorted((low + rng.choice(high - low, 2, replace=False)).tolist())
            mine.add((a, b))
        edges |= mine
    locked = key = None
    if keys:
        locked = (int(rng.integers(half)), int(half + rng.integers(size - half)))
        edges.add(locked)
        key = int(rng.choice([r for r in range(half) if r != locked[0]]))
    doors = tuple(
        tuple(sorted({b for a, b in edges if a == r} | {a for a, b in edges if b == r})) for r in range(size)
    )
    return House(doors, locked, key)


@cache
def distances(house: House, goal: int) -> dict[State, int]:
    """Moves of the shortest route to a room from each state that can reach it."""
    states = [(r, k) for r in range(len(house.doors)) for k in (False, True)]
    into: dict[State, list[State]] = {s: [] for s in states}
    for s in states:
        for t in house.moves(*s):
            into[t].append(s)
    found = {(goal, k): 0 for k in (False, True)}
    queue = deque(found)
    while queue:
        t = queue.popleft()
        for s in into[t]:
            if s not in found:
                found[s] = found[t] + 1
                queue.append(s)
    return found


def problems(which: Rooms) -> Iterator[Problem]:
    """Every start and goal with a route between them, in a fixed order that mixes them; `level` is its length."""
    pairs = [(a, g) for a in range(which.size) for g in range(which.size)]
    order = chance.generator(which.seed, chance.Purpose.CHOOSE, which.size).permutation(len(pairs))
    if which.level:
        there = {distances(which.house, g).get(which.house.start(a), 0) for a, g in pairs} - {0}
        if which.level not in there:
            raise UserError(f"rooms: level is 1 to {max(there)} in this house, not {which.level}; 0 is all")
    for start, goal in (pairs[i] for i in order.tolist()):
        level = distances(which.house, goal).get(which.house.start(start), 0)
        if level and which.level in (0, level):
            asked = Message("user", f">{NAMES[goal]} {sight(which, start)}")
            meta = {"start": start, "goal": goal, "level": level, "rooms": which, "source": "rooms", "exact": False,
                    "expert": expert(which, start, goal)}
            yield Problem(f"rooms-{NAMES[start]}{NAMES[goal]}", (asked,), NAMES[goal], meta=meta)


def sight(which: Rooms, room: int) -> str:
    """What a room shows: its name, or its colour, and its doors; `*` where the key is."""
    doors = which.house.doors[room]
    star = "*" if room == which.house.key else ""
    if which.alias:
        return f"{room % which.alias}:{''.join(map(str, range(len(doors))))}{star}"
    return f"{NAMES[room]}:{''.join(NAMES[to] for to in doors)}{star}"


class Walk(BaseEpisode):
    """One walk through the house: an `isocost.world.Environment`. Arriving at the goal pays 1."""

    def __init__(self, problem: Problem):
        self.which: Rooms = problem.meta["rooms"]
        self.goal, self.asked = problem.meta["goal"], tuple(problem.prompt)
        self.room, self.has_key = self.which.house.start(problem.meta["start"])

    async def open(self) -> Shown:
        return Shown(self.asked, key=self._key())

    async def step(self, said: str, luck: Luck) -> Shown:
        moves = dict(self.which.house.moves(self.room, self.has_key))
        to = self._meant(said)
        fault = None if to in moves else Fault.model("no such door" if to is None else "locked door")
        if to in moves:
            if self.which.slip and (rng := luck()).random() < self.which.slip:
                to = sorted(moves)[int(rng.integers(len(moves)))]
            self.room, self.has_key = to, moves[to]
        shown = (Message("tool", ("!" if fault else "") + sight(self.which, self.room)),)
        there = self.room == self.goal
        return Shown(shown, there, float(there), self._key(), fault)

    def final(self) -> str:
        return NAMES[self.room]

    def expert(self) -> str:
        """A turn of one that knows the house: the next move of a shortest route."""
        to = route(self.which, (self.room, self.has_key), self.goal)[0][0]
        return str(self.which.house.doors[self.room].index(to)) if self.which.alias else NAMES[to]

    def _meant(self, said: str) -> int | None:
        """The room that a turn names; None if none of this room's doors leads there."""
        doors = self.which.house.doors[self.room]
        if len(said) != 1:
            return None
        if self.which.alias:
            return doors[int(said)] if said.isdecimal() and int(said) < len(doors) else None
        to = NAMES.find(said)
        return to if to in doors else None

    def _key(self) -> str:
        """The state; with `alias` only what is seen of it."""
        return sight(self.which, self.room) if self.which.alias else NAMES[self.room] + "*" * self.has_key


def expert(which: Rooms, start: int, goal: int) -> tuple[str, ...]:
    """What to say on a shortest route, turn by turn."""
    state, said = which.house.start(start), list[str]()
    while state[0] != goal:
        doors, state = which.house.doors[state[0]], route(which, state, goal)[0]
        said.append(str(doors.index(state[0])) if which.alias else NAMES[state[0]])
    return tuple(said)


def route(which: Rooms, state: State, goal: int) -> Sequence[State]:
    """The next states on a shortest route, the best first: all moves, by their distance to the goal."""
    known = distances(which.house, goal)
    return sorted(which.house.moves(*state), key=lambda t: known.get(t, len(known)))


def open_set(spec: str) -> EnvironmentSet:
    return EnvironmentSet(spec, Walk, partial(problems, Rooms.of(spec)), max_turns=12, max_tokens=2,
                          model="tiny-agents")


ENVIRONMENT = EnvironmentKind("find a room in a house with a locked door, one letter a move", vars(Rooms()), open_set)
