"""What a reward's errors cost: what it reports, and how many more rollouts the same signal takes.

With errors that are independent of each other, a false-negative rate f, a false-positive rate g and a pass rate p, the
mean reward is m = (1 - f) p + g (1 - p), and the correlation of a rollout's reward with being right is

    phi = (1 - f - g) sqrt(p (1 - p) / (m (1 - m)))

A gradient estimate whose advantages are divided by their standard deviation has phi times its signal at equal noise.
So 1 / phi^2 times the rollouts have the same signal-to-noise ratio. That is exact for one update. A whole run loses
less: in experiments/results/reward_errors.json its gain is 78 % of that without errors, where phi^2 of the rollouts
give 44 %. So what is said of runs is pessimistic, for errors that are independent and as frequent throughout. A policy
that is trained on errors which repeat moves towards them, and nothing here predicts when.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isocost.screen.display import Row
from isocost.types import Problem

ASSUMED = 0.3                 # pass rate, where none is known
COLUMNS = ("pass_rate", "pass@1", "solve_rate", "success_rate", "accuracy")     # of data that holds pass rates
GROUP = 8                     # n of the example, where no law gives one
ASSUMPTION = "if errors are independent, and stay as frequent as in the built cases"


@dataclass(frozen=True)
class Errors:
    """The false-negative rate, and the false-positive rate of mistakes, without strategies."""

    refused: float
    paid: float

    def reward(self, p: float) -> float:
        """The mean reward at a pass rate."""
        return (1 - self.refused) * p + self.paid * (1 - p)

    def worth(self, p: float) -> float:
        """phi^2: the share of its signal that a rollout keeps at a pass rate; 0 where it keeps none."""
        m = self.reward(p)
        if self.refused + self.paid >= 1 or not 0 < m < 1:
            return 0.0
        return (1 - self.refused - self.paid) ** 2 * p * (1 - p) / (m * (1 - m))


@dataclass(frozen=True)
class ErrorCosts:
    """What errors cost at the pass rates of the data: `source` says where these are from. `reward` is the mean reward
    that is reported where the pass rate is `pass_rate`, `times` the factor on rollouts for the same signal (None where
    no signal is left), `lines` the same in words with what a study's law adds."""

    pass_rate: float
    source: str
    reward: float
    times: float | None
    lines: tuple[str, ...]

    def rows(self) -> list[Row]:
        """Its lines."""
        return [Row("", line) for line in self.lines]

    def data(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"pass_rate": self.pass_rate, "source": self.source, "reward": self.reward, "times_rollouts": self.times,
                "lines": list(self.lines)}


def pass_rates(problems: Sequence[Problem]) -> tuple[str, list[float]]:
    """The column that holds pass rates, and those of the problems that have one; ("", []) without such a column."""
    for name in COLUMNS:
        held = [p.meta.get("columns", {}).get(name) for p in problems]
        rates = [float(x) for x in held if isinstance(x, int | float) and not isinstance(x, bool) and 0 <= x <= 1]
        if rates and len(rates) >= len(problems) / 2:
            return name, rates
    return "", []


def costs_of(
    errors: Errors, problems: Sequence[Problem], strategies: Mapping[str, float], *, pass_rate: float | None = None,
    study: str | Path | None = None, verifier: str = "",
) -> ErrorCosts:
    """What errors cost, at a given pass rate, those of the data, those of a study's law, or `ASSUMED`.

    `strategies` are the strategies that are paid, with their mean reward.

    Raises UserError if there is no study, or it has no law.
    """
    column, rates = pass_rates(problems)
    law = _law(study) if study is not None else None
    if pass_rate is not None:
        rates, source = [pass_rate], "given"
    elif law is not None:
        rates, source = [law.start], f"the base of {study}"
    elif rates:
        source = f"the column {column!r}"
    else:
        rates, source = [ASSUMED], "assumed: --pass-rate gives another"
    p = sum(rates) / len(rates)
    reward = sum(map(errors.reward, rates)) / len(rates)
    weight = sum(x * (1 - x) for x in rates)
    worth = sum(errors.worth(x) * x * (1 - x) for x in rates) / weight if weight else 0.0
    times = 1 / worth if worth else None
    lines = [f"at a pass rate of {p:.2f} ({source}) this reward reports {reward:.2f}, {ASSUMPTION}"]
    if errors.refused == errors.paid == 0:
        lines.append("no rollouts are lost to errors on the built cases")
    elif times is None:
        lines.append("no signal is left: right and wrong answers earn the same")
    else:
        lines.append(f"the same signal in an update takes {times:.2f} times the rollouts: n = {GROUP} is worth "
                     f"{GROUP * worth:.1f}, and n = {math.ceil(GROUP * times)} is worth {GROUP}")
    lines += law.lines(errors, verifier) if law is not None else [
        "reward forecast and best n: not known without a law of your runs (--study STUDY)"]
    if strategies:
        name, most = max(strategies.items(), key=lambda x: x[1])
        lines.append(f"a policy that learns the strategy {name!r} reports {most:.2f} with any share of right answers; "
                     "when it learns that is not known, so no forecast of this reward holds")
    return ErrorCosts(p, source, reward, times, tuple(lines))


@dataclass(frozen=True)
class StudyLaw:
    """What a study's law forecasts: `start` is the base's reward; `best(C)` the n, `value(n, C)` the reward."""

    study: Any

    @property
    def start(self) -> float:
        return float(self.study.law.R0[1])

    def lines(self, errors: Errors, verifier: str) -> list[str]:
        """The forecast without and with errors, in words."""
        law = self.study.law
        C = float(self.study.plan.arm.C if self.study.has("plan.json") else law.range[1])
        if law.forecast_refused is not None or not law.arms:
            why = law.forecast_refused.reason if law.forecast_refused else "the law has no curve"
            return [f"reward forecast and n: not known: {why}"]
        known = law.predict(law.best(C), C).prediction
        clean = f"{known.value:.3f} ({known.low:.3f} to {known.high:.3f}) at n = {law.best(C)} and {C:,.0f} rollouts"
        if self.study.setting.marks == verifier and errors.refused + errors.paid < 1:
            right = (known.value - errors.paid) / (1 - errors.refused - errors.paid)
            behind = f"the share of right answers behind it is {right:.3f}, {ASSUMPTION}" if 0 <= right <= 1 else (
                "the share of right answers behind it is not known: with the rates of the built cases the reward is "
                f"{errors.paid:.2f} to {1 - errors.refused:.2f}, so these runs err at others")
            return [f"the law of {self.study.path} is of this reward, errors included: it forecasts {clean}; {behind}"]
        worth = errors.worth((self.start + known.value) / 2)
        if not worth:
            return ["reward forecast and n: not known: no signal is left"]
        less = C * worth
        size = law.best(less) / worth
        with_errors = law.predict(law.best(less), less).prediction
        arm = min(law.ns, key=lambda x: abs(math.log(x / size)))
        right, low, high = with_errors.value, with_errors.low, with_errors.high
        return [
            f"the law of {self.study.path} forecasts {clean} without these errors",
            f"with them, if a run loses as much as an update, as with {worth:.0%} of the rollouts: {right:.3f} "
            f"({low:.3f} to {high:.3f}) right, which this reward reports as {errors.reward(right):.3f}, at n = {arm}; "
            f"{ASSUMPTION}",
        ]


def _law(study: str | Path) -> StudyLaw:
    from isocost.errors import UserError
    from isocost.steps.study import StudyRecord

    found = StudyRecord.read(study)
    if found.law is None:
        raise UserError(f"{study} has no law yet: run `isocost fit {study}` first")
    return StudyLaw(found)
