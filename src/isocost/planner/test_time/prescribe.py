"""The plan of a study of strategies: what to run for a budget per answer, what it is expected to give, and its seal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import floor
from typing import Any, ClassVar, Self

import numpy as np
from numpy import ndarray

from isocost.disk.shape import Plain, Size
from isocost.errors import UserError
from isocost.planner.budget import Budget
from isocost.planner.forecast import Naive, SealedFile
from isocost.planner.test_time.choice import (
    Rule,
    choose,
    choose_by_band,
    decide,
    paired,
    predicted,
    reaching,
    within,
)
from isocost.planner.test_time.estimates import (
    LATE,
    SIZES,
    STRATEGIES,
    Measured,
    auroc,
    label,
    measure,
    orders,
    over_runs,
    table,
)
from isocost.planner.test_time.mixture import FURTHEST, fit_mixture
from isocost.planner.test_time.pool import Parts, Pool
from isocost.planner.token_price import TokenPrice
from isocost.runs.schema import VERSION
from isocost.screen.words import counted, grouped
from isocost.stats.intervals import Interval
from isocost.units import CURRENCIES, ROLLOUTS, SECONDS, TOKENS

KIND = "test_time"
FEW_AUDIT = 30      # problems of the test split, below which there are no bands
ONE_VALUE = 0.95    # share of samples with one score from which the scorer is called constant
_UNITS = "1k-tokens/answer, 16-rollouts/answer (samples), 2s/answer, or 0.002usd/answer"


@dataclass(frozen=True)
class AnswerGoal:
    """What an answer may cost, or how accurate it must be. `speed` is in tokens per second of one text; `answers` is
    how many share the cost of training, 0 where it is not counted."""

    amount: float | None = None
    unit: str = TOKENS
    accuracy: float | None = None
    price: str | None = None
    speed: float | None = None
    text: str = ""
    answers: float = 0.0

    @staticmethod
    def of(budget: str | None, accuracy: float | None, price: str | None, speed: float | None) -> AnswerGoal:
        """The ask in a user's words. Raises UserError where it is not exactly one of both, for a unit that an answer
        has none of, and where the unit lacks its price or speed."""
        if (budget is None) == (accuracy is None):
            raise UserError(f"name one of --budget, such as {_UNITS}, and --accuracy, such as 0.8")
        if price is not None:
            TokenPrice.parse(price)
        if budget is None:
            return AnswerGoal(None, TOKENS, accuracy, price, speed, f"accuracy {accuracy:g}")
        amount, slash, per = budget.strip().partition("/")
        if not slash or per.strip().lower() not in ("answer", "answers"):
            raise UserError(f"the budget {budget!r} is of one answer: write it as {_UNITS}")
        found = Budget.parse(amount)
        if found.unit not in (TOKENS, ROLLOUTS, SECONDS, *CURRENCIES):
            raise UserError(f"the budget {budget!r}: an answer is counted in tokens, rollouts, seconds or money, such "
                            f"as {_UNITS}")
        if found.unit in CURRENCIES and (price is None or TokenPrice.parse(price).currency != found.unit):
            raise UserError(f"the budget {budget!r} needs a --price in {found.unit}, such as 0.15{found.unit}/M-input,"
                            f"0.60{found.unit}/M-output")
        if found.unit == SECONDS and speed is None:
            raise UserError(f"the budget {budget!r} needs --speed: tokens per second of one text, such as --speed 40")
        return AnswerGoal(found.amount, found.unit, None, price, speed, budget.strip())

    def rule(self, exact: bool) -> Rule:
        """What is chosen among candidates."""
        return within(float(self.amount or 0), exact) if self.accuracy is None else reaching(self.accuracy)

    def costs(self, pool: Pool, found: Measured) -> ndarray:
        """(P,) what an answer costs in the unit; in seconds it is what 95 % of the answers take. Raises UserError where
        the pool lacks tokens."""
        if self.unit == ROLLOUTS or (self.amount is None and pool.tokens is None):
            return found.samples
        if pool.tokens is None:
            raise UserError(f"the budget {self.text!r} needs the tokens of each sample, which the pool lacks: name "
                            "their column with --map tokens=COLUMN, or give rollouts, such as 16-rollouts/answer")
        if self.unit == SECONDS:
            assert self.speed is not None
            return np.full(len(pool.ids), found.depth / self.speed)
        if self.unit in CURRENCIES:
            assert self.price is not None
            price = TokenPrice.parse(self.price)
            read = np.zeros(len(pool.ids)) if pool.read is None else pool.read
            return np.asarray(found.samples * read * price.read + found.tokens * price.written)
        return found.tokens


@dataclass(frozen=True)
class StrategyRow:
    """A strategy with its size, measured on the validation split; `gain` is over one sample."""

    strategy: str
    size: Size
    accuracy: float
    gain: Interval
    samples: float
    tokens: float
    depth: float

    @classmethod
    def measured(cls, m: Measured, one: ndarray, **more: Any) -> Self:
        """The row of what was measured; `one` (P,) is the accuracy of one sample."""
        return cls(m.strategy, m.size, float(m.accuracy.mean()), paired(m.accuracy - one), float(m.samples.mean()),
                   float(m.tokens.mean()), min(m.depth, 1e12), **more)


@dataclass(frozen=True)
class Candidate(StrategyRow):
    """What a plan can choose, with its cost in the unit of the plan."""

    cost: float
    how: str
    arm: str = ""

    @property
    def label(self) -> str:
        """Strategy and size in one word."""
        return label(self.strategy, self.size, self.arm)


@dataclass(frozen=True)
class BandStrategy:
    """What is run for the problems of a band; `arm` are sampling settings, where they are not the study's."""

    band: str
    strategy: str
    size: int
    problems: int
    arm: str = ""

    def __str__(self) -> str:
        where = f" {'at' if '=' in self.arm else 'of'} {self.arm}" if self.arm else ""
        return named(self.strategy, self.size) + where


@dataclass(frozen=True)
class StrategyPlan(Plain):
    """What to run for each answer.

    `decision`: "more" samples than one, "one" sample, or "cannot tell", which also prescribes one. `each` has one entry
    for all problems, or one for each band. `expected` is the accuracy on the test split. `gain` is over one
    sample, and `band_gain` of a strategy for each band over the best single one; None where there are no bands.
    `optimism` is by how much the chosen candidate's own mean is above the stated accuracy. `vote` is the size of the
    majority vote of equal cost; 0 where answers are not known. `best` is the best single strategy.
    """

    asked: str
    unit: str
    decision: str
    each: tuple[BandStrategy, ...]
    probe: int
    edges: tuple[float, ...]
    expected: Interval
    gain: Interval
    band_gain: Interval | None
    optimism: float
    cost: float
    one: Candidate
    best: Candidate
    vote: int
    candidates: tuple[Candidate, ...]
    flags: tuple[str, ...]
    beyond: bool = False        # the prescribed size is above the pool's, and its accuracy that of a mixture

    HEAD: ClassVar = {"schema": VERSION, "kind": KIND}

    @property
    def label(self) -> str:
        """The prescription in words."""
        if len(self.each) == 1:
            return str(self.each[0])
        return "; ".join(f"{b.band}: {b}" for b in self.each)


def named(strategy: str, size: int) -> str:
    """A strategy and its size for people."""
    return "one sample" if size == 1 else f"{strategy.removesuffix('-of')} of {size}"


def candidates(
    parts: Parts, strategies: Sequence[str], ask: AnswerGoal, seed: int, live: Sequence[Measured] = ()
) -> list[Measured]:
    """What was measured on the validation split: one sample first, then every strategy and size of every arm that the
    budget may pay for, and `live` ones, which were run on it. Raises UserError as `prescribe` does."""
    used, _ = _usable(parts.select, strategies)
    found = [*_measured([parts.select], used, ask, seed), *live]
    for arm, halves in parts.arms.items():
        found += _measured([select for select, _ in halves], used, ask, seed, arm)
    return found


def prescribe(
    parts: Parts, strategies: Sequence[str], ask: AnswerGoal, seed: int, live: Sequence[Measured] = ()
) -> StrategyPlan:
    """The plan, from the validation split alone. `live` are strategies that were run on it.

    Raises UserError for a budget below one sample, for one that exceeds what was measured by more than a forecast may,
    and for samples that are all equal.
    """
    pool = parts.select
    used, flags = _usable(pool, strategies)
    found = candidates(parts, strategies, ask, seed, live)
    first, least = _single(found, parts, ask, seed)
    if ask.amount is not None and ask.amount < least * (1 - 1e-9):
        raise UserError(_too_small(pool, ask, least))
    single = float(ask.costs(pool, found[0]).mean())
    beyond = _beyond(pool, ask, single) if "best-of" in used and pool.exact and not ask.answers else None
    if beyond is not None:
        found.append(beyond)
    elif ask.amount is not None and not ask.answers and ask.unit != SECONDS and (
            ask.amount >= (pool.samples + 1) * single):
        flags.append(f"the budget pays for {ask.amount / single:,.0f} samples, and {pool.samples} were profiled: no "
                     "forecast beyond them, because a scorer that errs may choose worse from more; sample more to plan "
                     "with more")
    accuracy, cost = np.array([m.accuracy for m in found]), np.array([ask.costs(pool, m) for m in found])
    picked = choose(accuracy, cost, ask.rule(pool.exact), seed)
    rows = [Candidate.measured(m, accuracy[first], cost=float(cost[i].mean()), how=m.how, arm=m.arm)
            for i, m in enumerate(found)]
    other = picked.single != first
    gain = paired(picked.accuracy - accuracy[first]) if other else replace(paired(accuracy[0] * 0.0), dof=1.0)
    decision = decide(gain) if other else "one"
    if picked.single and pool.exact and found[picked.single].strategy == "best-of" and not found[picked.single].arm:
        decision = "more"       # pass@n never falls with n, so the sign of the gain is not in doubt
    taken = picked.single if decision == "more" else first
    told = picked.accuracy if decision == "more" else accuracy[first]
    expected = predicted(told, len(parts.audit.ids))
    if found[taken].how == "mixture":
        mixture = fit_mixture((pool.right >= 0.5).sum(1), pool.samples)
        expected = mixture.forecast(found[taken].size, new=len(parts.audit.ids))
    plan = StrategyPlan(
        ask.text, ask.unit, decision, (_band("all", found[taken], len(pool.ids)),),
        0, (), expected, gain, None, picked.optimism * (decision == "more"), rows[taken].cost, rows[first],
        rows[picked.single],
        _vote_of(pool, rows, rows[picked.single], ask.unit), tuple(rows), tuple(flags), found[taken].how == "mixture",
    )
    if ask.accuracy is not None and rows[taken].accuracy < ask.accuracy:
        note = f"no strategy reaches {ask.accuracy:g} here: the best is {rows[picked.single].label} with " \
               f"{rows[picked.single].accuracy:.3f}"
        plan = replace(plan, flags=(*plan.flags, note))
    return _with_bands(plan, parts, found, (used, told, accuracy[first]), ask, seed)


def _single(found: Sequence[Measured], parts: Parts, ask: AnswerGoal, seed: int) -> tuple[int, float]:
    """The one sample that others are compared with, and the least that one costs: at the study's own settings, at
    others where the goal is met by them at less cost, or where the budget does not pay for the study's own."""
    ones = [i for i, m in enumerate(found) if m.size == 1 and m.how == "pool" and m.arm not in parts.policies]
    cost = np.array([ask.costs(parts.select, found[i]).mean() for i in ones])
    accuracy = np.array([found[i].accuracy.mean() for i in ones])
    own = cost[0] <= ask.amount * (1 + 1e-9) if ask.amount is not None else (accuracy < ask.accuracy).all()
    if own or (ask.amount is not None and ask.amount < cost.min()):
        return 0, float(cost.min())
    return ones[ask.rule(parts.select.exact)(accuracy, cost)], float(cost.min())


def _with_bands(
    plan: StrategyPlan, parts: Parts, found: Sequence[Measured], known: tuple[Sequence[str], ndarray, ndarray],
    ask: AnswerGoal, seed: int,
) -> StrategyPlan:
    """The plan with a strategy for each band, where that is better than one for all; else with the gain that is not."""
    used, told, one = known
    if len(parts.bands) < 2 or ask.amount is None or ask.unit == SECONDS or ask.answers:
        return plan
    found = [m for m in found if m.arm not in parts.policies]       # one server answers all bands
    if len(parts.audit.ids) < FEW_AUDIT:
        few = f"no strategy by band: the test split has {len(parts.audit.ids)} problems, and bands need {FEW_AUDIT}"
        return replace(plan, flags=(*plan.flags, few))
    if parts.probe:
        pool, order = parts.select_all, orders(parts.select_all, seed, parts.probe)
        sizes = [k for k in (parts.probe, *SIZES) if parts.probe <= k <= pool.samples]
        at_once = [s for s in used if not STRATEGIES[s].rounds]      # others begin anew behind the probe
        found = [measure(pool, s, k, order, parts.probe) for s in at_once for k in dict.fromkeys(sizes)]
    found_by = None
    if found:
        accuracy = np.array([m.accuracy for m in found])
        cost = np.array([ask.costs(parts.select_all, m) for m in found])
        found_by = choose_by_band(accuracy, cost, parts.band, ask.amount, seed)
    if found_by is None:
        return plan
    gain = paired(found_by.accuracy - told)
    if gain.low <= 0:
        return replace(plan, band_gain=gain)
    each = tuple(_band(name, found[i], int((parts.band == k).sum()))
                 for k, (name, i) in enumerate(zip(parts.bands, found_by.each, strict=True)))
    return replace(
        plan, decision="more", each=each, probe=parts.probe, edges=parts.edges, band_gain=gain,
        expected=predicted(found_by.accuracy, len(parts.audit.ids)), cost=float(found_by.cost.mean()),
        gain=paired(found_by.accuracy - one), optimism=0.0,
        beyond=any(found[i].how == "mixture" for i in found_by.each),
    )


def _band(name: str, m: Measured, problems: int) -> BandStrategy:
    return BandStrategy(name, m.strategy, m.size, problems, m.arm)


def _usable(pool: Pool, strategies: Sequence[str]) -> tuple[list[str], list[str]]:
    """The strategies that a choice may have, and cautions. Raises UserError if each problem's samples are all equal."""
    if pool.samples > 1 and pool.tokens is not None and pool.answer is not None and len(pool.ids) > 1 and not (
        np.ptp(pool.tokens, axis=1).any() or np.ptp(pool.answer, axis=1).any() or np.ptp(pool.right, axis=1).any()
    ):
        raise UserError("all samples of each problem are equal, as at temperature 0: more than one says nothing. "
                        "Sample at a temperature above 0")
    used, flags = list(strategies), list[str]()
    scored = [s for s in used if "score" in STRATEGIES[s].needs]
    if not scored or pool.exact or pool.score is None:
        return used, flags
    _, many = np.unique(pool.score, return_counts=True)
    if many.max() >= ONE_VALUE * pool.score.size:
        flags.append(f"the scorer gives one value to {many.max() / pool.score.size:.0%} of the samples: best-of is "
                     "then one sample, and a vote is not")
    inside = auroc(pool.score, pool.right)
    if inside is None or inside.low <= 0.5:
        why = "no problem has both" if inside is None else f"AUROC within problems {inside}, which includes 0.5"
        flags.append(f"the scorer does not tell right from wrong samples ({why}): {', '.join(scored)} not considered")
        used = [s for s in used if s not in scored]
    return used, flags


def _measured(
    pools: Sequence[Pool], used: Sequence[str], ask: AnswerGoal, seed: int, arm: str = ""
) -> list[Measured]:
    """One sample, then every usable strategy with the usual sizes, and with the largest that the budget pays for: means
    over the pools, which are of the runs of one policy."""
    def mean(of: Callable[[Pool], Measured]) -> Measured:
        return over_runs([of(pool) for pool in pools], arm) if arm else of(pools[0])

    one = mean(lambda pool: table(pool, (), (), seed)[0])
    most = pools[0].samples
    single = float(ask.costs(pools[0], one).mean())
    if ask.amount is not None and ask.unit != SECONDS and not ask.answers:
        most = int(min(most, ask.amount / single + 1e-9))
    order, out = orders(pools[0], seed), [one]
    for name in used:
        sizes = {*SIZES, most} if not STRATEGIES[name].rounds else {*SIZES}
        top = most if not STRATEGIES[name].rounds else pools[0].samples
        out += [mean(partial(measure, strategy=name, size=k, order=order)) for k in sorted(sizes) if 1 < k <= top]
    return out


def _beyond(pool: Pool, ask: AnswerGoal, single: float) -> Measured | None:
    """Best-of with the verifier as scorer beyond the pool's samples: the largest size that the budget pays for, at most
    as far as the forecast holds. Raises UserError for a budget beyond that."""
    if ask.amount is None or ask.unit == SECONDS:
        return None
    size = floor(ask.amount / single + 1e-9)
    if size <= pool.samples:
        return None
    if size > FURTHEST * pool.samples:
        raise UserError(f"the budget pays for {size:,} samples and {pool.samples} were profiled: a forecast reaches "
                        f"{FURTHEST} times the samples. Profile {-(-size // FURTHEST):,} samples per problem, or ask "
                        f"for {grouped(FURTHEST * pool.samples * single)} {ask.unit}/answer at most")
    each, ones = fit_mixture((pool.right >= 0.5).sum(1), pool.samples).each(size), np.full(len(pool.ids), float(size))
    return Measured("best-of", size, each, ones, ones * pool.written, float("inf"), "mixture")


def _vote_of(pool: Pool, rows: Sequence[Candidate], chosen: Candidate, unit: str) -> int:
    """The size of the majority vote that costs as much as the chosen strategy; 0 where answers are not known."""
    if pool.answer is None:
        return 0
    if unit == SECONDS:     # samples of a vote are written side by side
        return min(chosen.size, pool.samples)
    return max(1, min(pool.samples, floor(chosen.cost / max(rows[0].cost, 1e-12) + 1e-9)))


def _too_small(pool: Pool, ask: AnswerGoal, single: float) -> str:
    late = "" if pool.tokens is None else (f" ({pool.written.mean():,.0f} tokens on average, "
                                           f"{np.quantile(pool.tokens, LATE):,.0f} at the 95th percentile)")
    if ask.answers:
        least = f"{grouped(float(f'{single * ask.answers:.3g}'))} {ask.unit}"
        return f"{ask.text!r} is below one untrained sample for each, which takes {least} in all: give at least that"
    takes = f"{grouped(float(f'{single:.3g}'))} {ask.unit}"
    return f"the budget {ask.text!r} is below one sample, which takes {takes}{late}: give at least that"


# the seal -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StrategyForecast(SealedFile):
    """The accuracy expected on the test split, sealed before it is measured.

    `each` is the prescription, `vote` the size of the majority vote of equal cost, and `best` the best single strategy.
    `naive` are what one sample, that vote and that strategy gave on the validation split. `hashes` are of the pool
    and the code; `seal` is the hash of all other fields. `others` are the choices of the other policies, where training
    is counted.
    """

    asked: str
    label: str
    each: tuple[BandStrategy, ...]
    vote: int
    best: BandStrategy
    interval: Interval
    naive: tuple[Naive, ...]
    problems: int
    falsifier: str
    hashes: dict[str, str] = field(default_factory=dict)
    seal: str = ""
    others: tuple[BandStrategy, ...] = ()

    LATER: ClassVar = ("others",)


@dataclass(frozen=True)
class StrategyForecasts(Plain):
    """The forecasts of a study, one for each budget that was planned, in the order they were sealed."""

    forecasts: tuple[StrategyForecast, ...]

    HEAD: ClassVar = {"schema": VERSION, "kind": KIND}

    def adding(self, new: StrategyForecast) -> StrategyForecasts:
        """These and a new one. Raises UserError where the same budget was sealed with another forecast."""
        for one in self.forecasts:
            if one.asked == new.asked:
                if one.seal != new.seal:
                    raise UserError(f"a forecast for {new.asked} is sealed, {one.seal[:16]}, and this plan differs: a "
                                    "forecast is never rewritten; begin another study")
                return self
        return StrategyForecasts((*self.forecasts, new))


def seal(
    plan: StrategyPlan, parts: Parts, seed: int, hashes: Mapping[str, str], others: Sequence[BandStrategy] = ()
) -> StrategyForecast:
    """The sealed forecast of a plan. The naive forecasts have prediction intervals of the same level."""
    pool, new, naive = parts.select, len(parts.audit.ids), []
    order = orders(pool, seed)
    rows = {"one sample": pool.right.mean(1)}
    if plan.vote > 1:
        rows[f"majority of {plan.vote}, equal cost"] = measure(pool, "vote", plan.vote, order).accuracy
    for name, each in rows.items():
        i = predicted(each, new)
        naive.append(Naive(name, i.value, i.low, i.high))
    if plan.best.size > 1:
        half = (plan.expected.high - plan.expected.low) / 2
        top = plan.best.accuracy
        naive.append(Naive(f"{plan.best.label}, as it chose itself", top, max(0.0, top - half), min(1.0, top + half)))
    i = plan.expected
    falsifier = (f"a mean accuracy of {plan.label} on {counted(new, 'problem')} of the test split outside "
                 f"[{i.low:.4f}, {i.high:.4f}] ({i.level:.0%} prediction interval)")
    best = BandStrategy("all", plan.best.strategy, plan.best.size, len(pool.ids), plan.best.arm)
    return StrategyForecast(plan.asked, plan.label, plan.each, plan.vote, best, i, tuple(naive), new, falsifier,
                            dict(hashes), others=tuple(others)).sealed()
