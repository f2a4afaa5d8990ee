"""Recovery and correction against more demonstrations.
A grid of 15 by 9 cells has a wall with one gap; wind moves 30 % of steps up or down. The scripted expert takes the
shortest way and errs in 10 % of its actions. A table imitates the commonest action of each cell, at random in cells
without one. After 3 demonstrations, 150 more frames are spent: on demonstrations; on corrections, where the expert
takes over a policy that left the known cells, to the end; or on recovery and correction, where it goes back to a known
cell, then to the gap or the goal, and stops. Policy frames are not imitated. Success: the goal within 40 steps, 500
episodes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from functools import cache

import numpy as np

from experiments.studies import Question
from isocost.chance import Purpose, generator

PAPER = ("RaC", "2509.07953")
QUESTIONS = (
    Question("More success than demonstrations (difference)?", "full", above=0.0, effect=0.05),
    Question("More than corrections to the end?", "correct", above=0.0, effect=0.05),
    Question("Is the success above 0.9?", "high", above=0.9, effect=0.05),
)
WIDE, HIGH, WALL, GAP, LIMIT, FRAMES, MOST = 15, 9, 7, 4, 40, 150, 60
START, GOAL, MOVES = (0, 4), (14, 4), ((1, 0), (-1, 0), (0, 1), (0, -1))
Cell = tuple[int, int]
Table = dict[Cell, Counter[int]]


def moved(at: Cell, action: int) -> Cell:
    """The next cell; a wall holds."""
    x, y = at[0] + MOVES[action][0], at[1] + MOVES[action][1]
    shut = not (0 <= x < WIDE and 0 <= y < HIGH) or (x == WALL and y != GAP)
    return at if shut else (x, y)


@cache
def distances(to: frozenset[Cell]) -> dict[Cell, int]:
    """Steps from every cell to the nearest of these, breadth first."""
    found, edge = dict.fromkeys(to, 0), list(to)
    for cell in edge:
        for x, y in MOVES:
            near = (cell[0] - x, cell[1] - y)
            inside = 0 <= near[0] < WIDE and 0 <= near[1] < HIGH and (near[0] != WALL or near[1] == GAP)
            if inside and near not in found:
                found[near] = found[cell] + 1
                edge.append(near)
    return found


def blown(at: Cell, action: int, rng: np.random.Generator) -> Cell:
    """A step under the wind."""
    return moved(at, int(rng.integers(2, 4)) if rng.random() < 0.3 else action)


def led(at: Cell, to: Collection[Cell], rng: np.random.Generator, frames: int) -> tuple[list[tuple[Cell, int]], Cell]:
    """The expert's frames from a cell to the nearest of these, at most so many, and where it ends."""
    far, shown = distances(frozenset(to)), []
    while far[at] and len(shown) < frames:
        best = [a for a in range(4) if far[moved(at, a)] < far[at]]
        action = int(rng.integers(4)) if rng.random() < 0.1 else int(rng.choice(best))
        shown.append((at, action))
        at = blown(at, action, rng)
    return shown, at


def chosen(table: Table, at: Cell, rng: np.random.Generator) -> int:
    return table[at].most_common(1)[0][0] if at in table else int(rng.integers(4))


def taught(kind: str, rng: np.random.Generator) -> Table:
    """A table after 3 demonstrations and the frames of this kind."""
    table: Table = defaultdict(Counter)

    def learn(shown: list[tuple[Cell, int]]) -> int:
        for cell, action in shown:
            table[cell][action] += 1
        return len(shown)

    for _ in range(3):
        learn(led(START, [GOAL], rng, 10**6)[0])
    left = FRAMES
    while left > 0:
        at, known = START, frozenset(table)
        for _ in range(LIMIT if kind != "full" else 0):
            if at not in known or at == GOAL:
                break
            at = blown(at, chosen(table, at, rng), rng)
        if kind == "rac" and at != GOAL:
            shown, at = led(at, known, rng, left)
            left -= learn(shown)
            gate = (WALL, GAP)
            left -= learn(led(at, [gate if at[0] < WALL else GOAL], rng, left)[0])
        elif at != GOAL:
            left -= learn(led(at, [GOAL], rng, left)[0])
    return table


def success(table: Table, rng: np.random.Generator, episodes: int = 500) -> float:
    """The share of episodes that reach the goal in time."""
    won = 0
    for _ in range(episodes):
        at = START
        for _ in range(LIMIT):
            at = blown(at, chosen(table, at, rng), rng)
            if at == GOAL:
                won += 1
                break
    return won / episodes


def measure(seed: int) -> Mapping[str, float]:
    rng = generator(seed, Purpose.TRAIN, 10)
    got = {kind: success(taught(kind, rng), rng) for kind in ("full", "correct", "rac")}
    return {"full": got["rac"] - got["full"], "correct": got["rac"] - got["correct"], "high": got["rac"]}
