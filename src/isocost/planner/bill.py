"""The bill: what runs cost, part by part, in every unit; as it is forecast, with 90 % intervals, and as it was billed.

A forecast is made from finished runs (the pilot's). The cost of a part is proportional to what a run does: updates,
work (rollouts, say, or whatever the planner counts), evaluations, and the run itself. `DRIVERS` says which; the
factors are found by non-negative least squares of relative errors over the stretches between evaluations.

Intervals: the log of billed / forecast is normal, with the variance of one run

    sigma^2 = extra^2 + ratio^2 s^2 + (b log g)^2

where s is the spread of the pilot's own runs about the fit, estimated from m runs and K factors (m - K degrees of
freedom, Student's t). `extra` and `ratio` are what trained runs spread more, because they run at another time
(`SPREAD`, measured by experiments/bills.py, commit 4088ddf0, on those studies of its record that calibrate). Of R runs
together only s^2 averages out: extra^2 + (ratio^2 - 1 + 1 / R) s^2. The last term is of counts alone, where runs do g
times the work of the pilot's: tokens or steps per work that go as work^b, as when answers grow longer. Two halves of a
run are then as 1 : 2^(b + 1) - 1, which gives b. Of evaluations the term is log(last / mean) of the lengths of the
pilot's answers, and of a total the sum over its parts. A trend may stop, so it widens the interval and does not move
it.

A part or unit that no run has measured has the value None, "not known", and never 0. Work that is lost to
interruptions is billed and not forecast. CPU time is that of a run's process, and so known in total, of evaluations
apart, and for no other part.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from math import exp, log, log2, sqrt
from statistics import fmean as mean
from typing import Any

import numpy as np

from isocost.disk.shape import Plain
from isocost.meter import EVALUATION, LEARN, LOST, SAMPLE, SCORE, TRAIN
from isocost.planner.budget import least_relative
from isocost.runs.files import RunFiles
from isocost.runs.schema import ENDED
from isocost.screen.display import Row, Table
from isocost.stats.intervals import student
from isocost.stats.power import LEVEL
from isocost.types import Cost
from isocost.units import CPU, ENV_STEPS, FLOPS, SECONDS, TOKENS, words

SAMPLING, LEARNING, EVALUATING, GRADING, ENVIRONMENT = "sampling", "learning", "evaluation", "grading", "environment"
START_UP, LOOP, WAITING, UNDONE, ALL = "start-up", "loop", "waiting", "lost", "all"
PARTS = (ALL, SAMPLING, LEARNING, EVALUATING, GRADING, ENVIRONMENT, START_UP, LOOP, WAITING, UNDONE)
UNITS = (SECONDS, CPU, TOKENS, FLOPS, ENV_STEPS)
TIMES = (SECONDS, CPU)
RUNS, UPDATES, WORK, EVALUATIONS = "runs", "updates", "work", "evaluations"    # what a run does
DRIVERS: Mapping[str, tuple[str, ...]] = {      # of times; counts are of WORK, and those of evaluations of EVALUATIONS
    **dict.fromkeys((SAMPLING, LEARNING, GRADING, ENVIRONMENT), (UPDATES, WORK)), EVALUATING: (EVALUATIONS,),
    START_UP: (RUNS,), **dict.fromkeys((LOOP, WAITING), (UPDATES, WORK, EVALUATIONS)),
    ALL: (RUNS, UPDATES, WORK, EVALUATIONS),
}
OPEN = 100      # an interval that spans more than so many times tells a reader nothing by its ends
SPREAD = {"times": (0.05, 1.4), "counts": (0.002, 1.3)}      # extra, ratio: see above

Key = tuple[str, str]       # part, unit


@dataclass(frozen=True)
class BillLine:
    """The amount of one part in one unit, and its interval if it is a forecast. None: not known."""

    part: str
    unit: str
    value: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Bill(Plain):
    """What runs cost: lines by unit and part, each unit's total first, as the part "all". `level` is that of intervals.

    Of a forecast `runs` is their number; a bill that was paid has no intervals.
    """

    lines: tuple[BillLine, ...]
    runs: int
    level: float = LEVEL

    def line(self, part: str, unit: str) -> BillLine | None:
        """The line of a part in a unit; None where it has no such part."""
        return next((x for x in self.lines if (x.part, x.unit) == (part, unit)), None)

    def priced(self, currency: str, per_second: float) -> Bill:
        """With its money: a price for every second of run time."""
        money = (BillLine(x.part, currency, *(y if y is None else y * per_second for y in (x.value, x.low, x.high)))
                 for x in self.lines if x.unit == SECONDS)
        return Bill((*self.lines, *money), self.runs, self.level)

    def rows(self) -> list[Row | Table]:
        """Every line, and what is not known."""
        known = [x for x in self.lines if x.value is not None and (x.value or x.part == ALL)]
        cells = [(words(x.unit) if x.part == ALL else "", x.part, amount(x.unit, x.value), between(x)) for x in known]
        lacks = [x for x in self.lines if x.value is None]
        unknown = (f"{part} ({', '.join(words(x.unit) for x in lacks if x.part == part)})"
                   for part in dict.fromkeys(x.part for x in lacks))
        return [
            Table(("bill", "", "expected", f"{self.level:.0%} interval"), cells, (0, 1, 3)),
            *([Row("not known", ", ".join(unknown))] if lacks else []),
        ]

    @property
    def totals(self) -> str:
        """Each unit's total with its interval, in a line."""
        found = (x for x in self.lines if x.part == ALL)
        return "; ".join(f"{words(x.unit)} {amount(x.unit, x.value)}{f' ({between(x)})' if between(x) else ''}"
                         for x in found)

    @property
    def counts(self) -> list[list[Any]]:
        """The lines that no clock measured, and so are the same in equal studies."""
        return [[*asdict(x).values()] for x in self.lines if x.unit in (TOKENS, FLOPS, ENV_STEPS)]


def amount(unit: str, x: float | None) -> str:
    """An amount as text."""
    if x is None:
        return "not known"
    if unit in TIMES:
        return f"{x:.3g} s" if x < 600 else f"{x / 60:.0f} min" if x < 7200 else f"{x / 3600:.1f} h"
    if unit == FLOPS:
        return f"{x:.2e}"
    return f"{x:,.0f}" if 100 <= x < 1e10 else f"{x:.3g}"


def between(x: BillLine) -> str:
    """The interval of a line as text; one that spans more than `OPEN` times is named as that."""
    if x.low is None or x.high is None:
        return ""
    if x.high > OPEN * x.low > 0:
        return f"not known within a factor of {OPEN}"
    return f"{amount(x.unit, x.low)} to {amount(x.unit, x.high)}"


# billed -------------------------------------------------------------------------------------------------------


def _times(clock: Mapping[str, Any], seconds: float, agent: bool) -> dict[Key, float]:
    """The seconds of a line of timing.jsonl by part. What is in no account is the loop with its records, in the share
    of the time in which the process had a CPU, else waiting. Of work that overlaps the accounts are more than the
    whole."""
    busy = {SAMPLING: SAMPLE, LEARNING: LEARN, ENVIRONMENT if agent else GRADING: SCORE, EVALUATING: "evaluate"}
    out = {(part, SECONDS): float(clock[key]) for part, key in busy.items() if key in clock}
    if len(out) == len(busy):
        rest = max(seconds - sum(out.values()), 0.0)
        ran = min(clock["cpu"] / seconds, 1.0) if "cpu" in clock and seconds else 1.0
        out[LOOP, SECONDS] = rest * ran
        if "cpu" in clock:
            out[WAITING, SECONDS] = rest * (1 - ran)
    if "cpu" in clock:
        out[ALL, CPU] = float(clock["cpu"])
    return out | {(ALL, SECONDS): seconds}


def _paid(run: RunFiles) -> dict[Key, float]:
    """What a finished run was billed."""
    end, model = run.ended(ENDED), run.about().get("model") or {}
    train, measured, lost = (Cost.of(end["bill"].get(x, {})) for x in (TRAIN, EVALUATION, LOST))
    agent = bool(train.env_steps)
    out = _times(end.get("timing") or {}, end["seconds"], agent)
    out[ALL, SECONDS] = end["seconds"] + lost.seconds + end.get("start_up", 0.0)
    if "start_up" in end:
        out[START_UP, SECONDS] = end["start_up"]
    if "evaluation_cpu" in end:
        out[EVALUATING, CPU] = end["evaluation_cpu"]
    parts = {SAMPLING: train._replace(score=0, train=0), EVALUATING: measured, UNDONE: lost}
    if train.decode:
        out |= {(part, TOKENS): cost.decode for part, cost in parts.items()}
        if parameters := model.get("parameters"):
            parts[LEARNING] = Cost(score=train.score, train=train.train)
            own = model.get("learned") or None
            out |= {(part, FLOPS): cost.flops(int(parameters), own) for part, cost in parts.items()}
    if agent:
        parts = {ENVIRONMENT: train, EVALUATING: measured, UNDONE: lost}
        out |= {(part, ENV_STEPS): cost.env_steps for part, cost in parts.items()}
    out[UNDONE, SECONDS] = lost.seconds
    for unit in (TOKENS, FLOPS, ENV_STEPS):
        if of := [x for (_, u), x in out.items() if u == unit]:
            out[ALL, unit] = sum(of)
    return {k: float(x) for k, x in out.items()}


def billed(runs: Sequence[RunFiles]) -> Bill:
    """The bill of finished runs together; a part that is not known of one of them is not known."""
    paid = [_paid(run) for run in runs]
    keys = _ordered(k for each in paid for k in each)
    return Bill(tuple(
        BillLine(*k, sum(each[k] for each in paid) if all(k in each for each in paid) else None) for k in keys
    ), len(runs))


def _ordered(keys: Iterable[Key]) -> list[Key]:
    return sorted(set(keys), key=lambda k: (UNITS.index(k[1]), PARTS.index(k[0])))


# forecast -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stretch:
    """A part of a run, or all of it: what it did, and what was paid."""

    did: Mapping[str, float]
    paid: Mapping[Key, float]


@dataclass(frozen=True)
class PaidRun:
    """A finished run: all of it, its stretches between evaluations where it recorded its clock, and the trends of its
    counts, where it recorded them: the exponent b by unit, and log(last / mean) of its evaluations."""

    whole: Stretch
    stretches: tuple[Stretch, ...] = ()
    trend: Mapping[str, float] = field(default_factory=dict)


def paid_run(run: RunFiles, work: str = "rollouts") -> PaidRun:
    """What a finished run says of the cost of others. `work` is what the planner counts: a key of its clock."""
    end = run.ended(ENDED)
    paid, clocks = _paid(run), {line["step"]: line for line in run.lines("timing.jsonl") if "seconds" in line}
    every = run.lines("metrics.jsonl")
    steps = [line["step"] for line in every if "eval/select" in line or "eval/audit" in line]
    did = {RUNS: 1.0, UPDATES: float(end.get("steps") or 0), EVALUATIONS: float(len(steps)),
           WORK: float(end["bill"].get(TRAIN, {}).get(work, 0))}
    timed = [clocks[step] for step in steps if step in clocks]
    nothing = {"step": 0, work: 0, **dict.fromkeys((*paid, "seconds", "cpu", SAMPLE, SCORE, LEARN, "evaluate"), 0)}
    agent, found = (ENVIRONMENT, SECONDS) in paid, []
    for i, (a, b) in enumerate(pairwise([nothing, *timed, *([end["timing"]] if end.get("timing") else [])])):
        change = {k: b[k] - a[k] for k in b if k in a and isinstance(b[k], int | float)}
        if not all(k in change for k in ("seconds", work)):
            continue
        found.append(Stretch(
            {RUNS: float(i == 0), UPDATES: change["step"], WORK: change[work], EVALUATIONS: float(i != 1)},
            _times(change, change["seconds"], agent)))
    return PaidRun(Stretch(did, paid), tuple(found), _trend(every, work))


def _trend(every: Sequence[Mapping[str, Any]], work: str) -> dict[str, float]:
    """b by unit, from what training had cost at the middle and the end of a run; see the module's text."""
    lengths = [line["eval/length"] for line in every if line.get("eval/length")]
    out = {EVALUATING: log(lengths[-1] / mean(lengths))} if lengths else {}
    if not (lines := [line for line in every if "decode" in line]):
        return out
    end = lines[-1]
    middle = next(line for line in lines if 2 * line[work] >= end[work])
    share = middle[work] / end[work]
    for unit, key in {TOKENS: "decode", FLOPS: "decode", ENV_STEPS: "env_steps"}.items():
        first, rest = (line.get(key, 0) for line in (middle, end))
        if share < 1 and 0 < first < rest:
            out[unit] = log2((1 + (rest - first) / (1 - share) * share / first) / 2)
    return out


def forecast(pilot: Sequence[PaidRun], runs: Sequence[Mapping[str, float]]) -> Bill:
    """The bill of runs that do this much of each driver, from finished ones. Empty without any."""
    keys = _ordered(k for run in pilot for k in run.whole.paid)
    asked = {name: sum(run[name] for run in runs) for name in (RUNS, UPDATES, WORK, EVALUATIONS)}
    lines = {k: _line(k, pilot, asked, len(runs)) for k in keys if k[0] != ALL or k[1] == CPU}
    for unit in {unit for _, unit in keys if unit != CPU}:
        lines[ALL, unit] = _total(unit, pilot, lines, asked, len(runs))
    return Bill(tuple(lines[k] for k in _ordered(lines)), len(runs))


def _names(key: Key) -> tuple[str, ...]:
    part, unit = key
    if unit in TIMES:
        return DRIVERS[part]
    return (EVALUATIONS,) if part == EVALUATING else (WORK,)


def _fitted(key: Key, pilot: Sequence[PaidRun]) -> tuple[np.ndarray, list[tuple[float, float]]] | None:
    """The factor of each driver; and of each run what it was billed and what the fit says. None where a run does not
    know what this part cost."""
    if key[0] == UNDONE or not all(key in run.whole.paid for run in pilot):
        return None
    names = _names(key)
    rows = [x for run in pilot for x in run.stretches if key in x.paid] or [run.whole for run in pilot]
    columns = np.array([[x.did[name] for name in names] for x in rows])
    amounts = np.array([max(x.paid[key], 0.0) for x in rows])
    if not amounts.sum():
        return np.zeros(len(names)), [(0.0, 0.0) for _ in pilot]
    factors = least_relative(columns, amounts, 1e-3 * float(amounts.mean()))
    said = [float(sum(f * run.whole.did[name] for f, name in zip(factors, names, strict=True))) for run in pilot]
    return factors, [(run.whole.paid[key], x) for run, x in zip(pilot, said, strict=True)]


def _line(key: Key, pilot: Sequence[PaidRun], asked: Mapping[str, float], runs: int) -> BillLine:
    found = _fitted(key, pilot)
    if found is None:
        return BillLine(*key, None)
    factors, pairs = found
    value = float(sum(f * asked[name] for f, name in zip(factors, _names(key), strict=True)))
    return _forecast(key, value, _half(pairs, len(factors), key[1], runs, _drift(key, pilot, asked, runs)))


def _total(unit: str, pilot: Sequence[PaidRun], lines: Mapping[Key, BillLine], asked: Mapping[str, float], runs: int
           ) -> BillLine:
    """The sum of the parts that are known, times what the whole was of them: parts that overlap are more than it."""
    parts = [k for k, x in lines.items() if k[1] == unit and x.value is not None]
    fits = [found for k in parts if (found := _fitted(k, pilot)) is not None]
    if not fits:
        return _line((ALL, unit), pilot, asked, runs)
    said = [sum(pairs[i][1] for _, pairs in fits) for i in range(len(pilot))]
    paid = [run.whole.paid[ALL, unit] - run.whole.paid.get((UNDONE, unit), 0.0) for run in pilot]
    of_parts = sum(pairs[i][0] for _, pairs in fits for i in range(len(pilot)))
    share = sum(paid) / of_parts if of_parts else 1.0
    value = share * sum(lines[k].value or 0.0 for k in parts)
    pairs = [(a, share * b) for a, b in zip(paid, said, strict=True)]
    drift = sum((lines[k].value or 0.0) * _drift(k, pilot, asked, runs) for k in parts) * share / max(value, 1e-99)
    return _forecast((ALL, unit), value, _half(pairs, max(len(f) for f, _ in fits), unit, runs, drift))


def _drift(key: Key, pilot: Sequence[PaidRun], asked: Mapping[str, float], runs: int) -> float:
    """The last term of the module's text; 0 for times, for runs no longer than the pilot's, and where no run recorded
    what it is made from."""
    part, unit = key
    evaluating = part == EVALUATING
    trends = [x for run in pilot if (x := run.trend.get(EVALUATING if evaluating else unit)) is not None]
    growth = asked[WORK] / runs / max(mean(run.whole.did[WORK] for run in pilot), 1e-9)
    if not trends or growth <= 1 or unit in TIMES:
        return 0.0
    return mean(trends) * (1.0 if evaluating else log(growth))


def _forecast(key: Key, value: float, half: float | None) -> BillLine:
    """A line, to six digits: those after them are not the same on every processor."""
    ends = (None, None) if half is None else (_short(value * exp(-half)), _short(value * exp(half)))
    return BillLine(*key, _short(value), *ends)


def _short(x: float) -> float:
    return float(f"{x:.6g}")


def _half(pairs: Sequence[tuple[float, float]], factors: int, unit: str, runs: int, drift: float) -> float | None:
    """Half the width of the log of a forecast's interval, from (billed, fitted) of the pilot's runs; see the module's
    text. None where the pilot has too few runs to say."""
    logs = [log(a / b) for a, b in pairs if a > 0 and b > 0]
    dof = len(logs) - factors
    if dof < 1:
        return None
    extra, ratio = SPREAD["times" if unit in TIMES else "counts"]
    variance = sum(x * x for x in logs) / dof
    return student(LEVEL, dof) * sqrt(extra**2 + (ratio**2 - 1 + 1 / runs) * variance + drift**2)


# predicted against billed ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BillOutcome(BillLine):
    """A line of a forecast, and what was billed. `verdict` is "holds", "above", "below", "not forecast" or "not known"
    (it was not billed, or has no interval)."""

    billed: float | None = None
    verdict: str = "not known"


def against(expected: Bill, paid: Bill) -> tuple[BillOutcome, ...]:
    """Predicted against billed, for every line of either."""
    there = {(x.part, x.unit): x for x in expected.lines}
    then = {(x.part, x.unit): x.value for x in paid.lines}
    keys = [*there, *(k for k in then if k not in there)]
    return tuple(_outcome(there.get(k, BillLine(*k, None)), then.get(k)) for k in keys)


def _outcome(x: BillLine, paid: float | None) -> BillOutcome:
    verdict = "holds"
    if paid is None or (x.value is not None and (x.low is None or x.high is None)):
        verdict = "not known"
    elif x.value is None:
        verdict = "not forecast" if paid else "holds"
    elif x.low is not None and x.high is not None and not x.low <= paid * (1 + 1e-12) <= x.high * (1 + 2e-12):
        verdict = "below" if paid < x.low else "above"
    return BillOutcome(**vars(x), billed=paid, verdict=verdict)


def missed(outcomes: Sequence[BillOutcome]) -> list[Row]:
    """A row for each unit: its total predicted and billed, and the parts that were missed, the largest first."""
    out = []
    for x in (x for x in outcomes if x.part == ALL and x.billed is not None):
        parts = [y for y in outcomes if y.unit == x.unit and y.part != ALL
                 and y.verdict in ("above", "below", "not forecast")]
        parts.sort(key=lambda y: -abs((y.billed or 0.0) - (y.value or 0.0)))
        named = ", ".join(f"{y.part} {_told(y)}" for y in parts)
        out.append(Row(f"billed {words(x.unit)}", _told(x) + (f"; missed: {named}" if named else "")))
    return out


def compared(outcomes: Sequence[BillOutcome]) -> Table:
    """Predicted against billed, line by line."""
    shown = [x for x in outcomes if x.value or x.billed]
    cells = [(words(x.unit) if x.part == ALL else "", x.part, amount(x.unit, x.value), between(x),
              amount(x.unit, x.billed), "" if x.verdict == "holds" else x.verdict) for x in shown]
    return Table(("predicted against billed", "", "expected", "90% interval", "billed", ""), cells, (0, 1, 3, 5))


def _told(x: BillOutcome) -> str:
    if x.value is None:
        return f"{amount(x.unit, x.billed)}, which was not forecast"
    inside = f" ({between(x)})" if x.low is not None else ""
    return f"{amount(x.unit, x.billed)} against {amount(x.unit, x.value)}{inside}, {x.verdict}"
