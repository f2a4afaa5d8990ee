"""The steps of a study, each from records to records: profile, plan, pilot, fit, plan, train, audit.

A step that has been done is not done again; one that was stopped goes on. What a step says is what it wrote.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from isocost.cli import text as tell
from isocost.errors import UserError
from isocost.jsonfile import page
from isocost.laws.curves import PASS, Curve, attempts_of, curves
from isocost.laws.fit import fit_law
from isocost.laws.interference import by_n, interferences
from isocost.laws.law import Flag, Law
from isocost.laws.overfit import Overfit, beyond, overfitting, told
from isocost.meter import LOST, TRAIN
from isocost.planner import audit as audits
from isocost.planner import forecast as forecasts
from isocost.planner.afford import EVALUATION_SHARE, MOST_SAMPLES, plan_pilot
from isocost.planner.budget import Bill, Budget, Machine, measure_timing
from isocost.planner.evaluation import Evaluation
from isocost.planner.learning_rate import RateRule, given, starting_rule
from isocost.planner.pilot import PilotPlan
from isocost.planner.rollouts import Plan, prescribe
from isocost.planner.study_runs import PRESETS
from isocost.runs import files as records
from isocost.runs.files import read_json
from isocost.runs.launch.local import ended
from isocost.runs.schema import ENDED
from isocost.steps import imported, spending
from isocost.steps.folder import Home, check, found, opened, writes
from isocost.steps.jobs import run_phase, workers_for
from isocost.steps.pilot import measured, pilot, refuse_sealed, write_pilot
from isocost.steps.settings import console_of, method_of, setting_of, workers_of
from isocost.terminal import echo
from isocost.types import Cost
from isocost.words import word
from isocost.worlds.setting import Setting

SAMPLES = 16  # per profiled problem


# profile ------------------------------------------------------------------------------------------------------


@writes(new=True)
def profile(
    out: Path,
    *,
    seed: int,
    method: str | None,
    problems: int,
    dry_run: bool,
    quiet: bool,
    as_json: bool = False,
    **asked: Any,
) -> int:
    """Begin a study in `out` and profile the model on the problems, or go on with a profile that was killed.

    A mistake in what is asked leaves no study.
    """
    setting = setting_of(asked)
    console = console_of(quiet)
    if method is not None:
        method_of(method, setting)
    if dry_run:
        cost = profile_cost(setting, problems, seed)
        tell.profile_cost(console, setting, cost)
        if as_json:
            echo(page(cost))
        return 0
    check(out, setting, seed=seed, method=method, profiled=problems)
    if not (out / "profile.json").exists():
        from isocost.steps.profile import profile as sample

        began, kept = time.perf_counter(), out / "profile.jsonl"
        with ExitStack() as timed:

            def begin() -> None:
                home = found(out, setting, seed=seed, method=method, profiled=problems)
                timed.enter_context(home.phase("profile", began))

            profiled = asyncio.run(
                sample(setting, seed=seed, problems=problems, method=method, kept=kept, begin=begin)
            )
            opened(out).write("profile.json", profiled)
    (out / "profile.jsonl").unlink(missing_ok=True)
    home = opened(out)
    tell.profile(console, home.read("profile.json", "profile"))
    tell.written(home, "profile.json", as_json)
    return 0


def profile_cost(setting: Setting, problems: int, seed: int) -> dict[str, Any]:
    """What profiling would cost at most. Loads the problems and the model, and so finds what is wrong with them."""
    from isocost.tasks.sample import sample
    from isocost.worlds.setting import open_setting

    world = open_setting(setting, check=True).world
    asked = [list(world.text.prompt(p.prompt)) for p in sample(world.problems, problems, seed)]
    rollouts = SAMPLES * len(asked)
    decode, prefill = rollouts * setting.max_tokens, SAMPLES * sum(map(len, asked))
    return {
        "problems": len(asked),
        "rollouts": rollouts,
        "tokens": prefill + decode,
        "flops": Cost(prefill=prefill, decode=decode).flops(world.learner.parameters),
        "seconds": None,
        "memory_mb": round(500 + 4 * world.learner.parameters / 1e6),
        "disk_mb": 1,
    }


# plan ---------------------------------------------------------------------------------------------------------


@writes()
def plan(
    study: Path,
    *,
    quiet: bool,
    as_json: bool = False,
    size: str | None = None,
    budget: str | None = None,
    lr: float | None = None,
    lr_exponent: float | None = None,
    groups: int | None = None,
    fixed_batch: int | None = None,
    metric: str | None = None,
    price: str | None = None,
    devices: int | None = None,
    workers: int | None = None,
    samples: int | None = None,
    evaluation_share: float | None = None,
) -> int:
    """Without a law, plan the pilot; with one, or with a plan that needs none, prescribe.

    Once there are runs, the pilot stays as it was planned; what may be spent can be asked anew until a forecast is
    sealed.
    """
    home, console = opened(study), console_of(quiet)
    if imported.is_imported(home):
        others = any(
            x is not None
            for x in (size, lr, lr_exponent, groups, fixed_batch, metric, samples, evaluation_share)
        )
        found = imported.planned(home, budget, price, devices, others=others)
        tell.plan(console, found, home.read("plan.json", "plan"))
        tell.written(home, "plan.json", as_json)
        return 0
    known = home.read("profile.json", "profile")
    if samples is not None and known["exact"]:
        raise UserError(f"--samples {samples}: evaluations are exact here and sample nothing; leave it out")
    shape = any(x is not None for x in (size, lr, lr_exponent, groups, fixed_batch, samples, evaluation_share))
    asked = shape or any(x is not None for x in (budget, price, devices, workers))
    begun = home.runs.exists() or home.has("forecast.json")
    choose_metric(home, metric, (samples or home.setting.samples) if asked and not begun else None)
    if begun and not home.has("pilot.json"):
        raise UserError(f"{study} has runs but not the pilot.json that they were planned by: put it back, or begin "
                        "another study")
    if begun and asked:
        refuse_sealed(home)
        if shape:
            raise UserError(f"{study} has runs of the pilot that was planned; only --budget, --price, --devices and "
                            "--workers can be asked anew, and `isocost pilot` adds runs: begin another study to plan "
                            "the pilot otherwise")
    if asked or not home.has("pilot.json"):
        machine = _machine(home, price, devices, workers)
        spend = spending.plannable(budget, machine)
        if begun:
            planned = PilotPlan.of(home.read("pilot.json", "plan"))
            if planned.direct:
                raise UserError(f"{study} was planned without a pilot, for its budget, and has runs: begin another "
                                "study to plan otherwise")
            if spend:
                planned = measured(home, planned).funded(spend)
            if home.has("law.json"):
                _prescription(home, planned)    # or says why not, before anything is written
        else:
            planned = _plan_pilot(
                home,
                known,
                size or "quick",
                spend,
                lr,
                lr_exponent,
                groups,
                fixed_batch,
                samples,
                evaluation_share or EVALUATION_SHARE,
            )
        write_pilot(home, planned, machine)
    planned = PilotPlan.of(home.read("pilot.json", "plan"))
    if not (home.has("law.json") or planned.direct):
        tell.pilot_plan(console, planned)
        tell.overridden(console, home, planned)
        tell.units(console, home.read("pilot.json", "plan"))
        tell.beside(console, planned, known.get("cost") or {})
        tell.written(home, "pilot.json", as_json)
        return 0
    if not home.has("plan.json"):
        with home.phase("fit"):
            made = _prescription(home, planned)
            beside = spending.of_plan(home, made, planned, spending.machine_of(home))
            home.write("plan.json", {**made.data(), **beside})
    written = home.read("plan.json", "plan")
    tell.plan(console, Plan.of(written), written, None if planned.direct else study)
    tell.written(home, "plan.json", as_json)
    return 0


def _machine(home: Home, price: str | None, devices: int | None, workers: int | None) -> Machine:
    """The machine that options tell of; what they leave out is as it was planned before, if it was."""
    before = spending.machine_of(home) if home.has("pilot.json") else Machine(1, workers_of(home.setting, None))
    told = Machine.priced(price, devices or before.devices, workers or before.side_by_side)
    return told if price else replace(told, price=before.price, currency=before.currency)


def _plan_pilot(
    home: Home,
    known: dict[str, Any],
    size: str,
    budget: Budget | None,
    lr: float | None,
    exponent: float | None,
    groups: int | None,
    fixed_batch: int | None,
    samples: int | None,
    evaluation_share: float,
) -> PilotPlan:
    asked = home.asked
    exact = bool(known.get("exact"))
    held_out = known["select"] + known["audit"]
    rate = None
    if lr is not None or exponent is not None:
        start = starting_rule(known["parameters"])
        rate = given(lr or start.lr0, start.reference, start.exponent if exponent is None else exponent)
    return plan_pilot(
        known,
        preset=size,
        budget=budget,
        seed=asked["seed"],
        parameters=known["parameters"],
        rate=rate,
        B=groups,
        batch=fixed_batch,
        evaluation=Evaluation(held_out, None if exact else samples or home.setting.samples),
        attempts=attempts_of(home.metric),
        evaluation_share=evaluation_share,
        most_samples=samples or max(home.setting.samples, MOST_SAMPLES),
    )


def _prescription(home: Home, planned: PilotPlan) -> Plan:
    pool = home.read("profile.json", "profile")["pool"]
    if planned.direct:
        return prescribe(None, planned.rate, planned.budget, planned.timing, pilot=planned, problems=pool)
    law = Law.of(home.read("law.json", "fit"))
    rule = RateRule.of(home.read("rate.json", "pilot"))
    seen = curves(home.path, home.metric)
    bills = [e["bill"].get("train", {}) for e in _ends(home, planned)]
    planned = replace(planned, prices=planned.prices.measured(bills))
    made = prescribe(
        law,
        rule,
        planned.budget,
        measure_timing(seen, planned.timing),
        pilot=planned,
        curves=seen,
        spent=_spent(home, planned),
        problems=pool,
    )
    warning = beyond(_overfitted(home), made.arm.n, made.arm.epochs)
    return made if warning is None else replace(made, flags=(*made.flags, warning))


def _ends(home: Home, planned: PilotPlan) -> list[dict[str, Any]]:
    """How each of the pilot's runs ended."""
    return [read_json(home.runs / r.name / "end.json", ENDED) for r in planned.runs]


def _spent(home: Home, planned: PilotPlan) -> Bill:
    """What the pilot's runs cost by their own meters: training and what was lost of it, evaluations in seconds."""
    ends = _ends(home, planned)
    bills = [e["bill"].get(account, {}) for e in ends for account in (TRAIN, LOST)]
    sizes = planned.pilot_bill

    def total(key: str) -> float:
        return sum(b.get(key, 0) for b in bills)

    parameters = planned.prices.parameters
    flops = sum(Cost(**b).flops(int(parameters)) for b in bills) if parameters else None
    return replace(
        sizes,
        rollouts=int(total("rollouts")),
        tokens=total("decode"),
        flops=flops,
        seconds=sum(e["seconds"] for e in ends),
    )


# fit ----------------------------------------------------------------------------------------------------------


@writes()
def fit(study: Path, *, quiet: bool, as_json: bool = False, metric: str | None = None) -> int:
    """Fit the law to the pilot's curves. Of one imported run its curve is told, and nothing is written."""
    console = console_of(quiet)
    if not (study / "study.json").exists() and imported.is_imported_run(study):
        return imported.fit_alone(study, console, as_json=as_json)
    home = opened(study)
    if home.has("pilot.json") and (planned := PilotPlan.of(home.read("pilot.json", "plan"))).direct:
        tell.no_law(console, study, planned)
        if as_json:
            echo(page({"law": None, "why": planned.why}))
        return 0
    choose_metric(home, metric)
    if not home.has("law.json"):
        with home.phase("fit"):
            home.write("law.json", _law(home).data() | {"metric": home.metric})
    found = Law.of(home.read("law.json", "fit"))
    tell.law(console, found, home.metric, None if imported.is_imported(home) else study)
    tell.interference(console, by_n(interferences(home.path)))
    tell.written(home, "law.json", as_json)
    return 0


def _law(home: Home) -> Law:
    """The fitted law, with what its metric and over-fitting ask a reader to know."""
    metric = home.metric
    seen = _pilot_curves(home, metric)
    if imported.is_imported(home):
        seen = imported.with_base(home.path, seen)
    law = imported.flagged(home, fit_law(seen, seed=home.asked["seed"]))
    over = _overfitted(home)
    flags = [Flag("overfitting", told(over))] if over else []
    if metric != PASS:
        flags.append(Flag("metric", f"this law is of {metric}: such values were found hard to predict (arXiv "
                                    "2603.12151), so take n, B, M and the rate from it and not the reward"))
    return replace(law, flags=(*law.flags, *flags))


def choose_metric(home: Home, metric: str | None, samples: int | None = None) -> None:
    """Set what laws are of from here on; a law and plan of another metric are made again.

    `samples` are those per held-out problem of a pilot that is about to be planned; without, they are the planned
    pilot's, or the setting's where none is planned. Raises UserError for an unknown metric, one that the evaluations
    cannot give, or once a forecast is sealed.
    """
    if metric is None or metric == home.metric:
        return
    k, drawn = attempts_of(metric), samples or home.setting.samples
    if samples is None and home.has("pilot.json"):
        drawn = PilotPlan.of(home.read("pilot.json", "plan")).evaluation.samples or drawn
    if not home.read("profile.json", "profile")["exact"] and drawn < k:
        raise UserError(f"{metric} needs {k} samples per held-out problem and this study's evaluations draw {drawn}: "
                        f"plan its pilot with `isocost plan --metric {metric} --samples {k}`, before it has runs")
    if home.has("forecast.json"):
        raise UserError(f"{home.path}/forecast.json is sealed for {home.metric}; begin another study for {metric}")
    if home.runs.exists():
        curves(home.path, metric)    # what was run holds it, or says why not
    home.write("study.json", home.asked | {"metric": metric})
    for name in ("law.json", "plan.json"):
        (home.path / name).unlink(missing_ok=True)


def _overfitted(home: Home) -> list[Overfit]:
    """The pilot's arms at the rule's rate that over-fit, by pass@1 whatever the law is of; none can be told without a
    held-out reward."""
    if imported.is_training(home):
        return []
    return overfitting([c for c in curves(home.path) if c.purpose == "pilot" and c.multiplier == 1.0])


def _pilot_curves(home: Home, metric: str) -> list[Curve]:
    """Raises UserError unless every run that the pilot plans has ended."""
    planned = PilotPlan.of(home.read("pilot.json", "plan")).runs
    over = sum(ended(home.runs / r.name) for r in planned)
    if over < len(planned):
        raise UserError(
            f"the pilot of {home.path} is not done: {over} of {len(planned)} runs have ended; "
            f"run `isocost pilot {word(home.path)}` first"
        )
    return [c for c in curves(home.path, metric) if c.purpose == "pilot"]


# train --------------------------------------------------------------------------------------------------------


def train(
    *,
    quiet: bool,
    method: str | None,
    study: Path | None,
    dry_run: bool,
    workers: int | None,
    as_json: bool = False,
    **asked: Any,
) -> int:
    """Train a study's plan, sealed first; or one run of a method."""
    console = console_of(quiet)
    if (study is None) == (method is None):
        raise UserError("say what to train: a METHOD (see `isocost methods`), or --plan STUDY")
    if study is not None:
        return _train_study(study, console, as_json=as_json, workers=workers, dry_run=dry_run)
    from isocost.steps.single import train_one

    return train_one(
        method or "",
        console,
        quiet=quiet,
        as_json=as_json,
        dry_run=dry_run,
        setting=setting_of(asked),
        **{
            k: asked[k]
            for k in (
                "out",
                "budget",
                "seed",
                "rollouts",
                "groups",
                "lr",
                "sets",
                "evaluations",
                "save_every",
                "price",
                "devices",
            )
        },
    )


@writes()
def _train_study(study: Path, console: Console, *, workers: int | None, dry_run: bool, as_json: bool) -> int:
    home = imported.not_imported(opened(study))
    return train_plan(home, console, as_json=as_json, workers=workers, dry_run=dry_run)


def train_plan(
    home: Home, console: Console, *, workers: int | None, dry_run: bool, as_json: bool = False
) -> int:
    """Seal the forecast, then train the prescription and its comparator, paired by seed."""
    prescription = Plan.of(home.read("plan.json", "plan"))
    planned = PilotPlan.of(home.read("pilot.json", "plan"))
    if dry_run:
        tell.plan(console, prescription)
        tell.written(home, "plan.json", as_json)
        return 0
    law = Law.of(home.read("law.json", "fit")) if home.has("law.json") else None
    if not home.has("forecast.json"):
        seen = curves(home.path, home.metric) if law else []
        files = _hashes(home, forecasts.SEAL)
        sealed = forecasts.seal(
            prescription, law, seen, records=files.pop("records"), code=records.code()["sources"], files=files
        )
        forecasts.write(sealed, home.path / "forecast.json")
    forecast = forecasts.read(home.path / "forecast.json")
    if altered := forecasts.changed(forecast.hashes, _hashes(home, forecast.seal_version)):
        raise UserError(f"{', '.join(altered)} was changed after the forecast was sealed: begin another study")
    tell.forecast(console, forecast, home.metric)
    rule = RateRule.of(home.read("rate.json", "pilot")) if home.has("rate.json") else planned.rate
    workers = workers_for(home, workers, console)
    with home.phase("train"):
        run_phase(home, planned, prescription.runs, rule, "training", console, workers, seal=forecast.seal)
    tell.written(home, "forecast.json", as_json)
    return 0


# audit --------------------------------------------------------------------------------------------------------


@writes()
def audit(study: Path, *, quiet: bool, as_json: bool = False) -> int:
    """Hold the sealed forecast against the trained runs; returns the verdict's exit code."""
    home, console = opened(study), console_of(quiet)
    forecast = forecasts.read(home.path / "forecast.json")
    planned = PilotPlan.of(home.read("pilot.json", "plan"))
    metric = home.metric
    noise = planned.evaluation.sd_of(attempts_of(metric))
    verdict = audits.audit(
        forecast,
        curves(home.path, metric),
        audits.seals(home.path),
        noise=noise,
        changed=forecasts.changed(forecast.hashes, _hashes(home, forecast.seal_version)),
    )
    home.write("audit.json", verdict.data())
    tell.audit(console, verdict)
    tell.written(home, "audit.json", as_json)
    return verdict.exit_code


def _hashes(home: Home, version: int) -> dict[str, str]:
    """The hashes of what a forecast is made from, as it lies in the study now, in the way of this version of the seal;
    empty for what is not there."""
    return {"records": forecasts.records_hash(home.path)} | {
        name: forecasts.digest_of(read_json(path), version) if (path := home.path / f"{name}.json").exists() else ""
        for name in ("plan", "law")
    }


# everything ---------------------------------------------------------------------------------------------------


@writes(new=True)
def whole(
    out: Path,
    *,
    seed: int,
    size: str,
    budget: str | None,
    method: str | None,
    workers: int | None,
    dry_run: bool,
    quiet: bool,
    as_json: bool = False,
    price: str | None = None,
    devices: int | None = None,
    **asked: Any,
) -> int:
    """A study from end to end; returns 0 whatever the verdict, for every verdict is a result."""
    console = console_of(quiet)
    _same_size(out, size, budget)
    tell.opening(console, out, size, seed)
    profile(out, seed=seed, method=method, problems=512, dry_run=False, quiet=quiet, **asked)
    home = opened(out)
    if not home.has("pilot.json"):
        plan(out, quiet=True, size=None if budget else size, budget=budget, price=price, devices=devices,
             workers=workers)
    planned = PilotPlan.of(home.read("pilot.json", "plan"))
    tell.pilot_plan(console, planned)
    tell.overridden(console, home, planned)
    tell.units(console, home.read("pilot.json", "plan"))
    tell.beside(console, planned, home.read("profile.json", "profile").get("cost") or {})
    if dry_run:
        tell.written(home, "pilot.json", as_json)
        return 0
    if not planned.direct:
        pilot(out, quiet=quiet, workers=workers)
        fit(out, quiet=quiet)
    plan(out, quiet=quiet)
    train_plan(home, console, workers=workers, dry_run=False)
    audit(out, quiet=quiet)
    from isocost.report import write

    with home.phase("report"):
        write(out)
    write(out)  # once more, so that its own time is in it
    tell.closing(console, home)
    tell.written(home, "audit.json", as_json)
    return 0


def _same_size(out: Path, size: str, budget: str | None) -> None:
    """Raises UserError for a size that is none, or another than the study in `out` was planned at."""
    if size not in PRESETS:
        raise UserError(f"there is no size {size!r}; there are {', '.join(PRESETS)}")
    wanted = Budget.parse(budget) if budget else None
    if not (out / "pilot.json").exists():
        return
    there = PilotPlan.of(read_json(out / "pilot.json"))
    same = there.preset == size if wanted is None else there.budget and there.budget.as_asked == wanted
    if (there.budget is None) != (wanted is None) or not same:
        asked = there.preset if there.budget is None else str(there.budget)
        raise UserError(f"{out} holds a study planned at {asked}; choose another --out, or remove it")



def evaluate_run(run: Path, *, quiet: bool, **asked: Any) -> int:
    """Measure a run's final policy again."""
    from isocost.steps.single import evaluate_run as measure

    return measure(run, quiet=quiet, console=console_of(quiet), **asked)
