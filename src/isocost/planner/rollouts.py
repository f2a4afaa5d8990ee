"""The prescription: the equal set of n, the n to train, its comparator, and the expected reward.

The equal set is every n whose predicted reward is within the margin of the best. From it the n is chosen that needs the
fewest seconds on this machine to reach the same reward. On nearly flat curves a slightly lower reward can need twice
the rollouts, which a slightly cheaper rollout does not pay for. If the law is not identified, a fallback is used and
named.
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
from isocost.planner.study_runs import CAPPED, COMMON, PlannedRun, capped, make_runs, warmup
from isocost.shape import FILLED
from isocost.stats.intervals import Interval
from isocost.words import counted

SPARE = 0.1             # of what training costs, for rollouts that become longer: see `prescribe`
MARGIN = 0.01           # difference in reward below which two n count as equal
EPOCHS_FACTOR = 2.0     # beyond this many times the pilot's epochs a plan extrapolates in epochs too
BESIDE = ("units", "more", "sees", "next", "measure", "evaluating", "growth")   # keys of plan.json beside the plan
IMPORTED = "imported"   # preset of a pilot made from another trainer's logs, which have one split
TIMING_NOISE = 0.05     # relative difference below which two costs count as equal; the better forecast is then taken


@dataclass(frozen=True)
class PlannedArm:
    """One arm to train: sizes, learning rate, and the predicted reward (None without a curve of this n).

    `confidence` is of the arm's mean curve at C, `prediction` of the mean of the planned number of new runs. `epochs`
    are passes over the training problems, `seconds` those of one run with its evaluations (None if not known).
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
    """One condition that a plan must meet."""

    name: str
    holds: bool
    text: str


@dataclass(frozen=True)
class Marginal:
    """The predicted reward at the best n for C rollouts per run, and for 2C."""

    C: float
    n: int
    value: float
    doubled_n: int
    doubled: Interval

    @property
    def gain(self) -> float:
        """Predicted reward at 2C minus that at C."""
        return self.doubled.value - self.value

    def data(self) -> dict[str, Any]:
        """Plain data for JSON, the gain included."""
        return {**asdict(self), "gain": self.gain}

    @staticmethod
    def of(data: Mapping[str, Any]) -> Marginal:
        """The object that `data()` wrote."""
        d = {k: v for k, v in data.items() if k != "gain"}
        return Marginal(**{**d, "doubled": Interval.of(d["doubled"])})


@dataclass(frozen=True)
class Plan:
    """What to train: the prescribed arm first, then its comparator, paired by seed.

    `equal` is the equal set at C; `chosen` says why its n was chosen; `fallback` is empty unless the law is not
    identified, and `settle` says what would resolve that. `turns` is the turn limit of training, None where none was
    planned. `claim` is False if the comparison cannot show that the prescription is better than the default n, because
    the default is in the equal set.
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
    turns: int | None = None

    @property
    def arm(self) -> PlannedArm:
        """The prescribed arm."""
        return self.arms[0]

    @property
    def comparator(self) -> PlannedArm | None:
        """The arm that it is compared with; None if the budget pays for one arm only."""
        return self.arms[1] if len(self.arms) > 1 else None

    @property
    def extrapolation(self) -> float | None:
        """Prescribed C over the pilot's largest; None without a pilot."""
        return self.arm.C / self.pilot_C if self.pilot_C else None

    def data(self) -> dict[str, Any]:
        """Plain data for JSON, with the prescribed arm as `arm` and the extrapolation ratio."""
        parts: dict[str, Any] = {
            "rate": self.rate.data(), "timing": self.timing.data(), "arm": asdict(self.arm), "bill": self.bill.data(),
            "pilot_bill": self.pilot_bill.data(), "runs": [r.data() for r in self.runs],
        }
        out = {"schema": 1, **asdict(self), **parts}
        if self.turns is None:      # as in records from before it
            del out["turns"]
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
    caps: bool = False,
) -> Plan:
    """The plan for the rest of the budget.

    `spent` is the cost of the pilot (by default that of its plan), `problems` the number of training problems, `curves`
    the pilot's runs, for its epochs and for the fallback. Without a budget the size is that of the preset. C per run is
    at most eight times the pilot's largest run, and both arms and all seeds are paid for. `prices` are those of a
    rollout at each n, if they differ (by default the pilot's). If training is one arm, each n is compared at the C that
    the budget pays for at this n.

    With `caps`, runs end at their share of a budget in environment steps or tokens: what is left of it, divided equally
    among them. What a rollout costs in these units changes while training, so C is planned for a tenth less: a run
    ends before C only where its rollouts cost at least `SPARE` more than those that the plan was made from.

    Raises:
        UserError: if nothing of the budget is spent yet and it does not pay for the smallest run; or if what the pilot
            left does not pay for runs as long as its own.
    """
    usable = tuple(c for c in curves if c.purpose == "pilot" and not c.diverged)
    spent = spent or pilot.pilot_bill
    return _Prescriber(law, rate, budget, timing, pilot, usable, spent, problems, margin, prices or {},
                       caps).plan()


@dataclass(frozen=True)
class _Choice:
    """An n for a given C, and why."""

    n: int
    equal: tuple[int, ...]
    chosen: str
    fallback: str = ""
    settle: str = ""


@dataclass(frozen=True)
class _Prescriber:
    """The inputs of a prescription."""

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
    caps: bool = False

    @property
    def capped(self) -> Budget | None:
        """The budget if its runs are capped in its unit, else None."""
        return self.budget if self.caps and self.budget is not None and self.budget.unit in CAPPED else None

    @property
    def identified(self) -> Law | None:
        """The law, if it is identified, else None."""
        return self.law if self.law is not None and self.law.refused is None else None

    def plan(self) -> Plan:
        C, choice = self.size()
        other, comparison, claim = self.compare(choice, C)
        ns = (choice.n, *other)
        arms = tuple(self.arm(n, C, "prescribed" if i == 0 else "comparator") for i, n in enumerate(ns))
        seeds = self.pilot.train_seeds
        (turns,) = self.pilot.turns
        runs = make_runs(self.pilot.seed, "train", ns, self.pilot.B, C, seeds, batch=self.pilot.batch, turns=turns)
        bill = self.bill(ns, C)
        if self.capped is not None:
            runs = capped(runs, self.capped.unit, self.left(bill), [1.0] * len(runs))
        return Plan(
            self.pilot.direct, self.budget, choice.equal, self.margin, choice.chosen, choice.fallback, choice.settle,
            arms, comparison, claim, seeds, runs, self.pilot.train_points(C), self.rate, self.timing, bill, self.spent,
            self.pilot_length(choice.n), self.pilot_epochs(), self.checks(bill, C, arms), self.doubled(choice.n, C),
            (*self.flags(arms[0]), *self.left_over(bill, C, ns), *self.shares(runs[0])), turns,
        )

    def left(self, bill: Bill) -> float:
        """What the pilot left of the budget, in its unit; at least what training is expected to cost."""
        assert self.budget is not None
        name = self.budget.unit
        return max(self.budget.amount - self.spent.of_unit(name), bill.of_unit(name))

    def shares(self, run: PlannedRun) -> tuple[str, ...]:
        """A note on what a run may spend of the budget's unit; none for runs without a cap."""
        if run.cap is None or self.budget is None:
            return ()
        (most,) = run.cap.values()
        then = "" if self.pilot.direct else ": it is then short of the forecast, and the audit answers \"cannot tell\""
        return (f"a run ends at its share of the budget, {most:,.0f} {self.budget.unit}, even before its {run.C:,} "
                f"rollouts, if a rollout costs more than {most / run.C:.3g} {self.budget.unit} on average{then}",)

    def size(self) -> tuple[int, _Choice]:
        """(C per run, choice of n): if both arms share C, each depends on the other, so they are computed in turn."""
        own = self.C_by_n
        if len(set(own.values())) > 1:
            choice = self.choose_each(own)
            self.check_length((choice.n,), own[choice.n])
            return own[choice.n], choice
        C = self.pilot.train_C
        choice = self.choose(C)
        for _ in range(4):
            fits = self.affordable((choice.n, *self.compare(choice, C)[0]))
            if fits == C:
                break
            C, choice = fits, self.choose(fits)
        while (fits := self.affordable((choice.n, *self.compare(choice, C)[0]))) < C:   # the best n changes with C
            C, choice = fits, self.choose(fits)
        self.payable([choice.n])
        self.check_length((choice.n, *self.compare(choice, C)[0]), C)
        return C, choice

    @cached_property
    def C_by_n(self) -> dict[int, int]:
        """n -> the C that the budget pays for, for each n that it pays for; empty if all arms have the same C."""
        law = self.identified
        shared = self.pilot.train_arms > 1 or self.pilot.direct
        if law is None or shared or self.budget is None or self.budget.unit == "rollouts":
            return {}
        return {n: self.affordable((n,)) for n in self.payable(law.ns)}

    def payable(self, ns: Sequence[int]) -> list[int]:
        """The n at which the budget pays for the smallest run. Raises UserError if there is none."""
        if self.budget is None or self.pilot.direct or self.spent.of_unit(self.budget.unit) > 0:
            return list(ns)
        least = {n: self.bill((n,), self.unit()).of_unit(self.budget.unit) for n in ns}
        paid = [n for n in ns if least[n] <= self.budget.amount]
        if not paid:
            raise UserError(f"{self.budget} does not pay for the smallest run, {self.unit():,} rollouts (a whole "
                            f"number of updates of every n): give at least {worded(self.budget, min(least.values()))}")
        return paid

    def check_length(self, ns: tuple[int, ...], C: int) -> None:
        """Raises UserError if what the pilot left does not pay for runs as long as its own; it names the least
        budget."""
        pilots = self.pilot.of_purpose("pilot")
        if self.budget is None or self.pilot.direct or not self.spent.of_unit(self.budget.unit) > 0 or not pilots:
            return
        longest, unit = max(self.pilot_length(n) for n in ns), self.budget.unit
        if longest <= C:
            return
        spent, runs = self.spent.of_unit(unit), counted(len(ns) * self.pilot.train_seeds, "run")
        enough = spent + self.bill(ns, longest).of_unit(unit) * (1 + SPARE if self.capped else 1)
        raise UserError(
            f"the pilot has spent {worded(self.budget, spent, up=False)} of {self.budget}, and what is left does "
            f"not pay for {runs} as long as its own of n = {', '.join(map(str, ns))}, {longest:,} rollouts. A --budget "
            f"of {worded(self.budget, enough)} would"
        )

    def affordable(self, ns: tuple[int, ...]) -> int:
        """The most rollouts per run that what is left pays for, in whole updates of every arm."""
        if self.budget is None or self.pilot.direct:
            return self.pilot.train_C
        unit, name = self.unit(), self.budget.unit
        left = self.budget.amount - self.spent.of_unit(name)
        left /= 1 + SPARE if self.capped else 1
        k = self.furthest(ns) // unit
        while k > 1 and self.bill(ns, k * unit).of_unit(name) > left:
            k = min(k - 1, int(k * max(left, 0.0) / self.bill(ns, k * unit).of_unit(name)) + 1)
        return max(1, k) * unit

    def pilot_length(self, n: int) -> int:
        """Rollouts of the longest pilot run of n, or of any n if it has none; where its runs ended at their share of
        the budget, those that they reached."""
        planned = max((r.C for r in self.pilot.of_purpose("pilot") if r.n == n), default=self.pilot.C)
        reached = max((float(c.C[-1]) for c in self.curves if c.n == n), default=planned)
        return planned if reached > planned - n * self.pilot.B_of(n) else int(reached)

    def furthest(self, ns: Sequence[int]) -> int:
        """The largest C at which all of these n may be forecast: `EXTRAPOLATION` times the pilot's runs of each."""
        lengths = [self.pilot_length(n) for n in ns]
        return max(EXTRAPOLATION * min(lengths), *lengths)

    def left_over(self, bill: Bill, C: int, ns: Sequence[int]) -> tuple[str, ...]:
        """A note if a tenth of the budget is left because forecasts are capped at `EXTRAPOLATION` times the pilot."""
        if self.budget is None or self.pilot.direct:
            return ()
        if self.identified is not None and self.affordable(tuple(ns)) > C:     # another n would be best beyond C
            ns = self.identified.ns
        elif C + self.unit() < self.furthest(ns):
            return ()
        left = self.budget.amount - self.spent.of_unit(self.budget.unit) - bill.of_unit(self.budget.unit)
        if left < self.budget.amount / 10:
            return ()
        lengths = {n: self.pilot_length(n) for n in ns}
        of = f" of n = {min(lengths, key=lambda n: lengths[n])}" if len(set(lengths.values())) > 1 else ""
        return (f"{worded(self.budget, left, up=False)} of {self.budget} are left, because forecasts are capped at "
                f"{EXTRAPOLATION} times the pilot's runs{of}; a longer pilot would use the rest",)

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
        law = self.identified
        if law is not None:
            equal = tuple(law.equal_set(C, self.margin))
            more = law.dearer(C)
            timed = all(self.seconds(n, C) is not None for n in equal)
            cost = {n: more[n] * (self.timing.seconds(n, self.pilot.B_of(n), C) if timed else C) for n in equal}
            cheap = [n for n in equal if cost[n] <= (1 + TIMING_NOISE) * min(cost.values())]
            n = min(cheap, key=lambda k: (more[k], k))
            if len(equal) == 1:
                return _Choice(n, equal, f"n = {n} alone is within {self.margin:g} of the best at {C:,} rollouts")
            names = ", ".join(map(str, equal))
            why = f"n = {names} are within {self.margin:g}, or equal within noise, at {C:,} rollouts"
            if not timed:
                return _Choice(n, equal, f"{why}; n = {n} needs the fewest to the same reward, {cost[n]:.3g} rollouts "
                                         f"a run (the most: {max(cost.values()):.3g})")
            return _Choice(n, equal, f"{why}; n = {n} is the cheapest here, {cost[n]:.3g} s a run "
                                     f"to the same reward (the most expensive: {max(cost.values()):.3g} s)")
        return self.fall_back()

    def choose_each(self, own: Mapping[int, int]) -> _Choice:
        """Every n at its own C, at which all cost the same: the equal set as in `Law.equal_set`, and the best n."""
        paths = self.rewards_at(own)
        n = _highest(paths)
        equal = tuple(k for k, path in paths.items() if (paths[n] - path).mean() <= max(
            self.margin, (paths[n] - path).std()))
        each = ", ".join(f"{C:,} rollouts at n = {k}" for k, C in own.items())
        priced = f"for {self.budget}, which pays for {each}"
        if len(equal) == 1:
            return _Choice(n, equal, f"n = {n} alone is within {self.margin:g} of the best {priced}")
        names = ", ".join(map(str, equal))
        return _Choice(n, equal, f"n = {names} are within {self.margin:g}, or equal within noise, {priced}; the "
                                 f"forecast of n = {n} is the highest")

    def rewards_at(self, own: Mapping[int, int]) -> dict[int, np.ndarray]:
        """The draws (D,) of `select` reward of each n at its own C; without the n that are not known, unless none
        is."""
        law = self.identified
        assert law is not None
        known = {n: C for n, C in own.items() if n not in law.unknown(C)} or own
        return {n: law.paths(n, np.array([float(C)]), SELECT)[:, 0] for n, C in known.items()}

    def doubled(self, n: int, C: int) -> Marginal | None:
        """The gain from twice the budget; None if the law is not identified."""
        law, twice = self.identified, {k: 2 * own for k, own in self.C_by_n.items()}
        if law is None:
            return None
        if len(set(twice.values())) < 2:
            return marginal(law, C)
        later = _highest(self.rewards_at(twice))
        return Marginal(float(C), n, law.predict(n, C)[0].value, later, law.predict(later, twice[later])[0])

    def fall_back(self) -> _Choice:
        """The n without an identified law: the best at the pilot's end, or by the profile's dead groups.

        If no arm improved measurably, the best at the end is noise, so the profile decides.
        """
        flat = self.law is not None and self.law.flat
        n, chosen = self.pilot.fallback_n, self.pilot.fallback_why
        if self.curves and not flat:
            n, chosen = self.best_at_the_end()
        elif self.curves:
            chosen = f"no n improved measurably in the pilot, so its end does not rank n. By the profile: {chosen}"
        refused = self.law.refused if self.law else None
        if refused:
            why = f"{chosen}, because the law is not identified: {refused.reason}"
            return _Choice(n, (n,), chosen, why, refused.settle)
        why = f"there was no pilot: {self.pilot.why}" if self.pilot.direct else "there is no law"
        return _Choice(n, (n,), chosen, f"{chosen}; {why}")

    def best_at_the_end(self) -> tuple[int, str]:
        means = self.end_means()
        n, ends = max(means, key=lambda k: (means[k], -k)), self.ends()
        where = "the pilot's largest common budget"
        if len(set(ends.values())) > 1 and self.budget is not None:
            each = ", ".join(f"{C:,.0f} at n = {k}" for k, C in ends.items())
            where = f"equal {self.budget.unit} of the pilot, {each} rollouts"
        split = "" if self.pilot.preset == IMPORTED else " on the validation split"
        return n, f"n = {n}, best at {where} ({means[n]:.3f}{split})"

    def end_means(self) -> dict[int, float]:
        """n -> mean `select` reward of its pilot runs at the C at which those of every n have cost the same."""
        return means_at(self.curves, self.ends())

    def ends(self) -> dict[int, float]:
        """n -> the largest C at which runs of every n have cost the same in the budget's unit."""
        last = {n: min(float(c.C[-1]) for c in self.curves if c.n == n) for n in sorted({c.n for c in self.curves})}
        unit = self.budget.unit if self.budget else "rollouts"
        each = {n: self.update(n).of_unit(unit) / self.update(n).rollouts for n in last}
        most = min(each[n] * last[n] for n in last)
        return {n: most / each[n] if most > 0 else min(last.values()) for n in last}

    def update(self, n: int) -> Bill:
        """The bill of one update at n, without evaluations."""
        B = self.pilot.B_of(n)
        return self.prices.get(n, self.pilot.prices).bill([(n, B, n * B, 0)], self.timing)

    def compare(self, choice: _Choice, C: int) -> tuple[tuple[int, ...], str, bool]:
        """((n of the comparator) or (), why this one, whether the plan may claim to be better than the default n)."""
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
        return (other,), f"n = {other}; every n tried is as good here, so no win is claimed", False

    def ranked(self, C: int) -> list[int]:
        """The n of the grid, best first: by the law, else by the pilot's end; empty if no run was evaluated."""
        law = self.identified
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
        if self.law is not None and n in self.law.ns:      # also for a fallback: the arm has a curve
            confidence, prediction = self.law.predict(n, C, self.pilot.train_seeds)
        seconds = self.seconds(n, C, 1 + len(self.pilot.train_points(C)))
        lr = self.rate.of_arm(n, B)
        return PlannedArm(role, n, B, M, C, lr, warmup(M), self.epochs(n, C), seconds, confidence, prediction)

    def epochs(self, n: int, C: int) -> float | None:
        return C / (n * self.problems) if self.problems else None

    def pilot_epochs(self) -> float | None:
        """The most passes over the training problems that any pilot run made."""
        epochs = [float(c.epochs[-1]) for c in self.curves if isfinite(c.epochs[-1])]
        if epochs:
            return max(epochs)
        return self.epochs(min(self.pilot.grid), self.pilot.C) if self.pilot.grid else None

    def seconds(self, n: int, C: int, evaluations: int = 0) -> float | None:
        """Seconds of a run; None if no timing is known."""
        return self.timing.seconds(n, self.pilot.B_of(n), C, evaluations) or None

    def checks(self, bill: Bill, C: int, arms: Sequence[PlannedArm]) -> tuple[Check, ...]:
        if self.pilot.direct:
            return ()
        name = self.budget.unit if self.budget else "rollouts"
        cost, whole_cost = self.spent.of_unit(name), self.left(bill) if self.capped else bill.of_unit(name)
        share = cost / whole_cost if whole_cost else float("inf")
        arm, ratio = arms[0], min(self.pilot_length(a.n) for a in arms) / C
        seeds = self.pilot.train_seeds
        further = "no run of the pilot has an evaluation after the base"
        if ratio:
            times = f"{1 / ratio:.3g} times as long as the pilot's longest of these n"
            further = f"prescribed runs are {times} (at most {EXTRAPOLATION})"
        if ratio > 1:
            further = f"the prescribed runs are shorter than the pilot's longest, by {ratio:.3g} times"
        return (
            Check("pilot_share", share <= 0.5,
                  f"the pilot costs {share:.0%} of training in {name} (at most half)"),
            Check("reach", ratio >= 1 / EXTRAPOLATION, further),
            Check("seeds", seeds >= LEAST_SEEDS, f"{counted(seeds, 'seed')} per arm (at least {LEAST_SEEDS})"),
            Check("warmup", arm.warmup <= 0.05 * arm.M,
                  f"{arm.warmup} of {counted(arm.M, 'update')} warm up (at most 5 %)"),
        )

    def flags(self, arm: PlannedArm) -> tuple[str, ...]:
        out = list(self.pilot.flags)
        most = self.pilot_epochs()
        if arm.epochs is not None and most and arm.epochs > EPOCHS_FACTOR * most:
            out.append(f"extrapolates in epochs: {arm.epochs:.1f} passes over the training problems, "
                       f"the pilot made at most {most:.1f}")
        if not self.rate.measured and not self.pilot.direct:
            out.append("the learning rate is " + self.rate.why)
        if self.law is not None:
            out += [f.text for f in self.law.flags]
        out += self.rate.flags
        return tuple(dict.fromkeys(out))


def means_at(curves: Sequence[Curve], ends: Mapping[int, float]) -> dict[int, float]:
    """n -> mean `select` reward over seeds at C = ends[n]."""
    by = {n: by_n([c for c in curves if c.n == n], C)[n] for n, C in ends.items()}
    return {n: sum(v) / len(v) for n, v in by.items()}


def _highest(paths: Mapping[int, np.ndarray]) -> int:
    """The n of the highest mean; ties to the smaller n."""
    return max(paths, key=lambda n: (paths[n].mean(), -n))


def marginal(law: Law, C: float) -> Marginal:
    """The best n and its predicted audit reward at C and at 2C rollouts per run."""
    n, doubled_n = law.best(C), law.best(2 * C)
    return Marginal(float(C), n, law.predict(n, C)[0].value, doubled_n, law.predict(doubled_n, 2 * C)[0])
