"""Runs of the built-in problems on one device: `python -m bench.gpu_study FOLDER DEVICE one|all WORKERS [--tiny]`."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from bench.cases.study import listed
from isocost.runs.job import Job
from isocost.runs.launch.local import run_all


def chosen(device: str, which: str, *, tiny: bool) -> list[Job]:
    """The thirty runs of the case `study` on this device, or the cheapest of them; at toy size two short ones."""
    jobs = [replace(j, setting=j.setting.but(device=device)) for j in listed()]
    if tiny:
        jobs = [replace(j, budget={"rollouts": 64}, points=()) for j in jobs[:2]]
    return jobs[-1:] if which == "one" else jobs


def main(arguments: list[str]) -> None:
    folder, device, which, workers = arguments[:4]
    run_all(chosen(device, which, tiny="--tiny" in arguments), Path(folder), workers=int(workers))


if __name__ == "__main__":
    main(sys.argv[1:])
