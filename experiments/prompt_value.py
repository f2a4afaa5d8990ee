"""What a value of prompts is worth, on puzzles that it was not fitted on: a record for docs/evidence.md.

    python experiments/prompt_value.py

V is fitted to pass rates of the built-in base and of a GRPO checkpoint. A second checkpoint, of more rollouts, is given
to it as a context only, and is the strong model. What decides, on 240 problems of another seed: AUROC above 0.75 of a
policy that V was not fitted to, and a lower Brier score than the mean of each kind of problem; expected wrong rollouts
with a right sibling, of 8 rollouts a problem, against equal counts; and accuracy at each share of the strong model
against random routing. Intervals are 90 %, of bootstrap draws of problems.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy import ndarray

import made_with
from isocost.gather import finished
from isocost.methods import v0
from isocost.scorers import prompts
from isocost.steps.prompt_scorer import PROMPTS, across, brier, learn_prompts, pass_rates
from isocost.steps.settings import setting_of
from isocost.types import Problem
from isocost.worlds.setting import open_setting

HOME = Path(__file__).resolve().parents[1]
RECORD, RUNS = HOME / "experiments" / "results" / "prompt_value.json", HOME / "comparisons" / "prompt-value"
PARTS = ("scorers/prompts.py", "steps/prompt_scorer.py", "methods/v0.py", "tasks/builtin")
TRAINED = {"other": ("6k-rollouts", 1), "strong": ("20k-rollouts", 0)}       # by GRPO
POLICIES, FITTED = ("base", *TRAINED), ("base", "other")
TEXTS, EACH, DRAWS, SEED = 32, 8, 2000, 7       # samples of a held-out problem, rollouts a problem, bootstrap draws
SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


def main() -> None:
    """Write the record."""
    made = {"command": "python experiments/prompt_value.py", **values()}
    RECORD.write_text(json.dumps(made, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    made_with.note(RECORD, PARTS)


def checkpoint(name: str) -> Path:
    """The folder of a run of GRPO, which is trained if it has not ended."""
    out, (budget, seed) = RUNS / name, TRAINED[name]
    if not (out / "final").is_dir():
        subprocess.run([sys.executable, "-m", "isocost", "train", "grpo", "--data", "puzzles", "-n", "8", "-B", "16",
                        "--budget", budget, "--seed", str(seed), "--threads", "1", "--lr", "5e-5", "--evaluations", "1",
                        "--out", str(out)], check=True)
    return out / "final"


def values() -> dict[str, Any]:
    """AUROC and Brier score, allocation and routing."""
    folders = {name: str(checkpoint(name)) for name in TRAINED}
    setting = setting_of({"data": "puzzles", "held_out_data": "puzzles:seed=1,count=240"})
    learned = learn_prompts(setting, RUNS / "scorer", PROMPTS, [folders["other"]])
    fitted = prompts.opened(str(RUNS / "scorer"))
    opened = open_setting(setting, learn=False)
    world, train, held = opened.world, opened.sides.train, opened.sides.held_out
    rates, known = {}, dict(zip(FITTED, fitted.rates.values(), strict=True))
    for name in POLICIES:
        own = world if name == "base" else world.other(folders[name])
        asked = replace(PROMPTS, texts=TEXTS, seed=SEED)
        rates[name] = np.array(finished(pass_rates(own, held, setting.measured, asked, 1, lambda *_: None)))
        if name not in known:
            found = finished(pass_rates(own, train, setting.measured, replace(PROMPTS, seed=SEED), 0, lambda *_: None))
            known[name] = torch.tensor(found[: len(fitted.ids)])
    states = prompts.states_of(held, fitted.model, world)
    opened.close()
    kinds, of = [p.meta["kind"] for p in held], {p.id: p.meta["kind"] for p in train}
    context = np.array([of[i] for i in fitted.ids])
    fitted = replace(fitted, rates=known)
    said = {name: {
        "value": np.array(fitted.of(states, name)), "value, context of the base": np.array(fitted.of(states, "base")),
        "mean": np.full(len(held), float(known[name].mean())),
        "mean of its kind": np.array([known[name].numpy()[context == k].mean() for k in kinds]),
    } for name in POLICIES}
    told: dict[str, dict[str, Any]] = {}
    for name, truth in rates.items():
        kind = said[name]["mean of its kind"]

        def less(x: ndarray, truth: ndarray = truth, kind: ndarray = kind) -> dict[str, float]:
            return _less(lambda i: brier(x[i], truth[i]) - brier(kind[i], truth[i]), len(held))

        told[name] = {who: {"auroc": across(x, truth, TEXTS), "brier": brier(x, truth), **less(x)}
                      for who, x in {**said[name], "true rate": truth}.items()}
    return {"problems": len(held), "samples": TEXTS, "fitted_to": list(FITTED),
            "ranked_when_fitted": list(learned.across.values()), "cost": learned.cost,
            "passes": {name: float(r.mean()) for name, r in rates.items()}, "ranks": told,
            "allocation": {name: allocation(held, rates[name], said[name]) for name in POLICIES},
            "routing": routing(rates["base"], rates["strong"], {
                who: said["base"][who] - said["strong"][who] for who in ("value", "mean of its kind")})}


def allocation(held: Sequence[Problem], rates: ndarray, said: Mapping[str, ndarray]) -> dict[str, Any]:
    """U, wrong rollouts with a right sibling, and problems solved, of `EACH` rollouts a problem on average."""
    def counts(p: ndarray, most: int) -> ndarray:
        posed = [replace(x, meta={v0.VALUE: v}) for x, v in zip(held, p.tolist(), strict=True)]
        return np.array(v0.allocate(posed, None, EACH * len(held), most=most))

    def solves(p: ndarray) -> ndarray:
        """Counts by the chance that one more sample is the first right one, at least one each."""
        out, gain = np.ones(len(p), dtype=int), (1 - p) * p
        for _ in range((EACH - 1) * len(p)):
            i = int(gain.argmax())
            out[i], gain[i] = out[i] + 1, gain[i] * (1 - p[i])
        return out

    def judged(n: ndarray, m: ndarray) -> dict[str, Any]:
        useful = np.array([v0.utility(k, p) for k, p in zip(n.tolist(), rates.tolist(), strict=True)]) / EACH
        solved = 1 - (1 - rates) ** m
        equal = np.array([v0.utility(EACH, p) for p in rates.tolist()]) / EACH
        return {"useful": float(useful.mean()), **_less(lambda i: float((useful - equal)[i].mean()), len(rates)),
                "solved": float(solved.mean()), "solved_gain": _less(
                    lambda i: float((solved - 1 + (1 - rates) ** EACH)[i].mean()), len(rates))}

    same = np.full(len(rates), EACH)
    told = {k: said[k] for k in ("value", "mean of its kind")} | {"true rate": rates}
    return {"equal": judged(same, same)} | {
        f"{who}, most {most}": judged(counts(p, most), solves(np.clip(p, 0.01, 0.99)))
        for who, p in told.items() for most in (32, 128)}


def routing(weak: ndarray, strong: ndarray, said: Mapping[str, ndarray]) -> dict[str, Any]:
    """Accuracy at each share of the strong model, and its mean gain over random routing."""
    rng = np.random.default_rng(0)
    order = {who: np.argsort(x + 1e-9 * rng.random(len(x))) for who, x in {**said, "true rate": weak - strong}.items()}

    def accuracy(who: str, share: float, of: ndarray) -> float:
        by = np.zeros(len(weak), dtype=bool)
        by[order[who][: round(share * len(weak))]] = True
        return float(np.where(by, strong, weak)[of].mean() - by[of].mean() * strong[of].mean() - (
            1 - by[of].mean()) * weak[of].mean())

    every = np.arange(len(weak))
    return {"weak": float(weak.mean()), "strong": float(strong.mean()), "gain over random": {
        who: {"by share": [accuracy(who, s, every) for s in SHARES],
              **_less(lambda i, who=who: float(np.mean([accuracy(who, s, i) for s in SHARES])), len(weak), 500)}
        for who in order}}


def _less(of: Callable[[ndarray], float], count: int, draws: int = DRAWS) -> dict[str, float]:
    """A difference with its interval."""
    rng = np.random.default_rng(0)
    found = [of(rng.integers(count, size=count)) for _ in range(draws)]
    return {"difference": of(np.arange(count)), "low": float(np.quantile(found, 0.05)),
            "high": float(np.quantile(found, 0.95))}


if __name__ == "__main__":
    main()
