"""The audit: a sealed forecast against the outcome, and against naive forecasts.

The verdict is defined as follows. Let y be the mean `audit` reward, at their last evaluation, of the K runs that the
forecast names, and [l, u] the sealed prediction interval.

    cannot tell     the plan, the law, the pilot's records or the method's rule have changed since [l, u] was sealed; or
                    there is no [l, u]; or one of the K runs is missing or ended before C without diverging, such as at
                    its share of a budget in environment steps or tokens; or y was measured by sampling, and its
                    measurement error (a central interval of the forecast's level, from `noise`) includes l or u, if
                    these are not 0 or 1
    miss            y < l or y > u
    uninformative   l <= y <= u, and every naive forecast lies in [l, u] too
    hit             l <= y <= u, and at least one naive forecast lies outside

A run that diverged is included, with its last value: to exclude it afterwards would bias the outcome. So is one that
ended at its share of the budget: the verdict is then "cannot tell", but gain and difference are those of equal shares.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import ndtri

from isocost.disk.shape import Keys, Plain
from isocost.errors import UserError
from isocost.laws.curves import Curve
from isocost.planner.bill import Bill, BillOutcome, against
from isocost.planner.forecast import Forecast, Naive, verify_seal
from isocost.planner.training.study_runs import worded
from isocost.runs.arm import Arm
from isocost.runs.files import RunFiles, runs_of
from isocost.runs.schema import ENDED, VERSION
from isocost.screen.words import counted
from isocost.stats.intervals import Interval, student
from isocost.units import STOPS

CEILING = 0.1       # naive forecasts that are all nearer to 1 than this leave no room for a forecast to be better
EXIT = {"hit": 0, "miss": 3, "cannot tell": 4, "uninformative": 4}


@dataclass(frozen=True)
class MeanOfRuns(Plain):
    """A mean over runs (or pairs) with its Student interval, at least as wide as its sampling error; None for one."""

    mean: float
    low: float | None
    high: float | None
    level: float
    count: int
    values: tuple[float, ...]

    def __str__(self) -> str:
        bounds = "" if self.low is None or self.high is None else f" [{self.low:+.3f}, {self.high:+.3f}]"
        return f"{self.mean:+.3f}{bounds} over {counted(self.count, 'seed')}"


@dataclass(frozen=True)
class IntervalScore:
    """An interval score (lower is better): the width, plus 2 / (1 - level) times the distance of a miss."""

    name: str
    value: float
    low: float
    high: float
    score: float


@dataclass(frozen=True)
class Rival(Plain):
    """The arm that was best at the pilot's end, where it is neither prescribed nor the comparator: its outcome, what
    the prescription gained over it (paired by seed), and `better`: "prescribed", "leader" or "cannot tell"."""

    arm: Arm
    comparison: MeanOfRuns | None
    difference: MeanOfRuns | None
    better: str

    OLDER: ClassVar = {"arm": Keys({"n": int})}

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Self:
        """The rival in plain data."""
        return super().of({**data, "arm": Arm.of(data)})


@dataclass(frozen=True)
class Audit(Plain):
    """The outcome of a forecast. `scores` has that of the forecast first, then the naive ones.

    `difference` is prescribed minus comparator, paired by seed; `better` is "prescribed", "comparator" or "cannot
    tell", from its interval. `leader` is the second comparator, if there is one. `gain` is the last minus the first
    evaluation of the prescribed runs. `capped` are the runs that ended more than an update before C, because their
    share of the budget was spent. `rule` is a sentence where forecast and runs were made by a rule that is another one
    in this version. `bill` has each line of the bill, forecast and billed; empty where none was sealed, or where not
    every run that it is of has ended.
    """

    verdict: str
    reason: str
    seal: str
    outcome: MeanOfRuns | None
    gain: MeanOfRuns | None
    forecast: Interval | None
    scores: tuple[IntervalScore, ...]
    comparator: Arm | None
    comparison: MeanOfRuns | None
    difference: MeanOfRuns | None
    better: str
    claim: bool
    missing: tuple[str, ...]
    diverged: tuple[str, ...]
    capped: tuple[str, ...] = ()
    leader: Rival | None = None
    rule: str = ""
    bill: tuple[BillOutcome, ...] = ()

    OLDER: ClassVar = {"comparator": int}
    HEAD: ClassVar = {"schema": VERSION}
    SHOWN: ClassVar = ("beats_naive", "exit_code")
    LATER: ClassVar = ("capped", "leader", "rule", "bill")

    @property
    def exit_code(self) -> int:
        """The exit code: hit 0, miss 3, cannot tell and uninformative 4."""
        return EXIT[self.verdict]

    @property
    def beats_naive(self) -> bool | None:
        """Whether the forecast's interval score is the best; None without a naive forecast."""
        if len(self.scores) < 2:
            return None
        return self.scores[0].score < min(s.score for s in self.scores[1:])

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Self:
        """The audit that `data()` wrote, of this or an earlier version."""
        other = data["comparator"]
        return super().of({**data, "comparator": {"n": other} if isinstance(other, int) else other})


def seals(runs: Sequence[Path | RunFiles]) -> dict[str, str | None]:
    """run name -> the seal in its run.json, for every trained run among these."""
    return {run.name: about.get("seal") for run in runs_of(runs) if (about := run.about()).get("purpose") == "train"}


def at_their_share(runs: Sequence[Path | RunFiles]) -> dict[str, str]:
    """run name -> what its share of the budget paid for, for every run among these that ended at it."""
    found = {}
    for files in runs_of(runs):
        unit = files.end.get("bound", "rollouts")
        if unit == "rollouts":
            continue
        run, end = files.about(), files.ended(ENDED)
        C, most, paid = run["budget"]["rollouts"], run["budget"][unit], end["bill"]["train"]
        share = f"its share of the budget, {most:,.0f} {unit}, pays for {most / C:.3g}"
        if (count := paid["rollouts"]) and (key := STOPS[unit]):
            share = f"they cost {paid[key] / count:.3g} {unit} each, and {share}"
        found[files.name] = f"{files.name} ended at {count:,} of {C:,.0f} rollouts: {share}"
    return found


def interval_score(low: float, high: float, outcome: float, level: float) -> float:
    """Gneiting and Raftery 2007, equation 43: (u - l) + 2/a (l - y)+ + 2/a (y - u)+, with a = 1 - level."""
    a = 1 - level
    return (high - low) + 2 / a * max(low - outcome, 0.0) + 2 / a * max(outcome - high, 0.0)


def audit(
    forecast: Forecast, curves: Sequence[Curve], seals: Mapping[str, str | None], *, noise: float = 0.0,
    changed: Sequence[str] = (), shares: Mapping[str, str] = MappingProxyType({}), rule: str = "",
    paid: Bill | None = None,
) -> Audit:
    """The audit of a sealed forecast by the runs that it names.

    `seals` is run name -> the seal in its run.json; `noise` the sampling standard error of one evaluation (0 if exact);
    `shares` are as `at_their_share` describes them; `paid` is the bill of all runs, if all have ended. Raises UserError
    if the forecast was changed, or a run that it names has another seal or other sizes.
    """
    verify_seal(forecast)
    by = {c.run: c for c in curves if c.purpose == "train"}
    named = (*forecast.runs, *forecast.comparator_runs, *forecast.leader_runs)
    _check(forecast, by, seals, named)
    short = [name for name in named if name not in by or not _complete(by[name], forecast.length(name))]
    capped = tuple(name for name in short if name in by and name in shares)
    missing = tuple(name for name in short if name not in capped)
    runs = [by[name] for name in forecast.runs if name not in missing]
    others = [by[name] for name in forecast.comparator_runs if name not in missing]
    leaders = [by[name] for name in forecast.leader_runs if name not in missing]
    level = forecast.level
    twice = sqrt(2) * noise     # of a difference between two evaluations
    outcome = _mean_of([float(c.audit[-1]) for c in runs], level, noise)
    difference = _mean_of(_pairs(runs, others), level, twice)
    left_out = [m for m in missing if m in forecast.runs]
    verdict, reason = _verdict(forecast, outcome, left_out, [shares[x] for x in capped if x in forecast.runs], noise)
    if changed:
        verdict, reason = "cannot tell", f"changed since it was sealed: {', '.join(changed)}"
    return Audit(
        verdict, reason, forecast.seal, outcome,
        _mean_of([float(c.audit[-1] - c.audit[0]) for c in runs], level, twice),
        forecast.interval, () if {*capped} & {*forecast.runs} or outcome is None or forecast.interval is None else
        scored(forecast.interval, forecast.naive, outcome.mean),
        forecast.comparator,
        _mean_of([float(c.audit[-1]) for c in others], level, noise), difference, _better(difference), forecast.claim,
        missing, tuple(c.run for c in (*runs, *others, *leaders) if c.diverged), capped,
        None if forecast.leader is None else _rival(forecast.leader, runs, leaders, level, noise), rule,
        () if forecast.bill is None or paid is None else against(forecast.bill, paid),
    )


def _rival(arm: Arm, runs: Sequence[Curve], leaders: Sequence[Curve], level: float, noise: float) -> Rival:
    difference = _mean_of(_pairs(runs, leaders), level, sqrt(2) * noise)
    return Rival(arm, _mean_of([float(c.audit[-1]) for c in leaders], level, noise), difference,
                 _better(difference, "leader"))


def _check(
    forecast: Forecast, by: Mapping[str, Curve], seals: Mapping[str, str | None], named: Sequence[str]
) -> None:
    without = [name for name in named if name in by and seals.get(name) != forecast.seal]
    if without:
        raise UserError(f"{', '.join(without)}: run.json does not have the seal {forecast.seal[:16]} of this forecast, "
                        "so the run was not trained under it and cannot be audited")
    for name in named:
        if name not in by:
            continue
        arm = by[name].arm
        sealed = _sealed(forecast, name)
        if arm["n"] != sealed["n"] or arm["B"] not in _batches(forecast, sealed):
            raise UserError(f"{name} was run at {worded(arm)}; the forecast is of "
                            f"{worded(sealed.but(B=sealed.get('B', forecast.B)))}")
        if arm.get("turns") != forecast.turns:
            there, planned = (f"a turn limit of {x}" if x else "the environment's turn limit" for x in
                              (arm.get("turns"), forecast.turns))
            raise UserError(f"{name} was run at {there}; the forecast is of {planned}")


def _sealed(forecast: Forecast, run: str) -> Arm:
    """The arm of a run that a forecast names."""
    if run in forecast.runs:
        return forecast.arm
    other = forecast.comparator if run in forecast.comparator_runs else forecast.leader
    assert other is not None
    return other


def _batches(forecast: Forecast, arm: Arm) -> set[float]:
    """The B that a run of a sealed arm may have. Where no B was sealed, it is of a law of one B, or of one n B."""
    return {arm["B"]} if "B" in arm else {forecast.B, forecast.n * forecast.B / arm["n"]}


def _complete(c: Curve, C: float) -> bool:
    """Within one update of C, or diverged on the way (that is an outcome)."""
    return c.diverged or float(c.C[-1]) > C - c.arm["n"] * c.arm["B"]


def _sampling(level: float, noise: float, count: int) -> float:
    """Half the width of the central interval of a mean of `count` values, each with the standard error `noise`."""
    return float(ndtri((1 + level) / 2)) * noise / sqrt(count)


def _mean_of(values: Sequence[float], level: float, noise: float) -> MeanOfRuns | None:
    if not values:
        return None
    x = np.asarray(values, dtype=float)
    if len(x) < 2:
        return MeanOfRuns(float(x[0]), None, None, level, 1, tuple(values))
    half = student(level, len(x) - 1) * float(x.std(ddof=1)) / sqrt(len(x))
    half = max(half, _sampling(level, noise, len(x)))
    return MeanOfRuns(float(x.mean()), float(x.mean() - half), float(x.mean() + half), level, len(x), tuple(values))


def _verdict(
    f: Forecast, outcome: MeanOfRuns | None, missing: Sequence[str], capped: Sequence[str], noise: float
) -> tuple[str, str]:
    i = f.interval
    if i is None:
        return "cannot tell", ". ".join((f.why, *capped))
    if outcome is None or missing:
        short = f"missing or short of the {counted(len(f.runs), 'run')} forecast"
        return "cannot tell", f"{short}: {', '.join(missing)}"
    if capped:
        many = f"{len(capped)} of the {counted(len(f.runs), 'run')} forecast ended at their share of the budget"
        return "cannot tell", (f"{many}, before the {f.C:,} rollouts that the forecast is of. {'. '.join(capped)}. "
                               f"The outcome there is {outcome.mean:.4f}")
    y = outcome.mean
    error = _sampling(i.level, noise, outcome.count)
    near = [end for end in (i.low, i.high) if 0 < end < 1 and abs(y - end) <= error]    # nothing lies beyond 0 and 1
    if error and near:
        return "cannot tell", (f"{_where(i, y)}: the outcome is measured to {error:.4f} only, so it may lie on either "
                               f"side of {near[0]:.4f}; more held-out problems or samples would decide")
    least, why = min((x.value for x in f.naive), default=0.0), ": a guess would have been as good"
    if least >= 1 - CEILING:
        why = (f": all of them lie between {least:.2f} and the highest reward, 1, where no forecast can stand out. "
               "This does not count against the law; a harder task would leave room")
    return judged(i, f.naive, y, why)


def judged(i: Interval, naive: Sequence[Naive], y: float, why: str = "") -> tuple[str, str]:
    """(verdict, reason) of an outcome that is known; `why` ends the reason of one that naive forecasts foretold too."""
    if not i.holds(y):
        return "miss", f"{_where(i, y)}: {'below' if y < i.low else 'above'} the interval"
    out = [x.name for x in naive if not i.holds(x.value)]
    if not out:
        return "uninformative", f"{_where(i, y)}, but the interval holds every naive forecast too{why}"
    return "hit", f"{_where(i, y)}, an interval that leaves out: {', '.join(out)}"


def _where(i: Interval, y: float) -> str:
    return f"outcome {y:.4f} against the forecast {i.value:.4f} [{i.low:.4f}, {i.high:.4f}]"


def scored(i: Interval, naive: Sequence[Naive], y: float) -> tuple[IntervalScore, ...]:
    """The interval scores of a forecast and of the naive ones."""
    rows = [("forecast", i.value, i.low, i.high), *((x.name, x.value, x.low, x.high) for x in naive)]
    return tuple(IntervalScore(*row, interval_score(row[2], row[3], y, i.level)) for row in rows)


def _pairs(runs: Sequence[Curve], others: Sequence[Curve]) -> list[float]:
    """Prescribed minus comparator at the last evaluation, for every seed that both arms have."""
    right = {c.seed: float(c.audit[-1]) for c in others}
    return [float(c.audit[-1]) - right[c.seed] for c in sorted(runs, key=lambda c: c.seed) if c.seed in right]


def _better(difference: MeanOfRuns | None, other: str = "comparator") -> str:
    if difference is None or difference.low is None or difference.high is None:
        return "cannot tell"
    return "prescribed" if difference.low > 0 else other if difference.high < 0 else "cannot tell"
