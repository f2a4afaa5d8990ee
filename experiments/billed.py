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

from isocost.compare.design import arm_of
from isocost.gather import finished
from isocost.runs.files import find_runs, read_json
from isocost.runs.job import Job
from isocost.runs.run import run
from isocost.steps.settings import setting_with
from isocost.words import markdown_table

KEPT = Path(__file__).parent / "results" / "headlines"
FORKING = ("arpo", "ettrl", "fission", "rmcts")
OF_SETTING = {"--env": str, "--max-turns": int, "--samples": int, "--held-out": float}


def jobs(share: float) -> Iterator[tuple[str, Job]]:
    """The runs of the forking arms of the kept records: (record, job)."""
    for file in sorted(KEPT.glob("*.json")):
        kept = json.loads(file.read_text())
        words = shlex.split(kept.get("command", ""))
        options = dict(pairwise(words))
        for arm in (a for a in kept.get("rates", {}) if arm_of(a)[0] in FORKING):
            given = {k[2:].replace("-", "_"): of(options[k]) for k, of in OF_SETTING.items() if k in options}
            method, sets = arm_of(arm)
            for i, seed in enumerate(kept["runs"][arm]):
                yield file.stem, Job(
                    f"{file.stem}-{arm.replace('/', '_')}-s{i}", setting_with(**given), method, int(seed),
                    {"env-steps": share * kept["cost"]}, kept["n"], kept["B"], lr=kept["rates"][arm], sets=sets,
                )


def table(folder: Path) -> str:
    """One row per run: `settled` are all rollouts with a fate, less those that were cancelled."""
    rows = []
    for path in find_runs(folder):
        about, end = read_json(path / "run.json"), read_json(path / "end.json")
        billed, fates = int(end["bill"]["train"]["rollouts"]), end["fates"]
        settled = sum(v for k, v in fates.items() if k not in ("cancelled", "evaluation"))
        record, _, number = about["name"].rpartition("-s")
        rows.append([record, number, about["seed"], f"{billed:,}", f"{settled:,}", f"{fates['cancelled']:,}",
                     "yes" if billed == settled + fates["cancelled"] and fates["cancelled"] >= 0 else "**no**"])
    return markdown_table(["record and arm", "run", "seed", "billed", "settled", "cancelled", "balances"], rows)


def main(arguments: list[str]) -> None:
    """Train, or print the table."""
    what, folder, *more = arguments
    if what == "table":
        print(table(Path(folder)))
        return
    for _, job in jobs(float(more[0]) if more else 1.0):
        end = finished(run(job, Path(folder) / job.name))
        print(job.name, end["reason"], end["bill"]["train"]["rollouts"], end["fates"], flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
