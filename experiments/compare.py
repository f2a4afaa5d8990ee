"""How often `isocost compare` calls the wrong arm better, and how often it sees what it says it can see.

    python experiments/compare.py --studies 2016 --out experiments/results/compare.json

Pairs of arms with a known truth (truth), judged by the function that the command calls. A pair is `none`
(one curve for both), `lower` (the same speed to a lower asymptote), `slower` (the same asymptote at a higher cost) or
`crossing` (faster to a lower asymptote). In `lower` and `slower` the difference at the common cost is twice what the
command states as detectable, from the true spread of runs. Truths are of every kind there is, inside the fitted forms
and outside, from a generator whose seed is drawn at run time and kept in the record.

Noise is `as planted` (each run a speed of its own and correlated checkpoints), `heavy` (Student with three degrees of
freedom per run), `unequal` (one arm's about three times the other's), `shared` (half of the variance is the seed's) or
`sampled` (128 held-out problems, four samples each). Shares are of studies; `any` is the share in which anything at
all that was called better is not.
"""

from __future__ import annotations

import argparse
import json
import secrets
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy import ndarray

from isocost.chance import Purpose, generator
from isocost.compare.judge import HELD, QUESTIONS, SHARES, Comparison, compare
from isocost.laws.tracks import Track
from isocost.stats.power import detectable_in_comparison
from truth import INSIDE, OUTSIDE, Planted, plant

PAIRS = ("none", "lower", "slower", "crossing")
NOISES = ("as planted", "heavy", "unequal", "shared", "sampled")
SEEDS = (3, 5, 8)
C, SPAN, POINTS = 8000.0, 32.0, 8
LATE = 1e3 * C          # where "the end" of a true curve is read
PROBLEMS, SAMPLES = 128, 4
UNEQUAL = 4.0           # times the spread in level alone: a spread in speed would move the mean too
OWN = "at twice what it states itself"


def second(P: Planted, n: int, change: Callable[[ndarray], ndarray]) -> Planted:
    """A truth of two arms: 1 is arm n of P, 2 what `change` makes of that curve."""
    return replace(P, curves={1: P.curves[n], 2: change})


def lower(P: Planted, n: int, by: float) -> Planted:
    """Arm 2 gains a share `by` less than arm 1, at the same speed."""
    return second(P, n, lambda x: P.R0 + (1 - by) * (P.curves[n](x) - P.R0))


def slower(P: Planted, n: int, factor: float) -> Planted:
    """Arm 2 needs so many times the cost for the same reward."""
    return second(P, n, lambda x: P.curves[n](x / factor))


def crossing(P: Planted, n: int, factor: float) -> Planted:
    """Arm 2 is faster and ends lower, by what makes both equal at C."""
    ahead = (P.curves[n](np.array(C)) - P.R0) / max(float(P.curves[n](np.array(C * factor)) - P.R0), 1e-9)
    return second(P, n, lambda x: P.R0 + float(ahead) * (P.curves[n](x * factor) - P.R0))


def pair_of(kind: str, P: Planted, n: int, effect: float) -> Planted | None:
    """A truth of two arms, 1 better by `effect` at C where that is asked and can be had."""
    if kind == "none":
        return second(P, n, P.curves[n])
    if kind == "crossing":
        return crossing(P, n, 2.0)
    make, low, high = (lower, 0.0, 1.0) if kind == "lower" else (slower, 1.0, 40.0)
    if gap(make(P, n, high)) < effect:
        return None
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if gap(make(P, n, middle)) < effect else (low, middle)
    return make(P, n, high)


def gap(P: Planted, at: float = C) -> float:
    """Arm 1 less arm 2 at a cost."""
    return float(P.reward(1, at) - P.reward(2, at))


def scaled(P: Planted, noise: str, arm: int, rng: np.random.Generator) -> Planted:
    """P with the spread that one run of this arm has."""
    if noise == "unequal":
        return replace(P, sd=P.sd * (UNEQUAL if arm == 2 else 1.0))
    by = float(np.sqrt(3 / rng.chisquare(3))) if noise == "heavy" else 1.0
    return replace(P, sd=P.sd * by, speed=P.speed * by)


def one(P: Planted, arm: int, at: ndarray, noise: str, seed: int, shared: np.random.Generator,
        rng: np.random.Generator) -> Track:
    """One run. `shared` is drawn from alike by both arms of a seed."""
    mean = P.reward(arm, at)
    found = scaled(P, noise, arm, rng).run(arm, at, rng)
    if noise == "shared":
        found = mean + ((found - mean) + (P.run(arm, at, shared) - mean)) / np.sqrt(2)
    reward = np.clip(np.concatenate([[P.R0], found]), 0, 1)
    if noise == "sampled":
        reward = rng.binomial(PROBLEMS * SAMPLES, reward) / (PROBLEMS * SAMPLES)
    step = 1 / (PROBLEMS * SAMPLES) if noise == "sampled" else 0.0
    return Track(f"{arm}-{seed}", seed, np.concatenate([[0.0], at]), reward, resolution=step)


def study(P: Planted, arms: list[int], noise: str, seeds: int, rng: np.random.Generator) -> Comparison:
    """The comparison of these arms of P, by name; an arm may be there more than once."""
    at = np.geomspace(C / SPAN, C, POINTS)
    key = int(rng.integers(2**31))
    return compare({
        f"{place}": [one(P, arm, at, noise, s, generator(key, Purpose.INIT, s), rng) for s in range(seeds)]
        for place, arm in enumerate(arms)
    })


def spread_of(P: Planted, noise: str, rng: np.random.Generator, runs: int = 60) -> float:
    """Standard deviation of one run at C, its mean square over both arms."""
    ends = [[float(one(P, arm, np.array([C]), noise, s, rng, rng).reward[-1]) for s in range(runs)] for arm in (1, 2)]
    return float(np.sqrt(np.mean([np.var(x, ddof=1) for x in ends])))


def truths(P: Planted) -> dict[str, float]:
    """Arm 1 over arm 2 by question: reward at C; mean ln of the cost at the rewards compared; reward in the end."""
    top = min(float(P.reward(1, C)), float(P.reward(2, C)))
    at = np.geomspace(C / 1e4, C, 2000)
    levels = P.R0 + np.array(HELD) * (top - P.R0)
    first, other = (np.log(at)[(P.reward(arm, at)[None] >= levels[:, None] - 1e-9).argmax(1)] for arm in (1, 2))
    logs = other - first if top > P.R0 + 1e-6 else np.zeros(1)
    return {"equal cost": gap(P), "efficiency": float(np.mean(logs)), "asymptote": gap(P, LATE)}


def judged(c: Comparison, true: dict[str, float], arms: list[int]) -> dict[str, str]:
    """For each question and the verdict, over all pairs of arms: wrong, right, same, or cannot tell."""
    sign = {q: {(a, b): np.sign(round(true[q], 9)) * (arms[int(b)] - arms[int(a)])
                for a, b in {(x.a, x.b) for x in c.answers}} for q in QUESTIONS}

    def one_of(marks: list[str]) -> str:
        return next((m for m in ("wrong", "right", "same") if m in marks), "cannot tell")

    def mark(question: str, a: str, b: str, said: str) -> str:
        if said in ("same", "cannot tell"):
            return said
        better = a if sign[question][a, b] > 0 else b if sign[question][a, b] < 0 else None
        return "right" if said == better else "wrong"

    out = {q: one_of([mark(q, x.a, x.b, x.answer) for x in c.answers if x.question == q]) for q in QUESTIONS}
    out["verdict"] = one_of([mark(v.by, v.a, v.b, v.better) for v in c.verdicts])
    out["any"] = one_of(list(out.values()))
    return out


def cell(pair: str, noise: str, studies: int, key: int, arms: list[int]) -> dict:
    """Many studies of one kind of pair and noise; seeds and kinds of truth take turns."""
    rng = generator(key, Purpose.INIT, PAIRS.index(pair), NOISES.index(noise), len(arms))
    kinds = [*INSIDE, *OUTSIDE]
    counts: dict[str, dict[str, int]] = {q: {} for q in (*QUESTIONS, "verdict", "any")}
    wrong = dict.fromkeys(SEEDS, 0)
    right = dict.fromkeys(SEEDS, 0)
    effects, promised, kept, done = [], 0, 0, 0
    while done < studies:
        seeds, P = SEEDS[done % len(SEEDS)], plant(kinds[done // len(SEEDS) % len(kinds)], rng)
        n = int(rng.choice(list(P.curves)))
        effect = 0.0
        if pair in ("lower", "slower"):
            sd = spread_of(second(P, n, P.curves[n]), noise, rng)
            effect = 2 * detectable_in_comparison(seeds, sd, SHARES[0] / (len(arms) * (len(arms) - 1) // 2))
        both = pair_of(pair, P, n, effect)
        if both is None:
            continue        # twice the detectable effect is more than this truth has to give
        done += 1
        c = study(both, arms, noise, seeds, rng)
        found = judged(c, truths(both), arms)
        for question, said in found.items():
            counts[question][said] = counts[question].get(said, 0) + 1
        wrong[seeds] += found["verdict"] == "wrong"
        right[seeds] += found["equal cost"] == "right"
        effects.append(gap(both))
        stated = c.answer("equal cost", "0", "1")
        if stated.detectable is not None and gap(both) >= 2 * stated.detectable:
            promised, kept = promised + 1, kept + (stated.winner == "0")
    per = studies / len(SEEDS)
    out = {"pair": pair, "noise": noise, "arms": len(arms), "studies": studies,
           **{q: {k: round(v / studies, 4) for k, v in sorted(own.items())} for q, own in counts.items()},
           "verdict wrong by seeds": {str(k): round(v / per, 4) for k, v in wrong.items()}}
    if pair in ("lower", "slower"):
        out |= {"effect": round(float(np.median(effects)), 4),
                "equal cost right by seeds": {str(k): round(v / per, 4) for k, v in right.items()},
                OWN: {"studies": promised, "right": round(kept / max(promised, 1), 4)}}
    return out


def summary(cells: list[dict]) -> dict:
    """The two promises, over all cells and at their worst."""
    def share(c: dict, question: str, said: str) -> float:
        return c[question].get(said, 0.0)

    def pooled(some: list[dict], question: str, said: str) -> float:
        return round(float(np.average([share(c, question, said) for c in some], weights=[c["studies"] for c in some])),
                     4)

    powered = [c for c in cells if c["pair"] in ("lower", "slower")]
    level = [c for c in cells if c["pair"] == "none"]
    return {
        "studies": sum(c["studies"] for c in cells),
        "wrong verdicts": pooled(cells, "verdict", "wrong"),
        "wrong verdicts, no difference in truth": pooled(level, "verdict", "wrong"),
        "wrong anything, no difference in truth": pooled(level, "any", "wrong"),
        "wrong verdicts, worst cell": max(share(c, "verdict", "wrong") for c in cells),
        "wrong anything, worst cell": max(share(c, "any", "wrong") for c in cells),
        "right at equal cost at twice the detectable": pooled(powered, "equal cost", "right"),
        "the same, worst cell": min(share(c, "equal cost", "right") for c in powered),
        "right verdicts at twice the detectable, worst cell": min(share(c, "verdict", "right") for c in powered),
        "right at equal cost at twice what the comparison states itself": round(
            sum(c[OWN]["right"] * c[OWN]["studies"] for c in powered) / max(1, sum(c[OWN]["studies"] for c in powered)),
            4),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--studies", type=int, default=2016)
    parser.add_argument("--key", type=int, default=None)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    key = secrets.randbits(31) if asked.key is None else asked.key
    asks = [(pair, noise, [1, 2]) for pair in PAIRS for noise in (NOISES if pair != "crossing" else NOISES[:1])]
    asks += [(pair, NOISES[0], [1, 2, 2]) for pair in ("none", "lower")]
    cells: list[dict] = []
    for pair, noise, arms in asks:
        cells.append(cell(pair, noise, asked.studies, key, arms))
        print(json.dumps(cells[-1]), flush=True)
    data = {"key": key, "levels": dict(zip(QUESTIONS, SHARES, strict=True)), "summary": summary(cells), "cells": cells}
    asked.out.write_text(json.dumps(data, indent=1) + "\n")
    print(json.dumps(data["summary"], indent=1))
