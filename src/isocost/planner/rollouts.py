"""The prescription: which n are as good as each other, which of them to train, against what, and what to expect.

What is prescribed is a set: every n whose predicted reward is within the margin of the best. Inside it the n is taken
that needs the fewest seconds on this machine to the same reward: where curves are nearly flat, a rollout that is a
little cheaper is no saving if it takes twice as many to make up for a reward a little lower. Where the law is not
identified, a fallback is named and used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from math import isfinite
from typing import Annotated, Any

import numpy as np

from isocost.errors import UserError
from isocost.laws.curves import Curve
from isocost.laws.law import EXTRAPOLATION, SELECT, Law
from isocost.planner.budget import Bill, Budget, Prices, Timing, worded
from isocost.planner.learning_rate import RateRule, by_n
from isocost.planner.pilot import LEAST_SEEDS, PilotPlan
from isocost.planner.study_runs import COMMON, PlannedRun, make_runs, warmup
from isocost.shape import FILLED
from isocost.stats.intervals import Interval
from isocost.words import counted

MARGIN = 0.01           # reward within which two n's are as good as each other
EPOCHS_FACTOR = 2.0     # beyond this many times the pilot's epochs a plan extrapolates in epochs too
BESIDE = ("units", "more", "sees", "next", "measure", "evaluating")     # what plan.json holds beside the plan itself
IMPORTED = "imported"   # preset of a pilot made of another trainer's logs, which have one split
TIMING_NOISE = 0.05     # costs this close are equal, and the better forecast is taken


@dataclass(frozen=True)
class PlannedArm:
    """One arm to train: sizes, learning rate, and what the law expects of it (None where no law speaks).

    `confidence` is of the arm's mean curve at C, `prediction` of the mean of as many new runs as are planned.
    `epochs` are passes over the training problems, `seconds` those of one run with its evaluations (None where
    nothing tells).
    """

    role: str               # "prescribed" or "comparator"
    n: int
    B: int
    M: int
    C: int
    lr: float
    warmup: int
    epochs: float | None
    seconds: float | None
    confidence: Interval | None = None
    prediction: Interval | None = None

    @staticmethod
    def of(data: Mapping[str, Any]) -> PlannedArm:
        """The arm in plain data."""
        d = dict(data)
        for k in ("confidence", "prediction"):
            d[k] = Interval.of(d[k]) if d.get(k) else None
        return PlannedArm(**d)


@dataclass(frozen=True)
class Check:
    """One thing that must hold for a plan to mean what it says."""

    name: str
    holds: bool
    text: str


@dataclass(frozen=True)
class Marginal:
    """What twice the rollouts per run would buy at the best n of each: reward now, then, and the n that gives it."""

    C: float
    n: int
    value: float
    doubled_n: int
    doubled: Interval

    @property
    def gain(self) -> float:
        """Predicted reward at 2C less that at C."""
        return self.doubled.value - self.value

    def data(self) -> dict[str, Any]:
        """Plain data for JSON, the gain included."""
        return {**asdict(self), "gain": self.gain}

    @staticmethod
    def of(data: Mapping[str, Any]) -> Marginal:
        """What `data()` wrote."""
        d = {k: v for k, v in data.items() if k != "gain"}
        return Marginal(**{**d, "doubled": Interval.of(d["doubled"])})


@dataclass(frozen=True)
class Plan:
    """What to train: the prescribed arm first, then what it is compared with, paired by seed.

    `equal` is the set of n's that are as good as each other at C; `chosen` says how one of them was taken;
    `fallback` is empty unless the law refused. `claim` is False where the comparison cannot show that the
    prescription is better than the common default, because the default is in the set.
    """

    direct: bool
    budget: Budget | None
    equal: tuple[int, ...]
    margin: float
    chosen: str
    fallback: str
    settle: str
    arms: Annotated[tuple[PlannedArm, ...], FILLED]
    comparison: str
    claim: bool
    seeds: int
    runs: tuple[PlannedRun, ...]
    points: tuple[int, ...]
    rate: RateRule
    timing: Timing
    bill: Bill
    pilot_bill: Bill
    pilot_C: int
    pilot_epochs: float | None
    checks: tuple[Check, ...]
    marginal: Marginal | None
    flags: tuple[str, ...]

    @property
    def arm(self) -> PlannedArm:
        """The prescribed arm."""
        return self.arms[0]

    @property
    def comparator(self) -> PlannedArm | None:
        """The arm it is compared with, if the budget pays for one."""
        return self.arms[1] if len(self.arms) > 1 else None

    @property
    def extrapolation(self) -> float | None:
        """Prescribed C over the pilot's largest; None without a pilot."""
        return self.arm.C / self.pilot_C if self.pilot_C else None

    def data(self) -> dict[str, Any]:
        """Plain data for JSON, the prescribed arm and the extrapolation ratio once more under their own names."""
        out = {"schema": 1, **asdict(self), "rate": self.rate.data(), "arm": asdict(self.arm)}
        return out | {"extrapolation": self.extrapolation, "marginal": self.marginal.data() if self.marginal else None}

    @staticmethod
    def of(data: Mapping[str, Any]) -> Plan:
        """The plan that `data()` wrote."""
        d = {k: v for k, v in data.items() if k not in ("schema", "arm", "extrapolation", *BESIDE)}
        read: dict[str, Any] = {
            "budget": Budget.of(d["budget"]) if d["budget"] else None,
            "arms": tuple(PlannedArm.of(a) for a in d["arms"]),
            "runs": tuple(map(PlannedRun.of, d["runs"])), "rate": RateRule.of(d["rate"]),
            "timing": Timing.of(d["timing"]), "bill": Bill.of(d["bill"]), "pilot_bill": Bill.of(d["pilot_bill"]),
            "checks": tuple(Check(**c) for c in d["checks"]),
            "marginal": Marginal.of(d["marginal"]) if d["marginal"] else None,
        }
        fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in (d | read).items()}
        return Plan(**fields)


def prescribe(
    law: Law | None,
    rate: RateRule,
    budget: Budget | None,
    timing: Timing,
    *,
    pilot: PilotPlan,
    curves: Sequence[Curve] = (),
    spent: Bill | None = None,
    problems: int | None = None,
    margin: float = MARGIN,
    prices: Mapping[int, Prices] | None = None,
) -> Plan:
    """What to train with what is left of the budget.

    `spent` is what the pilot cost (expected from its plan if not given), `problems` the number of training
    problems, `curves` the pilot's runs, for its epochs and for the fallback. Without a budget the preset's size is
    taken. C per run is at most eight times the pilot's largest run, and both arms and all seeds are paid for.
    `prices` are those of a rollout at each n, where they differ (the pilot's own if not given). Where one run is the
    whole of training, n are compared at what the budget pays for of each.

    Raises:
        UserError: where nothing of the budget is spent and it does not pay for one update of every n's size.
    """
    ask = _Ask(law, rate, budget, timing, pilot, tuple(c for c in curves if c.purpose == "pilot" and not c.diverged),
               spent or pilot.pilot_bill, problems, margin, prices or {})
    return ask.plan()


@dataclass(frozen=True)
class _Choice:
    """An n for a given C, and why."""

    n: int
    equal: tuple[int, ...]
    chosen: str
    fallback: str = ""
    settle: str = ""


@dataclass(frozen=True)
class _Ask:
    """Everything a prescription depends on."""

    law: Law | None
    rate: RateRule
    budget: Budget | None
    timing: Timing
    pilot: PilotPlan
    curves: tuple[Curve, ...]
    spent: Bill
    problems: int | None
    margin: float
    prices: Mapping[int, Prices]

    @property
    def speaking(self) -> Law | None:
        """The law, if there is one that does not refuse."""
        return self.law if self.law is not None and self.law.refused is None else None

    def plan(self) -> Plan:
        C, choice = self.size()
        other, comparison, claim = self.compare(choice, C)
        ns = (choice.n, *other)
        arms = tuple(self.arm(n, C, "prescribed" if i == 0 else "comparator") for i, n in enumerate(ns))
        seeds = self.pilot.train_seeds
        runs = make_runs(self.pilot.seed, "train", ns, self.pilot.B, C, seeds, batch=self.pilot.batch)
        bill = self.bill(ns, C)
        return Plan(
            self.pilot.direct, self.budget, choice.equal, self.margin, choice.chosen, choice.fallback, choice.settle,
            arms, comparison, claim, seeds, runs, self.pilot.train_points(C), self.rate, self.timing, bill, self.spent,
            self.own(choice.n), self.pilot_epochs(), self.checks(bill, C, arms), self.doubled(choice.n, C),
            (*self.flags(arms[0]), *self.left_over(bill, C, ns)),
        )

    def size(self) -> tuple[int, _Choice]:
        """(C per run, n): where both arms share C each depends on the other, so they are settled in turn."""
        own = self.own_C
        if len(set(own.values())) > 1:
            choice = self.choose_each(own)
            self.refuse_short((choice.n,), own[choice.n])
            return own[choice.n], choice
        C = self.pilot.train_C
        choice = self.choose(C)
        for _ in range(4):
            fits = self.affordable((choice.n, *self.compare(choice, C)[0]))
            if fits == C:
                break
            C, choice = fits, self.choose(fits)
        self.payable([choice.n])
        self.refuse_short((choice.n, *self.compare(choice, C)[0]), C)
        return C, choice

    @cached_property
    def own_C(self) -> dict[int, int]:
        """n -> the C that the budget pays for, of each n that it pays for at all; empty where one C is for all."""
        law = self.speaking
        shared = self.pilot.train_arms > 1 or self.pilot.direct
        if law is None or shared or self.budget is None or self.budget.unit == "rollouts":
            return {}
        return {n: self.affordable((n,)) for n in self.payable(law.ns)}

    def payable(self, ns: Sequence[int]) -> list[int]:
        """The n of which the budget pays for the smallest run. Raises UserError where there is none."""
        if self.budget is None or self.pilot.direct or self.spent.of_unit(self.budget.unit) > 0:
            return list(ns)
        least = {n: self.bill((n,), self.unit()).of_unit(self.budget.unit) for n in ns}
        paid = [n for n in ns if least[n] <= self.budget.amount]
        if not paid:
            raise UserError(f"{self.budget} does not pay for the smallest run, {self.unit()} rollouts (a whole number "
                            f"of updates of every n): give at least {worded(self.budget, min(least.values()))}")
        return paid

    def refuse_short(self, ns: tuple[int, ...], C: int) -> None:
        """Raises UserError where what the pilot left does not train runs as long as its own were: nothing is foretold.

        The least that would do is named.
        """
        pilots = self.pilot.of_purpose("pilot")
        if self.budget is None or self.pilot.direct or not self.spent.of_unit(self.budget.unit) > 0 or not pilots:
            return
        longest, unit = max(self.own(n) for n in ns), self.budget.unit
        if longest <= C:
            return
        spent, runs = self.spent.of_unit(unit), counted(len(ns) * self.pilot.train_seeds, "run")
        enough = spent + self.bill(ns, longest).of_unit(unit)
        raise UserError(
            f"the pilot has spent {worded(self.budget, spent, up=False)} of {self.budget}, and what is left does "
            f"not pay for {runs} as long as its own of n = {', '.join(map(str, ns))}, {longest} rollouts. A --budget "
            f"of {worded(self.budget, enough)} would"
        )

    def affordable(self, ns: tuple[int, ...]) -> int:
        """The most rollouts per run that what is left pays for, in whole updates of every arm."""
        if self.budget is None or self.pilot.direct:
            return self.pilot.train_C
        unit, name = self.unit(), self.budget.unit
        left = self.budget.amount - self.spent.of_unit(name)
        k = self.furthest(ns) // unit
        while k > 1 and self.bill(ns, k * unit).of_unit(name) > left:
            k = min(k - 1, int(k * max(left, 0.0) / self.bill(ns, k * unit).of_unit(name)) + 1)
        return max(1, k) * unit

    def own(self, n: int) -> int:
        """The longest that the pilot ran n, or any where it did not run that."""
        return max((r.C for r in self.pilot.of_purpose("pilot") if r.n == n), default=self.pilot.C)

    def furthest(self, ns: Sequence[int]) -> int:
        """Rollouts up to which all of these may be forecast, some multiple of what the pilot ran of each."""
        lengths = [self.own(n) for n in ns]
        return max(EXTRAPOLATION * min(lengths), *lengths)

    def left_over(self, bill: Bill, C: int, ns: Sequence[int]) -> tuple[str, ...]:
        """A word where a tenth of the budget stays: where a forecast ends, so does what can be planned with it."""
        if self.budget is None or self.pilot.direct or C + self.unit() < self.furthest(ns):
            return ()
        left = self.budget.amount - self.spent.of_unit(self.budget.unit) - bill.of_unit(self.budget.unit)
        if left < self.budget.amount / 10:
            return ()
        return (f"{worded(self.budget, left, up=False)} of {self.budget} are left: runs {EXTRAPOLATION} times as "
                "long as the pilot's are as far as a forecast goes, and a longer pilot would plan with the rest",)

    def unit(self) -> int:
        return self.pilot.unit

    def bill(self, ns: Sequence[int], C: int) -> Bill:
        evaluations = 1 + len(self.pilot.train_points(C))
        sizes = [(n, self.pilot.B_of(n), C, evaluations) for n in ns for _ in range(self.pilot.train_seeds)]
        if not self.prices:
            return self.pilot.prices.bill(sizes, self.timing)
        bills = [self.prices.get(size[0], self.pilot.prices).bill([size], self.timing) for size in sizes]
        return sum(bills[1:], bills[0])

    def choose(self, C: int) -> _Choice:
        law = self.speaking
        if law is not None:
            equal = tuple(law.equal_set(C, self.margin))
            more = law.dearer(C)
            timed = all(self.seconds(n, C) is not None for n in equal)
            cost = {n: more[n] * (self.timing.seconds(n, self.pilot.B_of(n), C) if timed else C) for n in equal}
            cheap = [n for n in equal if cost[n] <= (1 + TIMING_NOISE) * min(cost.values())]
            n = min(cheap, key=lambda k: (more[k], k))
            if len(equal) == 1:
                return _Choice(n, equal, f"n = {n} alone is within {self.margin:g} of the best at {C} rollouts")
            names = ", ".join(map(str, equal))
            said = f"n = {names} are within {self.margin:g}, or equal within noise, at {C} rollouts"
            if not timed:
                return _Choice(n, equal, f"{said}; n = {n} needs the fewest to the same reward, {cost[n]:.3g} rollouts "
                                         f"a run (the most: {max(cost.values()):.3g})")
            return _Choice(n, equal, f"{said}; n = {n} is the cheapest here, {cost[n]:.3g} s a run "
                                     f"to the same reward (the dearest takes {max(cost.values()):.3g} s)")
        return self.fall_back()

    def choose_each(self, own: Mapping[int, int]) -> _Choice:
        """Every n at its own C, for which all cost the same: the set as `Law.equal_set` has it, and the best of it."""
        paths = self.standing(own)
        n = _highest(paths)
        equal = tuple(k for k, path in paths.items() if (paths[n] - path).mean() <= max(
            self.margin, (paths[n] - path).std()))
        each = ", ".join(f"{C} rollouts at n = {k}" for k, C in own.items())
        said = f"for {self.budget}, which pays for {each}"
        if len(equal) == 1:
            return _Choice(n, equal, f"n = {n} alone is within {self.margin:g} of the best {said}")
        names = ", ".join(map(str, equal))
        return _Choice(n, equal, f"n = {names} are within {self.margin:g}, or equal within noise, {said}; the "
                                 f"forecast of n = {n} is the highest")

    def standing(self, own: Mapping[int, int]) -> dict[int, np.ndarray]:
        """The draws (D,) of `select` reward of each n at its own C, where any is known only of those that are."""
        law = self.speaking
        assert law is not None
        known = {n: C for n, C in own.items() if n not in law.unknown(C)} or own
        return {n: law.paths(n, np.array([float(C)]), SELECT)[:, 0] for n, C in known.items()}

    def doubled(self, n: int, C: int) -> Marginal | None:
        """What twice the budget would buy; None where no law speaks."""
        law, twice = self.speaking, {k: 2 * own for k, own in self.own_C.items()}
        if law is None:
            return None
        if len(set(twice.values())) < 2:
            return marginal(law, C)
        later = _highest(self.standing(twice))
        return Marginal(float(C), n, law.predict(n, C)[0].value, later, law.predict(later, twice[later])[0])

    def fall_back(self) -> _Choice:
        """Without a law that holds: the best at the pilot's end, or what the profile's dead groups say.

        Where nothing improved measurably the best at the end is chance, so the profile decides.
        """
        flat = self.law is not None and self.law.flat
        n, told = self.pilot.fallback_n, self.pilot.fallback_why
        if self.curves and not flat:
            n, told = self.best_at_the_end()
        elif self.curves:
            told = f"nothing improved measurably in the pilot, so its end does not rank n. By the profile: {told}"
        refused = self.law.refused if self.law else None
        if refused:
            why = f"{told}, because the law is not identified: {refused.reason}"
            return _Choice(n, (n,), told, why, refused.settle)
        why = f"there was no pilot: {self.pilot.why}" if self.pilot.direct else "there is no law"
        return _Choice(n, (n,), told, f"{told}; {why}")

    def best_at_the_end(self) -> tuple[int, str]:
        means = self.end_means()
        n, ends = max(means, key=lambda k: (means[k], -k)), self.ends()
        where = "the pilot's largest common budget"
        if len(set(ends.values())) > 1 and self.budget is not None:
            told = ", ".join(f"{C:,.0f} at n = {k}" for k, C in ends.items())
            where = f"equal {self.budget.unit} of the pilot, {told} rollouts"
        split = "" if self.pilot.preset == IMPORTED else " on the validation split"
        return n, f"n = {n}, best at {where} ({means[n]:.3f}{split})"

    def end_means(self) -> dict[int, float]:
        """n -> mean `select` reward of its pilot runs, where those of every n have cost the same."""
        return means_at(self.curves, self.ends())

    def ends(self) -> dict[int, float]:
        """n -> the most rollouts at which runs of every n have cost the same in the budget's unit."""
        last = {n: min(float(c.C[-1]) for c in self.curves if c.n == n) for n in sorted({c.n for c in self.curves})}
        unit = self.budget.unit if self.budget else "rollouts"
        each = {n: self.update(n).of_unit(unit) / self.update(n).rollouts for n in last}
        most = min(each[n] * last[n] for n in last)
        return {n: most / each[n] if most > 0 else min(last.values()) for n in last}

    def update(self, n: int) -> Bill:
        """What one update of n costs, its evaluations apart."""
        B = self.pilot.B_of(n)
        return self.prices.get(n, self.pilot.prices).bill([(n, B, n * B, 0)], self.timing)

    def compare(self, choice: _Choice, C: int) -> tuple[tuple[int, ...], str, bool]:
        """(n of the comparator if any, why that one, whether a win may be claimed over the common default)."""
        if self.pilot.train_arms < 2:
            return (), "nothing: the budget pays for one arm", False
        if COMMON not in choice.equal:
            return (COMMON,), f"n = {COMMON}, the common default", True
        ranked = self.ranked(C)
        outside = [n for n in ranked if n not in choice.equal]
        if outside:
            why = f"n = {outside[0]}, the runner-up outside the set (the default n = {COMMON} is in it)"
            return (outside[0],), why, False
        others = [n for n in ranked if n != choice.n] or [2 * COMMON]
        other = COMMON if choice.n != COMMON else others[-1]
        if not ranked:
            return (other,), f"n = {other}: no n was compared before, and n = {COMMON} is the common default", False
        return (other,), f"n = {other}, though every n tried is as good here: no win is claimed", False

    def ranked(self, C: int) -> list[int]:
        """The n's of the grid, best first: by the law, else by the pilot's end; empty where no run was evaluated."""
        law = self.speaking
        if law is not None:
            return sorted(law.ns, key=lambda n: (-law.predict(n, C)[0].value, n))
        if not self.curves:
            return []
        means = self.end_means()
        return sorted(means, key=lambda n: (-means[n], n))

    def arm(self, n: int, C: int, role: str) -> PlannedArm:
        B = self.pilot.B_of(n)
        M = C // (n * B)
        confidence, prediction = (None, None)
        if self.law is not None and n in self.law.ns:      # an arm's own curve stands, whoever chose the arm
            confidence, prediction = self.law.predict(n, C, self.pilot.train_seeds)
        seconds = self.seconds(n, C, 1 + len(self.pilot.train_points(C)))
        lr = self.rate.of_arm(n, B)
        return PlannedArm(role, n, B, M, C, lr, warmup(M), self.epochs(n, C), seconds, confidence, prediction)

    def epochs(self, n: int, C: int) -> float | None:
        return C / (n * self.problems) if self.problems else None

    def pilot_epochs(self) -> float | None:
        """The most passes over the training problems that any pilot run made."""
        seen = [float(c.epochs[-1]) for c in self.curves if isfinite(c.epochs[-1])]
        if seen:
            return max(seen)
        return self.epochs(min(self.pilot.grid), self.pilot.C) if self.pilot.grid else None

    def seconds(self, n: int, C: int, evaluations: int = 0) -> float | None:
        """Seconds of a run; None where no timing is known."""
        return self.timing.seconds(n, self.pilot.B_of(n), C, evaluations) or None

    def checks(self, bill: Bill, C: int, arms: Sequence[PlannedArm]) -> tuple[Check, ...]:
        if self.pilot.direct:
            return ()
        name = self.budget.unit if self.budget else "rollouts"
        cost, whole_cost = self.spent.of_unit(name), bill.of_unit(name)
        share = cost / whole_cost if whole_cost else float("inf")
        arm, ratio = arms[0], min(self.own(a.n) for a in arms) / C
        seeds = self.pilot.train_seeds
        further = f"prescribed runs are {1 / ratio:.3g} times as long as the pilot's longest (at most {EXTRAPOLATION})"
        if ratio > 1:
            further = f"the prescribed runs are shorter than the pilot's longest, by {ratio:.3g} times"
        return (
            Check("pilot_share", share <= 0.5,
                  f"the pilot costs {share:.0%} of what training costs in {name} (at most half)"),
            Check("reach", ratio >= 1 / EXTRAPOLATION, further),
            Check("seeds", seeds >= LEAST_SEEDS, f"{counted(seeds, 'seed')} an arm (at least {LEAST_SEEDS})"),
            Check("warmup", arm.warmup <= 0.05 * arm.M, f"{arm.warmup} of {arm.M} updates warm up (at most 5 %)"),
        )

    def flags(self, arm: PlannedArm) -> tuple[str, ...]:
        out = list(self.pilot.flags)
        seen = self.pilot_epochs()
        if arm.epochs is not None and seen and arm.epochs > EPOCHS_FACTOR * seen:
            out.append(f"extrapolates in epochs: {arm.epochs:.1f} passes over the training problems, "
                       f"the pilot made at most {seen:.1f}")
        if not self.rate.measured and not self.pilot.direct:
            out.append("the learning rate is " + self.rate.why)
        if self.law is not None:
            out += [f.text for f in self.law.flags]
        out += self.rate.flags
        return tuple(dict.fromkeys(out))


def means_at(curves: Sequence[Curve], ends: Mapping[int, float]) -> dict[int, float]:
    """n -> mean `select` reward over seeds at its C of `ends`."""
    by = {n: by_n([c for c in curves if c.n == n], C)[n] for n, C in ends.items()}
    return {n: sum(v) / len(v) for n, v in by.items()}


def _highest(paths: Mapping[int, np.ndarray]) -> int:
    """The n of the highest mean; ties to the smaller n."""
    return max(paths, key=lambda n: (paths[n].mean(), -n))


def marginal(law: Law, C: float) -> Marginal:
    """What twice C rollouts per run would buy: the best n and its predicted audit reward at each."""
    n, doubled_n = law.best(C), law.best(2 * C)
    return Marginal(float(C), n, law.predict(n, C)[0].value, doubled_n, law.predict(doubled_n, 2 * C)[0])
