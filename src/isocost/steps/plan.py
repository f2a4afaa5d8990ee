"""The plan: of the pilot before there is a law, and the prescription after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from isocost import methods
from isocost.errors import UserError
from isocost.laws.curves import attempts_of, curves
from isocost.laws.law import Law
from isocost.laws.overfit import beyond
from isocost.meter import LOST, TRAIN
from isocost.planner import pilot as pilots
from isocost.planner import rollouts as plans
from isocost.planner.afford import MOST_SAMPLES, plan_pilot
from isocost.planner.budget import UNTIMED, Bill, Budget, Machine, Timing, measure_timing
from isocost.planner.evaluation import EvaluationPlan
from isocost.planner.learning_rate import RateRule, given, starting_rule
from isocost.planner.rollouts import prescribe
from isocost.planner.study_runs import PlannedRun
from isocost.recipe import pace_takes
from isocost.runs import measure
from isocost.runs.files import read_json
from isocost.runs.job import method_defaults
from isocost.runs.schema import ENDED
from isocost.runs.source import Can
from isocost.steps import imported, spending
from isocost.steps.fit import choose_metric, overfitted
from isocost.steps.folder import Home, opened, writes
from isocost.steps.limits import choice_of, chosen_limit, of_limit
from isocost.steps.pilot import measured, refuse_sealed, write_pilot
from isocost.steps.results import PilotPlan, Plan
from isocost.steps.settings import workers_of
from isocost.types import Cost
from isocost.units import ROLLOUTS, TOKENS
from isocost.words import word

EVALUATIONS = 8     # of a run of a user's trainer, at equal distances, where its budget allows them


@writes()
def plan(
    study: Path,
    *,
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
    turns: Sequence[int] | None = None,
) -> PilotPlan | Plan:
    """Without a law, plan the pilot; with one, or where the plan needs no pilot, prescribe.

    size, budget: a preset's name, or what pilot and training may spend, with a unit ("2h", "50k-rollouts"); without
        either, as the pilot was planned before, or `quick`.
    lr, lr_exponent: the learning rate that the probe varies, and the exponent of the rule in n B.
    groups, fixed_batch: B, problems per update; or n B, rollouts per update.
    metric, samples, evaluation_share: what laws are of; samples per held-out problem, at most; the cost of evaluations
        over the cost of training, at most.
    turns: the turn limits that the pilot compares, of dialogues; by default those that the profile proposes.
    price, devices, workers: "2.5usd/device-hour"; devices paid for; runs side by side.

    Once there are runs, only budget, price, devices and workers can change, until a forecast is sealed.

    Raises:
        UserError: for options that do not fit each other or the study, and for a budget that pays for no update.
    """
    home = opened(study)
    shape = any(x is not None for x in (size, lr, lr_exponent, groups, fixed_batch, samples, evaluation_share, turns))
    if not (home.source.can(Can.PILOT) or home.has("profile.json")):
        return imported.planned(home, budget, price, devices, others=shape or metric is not None)
    known = home.profiled()
    if samples is not None and home.trainer is not None:
        raise UserError(f"--samples {samples}: how many are sampled is up to your trainer; begin a study with "
                        "`isocost profile --trainer ... --samples K` to say how many")
    if samples is not None and known["exact"]:
        raise UserError(f"--samples {samples}: evaluations are exact here and sample nothing; leave it out")
    changes = shape or any(x is not None for x in (budget, price, devices, workers))
    started = home.runs.exists() or home.has("forecast.json")
    choose_metric(home, metric, (samples or home.setting.samples) if changes and not started else None)
    if started and not home.has("pilot.json"):
        raise UserError(f"{study} has runs but not the pilot.json that they were planned by: restore it, or start "
                        "another study")
    if started and changes:
        refuse_sealed(home)
        if shape:
            raise UserError(f"{study} has runs of the planned pilot: only --budget, --price, --devices and --workers "
                            "can change, and `isocost pilot` adds runs; to plan another pilot, start another study")
    if changes and not started and size is None and budget is None and home.has("pilot.json"):
        before = pilots.PilotPlan.of(home.read("pilot.json", "plan"))
        size, budget = before.preset, None if before.budget is None else str(before.budget)
    if changes or not home.has("pilot.json"):
        machine = _machine(home, price, devices, workers)
        spend = spending.plannable(budget, machine)
        if started:
            planned = pilots.PilotPlan.of(home.read("pilot.json", "plan"))
            if planned.direct:
                raise UserError(f"{study} was planned without a pilot, for its budget, and has runs: to plan "
                                "again, start another study")
            if spend:
                planned = measured(home, planned).funded(spend)
            if home.has("law.json"):
                _prescription(home, planned)    # or raises, before anything is written
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
                evaluation_share,
                turns,
            )
        write_pilot(home, planned, machine)
    planned = pilots.PilotPlan.of(home.read("pilot.json", "plan"))
    if not (home.has("law.json") or planned.direct):
        return pilot_plan(home)
    if not home.has("plan.json"):
        with home.phase("fit"):
            made = _prescription(home, planned)
            beside = spending.of_plan(home, made, planned, spending.machine_of(home))
            if not home.source.can(Can.SPLITS):     # one held-out number, of no split
                said = measure.of(home.any_run) if home.runs.exists() else {"kind": measure.HELD_OUT, "unit": ROLLOUTS}
                beside["measure"] = {"kind": said["kind"], "unit": said["unit"], "scale": _scale(home)}
            home.write("plan.json", {**made.data(), **beside})
    return prescription(home)


def pilot_plan(home: Home) -> PilotPlan:
    """The pilot's plan as pilot.json holds it. Raises UserError where there is none."""
    data = home.read("pilot.json", "plan")
    planned = pilots.PilotPlan.of(data)
    cost = home.profiled().get("cost") or {}
    return PilotPlan.beside(
        planned,
        units=data.get("units"),
        profiled=cost.get("rollouts", 0),
        overridden=_overridden(home, planned),
        elsewhere=_elsewhere(home),
        folder=home.path,
    )


def _exported(home: Home) -> str:
    return (f"the training is for a trainer of yours, and no forecast of it is sealed: `isocost export "
            f"{word(home.path)} --to ...` writes the prescription as its configuration")


def _elsewhere(home: Home) -> str:
    """What to do with the planned runs where isocost cannot launch them; empty where it can."""
    return "" if home.source.can(Can.PILOT) else home.source.lacks[Can.PILOT].format(path=word(home.path))


def prescription(home: Home) -> Plan:
    """The prescription as plan.json holds it. Raises UserError where there is none."""
    data = home.read("plan.json", "plan")
    planned = pilots.PilotPlan.of(home.read("pilot.json", "plan"))
    return Plan.written(data, extendable=home.source.can(Can.PILOT) and not planned.direct, folder=home.path)


def _scale(home: Home) -> tuple[float, float]:
    """The least and the largest reward of a rollout, in the log's units."""
    low, high = home.asked.get("scale") or measure.UNIT
    return float(low), float(high)


def _overridden(home: Home, planned: pilots.PilotPlan) -> str:
    """Which sizes and settings of the requested method the study uses and which it sets itself; empty without any."""
    method = home.asked["method"]
    if method is None:
        return ""
    used = {**asdict(home.setting), "lr": "by the rule", "warmup": "at most 5 % of the updates",
            "n": ", ".join(map(str, planned.grid or (planned.fallback_n,))),
            "B": f"{planned.batch} / n" if planned.batch else planned.B}
    differs = method_defaults(method, used)
    return f"{method}: {differs}" if differs else ""


def _machine(home: Home, price: str | None, devices: int | None, workers: int | None) -> Machine:
    """The machine of these options; what they leave out is as it was planned before."""
    before = spending.machine_of(home) if home.has("pilot.json") else Machine(1, workers_of(home.setting, None))
    now = Machine.priced(price, devices or before.devices, workers or before.side_by_side)
    return now if price else replace(now, price=before.price, currency=before.currency)


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
    evaluation_share: float | None,
    turns: Sequence[int] | None,
) -> pilots.PilotPlan:
    asked = home.asked
    exact = bool(known.get("exact"))
    held_out = known["select"] + known["audit"]
    rate = None
    start = starting_rule(known["parameters"], own=known.get("starting_rate"), adapter="learned" in known)
    if at := known.get("at"):   # the rate that the user's trainer was profiled at, and its rollouts per update
        start = given(at["lr"], at["nB"])
    if lr is not None or exponent is not None or at:
        rate = given(lr or start.lr0, start.reference, start.exponent if exponent is None else exponent)
    evaluation = EvaluationPlan(held_out, None if exact else samples or home.setting.samples)
    if home.trainer is not None:
        evaluation = replace(evaluation, splits=1, even=EVALUATIONS)
        if budget is not None and budget.unit == TOKENS and not known["lengths"]:
            raise UserError(f"a budget of {budget} cannot be counted: the trainer's log has no length of completions; "
                            "log one (--map length=COLUMN), or give rollouts or time")
    name = str(asked["method"] or (known.get("recipe") or {}).get("method"))
    if known.get("by_limit") and not pace_takes(methods.recipe(name), "max_turns"):
        if turns is not None:
            raise UserError(f"the pace of {name} takes no `max_turns`, so no other turn limit can be planned: leave "
                            "out --turns")
        known = {k: v for k, v in known.items() if k != "by_limit"}
    timing = None if home.source.can(Can.PILOT) else UNTIMED
    if home.trainer is not None:
        timing = Timing.of(known["timing"])
    planned = plan_pilot(
        known,
        preset=size,
        budget=budget,
        seed=asked["seed"],
        parameters=known["parameters"],
        rate=rate,
        B=groups,
        batch=fixed_batch,
        evaluation=evaluation,
        timing=timing,
        attempts=attempts_of(home.metric),
        evaluation_share=evaluation_share,
        turns=turns,
        most_samples=samples or max(home.setting.samples, MOST_SAMPLES),
        rounds=home.source.can(Can.PILOT),
    )
    if _caps(home):
        planned = planned.capped()
    if home.source.can(Can.PILOT):
        return planned
    return replace(planned, pilot_bill=_not_here(planned.pilot_bill), train_bill=_not_here(planned.train_bill))


def _caps(home: Home) -> bool:
    """Whether runs can be ended at their share of a budget: those that isocost trains can, a user's trainer's not."""
    return home.source.can(Can.TRAIN) and home.trainer is None


def _not_here(bill: Bill) -> Bill:
    """A bill without memory and disk, which are those of isocost's own trainer."""
    return replace(bill, memory_mb=None, disk_mb=None)


def _prescription(home: Home, planned: pilots.PilotPlan) -> plans.Plan:
    pool = home.profiled()["pool"]
    if planned.direct:
        made = prescribe(None, planned.rate, planned.budget, planned.timing, pilot=planned, problems=pool,
                         caps=_caps(home))
        if home.source.can(Can.TRAIN):
            return made
        return replace(made, bill=_not_here(made.bill), flags=(_exported(home), *made.flags))
    found = home.read("law.json", "fit")
    law, turns = Law.of(found), chosen_limit(found)
    rule = RateRule.of(home.read("rate.json", "pilot"))
    paid, own = spent(home, planned), planned.at(turns)
    seen = of_limit(curves(home.path, home.metric), own)
    bills = [bill.get("train", {}) for run, bill in _bills(home, own) if turns is None or run.purpose == "pilot"]
    own = replace(own, prices=own.prices.measured(bills))
    made = prescribe(
        law,
        rule,
        own.budget,
        measure_timing(seen, own.timing),
        pilot=own,
        curves=seen,
        spent=paid,
        problems=pool,
        caps=_caps(home),
    )
    if (choice := choice_of(found)) is not None:
        note = choice.text + (f". To resolve: {choice.settle}" if choice.settle else "")
        made = replace(made, flags=made.flags if choice.identified else (*made.flags, note))
    warning = beyond(overfitted(home, turns), made.arm.n, made.arm.epochs)
    return made if warning is None else replace(made, flags=(*made.flags, warning))


def _ends(home: Home, planned: pilots.PilotPlan) -> list[dict[str, Any]]:
    """How each of the pilot's runs ended."""
    return [read_json(home.runs / r.name / "end.json", ENDED) for r in planned.runs]


def _bills(home: Home, planned: pilots.PilotPlan) -> list[tuple[PlannedRun, dict[str, Any]]]:
    """Each of the pilot's runs with its accounts."""
    return [(r, e["bill"]) for r, e in zip(planned.runs, _ends(home, planned), strict=True)]


def spent(home: Home, planned: pilots.PilotPlan) -> Bill:
    """What the pilot's runs cost by their own meters: training and what was lost of it, evaluations in seconds."""
    ends = _ends(home, planned)
    bills = [e["bill"].get(account, {}) for e in ends for account in (TRAIN, LOST)]
    sizes = planned.pilot_bill

    def total(key: str) -> float:
        return sum(b.get(key, 0) for b in bills)

    parameters = planned.prices.parameters
    learned = planned.prices.learned
    flops = sum(Cost(**b).flops(int(parameters), learned) for b in bills) if parameters else None
    return replace(
        sizes,
        rollouts=int(total("rollouts")),
        tokens=total("decode"),
        flops=flops,
        seconds=sum(e["seconds"] for e in ends),
    )
