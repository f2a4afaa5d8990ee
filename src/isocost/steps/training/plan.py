"""The plan: of the pilot before there is a law, and the prescription after."""

from __future__ import annotations

from dataclasses import replace

from isocost import methods
from isocost.can import Can
from isocost.errors import UserError
from isocost.laws.curves import attempts_of
from isocost.laws.overfit import beyond
from isocost.meter import LOST, TRAIN
from isocost.planner.budget import UNTIMED, Budget, Machine, Prices, Timing, Usage, measure_timing
from isocost.planner.evaluation import EvaluationPlan
from isocost.planner.training import pilot as pilots
from isocost.planner.training import prescribe as plans
from isocost.planner.training.afford import EVALUATION_SHARE, MOST_SAMPLES, plan_pilot
from isocost.planner.training.learning_rate import given, starting_rule
from isocost.planner.training.prescribe import prescribe
from isocost.recipe import pace_takes
from isocost.runs import measure, parted
from isocost.runs.job import method_defaults
from isocost.runs.schema import ENDED
from isocost.screen.words import word
from isocost.steps.settings import workers_of
from isocost.steps.study import StudyRecord, changes
from isocost.steps.training import spending
from isocost.steps.training.fit import choose_metric, overfitted
from isocost.steps.training.hosted import price_of, service_timing, worth
from isocost.steps.training.limits import of_limit
from isocost.steps.training.pilot import measured, refuse_sealed, write_pilot
from isocost.steps.training.plans import PilotPlanResult, PlanOptions, PlanResult
from isocost.types import Cost
from isocost.units import CURRENCIES, ENV_STEPS, FLOPS, ROLLOUTS, SECONDS, TOKENS
from isocost.worlds.spec import spec_of

EVALUATIONS = 8     # of a run of a user's trainer, at equal distances, where its budget allows them


@changes
def plan(study: StudyRecord, asked: PlanOptions = PlanOptions()) -> PilotPlanResult | PlanResult:
    """Without a law, plan the pilot; with one, or where the plan needs no pilot, prescribe: for a study whose runs are
    trained, here or by a user's trainer.

    Once there are runs, only budget, price, devices and workers can change, until a forecast is sealed.

    Raises UserError for options that do not fit each other or the study, for a budget in a unit that the study cannot
    count, and for one that pays for no update.
    """
    known = study.profiled()
    if asked.samples is not None and study.trainer is not None:
        raise UserError(f"--samples {asked.samples}: how many are sampled is up to your trainer; begin a study with "
                        "`isocost profile --trainer ... --samples K` to say how many")
    if asked.samples is not None and known["exact"]:
        raise UserError(f"--samples {asked.samples}: evaluations are exact here and sample nothing; leave it out")
    changes = asked.shape or asked.spending
    started = study.runs.exists() or study.has("forecast.json")
    drawn = asked.samples or study.setting.evaluation.samples
    study = choose_metric(study, asked.metric, drawn if changes and not started else None)
    if started and not study.has("pilot.json"):
        raise UserError(f"{study.path} has runs but not the pilot.json that they were planned by: restore it, or start "
                        "another study")
    if started and changes:
        refuse_sealed(study)
        if asked.shape:
            raise UserError(f"{study.path} has runs of the planned pilot: only --budget, --price, --devices and "
                            "--workers can change, and `isocost pilot` adds runs; to plan another pilot, start another "
                            "study")
    if changes and not started and asked.size is None and asked.budget is None and study.has("pilot.json"):
        before = study.planned
        asked = replace(asked, size=before.preset, budget=None if before.budget is None else str(before.budget))
    if changes or not study.has("pilot.json"):
        machine = _machine(study, price_of(study, asked.price), asked.devices, asked.workers)
        paid = None
        if asked.budget is not None and Budget.parse(asked.budget).unit in CURRENCIES:
            paid = worth(machine, study, asked.evaluation_share or EVALUATION_SHARE)
        spend = machine.spend(asked.budget, _uncounted(study), paid and paid[0])
        if started:
            planned = study.planned
            if planned.direct:
                raise UserError(f"{study.path} was planned without a pilot, for its budget, and has runs: to plan "
                                "again, start another study")
            if spend:
                planned = measured(study, planned).funded(spend)
            if study.has("law.json"):
                _prescription(study, planned)    # or raises, before anything is written
        else:
            planned = _plan_pilot(study, asked, spend)
        study = write_pilot(study, planned, machine)
    if study.law is None and not study.planned.direct:
        return pilot_plan(study)
    if not study.has("plan.json"):
        with study.phase("fit"):
            made = _prescription(study, study.planned)
            beside = spending.of_plan(study, made)
            if not study.source.can(Can.SPLITS):     # one held-out number, of no split
                said = measure.of(study.any_run) if study.runs.exists() else {
                    "kind": measure.HELD_OUT, "unit": ROLLOUTS}
                beside["measure"] = {"kind": said["kind"], "unit": said["unit"], "scale": _scale(study)}
            study = study.write("plan.json", {**made.data(), **beside})
    return prescription(study)


def pilot_plan(study: StudyRecord) -> PilotPlanResult:
    """The pilot's plan as pilot.json holds it. Raises UserError where there is none."""
    data = study.record("pilot.json", "plan")
    cost = study.profiled().get("cost") or {}
    return PilotPlanResult(
        study.planned, units=data.get("units"), profiled=cost.get("rollouts", 0),
        overridden=_overridden(study, study.planned), elsewhere=_elsewhere(study), folder=study.path,
    )


def _exported(study: StudyRecord) -> str:
    return (f"the training is for a trainer of yours, and no forecast of it is sealed: `isocost export "
            f"{word(study.path)} --to ...` writes the prescription as its configuration")


def _elsewhere(study: StudyRecord) -> str:
    """What to do with the planned runs where isocost cannot launch them; empty where it can."""
    return "" if study.source.can(Can.PILOT) else study.source.lacks[Can.PILOT].format(path=word(study.path))


def prescription(study: StudyRecord) -> PlanResult:
    """The prescription as plan.json holds it. Raises UserError where there is none."""
    data = study.record("plan.json", "plan")
    return PlanResult.written(
        data, extendable=study.source.can(Can.PILOT) and not study.planned.direct, folder=study.path)


def _scale(study: StudyRecord) -> tuple[float, float]:
    """The least and the largest reward of a rollout, in the log's units."""
    low, high = study.asked.get("scale") or measure.UNIT
    return float(low), float(high)


def _overridden(study: StudyRecord, planned: pilots.PilotPlan) -> str:
    """Which sizes and settings of the requested method the study uses and which it sets itself; empty without any."""
    method = study.asked["method"]
    if method is None:
        return ""
    used = {**study.setting.to_dict(), "lr": "by the rule", "warmup": "at most 5 % of the updates",
            "n": ", ".join(map(str, planned.grid or (planned.fallback_n,))),
            "B": f"{planned.batch} / n" if planned.batch else planned.B}
    differs = method_defaults(method, used)
    return f"{method}: {differs}" if differs else ""


def _machine(study: StudyRecord, price: str | None, devices: int | None, workers: int | None) -> Machine:
    """The machine of these options; what is None is as it was planned before."""
    before = Machine(1, workers_of(study.setting, None))
    if study.has("pilot.json"):
        before = spending.machine_of(study)
    now = Machine.priced(price, devices or before.devices, workers or before.side_by_side,
                         spec_of(study.setting.model).name)
    return now if price else replace(now, price=before.price, currency=before.currency, tokens=before.tokens)


def _uncounted(study: StudyRecord) -> dict[str, str]:
    """unit -> why a budget in it cannot be counted by what the study knows before its pilot."""
    known = study.profiled()
    prices, found = Prices.of_profile(known), {}
    if not study.source.can(Can.PILOT):
        found[SECONDS] = f"the time of training is {UNTIMED.source}"
    if not prices.decode:
        found |= dict.fromkeys((TOKENS, FLOPS), "the profile has no token counts")
    if study.trainer is not None and not known["lengths"]:
        found[TOKENS] = ("the trainer's log has no length of completions, which --map length=COLUMN of "
                         "`isocost profile` names")
    if known["parameters"] is None:
        found[FLOPS] = "it needs the model's number of parameters"
    if not prices.env_steps:
        found[ENV_STEPS] = "it needs an environment (--env), and these problems are one question and one answer"
    return found


def _plan_pilot(study: StudyRecord, options: PlanOptions, budget: Budget | None) -> pilots.PilotPlan:
    asked, known = study.asked, study.profiled()
    exact = bool(known.get("exact"))
    held_out = known["select"] + known["audit"]
    start = starting_rule(known["parameters"], own=known.get("starting_rate"), adapter="learned" in known)
    if at := known.get("at"):   # the rate that the user's trainer was profiled at, and its rollouts per update
        start = given(at["lr"], at["nB"])
    samples = options.samples
    rate = given(options.lr or start.lr0, start.reference) if options.lr is not None or at else None
    evaluation = EvaluationPlan(held_out, None if exact else samples or study.setting.evaluation.samples)
    if study.trainer is not None:
        evaluation = replace(evaluation, splits=1, even=EVALUATIONS)
    name = str(asked["method"] or (known.get("recipe") or {}).get("method"))
    if known.get("by_limit") and not pace_takes(methods.recipe(name), "max_turns"):
        if options.turns is not None:
            raise UserError(f"the pace of {name} takes no `max_turns`, so no other turn limit can be planned: leave "
                            "out --turns")
        known = {k: v for k, v in known.items() if k != "by_limit"}
    timing = service_timing(study, evaluation) if study.source.can(Can.PILOT) else UNTIMED
    if study.trainer is not None:
        timing = Timing.of(known["timing"])
    planned = plan_pilot(
        known, preset=options.size or "quick", budget=budget, seed=asked["seed"], parameters=known["parameters"],
        rate=rate, B=options.groups, batch=options.fixed_batch, evaluation=evaluation, timing=timing,
        attempts=attempts_of(study.metric), evaluation_share=options.evaluation_share, turns=options.turns,
        most_samples=samples or max(study.setting.evaluation.samples, MOST_SAMPLES),
        rounds=study.source.can(Can.PILOT),
    )
    if _caps(study):
        planned = planned.capped()
    if study.source.can(Can.PILOT):
        return planned
    return replace(planned, pilot_bill=_not_here(planned.pilot_bill), train_bill=_not_here(planned.train_bill))


def _caps(study: StudyRecord) -> bool:
    """Whether runs can be ended at their share of a budget: those that isocost trains can, a user's trainer's not."""
    return study.source.can(Can.TRAIN) and study.trainer is None


def _not_here(bill: Usage) -> Usage:
    """A bill without memory and disk, which are those of isocost's own trainer."""
    return replace(bill, memory_mb=None, disk_mb=None)


def _prescription(study: StudyRecord, planned: pilots.PilotPlan) -> plans.Plan:
    pool = study.profiled()["pool"]
    if planned.direct:
        made = prescribe(None, planned.rate, planned.budget, planned.timing, pilot=planned, problems=pool,
                         caps=_caps(study))
        if study.source.can(Can.TRAIN):
            return made
        return replace(made, bill=_not_here(made.bill), flags=(_exported(study), *made.flags))
    law, turns, own = study.law, study.turns, planned.at(study.turns)
    seen = of_limit(study.curves(), own)
    bills = [study.run(r.name).ended(ENDED)["bill"].get("train", {})
             for r in own.runs if turns is None or r.purpose == "pilot"]
    own = replace(own, prices=own.prices.measured(bills))
    made = prescribe(
        law, study.rule, own.budget, measure_timing(seen, own.timing), pilot=own, curves=seen,
        spent=spent(study, planned), problems=pool, caps=_caps(study),
    )
    if (choice := study.choice) is not None:
        note = choice.text + (f". To resolve: {choice.settle}" if choice.settle else "")
        made = replace(made, flags=made.flags if choice.identified else (*made.flags, note))
    warning = beyond(overfitted(study, turns), made.arm.n, made.arm.epochs)
    hacked = parted.by_n(run for run in study.runs_read if run.about()["purpose"] == "pilot")
    more = (*([] if warning is None else [warning]), *hacked)
    return replace(made, flags=(*made.flags, *more)) if more else made


def spent(study: StudyRecord, planned: pilots.PilotPlan) -> Usage:
    """What the pilot's runs cost by their own meters: training and what was lost of it, evaluations in seconds."""
    ends = [study.run(r.name).ended(ENDED) for r in planned.runs]
    bills = [e["bill"].get(account, {}) for e in ends for account in (TRAIN, LOST)]
    sizes = planned.pilot_bill

    def total(key: str) -> float:
        return sum(b.get(key, 0) for b in bills)

    parameters = planned.prices.parameters
    learned = planned.prices.learned
    flops = sum(Cost(**b).flops(int(parameters), learned) for b in bills) if parameters else None
    return replace(
        sizes, rollouts=int(total("rollouts")), tokens=total("decode"), flops=flops,
        seconds=sum(e["seconds"] for e in ends),
    )
