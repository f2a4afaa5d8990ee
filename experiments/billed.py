"""Rollouts billed against rollouts settled, for each kept run of a method that forks.

    python experiments/billed.py run FOLDER [SHARE]     train the forking arms of the kept records again, with their
                                                        seeds and rates, to this share of their cost (1)
    python experiments/billed.py table FOLDER           a table of what is in the folder, for docs/evidence.md

Kept records have the bill of a comparison and not the fates of each run's rollouts, so the runs are made again. A run
has the same steps as its kept one up to where it is stopped. To check a version, put its sources on PYTHONPATH.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from isocost.compare.design import arm_of, size_of
from isocost.gather import finished
from isocost.runs.arm import Arm
from isocost.runs.files import find_runs, read_json
from isocost.runs.job import Job
from isocost.runs.run import run
from isocost.screen.words import markdown_table
from isocost.steps.settings import setting_with
from isocost.worlds.setting import Setting

KEPT = Path(__file__).parent / "results"
FORKING = ("arpo", "ettrl", "fission", "rmcts")
OF_SETTING = {"--env": str, "--max-turns": int, "--samples": int, "--held-out": float}


def jobs(share: float) -> Iterator[Job]:
    """The runs of the forking arms of the kept records."""
    for file in sorted(KEPT.glob("headlines/*.json")):
        kept = json.loads(file.read_text())
        words = shlex.split(kept.get("command", ""))
        options = dict(pairwise(words))
        for arm in (a for a in kept.get("rates", {}) if arm_of(a)[0] in FORKING):
            given = {k[2:].replace("-", "_"): of(options[k]) for k, of in OF_SETTING.items() if k in options}
            method, sets = arm_of(arm)
            for i, seed in enumerate(kept["runs"][arm]):
                yield Job(f"{file.stem}-{arm.replace('/', '_')}-s{i}", setting_with(**given), method, int(seed),
                          {"env-steps": share * kept["cost"]}, Arm.of(kept).but(lr=kept["rates"][arm]), sets=sets)
    for file in (*sorted(KEPT.glob("waves/*.json")), KEPT / "wave.json"):
        kept = json.loads(file.read_text())
        design, rates = kept["design"], kept.get("rates") or kept["found"]["rates"]
        for arm in (a for a in rates if arm_of(a)[0] in FORKING):
            method, sets = arm_of(arm)
            for i, seed in enumerate(design["seeds"]):
                yield Job(f"{file.stem}-{arm}-s{i}", Setting.of(kept["setting"]), method, int(seed),
                          {"flop": share * design["cost"]}, size_of(design, arm).but(lr=rates[arm]), sets=sets)


def table(folder: Path) -> str:
    """One row per record and arm: billed / settled of each run. `settled` are all with a fate, less the cancelled."""
    rows: dict[str, list[str]] = {}
    balanced: dict[str, bool] = {}
    for path in find_runs(folder):
        end = read_json(path / "end.json")
        billed, fates = int(end["bill"]["train"]["rollouts"]), end["fates"]
        settled = sum(v for k, v in fates.items() if k not in ("cancelled", "evaluation"))
        arm = path.name.rpartition("-s")[0]
        rows.setdefault(arm, []).append(f"{billed:,} / {settled:,}")
        balanced[arm] = balanced.get(arm, True) and 0 <= fates["cancelled"] == billed - settled
    return markdown_table(["record-arm", "billed / settled, of each run", "balances"], [
        (f"`{arm}`", ", ".join(each), "yes" if balanced[arm] else "**no**") for arm, each in rows.items()])


def main(arguments: list[str]) -> None:
    """Train, or print the table."""
    what, folder, *more = arguments
    if what == "table":
        print(table(Path(folder)))
        return
    for job in jobs(float(more[0]) if more else 1.0):
        end = finished(run(job, Path(folder) / job.name))
        print(job.name, end["reason"], end["bill"]["train"]["rollouts"], end["fates"], flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
