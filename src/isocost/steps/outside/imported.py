"""Plan from runs that isocost did not launch: the records that fit, plan and report expect, made from the runs.

pilot.json lists the runs as if they had been planned, with their cost and the differences between them; rate.json is
the learning-rate rule that they followed. The budget of a plan is for the next run, in the user's own trainer: one arm,
one run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import exp, isfinite, sqrt
from typing import Any

import numpy as np

from isocost.errors import UserError
from isocost.laws.curves import PASS, Curve
from isocost.laws.law import EXTRAPOLATION, Law
from isocost.planner.budget import MEASURED, Budget, Machine, Prices, Timing, Usage, in_every_unit, measure_timing
from isocost.planner.evaluation import EvaluationPlan
from isocost.planner.training import prescribe as plans
from isocost.planner.training.learning_rate import EXPONENT, NOISE, RateRule, by_n
from isocost.planner.training.pilot import PilotPlan
from isocost.planner.training.prescribe import IMPORTED, prescribe
from isocost.planner.training.prescription import Check, PlannedArm
from isocost.planner.training.study_runs import COMMON, WARMUP_SHARE, PlannedRun, whole
from isocost.runs import measure, schema
from isocost.runs.files import RunFiles
from isocost.runs.schema import BILLED
from isocost.screen.words import counted
from isocost.stats.power import detectable
from isocost.steps.study import StudyRecord, changes
from isocost.steps.training import spending
from isocost.steps.training.plans import PlanOptions, PlanResult
from isocost.units import ENV_STEPS, FLOPS, SECONDS, TOKENS

AHEAD = 4  # length of the next run over the longest imported one, if no budget is given
HELD = 256  # held-out problems assumed
NOTHING = Usage(0, 0.0, None, 0.0, 0, None, None)  # imported runs are not charged to the budget of the next run
UNTIMED = Timing(0.0, 0.0, 0.0, 0.0, "not known: the logs hold no seconds")
FLAGGED = ("a second held-out half:", "a held-out measure:")  # prefixes of what flags of the law report already
OURS = ("pilot_share", "seeds", "warmup")  # checks of a plan that hold only for runs of isocost
THEIRS = (
    "the runs were imported: what they cost is not in the budget, and the run to come is your trainer's, so no arm is "
    "compared and no forecast sealed"
)


def rule_of(seen: Sequence[Curve]) -> RateRule:
    """The learning-rate rule that the runs followed: a power of rollouts per update through their rates. With one batch
    size only, the exponent is 1/2, and the text says so. Arms that were run keep their own rate."""
    at = sorted({(c.arm["n"] * c.arm["B"], c.arm["lr"]) for c in seen})
    sizes = np.array([b for b, _ in at], dtype=float)
    rates = np.log([lr for _, lr in at])
    reference = round(float(exp(np.log(sizes).mean())))
    several = len(set(sizes)) > 1
    slope, level = np.polyfit(np.log(sizes / reference), rates, 1) if several else (EXPONENT, rates.mean())
    deviation = float(np.abs(rates - level - slope * np.log(sizes / reference)).max())
    lr0, slope = exp(float(level)), round(float(slope), 12) + 0.0  # not -0
    rule = f"lr = {lr0:.2g} (rollouts per update / {reference})^{slope:.2f}"
    if not several:
        rule = f"lr = {lr0:.2g} at {reference} rollouts per update; elsewhere a square root is assumed"
    elif slope == 0:
        rule = f"lr = {lr0:.2g} at any number of rollouts per update"
    flags = (
        ()
        if deviation < 0.01
        else (
            "the imported runs' learning rates follow no power of the rollouts per update: the rule is off by up to "
            f"{exp(deviation) - 1:.0%}, and each arm keeps its own",
        )
    )
    own: dict[tuple[int, int], list[float]] = {}
    for c in seen:
        own.setdefault((c.arm["n"], c.arm["B"]), []).append(c.arm["lr"])
    return RateRule(
        lr0, reference, float(slope), flags=flags, why=f"as the imported runs had it: {rule}; not tuned here",
        arms=tuple((n, B, exp(float(np.log(lrs).mean()))) for (n, B), lrs in sorted(own.items())),
    )


def pilot_of(files: Sequence[RunFiles], seen: Sequence[Curve], budget: Budget | None) -> PilotPlan:
    """The imported runs as a pilot, and the size of the next run: 4 times the longest unless a budget is given."""
    grid = tuple(sorted({c.arm["n"] for c in seen}))
    batches = {c.arm["n"] * c.arm["B"] for c in seen}
    batch = batches.pop() if len({c.arm["B"] for c in seen}) > 1 and len(batches) == 1 else None
    B = batch // COMMON if batch else Counter(c.arm["B"] for c in seen).most_common(1)[0][0]
    C = int(max(c.C[-1] for c in seen))
    middle = grid[len(grid) // 2]
    seeds = min(Counter(c.arm["n"] for c in seen).values())
    runs = tuple(_run(c) for c in seen)
    sd, source = _spread(seen)
    tokens, ends = bills_of(files)
    prices = Prices(0.0, tokens or 0.0, None)
    timing = timing_of(seen)
    spent = replace(prices.bill([(c.arm["n"], c.arm["B"], int(c.C[-1]), len(c.C)) for c in seen], timing), seconds=ends)
    unit = batch or whole(grid, B, C)
    train_C = max(1, AHEAD * C // unit) * unit
    why = (
        f"{counted(len(seen), 'imported run')}, {len(grid)} n, up to {C:,} rollouts; the run to come is one of at most "
        f"{EXTRAPOLATION} times that"
    )
    effect = detectable(seeds, len(grid), sd) if seeds > 1 else None
    return PilotPlan(
        preset=IMPORTED,
        budget=budget,
        seed=0,
        direct=False,
        why=why,
        grid=grid,
        B=B,
        C=C,
        seeds=seeds,
        runs=runs,
        points=tuple(int(x) for x in max(seen, key=lambda c: len(c.C)).C if x > 0),
        probe_points=(),
        rate=rule_of(seen),
        train_C=train_C,
        train_arms=1,
        train_seeds=1,
        pilot_bill=spent,
        train_bill=prices.bill([(middle, batch // middle if batch else B, train_C, 1)], timing),
        prices=prices,
        timing=timing,
        evaluation=EvaluationPlan(HELD, 1),
        sd=sd,
        sd_source=source,
        detectable=effect if effect and isfinite(effect) else None,
        fallback_n=middle,
        fallback_why=f"n = {middle}, the middle of what was run",
        batch=batch,
        flags=tuple(
            f"missing in {count} of {len(seen)} imported runs: {text}"
            for text, count in lacking(files)
            if not text.startswith(FLAGGED)
        ),
    )


def _run(curve: Curve) -> PlannedRun:
    purpose, _, rest = curve.run.partition("-n")
    index = int(rest.rpartition("-s")[2])
    return PlannedRun(purpose, curve.arm.only("n", "B").but(multiplier=1.0), int(curve.C[-1]), index, curve.seed)


def _spread(seen: Sequence[Curve]) -> tuple[float, str]:
    """Run-to-run standard deviation at the largest C that all runs reached, pooled over n; without diverged runs."""
    kept = [c for c in seen if not c.diverged]
    by = by_n(kept, min((float(c.C[-1]) for c in kept), default=0.0))
    dof = sum(len(v) - 1 for v in by.values())
    if not dof:
        return NOISE, f"assumed: {NOISE:g} between runs; one run per n does not measure it"
    squares = sum(float(((np.array(v) - np.mean(v)) ** 2).sum()) for v in by.values())
    return sqrt(squares / dof), "measured between the imported runs"


def bills_of(runs: Sequence[RunFiles]) -> tuple[float | None, float]:
    """(tokens written per rollout where every log says so, seconds of all runs)."""
    ends = [run.ended(BILLED) for run in runs if run.end]
    bills = [e["bill"]["train"] for e in ends]
    rollouts = sum(b["rollouts"] for b in bills)
    tokens = sum(b["decode"] for b in bills) / rollouts if rollouts and all("decode" in b for b in bills) else None
    return tokens, sum(e["seconds"] for e in ends)


def lacking(runs: Sequence[RunFiles]) -> list[tuple[str, int]]:
    """[(what is missing, number of runs that lack it)], the most common first."""
    return Counter(m for run in runs for m in run.about().get("missing", [])).most_common()


def timing_of(seen: Sequence[Curve]) -> Timing:
    """The time that a run takes, by the logs' seconds; with evaluations where these cannot be distinguished. Where the
    runs do not separate the time of an update from that of its rollouts, it is seconds over rollouts, in total. Without
    seconds it is `UNTIMED`."""
    separate = measure_timing(seen, UNTIMED)
    if separate != UNTIMED:
        return separate
    pieces = [(dC, ds) for c in seen for dC, ds in zip(np.diff(c.C), np.diff(c.seconds), strict=True) if ds > 0]
    rollouts = sum(dC for dC, _ in pieces)
    if not rollouts > 0:
        return UNTIMED
    each = float(f"{sum(ds for _, ds in pieces) / rollouts:.4g}")
    return Timing(0.0, 0.0, each, 0.0, f"{MEASURED} {len(pieces)} stretches of runs of a trainer of yours, in total")


@changes
def planned(study: StudyRecord, asked: PlanOptions) -> PlanResult:
    """The prescription for the next run, within a budget; without one, as last planned.

    A `price` and a number of `devices` turn time into money and device-hours.

    Raises UserError before there is a law; for a budget in a unit that the logs cannot count, or that pays for no run;
    for a price or devices where the logs hold no seconds; for options that an imported study does not use.
    """
    if asked.shape or asked.metric is not None:
        raise UserError(
            f"{study.path} {study.source.described}: its runs and rates are what they are; a plan takes --budget only"
        )
    law = Law.of(study.record("law.json", "fit"))
    if asked.spending:
        study = _plan_anew(study, asked)
    if not study.has("plan.json"):
        pilot, seen = PilotPlan.of(study.record("pilot.json", "import")), study.curves(PASS)
        rule = RateRule.of(study.record("rate.json", "import"))
        prices = _prices(study)
        ask = partial(
            prescribe, law, rule, pilot.budget, pilot.timing, pilot=pilot, curves=seen, spent=NOTHING, prices=prices
        )
        made = ask(problems=_problems(seen, ask().arm.n))
        kept = tuple(c for c in made.checks if c.name not in OURS)
        arms = tuple(replace(a, warmup=min(_warmup(study, a.n), a.M)) for a in made.arms)
        said = measure.worded(made.fallback, measure.of(study.any_run)["kind"]) if made.fallback else made.fallback
        checks = (*kept, _warms_up(study, arms[0]))
        made = replace(made, arms=arms, checks=checks, flags=(THEIRS, *made.flags), fallback=said)
        study = study.write("plan.json", {**made.data(), **_beside(study, made, law, pilot)})
    return PlanResult.written(study.record("plan.json", "plan"), folder=study.path)


def _plan_anew(study: StudyRecord, asked: PlanOptions) -> StudyRecord:
    """The study with the pilot.json of a budget (unchanged if not given) on a machine, and without an earlier plan."""
    seen = study.curves(PASS)
    machine = Machine.priced(asked.price, 1 if asked.devices is None else asked.devices, 1)
    spend: Budget | None
    if asked.budget is not None:
        spend = machine.spend(asked.budget, uncounted(study))
    else:
        spend = PilotPlan.of(study.record("pilot.json", "import")).budget
        if spend is not None and spend.asked:
            spend = machine.plannable(Budget.parse(spend.asked), spend.asked)
    if (asked.price is not None or asked.devices is not None) and timing_of(seen) == UNTIMED:
        raise UserError(
            f"{study.path}: the imported logs hold no seconds, so --price and --devices cannot be counted; leave them "
            "out"
        )
    units = {"machine": machine.data(), "rows": []}
    written = study.write("pilot.json", {**pilot_of(study.runs_read, seen, spend).data(), "units": units})
    return written.without("plan.json")


def _beside(study: StudyRecord, made: plans.Plan, law: Law, pilot: PilotPlan) -> dict[str, Any]:
    """Beside a plan: its cost in every unit that the logs count; what the law predicts for more compute, more seeds and
    further runs; the kind and scale of its rewards and the unit of its C."""
    units = {"rollouts": True, "tokens": made.bill.tokens > 0, "flops": False}
    timed = made.bill.seconds > 0
    machine = spending.machine_of(study)
    rows = in_every_unit(NOTHING, made.bill, made.budget, machine, made.timing, "the imported runs")
    said = measure.of(study.any_run)
    own = replace(pilot, prices=_prices(study).get(made.arm.n, pilot.prices))
    return {
        **spending.of_law(law, made, own, machine, most=pilot.pilot_bill.rollouts, seeds=pilot.seeds),
        "units": {"machine": machine.data(), "rows": [r.data() for r in rows if units.get(r.unit, timed)]},
        "measure": {"kind": said["kind"], "unit": said["unit"], "scale": measure.scale_of(study.any_run)},
    }


def _warmup(study: StudyRecord, size: int) -> int:
    """Updates of warm-up that the imported runs of this n had, the most where they differ; 0 if no log records any."""
    arms = [run.about(schema.IMPORTED)["arm"] for run in study.runs_read]
    return max((int(a["warmup"] or 0) for a in arms if a["n"] == size), default=0)


def _problems(seen: Sequence[Curve], size: int) -> int | None:
    """Problems per epoch of the runs of this n, by their last epoch; None if no log records epochs."""
    sizes = [c.C[-1] / (size * c.epochs[-1]) for c in seen if c.arm["n"] == size and c.epochs[-1] > 0]
    return max(1, round(float(np.mean(sizes)))) if sizes else None


def _warms_up(study: StudyRecord, arm: PlannedArm) -> Check:
    """The check that the warm-up of the imported runs, capped at the length of the next run, is a small share of it."""
    holds = arm.warmup <= WARMUP_SHARE * arm.M
    text = f"{arm.warmup} of {counted(arm.M, 'update')} warm up (at most {WARMUP_SHARE:.0%})"
    had = counted(_warmup(study, arm.n), "update")
    return Check("warmup", holds, text if holds else f"{text}: the imported runs of n = {arm.n} warmed up for {had}")


def _prices(study: StudyRecord) -> dict[int, Prices]:
    """n -> tokens written per rollout, where all runs of n record them."""
    by: dict[int, list[Mapping[str, float]]] = {}
    for run in study.runs_read:
        by.setdefault(run.about(schema.IMPORTED)["arm"]["n"], []).append(run.ended(BILLED)["bill"]["train"])
    recorded = {n: bills for n, bills in by.items() if all("decode" in b for b in bills)}
    return {n: Prices(0.0, 0.0, None).measured(bills) for n, bills in recorded.items()}


def uncounted(study: StudyRecord) -> dict[str, str]:
    """unit -> why a budget in it cannot be counted: the logs do not hold what a rollout costs in it."""
    why = "the imported logs do not hold what a rollout costs in it"
    lacks = {TOKENS: bills_of(study.runs_read)[0] is None, FLOPS: True, ENV_STEPS: True,
             SECONDS: timing_of(study.curves(PASS)) == UNTIMED}
    return {unit: why for unit, lacking in lacks.items() if lacking}
