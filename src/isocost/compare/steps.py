"""A comparison: several methods, or several folders of runs, judged at equal cost by `isocost.compare.judge`.

    compare.json     the design, sealed before anything is trained: arms, sizes, budget, candidate rates, seeds, margin;
                     and what was paid for the few answers that told what they cost (`pricing`)
    rates.json       every arm's learning rate, from its own probe, judged on the problems that choose
    comparison.json  the answers, on the problems that are reported, and the bill
    runs/            probe-ARM-xRATE-sINDEX and train-ARM-sINDEX, paired by seed

A comparison that was stopped goes on when its command is given again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from isocost import methods
from isocost.cli import text as tell
from isocost.compare import parents as wave
from isocost.compare.design import Design, arm_of, arm_recipe, design, expected, labels_of
from isocost.compare.judge import QUESTIONS, SAME, SHARES, TOLD, Answer, Comparison, Verdict, compare
from isocost.compare.many import RATE
from isocost.compare.many import wave as judge_wave
from isocost.compare.tracks import SPENT, Track, tracks
from isocost.errors import UserError
from isocost.jsonfile import page
from isocost.laws.curves import Curve, curves
from isocost.planner.budget import Bill
from isocost.planner.forecast import digest
from isocost.planner.learning_rate import MULTIPLIERS, RateRule, fit_rate, trials
from isocost.planner.study_runs import Run, warmup
from isocost.recipe import describe
from isocost.runs import files as records
from isocost.runs import measure
from isocost.runs.files import find_runs, fit, read_json
from isocost.runs.measure import TRAINING
from isocost.runs.names import today
from isocost.runs.run import Job, its_own, recipe_of
from isocost.runs.schema import ENDED
from isocost.seams import Improve, Recipe
from isocost.stats.power import POWER, pooled_sd, seeds_that_see
from isocost.steps.folder import Home, check, found, writing
from isocost.steps.jobs import job_of, run_jobs
from isocost.steps.settings import console_of, setting_of, workers_of
from isocost.steps.single import settings_of
from isocost.terminal import echo
from isocost.types import Problem
from isocost.words import counted
from isocost.worlds.setting import Opened, Setting, open_setting, refuse_unbounded

PRICED = 8              # problems sampled to tell what answers cost here
WARNED = 8              # warnings of the reward's check that are listed
LONG = 80               # characters of a folder's name, from which on it says how many arms there are
TRIED = 1e-3            # learning rate of the steps that are tried in the toy world; any tells arms apart
BUDGETS = {"flops": "flop", "seconds": "busy seconds"}   # what a run's own budget calls a unit
LOGGED = "wall-clock seconds (logged)"  # the seconds of imported runs
EVALUATED = "the seconds of imported runs are wall-clock time in their logs, with evaluations and pauses"
UNPAIRED = 2**31         # numbers from which on a run of no known seed has one that pairs it with nothing
READS = ("arms", "unit", "metric", "margin", "seed", "out", "as_json")      # what a comparison of folders goes by
JUDGED = ("kind", "metric", "scale", "unit", "model")     # what must be one; an arm may have runs on several problems


def run_compare(arms: Sequence[str], *, quiet: bool, as_json: bool = False, given: Mapping[str, str] | None = None,
                **asked: Any) -> int:
    """Compare methods by training them, or folders by reading their runs. Returns the exit code of the answer.

    `given` are the options that the user wrote, by name, as they are written; those that only methods have a use for
    are refused with folders.
    """
    console = console_of(quiet)
    folders = [_is_folder(a) for a in arms]
    if len(arms) < 2 and not asked.get("to_parents"):
        raise UserError("name two methods or more, such as `isocost compare grpo dapo`, or two folders of runs")
    if all(folders) and asked.get("to_parents"):
        raise UserError("--to-parents is for methods: which method a folder's runs are a change to is not recorded")
    unused = next((option for name, option in (given or {}).items() if name not in READS), None)
    if all(folders) and unused:
        raise UserError(f"{unused} is for methods, which are trained; folders are compared as they were run: leave it "
                        "out, or name methods")
    if all(folders):
        return of_folders([Path(a) for a in arms], console, as_json=as_json, **asked)
    if any(folders):
        one, other = arms[folders.index(True)], arms[folders.index(False)]
        known = other in methods.names() or other.endswith(".py")
        what = "a method: give all of one kind" if known else "neither a folder nor a method"
        raise UserError(f"{one} is a folder of runs and {other} is {what}")
    with ExitStack() as held:
        return of_methods(arms, console, as_json=as_json, held=held, **asked)


def _is_folder(name: str) -> bool:
    """Whether an argument names runs: a folder that is written as one, or that is not a method's name."""
    return Path(name).is_dir() and ("/" in name or name not in methods.names())


# folders of runs ----------------------------------------------------------------------------------------------


def of_folders(folders: Sequence[Path], console: Console, *, as_json: bool, out: Path | None, margin: float,
               unit: str, metric: str, seed: int, **_: Any) -> int:
    """Judge runs that are there, each folder one arm; the smallest common cost is where they are compared."""
    labels = labels_of([str(f) for f in folders], "an arm is compared with others")
    arms, notes, recorded, unpaired = {}, [], {}, 0
    for label, folder in zip(labels, folders, strict=True):
        runs = [f for f in find_runs(folder) if read_json(f / "run.json").get("purpose") not in ("probe", "edge")]
        if not runs:
            raise UserError(f"{folder} holds no run: expected {folder}/run.json, or folders below it with one")
        recorded[label] = [read_json(f / "run.json") for f in runs]
        _one_arm(folder, recorded[label])
        arms[label] = tracks(runs, unit, metric)
        if any(_seed_unknown(r) for r in recorded[label]):
            arms[label] = [replace(t, seed=UNPAIRED + unpaired + i) for i, t in enumerate(arms[label])]
            unpaired += len(arms[label])
        silent = len(runs) - len(arms[label])
        if silent:
            notes.append(f"{label}: {silent} of {counted(len(runs), 'run')} without an evaluation, left out")
    told = [(label, measure.of(r)) for label, own in recorded.items() for r in own]
    measure.one(told, JUDGED)
    notes += _cautions(recorded, arms)
    answer = compare(arms, unit=unit, margin=margin, seed=seed, missing=notes)
    logged = unit == "seconds" and any(r.get("imported") for runs in recorded.values() for r in runs)
    counted_in = LOGGED if logged else SPENT[unit]
    answer = replace(answer, missing=(*answer.missing, *((EVALUATED,) if logged else ())))
    show(console, answer, {}, counted_in)
    if out is not None:
        kept = {"folders": [str(f) for f in folders], "metric": metric, "counted_in": counted_in,
                "kind": told[0][1]["kind"]}
        with writing(out):
            Home(out).write("comparison.json", {**answer.data(), **kept})
        console.print(f"\nrecord: {out / 'comparison.json'}")
    if as_json:
        echo(page(answer.data()))
    return answer.exit_code


def _seed_unknown(run: Mapping[str, Any]) -> bool:
    """Whether an imported run's seed was not in its log: then it is a number, and pairs it with nothing."""
    return bool(run.get("imported")) and any(m.startswith("the seed") for m in run.get("missing") or ())


def _one_arm(folder: Path, runs: Sequence[Mapping[str, Any]]) -> None:
    """Raises UserError where a folder holds runs of several arms."""
    kinds = {(str(r.get("method")), *(r["arm"].get(k) for k in ("n", "B", "lr"))) for r in runs}
    if len(kinds) > 1:
        said = "; ".join(f"{m} n={n} B={B} lr={lr:g}" for m, n, B, lr in sorted(kinds, key=str)[:4])
        raise UserError(f"{folder} holds runs of {len(kinds)} arms ({said}); give one folder per arm")


def _cautions(recorded: Mapping[str, Sequence[Mapping[str, Any]]], arms: Mapping[str, Sequence[Track]]) -> list[str]:
    """What a reader should know of runs that no design of ours paired."""
    notes = []
    seeds = [{t.seed for t in own} for own in arms.values()]
    if not set.intersection(*seeds):
        notes.append("no seed is in every arm: runs are not paired")
    problems = {(r.get("problems") or {}).get("hash") for runs in recorded.values() for r in runs}
    if len(problems) > 1:
        notes.append("the training problems are not the same in all runs")
    said = [measure.of(r) for runs in recorded.values() for r in runs]
    problems_of = "trained on" if all(own["kind"] == TRAINING for own in said) else "held to"
    for key, what, option in (("model", "which model {} began from", "--model"),
                              ("data", f"which problems {{}} were {problems_of}", "--data")):
        unknown = sum(not own[key] for own in said)
        if unknown:
            whose = "the runs" if unknown == len(said) else "some of the runs"
            notes.append(f"{what.format(whose)} is not in their logs: give `isocost import {option}`")
    named = {own["metric"] for own in said}
    if len(named) > 1:
        notes.append(f"{', '.join(sorted(named - {''}))} of the logs is held against isocost's own held-out reward: "
                     "that both measure the same is not in the records")
    lacking = {m for runs in recorded.values() for r in runs for m in r.get("missing") or ()}
    notes += [f"the logs lack {m}" for m in sorted(lacking)]
    if not all(r.get("seal") for runs in recorded.values() for r in runs):
        notes.append("whether each arm's learning rate was tuned, and with how much, is not in the records: "
                     "`isocost compare METHOD METHOD` retunes it for every arm alike")
    return notes


def _tuned_arm(arm: str, shared: Mapping[str, str], sizes: Mapping[str, int], setting: Setting) -> Recipe:
    """An arm's recipe as its runs will have it, but for the learning rate, which is one for all until it is tuned."""
    method, own = arm_of(arm, shared)
    recipe = arm_recipe(method, own, **sizes)
    return recipe_of(Job(arm, setting, method, 0, {}, recipe.rollouts, recipe.groups, lr=TRIED, sets=own))


def _looked_at(made: Mapping[str, Recipe], shared: Mapping[str, str], setting: Setting, console: Console
               ) -> tuple[list[list[str]], dict[str, Any]]:
    """Which arms are alike (`_tried`), and what answers cost here (`_priced`); checks problems and reward too."""
    opened = open_setting(setting, check=True)
    try:
        refuse_unbounded(opened.problems)
        tell.flags(console, opened.problems.report.warnings[:WARNED])
        return _tried(made, shared, opened.sides.train), _priced(opened)
    finally:
        opened.grader.close()


def _tried(made: Mapping[str, Recipe], shared: Mapping[str, str], like: Sequence[Problem]) -> list[list[str]]:
    """Those of these arms that take the same first steps, to the last digit, in `isocost.worlds.toy`.

    Raises UserError for an arm that takes none: what raises there would do so after others were paid for.
    """
    from isocost.contract.check import tried

    by: dict[str, list[str]] = {}
    for arm, recipe in made.items():
        steps: list[Any] = []
        tried(arm, recipe.but(improve=partial(_noted, inner=recipe.improve, into=steps)), sets=shared, like=like)
        by.setdefault(records.canonical([recipe.rollouts, recipe.groups, steps]), []).append(arm)
    return [own for own in by.values() if len(own) > 1]


def _noted(*given: Any, inner: Improve, into: list[Any]) -> dict[str, float]:
    """`inner`, noting the policy that comes of it."""
    seen, (_, _, world, _) = inner(*given), given
    into.append({k: w.tolist() for k, w in world.learner.weights().items()})
    return seen


def _refuse_alike(recipes: Mapping[str, Any]) -> None:
    """Raises UserError for two recipes that are one: what is spent on them would tell nothing."""
    first: dict[str, str] = {}
    for label, recipe in recipes.items():
        same = first.setdefault(records.canonical(recipe), label)
        if same != label:
            raise UserError(f"{same} and {label} are one recipe: nothing differs between them")


# methods ------------------------------------------------------------------------------------------------------


def of_methods(arms: Sequence[str], console: Console, *, as_json: bool, held: ExitStack, out: Path | None,
               budget: str | None, seeds: int, rollouts: int | None, groups: int | None, own_sizes: bool,
               lr: float | None, evaluations: int, margin: float, unit: str, metric: str, seed: int,
               workers: int | None, dry_run: bool, to_parents: bool, sets: Sequence[str] = (), **asked: Any) -> int:
    """Train every arm and judge them: plan, seal, probe, train, answer. The folder is held until `held` is closed."""
    shared, setting = settings_of(sets), setting_of(asked)
    if own_sizes and (rollouts or groups):
        raise UserError("--own-sizes gives every arm its method's own n and B: leave -n and -B out, or give one arm "
                        "its sizes, such as mcgrpo@rollouts=9, without it")
    n, B = rollouts or Recipe.rollouts, groups or Recipe.groups
    arms, parents = wave.with_parents(arms) if to_parents else (arms, {})
    sizes = {} if own_sizes else {"groups": B, "rollouts": n}
    made = {arm: _tuned_arm(arm, shared, sizes, setting) for arm in arms}   # a mistake is told before all else
    _refuse_alike({arm: describe(recipe) for arm, recipe in made.items()})
    if budget is None:
        raise UserError("comparing methods trains them, which needs a --budget for all of it, such as 200k-rollouts")
    if unit != "rollouts":
        raise UserError(f"--unit {unit} is for folders of runs; methods are compared in the unit of their --budget")
    name = "-".join(labels_of(list(arms), "an arm is compared with others"))
    out = out or Path("comparisons") / (f"to-parents-{len(arms)}-arms" if len(name) > LONG else name)
    ask = {"seed": seed, "method": " ".join(arms), "budget": budget, "seeds": seeds, "n": n, "B": B, "lr": lr,
           "evaluations": evaluations, "margin": margin, "metric": metric, "to_parents": to_parents, "sets": shared,
           "own_sizes": own_sizes}
    if not dry_run:
        held.enter_context(writing(out))
    check(out, setting, **ask)
    home = Home(out)
    same: list[list[str]] = []
    if home.has("compare.json"):
        sealed = home.read("compare.json", "compare")
        fit(out / "compare.json", sealed["expected"], Bill)
        d, bill, pricing = opened(home), Bill.of(sealed["expected"]), sealed.get("pricing") or {}
    else:
        same, known = _looked_at(made, shared, setting, console)
        try:
            d = design(arms, known, budget=budget, seeds=seeds, rollouts=n, groups=B, lr=lr, evaluations=evaluations,
                       margin=margin, metric=metric, seed=seed, samples=setting.samples, parents=parents, sets=shared,
                       own_sizes=own_sizes)
        except UserError:
            tell.pricing(console, known["cost"])    # paid for, whatever comes of it
            raise
        bill, pricing = expected(d, known, setting.samples), known["cost"]
    show_design(console, d, bill, setting, workers_of(setting, workers), _noise(home))
    for labels in same:
        console.print(f"  [yellow]! {' and '.join(labels)} took the same steps in the toy world, to the last digit: it "
                      "may be that nothing differs between them here either[/]", soft_wrap=True)
    if dry_run:
        tell.pricing(console, pricing)
        if as_json:
            told = {**d.data(), "expected": bill.data(), "pricing": pricing}
            echo(page(told))
        return 0
    home = found(out, setting, **ask)
    if not home.has("compare.json"):
        home.write("compare.json", {"design": d.data(), "expected": bill.data(), "pricing": pricing,
                                    "seal": digest(d.data())})
    seal = str(home.read("compare.json", "compare")["seal"])
    console.print(f"  sealed {seal[:12]} in {out}/compare.json")
    trained, notes = _tracks(home, d, _contest(home, d, seal, console, workers), seal)
    rates = {label: rule.at(d.batch(label)) for label, rule in _rates(home).items()}
    more = {"seal": seal, "metric": d.metric, "rates": rates, "bill": _bill(home)}
    if d.parents:
        parents = {label: d.parents[label] for label in d.labels if label in d.parents}
        judged = judge_wave(trained, parents, unit=d.unit, margin=d.margin, seed=seed)
        home.write("wave.json", {**judged.data(), **more, "ended": notes})
        wave.show(console, judged, rates)
        code, name = wave.exit_code(judged), "wave.json"
    else:
        answer = compare(trained, unit=d.unit, margin=d.margin, seed=seed, missing=notes)
        home.write("comparison.json", {**answer.data(), **more})
        show(console, answer, rates)
        code, name = answer.exit_code, "comparison.json"
    console.print(f"\nrecord: {out / name}")
    if as_json:
        echo((home.path / name).read_text().rstrip())
    return code


def opened(home: Home) -> Design:
    """The sealed design of a comparison. Raises UserError if it, or a method's file since, was changed."""
    sealed = home.read("compare.json", "compare")
    if digest(sealed["design"]) != sealed["seal"]:
        raise UserError(f"{home.path}/compare.json was changed after it was sealed: its hash is not the one it carries")
    fit(home.path / "compare.json", sealed["design"], Design)
    d = Design.of(sealed["design"])
    for label in d.labels:
        if records.canonical(d.recipe(label)) != records.canonical(today(d.recipes[label])):
            raise UserError(f"{label} is another method than when {home.path} was sealed; choose another --out")
    return d


def _priced(opened: Opened) -> dict[str, Any]:
    """What answers cost here, from a few that are sampled, billed as `pricing`."""
    from isocost.steps.profile import profile

    return asyncio.run(profile(opened.setting, problems=PRICED, opened=opened))


def _contest(home: Home, d: Design, seal: str, console: Console, workers: int | None) -> dict[str, list[Job]]:
    """Probe every arm's learning rate, then run it; returns the runs' jobs by arm."""
    start = RateRule.of(d.rule)
    probes = {label: [_job(home, d, label, Run("probe", *d.size(label), d.probe_rollouts, x, i, s), start, seal)
                      for i, s in enumerate(d.probe_seeds) for x in MULTIPLIERS] for label in d.labels}
    with home.phase("probe"):
        run_jobs([job for own in probes.values() for job in own], home.runs, "learning rates", console, workers)
    if not home.has("rates.json"):
        seen = {label: trials(curves([home.runs / j.name for j in own], d.metric)) for label, own in probes.items()}
        home.write("rates.json", {"rates": {label: fit_rate(own, d.batch(label)).data() for label, own in seen.items()},
                                  "noise": _noise_of(home, d, probes)})
    rules = _rates(home)
    if _noise(home):
        console.print(f"  can see   {_can_see(d, _noise(home))}", soft_wrap=True)
    chosen = {label: rules[label].at(d.batch(label)) for label in d.labels}
    console.print("  rates     " + ", ".join(f"{label} {rate:.2g}" for label, rate in chosen.items()))
    for text in dict.fromkeys(text for label in d.labels for text in rules[label].flags):
        concerned = [label for label in d.labels if text in rules[label].flags]
        console.print(f"  [yellow]! {', '.join(concerned)}: {text}[/]", soft_wrap=True)
    trains = {label: [_job(home, d, label, Run("train", *d.size(label), d.rollouts, 1.0, i, s), rules[label], seal)
                      for i, s in enumerate(d.seeds)] for label in d.labels}
    with home.phase("train"):       # a comparison cut short has whole replicates
        jobs = [own[i] for i in range(len(d.seeds)) for own in trains.values()]
        run_jobs(jobs, home.runs, "runs", console, workers)
    return trains


def _noise_of(home: Home, d: Design, probes: Mapping[str, Sequence[Job]]) -> dict[str, float] | None:
    """What probe runs that differ in their seed only differ by on the `audit` problems at their end, pooled.

    `sd` in reward and its `dof`; None of probes of one seed, which measure nothing.
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


def _job(home: Home, d: Design, label: str, run: Run, rule: RateRule, seal: str) -> Job:
    """One run of one arm: a study's job, with the arm's method and the budget in the unit that is equal."""
    probe = run.purpose == "probe"
    job = job_of(home, run, rule, d.probe_points if probe else d.points, seal)
    times = f"-x{run.multiplier:g}" if probe else ""
    job = replace(
        job, name=f"{run.purpose}-{label}{times}-s{run.index}", method=d.arms[label], sets=d.sets.get(label, {}),
        budget={BUDGETS.get(d.unit, d.unit): d.probe_cost if probe else d.cost}, warmup=warmup(run.M),
    )
    recipe_of(job)      # a mistake in the recipe is told before anything is opened
    return job


def _tracks(home: Home, d: Design, trains: Mapping[str, Sequence[Job]], seal: str
            ) -> tuple[dict[str, list[Track]], list[str]]:
    """Every arm's runs, and how those ended that did not spend their budget. Raises UserError for another seal."""
    arms, notes = {}, []
    for label, jobs in trains.items():
        folders = [home.runs / j.name for j in jobs]
        for f in folders:
            if read_json(f / "run.json").get("seal") != seal:
                raise UserError(f"{f} does not carry the seal {seal[:12]}: it was not trained under this design")
            end = read_json(f / "end.json")
            if end["reason"] != "spent":
                notes.append(f"{f.name} ended as {end['reason']}: {end.get('detail', '')}")
        arms[label] = tracks(folders, d.unit, d.metric)
    return arms, notes


def _bill(home: Home) -> dict[str, dict[str, float]]:
    """What was paid, probes and runs apart: training by their own meters, what kills lost, evaluations (`scored` are
    tokens of exact ones), seconds of run time.

    Beside them what telling the price took (`pricing`); comparisons of earlier versions did not write it down.
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


# what is said -------------------------------------------------------------------------------------------------


def show_design(console: Console, d: Design, bill: Bill, setting: Setting, workers: int,
                noise: Mapping[str, float] | None = None) -> None:
    """What will be done, what it costs and what it can see, before anything is spent; by the probes' noise if known."""
    where = f"{setting.data} with {setting.model}"
    against = "method against its parent" if len(d.parents) == 1 else f"{len(d.parents)} methods against their parents"
    what = against if d.parents else f"comparison of {', '.join(d.labels)}"
    alike = [(f"n = {n}, B = {B}", ", ".join(f"{x:.2g}" for x in d.rates_at(n * B)), own)
             for (n, B), own in d.alike().items()]
    tell.head(console, f"{what}: {where}" + (f", {alike[0][0]}" if len(alike) == 1 else ""))
    seeds, probes = len(d.seeds), len(d.rates) * len(d.probe_seeds)
    for sizes, rates, labels in alike if len(alike) > 1 else ():
        console.print(f"  arms of   {sizes}: {', '.join(labels)}; learning rate: {rates}", soft_wrap=True)
    rates = alike[0][1] if len(alike) == 1 else "its three"
    console.print(f"  each arm  learning rate: {rates} in {probes} probe runs of {_amount(d.probe_cost, d.unit)}, "
                  "judged on `select` problems", soft_wrap=True)
    console.print(f"            then {seeds} runs of {_amount(d.cost, d.unit)}, seeds shared by all arms, judged on "
                  "`audit` problems", soft_wrap=True)
    room = "" if bill.memory_mb is None else f"; {bill.memory_mb:.0f} MB of memory a run"
    disk = "" if bill.disk_mb is None else f", {bill.disk_mb:.0f} MB of disk"
    wall = tell.duration(bill.seconds / workers)
    console.print(f"  cost      {_amount(d.total, d.unit)} of {_amount(d.budget['amount'], d.unit)}: about {wall} with "
                  f"{counted(workers, 'run')} side by side{room}{disk}", soft_wrap=True)
    console.print(f"  can see   {_can_see(d, noise)}", soft_wrap=True)
    wrong = (f"of all differences told at most {RATE:.0%} are none" if d.parents else
             f"of 100 such comparisons at most {100 * sum(SHARES):g} call something better that is not")
    console.print(f"  margin    {d.margin:g}; {wrong}", soft_wrap=True)
    for label in d.labels:
        if said := its_own(d.arms[label], d.used(label, setting)):
            console.print(f"  {label}: {said}", soft_wrap=True)
    if uneven := [label for label in d.labels if d.rollouts % d.batch(label)]:
        console.print(f"  {', '.join(uneven)}: no whole number of updates makes {d.rollouts:,} rollouts, so rewards "
                      "are read between evaluations", soft_wrap=True)


def _can_see(d: Design, noise: Mapping[str, float] | None) -> str:
    """What the seeds can tell, if runs differ as was measured or assumed, and the seeds that half of it takes."""
    sd = d.sd if noise is None else noise["sd"]
    if noise is not None:
        whence = f"measured on the probes, {counted(noise['dof'], 'degree')} of freedom"
    else:
        whence = "assumed until the probes end" if len(d.probe_seeds) > 1 else "assumed: one seed a probe measures none"
    least = d.detectable(sd)
    needed = seeds_that_see(least / 2, sd, d.alpha)
    more = "" if needed is None else f"; {least / 2:.3f} takes {needed} seeds"
    return f"{least:.3f} between two arms ({POWER:.0%} power), if runs of an arm differ by {sd:.3f} ({whence}){more}"


def _amount(x: float, unit: str, counted_in: str | None = None) -> str:
    """A cost and its unit in words, `counted_in` if those differ; few seconds are told to a part of one."""
    if unit == "flops":
        return f"{x:.2g} FLOP"
    words = counted_in or SPENT[unit]
    return f"{x:,.0f} {words}" if x >= 100 else f"{x:.3g} {words}"


def show(console: Console, c: Comparison, rates: Mapping[str, float], counted_in: str | None = None) -> None:
    """The answer first, then what it rests on."""
    tell.head(console, headline(c, counted_in))
    table = Table(box=None, pad_edge=False)
    table.add_column("  arm")
    for name in ("lr", "mean [90 %]", "middle half", "runs", "each")[not rates :]:
        table.add_column(name, justify="left" if name == "each" else "right")
    for a in c.arms:
        bounds = "" if a.low is None or a.high is None else f" [{a.low:.3f}, {a.high:.3f}]"
        values = " ".join(f"{v:.3f}" for v in a.values[:8]) + (" ..." if len(a.values) > 8 else "")
        rate = [f"{rates[a.name]:.2g}"] if rates else []
        table.add_row(f"  {a.name}", *rate, f"{a.mean:.3f}{bounds}", f"{a.iqm:.3f}", str(len(a.runs)), values)
    console.print(table, markup=False)
    for v in c.verdicts:
        console.print(f"\n  {v.a} less {v.b}: {_verdict(v)}", markup=False)
        for question in QUESTIONS:
            console.print(f"    {question:<11} {_told(c.answer(question, v.a, v.b))}", markup=False, soft_wrap=True)
    for a in c.arms:
        for names, said in ((a.diverged, "diverged; counted as they last were"), (a.short, "ended early; left out")):
            if names:
                runs = ", ".join(Path(n).name for n in names)
                tell.flags(console, (f"{a.name}: {runs} {said}",))
    for note in c.missing:
        console.print(f"  [yellow]! {note}[/]", soft_wrap=True)


def headline(c: Comparison, counted_in: str | None = None) -> str:
    """One line: who is better, and where."""
    where = f"at {_amount(c.cost, c.unit, counted_in)} a run"
    if c.best is not None:
        return f"{c.best} is better ({', '.join(sorted({v.by for v in c.verdicts if v.better == c.best}))}), {where}"
    if c.exit_code == TOLD:
        beaten = [f"{v.better} over {v.b if v.better == v.a else v.a}" for v in c.verdicts if v.better in (v.a, v.b)]
        return f"no arm is better than all others {where}; told apart: {', '.join(beaten)}"
    if c.exit_code == SAME:
        return f"the same within {c.margin:g}, {where}"
    return f"cannot tell which is better {where}"


def _verdict(v: Verdict) -> str:
    if v.better in (v.a, v.b):
        return f"{v.better} is better ({v.by})"
    return f"the same within the margin ({v.by})" if v.better == "same" else "cannot tell"


def _told(x: Answer) -> str:
    """One answer as a line: who, how much with its interval, and what these seeds could see."""
    if x.value is None or x.low is None or x.high is None:
        return f"{x.answer}: {x.why}"
    level = f"{100 * x.level:.3g} %"
    if x.question == "efficiency":
        value, low, high, first, other = x.value, x.low, x.high, x.a, x.b
        if x.answer == x.b or (x.winner is None and value < 1):
            value, low, high, first, other = 1 / value, 1 / high, 1 / low, x.b, x.a
        return (f"{x.answer}: {other} takes {value:.2f}x [{low:.2f}, {high:.2f}] the cost of {first} ({level}), "
                f"{x.why.removeprefix('cost ')}")
    said = f"{x.answer}: {x.value:+.3f} [{x.low:+.3f}, {x.high:+.3f}] ({level})"
    if x.detectable is None:
        return said
    more = f"; the difference seen takes {x.seeds} seeds" if x.answer == "cannot tell" and x.seeds else ""
    return f"{said}; these seeds see {x.detectable:.3f}{more}"
