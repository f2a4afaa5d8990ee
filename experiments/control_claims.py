"""Claims about value-based control: rows of TOML whose arms are mappings, under the gate of `experiments.claim`.

    python -m experiments.control_claims pilot NAME     trains a pilot in comparisons/control-NAME and prints the gate
    python -m experiments.control_claims seal NAME      seals row, pilot and gate; exit code 5 if the gate refuses
    python -m experiments.control_claims run NAME       trains what was sealed, judges and keeps it

A claim is a table of a file in experiments/claims/control, with the fields of `experiments.claim` and

    task                            of `isocost train --control`
    arms                            label -> method, sigma, batch, rate, width, and `sets`, settings of seams
    cost                            samples of each run, such as "2000-env-steps"; `samples` of an arm, where it differs
    wanted                          the return of "ln samples": of a run that never arrives, ln of twice its samples
    flop                            at which "return at flop" is read

Metrics are "return", on the task's scale (0: random actions, 1: the reference), "return at flop", and "ln samples".
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from experiments.claim import HOME, Claim, ended, gate_of, key
from experiments.claim_kinds import answered, entered, keep, refuse_changed, rows_of
from isocost.compare.gate import Pilot, PilotRun
from isocost.laws.tracks import Track
from isocost.laws.value_fit import arrivals
from isocost.planner.budget import Budget
from isocost.planner.control.curves import return_curves
from isocost.runs.arm import Arm
from isocost.runs.control import ControlJob, run_stack
from isocost.runs.files import DIVERGED, RunFiles, read_json

ROWS, KEPT = HOME / "experiments" / "claims" / "control", HOME / "experiments" / "results" / "control_claims"
FIRST, POINTS, EPISODES = 500, 16, 8        # first seed of a pilot; evaluations of a run, and episodes of half of one
OWN = ("task", "wanted", "flop")


@dataclass(frozen=True)
class ControlClaim:
    """A claim with what is of control."""

    claim: Claim
    arms: Mapping[str, Mapping[str, Any]]
    task: str
    wanted: float | None = None
    flop: float | None = None

    @property
    def home(self) -> Path:
        return Path("comparisons") / f"control-{self.claim.name}"

    def data(self) -> dict[str, Any]:
        """What must not be chosen after the fact."""
        return {**self.claim.data(), "arms": {k: dict(v) for k, v in self.arms.items()},
                **{k: getattr(self, k) for k in OWN if getattr(self, k) is not None}}


def rows(folder: Path = ROWS) -> dict[str, ControlClaim]:
    """Every claim by name. Raises UserError as `experiments.claim` does."""
    return rows_of(folder, OWN, ControlClaim)


def trained(of: ControlClaim, purpose: str, seeds: Sequence[int]) -> dict[str, list[Path]]:
    """Train every arm with these seeds, those that can share a stack in one; the folders of each arm."""
    made: dict[str, list[Path]] = {}
    by: dict[tuple[Any, ...], list[tuple[ControlJob, Path]]] = {}
    for label, own in of.arms.items():
        samples = int(own.get("samples", Budget.parse(of.claim.cost).amount))
        for seed in seeds:
            arm = Arm({k: own[k] for k in ("sigma", "batch", "rate", "width")})
            points = tuple(round(samples * (k + 1) / POINTS) for k in range(POINTS))
            job = ControlJob(f"{purpose}-{label}-s{seed}", of.task, own["method"], seed, {"env-steps": samples}, arm,
                             points, own.get("sets", {}), episodes=EPISODES, purpose=purpose)
            made.setdefault(label, []).append(of.home / "runs" / job.name)
            by.setdefault(job.shared, []).append((job, made[label][-1]))
    for pairs in by.values():
        run_stack([j for j, _ in pairs], [out for _, out in pairs])
    return made


def numbers(of: ControlClaim, folder: Path) -> dict[str, float]:
    """The numbers of a run that the questions read."""
    track, found = _track(folder), RunFiles(folder)
    own: dict[str, float] = {}
    if of.wanted is not None:
        seen = arrivals(return_curves([found]), of.wanted)
        own["ln samples"] = float(seen.time[0] + (0 if seen.reached[0] else np.log(2)))
    if of.flop is not None:
        at = [(x["flop"], (x["eval/select"] + x["eval/audit"]) / 2)
              for x in found.lines("metrics.jsonl") if "return" in x]
        own["return at flop"] = float(np.interp(of.flop, *zip(*at, strict=True)))
    out = {}
    for metric, at in {(m, q.at) for q in of.claim.questions for m in (q.metric, q.less)}:
        even = np.linspace(track.end / POINTS, track.end, POINTS)
        value = own[metric] if metric in own else (
            np.mean(track.at(even)) if at == "mean" else track.at(float(at) * track.end))
        out[key(metric, at)] = round(float(value), 6)
    return out


def _track(folder: Path) -> Track:
    about, end = read_json(folder / "run.json"), read_json(folder / "end.json")
    at = [(x["env_steps"], (x["eval/select"] + x["eval/audit"]) / 2)
          for x in RunFiles(folder).lines("metrics.jsonl") if "return" in x]
    cost, reward = np.array(at).T
    return Track(folder.name, about["seed"], cost, reward, end["reason"] == DIVERGED)


def pilot(of: ControlClaim) -> dict[str, Any]:
    """Train a pilot, apply the gate and keep both."""
    made = trained(of, "pilot", range(FIRST, FIRST + of.claim.pilot))
    arms = {label: tuple(PilotRun(_track(f), f, of.arms[label]["rate"], None, read_json(f / "end.json")["seconds"])
                         for f in own) for label, own in made.items()}
    used = {label: own["rate"] for label, own in of.arms.items()}
    values = {f: numbers(of, f) for own in made.values() for f in own}
    lines, passed = gate_of(of.claim, Pilot(arms, used, {}, {}, "env-steps"), values, [])
    runs = {label: {f.name: values[f] for f in own} for label, own in made.items()}
    return keep(KEPT, of, {"row": of.data(), "decidable": passed, "gate": [asdict(x) for x in lines], "pilot": runs})


def run(of: ControlClaim, record: Mapping[str, Any]) -> dict[str, Any]:
    """Train what was sealed, judge it and keep the answer. Raises UserError if it was changed since."""
    refuse_changed(of, record)
    made = trained(of, "train", range(of.claim.seeds))
    found = {label: {str(read_json(f / "run.json")["seed"]): numbers(of, f) for f in own}
             for label, own in made.items()}
    flop = {label: float(np.mean([read_json(f / "end.json")["flop"] for f in own])) for label, own in made.items()}
    return keep(KEPT, of, {**record, **answered(of, found), "flop": flop})


def main(arguments: Sequence[str]) -> int:
    """`pilot`, `seal` or `run` NAME; returns the exit code. Raises UserError for anything else."""
    return entered(arguments, rows(), KEPT, pilot, run)


if __name__ == "__main__":
    sys.exit(ended(main))
