"""Filtered learning histories and imitation in context.
Sources learn on two Bernoulli arms with uniform means: Thompson sampling, or a confused learner that credits the wrong
arm in half of its rounds. Algorithm distillation is a table, the exact minimiser of the imitation loss: the share of
each action after the same counts of wins and losses, in 20,000 histories of 20 rounds. LHF samples as many with
replacement, in proportion to U, scaled to [0, 1]: reward of the last quarter minus that of the first, minus the
standard deviation between quarters. Each table acts in 20,000 new problems. Differences of regret are shares of
Thompson's.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy import ndarray

from experiments.studies import Question
from isocost.chance import Purpose, generator

PAPER = ("Learning history filtering", "2505.15143")
QUESTIONS = (
    Question("Nine tenths confused: does LHF lower the regret (difference over Thompson's)?", "noisy", below=0.0,
             effect=0.02),
    Question("Half confused: does it?", "half", below=0.0, effect=0.02),
    Question("None confused: is its regret higher by under 0.02?", "clean", below=0.02, effect=0.01),
    Question("Half confused: does the filtered table reach Thompson's regret to 5 %?", "left", below=0.05, effect=0.02),
)
RUNS, ROUNDS, MOST = 20_000, 20, 20


def histories(confused: ndarray, rng: np.random.Generator) -> tuple[ndarray, ndarray, ndarray]:
    """(runs, rounds) of arms, rewards and states before each round; confused, (runs,), learners swap half of the arms
    that they credit. A state is the counts of wins and losses of both arms, as one integer."""
    means = rng.random((len(confused), 2))
    seen, believed = (np.zeros((len(confused), 2, 2)) for _ in (0, 1))
    arms, pays, states = [], [], []
    rows = np.arange(len(confused))
    for _ in range(ROUNDS):
        arm = rng.beta(believed[..., 0] + 1, believed[..., 1] + 1).argmax(1)
        paid = (rng.random(len(rows)) < means[rows, arm]).astype(int)
        states.append(key(seen))
        seen[rows, arm, 1 - paid] += 1
        credited = np.where(confused & (rng.random(len(rows)) < 0.5), 1 - arm, arm)
        believed[rows, credited, 1 - paid] += 1
        arms.append(arm)
        pays.append(paid)
    return np.stack(arms, 1), np.stack(pays, 1), np.stack(states, 1)


def key(counts: ndarray) -> ndarray:
    """(runs,) one integer for the counts (runs, 2, 2)."""
    return (counts.reshape(-1, 4) @ (ROUNDS + 1) ** np.arange(4)).astype(int)


def utility(pays: ndarray) -> ndarray:
    """U of each history, (runs, rounds) of rewards -> (runs,) in [0, 1]."""
    quarters = pays.reshape(len(pays), 4, -1).mean(2)
    raw = quarters[:, -1] - quarters[:, 0] - quarters.std(1)
    return (raw - raw.min()) / max(np.ptp(raw), 1e-12)


def table(arms: ndarray, states: ndarray) -> ndarray:
    """The share of the second arm after each state, (states,); one half where none was seen."""
    size = (ROUNDS + 1) ** 4
    second, every = (np.bincount(states.ravel(), w, size) for w in (arms.ravel(), None))
    return (second + 0.5) / (every + 1)


def regret(policy: ndarray | None, rng: np.random.Generator) -> float:
    """Mean regret of 20 rounds in new problems by a table; by Thompson sampling without one."""
    means, seen, total = rng.random((RUNS, 2)), np.zeros((RUNS, 2, 2)), 0.0
    rows = np.arange(RUNS)
    for _ in range(ROUNDS):
        arm = (rng.beta(seen[..., 0] + 1, seen[..., 1] + 1).argmax(1) if policy is None
               else (rng.random(RUNS) < policy[key(seen)]).astype(int))
        paid = (rng.random(RUNS) < means[rows, arm]).astype(int)
        seen[rows, arm, 1 - paid] += 1
        total += float((means.max(1) - means[rows, arm]).mean())
    return total


def measure(seed: int) -> Mapping[str, float]:
    rng, made = generator(seed, Purpose.TRAIN, 4), {}
    best = regret(None, rng)
    for name, share in (("noisy", 0.9), ("half", 0.5), ("clean", 0.0)):
        arms, pays, states = histories(rng.random(RUNS) < share, rng)
        weight = utility(pays)
        drawn = rng.choice(RUNS, RUNS, p=weight / weight.sum())
        made[name] = [regret(table(arms[i], states[i]), rng) / best for i in (slice(None), drawn)]
    return {**{name: filtered - plain for name, (plain, filtered) in made.items()}, "left": made["half"][1] - 1}
