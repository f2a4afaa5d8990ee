"""What follows from a plan and its law: the budget in every unit, the gain of more compute, the minimum detectable
difference, and the runs that would resolve most for their cost.

pilot.json and plan.json hold it beside the plan, outside the seal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from isocost.laws.law import Law
from isocost.planner import bill as bills
from isocost.planner.bill import ALL, Bill
from isocost.planner.budget import Amounts, Machine, in_every_unit
from isocost.planner.evaluation import evaluated
from isocost.planner.training.more import more
from isocost.planner.training.n_growth import SAMPLES, n_growth
from isocost.planner.training.next_runs import next_runs
from isocost.planner.training.pilot import PilotPlan
from isocost.planner.training.prescription import Plan
from isocost.planner.training.seeds import ComparisonPower, comparison
from isocost.steps.folder import StudyFolder
from isocost.steps.study import StudyRecord
from isocost.steps.training.hosted import service_rows
from isocost.steps.training.limits import of_chosen
from isocost.units import SECONDS, TOKENS

PROFILED, PILOTED = "the profile", "the pilot's runs"


def of_pilot(study: StudyRecord, planned: PilotPlan, machine: Machine) -> dict[str, Any]:
    """Beside a pilot's plan: `units`, with the machine that they are for."""
    lengths = PILOTED if planned.timing.measured else PROFILED      # both are of the same runs, or of none
    bills = planned.pilot_bill, planned.train_bill
    rows = in_every_unit(*bills, planned.budget, machine, planned.timing, lengths)
    own = service_rows(study, machine, bills, planned.evaluation, planned.budget)
    return {"units": {"machine": machine.data(), "rows": [*_known(rows), *own]}}


def of_plan(study: StudyRecord, plan: Plan) -> dict[str, Any]:
    """Beside a prescription: `cost` (the bill that is expected of its runs), `units`, `evaluating` (the cost of its
    evaluations), `growth` (whether the best n is likely to grow with compute), `more` (reward for more compute), `sees`
    (the minimum detectable difference of its seeds) and `next`.

    `next` are runs to add to the pilot, at most at the pilot's cost, and what they would resolve; where the law is not
    identified, the runs that would identify it.
    """
    planned, machine, law = study.planned, machine_of(study), study.law
    lengths = PROFILED if planned.direct else PILOTED
    hosted = service_rows(study, machine, (plan.pilot_bill, plan.bill), planned.evaluation, plan.budget)
    own = planned if law is None else planned.at(study.turns)
    cost, training = _cost(study, plan, own), plan.bill
    if cost is not None and (whole := cost.line(ALL, SECONDS)) and whole.value:
        training = replace(training, seconds=whole.value)
    rows = in_every_unit(plan.pilot_bill, training, plan.budget, machine, plan.timing, lengths)
    beside = of_law(law, plan, own, machine, most=plan.pilot_bill.rollouts)
    return {
        "units": {"machine": machine.data(), "rows": [*_known(rows), *hosted]},
        "evaluating": _evaluating(plan, planned),
        "growth": _growth(study, plan),
        "cost": cost and priced(cost, machine).data(),
        **beside, "next": [{**run, "option": of_chosen(run["option"], study.choice)} for run in beside["next"]],
    }


def _cost(study: StudyRecord, plan: Plan, planned: PilotPlan) -> Bill | None:
    """The bill of a prescription's runs, from the runs of the grid that have ended; None without any."""
    there = [study.run(r.name) for r in planned.runs if r.purpose in ("pilot", "edge")]
    seen = [bills.paid_run(run) for run in there if run.over]
    return bills.forecast(seen, [
        {bills.RUNS: 1, bills.UPDATES: r.M, bills.WORK: r.C,
         bills.EVALUATIONS: evaluated(planned.points_of(r), r.n * r.B, r.M)}
        for r in plan.runs]) if seen else None


def priced(bill: Bill, machine: Machine) -> Bill:
    """A bill with its money, where the machine has a price."""
    each = machine.money(1.0)
    return bill if each is None else bill.priced(machine.currency, each)


def _known(rows: Sequence[Amounts]) -> list[dict[str, Any]]:
    """The rows of the units that can be counted: tokens cannot where no log has the length of an answer."""
    return [r.data() for r in rows if r.unit != TOKENS or r.pilot + r.training > 0]


def _growth(study: StudyRecord, plan: Plan) -> dict[str, Any] | None:
    """Whether the best n is likely to grow with compute; None without a profile or a number of problems."""
    if not study.has("profile.json"):
        return None
    known = study.record("profile.json", "profile")
    by_right = known.get("samples") == SAMPLES and not known.get("graded")
    found = n_growth(plan.arm.C, known.get("pool"), known["histogram"] if by_right else None)
    return None if found is None else found.data()


def _evaluating(plan: Plan, planned: PilotPlan) -> dict[str, Any] | None:
    """Cost and standard error of the evaluations of the trained runs; None where they are exact."""
    e = planned.evaluation
    if e.samples is None:
        return None
    return {
        "problems": e.problems, "samples": e.samples, "rollouts": plan.bill.evaluations * e.rollouts,
        "share": planned.evaluating(plan.bill, plan.timing), "unit": plan.budget.unit if plan.budget else "rollouts",
        "sd": e.sd,
    }


def of_law(
    law: Law | None, plan: Plan, planned: PilotPlan, machine: Machine, *, most: float, seeds: int | None = None
) -> dict[str, Any]:
    """`more`, `sees` and `next` beside a prescription, each empty without a law. `next` are runs of at most `most`
    rollouts together. A plan of one arm compares nothing: with `seeds` given, `sees` is of that many seeds of the
    prescribed n and of the best other n."""
    identified = law is not None and law.refused is None and not planned.direct
    curve = more(law, planned, {a.n: a.C for a in plan.arms}, plan.timing, machine, plan.budget) if (
        law is not None and identified) else ()
    by_cost = planned.train_arms == 1 and plan.budget is not None and plan.budget.unit != "rollouts"
    seen = None
    if law is not None and not by_cost:       # where each n has a C of its own, there is no common one
        seen = comparison(plan, law) if seeds is None else _between(law, plan, seeds)
    return {
        "more": [m.data() for m in curve],
        "sees": None if seen is None else seen.data(),
        "next": [] if law is None or planned.direct or (by_cost and identified) else _next(law, plan.arm.C, most),
    }


def _next(law: Law, C: float, most: float) -> list[dict[str, Any]]:
    """Runs to add to the pilot; for a law that is not identified, only those that would identify it."""
    if law.refused is not None:
        runs = law.refused
        return [{"text": runs.settle, "option": runs.option, "rollouts": runs.rollouts}]
    return [r.data() | {"text": r.text, "option": r.option} for r in next_runs(law, C, most=most)]


def _between(law: Law, plan: Plan, seeds: int) -> ComparisonPower | None:
    """The comparison of the prescribed n with the best other at the same C; None where the law has no other."""
    arm = plan.arm
    others = {n: law.predict(n, arm.C)[0] for n in law.ns if n != arm.n}
    if law.refused is not None or not others:
        return None
    n = max(others, key=lambda k: (others[k].value, -k))
    seen = comparison(replace(plan, arms=(arm, replace(arm, n=n, confidence=others[n])), seeds=seeds), law)
    return seen and replace(seen, text=f"n = {arm.n} against n = {n}: {seen.text}")


def machine_of(home: StudyFolder) -> Machine:
    """The machine that a study was planned for; one device and one run at a time where the record has none."""
    units = home.record("pilot.json", "plan").get("units") if home.has("pilot.json") else None
    return Machine(**units["machine"]) if units else Machine()
