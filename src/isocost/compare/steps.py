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

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from isocost.compare.design import Design, design, expected
from isocost.compare.gate import SEEDS, Gate, known_before, piloted, rates_of, read_pilot, seeds_of, train_pilot
from isocost.compare.judge import compare
from isocost.compare.many import wave
from isocost.compare.results import ComparisonPlan, MethodComparison, ParentComparison, Sealed
from isocost.compare.terms import Terms
from isocost.compare.training import Trials, bill, method_job, rates_used, tracks_of, train_arms
from isocost.disk.jsonfile import fit
from isocost.errors import UserError
from isocost.gather import finished
from isocost.planner.budget import Usage
from isocost.planner.forecast import digest
from isocost.runs import files as records
from isocost.runs import parted, rules
from isocost.runs.files import RunFiles
from isocost.runs.launch.site import HERE, Site
from isocost.runs.names import today
from isocost.seams import Improve, Recipe
from isocost.steps.events import SILENT, CostSample, Observer, Warned
from isocost.steps.execution import Execution
from isocost.steps.folder import StudyFolder, check, found, writing
from isocost.steps.settings import workers_of
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
    asked, folder = _asked(methods, out, "", terms)
    return _planned(asked, asked.recipes(), folder, Execution(workers, observer=observer))


def compare_methods(
    methods: Sequence[str], *, out: str | Path | None = None, workers: int | None = None, site: Site = HERE,
    observer: Observer = SILENT, **terms: Any,
) -> MethodComparison | ParentComparison:
    """Train methods at equal cost and judge which is better; every arm's learning rate is tuned alike.

    A comparison that was stopped continues where it stopped; one that has ended is judged again from its records.

    Args:
        methods: names, .py files or METHOD@SEAM.NAME=VALUE,...
        out: the folder; by default comparisons/ and the arms' names.
        workers: runs side by side; results do not depend on it.
        site: where they are executed; results do not depend on it.
        observer: receives `Warned` and `CostSample` (`isocost.steps.events`), `ComparisonPlan`, `Sealed` and `Probed`.
        **terms: budget, seeds (default: 5, or those that a pilot in `out` asks for), rollouts, groups, lr, evaluations,
            margin, metric and seed (`isocost.compare.design.Conditions`);
            own_sizes: give every arm its method's own n and B instead;
            sets: SEAM.NAME=VALUE, settings of every arm;
            to_parents: judge each method against its parent only, missing parents are added;
            and fields of `isocost.worlds.setting.Setting`, such as model and data.

    Returns:
        A `ParentComparison` with `to_parents`, else a `MethodComparison`.

    Raises:
        UserError: for arguments that do not fit, a budget that is too small, or a folder with other settings or with
            records that were changed after the design was sealed.
        Interrupted: after a signal, once everything is saved.
    """
    asked, folder = _asked(methods, out, "", terms)
    with _begin(asked, folder, Execution(workers, site, observer)) as trials:
        return conclude(trials, asked.setting, asked.common.seed)


def pilot_methods(methods: Sequence[str], *, pilot: int = SEEDS, out: str | Path | None = None,
                  workers: int | None = None, site: Site = HERE, observer: Observer = SILENT, **terms: Any) -> Gate:
    """Train a pilot of a comparison of methods, and say whether the comparison is decidable.

    Takes the arguments of `compare_methods`, of the comparison that is planned, and raises the same errors. `pilot` is
    the number of seeds of the pilot, which are not those of the comparison. The pilot is kept in `out`/pilot; a
    comparison in `out` whose runs cost as much then takes its learning rates and spread from there.
    """
    asked, folder = _asked(methods, out, "pilot", terms)
    with _begin(asked, folder, Execution(workers, site, observer)) as trials:
        return run_pilot(trials, asked.common.seed, pilot)


def run_pilot(trials: Trials, seed: int, seeds: int) -> Gate:
    """Train the pilot of a comparison with this seed, and say whether the comparison is decidable."""
    train_pilot(trials, seed, seeds)
    d = trials.design
    return read_pilot(trials.home.path, d.labels, seeds=len(d.seeds), margin=d.margin, metric=d.metric)


def conclude(trials: Trials, setting: Setting, seed: int, lacks: Sequence[str] = ()
             ) -> MethodComparison | ParentComparison:
    """Train the arms of a sealed design and judge them. `lacks` are notes on what their records lack."""
    home, d, seal = trials.home, trials.design, trials.seal
    trials.execution.observer.on(Sealed(seal, home.path / "compare.json"))
    if not home.has("rates.json") and (pilot := piloted(home, d, setting)) is not None:
        home.write("rates.json", rates_of(pilot, d))
    trained, notes = tracks_of(trials, train_arms(trials))
    apart = parted.of_arms({label: [RunFiles(Path(t.run)) for t in own] for label, own in trained.items()})
    chosen, notes = rates_used(home, d), [*notes, *lacks, *apart]
    judged: MethodComparison | ParentComparison
    if d.parents:
        parents = {label: d.parents[label] for label in d.labels if label in d.parents}
        many = wave(trained, parents, unit=d.unit, margin=d.margin, seed=seed)
        judged = ParentComparison(many, chosen, bill(home), seal, d.metric, tuple(notes), home.path / "wave.json")
    else:
        answer = compare(trained, unit=d.unit, margin=d.margin, seed=seed, missing=notes)
        judged = MethodComparison(answer, chosen, bill(home), seal, d.metric, home.path / "comparison.json")
    home.write(judged.file.name, judged.to_dict())
    return judged


def sealed_in(home: StudyFolder, d: Design, expected: Mapping[str, Any], **beside: Any) -> str:
    """Seal a design in its folder unless it is sealed there; returns the seal.

    Raises UserError if what was sealed was changed since.
    """
    if not home.has("compare.json"):
        home.write("compare.json", {"design": d.data(), "expected": expected, **beside, "seal": digest(d.data())})
    return str(_unchanged(home)["seal"])


def _asked(methods: Sequence[str], out: str | Path | None, inside: str, terms: Mapping[str, Any]) -> tuple[Terms, Path]:
    """The arguments, and the folder; seeds that are not stated are those of the folder (`seeds_of`)."""
    asked = Terms.of(methods, **{k: v for k, v in terms.items() if (k, v) != ("seeds", None)})
    folder = Path(out or asked.folder) / inside
    if terms.get("seeds") is None:
        asked = replace(asked, common=replace(asked.common, seeds=seeds_of(folder, asked.arms, asked.common)))
    return asked, folder


@contextmanager
def _begin(asked: Terms, folder: Path, execution: Execution) -> Iterator[Trials]:
    """The sealed comparison in its folder, while it is written to."""
    made = asked.recipes()      # a mistake in a method is found before the folder is made
    with writing(folder):
        plan = _planned(asked, made, folder, execution)
        execution.observer.on(plan)
        home = found(folder, asked.setting, **asked.asked)
        seal = sealed_in(home, plan.design, plan.expected.data(), pricing=dict(plan.pricing))
        yield Trials(home, plan.design, seal, execution, method_job)


def _planned(asked: Terms, made: Mapping[str, Recipe], folder: Path, execution: Execution) -> ComparisonPlan:
    """The sealed design in a folder, else a new one, of the arms that were `made`."""
    check(folder, asked.setting, **asked.asked)
    home, side_by_side = StudyFolder(folder), workers_of(asked.setting, execution.workers)
    if home.has("compare.json"):
        sealed = home.record("compare.json", "compare")
        fit(folder / "compare.json", sealed["expected"], Usage)
        d = opened(home)
        return ComparisonPlan(d, Usage.of(sealed["expected"]), asked.setting, side_by_side,
                              sealed.get("pricing") or {}, *known_before(home, d, asked.setting))
    alike, known = _estimated(made, asked.sets, asked.setting, execution.observer)
    samples = asked.setting.evaluation.samples
    try:
        d = design(asked.arms, known, asked.common, samples=samples, parents=asked.parents, sets=asked.sets,
                   own_sizes=asked.own_sizes)
    except UserError:
        execution.observer.on(CostSample.of(known["cost"]))       # it was paid for even though the design failed
        raise
    return ComparisonPlan(d, expected(d, known, samples), asked.setting, side_by_side, known["cost"],
                          *known_before(home, d, asked.setting), tuple(map(tuple, alike)))


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


def opened(home: StudyFolder) -> Design:
    """The sealed design of a comparison. Raises UserError if it, or the file or rule of a method, was changed since."""
    sealed = _unchanged(home)
    fit(home.path / "compare.json", sealed["design"], Design)
    d = Design.of(sealed["design"])
    rules.refuse_other_runs(records.runs_of(home.path), home.path)
    for label in d.labels:
        rules.refuse_other(home.path, d.recipes[label], home.asked.get("code"))
        if records.canonical(d.recipe(label)) != records.canonical(today(d.recipes[label])):
            raise UserError(f"{label} was changed after {home.path} was sealed; choose another --out")
    return d


def _unchanged(home: StudyFolder) -> dict[str, Any]:
    """compare.json. Raises UserError if its design was changed after it was sealed."""
    sealed = home.record("compare.json", "compare")
    if digest(sealed["design"]) != sealed["seal"]:
        raise UserError(f"{home.path}/compare.json was changed after it was sealed: its hash does not match its seal")
    return sealed


def _priced(opened: Opened) -> dict[str, Any]:
    """A profile of a few sampled problems; its cost is billed as `pricing`."""
    from isocost.steps.training.pass_rates import pass_rates

    return finished(pass_rates(opened, problems=PRICED))
