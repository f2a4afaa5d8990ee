"""Rewards for labelled subgoals of a sparse task.
Two rooms of 6 by 6 cells have a door between them and a key; only the goal in the second room pays, and an episode has
100 steps. Subgoals are the key and the opened door. A scripted model labels each transition, always alike: right, or
with errors, which miss 20 % of achievements and claim a subgoal at 0.2 % or 2 % of all other transitions. The first
claim of an episode pays 0.5, once a subgoal. Q-learning (rate 0.5, γ 0.97, ε 0.1) has 15,000 steps in every arm, in 16
runs a seed. Measured: the share of episodes, in the last quarter, that reach the goal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy import ndarray

from experiments.studies import Question
from isocost.chance import Purpose, generator

PAPER = ("CALM", "2409.12798")
QUESTIONS = (
    Question("Right labels: more success than without (difference)?", "right", above=0.0, effect=0.1),
    Question("0.2 % false claims: more than without?", "few", above=0.0, effect=0.1),
    Question("2 % false claims: more than without?", "many", above=0.0, effect=0.1),
    Question("2 % false claims: at most 0.1 less than with right labels (difference)?", "robust", above=-0.1,
             effect=0.1),
)
RUNS, STEPS, LIMIT, WIDE, HIGH, DOOR_ROW, MOST = 16, 15_000, 100, 13, 6, 1, 6
KEY, GOAL, WALL = (0, 5), (12, 5), 6
MOVES = np.array(((1, 0), (-1, 0), (0, 1), (0, -1)))


class Move(NamedTuple):
    """One step of all runs: (runs,) state before, action, state after, got the key, opened the door, first step."""

    before: ndarray
    action: ndarray
    after: ndarray
    key: ndarray
    door: ndarray
    fresh: ndarray


def stepped(x: ndarray, y: ndarray, key: ndarray, door: ndarray, action: ndarray
            ) -> tuple[ndarray, ndarray, ndarray, ndarray]:
    """Where a move leads: the door, in the wall's second row, opens to who has the key."""
    nx, ny = np.clip(x + MOVES[action, 0], 0, WIDE - 1), np.clip(y + MOVES[action, 1], 0, HIGH - 1)
    opens = (nx == WALL) & (ny == DOOR_ROW) & key
    shut = (nx == WALL) & ~((ny == DOOR_ROW) & (door | opens))
    nx, ny = np.where(shut, x, nx), np.where(shut, y, ny)
    return nx, ny, key | ((nx == KEY[0]) & (ny == KEY[1])), door | opens


def success(pay: Callable[[Move], ndarray], arms: int, rng: np.random.Generator, price: float = 1.0) -> list[float]:
    """The share of episodes of the last quarter that reach the goal, of each arm's RUNS rows, by Q-learning on the
    goal's price and `pay`."""
    count = RUNS * arms
    q, rows = 1e-3 * rng.random((count, WIDE * HIGH * 4, 4)), np.arange(count)
    x, y, age = (np.zeros(count, dtype=int) for _ in range(3))
    key, door = np.zeros(count, dtype=bool), np.zeros(count, dtype=bool)
    ended, reached = np.zeros(count), np.zeros(count)
    for step in range(STEPS):
        state = ((x * HIGH + y) * 2 + key) * 2 + door
        action = np.where(rng.random(count) < 0.1, rng.integers(4, size=count), q[rows, state].argmax(1))
        nx, ny, had, opened = stepped(x, y, key, door, action)
        after = ((nx * HIGH + ny) * 2 + had) * 2 + opened
        goal = (nx == GOAL[0]) & (ny == GOAL[1])
        reward = price * goal + pay(Move(state, action, after, had & ~key, opened & ~door, age == 0))
        q[rows, state, action] += 0.5 * (reward + 0.97 * ~goal * q[rows, after].max(1) - q[rows, state, action])
        age += 1
        over = goal | (age == LIMIT)
        if step >= STEPS * 3 // 4:
            ended += over
            reached += goal
        x, y, age, key, door = nx * ~over, ny * ~over, age * ~over, had & ~over, opened & ~over
    return list((reached.reshape(-1, RUNS).sum(1) / ended.reshape(-1, RUNS).sum(1)).tolist())


def labelled(missed: Sequence[float], false: Sequence[float], paid: Sequence[float], rng: np.random.Generator
             ) -> Callable[[Move], ndarray]:
    """CALM's reward at the first claim of each subgoal in an episode; arms have these shares of errors and pay this."""
    luck, arm = rng.random((2, len(paid), WIDE * HIGH * 4, 4)), np.repeat(np.arange(len(paid)), RUNS)
    missing, claiming, price = (np.repeat(x, RUNS) for x in (missed, false, paid))
    done = np.zeros((2, len(arm)), dtype=bool)

    def pay(move: Move) -> ndarray:
        total = np.zeros(len(arm))
        for i, achieved in enumerate((move.key, move.door)):
            done[i] &= ~move.fresh
            odd = luck[i, arm, move.before, move.action]
            claim = np.where(achieved, odd >= missing, odd < claiming) & ~done[i]
            done[i] |= claim
            total += price * claim
        return total
    return pay


def measure(seed: int) -> Mapping[str, float]:
    rng = generator(seed, Purpose.TRAIN, 7)
    pay = labelled((0, 0, 0.2, 0.2), (0, 0, 0.002, 0.02), (0, 0.5, 0.5, 0.5), rng)
    plain, right, few, many = success(pay, 4, rng)
    return {"right": right - plain, "few": few - plain, "many": many - plain, "robust": many - right, "plain": plain}
