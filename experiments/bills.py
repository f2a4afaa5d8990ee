"""Whether the forecast bill holds: each trained run of whole studies, forecast from the runs of its study's pilot.

    python experiments/bills.py FOLDER [FOLDER ...] --out experiments/results/bills.json

Each FOLDER holds studies (`isocost quickstart`, `experiments/quickstart_seeds.py --home FOLDER`). Runs that were
trained are never used to forecast. Every second study, in order of name, calibrates `planner.bill.SPREAD`; the others
are judged. Where studies of several folders are the same seed and code wrote the same bytes, tokens, FLOP and steps are
counted once.

    python experiments/bills.py --make FOLDER

runs short agents in FOLDER/desk-0 and FOLDER/desk-1, which are then two more studies: 12 runs of 64 rollouts forecast
72 of 192 rollouts.

The sweeps in experiments/results/sweeps record the CPU seconds and environment steps of each run: with `--sweeps` a
run of seeds 2 to 5 is forecast from those of seeds 0 and 1, which are as long.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Iterator, Mapping
from math import log
from pathlib import Path
from typing import Any

from isocost.planner.bill import (
    ALL,
    ENVIRONMENT,
    EVALUATIONS,
    RUNS,
    TIMES,
    UPDATES,
    WORK,
    PaidRun,
    Stretch,
    billed,
    forecast,
    paid_run,
)
from isocost.runs import files as records
from isocost.runs.arm import Arm
from isocost.runs.files import RunFiles, runs_of
from isocost.runs.job import Job
from isocost.runs.run import run
from isocost.steps.settings import setting_with
from isocost.units import CPU, ENV_STEPS

PILOT = ("pilot", "edge")       # the purposes of the runs that forecast
SWEEPS = Path(__file__).resolve().parent / "results" / "sweeps"


def study(folder: Path) -> dict[str, Any] | None:
    """A study's trained runs, each line of its bill as [log(billed / forecast), half the log of high / low], and of
    what no clock measures the amount."""
    runs = [run for run in runs_of(folder) if run.over]
    pilot = [paid_run(run) for run in runs if run.about()["purpose"] in PILOT]
    trained = [run for run in runs if run.about()["purpose"] == "train"]
    if not pilot or not trained:
        return None
    told = json.loads((folder / "study.json").read_text(encoding="utf-8"))
    loads = [run.end["load"] for run in trained if "load" in run.end]
    return {"code": told["code"]["sources"], "seed": told["seed"], "problems": told["setting"]["data"],
            "phases": told["phases"], "load": max(loads, default=None),
            "runs": {run.name: _judged(pilot, dict(paid_run(run).whole.did), run) for run in trained}}


def episodes(home: Path, desk: int) -> None:
    """Runs in an environment; those that are there are not run again."""
    setting = setting_with(env=f"desk:store=4,seed={desk}" if desk else "desk:store=4", max_turns=16, samples=1)
    for seed in range(1000 * desk, 1000 * desk + 84):
        name, C = (f"pilot-{seed}", 64) if seed < 1000 * desk + 12 else (f"train-{seed}", 192)
        asyncio.run(run(Job(
            arm=Arm(n=4, B=2, lr=5e-4, warmup=0), name=name, setting=setting, method="grpo", seed=seed,
            budget={"rollouts": C}, purpose=name.partition("-")[0], points=(64,)), home / "runs" / name))
    told = {"code": records.code(), "seed": 0, "phases": {}, "setting": {"data": setting.problems.env}}
    (home / "study.json").write_text(json.dumps(told) + "\n", encoding="utf-8")


def _judged(pilot: list[PaidRun], did: Mapping[str, float], run: RunFiles) -> dict[str, list[float]]:
    paid = {(x.part, x.unit): x.value for x in billed([run]).lines}
    return _lines(pilot, did, paid)


def _lines(pilot: list[PaidRun], did: Mapping[str, float], paid: Mapping[tuple[str, str], float | None]
           ) -> dict[str, list[float]]:
    out = {}
    for x in forecast(pilot, [did]).lines:
        value = paid.get((x.part, x.unit))
        if value and x.value and x.low and x.high:
            counted = [] if x.unit in TIMES else [value]
            out[f"{x.part} / {x.unit}"] = [round(log(value / x.value), 5), round(log(x.high / x.low) / 2, 5), *counted]
    return out


def sweeps() -> Iterator[tuple[str, dict[str, Any]]]:
    """The sweeps, each as one study."""
    for path in sorted(SWEEPS.glob("*.json")):
        data = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(data, dict) or "runs" not in data or "situation" not in data:
            continue
        B = data["situation"]["B"]
        each = [(run, _of_line(run, B)) for run in data["runs"] if not run["diverged"]]
        pilot = [PaidRun(whole) for run, whole in each if run["index"] < 2]
        yield f"sweep {path.stem}", {
            "code": data["code"]["sources"], "problems": json.dumps(data["situation"]["options"]),
            "runs": {f"n{run['n']}-x{run['multiplier']}-{run['index']}": _lines(pilot, whole.did, whole.paid)
                     for run, whole in each if run["index"] >= 2}}


def _of_line(run: Mapping[str, Any], B: int) -> Stretch:
    C = run["C"][-1]
    paid = {(ALL, CPU): run["cpu"]}
    if run["env_steps"]:
        paid |= {(ENVIRONMENT, ENV_STEPS): run["env_steps"], (ALL, ENV_STEPS): run["env_steps"]}
    return Stretch({RUNS: 1.0, UPDATES: C / (run["n"] * B), WORK: C, EVALUATIONS: len(run["C"])}, paid)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folders", type=Path, nargs="*")
    options.add_argument("--make", type=Path, metavar="FOLDER")
    options.add_argument("--sweeps", action="store_true")
    options.add_argument("--out", type=Path)
    asked = options.parse_args()
    if asked.make:
        for desk in (0, 1):
            episodes(asked.make / f"desk-{desk}", desk)
    if asked.out is None:
        return
    found: dict[str, Any] = {}
    for folder in asked.folders:
        for path in sorted(p.parent for p in folder.glob("*/study.json")):
            if (one := study(path)) is not None:
                found[f"{folder.name}/{path.name}"] = one
                print(path, flush=True)
    found = {name: {**one, "calibrates": i % 2 == 0} for i, (name, one) in enumerate(found.items())}
    if asked.sweeps:
        found |= {name: {**one, "calibrates": False} for name, one in sweeps()}
    text = json.dumps({"folders": [f.name for f in asked.folders], "studies": found}, separators=(",", ":"))
    asked.out.write_text(text.replace('},"', '},\n"') + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
