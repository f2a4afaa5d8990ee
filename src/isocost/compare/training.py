"""Train the arms of a sealed design: probe their learning rates, train them, read their runs and what they cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from isocost import units
from isocost.compare.design import Design
from isocost.compare.results import Probed
from isocost.disk.jsonfile import fit
from isocost.errors import UserError
from isocost.laws.curves import Curve, curves, multiplier
from isocost.laws.tracks import Track, tracks
from isocost.planner.training.learning_rate import MULTIPLIERS, RateRule, fit_rate, probe_results
from isocost.planner.training.study_runs import PlannedRun, warmup
from isocost.runs.files import find_runs, read_json
from isocost.runs.job import Job, recipe_of
from isocost.runs.schema import ENDED
from isocost.stats.power import pooled_sd
from isocost.steps.events import Observer
from isocost.steps.folder import Home
from isocost.steps.training.jobs import job_of

Run = Callable[[Sequence[Job], str], object]        # executes jobs under a title
Make = Callable[[Home, Design, str, PlannedRun, RateRule, str], Job]


def run_arms(home: Home, d: Design, seal: str, observer: Observer, run: Run, make: Make) -> dict[str, list[Job]]:
    """Probe every arm's learning rate unless a pilot did, then train it; returns the training jobs by arm.

    `make` is a planned run of an arm as a job, `run` executes jobs.
    """
    rules = rates(home) if from_pilot(home) else probed(home, d, seal, observer, run, make)
    trains = {label: [make(home, d, label, _planned(d, label, "train", i, s), rules[label], seal)
                      for i, s in enumerate(d.seeds)] for label in d.labels}
    with home.phase("train"):       # seed by seed: a comparison that is stopped has whole replicates
        jobs = [own[i] for i in range(len(d.seeds)) for own in trains.values()]
        run(jobs, "runs")
    return trains


def probed(home: Home, d: Design, seal: str, observer: Observer, run: Run, make: Make) -> dict[str, RateRule]:
    """Probe every arm's learning rate; returns its rule."""
    start = RateRule.of(d.rule)
    probes = {label: [make(home, d, label, _planned(d, label, "probe", i, s, x), start, seal)
                      for i, s in enumerate(d.probe_seeds) for x in MULTIPLIERS] for label in d.labels}
    with home.phase("probe"):
        jobs = [job for own in probes.values() for job in own]
        run(jobs, "learning rates")
    if not home.has("rates.json"):
        seen = {label: probe_results(curves([home.runs / j.name for j in own], d.metric))
                for label, own in probes.items()}
        home.write("rates.json", {"rates": {label: fit_rate(own, d.batch(label)).data() for label, own in seen.items()},
                                  "noise": measured_noise(home, d, probes)})
    rules = rates(home)
    flags = dict.fromkeys(text for label in d.labels for text in rules[label].flags)
    observer.on(Probed(
        d, {label: rules[label].at(d.batch(label)) for label in d.labels},
        tuple((tuple(label for label in d.labels if text in rules[label].flags), text) for text in flags),
        recorded_noise(home),
    ))
    return rules


def _planned(d: Design, label: str, purpose: str, index: int, seed: int, multiplier: float = 1.0) -> PlannedRun:
    C = d.probe_rollouts if purpose == "probe" else d.rollouts
    return PlannedRun(purpose, d.size(label).but(multiplier=multiplier), C, index, seed)


def from_pilot(home: Home) -> bool:
    """Whether the learning rates of a comparison are those of its pilot (`isocost.compare.gate`)."""
    return home.has("rates.json") and bool(home.record("rates.json", "compare").get("pilot"))


def measured_noise(home: Home, d: Design, probes: Mapping[str, Sequence[Job]]) -> dict[str, float] | None:
    """The standard deviation between probe runs that differ in their seed only, at their end, pooled over arms.

    `sd` in reward on the test split, and its degrees of freedom `dof`; None for probes of one seed.
    """
    by: dict[tuple[str, float], list[Curve]] = {}
    for label, own in probes.items():
        for curve in curves([home.runs / j.name for j in own], d.metric):
            by.setdefault((label, multiplier(curve)), []).append(curve)
    found = pooled_sd([np.array([c.audit[-1] for c in own if not c.diverged]) for own in by.values()])
    return None if found is None else {"sd": found[0], "dof": found[1]}


def recorded_noise(home: Home) -> dict[str, float] | None:
    """What `measured_noise` or a pilot found, as rates.json keeps it; None before the probes have ended."""
    return home.record("rates.json", "compare").get("noise") if home.has("rates.json") else None


def rates(home: Home) -> dict[str, RateRule]:
    """The learning-rate rule of every arm, from its probe."""
    found = home.record("rates.json", "compare")["rates"]
    fit(home.path / "rates.json", found, dict[str, RateRule])
    return {label: RateRule.of(rule) for label, rule in found.items()}


def method_job(home: Home, d: Design, label: str, run: PlannedRun, rule: RateRule, seal: str) -> Job:
    """One run of one arm, as the job of a study, with the arm's method and a budget in the comparison's unit."""
    probe = run.purpose == "probe"
    job = job_of(home, run, rule, d.probe_points if probe else d.points, seal)
    times = "" if run.purpose == "train" else f"-x{run.multiplier:g}"
    job = replace(
        job, name=f"{run.purpose}-{label}{times}-s{run.index}", method=d.arms[label], sets=d.sets.get(label, {}),
        budget={units.of_arm(d.unit): d.probe_cost if probe else d.cost}, arm=job.arm.but(warmup=warmup(run.M)),
    )
    recipe_of(job)      # a mistake in the recipe is found before anything is opened
    return job


def tracks_of(home: Home, d: Design, trains: Mapping[str, Sequence[Job]], seal: str
            ) -> tuple[dict[str, list[Track]], list[str]]:
    """Every arm's runs, and notes on those that did not spend their budget. Raises UserError for another seal."""
    arms, notes = {}, []
    for label, jobs in trains.items():
        folders = [home.runs / j.name for j in jobs]
        for f in folders:
            if read_json(f / "run.json").get("seal") != seal:
                raise UserError(f"{f} does not have the seal {seal[:12]}: it was not trained with this design")
            end = read_json(f / "end.json")
            if end["reason"] != "spent":
                notes.append(f"{f.name} ended as {end['reason']}: {end.get('detail', '')}")
        arms[label] = tracks(folders, d.unit, d.metric)
    return arms, notes


def bill(home: Home) -> dict[str, dict[str, float]]:
    """What probes and runs cost: their numbers, rollouts and tokens trained on, rollouts lost when a process was
    killed (`lost`), rollouts of evaluations (`evaluated`), tokens of exact evaluations (`scored`), seconds of run time.

    `pricing` is what estimating the cost used; comparisons of earlier versions do not record it. A pilot in the folder
    whose learning rates were taken counts as well, its runs as `pilot`.
    """
    out: dict[str, dict[str, float]] = {}
    if priced := home.record("compare.json", "compare").get("pricing"):
        out["pricing"] = {"runs": 0, "rollouts": priced["rollouts"], "tokens": priced["decode"], "lost": 0,
                          "evaluated": 0, "scored": 0, "seconds": round(priced["seconds"], 3)}
    pilot = find_runs(home.path / "pilot" / "runs") if from_pilot(home) else []
    for f in [*pilot, *find_runs(home.runs)]:
        end = read_json(f / "end.json", ENDED)
        own = out.setdefault(str(read_json(f / "run.json").get("purpose")), {})
        spent, lost, held_out = (end["bill"].get(account, {}) for account in ("train", "lost", "evaluation"))
        for key, amount in (("runs", 1), ("rollouts", spent.get("rollouts", 0)), ("tokens", spent.get("decode", 0)),
                            ("lost", lost.get("rollouts", 0)), ("evaluated", held_out.get("rollouts", 0)),
                            ("scored", held_out.get("score", 0)), ("seconds", end["seconds"])):
            own[key] = round(own.get(key, 0) + amount, 3)
    return out
