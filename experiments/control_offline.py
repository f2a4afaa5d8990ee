"""How often is a plan of offline updates and samples made, and is it right? Simulated studies with a planted law.

    python experiments/control_offline.py --studies 100 --out experiments/results/control_offline.json

Each study has four numbers of offline updates, a factor of 2 apart, five seeds, 16 evaluations a run, and a truth of
its own: samples to the return are floor + scale exp(-U / u), u 0.25 to 1 of the most U, the floor 0.1 to 0.4 of 900,
spread between seeds 0.05 to 0.25, price such that the cheapest U lies within the grid. The record has the share of
studies without a prescription, with the reasons; and of the others the shares in which five new seeds hit the forecast,
the interval of the cheapest U has the true one, and the mean of cost of the prescribed U over the least one.

`maze` are the plans and audits of real studies of WSRL, whose folders follow --real.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import made_with
from isocost.errors import UserError
from isocost.laws.value_fit import ControlPrice, ReturnCurve, fit_control
from isocost.planner.control.outcome import PRESCRIBED, audit_control, runs_to_train, seal_control
from isocost.planner.control.pilot import ControlRunPlan, plan_control_pilot
from isocost.planner.control.prescribe import Wish, prescribe_control
from isocost.runs.arm import Arm
from isocost.runs.files import read_json
from truth.control import OfflineLaw, PlantedControl

GRID, LENGTH, SEEDS, POINTS = (400, 800, 1600, 3200), 1000, 5, 16
UNIT = 1000.0       # offline updates, in the place of sigma of the planted law
CENTRE = Arm(sigma=2.0, batch=64, rate=1e-3)


def study(seed: int) -> dict[str, Any]:
    """One study: why nothing was prescribed, or the outcome of the prescription."""
    rng = np.random.default_rng([seed, 38])
    fold, share, most = GRID[-1] / UNIT * rng.uniform(0.25, 1.0), rng.uniform(0.1, 0.4), 900.0
    law = OfflineLaw(share * most, (1 - share) * most, fold)
    truth = PlantedControl(law, (64, 0.0), (1e-3, 0.0), spread=rng.uniform(0.05, 0.25), noise=0.005, points=POINTS)
    cheapest = float(np.exp(rng.uniform(np.log(GRID[0]) + 0.2, np.log(GRID[-1]) - 0.2)))
    first = (float(law(cheapest / UNIT)) - law.floor) / fold / UNIT     # of a sample's price, where d cost / d U = 0
    price = ControlPrice(1.0, 0.0, 0.0, "samples", first)

    def run(of: ControlRunPlan) -> ReturnCurve:
        at = Arm(sigma=of.arm["offline"] / UNIT, batch=64, rate=1e-3)
        return replace(truth.run(at, of.seed, of.samples, rng), arm=of.arm, run=of.name)

    pilot = plan_control_pilot(CENTRE, LENGTH, price, None, sigmas=GRID, seeds=SEEDS)
    curves = [run(r) for r in pilot.runs]
    try:
        plan = prescribe_control(curves, Wish(price, truth.wanted, seeds=SEEDS))
    except UserError as why:
        return {"refused": str(why)}
    if plan.refused or plan.sigma is None:
        return {"refused": plan.refused}
    spread = fit_control(curves, truth.wanted).between(plan.arm["offline"])
    forecast = seal_control(plan, spread, {})
    new = [run(r) for r in runs_to_train(plan)[PRESCRIBED]]
    verdict = audit_control(forecast, new, dict.fromkeys((c.run for c in new), forecast.seal)).verdict
    cost = [u * first + float(law(u / UNIT)) for u in (plan.arm["offline"], cheapest)]
    return {"refused": "", "verdict": verdict, "held": bool(plan.sigma.holds(cheapest)), "cost": cost[0] / cost[1]}


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The record of the redraws."""
    made = [r for r in rows if not r["refused"]]
    return {"studies": len(rows), "prescribed": len(made), "verdicts": dict(Counter(r["verdict"] for r in made)),
            "cheapest_held": float(np.mean([r["held"] for r in made])),
            "cost_over_least": float(np.mean([r["cost"] for r in made])),
            "reasons": dict(Counter(next((w for w in ("beyond", "apart", "fall") if w in r["refused"]), r["refused"])
                                    for r in rows if r["refused"]))}


def real(folder: Path) -> dict[str, Any]:
    """What a real study planned, forecast and found."""
    plan, about = read_json(folder / "plan.json"), read_json(folder / "study.json")
    out = {"task": about["task"], "seed": about["seed"], "wanted": plan["wanted"], "arm": plan["arm"],
           "offline": plan["sigma"], "arrival": plan["arrival"], "refused": plan["refused"]}
    if (folder / "audit.json").exists():
        found = read_json(folder / "audit.json")
        out |= {k: found[k] for k in ("verdict", "reason", "seal", "arms")}
    return out


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--studies", type=int, default=100)
    parser.add_argument("--real", type=Path, nargs="*", default=[])
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    found = {"command": f"python experiments/control_offline.py --studies {asked.studies}",
             "planted": summary([study(i) for i in range(asked.studies)]), "maze": [real(f) for f in asked.real]}
    text = json.dumps(found, indent=1)
    print(text)
    if asked.out:
        asked.out.write_text(text + "\n", encoding="utf-8")
        made_with.note(asked.out, ("laws/value_fit.py",))


if __name__ == "__main__":
    main()
