"""The plan and the audit of a study of strategies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NoReturn

from isocost.disk.shape import built
from isocost.errors import UserError
from isocost.planner.forecast import digest
from isocost.planner.frontier import SURE
from isocost.planner.test_time.choice import WORTH
from isocost.planner.test_time.foretold import Foretold
from isocost.planner.test_time.outcome import StrategyAudit, outcome
from isocost.planner.test_time.policies import BASE, FrontierTable, SharedGoal, frontier_table, rivals
from isocost.planner.test_time.prescribe import (
    AnswerGoal,
    BandStrategy,
    StrategyForecast,
    StrategyForecasts,
    StrategyPlan,
    candidates,
    prescribe,
    seal,
)
from isocost.runs import files as records
from isocost.screen.display import OfPlanner, Row, Table, folder_field, given
from isocost.screen.words import counted, duration, grouped, word
from isocost.stats.intervals import Interval
from isocost.steps.study import StudyRecord, changes
from isocost.steps.test_time.checkpoints import policy_costs
from isocost.steps.test_time.profile import StrategyProfile, arms_of, file_of, live_of, parts_of
from isocost.units import SECONDS, words

LISTED = 12     # candidates that are listed, the best for their cost


@dataclass(frozen=True)
class StrategyOptions:
    """The options of `isocost plan` for a study of strategies.

    budget: what an answer may cost, such as "1k-tokens/answer"; or accuracy: what it is to reach, at least cost.
    price: per token, for a budget in money. speed: tokens per second of one text, for a budget in seconds. answers: how
    many answers the training of a policy is for; its cost is then counted, the budget is of training and all answers,
    and the price may be of a device-hour.
    """

    budget: str | None = None
    accuracy: float | None = None
    price: str | None = None
    speed: float | None = None
    answers: float | None = None


@dataclass(frozen=True)
class StrategyPlanResult(OfPlanner):
    """What to run for each answer (`isocost.planner.test_time.prescribe.StrategyPlan`), and its sealed forecast."""

    has: ClassVar[str] = "plan"

    plan: StrategyPlan
    forecast: StrategyForecast
    frontier: FrontierTable | None = None
    folder: Path | None = folder_field()

    @staticmethod
    def written(plan: Mapping[str, Any], forecast: Mapping[str, Any], folder: Path | None = None) -> StrategyPlanResult:
        """The result that plan.json and forecast.json hold. Raises UserError where they are not of one budget."""
        made, sealed = StrategyPlan.of(plan), StrategyForecasts.of(forecast)
        frontier = built(FrontierTable, plan["frontier"]) if plan.get("frontier") else None
        return StrategyPlanResult(made, _of_plan(sealed, made), frontier, folder)

    @property
    def heading(self) -> str:
        """The prescription."""
        said = {"cannot tell": f"{self.plan.label} (cannot tell)"}
        return f"{self.plan.asked}: {said.get(self.plan.decision, self.plan.label)}"

    def rows(self) -> list[Row | Table]:
        """Why, what is expected, and the candidates."""
        p = self.plan
        unit = "samples" if p.unit == "rollouts" else p.unit
        at = f" at {p.one.arm}" if p.one.arm else ""
        one = f"one sample{at} {p.one.accuracy:.3f}"
        gain = _signed(p.gain)
        why = {
            "more": f"gain over one sample {gain} ({one}), chosen without the problems it is measured on",
            "one": f"no strategy gains {WORTH:g} or more over one sample within this budget ({one})",
            "cannot tell": f"the gain of the best, {p.best.label}, over one sample is {gain}: its interval includes 0 "
                           f"({one}); more problems would decide",
        }[p.decision]
        band = "" if p.band_gain is None else (
            f"{'' if len(p.each) > 1 else 'one strategy for all: '}a strategy for each band gains "
            f"{_signed(p.band_gain)} over the best single one")
        probe = f", of which the first {p.probe} tell the band" if p.probe else ""
        best = sorted(p.candidates, key=lambda c: -c.accuracy)[:LISTED]
        cells = [[c.label, f"{c.accuracy:.3f}", _signed(c.gain), grouped(float(f"{c.cost:.4g}")), f"{c.samples:.1f}",
                  "forecast" if c.how == "mixture" else ""] for c in best]
        return given(
            Row("why", why),
            *(Row(f"band {b.band}", f"{b}{probe}") for b in p.each if len(p.each) > 1),
            Row("expected accuracy", f"{p.expected} on {counted(self.forecast.problems, 'problem')} of the test split "
                                     f"({p.expected.level:.0%} prediction interval)"),
            *([Row("cost of an answer", f"{grouped(float(f'{p.cost:.4g}'))} {unit}")] if self.frontier is None else
              frontier_rows(self.frontier, p.each[0].arm, p.cost)),
            Row("bands", band),
            Row("optimism", f"the chosen strategy's own mean is {p.optimism:+.3f} above the accuracy stated"
                if p.decision == "more" and len(p.each) == 1 and not p.beyond else ""),
            Row("sealed", f"{self.forecast.seal[:16]}: {self.forecast.falsifier}"),
            *([] if self.frontier else [Table(["", "accuracy", "gain over one", unit, "samples", ""], cells,
                                              left=(0, 5))]),
            *(Row("", text, "flag") for text in p.flags),
        )

    def to_dict(self) -> dict[str, Any]:
        """plan.json, and the forecast."""
        frontier = {} if self.frontier is None else {"frontier": asdict(self.frontier)}
        return {**self.plan.data(), **frontier, "forecast": self.forecast.data()}


def _amount(unit: str, x: float) -> str:
    return duration(x) if unit == SECONDS else f"{x:.3g}"


def frontier_rows(t: FrontierTable, chosen: str, cost: float) -> list[Row | Table]:
    """Train or think: what the choice of this policy costs and how sure it is, from how many answers each training
    pays, and the staircase."""
    policy = next((p for p in t.policies if p.name == chosen), t.policies[0])
    share = (policy.trained(t.unit, t.price) or 0.0) / (cost * t.answers)
    paid = f"{_amount(t.unit, cost * t.answers)} {words(t.unit)} in all, of which training takes {share:.1%}"
    shares = sorted(t.shares.items(), key=lambda x: -x[1])
    said = ", ".join(f"{name} in {share:.0%}" for name, share in shares if share)
    sure = "" if t.shares.get(chosen or BASE, 0.0) >= SURE else "cannot tell: "
    out: list[Row | Table] = [Row("cost", paid), Row("train or think", (
        f"{sure}the choice is {said} of the draws over problems and seeds") if len(t.policies) > 1 else (
        "no other policy was profiled: `isocost profile ... --checkpoints RUN` compares some"))]
    for x in t.pays:
        many, low, high = ("never" if n is None else f"{float(f'{n:.2g}'):,.0f}" for n in (x.answers, x.low, x.high))
        least, most = (float("inf") if n is None else n for n in (x.low, x.high))
        tells = "cannot tell" if least <= t.answers < most else "pays" if most <= t.answers else "does not pay"
        even = "never breaks even" if x.answers is None else (
            f"breaks even at {many} answers" if x.answers else "no policy that was trained less reaches it")
        reach = f"accuracy {x.accuracy:.3f}" + (f", which it reaches with {x.strategy}" if x.strategy else "")
        out.append(Row(f"training {x.policy}", f"{tells}: {even} [{low}, {high}], for {reach}"))
    units = list(t.steps[0].total)
    cells = [[s.policy, s.strategy, f"{s.accuracy:.3f} [{s.low:.3f}, {s.high:.3f}]",
              *(_amount(u, s.total[u]) if u in s.total else "" for u in units), f"{s.training / s.total[t.unit]:.0%}",
              "" if s.share >= SURE else "cannot tell from a cheaper one"] for s in t.steps]
    heads = ["policy", "strategy", "accuracy", *(f"{words(u)} in all" for u in units), "training", ""]
    return [*out, Table(heads, cells, left=(0, 1, 2 + len(units) + 2))]


def _signed(i: Interval) -> str:
    return f"{i.value:+.3f} [{i.low:+.3f}, {i.high:+.3f}]"


@changes
def plan(study: StudyRecord, asked: StrategyOptions = StrategyOptions()) -> StrategyPlanResult:
    """Choose what to run for each answer, and seal what it is expected to give; without options, as last planned.

    Raises:
        UserError: for a budget or an accuracy that cannot be planned for, before a profile, and where the same budget
            was sealed with another forecast.
    """
    before = study.record("forecast.json", "plan") if study.has("forecast.json") else {}
    if asked == StrategyOptions() and before:
        return StrategyPlanResult.written(study.record("plan.json", "plan"), before, study.path)
    study.record("profile.json", "profile")     # of a profile that was stopped, samples are lacking
    about, split = study.asked, parts_of(study)
    live, frontier, others = live_of(study, split.select.ids), None, list[BandStrategy]()
    ask: AnswerGoal
    if asked.answers is None:
        ask = AnswerGoal.of(asked.budget, asked.accuracy, asked.price, asked.speed)
    else:
        if asked.speed is not None:
            raise UserError("--speed is for a budget in seconds of one answer, and --answers counts busy time of the "
                            "machine: leave one of them out")
        table = StrategyProfile.read(study).table
        policies = table.policies or policy_costs((), {"": 0.0}, 0.0)
        ask = SharedGoal.shared(asked.answers, asked.budget, asked.accuracy, asked.price, policies)
    made = prescribe(split, about["strategies"], ask, about["seed"], live)
    if isinstance(ask, SharedGoal):
        for one in map(Foretold.of, about.get("foretold", ())):
            drawn, flag = one.measured(candidates(split, about["strategies"], ask, about["seed"]), about["seed"])
            live, made = [*live, *drawn], replace(made, flags=(*made.flags, flag))
        frontier = frontier_table(split, about["strategies"], ask, about["seed"], live)
        others = rivals(made, split, ask)
    elif split.policies:
        free = "the training of a checkpoint is not counted: --answers Q counts it, for Q answers"
        made = replace(made, flags=(*made.flags, free))
    hashes = {"pool": pool_hash(study), "code": digest(about["code"])}
    forecast = seal(made, split, about["seed"], hashes, others)
    both = StrategyForecasts.of(before).adding(forecast) if before else StrategyForecasts((forecast,))
    found = StrategyPlanResult(made, forecast, frontier, study.path)
    study.write("plan.json", {k: v for k, v in found.to_dict().items() if k != "forecast"})
    study.write("forecast.json", both.data())
    return found


def _of_plan(sealed: StrategyForecasts, made: StrategyPlan) -> StrategyForecast:
    found = next((f for f in sealed.forecasts if f.asked == made.asked), None)
    if found is None:
        raise UserError(f"forecast.json has no forecast for {made.asked}, which plan.json is of: restore them from a "
                        "copy, or name the budget again")
    return found


def pool_hash(study: StudyRecord) -> str:
    """SHA-256 of what strategies were measured on."""
    runs = [name for own in arms_of(study).values() for name in own]
    files = ("pool.jsonl", *map(file_of, runs), "live.jsonl", *(file_of(name, "live") for name in runs))
    return digest({name: records.file_hash(study.path / name) for name in files if study.has(name)})


@dataclass(frozen=True)
class StrategyAuditResult(OfPlanner):
    """The forecasts against the test split (`isocost.planner.test_time.outcome.StrategyAudit`)."""

    has: ClassVar[str] = "audit"

    audit: StrategyAudit
    folder: Path | None = folder_field()

    @property
    def heading(self) -> str:
        """The verdict."""
        return f"audit: {self.audit.verdict}"

    def rows(self) -> list[Row | Table]:
        """For each budget the verdict and why, and the prescription against what it is compared with."""
        out: list[Row | Table] = []
        for o in self.audit.outcomes:
            out.append(Row(o.asked, f"{o.verdict}: {o.label}, {o.reason}"))
            out += [Row(f"minus {a.name} ({a.accuracy:.3f})", f"{_signed(a.difference)}; better: {a.better}")
                    for a in o.against]
        if len(self.audit.outcomes) > 1:
            many = f"{len(self.audit.outcomes)} forecasts are judged on the same {self.audit.problems} problems"
            out.append(Row("", f"{many}: their verdicts are not independent", "flag"))
        return out


def no_law(study: StudyRecord) -> NoReturn:
    """Raises UserError: a study of strategies has nothing to fit."""
    raise UserError(f"{study.path} {study.source.described}, which have no law to fit: `isocost plan "
                    f"{word(study.path)} --budget 1k-tokens/answer` chooses one")


@changes
def audit(study: StudyRecord) -> StrategyAuditResult:
    """Compare every sealed forecast with the test split, and write audit.json. The verdict is that of the
    budget planned last.

    Raises UserError before a plan.
    """
    if not study.has("forecast.json"):
        raise UserError(f"{study.path} has no sealed forecast: `isocost plan {word(study.path)} --budget "
                        "1k-tokens/answer` seals one")
    sealed = StrategyForecasts.of(study.record("forecast.json", "plan"))
    last = StrategyPlan.of(study.record("plan.json", "plan"))
    about, split, now = study.asked, parts_of(study), pool_hash(study)
    live = live_of(study, split.audit.ids)
    found = tuple(
        outcome(f, split, about["seed"], () if f.hashes["pool"] == now else ("the samples",), live)
        for f in (*(f for f in sealed.forecasts if f.asked != last.asked), _of_plan(sealed, last))
    )
    result = StrategyAudit(found, len(split.audit.ids))
    study.write("audit.json", result.data())
    return StrategyAuditResult(result, study.path)
