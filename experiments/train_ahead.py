"""The part `foretell` of experiments/train_or_infer.py: forecasts of trained policies, as if they were not trained."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.train_or_infer import (
    ALPHA,
    BUDGETS,
    HOME,
    KEPT,
    LARGEST,
    PILOT,
    RATES,
    RUNS,
    SIZES,
    WANTED,
    accuracy,
    pool,
    run_isocost,
    trained,
    votes,
)
from isocost.disk.jsonfile import read_json, write_json
from isocost.planner.frontier import Pair, PolicyFrontier
from isocost.planner.test_time.estimates import Measured
from isocost.planner.test_time.foretold import Foretold
from isocost.planner.test_time.policies import SharedGoal
from isocost.planner.test_time.prescribe import candidates
from isocost.stats.intervals import Interval
from isocost.steps.study import StudyRecord
from isocost.steps.test_time.profile import StrategyProfile, parts_of

WAYS = [(kind, n) for kind in WANTED for n in SIZES[1:] if (kind, n) != ("vote", 2)]     # which is one sample
LAWFUL = HOME / "experiments" / "results" / "tutorial"
LAW_DATA, LAW_RATE = "sums:level=1", 1e-4


def foretell() -> None:
    """Forecast policies that were trained, and keep forecasts and measurements in the record: GRPO's largest budget
    from the other two, of the sealed seeds at their rates and of each rate of the pilot; and the tutorial's plan."""
    record, base = read_json(KEPT), _with_votes([pool(None)])
    lines = {"sealed seeds": [record["policies"][f"grpo-{b}"] for b in BUDGETS]}
    for rate in RATES:
        lines[f"pilot, {rate:g}"] = [_with_votes([pool(trained("grpo", b, PILOT[0], rate))]) for b in BUDGETS]
    found = {name: _held_out(base, own) for name, own in lines.items()} | {"tutorial, its law": _by_law()}
    write_json(KEPT, read_json(KEPT) | {"foretold": found})


def _with_votes(pools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {"right": [p["right"] for p in pools], "vote": votes(pools)}


def _held_out(base: Mapping[str, Any], line: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The last policy of a line from the base and the others, with its own accuracy of one sample for that of a law."""
    found = [Measured(kind, n, x.mean(0), *[np.ones(x.shape[1])] * 2, 1.0, arm=name, runs=x)
             for name, of in zip(("", *BUDGETS), (base, *line), strict=True) for kind, n in (("one", 1), *WAYS)
             for x in [accuracy(of, "best-of 1" if n == 1 else f"{kind} {n}")]]
    one, first = (next(float(m.accuracy.mean()) for m in found if (m.arm, m.size) == (arm, 1)) for arm in (LARGEST, ""))
    law = Foretold("", Interval(one, one, one, 1 - 2 * ALPHA, "prediction", 10), first, 1.0, tuple(BUDGETS)[:2])
    return _compared(law, [m for m in found if m.arm != LARGEST], [m for m in found if m.arm == LARGEST])


def _by_law() -> list[dict[str, Any]]:
    """The plan of the tutorial's study by its law, along runs of two shorter lengths, and two runs of its own length,
    with the commands of a user."""
    home, plan = RUNS / "law", read_json(LAWFUL / "plan.json")["arm"]
    (home / "s").mkdir(parents=True, exist_ok=True)
    for name in ("study", "profile", "plan", "law"):
        shutil.copy(LAWFUL / f"{name}.json", home / "s")
    method = StudyRecord(home / "s").method
    found = dict[str, list[Measured]]()
    for part, lengths, more in (("ahead", (6000, 24000), [home / "s"]), ("after", (plan["C"],), [])):
        runs = [home / f"{many}-{seed}" for many in lengths for seed in (0, 1)]
        for run in runs:
            many, seed = run.name.split("-")
            if not (run / "final").is_dir():
                run_isocost("train", method, "-n", plan["n"], "-B", plan["B"], "--lr", LAW_RATE, "--threads", 1,
                            "--budget", f"{many}-rollouts", "--seed", seed, "--data", LAW_DATA, "--out", run)
        if not (home / part / "profile.json").is_file():
            run_isocost("profile", "--strategies", "best-of,vote", "--checkpoints", ",".join(map(str, [*runs, *more])),
                        "--data", LAW_DATA, "--out", home / part)
        study = StudyRecord(home / part)
        goal = SharedGoal.shared(1e6, None, None, None, StrategyProfile.read(study).table.policies)
        found[part] = candidates(parts_of(study), study.asked["strategies"], goal, 0)
    law = Foretold.of(StudyRecord(home / "ahead").asked["foretold"][0])
    return _compared(law, found["ahead"], [m for m in found["after"] if m.arm])


def _compared(law: Foretold, found: Sequence[Measured], after: Sequence[Measured]) -> list[dict[str, Any]]:
    """For each of `WAYS`, the gain over the base as foretold and as measured `after`."""
    base, truth = ({(m.strategy, m.size): m for m in own if not m.arm or own is after} for own in (found, after))
    out = []
    for m in law.measured(found, 0)[0]:
        if (way := (m.strategy, m.size)) in WAYS and m.runs is not None:
            made = PolicyFrontier([
                Pair(policy="a", strategy="", training=1.0, answer=1.0, right=m.runs, foretold=True),
                Pair(policy="base", strategy="", training=0.0, answer=1.0, right=base[way].accuracy[None])])
            low, high = np.quantile(made.drawn[0] - made.drawn[1], [ALPHA, 1 - ALPHA])
            first = float(base[way].accuracy.mean())
            out.append({"strategy": "{} {}".format(*way), "value": float(m.accuracy.mean()) - first, "low": float(low),
                        "high": float(high), "measured": float(truth[way].accuracy.mean()) - first})
    return out
