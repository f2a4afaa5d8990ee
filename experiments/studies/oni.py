"""Intrinsic rewards labelled while the agent learns.
The task is that of CALM's study. Each step has a caption: the key, the door, the key seen from the next cell, or
nothing; it comes in one of 30 wordings. A scripted model labels one waiting caption in 200 steps: all but "nothing"
help. Retrieval rewards a caption whose wording has a label; classification rewards its kind once one of the kind has.
As in the paper r = 10 r_ext + 0.4 r_int, and r_int is divided by the cube of its wording's count in the episode. Every
arm has 15,000 steps. Measured: the share of episodes, in the last quarter, that reach the goal.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy import ndarray

from experiments.studies import Question
from experiments.studies.calm import HIGH, KEY, RUNS, Move, success
from isocost.chance import Purpose, generator

PAPER = ("ONI", "2410.23022")
QUESTIONS = (
    Question("Retrieval: more success than the external reward alone (difference)?", "retrieval", above=0.0,
             effect=0.1),
    Question("Classification: more than retrieval?", "classes", above=0.0, effect=0.1),
    Question("Retrieval divided by counts: more than undivided?", "counts", above=0.0, effect=0.1),
    Question("Retrieval at one label in 20 steps: more than at one in 200?", "faster", above=0.0, effect=0.1),
)
KINDS, WORDINGS, MOST = ("nothing", "seen", "key", "door"), 30, 6


def kinds(move: Move) -> ndarray:
    """(rows,) which kind of caption a step has."""
    cell, has_key = move.after // 4, move.after // 2 % 2
    near = (abs(cell // HIGH - KEY[0]) + abs(cell % HIGH - KEY[1]) == 1) & (has_key == 0)
    return np.where(move.door, 3, np.where(move.key, 2, near))


def annotated(every: Sequence[int], classify: Sequence[bool], power: Sequence[int], paid: Sequence[float],
              rng: np.random.Generator) -> Callable[[Move], ndarray]:
    """ONI's intrinsic reward of arms that have a label in so many steps, divide by this power of the count, and pay
    this: each row has its own queue, table of labels, and counts of an episode."""
    period, whole, by, price = (np.repeat(x, RUNS) for x in (every, classify, power, paid))
    rows, clock = np.arange(len(period)), [0]
    helps = np.zeros((len(rows), len(KINDS), WORDINGS), dtype=bool)
    asked, counts, waiting = helps.copy(), helps.astype(float), [deque() for _ in rows]

    def pay(move: Move) -> ndarray:
        counts[move.fresh] = 0
        kind, wording = kinds(move), rng.integers(WORDINGS, size=len(rows))
        counts[rows, kind, wording] += 1
        for row in np.flatnonzero(~asked[rows, kind, wording]):
            waiting[row].append((kind[row], wording[row]))
        asked[rows, kind, wording] = True
        clock[0] += 1
        for row in np.flatnonzero(clock[0] % period == 0):
            if waiting[row]:
                which, how = waiting[row].popleft()
                helps[row, which, slice(None) if whole[row] else how] = which > 0
        return price * helps[rows, kind, wording] / counts[rows, kind, wording] ** by
    return pay


def measure(seed: int) -> Mapping[str, float]:
    rng = generator(seed, Purpose.TRAIN, 8)
    pay = annotated((200, 200, 200, 200, 20), (False, False, True, False, False), (3, 3, 3, 0, 3),
                    (0, 0.4, 0.4, 0.4, 0.4), rng)
    plain, retrieval, classes, farmed, faster = success(pay, 5, rng, 10.0)
    return {"retrieval": retrieval - plain, "classes": classes - retrieval, "counts": retrieval - farmed,
            "faster": faster - retrieval, "plain": plain}
