"""Compare methods by training them: plan, seal, probe learning rates, train, judge.

    compare.json     the design, sealed before anything is trained: arms, sizes, budget, candidate rates, seeds, margin;
                     and the cost of the few rollouts that estimated what the comparison costs (`pricing`)
    rates.json       every arm's learning rate, from its own probe, judged on the validation split
    comparison.json  the answers, on the test split, and the bill (wave.json for a comparison with parents)
    runs/            probe-ARM-xRATE-sINDEX and train-ARM-sINDEX, paired by seed
    pilot/           a pilot, if there was one (`isocost.compare.gate`): it gives the rates, and nothing is probed

A comparison that was stopped continues when it is called again with the same arguments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from isocost.compare.design import Design, design, expected
from isocost.compare.gate import SEEDS, Gate, known_before, piloted, rates_of, read_pilot, train_pilot
from isocost.compare.judge import MARGIN, compare
from isocost.compare.many import wave
from isocost.compare.results import ComparisonPlan, MethodComparison, ParentComparison, Sealed
from isocost.compare.terms import Terms, terms_of
from isocost.compare.training import bill, method_job, rates, run_arms, tracks_of
from isocost.disk.jsonfile import fit
from isocost.errors import UserError
from isocost.gather import finished
from isocost.laws.curves import PASS
from isocost.planner.budget import Bill
from isocost.planner.forecast import digest
from isocost.runs import files as records
from isocost.runs import rules
from isocost.runs.job import Job
from isocost.runs.launch.site import HERE, Site
from isocost.runs.names import today
from isocost.seams import Improve, Recipe
from isocost.steps.events import SILENT, Observer, Sampled, Warned
from isocost.steps.folder import Home, check, found, writing
from isocost.steps.settings import workers_of
from isocost.steps.training.jobs import run_jobs
from isocost.types import Problem
from isocost.worlds.setting import Opened, Setting, open_setting, refuse_unbounded

PRICED = 8              # problems sampled to estimate the cost of a rollout
WARNED = 8              # warnings of the check of problems and reward that are reported


def plan_comparison(methods: Sequence[str], *, out: str | Path | None = None, workers: int | None = None,
                    observer: Observer = SILENT, **terms: Any) -> ComparisonPlan:
    """Design a comparison of methods and estimate its cost; nothing is trained or written.

    Takes the arguments of `compare_methods` and raises the same errors. A few rollouts are sampled to measure their
    length and speed, unless the design is already sealed in `out`.
    """
    asked = terms_of(methods, **terms)
    return _planned(asked, asked.recipes(), Path(out) if out else asked.folder, workers, observer)


def compare_methods(
    methods: Sequence[str], *, budget: str, seeds: int = 5, rollouts: int | None = None, groups: int | None = None,
    own_sizes: bool = False, lr: float | None = None, evaluations: int = 8, margin: float = MARGIN,
    metric: str = PASS, sets: Sequence[str] = (), seed: int = 0, to_parents: bool = False,
    out: str | Path | None = None, workers: int | None = None, site: Site = HERE, observer: Observer = SILENT,
    **setting: Any,
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
        site: where they are executed; results do not depend on it.
        observer: receives `Warned` and `Sampled` (`isocost.steps.events`), `ComparisonPlan`, `Sealed` and `Probed`.
        **setting: fields of `isocost.worlds.setting.Setting`, such as model and data.

    Returns:
        A `ParentComparison` with `to_parents`, else a `MethodComparison`.

    Raises:
        UserError: for arguments that do not fit, a budget that is too small, or a folder with other settings or with
            records that were changed after the design was sealed.
        Interrupted: after a signal, once everything is saved.
    """
    asked = terms_of(methods, budget=budget, seeds=seeds, rollouts=rollouts, groups=groups, own_sizes=own_sizes, lr=lr,
                   evaluations=evaluations, margin=margin, metric=metric, sets=sets, seed=seed, to_parents=to_parents,
                   **setting)
    made = asked.recipes()      # a mistake in a method is found before the folder is made
    folder = Path(out) if out else asked.folder
    with writing(folder):
        plan = _planned(asked, made, folder, workers, observer)
        observer.on(plan)
        return _trained(asked, plan, folder, workers, observer, site)


def pilot_methods(methods: Sequence[str], *, pilot: int = SEEDS, budget: str, out: str | Path | None = None,
                  workers: int | None = None, site: Site = HERE, observer: Observer = SILENT, **terms: Any) -> Gate:
    """Train a pilot of a comparison of methods, and say whether the comparison is decidable.

    Takes the arguments of `compare_methods`, of the comparison that is planned, and raises the same errors. `pilot` is
    the number of seeds of the pilot, which are not those of the comparison. The pilot is kept in `out`/pilot; a
    comparison in `out` whose runs cost as much then takes its learning rates and spread from there.
    """
    asked = terms_of(methods, budget=budget, **terms)
    made = asked.recipes()
    folder = (Path(out) if out else asked.folder) / "pilot"
    with writing(folder):
        plan = _planned(asked, made, folder, workers, observer)
        home, seal = _sealed(asked, plan, folder)

        def run(jobs: Sequence[Job], title: str) -> object:
            return run_jobs(jobs, home.runs, title, observer, workers, site)

        train_pilot(home, plan.design, asked.seed, pilot, seal, observer, run, method_job)
    return read_pilot(folder, plan.design.labels, seeds=len(plan.design.seeds), margin=plan.design.margin,
                      metric=plan.design.metric)


def _planned(asked: Terms, made: Mapping[str, Recipe], folder: Path, workers: int | None, observer: Observer
             ) -> ComparisonPlan:
    """The sealed design in a folder, else a new one, of the arms that were `made`."""
    check(folder, asked.setting, **asked.asked)
    home, side_by_side = Home(folder), workers_of(asked.setting, workers)
    if home.has("compare.json"):
        sealed = home.record("compare.json", "compare")
        fit(folder / "compare.json", sealed["expected"], Bill)
        d = opened(home)
        return ComparisonPlan(d, Bill.of(sealed["expected"]), asked.setting, side_by_side,
                              sealed.get("pricing") or {}, *known_before(home, d, asked.setting))
    alike, known = _estimated(made, asked.sets, asked.setting, observer)
    samples = asked.setting.evaluation.samples
    try:
        d = design(asked.arms, known, budget=asked.budget, seeds=asked.seeds, rollouts=asked.rollouts,
                   groups=asked.groups, lr=asked.lr, evaluations=asked.evaluations, margin=asked.margin,
                   metric=asked.metric, seed=asked.seed, samples=samples, parents=asked.parents,
                   sets=asked.sets, own_sizes=asked.own_sizes)
    except UserError:
        observer.on(Sampled.of(known["cost"]))       # it was paid for even though the design failed
        raise
    return ComparisonPlan(d, expected(d, known, samples), asked.setting, side_by_side, known["cost"],
                          *known_before(home, d, asked.setting), tuple(map(tuple, alike)))


def _trained(asked: Terms, plan: ComparisonPlan, folder: Path, workers: int | None, observer: Observer, site: Site
             ) -> MethodComparison | ParentComparison:
    """Seal a plan, train its arms and judge them."""
    d = plan.design
    home, seal = _sealed(asked, plan, folder)
    observer.on(Sealed(seal, folder / "compare.json"))
    if not home.has("rates.json") and (pilot := piloted(home, d, asked.setting)) is not None:
        home.write("rates.json", rates_of(pilot, d))

    def run(jobs: Sequence[Job], title: str) -> object:
        return run_jobs(jobs, home.runs, title, observer, workers, site)

    trained, notes = tracks_of(home, d, run_arms(home, d, seal, observer, run, method_job), seal)
    chosen = {label: rule.at(d.batch(label)) for label, rule in rates(home).items()}
    if d.parents:
        parents = {label: d.parents[label] for label in d.labels if label in d.parents}
        judged = wave(trained, parents, unit=d.unit, margin=d.margin, seed=asked.seed)
        many = ParentComparison(judged, chosen, bill(home), seal, d.metric, tuple(notes), folder / "wave.json")
        home.write("wave.json", many.to_dict())
        return many
    answer = compare(trained, unit=d.unit, margin=d.margin, seed=asked.seed, missing=notes)
    pair = MethodComparison(answer, chosen, bill(home), seal, d.metric, folder / "comparison.json")
    home.write("comparison.json", pair.to_dict())
    return pair


def _sealed(asked: Terms, plan: ComparisonPlan, folder: Path) -> tuple[Home, str]:
    """The folder with the sealed design, and the seal."""
    home = found(folder, asked.setting, **asked.asked)
    if not home.has("compare.json"):
        data = plan.design.data()
        home.write("compare.json", {"design": data, "expected": plan.expected.data(), "pricing": dict(plan.pricing),
                                    "seal": digest(data)})
    return home, str(home.record("compare.json", "compare")["seal"])


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
    metrics, (_, _, world, _) = inner(*given), given
    into.append({k: w.tolist() for k, w in world.learner.weights().items()})
    return metrics


def opened(home: Home) -> Design:
    """The sealed design of a comparison. Raises UserError if it, or the file or rule of a method, was changed since."""
    sealed = home.record("compare.json", "compare")
    if digest(sealed["design"]) != sealed["seal"]:
        raise UserError(f"{home.path}/compare.json was changed after it was sealed: its hash does not match its seal")
    fit(home.path / "compare.json", sealed["design"], Design)
    d = Design.of(sealed["design"])
    rules.refuse_other_runs(records.runs_of(home.path), home.path)
    for label in d.labels:
        rules.refuse_other(home.path, d.recipes[label], home.asked.get("code"))
        if records.canonical(d.recipe(label)) != records.canonical(today(d.recipes[label])):
            raise UserError(f"{label} was changed after {home.path} was sealed; choose another --out")
    return d


def _priced(opened: Opened) -> dict[str, Any]:
    """A profile of a few sampled problems; its cost is billed as `pricing`."""
    from isocost.steps.training.pass_rates import pass_rates

    return finished(pass_rates(opened.setting, problems=PRICED, opened=opened))
