"""What is asked of a plan, and what a plan is: the pilot's, or the prescription with what follows from it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from isocost.planner.bill import Bill
from isocost.planner.budget import Budget
from isocost.planner.training import pilot as pilots
from isocost.planner.training import prescription as plans
from isocost.planner.training.learning_rate import NOISE
from isocost.planner.training.more import More
from isocost.planner.training.n_growth import NGrowth
from isocost.planner.training.seeds import ComparisonPower
from isocost.runs import measure as measures
from isocost.screen.display import OfPlanner, Row, Table, folder_field, given
from isocost.screen.words import counted, duration, word
from isocost.stats.intervals import Interval
from isocost.stats.power import detectable
from isocost.units import FLOPS, ROLLOUTS, SAMPLING, SECONDS, WALL, words

Data = Mapping[str, Any]
SHOWN = 20      # evaluation points that are listed


@dataclass(frozen=True)
class PlanOptions:
    """The options of `isocost plan`. What is None is as it was planned before, else chosen by the planner.

    size, budget: a preset's name, or what pilot and training may spend, with a unit ("2h", "50k-rollouts"); without
        either, `quick`.
    lr: the learning rate that the probe varies.
    groups, fixed_batch: B, problems per update; or n B, rollouts per update.
    metric, samples, evaluation_share: what laws are of; samples per held-out problem, at most; the cost of evaluations
        over the cost of training, at most.
    turns: the turn limits that the pilot compares, of dialogues; by default those that the profile proposes.
    price, devices, workers: "2.5usd/device-hour"; devices paid for; runs side by side.
    """

    size: str | None = None
    budget: str | None = None
    lr: float | None = None
    groups: int | None = None
    fixed_batch: int | None = None
    metric: str | None = None
    price: str | None = None
    devices: int | None = None
    workers: int | None = None
    samples: int | None = None
    evaluation_share: float | None = None
    turns: Sequence[int] | None = None

    @property
    def shape(self) -> bool:
        """Whether they say which runs a pilot has."""
        of_runs = (self.size, self.lr, self.groups, self.fixed_batch, self.samples, self.evaluation_share, self.turns)
        return any(x is not None for x in of_runs)

    @property
    def spending(self) -> bool:
        """Whether they say what may be spent, or on which machine."""
        return any(x is not None for x in (self.budget, self.price, self.devices, self.workers))


@dataclass(frozen=True)
class PilotPlanResult(OfPlanner):
    """The pilot's plan, and its cost.

    plan: the planner's own (`isocost.planner.training.pilot.PilotPlan`).

    units: the budget in every unit, and the machine that hours and money are for; None where none was written.
    profiled: rollouts that the profile sampled, which no budget counts; None in a dry run.
    overridden: which of the method's own sizes and settings the study uses and which it sets itself; may be empty.
    elsewhere: what to do with the runs where isocost cannot launch them; else empty.
    """

    has: ClassVar[str] = "plan"

    plan: pilots.PilotPlan
    units: Data | None = None
    profiled: int | None = None
    overridden: str = ""
    elsewhere: str = ""
    folder: Path | None = folder_field()

    @property
    def heading(self) -> str:
        return "plan: no pilot" if self.plan.direct else "plan of the pilot"

    def rows(self) -> list[Row | Table]:
        """What a pilot will run, what it can detect, what it and the training after it cost, and cautions."""
        p = self.plan
        return given(
            Row("", p.why),
            Row("", p.limits_why),
            *(() if p.direct else self._runs()),
            Row("fallback", f"{p.fallback_why}; {p.train_seeds} x {p.train_C:,} rollouts" if p.direct else ""),
            Row("training" if p.direct else "training after it", p.train_bill.text()),
            *self._precision(),
            *(Row("", text, "flag") for text in p.flags),
            *whole_commands((p.why, *p.flags), self.folder, p.budget),
            *(() if p.direct else self._elsewhere()),
            Row("", self.overridden),
            in_units(self.units),
            *self._uncounted(),
        )

    def _runs(self) -> list[Row]:
        """The runs by purpose, where they are evaluated, and their cost."""
        p = self.plan
        points, edges = [f"{x:,}" for x in p.points], len(p.of_purpose("edge"))
        shown = points if len(points) <= SHOWN else [*points[: SHOWN - 1], "...", points[-1]]
        checks = f", {counted(edges, 'edge run')} at half and twice the rate" if edges else ""
        return [
            Row("learning rate", p.rate.why),
            Row("", f"{len(p.of_purpose('probe'))} probe runs, {len(p.of_purpose('pilot'))} grid runs{checks}; "
                    f"evaluated at {', '.join(shown)} rollouts"),
            Row("", f"then {p.reserve:.3g} times the grid's cost where the choice is open: the leading n at half and "
                    "twice its rate, and longer runs of the n that are not behind" if p.reserve else ""),
            Row("pilot", p.pilot_bill.text()),
            Row("", p.shares),
        ]

    def _elsewhere(self) -> tuple[Row | Table, ...]:
        """The runs that another trainer has to run, and what to do with their logs."""
        if not self.elsewhere:
            return ()
        rule = self.plan.rate
        cells = [(
            r.name, f"{r.n}", f"{r.B}", f"{r.M}",
            f"{r.lr(rule):.2g}" if r.purpose == "probe" else f"by the probe ({r.lr(rule):.2g})", f"{r.warmup}",
            f"{r.seed}",
        ) for r in self.plan.runs]
        heads = ("run", "n", "B", "updates", "learning rate", "warm-up", "seed")
        return Row("", self.elsewhere, "command"), Table(heads, cells, left=(0,))

    def _precision(self) -> Iterable[Row]:
        """What sampled evaluations cost and how precise they are; nothing where evaluations are exact."""
        p, e = self.plan, self.plan.evaluation
        if e.samples is None:
            return
        unit, after = words(ROLLOUTS if p.budget is None else p.budget.unit), p.evaluating(p.train_bill)
        share = f"{after:.0%} of training in {unit}" if p.direct else (
            f"{p.evaluating(p.pilot_bill):.0%} of training in {unit} in the pilot, {after:.0%} after it")
        yield Row("evaluation", f"{e.problems} held-out problems x {counted(e.samples, 'sample')}, standard error at "
                                f"most {e.sd:.3f} on each split; it costs {share}")
        if p.detectable is not None and p.sd_source != "measured":
            exact = detectable(p.seeds, len(p.grid), NOISE)
            yield Row("", f"with exact evaluations the minimum detectable difference would be {exact:.3f} instead of "
                          f"{p.detectable:.3f}")

    def _uncounted(self) -> Iterable[Row]:
        """What is not in the budget: the profile, and evaluations except for the time and money they take."""
        if self.profiled is None:
            return
        e, evaluations = self.plan.evaluation, self.plan.bill.evaluations
        each = ", which are exact and sample nothing" if e.samples is None else (
            f" x {counted(e.samples, 'sample')}: {evaluations * e.rollouts:,} rollouts, counted as time and money only")
        yield Row("not in the budget", f"profiling, {self.profiled:,} rollouts; {evaluations:,} evaluations of "
                                       f"{e.problems} problems{each}")

    def to_dict(self) -> dict[str, Any]:
        """pilot.json; without `units` where none was written."""
        return self.plan.data() | ({} if self.units is None else {"units": self.units})


@dataclass(frozen=True)
class Expected:
    """What the law predicts of the prescribed runs: the mean reward of `runs` new runs of n at C rollouts each.
    `interval` is its prediction interval; None where no law is identified."""

    n: int
    C: int
    runs: int
    interval: Interval | None


@dataclass(frozen=True)
class PlanResult(OfPlanner):
    """The prescription, and what follows from it and the law.

    plan: the planner's own (`isocost.planner.training.prescription.Plan`), which a forecast is sealed from.

    units: the budget in every unit and the machine; more: expected gain of 2, 4 and 8 times the rollouts, and its cost.
    sees: the minimum detectable difference of its seeds. next: runs to add to the pilot, what they would resolve, and
        the option of `isocost pilot` that adds them.
    evaluating: problems, samples, rollouts and standard error (reward) of its evaluations; None where they are exact.
    cost: the bill that is expected of its runs; None where no run of the study was billed, and in earlier records.
    growth: whether the best n is likely to grow with compute on these problems; None in records of earlier versions.
    measure: of imported runs, what their reward, its scale and their C are; None of isocost's own.
    extendable: whether runs can be added to the study's pilot.
    """

    has: ClassVar[str] = "plan"

    plan: plans.Plan
    units: Data | None = None
    evaluating: Data | None = None
    growth: NGrowth | None = None
    cost: Bill | None = None
    more: tuple[More, ...] = ()
    sees: ComparisonPower | None = None
    next: tuple[Data, ...] = ()
    measure: Data | None = None
    extendable: bool = False
    folder: Path | None = folder_field()
    held: tuple[str, ...] = field(default=(), compare=False, repr=False)    # of plans.BESIDE: keys that plan.json has

    @classmethod
    def written(cls, data: Data, **beside: Any) -> PlanResult:
        """From plan.json."""
        return cls(
            plans.Plan.of(data),
            units=data.get("units"),
            evaluating=data.get("evaluating"),
            growth=NGrowth.of(data["growth"]) if data.get("growth") else None,
            cost=Bill.of(data["cost"]) if data.get("cost") else None,
            more=tuple(map(More.of, data.get("more") or ())),
            sees=ComparisonPower.of(data["sees"]) if data.get("sees") else None,
            next=tuple(data.get("next") or ()),
            measure=data.get("measure"),
            held=tuple(k for k in plans.BESIDE if k in data),
            **beside,
        )

    @property
    def n(self) -> int:
        """Rollouts per problem."""
        return self.plan.arm.n

    @property
    def B(self) -> int:
        """Problems per update."""
        return self.plan.arm.B

    @property
    def M(self) -> int:
        """Updates per run."""
        return self.plan.arm.M

    @property
    def C(self) -> int:
        """Rollouts per run: n B M."""
        return self.plan.arm.C

    @property
    def lr(self) -> float:
        """Learning rate after warm-up."""
        return self.plan.arm.lr

    @property
    def forecast(self) -> Expected:
        """What the law predicts of it, before it is sealed."""
        return Expected(self.n, self.C, self.plan.seeds, self.plan.arm.prediction)

    @property
    def heading(self) -> str:
        limit = "" if self.plan.turns is None else f", turn limit {self.plan.turns}"
        return f"prescription: n = {self.n}, B = {self.B}{limit}, M = {self.M}, lr = {self.lr:.2g}"

    def rows(self) -> list[Row | Table]:
        """Why, what it costs and is expected to reach, what more compute would buy, runs to add, and cautions."""
        p, a, e = self.plan, self.plan.arm, self.evaluating
        measured = {"kind": "held-out", "unit": ROLLOUTS, "scale": measures.UNIT, **(self.measure or {})}
        unit = measured["unit"]
        passes = "" if a.epochs is None else f", {a.epochs:.1f} passes over the problems"
        expected = ""
        if (i := a.prediction) is not None:
            own = measures.in_its_units(measured["scale"], i.value, i.low, i.high)
            split = "" if self.measure else ", test split"
            expected = (f"expected {measured['kind']} reward {i} ({i.level:.0%} prediction interval{split})"
                        + (own and f": {own}"))
        evaluated = "" if not e else (
            f"{counted(p.bill.evaluations, 'evaluation')} of {e['problems']} held-out problems x "
            f"{counted(e['samples'], 'sample')}, {e['rollouts']:,} rollouts: {e['share']:.0%} of the cost of training "
            f"in {words(e['unit'])}; standard error at most {e['sd']:.3f} on each split")
        return given(
            Row("fallback", p.fallback) if p.fallback else Row("", p.chosen),
            *whole_commands((p.fallback,), self.folder, p.budget),
            Row("", p.risks),
            Row("", f"C = {a.C:,} {unit} a run, {counted(p.seeds, 'seed')}, warm-up {counted(a.warmup, 'update')}"
                    f"{passes}; against {p.comparison}"),
            Row("", expected),
            Row("", self.growth.text if self.growth else ""),
            *(row for m in self.more for row in _bought(m, unit)),
            Row("", f"twice the budget would buy {p.marginal.gain:+.3f} (n = {p.marginal.doubled_n})"
                    if p.marginal and not self.more else ""),
            Row("", self.sees.text if self.sees else ""),
            *self._next(),
            Row("training", p.bill.text(unit, costs=self.cost is None)),
            Row("evaluation", evaluated),
            *(self.cost.rows() if self.cost else ()),
            in_units(self.units, unit, [x.unit for x in self.cost.lines] if self.cost else ()),
            *(Row("", check.text, "flag") for check in p.checks if not check.holds),
            *(Row("", text, "flag") for text in p.flags),
        )

    def _next(self) -> Iterable[Row]:
        """The runs to add to the pilot, each with its command."""
        for rank, run in enumerate(self.next):
            first = "to resolve" if self.plan.fallback else "to reduce the uncertainty"
            yield Row("", f"  or {run['text']}") if rank else Row(first, run["text"])
            if self.extendable and run["option"]:
                yield Row("", f"    isocost pilot {word(self.folder)} {run['option']}", "command")

    def to_dict(self) -> dict[str, Any]:
        """plan.json: records of imported runs, and of earlier versions, have fewer keys beside the plan."""
        beside = {
            "units": self.units,
            "evaluating": self.evaluating,
            "growth": self.growth.data() if self.growth else None,
            "cost": self.cost.data() if self.cost else None,
            "more": [m.data() for m in self.more],
            "sees": self.sees.data() if self.sees else None,
            "next": list(self.next),
            "measure": self.measure,
        }
        return self.plan.data() | {k: v for k, v in beside.items() if k in self.held}


def whole_commands(texts: Iterable[str], folder: Path | None, budget: Budget | None) -> list[Row]:
    """The commands that a plan's texts name by their options alone, such as `isocost plan --samples 8`, with this study
    and its budget."""
    named = dict.fromkeys(found for text in texts for found in re.findall(r"`isocost plan (--[^`]+)`", text))
    spend = "" if budget is None else f"--budget {shlex.quote(str(budget))} "
    return [Row("", f"    isocost plan {word(folder)} {spend}{options}", "command")
            for options in (named if folder is not None else ())]


def in_units(found: Data | None, unit: str = ROLLOUTS, billed: Sequence[str] = ()) -> Table:
    """A budget in every unit, and how each is known; without columns that are empty. `unit` is that of C. A unit of
    `billed` is left out, unless the budget was asked in it."""
    rows = [r for r in (found or {}).get("rows", ()) if r["unit"] not in billed or r["known"] == "asked"]
    columns = {"pilot": "pilot", "training": "training", "budget": "your budget"}
    known = [k for k in columns if any(r[k] for r in rows)]
    named = [(*_unit(r["unit"], unit), r) for r in rows]
    cells = [(name, *(written(r[k]) for k in known), r["known"], r["why"]) for name, written, r in named]
    return Table(("in every unit", *(columns[k] for k in known), "", ""), cells, (0, len(known) + 1, len(known) + 2))


def _unit(unit: str, of_C: str) -> tuple[str, Callable[[float], str]]:
    """A unit's name for a reader, and the function that writes its amounts. Where C counts another unit than rollouts,
    records have that under the name of rollouts."""
    unit = of_C if unit == ROLLOUTS else unit
    if unit in (SECONDS, WALL, SAMPLING):
        return words(unit), duration
    if unit == FLOPS:
        return words(unit), lambda x: f"{x:.1e}"
    return words(unit), lambda x: f"{x:,.0f}" if 100 <= x < 1e10 else f"{x:.3g}"


def _bought(m: More, unit: str) -> Iterable[Row]:
    """Gain and cost of more rollouts per run, up to the longest run that the law covers."""
    if m.gain is None or m.cost is None:
        return
    (name, written), g = _unit(m.unit, unit), m.gain
    yield Row("", f"{m.times} x the {unit} would buy {g.value:+.3f} [{g.low:+.3f}, {g.high:+.3f}] (n = {m.n}) for "
                  f"{written(m.cost)} {name} more")
    yield Row("", m.caution, "flag")
