"""The steps of a study, each from records to records: profile, plan, pilot, fit, plan, train, audit.

A step that has been done is not done again; one that was stopped goes on. What a step says is what it wrote.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from isocost import methods
from isocost import record as records
from isocost.errors import UserError
from isocost.laws import audit as audits
from isocost.laws import forecast as forecasts
from isocost.laws.budget import Bill, Budget, Machine, measure_timing
from isocost.laws.fit import fit_law
from isocost.laws.interference import by_n, interferences
from isocost.laws.law import Flag, Law
from isocost.laws.overfit import Overfit, beyond, overfitting, told
from isocost.laws.pilot import PRESETS, Evaluation, PilotPlan, Run, plan_pilot
from isocost.laws.plan import Plan, prescribe
from isocost.laws.rate import RateRule, fit_rate, given, shift, starting_rule, trials
from isocost.laws.table import PASS, Curve, attempts_of, curves
from isocost.meter import LOST, TRAIN
from isocost.problems.family import Sums, is_sums, listed
from isocost.problems.mix import parts
from isocost.record import read_json
from isocost.run import Job, reopen
from isocost.setting import Setting
from isocost.study import imported, spending, tell
from isocost.study.home import Home, check, found, opened
from isocost.study.show import Watch
from isocost.study.workers import ended, run_all
from isocost.types import Cost
from isocost.words import counted

SAMPLES = 16  # per profiled problem
SMALL = 20_000_000  # bytes of weights below which one thread per run is the fastest use of the cores


# what was asked -----------------------------------------------------------------------------------------------


def setting_of(asked: Mapping[str, Any]) -> Setting:
    """The setting that a command's options ask for. Threads default to one for small models, else every core."""
    fields = {
        k: asked[k]
        for k in (
            "model",
            "data",
            "verifier",
            "held_out",
            "held_out_data",
            "limit",
            "skip_broken",
            "system",
            "temperature",
            "top_p",
            "top_k",
            "samples",
            "device",
            "dtype",
            "kernels",
        )
    }
    threads = asked.get("threads") or (1 if is_small(fields["model"]) else os.cpu_count() or 1)
    return Setting(
        **fields, max_tokens=asked.get("max_tokens") or answer_room(fields["data"]), threads=threads
    )


def is_small(model: str) -> bool:
    """Whether one thread per run is the fastest use of the cores."""
    folder = Path(model)
    return model == "tiny" or (
        folder.is_dir() and sum(f.stat().st_size for f in folder.glob("*.safetensors")) < SMALL
    )


def answer_room(data: str) -> int:
    """Tokens an answer may take where nobody said: the built-in problems' own longest answer and its end, else 64."""
    specs = [part.spec for part in parts(data)]
    if not all(map(is_sums, specs)):
        return 64
    return 1 + max(len(str(p.meta["solution"])) for spec in specs for p in listed(Sums.of(spec)))


def workers_of(setting: Setting, asked: int | None) -> int:
    """Runs side by side: as many as their threads leave room for."""
    return asked or max(1, (os.cpu_count() or 1) // setting.threads)


def console_of(quiet: bool) -> Console:
    return Console(quiet=quiet, highlight=False, width=None if sys.stdout.isatty() else 120)


# profile ------------------------------------------------------------------------------------------------------


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
        methods.load(method)
    if dry_run:
        cost = profile_cost(setting, problems)
        tell.profile_cost(console, setting, cost)
        if as_json:
            click.echo(json.dumps(cost, indent=1, sort_keys=True))
        return 0
    check(out, setting, seed=seed, method=method, profiled=problems)
    if not (out / "profile.json").exists():
        from isocost.study.profile import profile as sample

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
    _print_json(home, "profile.json", as_json)
    return 0


def profile_cost(setting: Setting, problems: int) -> dict[str, Any]:
    """What profiling would cost at most. Loads the problems and the model, and so finds what is wrong with them."""
    from isocost.setting import open_setting

    world = open_setting(setting, check=True).world
    asked = [list(world.text.prompt(p.prompt)) for p in world.problems[:problems]]
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
) -> int:
    """Without a law, plan the pilot; with one, or with a plan that needs none, prescribe.

    Once there are runs, the pilot stays as it was planned; what may be spent can be asked anew until a forecast is
    sealed.
    """
    home, console = opened(study), console_of(quiet)
    if imported.is_imported(home):
        others = any(x is not None for x in (size, lr, lr_exponent, groups, fixed_batch, metric))
        found = imported.planned(home, budget, price, devices, others=others)
        tell.plan(console, found, home.read("plan.json", "plan"))
        _print_json(home, "plan.json", as_json)
        return 0
    known = home.read("profile.json", "profile")
    choose_metric(home, metric)
    shape = any(x is not None for x in (size, lr, lr_exponent, groups, fixed_batch))
    asked = shape or any(x is not None for x in (budget, price, devices, workers))
    begun = home.runs.exists() or home.has("forecast.json")
    if begun and not home.has("pilot.json"):
        raise UserError(f"{study} has runs but not the pilot.json that they were planned by: put it back, or begin "
                        "another study")
    if begun and asked:
        _refuse_sealed(home)
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
            planned = replace(planned, budget=spend or planned.budget)
        else:
            planned = _plan_pilot(home, known, size or "quick", spend, lr, lr_exponent, groups, fixed_batch)
        _write_pilot(home, planned, machine)
    planned = PilotPlan.of(home.read("pilot.json", "plan"))
    if not (home.has("law.json") or planned.direct):
        tell.pilot_plan(console, planned)
        tell.units(console, home.read("pilot.json", "plan"))
        tell.beside(console, planned, known.get("cost") or {})
        _print_json(home, "pilot.json", as_json)
        return 0
    if not home.has("plan.json"):
        with home.phase("fit"):
            made = _prescription(home, planned)
            beside = spending.of_plan(home, made, planned, spending.machine_of(home))
            home.write("plan.json", {**made.data(), **beside})
    written = home.read("plan.json", "plan")
    tell.plan(console, Plan.of(written), written, None if planned.direct else study)
    _print_json(home, "plan.json", as_json)
    return 0


def _refuse_sealed(home: Home) -> None:
    if home.has("forecast.json"):
        raise UserError(f"{home.path}/forecast.json is sealed: what it was made from stays as it is; begin another "
                        "study to plan otherwise")


def _machine(home: Home, price: str | None, devices: int | None, workers: int | None) -> Machine:
    """The machine that options tell of; what they leave out is as it was planned before, if it was."""
    before = spending.machine_of(home) if home.has("pilot.json") else Machine(1, workers_of(home.setting, None))
    told = Machine.priced(price, devices or before.devices, workers or before.side_by_side)
    return told if price else replace(told, price=before.price, currency=before.currency)


def _write_pilot(home: Home, planned: PilotPlan, machine: Machine) -> None:
    """Write a pilot's plan; the prescription, which follows from it, is made again."""
    home.write("pilot.json", {**planned.data(), **spending.of_pilot(planned, machine)})
    (home.path / "plan.json").unlink(missing_ok=True)


def _plan_pilot(
    home: Home,
    known: dict[str, Any],
    size: str,
    budget: Budget | None,
    lr: float | None,
    exponent: float | None,
    groups: int | None,
    fixed_batch: int | None,
) -> PilotPlan:
    asked, setting = home.asked, home.setting
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
        evaluation=Evaluation(held_out, None if exact else setting.samples),
        attempts=attempts_of(home.metric),
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
    return [read_json(home.runs / r.name / "end.json") for r in planned.runs]


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


# pilot --------------------------------------------------------------------------------------------------------


def pilot(
    study: Path,
    *,
    quiet: bool,
    as_json: bool = False,
    workers: int | None = None,
    dry_run: bool = False,
    longer: Sequence[str] = (),
    seeds: Sequence[str] = (),
) -> int:
    """Run what pilot.json plans: the probe, then the grid and its edges at the rule the probe supports.

    `longer` (N=C) and `seeds` (N=K) add to it first: what the runs there have spent is not spent again.
    """
    home, console = imported.not_imported(opened(study)), console_of(quiet)
    planned = PilotPlan.of(home.read("pilot.json", "plan"))
    if longer or seeds:
        planned = _extended(home, planned, longer, seeds, dry_run=dry_run)
    if dry_run or planned.direct:
        tell.pilot_plan(console, planned)
        if as_json:
            click.echo(json.dumps(planned.data(), indent=1, sort_keys=True))
        return 0
    workers = _workers(home, workers, console)
    with home.phase("probe"):
        _run_phase(
            home, planned, planned.of_purpose("probe"), planned.rate, "learning-rate probe", console, workers
        )
    if not home.has("rate.json"):
        seen = trials(curves(home.path)) if planned.of_purpose("probe") else []
        start = planned.rate
        home.write("rate.json", (fit_rate(seen, start.reference, start.exponent) if seen else start).data())
    rule = RateRule.of(home.read("rate.json", "pilot"))
    tell.rate(console, rule)
    _refuse_dear(home, planned)
    with home.phase("pilot"):
        both = (*planned.of_purpose("pilot"), *planned.of_purpose("edge"))
        _run_phase(home, planned, both, rule, "pilot", console, workers)
    home.write("shift.json", shift(curves(home.path)).data())
    tell.shift(console, home.read("shift.json", "pilot"))
    _print_json(home, "rate.json", as_json)
    return 0


def _workers(home: Home, asked: int | None, console: Console) -> int:
    """Runs side by side: as many as are asked for, or as the study was planned for."""
    planned = spending.machine_of(home).side_by_side
    if asked and asked != planned:
        tell.flags(console, (f"planned for {counted(planned, 'run')} side by side and run with {asked}: hours on the "
                             f"wall, device-hours and money are {planned / asked:.3g} times what the plan says",))
    return asked or planned


def _extended(
    home: Home, planned: PilotPlan, longer: Sequence[str], seeds: Sequence[str], *, dry_run: bool
) -> PilotPlan:
    """The pilot with runs added, written down unless this is a dry run; law and plan are then made again."""
    _refuse_sealed(home)
    ends = {r.n: r.C for r in planned.of_purpose("pilot")}
    made = planned.extended(_of_each("--longer", longer, ends, "4=24576, 4=4x or all=4x"),
                            _of_each("--seeds", seeds, dict.fromkeys(ends, 0), "8=2 or all=2"))
    if not dry_run:
        for name in ("law.json", "shift.json"):
            (home.path / name).unlink(missing_ok=True)
        _write_pilot(home, made, spending.machine_of(home))
    return made


def _of_each(option: str, texts: Sequence[str], there: Mapping[int, int], example: str) -> dict[int, int]:
    """n -> amount of options N=AMOUNT: `all` is every n that is there, 4x four times what is there."""
    out = {}
    for text in texts:
        found = re.fullmatch(r"([0-9]+|all)=([0-9]+)(x?)", text)
        if not found or (found[3] and not any(there.values())):
            raise UserError(f"cannot read {option} {text!r}: write n and how much, such as {option} {example}")
        for n in there if found[1] == "all" else (int(found[1]),):
            out[n] = int(found[2]) * (there.get(n, 1) if found[3] else 1)
    return out


def _refuse_dear(home: Home, planned: PilotPlan) -> None:
    """Raises UserError where the probe has shown that grid and edges would take all of the budget, or more."""
    if planned.budget is None or planned.budget.unit == "rollouts" or not planned.of_purpose("probe"):
        return
    probes = [read_json(home.runs / r.name / "end.json")["bill"]["train"] for r in planned.of_purpose("probe")]
    prices = planned.prices.measured(probes)
    timing = measure_timing(curves(home.path), planned.timing)
    sizes = [(r.n, r.B, r.C, 1 + len(planned.points_of(r))) for r in planned.runs]
    cost = prices.bill(sizes, timing).of_unit(planned.budget.unit)
    if cost >= planned.budget.amount:
        raise UserError(
            f"the probe has shown that the pilot takes {cost:.3g} {planned.budget.unit} in all, and the budget is "
            f"{planned.budget}, {planned.budget.amount:.3g} {planned.budget.unit}: give `isocost plan {home.path} "
            f"--budget` three times what the pilot takes, or plan another study of a smaller --size"
        )


def _run_phase(
    home: Home,
    planned: PilotPlan,
    runs: Sequence[Run],
    rule: RateRule,
    title: str,
    console: Console,
    workers: int | None,
    seal: str | None = None,
) -> list[dict[str, Any]]:
    jobs = [job_of(home, r, rule, planned.points_of(r), seal) for r in runs]
    for job in jobs:
        reopen(home.runs / job.name, job)
    return run_jobs(jobs, home.runs, title, console, workers)


def run_jobs(
    jobs: Sequence[Job], folder: Path, title: str, console: Console, workers: int | None
) -> list[dict[str, Any]]:
    """Run jobs side by side with a live display. Raises Interrupted once everything is saved."""
    if not jobs:
        return []
    with Watch(title, jobs, folder, console) as watch:
        return run_all(jobs, folder, workers=workers_of(jobs[0].setting, workers), watch=watch)


def job_of(home: Home, run: Run, rule: RateRule, points: Sequence[int], seal: str | None = None) -> Job:
    """A planned run as a job for a worker."""
    asked = home.asked
    method = asked["method"] or home.read("profile.json", "profile")["recipe"]["method"]
    return Job(
        name=run.name,
        setting=home.setting,
        method=method,
        seed=run.seed,
        budget={"rollouts": run.C},
        n=run.n,
        B=run.B,
        lr=run.lr(rule),
        warmup=run.warmup,
        points=tuple(points),
        purpose=run.purpose,
        multiplier=run.multiplier,
        seal=seal,
        export=run.purpose == "train",
    )


# fit ----------------------------------------------------------------------------------------------------------


def fit(study: Path, *, quiet: bool, as_json: bool = False, metric: str | None = None) -> int:
    """Fit the law to the pilot's curves."""
    home, console = opened(study), console_of(quiet)
    choose_metric(home, metric)
    if not home.has("law.json"):
        with home.phase("fit"):
            home.write("law.json", _law(home).data() | {"metric": home.metric})
    found = Law.of(home.read("law.json", "fit"))
    tell.law(console, found, home.metric, None if imported.is_imported(home) else study)
    tell.interference(console, by_n(interferences(home.path)))
    _print_json(home, "law.json", as_json)
    return 0


def _law(home: Home) -> Law:
    """The fitted law, with what its metric and over-fitting ask a reader to know."""
    metric = home.metric
    law = imported.flagged(home, fit_law(_pilot_curves(home, metric), seed=home.asked["seed"]))
    over = _overfitted(home)
    flags = [Flag("overfitting", told(over))] if over else []
    if metric != PASS:
        flags.append(Flag("metric", f"this law is of {metric}: such values were found hard to predict (arXiv "
                                    "2603.12151), so take n, B, M and the rate from it and not the reward"))
    return replace(law, flags=(*law.flags, *flags))


def choose_metric(home: Home, metric: str | None) -> None:
    """Set what laws are of from here on; a law and plan of another metric are made again.

    Raises UserError for no metric, one that the evaluations cannot give, or once a forecast is sealed.
    """
    if metric is None or metric == home.metric:
        return
    k, samples = attempts_of(metric), home.setting.samples
    if not home.read("profile.json", "profile")["exact"] and samples < k:
        raise UserError(f"{metric} needs {k} samples a problem and this study's evaluations draw {samples}: begin "
                        f"another with --samples {k} or more")
    if home.has("forecast.json"):
        raise UserError(f"{home.path}/forecast.json is sealed for {home.metric}; begin another study for {metric}")
    if home.runs.exists():
        curves(home.path, metric)    # what was run holds it, or says why not
    home.write("study.json", home.asked | {"metric": metric})
    for name in ("law.json", "plan.json"):
        (home.path / name).unlink(missing_ok=True)


def _overfitted(home: Home) -> list[Overfit]:
    """The pilot's arms at the rule's rate that over-fit, by pass@1 whatever the law is of."""
    return overfitting([c for c in curves(home.path) if c.purpose == "pilot" and c.multiplier == 1.0])


def _pilot_curves(home: Home, metric: str) -> list[Curve]:
    """Raises UserError unless every run that the pilot plans has ended."""
    planned = PilotPlan.of(home.read("pilot.json", "plan")).runs
    if not planned:
        raise UserError(f"{home.path} is planned without a pilot, so there is no law to fit: go on with "
                        f"`isocost train --plan {home.path}`")
    over = sum(ended(home.runs / r.name) for r in planned)
    if over < len(planned):
        raise UserError(
            f"the pilot of {home.path} is not done: {over} of {len(planned)} runs have ended; "
            f"run `isocost pilot {home.path}` first"
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
        home = imported.not_imported(opened(study))
        return train_plan(home, console, as_json=as_json, workers=workers, dry_run=dry_run)
    from isocost.study.single import train_one

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


def train_plan(
    home: Home, console: Console, *, workers: int | None, dry_run: bool, as_json: bool = False
) -> int:
    """Seal the forecast, then train the prescription and its comparator, paired by seed."""
    prescription = Plan.of(home.read("plan.json", "plan"))
    planned = PilotPlan.of(home.read("pilot.json", "plan"))
    if dry_run:
        tell.plan(console, prescription)
        _print_json(home, "plan.json", as_json)
        return 0
    law = Law.of(home.read("law.json", "fit")) if home.has("law.json") else None
    if not home.has("forecast.json"):
        seen = curves(home.path, home.metric) if law else []
        files = _hashes(home)
        sealed = forecasts.seal(
            prescription, law, seen, records=files.pop("records"), code=records.code()["sources"], files=files
        )
        forecasts.write(sealed, home.path / "forecast.json")
    forecast = forecasts.read(home.path / "forecast.json")
    if altered := forecasts.changed(forecast.hashes, _hashes(home)):
        raise UserError(f"{', '.join(altered)} was changed after the forecast was sealed: begin another study")
    tell.forecast(console, forecast, home.metric)
    rule = RateRule.of(home.read("rate.json", "pilot")) if home.has("rate.json") else planned.rate
    workers = _workers(home, workers, console)
    with home.phase("train"):
        _run_phase(home, planned, prescription.runs, rule, "training", console, workers, seal=forecast.seal)
    _print_json(home, "forecast.json", as_json)
    return 0


# audit --------------------------------------------------------------------------------------------------------


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
        changed=forecasts.changed(forecast.hashes, _hashes(home)),
    )
    home.write("audit.json", verdict.data())
    tell.audit(console, verdict)
    _print_json(home, "audit.json", as_json)
    return verdict.exit_code


def _hashes(home: Home) -> dict[str, str]:
    """The hashes of what a forecast is made from, as it lies in the study now; empty for what is not there."""
    return {"records": forecasts.records_hash(home.path)} | {
        name: forecasts.digest_of(read_json(path)) if (path := home.path / f"{name}.json").exists() else ""
        for name in ("plan", "law")
    }


def _print_json(home: Home, name: str, as_json: bool) -> None:
    if as_json:
        click.echo((home.path / name).read_text().rstrip())


# everything ---------------------------------------------------------------------------------------------------


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
    tell.units(console, home.read("pilot.json", "plan"))
    tell.beside(console, planned, home.read("profile.json", "profile").get("cost") or {})
    if dry_run:
        _print_json(home, "pilot.json", as_json)
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
    _print_json(home, "audit.json", as_json)
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
    from isocost.study.single import evaluate_run as measure

    return measure(run, quiet=quiet, console=console_of(quiet), **asked)
