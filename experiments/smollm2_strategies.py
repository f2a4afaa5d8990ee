"""SmolLM2-135M-Instruct on two tasks of reasoning-gym: is the accuracy at four times the profiled samples as forecast?

    python -m experiments.smollm2_strategies seal     profiles one, best-of and vote, plans at four times the samples
    python -m experiments.smollm2_strategies audit    samples the test split so often, and judges what was sealed

The verifier is the scorer, so best-of-n is pass@n. A problem has 8 samples in the profile, of at most 20 tokens; the
plan is for 32 samples an answer, and the samples of the audit are new ones. With `.[smollm2]` and `.[reasoning-gym]`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from isocost import scorers
from isocost.disk.jsonfile import read_json, write_json
from isocost.errors import UserError
from isocost.gather import finished
from isocost.planner.test_time.mixture import FURTHEST
from isocost.planner.test_time.outcome import outcome
from isocost.planner.test_time.pool import Pool
from isocost.planner.test_time.prescribe import StrategyForecasts
from isocost.screen.words import visible
from isocost.steps.settings import setting_of
from isocost.steps.study import StudyRecord
from isocost.steps.test_time.plan import StrategyOptions, plan
from isocost.steps.test_time.profile import EXACT, Compared, parts_of, profile_live
from isocost.steps.test_time.sampling import PoolSampler
from isocost.tasks.sample import sample
from isocost.worlds.setting import open_setting

KEPT = Path(__file__).resolve().parent / "results" / "smollm2_strategies.json"
STUDIES = Path("studies") / "smollm2-strategies"
TASKS = {"chain_sum": "chain_sum:min_terms=2,max_terms=2,min_digits=1,max_digits=2,size=400",
         "gcd": "gcd:min_numbers=2,max_numbers=2,max_value=30,size=400"}
HOW = {"model": "smollm2", "verifier": "numeric", "temperature": 0.7, "max_tokens": 20, "held_out": 0.35, "threads": 2}
PROBLEMS, SAMPLES, AGAIN = 60, 8, 1     # half of the problems are the test split; the seed of the audit's samples


def seal() -> None:
    """Profile and plan every task, and keep the forecasts. Raises UserError where they are kept."""
    if KEPT.exists():
        raise UserError(f"{KEPT.name} is sealed already")
    kept: dict[str, Any] = {}
    for name, spec in TASKS.items():
        out = STUDIES / name
        made = profile_live(out, setting_of({**HOW, "data": f"reasoning-gym:{spec}"}), Compared(
            ["best-of", "vote"], problems=PROBLEMS, samples=SAMPLES, probe=0, bands=1))
        planned = plan(StudyRecord.read(out), StrategyOptions(budget=f"{FURTHEST * SAMPLES}-rollouts/answer"))
        kept[name] = {
            "data": spec, "problems": made.table.problems, "samples": SAMPLES, "cost": asdict(made.table.cost or ()),
            "accuracy": {f"{r.strategy}-{r.size}": round(r.accuracy, 4) for r in made.table.rows},
            "plan": planned.heading, "forecast": StudyRecord.read(out).record("forecast.json", "plan")}
        write_json(KEPT, kept)


def audit() -> None:
    """Sample the test split at the planned size, and keep the verdicts. Raises UserError before `seal`."""
    if not KEPT.exists():
        raise UserError("nothing is sealed: python -m experiments.smollm2_strategies seal")
    kept = read_json(KEPT)
    for name in TASKS:
        study = StudyRecord.read(STUDIES / name)
        split, opened = parts_of(study), open_setting(study.setting, learn=False)
        try:
            ids = set(split.audit.ids)
            some = [p for p in sample(opened.sides.held_out, PROBLEMS, study.asked["seed"]) if p.id in ids]
            work = PoolSampler(opened, some, AGAIN, lambda *a: None)
            lines = finished(work.pool(study.path / "audit-pool.jsonl", FURTHEST * SAMPLES, scorers.parse(EXACT)))
        finally:
            opened.close()
        (sealed,) = StrategyForecasts.of(kept[name]["forecast"]).forecasts
        found = outcome(sealed, replace(split, audit=Pool.read_lines(lines, exact=True)), study.asked["seed"])
        kept[name]["outcome"] = {
            "verdict": found.verdict, "reason": found.reason, "accuracy": found.outcome,
            "one sample": float(sum(sum(x["right"]) for x in lines) / (len(lines) * FURTHEST * SAMPLES)),
            "problems": len(lines), "tokens": int(sum(sum(x["tokens"]) for x in lines))}
        write_json(KEPT, kept)
        print(visible(f"{name}: {found.verdict}, {found.reason}"))


def main(arguments: Sequence[str]) -> int:
    """One of the steps; returns the exit code."""
    steps = {"seal": seal, "audit": audit}
    if len(arguments) != 1 or arguments[0] not in steps:
        raise UserError("say `seal` or `audit`")
    steps[arguments[0]]()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
