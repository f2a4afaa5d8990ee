"""One run outside a study, and one run's policy measured again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from math import sqrt
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from scipy.special import stdtrit

from isocost import record as records
from isocost.errors import Interrupted, UserError
from isocost.laws.budget import Budget
from isocost.laws.pilot import points, warmup
from isocost.laws.rate import starting_rule
from isocost.record import read_json, write_json
from isocost.run import EVALUATION_SEED, Job, recipe_of
from isocost.setting import Setting
from isocost.study import tell

LEVEL = 0.9


def train_one(
    method: str,
    console: Console,
    *,
    setting: Setting,
    out: Path | None,
    budget: str | None,
    seed: int,
    rollouts: int,
    groups: int,
    lr: float | None,
    sets: tuple[str, ...],
    evaluations: int,
    save_every: int,
    dry_run: bool,
    quiet: bool,
) -> int:
    """Train one method on one setting, in `out`, with a live line per evaluation. Returns the command's exit code."""
    if budget is None:
        raise UserError(
            "a run needs a --budget with a unit, such as 20k-rollouts, 2M-tokens, 1e15flop or 30min"
        )
    size = rollouts * groups
    spend = Budget.parse(budget)
    lr = lr if lr is not None else starting_rule(parameters_of(setting.model)).at(size)
    steps = int(spend.amount // size) if spend.unit == "rollouts" else 0
    job = Job(
        name=out.name if out else f"{Path(method).stem}-{seed}",
        setting=setting,
        method=method,
        seed=seed,
        budget={{"flops": "flop"}.get(spend.unit, spend.unit): spend.amount},
        n=rollouts,
        B=groups,
        lr=lr,
        warmup=warmup(steps) if steps else 0,
        sets=_sets(sets),
        save_every=save_every,
        export=True,
        points=_points(spend, size, evaluations),
    )
    recipe_of(job)  # a mistake in the recipe is told before anything is opened
    tell.single(console, job)
    if dry_run:
        return 0
    return _go(job, out or Path("runs") / job.name, console, quiet)


def parameters_of(model: str) -> int:
    """How many numbers a model learns. Loads it."""
    from isocost.local.weights import load

    return sum(w.numel() for w in load(model).weights.values())


def _sets(pairs: tuple[str, ...]) -> Mapping[str, str]:
    for pair in pairs:
        if "=" not in pair:
            raise UserError(f"--set {pair!r} has no value; write SEAM.NAME=VALUE, such as loss.high=0.28")
    return dict(pair.split("=", 1) for pair in pairs)


def _points(spend: Budget, size: int, evaluations: int) -> tuple[float, ...]:
    """Evaluation points in rollouts, log-spaced; doubling from the first update where the budget is in another unit."""
    if spend.unit != "rollouts":
        return tuple(float(size * 2**k) for k in range(24))[:: max(1, 24 // max(evaluations, 1))]
    every = points(int(spend.amount), size, 2)
    keep = np.unique(np.linspace(0, len(every) - 1, min(evaluations, len(every))).round().astype(int))
    return tuple(float(every[i]) for i in keep)


def _go(job: Job, out: Path, console: Console, quiet: bool) -> int:
    from isocost.run import run

    def on_step(line: Mapping[str, Any]) -> None:
        if "eval/select" in line:
            both = (line["eval/select"] + line["eval/audit"]) / 2
            console.print(f"  {line['rollouts']:>9} rollouts  step {line['step']:>6}  held-out {both:.4f}")

    end = asyncio.run(run(job, out, on_step=on_step))
    if end["reason"] == "interrupted":
        raise Interrupted(end["signal"])
    tell.ended(console, out, end)
    if quiet:
        click.echo(json.dumps(end, indent=1, sort_keys=True))
    return 0 if end["reason"] == "spent" else 5


def evaluate_run(
    run: Path, *, samples: int, data: str | None, base: bool, quiet: bool, console: Console
) -> int:
    """Pass@1 of a run's final policy on its held-out problems, or on others, with its interval over problems.

    With `base`, the policy it began from too, on the same problems with the same random numbers, and the difference
    paired by problem. Raises UserError if the run has no final policy.
    """
    record = read_json(run / "run.json")
    if not (run / "final").is_dir():
        raise UserError(
            f"{run} has no final policy: it did not end, or is a pilot's (only trained runs are exported)"
        )
    setting = Setting.of(record["job"]["setting"])
    after = _measured(setting, str(run / "final"), data, samples)
    found: dict[str, Any] = {
        "schema": records.SCHEMA,
        "run": str(run),
        "problems": len(after),
        "final": _mean(after),
    }
    if base:
        before = _measured(setting, setting.model, data, samples)
        found |= {"base": _mean(before), "difference": _mean(after - before)}
    write_json(run / "eval.json", found)
    tell.evaluated(console, found)
    if quiet:
        click.echo(json.dumps(found, indent=1, sort_keys=True))
    return 0


def _measured(setting: Setting, model: str, data: str | None, samples: int) -> np.ndarray:
    """(P,) pass rates."""
    from dataclasses import replace

    from isocost import methods
    from isocost.evaluate import evaluate
    from isocost.seams import Pace
    from isocost.setting import open_setting
    from isocost.types import Sampling

    opened = open_setting(replace(setting, model=model, held_out_data=data or setting.held_out_data))
    pace = Pace(
        lr=0.0,
        max_tokens=setting.max_tokens,
        sampling=Sampling(setting.temperature, setting.top_p, setting.top_k),
    )
    both = (*opened.sides.select, *opened.sides.audit)
    found = asyncio.run(
        evaluate(
            methods.load("reinforce").recipe(),
            opened.world,
            both,
            pace,
            samples=samples,
            seed=EVALUATION_SEED,
        )
    )
    return found.right


def _mean(x: np.ndarray) -> dict[str, float]:
    """Mean over problems with its Student interval."""
    good = x[~np.isnan(x)]
    half = float(stdtrit(len(good) - 1, (1 + LEVEL) / 2) * good.std(ddof=1) / sqrt(len(good)))
    return {
        "value": float(good.mean()),
        "low": float(good.mean() - half),
        "high": float(good.mean() + half),
        "level": LEVEL,
        "problems": len(good),
    }
