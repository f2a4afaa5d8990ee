"""Train the arms of a sealed design: probe their learning rates, train them, read their runs and what they cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

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
from isocost.steps.execution import Execution
from isocost.steps.folder import StudyFolder
from isocost.steps.training.jobs import job_of, run_phase
from isocost.trainers.driving.command import Trainer


@dataclass(frozen=True)
class Trials:
    """A sealed design that is executed in its folder. `make` gives a planned run of an arm as a job, at the learning
    rate of a rule; `trainers` are those of the arms where a user's trainer runs them."""

    home: StudyFolder
    design: Design
    seal: str
    execution: Execution
    make: Callable[[Trials, str, PlannedRun, RateRule], Job]
    trainers: Mapping[str, Trainer] = field(default_factory=dict)

    def points(self, run: PlannedRun) -> tuple[int, ...]:
        """Where a run is evaluated, in rollouts."""
        return self.design.probe_points if run.purpose == "probe" else self.design.points

    def jobs(self, purpose: str, rules: Mapping[str, RateRule], seeds: Sequence[int], multipliers: Sequence[float]
             ) -> dict[str, list[Job]]:
        """The runs of every arm: of each seed, at these multiples of its rule's rate."""
        d = self.design
        C = d.probe_rollouts if purpose == "probe" else d.rollouts

        def planned(label: str) -> Iterator[PlannedRun]:
            return (PlannedRun(purpose, d.size(label).but(multiplier=x), C, i, s)
                    for i, s in enumerate(seeds) for x in multipliers)

        return {label: [self.make(self, label, run, rules[label]) for run in planned(label)] for label in d.labels}

    def phase(self, name: str, title: str, jobs: Mapping[str, Sequence[Job]]) -> None:
        """Execute the jobs of all arms, in turns: a comparison that is stopped has whole replicates."""
        own = {job.name: trainer for label, trainer in self.trainers.items() for job in jobs[label]}
        with self.home.phase(name):
            run_phase(self.home, [job for each in zip(*jobs.values(), strict=True) for job in each], title,
                      self.execution, trainers=own)


def name_of(label: str, run: PlannedRun) -> str:
    """A job's name: PURPOSE-ARM-sINDEX, with the multiple of the learning rate unless it is trained."""
    times = "" if run.purpose == "train" else f"-x{run.multiplier:g}"
    return f"{run.purpose}-{label}{times}-s{run.index}"


def train_arms(trials: Trials) -> dict[str, list[Job]]:
    """Probe every arm's learning rate unless a pilot did, then train it; returns the training jobs by arm."""
    rules = rates(trials.home) if from_pilot(trials.home) else probe_arms(trials)
    trains = trials.jobs("train", rules, trials.design.seeds, (1.0,))
    trials.phase("train", "runs", trains)
    return trains


def probe_arms(trials: Trials) -> dict[str, RateRule]:
    """Probe every arm's learning rate; returns its rule."""
    home, d = trials.home, trials.design
    probes = trials.jobs("probe", dict.fromkeys(d.labels, RateRule.of(d.rule)), d.probe_seeds, MULTIPLIERS)
    trials.phase("probe", "learning rates", probes)
    if not home.has("rates.json"):
        seen = {label: probe_results(curves([home.runs / j.name for j in own], d.metric))
                for label, own in probes.items()}
        home.write("rates.json", {"rates": {label: fit_rate(own, d.batch(label)).data() for label, own in seen.items()},
                                  "noise": measured_noise(home, d, probes)})
    rules = rates(home)
    flags = dict.fromkeys(text for label in d.labels for text in rules[label].flags)
    trials.execution.observer.on(Probed(
        d, rates_used(home, d),
        tuple((tuple(label for label in d.labels if text in rules[label].flags), text) for text in flags),
        recorded_noise(home),
    ))
    return rules


def rates_used(home: StudyFolder, d: Design) -> dict[str, float]:
    """The learning rate of every arm."""
    return {label: rule.at(d.batch(label)) for label, rule in rates(home).items()}


def from_pilot(home: StudyFolder) -> bool:
    """Whether the learning rates of a comparison are those of its pilot (`isocost.compare.gate`)."""
    return home.has("rates.json") and bool(home.record("rates.json", "compare").get("pilot"))


def measured_noise(home: StudyFolder, d: Design, probes: Mapping[str, Sequence[Job]]) -> dict[str, float] | None:
    """The standard deviation between probe runs that differ in their seed only, at their end, pooled over arms.

    `sd` in reward on the test split, and its degrees of freedom `dof`; None for probes of one seed.
    """
    by: dict[tuple[str, float], list[Curve]] = {}
    for label, own in probes.items():
        for curve in curves([home.runs / j.name for j in own], d.metric):
            by.setdefault((label, multiplier(curve)), []).append(curve)
    found = pooled_sd([np.array([c.audit[-1] for c in own if not c.diverged]) for own in by.values()])
    return None if found is None else {"sd": found[0], "dof": found[1]}


def recorded_noise(home: StudyFolder) -> dict[str, float] | None:
    """What `measured_noise` or a pilot found, as rates.json keeps it; None before the probes have ended."""
    return home.record("rates.json", "compare").get("noise") if home.has("rates.json") else None


def rates(home: StudyFolder) -> dict[str, RateRule]:
    """The learning-rate rule of every arm, from its probe."""
    found = home.record("rates.json", "compare")["rates"]
    fit(home.path / "rates.json", found, dict[str, RateRule])
    return {label: RateRule.of(rule) for label, rule in found.items()}


def method_job(trials: Trials, label: str, run: PlannedRun, rule: RateRule) -> Job:
    """One run of one arm, as the job of a study, with the arm's method and a budget in the comparison's unit."""
    d = trials.design
    job = job_of(trials.home, run, rule, trials.points(run), trials.seal)
    job = replace(
        job, name=name_of(label, run), method=d.arms[label], sets=d.sets.get(label, {}), export=run.purpose != "probe",
        budget={units.of_arm(d.unit): d.probe_cost if run.purpose == "probe" else d.cost},
        arm=job.arm.but(warmup=warmup(run.M)),
    )
    recipe_of(job)      # a mistake in the recipe is found before anything is opened
    return job


def tracks_of(trials: Trials, trains: Mapping[str, Sequence[Job]]) -> tuple[dict[str, list[Track]], list[str]]:
    """Every arm's runs, and notes on those that did not spend their budget. Raises UserError for another seal."""
    arms, notes, d = {}, [], trials.design
    for label, jobs in trains.items():
        folders = [trials.home.runs / j.name for j in jobs]
        for f in folders:
            if read_json(f / "run.json").get("seal") != trials.seal:
                raise UserError(f"{f} does not have the seal {trials.seal[:12]}: it was not trained with this design")
            end = read_json(f / "end.json")
            if end["reason"] != "spent":
                notes.append(f"{f.name} ended as {end['reason']}: {end.get('detail', '')}")
        arms[label] = tracks(folders, d.unit, d.metric)
    return arms, notes


def bill(home: StudyFolder) -> dict[str, dict[str, float]]:
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
