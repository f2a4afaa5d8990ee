"""Claims about value-based control: rows of TOML whose arms are mappings, under the gate of `experiments.claim`.

    python -m experiments.control_claims pilot NAME     trains a pilot in comparisons/control-NAME and prints the gate
    python -m experiments.control_claims seal NAME      seals row, pilot and gate; exit code 5 if the gate refuses
    python -m experiments.control_claims run NAME       trains what was sealed, judges and keeps it

A claim is a table of a file in experiments/claims/control, with the fields of `experiments.claim` and

    task                            of `isocost train --control`
    arms                            label -> method, sigma, batch, rate, width (members, depth), and `sets`, settings of
                                    seams, `teacher`, `offline_updates`, and `task` or `mixture`, where they differ;
                                    `each` is what all arms have
    cost                            of each run: "2000-env-steps" or, of offline methods, "1000-updates"; `samples` of
                                    an arm, where it differs
    wanted                          the return of "ln samples": of a run that never arrives, ln of twice its samples
    mixture                         for methods that learn from a set: shares of behaviours, or `peaks`, and `steps`.
                                    Each seed has a set of its own, which all arms share; with `sets` there are so many,
                                    and the seeds take them in turn; `first` makes them others than an earlier claim's
    grid                            a pilot's rates are the arm's, and so many times less and more of it
    runs                            the claim in whose folder runs are kept, if not its own: arms that both have are
                                    trained once

Metrics are "return", on the task's scale (0: random actions, 1: the reference), "return over the set" (0: the set's
mean return, 1: the reference), "ln samples", and those of experiments/control/measures.py. Each answer about returns is
given at equal FLOP too (`at_equal_flop`), where the arms differ in it; it decides nothing.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from experiments.claim import EVEN, HOME, Claim, ended, gate_of, kept, key
from experiments.claim_kinds import answered, entered, keep, refuse_changed, rows_of
from experiments.control.measures import MEASURES
from isocost.chance import Purpose, generator
from isocost.compare.gate import Pilot, PilotRun
from isocost.control import data, methods
from isocost.control.tasks import open_task, random_return
from isocost.laws.tracks import Track
from isocost.laws.value_fit import arrivals
from isocost.planner.control.curves import return_curves
from isocost.planner.forecast import digest
from isocost.runs.arm import Arm
from isocost.runs.control import SIZES, ControlJob, run_stack
from isocost.runs.files import DIVERGED, RunFiles, read_json

ROWS, KEPT = HOME / "experiments" / "claims" / "control", HOME / "experiments" / "results" / "control_claims"
FIRST, EPISODES = 500, 8        # first seed of a pilot; episodes of half of an evaluation
POINTS = {"env-steps": 16, "updates": 8}    # evaluations of a run
OWN = ("task", "wanted", "mixture", "grid", "runs")


@dataclass(frozen=True)
class ControlClaim:
    """A claim with what is of control."""

    claim: Claim
    arms: Mapping[str, Mapping[str, Any]]
    task: str
    wanted: float | None = None
    mixture: Mapping[str, float] | None = None
    grid: float | None = None
    runs: str | None = None

    @property
    def home(self) -> Path:
        return Path("comparisons") / f"control-{self.runs or self.claim.name}"

    @property
    def unit(self) -> str:
        """What a run's cost is counted in."""
        return self.claim.cost.partition("-")[2]

    def data(self) -> dict[str, Any]:
        """What must not be chosen after the fact."""
        return {**self.claim.data(), "arms": {k: dict(v) for k, v in self.arms.items()},
                **{k: getattr(self, k) for k in OWN if getattr(self, k) is not None}}


def rows(folder: Path = ROWS) -> dict[str, ControlClaim]:
    """Every claim by name. Raises UserError as `experiments.claim` does."""
    return rows_of(folder, OWN, ControlClaim)


def set_of(of: ControlClaim, arm: Mapping[str, Any], seed: int) -> str | None:
    """The file of the set of an arm and a seed, which is made if it is not there; None where there is none, or the
    arm's method takes none. `peaks`: actions of the bandit about its two peaks, each with this deviation."""
    mix, agent = dict(arm.get("mixture", of.mixture) or {}), methods.agent(arm["method"])
    if not mix or not (agent.offline or agent.warms):
        return None
    sets, first = (int(mix.pop(k, 0)) for k in ("sets", "first"))
    seed = first + (seed % sets + FIRST * (seed >= FIRST) if sets else seed)    # a pilot's sets are its own
    task = open_task(arm.get("task", of.task))
    file = of.home / "sets" / f"{digest([task.name, mix])[:8]}-{seed}.parquet"     # of this mixture
    if not file.exists():
        count = int(mix.pop("steps"))
        if "peaks" in mix:
            rng, one = generator(seed, Purpose.PROFILE, 7), np.ones((count, 1))
            around = rng.choice((-0.5, 0.5), (count, 1)) + mix["peaks"] * rng.standard_normal((count, 2))
            action = np.clip(around, -1, 1)
            reward = task.step(one, action)[1][:, None]
            told = np.concatenate((one, action, reward, one, one, 0 * one), -1)
            made = data.OfflineSet(torch.from_numpy(told).float())
            card = {"task": task.name, "transitions": count, "return": {"mean": float(reward.mean())}}
            made = replace(made, card={**card, "hash": made.hash})
        else:
            made = data.make(task, mix, count, seed)
        data.write(made, task.space, file)
    return str(file)


def trained(of: ControlClaim, purpose: str, seeds: Sequence[int], rates: Sequence[float] = (1.0,)
            ) -> dict[str, list[Path]]:
    """Train every arm with these seeds at its rate times these, those that can share a stack in one; the folders of
    each arm."""
    made: dict[str, list[Path]] = {}
    by: dict[tuple[Any, ...], list[tuple[ControlJob, Path]]] = {}
    for label, own in of.arms.items():
        samples = int(own.get("samples", of.claim.cost.partition("-")[0]))
        count = POINTS[of.unit]
        points = tuple(round(samples * (k + 1) / count) for k in range(count))
        first = own.get("offline_updates", 0)
        points = (1, *points) if first else points      # after the first sample, by what the set has taught
        for times in rates:
            rate = float(f"{own['rate'] * times:.3g}")
            arm = Arm({k: own[k] for k in ("sigma", *SIZES) if k in own} | {"rate": rate})
            for seed in seeds:
                name = f"{purpose}-{label}-r{rate:g}-s{seed}"
                job = ControlJob(name, own.get("task", of.task), own["method"], seed, {of.unit: samples}, arm, points,
                                 own.get("sets", {}), episodes=EPISODES, purpose=purpose,
                                 data=set_of(of, own, seed), offline_updates=first, teacher=own.get("teacher"))
                made.setdefault(label, []).append(of.home / "runs" / job.name)
                by.setdefault(job.shared, []).append((job, made[label][-1]))
    for pairs in by.values():
        run_stack([j for j, _ in pairs], [out for _, out in pairs])
    return made


def numbers(of: ControlClaim, label: str, folder: Path) -> dict[str, float]:
    """The numbers of a run of an arm that the questions read."""
    track, own = _track(folder), dict[str, float]()
    asked = {(metric, q.at) for q in of.claim.questions
             for arm, metric in ((q.arm, q.metric), (q.comparator, q.less)) if arm == label}
    if of.wanted is not None:
        seen = arrivals(return_curves([RunFiles(folder)]), of.wanted)
        own["ln samples"] = float(seen.time[0] + (0 if seen.reached[0] else np.log(2)))
    for metric in {m for m, _ in asked} & set(MEASURES):
        own[metric] = MEASURES[metric](folder)
    out = {}
    for metric, at in asked:
        value = own[metric] if metric in own else _read(track, at)
        if metric == "return over the set":
            zero = _of_set(of.task, read_json(folder / "run.json")["data"]["return"]["mean"])
            value = (value - zero) / (1 - zero)
        out[key(metric, at)] = round(float(value), 6)
    return out


def _of_set(task: str, mean: float) -> float:
    low = random_return(task)
    return (mean - low) / (open_task(task).reference - low)


def _read(track: Track, at: float | str, end: float | None = None) -> float:
    """A run's return at a share of its cost, or in the mean over it."""
    end = track.end if end is None else end
    even = np.linspace(end / EVEN, end, EVEN)
    return float(np.mean(track.at(even)) if at == "mean" else track.at(float(at) * end))


def _as_asked(of: ControlClaim, track: Track) -> Track:
    """A run as the gate's rules read it: where the questions about returns ask for the mean over the run, at each cost
    the mean until then. Its end is so often the optimum at all rates that it tells neither rates nor runs apart."""
    if any(q.metric.startswith("return") and q.at != "mean" and q.arm != q.comparator for q in of.claim.questions):
        return track
    cost = np.linspace(0, track.end, EVEN + 1)
    reward = np.append(track.reward[0], np.cumsum(track.at(cost[1:])) / np.arange(1, EVEN + 1))
    return replace(track, cost=cost, reward=reward)


@cache
def _track(folder: Path, unit: str = "") -> Track:
    """A run's return over samples, or updates of an offline method; or over `flop`."""
    about, end = read_json(folder / "run.json"), read_json(folder / "end.json")
    unit = unit or next(iter(about["budget"])).replace("-", "_")
    at = [(x[unit], (x["eval/select"] + x["eval/audit"]) / 2)
          for x in RunFiles(folder).lines("metrics.jsonl") if "return" in x]
    cost, reward = np.array(at).T
    return Track(folder.name, about["seed"], cost, reward, end["reason"] == DIVERGED)


def pilot(of: ControlClaim) -> dict[str, Any]:
    """Train a pilot, apply the gate and keep both."""
    times = (1.0,) if of.grid is None else (1 / of.grid, 1.0, of.grid)
    made = trained(of, "pilot", range(FIRST, FIRST + of.claim.pilot), times)
    arms = {label: tuple(PilotRun(_as_asked(of, _track(f)), f, read_json(f / "run.json")["arm"]["rate"], None,
                                  read_json(f / "end.json")["seconds"]) for f in own) for label, own in made.items()}
    used = {label: own["rate"] for label, own in of.arms.items()}
    values = {f: numbers(of, label, f) for label, own in made.items() for f in own}
    before = [n for n, r in kept(KEPT).items() if n != of.claim.name and "outcome" in r
              and set(of.claim.own) & set(rows()[n].claim.methods)]
    asked = {q.arm: q.comparator for q in of.claim.questions if q.arm != q.comparator}
    lines, passed = gate_of(of.claim, Pilot(arms, used, {}, {}, of.unit, asked), values, before)
    runs = {label: {f.name: values[f] for f in own} for label, own in made.items()}
    return keep(KEPT, of, {"row": of.data(), "decidable": passed, "gate": [asdict(x) for x in lines], "pilot": runs})


def run(of: ControlClaim, record: Mapping[str, Any]) -> dict[str, Any]:
    """Train what was sealed, judge it and keep the answer. Raises UserError if it was changed since."""
    refuse_changed(of, record)
    made = trained(of, "train", range(of.claim.seeds))
    found = {label: {str(read_json(f / "run.json")["seed"]): numbers(of, label, f) for f in own}
             for label, own in made.items()}
    flop = {label: float(np.mean([read_json(f / "end.json")["flop"] for f in own])) for label, own in made.items()}
    equal, seconds = _at_equal_flop(of, made, flop), round(sum(map(_seconds, _runs(of))))
    return keep(KEPT, of, {**record, **answered(of, found), "flop": flop, "at_equal_flop": equal, "seconds": seconds})


def _runs(of: ControlClaim) -> list[Path]:
    """The folders of a claim's runs, pilot and all."""
    mine = re.compile(rf"(pilot|train)-({'|'.join(map(re.escape, of.arms))})-r[-\de.]+-s\d+")
    return [f for f in sorted((of.home / "runs").iterdir()) if mine.fullmatch(f.name)]


def _seconds(folder: Path) -> float:
    return float(read_json(folder / "end.json")["seconds"])


def _at_equal_flop(of: ControlClaim, made: Mapping[str, Sequence[Path]], flop: Mapping[str, float]) -> dict[str, Any]:
    """The answers about returns where both arms have spent the FLOP of the cheaper one, by what is asked."""
    out = {}
    for q in of.claim.questions:
        pair = {a: flop[a] for a in (q.arm, q.comparator)}
        if q.metric == q.less == "return" and max(pair.values()) > 1.01 * min(pair.values()):
            of_arm, less = ({_track(f).seed: _read(_track(f, "flop"), q.at, min(pair.values())) for f in made[a]}
                            for a in pair)
            out[q.says] = q.answer(of_arm, less, of.claim.alphas(q))
    return out


def main(arguments: Sequence[str]) -> int:
    """`pilot`, `seal` or `run` NAME; returns the exit code. Raises UserError for anything else."""
    return entered(arguments, rows(), KEPT, pilot, run)


if __name__ == "__main__":
    sys.exit(ended(main))
