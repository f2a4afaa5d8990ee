"""What a prescription gives away, on studies that are drawn from real sweeps of n and of the learning rate.

    python experiments/sweeps_judge.py            every situation of results/sweeps, into results/sweeps/judged.json
    python experiments/sweeps_judge.py --again    judges the choices of the last run again, in seconds

A *situation* is a model, its problems and the sizes of a study: B, the length of a pilot run, and three budgets of up
to four times that length. It was swept over n and over multiples of the starting rule of the learning rate, with paired
seeds, to its largest budget (`sweeps.py`, commit 3dc66dd6). The rate is constant after the warm-up, which is that of a
run as long as the pilot's, so a shorter run is the beginning of a longer one. `cpu` are CPU seconds of a run, without
evaluations.

A study is drawn by giving each n three of a situation's seeds for its pilot, whose length, rounds and rate check are
those of a user's study (`planner.focus`); the learning-rate probe is left out, so multiplier 1 is the sweep's rule.
Its law is fitted and its n and rate are prescribed for each budget, in rollouts and in CPU seconds, by the functions
that `isocost plan` calls. The truth is the mean held-out reward of all seeds of the sweep, on the test split.

Two tables. *The choice of n*: the shortfall of each n from the best n, all at the prescribed rate: of `ours`; of `end`,
the best n at the end of a pilot of the same cost with equal runs of every n; of `n8` and `n16`; of `oracle`, the law's
choice from the pilots of all seeds. *What the user gets* (`_whole`): the shortfall from the best n and rate of the
sweep, of the prescribed n at the prescribed rate and of the others at the rule's rate, which is all that they know.
`rate_lost` is the shortfall of the prescribed rate from the best rate at that n, and `fell` the share of the runs at
the prescribed n and rate that end below their reward at the pilot's end by a tenth.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from isocost.laws.curves import Curve
from isocost.laws.fit import fit_law
from isocost.planner.budget import MEASURED, UNTIMED, Budget, Timing
from isocost.planner.training.afford import plan_pilot
from isocost.planner.training.builtin import PRESETS
from isocost.planner.training.focus import focused
from isocost.planner.training.learning_rate import RateRule
from isocost.planner.training.pilot import PilotPlan
from isocost.planner.training.prescribe import prescribe
from isocost.planner.training.standing import means
from isocost.planner.training.study_runs import PlannedRun, Preset
from isocost.runs.arm import Arm
from isocost.steps.training.limits import of_limit

OUT = Path(__file__).resolve().parent / "results" / "sweeps"
SITUATIONS = ("level1", "level2", "hard", "worked", "digits4", "digits6", "desk")
CHECKED = (0.5, 1.0, 2.0)       # multiples of the rule's rate that a pilot checks
STUDIES, SEEDS, GRID = 40, 3, (2, 4, 8, 16, 32)
TRAINED = 24    # seeds of training: enough that no budget makes the pilot shorter
CURRENCIES = ("rollouts", "seconds")
FELL = 0.1      # reward below that at the pilot's end from which on a run has fallen
RULES = ("ours", "end", "n8", "n16", "oracle")
CHOICES = "choices.json"        # what each drawn study prescribed


@dataclass(frozen=True)
class Situation:
    """The sizes of a sweep's studies. `pilot` and `budgets` are rollouts per run."""

    ns: Sequence[int]
    B: int
    pilot: int
    budgets: Sequence[int]
    rates: Sequence[float]


@dataclass(frozen=True, eq=False)
class Sweep:
    """A situation's record."""

    name: str
    data: dict[str, Any]

    @staticmethod
    def read(name: str) -> Sweep:
        return Sweep(name, json.loads((OUT / f"{name}.json").read_text()))

    @cached_property
    def situation(self) -> Situation:
        return Situation(*(self.data["situation"][f.name] for f in fields(Situation)))

    @cached_property
    def runs(self) -> dict[tuple[int, float], dict[int, dict[str, Any]]]:
        out: dict[tuple[int, float], dict[int, dict[str, Any]]] = {}
        for r in self.data["runs"]:
            out.setdefault((r["n"], r["multiplier"]), {})[r["index"]] = r
        return out

    @cached_property
    def grid(self) -> tuple[int, ...]:
        return tuple(n for n in self.situation.ns if n in GRID)

    def curve(self, run: PlannedRun, index: int) -> Curve:
        """A planned run as the sweep's run of this seed, up to its length."""
        r = self.runs[run.n, run.multiplier][index]
        C = np.array(r["C"], dtype=float)
        kept = C <= run.C
        unknown = np.full(kept.sum(), np.nan)
        return Curve(run.name, Arm(n=run.n, B=run.B, lr=r["lr"], multiplier=run.multiplier), r["seed"], C[kept],
                     np.array(r["select"])[kept], np.array(r["audit"])[kept], unknown, unknown, purpose=run.purpose)

    def truth(self, n: int, rate: float, C: float) -> float:
        """The mean reward of all seeds after C rollouts."""
        return float(np.mean([self.at(r, C) for r in self.runs[n, rate].values()]))

    def at(self, r: dict[str, Any], C: float) -> float:
        """A run's reward after C rollouts, linear in ln C between its evaluations."""
        own = np.array(r["C"], dtype=float)
        return float(np.interp(np.log(C), np.log(np.maximum(own, 1.0)), r["audit"]))

    @cached_property
    def timing(self) -> Timing:
        """CPU seconds by n: those of an update, and of each of its rollouts."""
        s = self.situation
        ns = np.array(self.grid)
        each = np.array([np.median([r["cpu"] for r in self.runs[n, 1.0].values()]) for n in ns]) / max(s.budgets)
        sizes = np.column_stack([1 / (ns * s.B), np.ones(len(ns))])
        update, rollout = np.maximum(np.linalg.lstsq(sizes, each, rcond=None)[0], 0.0)
        return Timing(float(update), 0.0, float(rollout), 0.0, f"{MEASURED} in the sweep")


def planned(sweep: Sweep, C: int, currency: str, rounds: bool = True) -> PilotPlan:
    """A quick pilot of this situation, and a budget that pays for two arms of C rollouts; in seconds, at n = 16."""
    s = sweep.situation
    length = int(lengths(sweep, currency, C)[8])
    PRESETS[sweep.name] = Preset(sweep.grid, s.B, s.pilot, SEEDS, s.pilot // 4, 1, 1, length, TRAINED)
    timing = sweep.timing if currency == "seconds" else UNTIMED
    profile = {"cost": {"rollouts": 1, "prefill": 1, "decode": 1}, "problems": 1, "samples": 1, "exact": True,
               "select": 64, "audit": 64, "parameters": None}
    rate = RateRule(**{k: v for k, v in sweep.data["rule"].items() if k in ("lr0", "reference", "exponent")})
    pilot = plan_pilot(profile, preset=sweep.name, rate=rate, timing=timing, rounds=rounds)
    if currency == "rollouts":
        return pilot
    cost = timing.per_rollout(16, s.B) * C
    return replace(pilot, budget=Budget(pilot.pilot_bill.seconds + 2 * TRAINED * cost, currency, ""))


def drawn(sweep: Sweep, pilot: PilotPlan, seeds: dict[int, Any]) -> tuple[PilotPlan, list[Curve]]:
    """The pilot to its end, each n with its own seeds."""
    while True:
        runs = [r for r in pilot.runs if r.purpose != "probe"]
        seen = [sweep.curve(r, int(seeds[r.n][r.index])) for r in runs]
        if not pilot.reserve:
            return pilot, seen
        pilot = focused(pilot, seen)


def study(task: tuple[str, int]) -> dict[str, Any]:
    """One drawn study: for each currency and budget the choices of n, and the prescribed rate."""
    name, number = task
    sweep = Sweep.read(name)
    s = sweep.situation
    rng = np.random.default_rng([31, SITUATIONS.index(name), number])
    every = {n: sorted(set.intersection(*(set(sweep.runs[n, x]) for x in CHECKED))) for n in sweep.grid}
    seeds = {n: rng.permutation(every[n]) for n in sweep.grid}
    out: dict[str, Any] = {"situation": name, "number": number, "cells": {}}
    for currency in CURRENCIES:
        for C in s.budgets:
            pilot, seen = drawn(sweep, planned(sweep, C, currency), seeds)
            placed = of_limit(seen, pilot)
            law = fit_law(placed, seed=number)
            rule = RateRule(1.0, 256, measured=True)
            plan = prescribe(law, rule, pilot.budget, pilot.timing, pilot=pilot, curves=placed, spent=pilot.pilot_bill)
            _, even = drawn(sweep, planned(sweep, C, currency, rounds=False), seeds)
            each = {n: 1.0 if currency == "rollouts" else sweep.timing.per_rollout(n, plan.arm.B) for n in sweep.grid}
            at = means([c for c in even if c.purpose == "pilot"], each)
            out["cells"][f"{currency} {C}"] = {
                "ours": plan.arm.n, "end": max(at, key=lambda n: (at[n], -n)), "rate": pilot.rate_of(plan.arm.n),
                "identified": law.refused is None, "risk": round(plan.risk.reward, 4) if plan.risk else None}
    return out


def lengths(sweep: Sweep, currency: str, C: int) -> dict[int, float]:
    """n -> the rollouts that cost as much as C of n = 16, at most those of the sweep."""
    each = {n: sweep.timing.per_rollout(n, sweep.situation.B) for n in sweep.grid}
    most = float(max(sweep.situation.budgets))
    return {n: float(C) if currency == "rollouts" else min(most, C * each[16] / each[n]) for n in sweep.grid}


def judged(sweep: Sweep, cell: str, row: dict[str, Any]) -> dict[str, Any]:
    """The shortfalls of the choices of one study at one budget."""
    currency, C = cell.split()
    own, s, x = lengths(sweep, currency, int(C)), sweep.situation, row["rate"]
    reward = {(n, r): sweep.truth(n, r, own[n]) for n in sweep.grid for r in s.rates}
    best, most = max(reward[n, x] for n in sweep.grid), max(reward.values())
    chosen = {**{k: row[k] for k in ("ours", "end", "oracle")}, "n8": 8, "n16": 16}
    n = row["ours"]
    fell = [sweep.at(r, own[n]) < sweep.at(r, s.pilot) - FELL for r in sweep.runs[n, x].values()]
    return {"n": n, "rate": x, "identified": row["identified"], "fell": float(np.mean(fell)),
            **{k: best - reward[chosen[k], x] for k in RULES},
            **{f"{k}_whole": most - reward[chosen[k], x if k == "ours" else 1.0] for k in RULES},
            "rate_lost": max(reward[n, r] for r in s.rates) - reward[n, x]}


def oracle(name: str) -> dict[str, int]:
    """For each currency and budget, the law's choice of n from the pilots of every seed."""
    sweep, out = Sweep.read(name), {}
    for currency in CURRENCIES:
        for C in sweep.situation.budgets:
            pilot = planned(sweep, C, currency, rounds=False)
            arm = [r for r in pilot.of_purpose("pilot") if r.index == 0]
            law = fit_law([replace(sweep.curve(r, i), run=f"{r.name}-{i}") for r in arm
                           for i in sweep.runs[r.n, 1.0]])
            own = lengths(sweep, currency, C)
            out[f"{currency} {C}"] = max(law.ns, key=lambda n: float(law.paths(n, np.array([own[n]]), 0).mean()))
    return out


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Of some judged prescriptions: the mean and the 90th percentile of each shortfall, and counts."""
    keys = (*RULES, *(f"{k}_whole" for k in RULES), "rate_lost")
    out: dict[str, Any] = {k: [round(float(np.mean([r[k] for r in rows])), 4),
                               round(float(np.quantile([r[k] for r in rows], 0.9)), 4)] for k in keys}
    return out | {"fell": round(float(np.mean([r["fell"] for r in rows])), 4), "studies": len(rows),
                  "identified": round(float(np.mean([r["identified"] for r in rows])), 3),
                  "n": {str(n): k for n in GRID if (k := sum(r["n"] == n for r in rows))},
                  "rates": {f"{x:g}": k for x in (0.5, 1.0, 2.0) if (k := sum(r["rate"] == x for r in rows))}}


def choices(names: list[str], studies: int, workers: int) -> list[dict[str, Any]]:
    """What every drawn study prescribes, with the oracle's choice in each cell."""
    with ProcessPoolExecutor(workers) as pool:
        known = dict(zip(names, pool.map(oracle, names), strict=True))
        found = list(pool.map(study, [(name, k) for name in names for k in range(studies)], chunksize=2))
    for f in found:
        for cell, row in f["cells"].items():
            row["oracle"] = known[f["situation"]][cell]
    return found


def main(found: list[dict[str, Any]], out: Path) -> None:
    kept: dict[str, Any] = {"situations": {}}
    every = []
    for name in sorted({f["situation"] for f in found}, key=SITUATIONS.index):
        sweep, own = Sweep.read(name), [f["cells"] for f in found if f["situation"] == name]
        rows = {cell: [judged(sweep, cell, f[cell]) for f in own] for cell in own[0]}
        together = [r for cell in rows.values() for r in cell]
        kept["situations"][name] = {**{cell: summary(r) for cell, r in rows.items()}, "all": summary(together)}
        every += together
        for cell, row in kept["situations"][name].items():
            print(name, cell, *(f"{k} {v}" for k, v in row.items()))
    kept["all"] = summary(every)
    out.write_text(json.dumps(kept, indent=1) + "\n")
    print(kept["all"])


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--situations", nargs="+", default=list(SITUATIONS))
    options.add_argument("--studies", type=int, default=STUDIES)
    options.add_argument("--workers", type=int, default=2)
    options.add_argument("--again", action="store_true", help=f"judge the choices in {CHOICES} again")
    options.add_argument("--out", type=Path, default=OUT)
    asked = options.parse_args()
    if not asked.again:
        made = choices(asked.situations, asked.studies, asked.workers)
        (asked.out / CHOICES).write_text(json.dumps(made) + "\n")
    main(json.loads((asked.out / CHOICES).read_text()), asked.out / "judged.json")
