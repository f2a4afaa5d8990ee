"""The plan of a study of control: of the pilot before there is a law, and the prescription after."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from isocost.can import Can
from isocost.errors import UserError
from isocost.laws.value_fit import OFFLINE, ControlPrice
from isocost.planner.budget import Budget, Machine, worded
from isocost.planner.control.curves import return_curves
from isocost.planner.control.pilot import COUNT, ControlPilot, plan_control_pilot
from isocost.planner.control.prescribe import ControlPlan, Wish, prescribe_control
from isocost.runs.arm import Arm
from isocost.screen.display import OfPlanner, Result, Row, Table, folder_field, given
from isocost.screen.words import counted, duration, grouped, word
from isocost.steps.control.profile import ControlProfile
from isocost.steps.study import StudyRecord, changes
from isocost.units import CURRENCIES, ENV_STEPS, SECONDS, words

OPTIONS = "options"     # key of pilot.json and plan.json: what the plan was asked for


@dataclass(frozen=True)
class ControlPlanOptions:
    """What `isocost plan` takes for a study of control; what is None was not given.

    budget: for pilot and training. wanted: the return to plan for. sample_cost, update_cost: what a sample or an update
    costs besides, or, for imported logs, at all: 0.02s, 4e9flop, 0.001usd. sigma: updates per sample of the pilot.
    seeds, length: of a setting and of a run of the pilot. shorter: runs of the pilot at a larger sigma are shorter by
    its ratio to this power. train_seeds: of each trained arm.
    """

    budget: str | None = None
    price: str | None = None
    devices: int | None = None
    workers: int | None = None
    wanted: float | None = None
    sample_cost: str | None = None
    update_cost: str | None = None
    sigma: tuple[float, ...] | None = None
    seeds: int | None = None
    length: int | None = None
    train_seeds: int | None = None
    shorter: float | None = None


def said(unit: str, amount: float) -> str:
    """An amount in a unit of plans, in words."""
    return duration(amount) if unit == SECONDS else f"{float(f'{amount:.3g}'):,g} {words(unit)}"


@dataclass(frozen=True)
class ControlPilotResult(OfPlanner):
    """The plan of a pilot of control (`isocost.planner.control.pilot.ControlPilot`)."""

    has: ClassVar[str] = "pilot"

    pilot: ControlPilot
    folder: Path | None = folder_field()
    besides: str = ""

    @property
    def heading(self) -> str:
        return f"pilot: {counted(len(self.pilot.runs), 'run')} of {grouped(self.pilot.samples)} samples"

    def rows(self) -> list[Row | Table]:
        """Its grid and its cost."""
        p = self.pilot
        cost = f"{worded(p.budget, p.cost)} of {p.budget}" if p.budget else said(p.unit, p.cost)
        return given(Row("grid", p.why), Row("cost", cost), Row("not in the budget", self.besides),
                     Row("next", f"isocost pilot {word(self.folder)}" if self.folder else "", "command"))


@dataclass(frozen=True)
class ControlPlanResult(OfPlanner):
    """A prescription of control (`isocost.planner.control.prescribe.ControlPlan`). sealed: whether a forecast of its
    runs can be sealed here, and they be trained."""

    has: ClassVar[str] = "plan"

    plan: ControlPlan
    sealed: bool = True
    folder: Path | None = folder_field()
    besides: str = ""

    @property
    def heading(self) -> str:
        return f"plan for a return of {self.plan.wanted:g}" + (": not identified" if self.plan.refused else "")

    def rows(self) -> list[Row | Table]:
        """The arm, the cheapest sigma, what is forecast of it, its cost, and cautions."""
        p, a = self.plan, self.plan.arm
        first = f"{grouped(a[OFFLINE])} offline updates, then " if OFFLINE in a else ""
        name = "the pilot's best, without a forecast" if p.refused else "prescription"
        out = [
            Row("", p.refused, "flag"),
            Row(name, first + f"{a['sigma']:g} updates per sample, batch {a['batch']:g}, rate {a['rate']:.2g}; "
                      f"{counted(p.seeds, 'seed')} of {grouped(p.samples)} samples"),
            Row("cheapest" if first else "cheapest sigma",
                f"{p.sigma.value:.2g} [{p.sigma.low:.2g}, {p.sigma.high:.2g}]" + " offline updates" * bool(first)
                if p.sigma else ""),
            Row("forecast", f"{p.arrival.value:,.0f} [{p.arrival.low:,.0f}, {p.arrival.high:,.0f}] samples to a return "
                            f"of {p.wanted:g}, the geometric mean of {counted(p.seeds, 'new seed')}"
                if p.arrival else ""),
            Row("", f"{p.final.value:.4g} [{p.final.low:.4g}, {p.final.high:.4g}] mean return after "
                    f"{grouped(p.samples)} samples" if p.final else ""),
            Row("cost", f"{said(p.unit, p.cost)} a run"),
            Row("not in the budget", self.besides),
            *(Row("against", f"{k}: {v.label}") for k, v in p.rivals.items()),
            *(Row("", text, "flag") for text in p.flags),
        ]
        if self.folder is not None:
            name = word(self.folder)
            out.append(Row("next", f"isocost train --plan {name}" if self.sealed else
                           f"isocost export {name} --to sb3", "command"))
        return given(*out)


@changes
def plan_control(study: StudyRecord, asked: ControlPlanOptions) -> Result:
    """Without runs, plan the pilot; with the runs of a pilot, prescribe.

    Raises:
        UserError: for options that do not fit, a budget that pays for nothing, and a return without a law.
    """
    told = {k: v for k, v in vars(asked).items() if v is not None}
    own = study.source.can(Can.PILOT)
    if study.has("forecast.json") and told:
        raise UserError(f"{study.path} has a sealed forecast, which its plan is part of: to plan anew, start another "
                        "study")
    if not own or study.has("law.json"):
        if wrong := next((k for k in ("sigma", "seeds", "length", "shorter") if k in told), None):
            raise UserError(f"--{wrong} is of a pilot, and {study.path} has its runs: leave it out")
        if told or not study.has("plan.json"):
            study = study.write("plan.json", {**_prescription(study, told).data(), OPTIONS: _kept(study, told)})
        return prescribed(study)
    if told and any((study.runs / r.name).exists() for r in (pilot_of(study).runs if study.has("pilot.json") else ())):
        raise UserError(f"{study.path} has runs of the planned pilot: run `isocost pilot {word(study.path)}` and "
                        f"`isocost fit {word(study.path)}`, then plan the training; to plan another pilot, start "
                        "another study")
    if told or not study.has("pilot.json"):
        profile = ControlProfile.of(study.record("profile.json", "profile"))
        _refuse_random(profile, asked.length, study.asked.get("sets", {}))
        budget, price = priced_by(study, told)
        if profile.offline and asked.sigma:
            raise UserError(f"--sigma: {study.path} compares numbers of updates before the first sample, at "
                            f"{profile.sigma:g} updates per sample; leave it out")
        centre = Arm(batch=profile.batch, rate=profile.rate, width=profile.width,
                     sigma=profile.sigma if profile.offline else None)
        made = plan_control_pilot(centre, asked.length or profile.samples, price, budget,
                                  sigmas=profile.offline or asked.sigma,
                                  seeds=asked.seeds, seed=study.asked["seed"], shorter=asked.shorter or 0.0)
        study = study.write("pilot.json", {**made.data(), OPTIONS: told})
    pilot = pilot_of(study)
    return ControlPilotResult(pilot, study.path, evaluating(study, len(pilot.runs)))


def _refuse_random(profile: ControlProfile, length: int | None, sets: Mapping[str, str]) -> None:
    """Raises UserError for runs that end before their first update."""
    from isocost.control import methods
    from isocost.control.types import Progress

    agent = methods.tuned(methods.agent(profile.method), sets)
    if length is not None and not agent.tempo(Progress(length - 1, 0)).learns:
        acts = "without learning" if profile.offline else "at random"
        raise UserError(f"--length {length}: {profile.method} acts {acts} for so long and makes no update. Name a "
                        f"larger --length; the profile's runs had {grouped(profile.samples)} samples")


def pilot_of(study: StudyRecord) -> ControlPilot:
    """The pilot that pilot.json holds."""
    return ControlPilot.of(study.record("pilot.json", "plan"))


def prescribed(study: StudyRecord) -> ControlPlanResult:
    """The prescription that plan.json holds."""
    plan = ControlPlan.of(study.record("plan.json", "plan"))
    return ControlPlanResult(plan, study.source.can(Can.TRAIN), study.path,
                             evaluating(study, plan.seeds * (1 + len(plan.rivals))))


def evaluating(study: StudyRecord, runs: int) -> str:
    """What the evaluations of so many runs take by the study's profile, which no budget has; empty if not known."""
    if not study.has("profile.json"):
        return ""
    costs = ControlProfile.of(study.record("profile.json", "profile")).costs
    return (f"evaluations of {counted(runs, 'run')}, {duration(runs * costs.evaluation_seconds)} and "
            f"{runs * costs.evaluation_flop:.3g} FLOP") * bool(costs.evaluation_flop)


def _kept(study: StudyRecord, told: Mapping[str, Any]) -> dict[str, Any]:
    """The options in force: those of the pilot's plan, replaced by those that are given now."""
    before = study.record("pilot.json", "plan").get(OPTIONS, {}) if study.has("pilot.json") else {}
    return {**before, **told}


def _prescription(study: StudyRecord, told: Mapping[str, Any]) -> ControlPlan:
    options = _kept(study, told)
    budget, price = priced_by(study, options)
    default, left = None, None
    if study.source.can(Can.PILOT):
        default = ControlProfile.of(study.record("profile.json", "profile")).default
        left = None if budget is None else budget.amount - pilot_of(study).cost
    elif budget is not None:
        left = budget.amount
    curves = return_curves(study.runs_read, ("pilot",))
    wish = Wish(price, options.get("wanted"), left, options.get("train_seeds") or COUNT, default)
    return prescribe_control(curves, wish)


def priced_by(study: StudyRecord, options: Mapping[str, Any]) -> tuple[Budget | None, ControlPrice]:
    """The budget of a study in a unit of plans, and what samples and updates cost in it.

    Without a budget the unit is that of --sample-cost or --update-cost, else time, or environment steps where the time
    is not known. Raises UserError for costs in different units.
    """
    workers = options.get("workers") or os.cpu_count() or 1
    machine = Machine.priced(options.get("price"), options.get("devices") or 1, workers)
    budget = machine.spend(options.get("budget"), {})
    costs = {k: _cost(f"--{k.replace('_', '-')}", options[k], machine) for k in ("sample_cost", "update_cost")
             if options.get(k)}
    timed = study.has("profile.json")
    units = {c.unit for c in costs.values()} | ({budget.unit} if budget else set())
    if len(units) > 1:
        raise UserError(f"a plan counts in one unit: {', '.join(sorted(map(words, units)))} were given; name all "
                        "in one")
    unit = units.pop() if units else SECONDS if timed else ENV_STEPS
    if timed:
        price = ControlProfile.of(study.record("profile.json", "profile")).costs.price(unit)
    else:
        price = ControlPrice(float(unit == ENV_STEPS and "sample_cost" not in costs), 0.0, 0.0, unit)
    more = {k: costs[k].amount if k in costs else 0.0 for k in ("sample_cost", "update_cost")}
    price = ControlPrice(price.sample + more["sample_cost"], price.update + more["update_cost"], price.example, unit,
                         price.first + more["update_cost"])
    if not price.sample:
        raise UserError(f"a sample costs nothing in {words(unit)}, so every return is cheapest with one update for "
                        "many samples: name what a sample costs with --sample-cost, such as 0.02s or 4e9flop")
    return budget, price


def _cost(option: str, text: str, machine: Machine) -> Budget:
    """What one sample or update costs, money as time. Raises UserError for a text that is not such a cost."""
    try:
        cost = Budget.parse(text)
    except UserError as why:
        raise UserError(f"{option} {text}: {why}") from None
    if cost.unit in CURRENCIES:
        if machine.price is None or cost.unit != machine.currency:
            raise UserError(f"{option} {text} needs a --price in {cost.unit}")
        return Budget(cost.amount / machine.price * 3600 / machine.devices * machine.side_by_side, SECONDS)
    return cost
