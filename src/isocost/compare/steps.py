"""Compare methods by training them: plan, seal, probe learning rates, train, judge.

    compare.json     the design, sealed before anything is trained: arms, sizes, budget, candidate rates, seeds, margin;
                     and the cost of the few rollouts that estimated what the comparison costs (`pricing`)
    rates.json       every arm's learning rate, from its own probe, judged on the validation split
    comparison.json  the answers, on the test split, and the bill (wave.json for a comparison with parents)
    runs/            probe-ARM-xRATE-sINDEX and train-ARM-sINDEX, paired by seed

A comparison that was stopped continues when it is called again with the same arguments.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from isocost import methods as catalogue
from isocost.compare.design import Design, arm_of, arm_recipe, design, expected, labels_of
from isocost.compare.judge import MARGIN, compare
from isocost.compare.many import wave
from isocost.compare.parents import with_parents
from isocost.compare.results import ComparisonPlan, MethodComparison, ParentComparison, Probed, Sealed
from isocost.errors import UserError
from isocost.jsonfile import fit
from isocost.laws.curves import PASS, Curve, curves
from isocost.laws.tracks import Track, tracks
from isocost.planner.budget import Bill
from isocost.planner.forecast import digest
from isocost.planner.learning_rate import MULTIPLIERS, RateRule, fit_rate, probe_results
from isocost.planner.study_runs import PlannedRun, warmup
from isocost.recipe import describe
from isocost.runs import files as records
from isocost.runs.files import find_runs
from isocost.runs.names import today
from isocost.runs.record import read_json
from isocost.runs.run import Job, recipe_of
from isocost.runs.schema import ENDED
from isocost.seams import Improve, Recipe
from isocost.stats.power import pooled_sd
from isocost.steps.events import SILENT, Observer, Sampled, Warned
from isocost.steps.folder import Home, check, found, writing
from isocost.steps.jobs import job_of, run_jobs
from isocost.steps.settings import setting_with, workers_of
from isocost.steps.single import settings_of
from isocost.types import Problem
from isocost.worlds.setting import Opened, Setting, open_setting, refuse_unbounded

PRICED = 8              # problems sampled to estimate the cost of a rollout
WARNED = 8              # warnings of the check of problems and reward that are reported
LONG = 80               # characters of a folder's name, above which it holds the number of arms instead of their names
TRIED = 1e-3            # learning rate of the steps tried in the toy world; any value tells arms apart
TWO = "expected at least two methods, such as `isocost compare grpo dapo`, or two folders of runs"
BUDGETS = {"flops": "flop", "seconds": "busy seconds"}   # a unit's name in a run's own budget


def are_folders(arms: Sequence[str]) -> bool:
    """Whether the arms of a comparison are folders of runs rather than methods.

    Raises:
        UserError: for a mixture of both, or fewer than two folders.
    """
    folders = [Path(a).is_dir() and ("/" in a or a not in catalogue.names()) for a in arms]
    if all(folders) and len(arms) < 2:
        raise UserError(TWO)
    if any(folders) and not all(folders):
        one, other = arms[folders.index(True)], arms[folders.index(False)]
        known = other in catalogue.names() or other.endswith(".py")
        what = "a method: all arms must be of one kind" if known else "neither a folder nor a method"
        raise UserError(f"{one} is a folder of runs and {other} is {what}")
    return all(folders)


# the request --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Terms:
    """The arguments of a comparison of methods, checked: see `compare_methods`.

    `arms` are the methods with missing parents put first, and `parents` the parent of each method that is judged
    against it. `rollouts` is n, `groups` is B.
    """

    arms: tuple[str, ...]
    parents: Mapping[str, str]
    setting: Setting
    budget: str
    seeds: int
    rollouts: int
    groups: int
    own_sizes: bool
    lr: float | None
    evaluations: int
    margin: float
    metric: str
    sets: Mapping[str, str]
    seed: int

    @property
    def sizes(self) -> dict[str, int]:
        """n and B of all arms; empty if each has those of its method."""
        return {} if self.own_sizes else {"groups": self.groups, "rollouts": self.rollouts}

    @property
    def asked(self) -> dict[str, Any]:
        """The arguments as study.json records them."""
        return {"seed": self.seed, "method": " ".join(self.arms), "budget": self.budget, "seeds": self.seeds,
                "n": self.rollouts, "B": self.groups, "lr": self.lr, "evaluations": self.evaluations,
                "margin": self.margin, "metric": self.metric, "to_parents": bool(self.parents), "sets": self.sets,
                "own_sizes": self.own_sizes}

    @property
    def folder(self) -> Path:
        """Where a comparison is kept unless a folder is given."""
        name = "-".join(labels_of(self.arms))
        return Path("comparisons") / (f"to-parents-{len(self.arms)}-arms" if len(name) > LONG else name)

    def recipes(self) -> dict[str, Recipe]:
        """The recipe of every arm, with one learning rate for all.

        Raises:
            UserError: for a method or setting that does not exist or does not fit, and for two equal recipes.
        """
        made = {}
        for arm in self.arms:
            method, own = arm_of(arm, self.sets)
            recipe = arm_recipe(method, own, **self.sizes)
            job = Job(arm, self.setting, method, 0, {}, recipe.rollouts, recipe.groups, lr=TRIED, sets=own)
            made[arm] = recipe_of(job)
        _check_differ({arm: describe(recipe) for arm, recipe in made.items()})
        return made


def _terms(methods: Sequence[str], *, budget: str | None, seeds: int = 5, rollouts: int | None = None,
           groups: int | None = None, own_sizes: bool = False, lr: float | None = None, evaluations: int = 8,
           margin: float = MARGIN, metric: str = PASS, sets: Sequence[str] = (), seed: int = 0,
           to_parents: bool = False, **setting: Any) -> Terms:
    if len(methods) < 2 and not to_parents:
        raise UserError(TWO)
    if own_sizes and (rollouts or groups):
        raise UserError("--own-sizes gives every arm its method's own n and B: leave -n and -B out, or give one arm "
                        "its sizes, such as mcgrpo@rollouts=9, without --own-sizes")
    if budget is None:
        raise UserError("comparing methods trains them and needs a --budget for the whole comparison, such as "
                        "200k-rollouts")
    arms, parents = with_parents(methods) if to_parents else (tuple(methods), {})
    return Terms(arms, parents, setting_with(**setting), budget, seeds, rollouts or Recipe.rollouts,
                 groups or Recipe.groups, own_sizes, lr, evaluations, margin, metric, settings_of(sets), seed)


# the functions ------------------------------------------------------------------------------------------------


def plan_comparison(methods: Sequence[str], *, out: str | Path | None = None, workers: int | None = None,
                    observer: Observer = SILENT, **terms: Any) -> ComparisonPlan:
    """Design a comparison of methods and estimate its cost; nothing is trained or written.

    Takes the arguments of `compare_methods` and raises the same errors. A few rollouts are sampled to measure their
    length and speed, unless the design is already sealed in `out`.
    """
    asked = _terms(methods, **terms)
    return _planned(asked, asked.recipes(), Path(out) if out else asked.folder, workers, observer)


def compare_methods(
    methods: Sequence[str], *, budget: str, seeds: int = 5, rollouts: int | None = None, groups: int | None = None,
    own_sizes: bool = False, lr: float | None = None, evaluations: int = 8, margin: float = MARGIN,
    metric: str = PASS, sets: Sequence[str] = (), seed: int = 0, to_parents: bool = False,
    out: str | Path | None = None, workers: int | None = None, observer: Observer = SILENT, **setting: Any,
) -> MethodComparison | ParentComparison:
    """Train methods at equal cost and judge which is better; every arm's learning rate is tuned alike.

    A comparison that was stopped continues where it stopped; one that has ended is judged again from its records.

    Args:
        methods: names, .py files or METHOD@SEAM.NAME=VALUE,...
        budget: the cost of all probes and runs, with a unit: 200k-rollouts, 2M-tokens, 1e15flop, 1h.
        seeds: runs per arm, paired by seed.
        rollouts: n of every arm, completions per prompt (default 8).
        groups: B of every arm, prompts per update (default 16).
        own_sizes: give every arm its method's own n and B instead.
        lr: where the learning-rate probe starts; each arm tries a quarter, 1 and 4 times it. By default it follows
            from the model's size.
        evaluations: the number of evaluations of a run, at costs that double.
        margin: difference in reward below which two arms count as the same.
        metric: pass@1, best@4 or worst@4.
        sets: SEAM.NAME=VALUE, settings of every arm.
        seed: of everything that is drawn at random.
        to_parents: judge each method against its parent only; missing parents are added.
        out: the folder; by default comparisons/ and the arms' names.
        workers: runs side by side; results do not depend on it.
        observer: receives `Warned` and `Sampled` (`isocost.steps.events`), `ComparisonPlan`, `Sealed` and `Probed`.
        **setting: fields of `isocost.worlds.setting.Setting`, such as model and data.

    Returns:
        A `ParentComparison` with `to_parents`, else a `MethodComparison`.

    Raises:
        UserError: for arguments that do not fit, a budget that is too small, or a folder with other settings or with
            records that were changed after the design was sealed.
        Interrupted: after a signal, once everything is saved.
    """
    asked = _terms(methods, budget=budget, seeds=seeds, rollouts=rollouts, groups=groups, own_sizes=own_sizes, lr=lr,
                   evaluations=evaluations, margin=margin, metric=metric, sets=sets, seed=seed, to_parents=to_parents,
                   **setting)
    made = asked.recipes()      # a mistake in a method is found before the folder is made
    folder = Path(out) if out else asked.folder
    with writing(folder):
        plan = _planned(asked, made, folder, workers, observer)
        observer.on(plan)
        return _trained(asked, plan, folder, workers, observer)


def _planned(asked: Terms, made: Mapping[str, Recipe], folder: Path, workers: int | None, observer: Observer
             ) -> ComparisonPlan:
    """The sealed design in a folder, else a new one, of the arms that were `made`."""
    check(folder, asked.setting, **asked.asked)
    home, side_by_side = Home(folder), workers_of(asked.setting, workers)
    if home.has("compare.json"):
        sealed = home.read("compare.json", "compare")
        fit(folder / "compare.json", sealed["expected"], Bill)
        return ComparisonPlan(opened(home), Bill.of(sealed["expected"]), asked.setting, side_by_side,
                              sealed.get("pricing") or {}, _noise(home))
    alike, known = _estimated(made, asked.sets, asked.setting, observer)
    try:
        d = design(asked.arms, known, budget=asked.budget, seeds=asked.seeds, rollouts=asked.rollouts,
                   groups=asked.groups, lr=asked.lr, evaluations=asked.evaluations, margin=asked.margin,
                   metric=asked.metric, seed=asked.seed, samples=asked.setting.samples, parents=asked.parents,
                   sets=asked.sets, own_sizes=asked.own_sizes)
    except UserError:
        observer.on(Sampled.of(known["cost"]))       # it was paid for even though the design failed
        raise
    bill = expected(d, known, asked.setting.samples)
    return ComparisonPlan(d, bill, asked.setting, side_by_side, known["cost"], _noise(home), tuple(map(tuple, alike)))


def _trained(asked: Terms, plan: ComparisonPlan, folder: Path, workers: int | None, observer: Observer
             ) -> MethodComparison | ParentComparison:
    """Seal a plan, train its arms and judge them."""
    d, home = plan.design, found(folder, asked.setting, **asked.asked)
    if not home.has("compare.json"):
        home.write("compare.json", {"design": d.data(), "expected": plan.expected.data(),
                                    "pricing": dict(plan.pricing), "seal": digest(d.data())})
    seal = str(home.read("compare.json", "compare")["seal"])
    observer.on(Sealed(seal, folder / "compare.json"))
    trained, notes = _tracks(home, d, _run_arms(home, d, seal, observer, workers), seal)
    rates = {label: rule.at(d.batch(label)) for label, rule in _rates(home).items()}
    if d.parents:
        parents = {label: d.parents[label] for label in d.labels if label in d.parents}
        judged = wave(trained, parents, unit=d.unit, margin=d.margin, seed=asked.seed)
        many = ParentComparison(judged, rates, _bill(home), seal, d.metric, tuple(notes), folder / "wave.json")
        home.write("wave.json", many.to_dict())
        return many
    answer = compare(trained, unit=d.unit, margin=d.margin, seed=asked.seed, missing=notes)
    pair = MethodComparison(answer, rates, _bill(home), seal, d.metric, folder / "comparison.json")
    home.write("comparison.json", pair.to_dict())
    return pair


# planning -----------------------------------------------------------------------------------------------------


def _estimated(made: Mapping[str, Recipe], shared: Mapping[str, str], setting: Setting, observer: Observer
               ) -> tuple[list[list[str]], dict[str, Any]]:
    """Which arms are alike (`_same_steps`), and what rollouts cost here (`_priced`); checks problems and reward."""
    opened = open_setting(setting, check=True)
    try:
        refuse_unbounded(opened.problems)
        for warning in opened.problems.report.warnings[:WARNED]:
            observer.on(Warned(warning))
        return _same_steps(made, shared, opened.sides.train), _priced(opened)
    finally:
        opened.grader.close()


def _same_steps(made: Mapping[str, Recipe], shared: Mapping[str, str], like: Sequence[Problem]) -> list[list[str]]:
    """Groups of arms that take bit-identical first steps in `isocost.worlds.toy`.

    Raises:
        UserError: for an arm that cannot take a step there; it would fail after other arms were paid for.
    """
    from isocost.contract.check import tried

    by: dict[str, list[str]] = {}
    for arm, recipe in made.items():
        steps: list[Any] = []
        tried(arm, recipe.but(improve=partial(_recorded, inner=recipe.improve, into=steps)), sets=shared, like=like)
        by.setdefault(records.canonical([recipe.rollouts, recipe.groups, steps]), []).append(arm)
    return [own for own in by.values() if len(own) > 1]


def _recorded(*given: Any, inner: Improve, into: list[Any]) -> dict[str, float]:
    """`inner`, with the resulting weights appended to `into`."""
    seen, (_, _, world, _) = inner(*given), given
    into.append({k: w.tolist() for k, w in world.learner.weights().items()})
    return seen


def _check_differ(recipes: Mapping[str, Any]) -> None:
    """Raises UserError if two recipes are equal: comparing them would measure noise only."""
    first: dict[str, str] = {}
    for label, recipe in recipes.items():
        same = first.setdefault(records.canonical(recipe), label)
        if same != label:
            raise UserError(f"{same} and {label} are the same recipe: there is nothing to compare")


def opened(home: Home) -> Design:
    """The sealed design of a comparison. Raises UserError if it, or the file of a method, was changed since."""
    sealed = home.read("compare.json", "compare")
    if digest(sealed["design"]) != sealed["seal"]:
        raise UserError(f"{home.path}/compare.json was changed after it was sealed: its hash does not match its seal")
    fit(home.path / "compare.json", sealed["design"], Design)
    d = Design.of(sealed["design"])
    for label in d.labels:
        if records.canonical(d.recipe(label)) != records.canonical(today(d.recipes[label])):
            raise UserError(f"{label} was changed after {home.path} was sealed; choose another --out")
    return d


def _priced(opened: Opened) -> dict[str, Any]:
    """A profile of a few sampled problems; its cost is billed as `pricing`."""
    from isocost.steps.pass_rates import pass_rates

    return asyncio.run(pass_rates(opened.setting, problems=PRICED, opened=opened))


# running ------------------------------------------------------------------------------------------------------


def _run_arms(home: Home, d: Design, seal: str, observer: Observer, workers: int | None) -> dict[str, list[Job]]:
    """Probe every arm's learning rate, then train it; returns the training jobs by arm."""
    start = RateRule.of(d.rule)
    probes = {label: [_job(home, d, label, PlannedRun("probe", *d.size(label), d.probe_rollouts, x, i, s), start, seal)
                      for i, s in enumerate(d.probe_seeds) for x in MULTIPLIERS] for label in d.labels}
    with home.phase("probe"):
        run_jobs([job for own in probes.values() for job in own], home.runs, "learning rates", observer, workers)
    if not home.has("rates.json"):
        seen = {label: probe_results(curves([home.runs / j.name for j in own], d.metric))
                for label, own in probes.items()}
        home.write("rates.json", {"rates": {label: fit_rate(own, d.batch(label)).data() for label, own in seen.items()},
                                  "noise": _noise_of(home, d, probes)})
    rules = _rates(home)
    flags = dict.fromkeys(text for label in d.labels for text in rules[label].flags)
    observer.on(Probed(
        d, {label: rules[label].at(d.batch(label)) for label in d.labels},
        tuple((tuple(label for label in d.labels if text in rules[label].flags), text) for text in flags),
        _noise(home),
    ))
    trains = {label: [_job(home, d, label, PlannedRun("train", *d.size(label), d.rollouts, 1.0, i, s), rules[label],
                           seal) for i, s in enumerate(d.seeds)] for label in d.labels}
    with home.phase("train"):       # seed by seed: a comparison that is stopped has whole replicates
        jobs = [own[i] for i in range(len(d.seeds)) for own in trains.values()]
        run_jobs(jobs, home.runs, "runs", observer, workers)
    return trains


def _noise_of(home: Home, d: Design, probes: Mapping[str, Sequence[Job]]) -> dict[str, float] | None:
    """The standard deviation between probe runs that differ in their seed only, at their end, pooled over arms.

    `sd` in reward on the test split, and its degrees of freedom `dof`; None for probes of one seed.
    """
    by: dict[tuple[str, float], list[Curve]] = {}
    for label, own in probes.items():
        for curve in curves([home.runs / j.name for j in own], d.metric):
            by.setdefault((label, curve.multiplier), []).append(curve)
    found = pooled_sd([np.array([c.audit[-1] for c in own if not c.diverged]) for own in by.values()])
    return None if found is None else {"sd": found[0], "dof": found[1]}


def _noise(home: Home) -> dict[str, float] | None:
    return home.read("rates.json", "compare").get("noise") if home.has("rates.json") else None


def _rates(home: Home) -> dict[str, RateRule]:
    found = home.read("rates.json", "compare")["rates"]
    fit(home.path / "rates.json", found, dict[str, RateRule])
    return {label: RateRule.of(rule) for label, rule in found.items()}


def _job(home: Home, d: Design, label: str, run: PlannedRun, rule: RateRule, seal: str) -> Job:
    """One run of one arm, as the job of a study, with the arm's method and a budget in the comparison's unit."""
    probe = run.purpose == "probe"
    job = job_of(home, run, rule, d.probe_points if probe else d.points, seal)
    times = f"-x{run.multiplier:g}" if probe else ""
    job = replace(
        job, name=f"{run.purpose}-{label}{times}-s{run.index}", method=d.arms[label], sets=d.sets.get(label, {}),
        budget={BUDGETS.get(d.unit, d.unit): d.probe_cost if probe else d.cost}, warmup=warmup(run.M),
    )
    recipe_of(job)      # a mistake in the recipe is found before anything is opened
    return job


def _tracks(home: Home, d: Design, trains: Mapping[str, Sequence[Job]], seal: str
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


def _bill(home: Home) -> dict[str, dict[str, float]]:
    """What probes and runs cost: their numbers, rollouts and tokens trained on, rollouts lost when a process was
    killed (`lost`), rollouts of evaluations (`evaluated`), tokens of exact evaluations (`scored`), seconds of run time.

    `pricing` is what estimating the cost used; comparisons of earlier versions do not record it.
    """
    out: dict[str, dict[str, float]] = {}
    if priced := home.read("compare.json", "compare").get("pricing"):
        out["pricing"] = {"runs": 0, "rollouts": priced["rollouts"], "tokens": priced["decode"], "lost": 0,
                          "evaluated": 0, "scored": 0, "seconds": round(priced["seconds"], 3)}
    for f in find_runs(home.runs):
        end = read_json(f / "end.json", ENDED)
        own = out.setdefault(str(read_json(f / "run.json").get("purpose")), {})
        spent, lost, held_out = (end["bill"].get(account, {}) for account in ("train", "lost", "evaluation"))
        for key, amount in (("runs", 1), ("rollouts", spent.get("rollouts", 0)), ("tokens", spent.get("decode", 0)),
                            ("lost", lost.get("rollouts", 0)), ("evaluated", held_out.get("rollouts", 0)),
                            ("scored", held_out.get("score", 0)), ("seconds", end["seconds"])):
            own[key] = round(own.get(key, 0) + amount, 3)
    return out
