"""The prescription: the n to train, how long, what it is compared with, and the expected reward.

Everything is in the unit of the budget: each n gets the length that its share of the budget pays for, and n are
compared there. The n is chosen by expected loss (`planner.choice`). If the law is not identified, a fallback is used
and named. The prescription is compared with the default n, and with the n that was best at the pilot's end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import isfinite
from typing import Any

import numpy as np

from isocost.errors import UserError
from isocost.laws.curves import Curve
from isocost.laws.law import EXTRAPOLATION, SELECT, Law
from isocost.planner.budget import Budget, Prices, Timing, Usage, worded
from isocost.planner.training.choice import Choice, Risk, choose
from isocost.planner.training.learning_rate import RateRule
from isocost.planner.training.pilot import LEAST_SEEDS, PilotPlan
from isocost.planner.training.prescription import Check, Marginal, Plan, PlannedArm
from isocost.planner.training.standing import ahead, ends, means
from isocost.planner.training.study_runs import CAPPED, COMMON, PlannedRun, capped, largest_that, make_runs, warmup
from isocost.runs.arm import Arm
from isocost.screen.words import counted
from isocost.units import ROLLOUTS

SPARE = 0.1             # of what training costs, for rollouts that become longer: see `prescribe`
MARGIN = 0.01           # difference in reward below which two n count as equal
EPOCHS_FACTOR = 2.0     # beyond this many times the pilot's epochs a plan extrapolates in epochs too
IMPORTED = "imported"   # preset of a pilot made from another trainer's logs, which have one split


@dataclass(frozen=True)
class Evidence:
    """What a prescription is made from beside the law and the pilot's plan.

    curves: the pilot's runs, for its epochs and for the fallback. spent: the cost of the pilot, by default that of its
    plan. problems: the number of training problems. prices: those of a rollout at each n, where they differ; by default
    the pilot's.
    """

    curves: Sequence[Curve] = ()
    spent: Usage | None = None
    problems: int | None = None
    prices: Mapping[int, Prices] = field(default_factory=dict)


def prescribe(
    law: Law | None, rate: RateRule, budget: Budget | None, timing: Timing, *, pilot: PilotPlan,
    margin: float = MARGIN, caps: bool = False, **evidence: Any,
) -> Plan:
    """The plan for the rest of the budget; **evidence are fields of `Evidence`.

    Without a budget the size is that of the preset. C per run is at most eight times the pilot's largest run, and both
    arms and all seeds are paid for. If training is one arm, each n is compared at the C that the budget pays for at
    this n. Two n whose rewards differ by at most `margin` count as equal.

    With `caps`, runs end at their share of a budget in environment steps or tokens: what is left of it, divided equally
    among them. What a rollout costs in these units changes while training, so C is planned for a tenth less: a run ends
    before C only where its rollouts cost at least `SPARE` more than those that the plan was made from. Raises UserError
    if nothing of the budget is spent yet and it does not pay for the smallest run; or if what the pilot left does not
    pay for runs as long as its own.
    """
    return _Prescriber(law, rate, budget, timing, pilot, Evidence(**evidence), margin, caps).plan()


@dataclass(frozen=True)
class _Rivals:
    """The n that a prescription is compared with, why these, and whether it may claim to be better than the
    default."""

    ns: tuple[int, ...]
    why: str
    claim: bool


@dataclass(frozen=True)
class _Prescriber:
    """The inputs of a prescription."""

    law: Law | None
    rate: RateRule
    budget: Budget | None
    timing: Timing
    pilot: PilotPlan
    evidence: Evidence
    margin: float
    caps: bool

    @cached_property
    def curves(self) -> tuple[Curve, ...]:
        """The runs that can be compared."""
        return tuple(c for c in self.evidence.curves if c.purpose == "pilot" and not c.diverged)

    @property
    def spent(self) -> Usage:
        """The cost of the pilot."""
        return self.evidence.spent or self.pilot.pilot_bill

    @property
    def capped(self) -> Budget | None:
        """The budget if its runs are capped in its unit, else None."""
        return self.budget if self.caps and self.budget is not None and self.budget.unit in CAPPED else None

    @property
    def identified(self) -> Law | None:
        """The law, if it is identified, else None."""
        return self.law if self.law is not None and self.law.refused is None else None

    @property
    def currency(self) -> str:
        """The unit in which arms cost the same: the budget's."""
        return self.budget.unit if self.budget else ROLLOUTS

    def plan(self) -> Plan:
        choice, rivals, lengths = self.size()
        self.check_length(choice.n, lengths)
        C = lengths[choice.n]
        roles = ("prescribed", "comparator", "leader")
        arms = tuple(self.arm(n, lengths[n], role) for n, role in zip((choice.n, *rivals.ns), roles, strict=False))
        seeds = self.pilot.train_seeds
        (turns,) = self.pilot.turns
        runs = self.runs(arms, seeds, turns)
        bill = self.bill(lengths)
        if self.capped is not None:
            runs = capped(runs, self.capped.unit, self.left(bill), [1.0] * len(runs))
        return Plan(
            self.pilot.direct, self.budget, choice.equal, self.margin, choice.chosen, choice.fallback, choice.settle,
            arms, rivals.why, rivals.claim, seeds, runs, self.pilot.train_points(C), self.rate, self.timing, bill,
            self.spent, self.pilot_length(choice.n), self.pilot_epochs(), self.checks(bill, arms),
            self.doubled(choice.n, len(arms)),
            (*self.flags(arms[0]), *self.left_over(bill, lengths), *self.shares(runs[0])), turns, choice.undecided,
            choice.risk,
        )

    def runs(self, arms: Sequence[PlannedArm], seeds: int, turns: int | None) -> tuple[PlannedRun, ...]:
        """The runs of these arms, seeds outermost, so that an interrupted phase has whole replicates."""
        each = [make_runs(self.pilot.seed, "train", [Arm(n=a.n, B=a.B, turns=turns)], a.C, seeds,
                          (self.pilot.rate_of(a.n),)) for a in arms]
        return tuple(run for replicate in zip(*each, strict=True) for run in replicate)

    def left(self, bill: Usage) -> float:
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

    # how long ------------------------------------------------------------------------------------------------------

    def size(self) -> tuple[Choice, _Rivals, dict[int, int]]:
        """(choice of n, its rivals, n -> rollouts of a run of each arm): arms have equal shares of what is left."""
        many = min(self.pilot.train_arms, 2)
        while True:
            choice = self.choose(many)
            C = self.affordable(choice.n, many)
            rivals = self.rivals(choice, many)
            if 1 + len(rivals.ns) <= many:
                break
            many = 1 + len(rivals.ns)
        return choice, rivals, {choice.n: C} | {k: self.as_dear(k, choice.n, C) for k in rivals.ns}

    def payable(self, ns: Sequence[int]) -> list[int]:
        """The n at which the budget pays for the smallest run. Raises UserError if there is none."""
        if self.budget is None or self.pilot.direct or self.spent.of_unit(self.budget.unit) > 0:
            return list(ns)
        least = {n: self.bill({n: self.unit(n)}).of_unit(self.budget.unit) for n in ns}
        paid = [n for n in ns if least[n] <= self.budget.amount]
        if not paid:
            n = min(ns, key=lambda k: least[k])
            raise UserError(f"{self.budget} does not pay for the smallest run, {self.unit(n):,} rollouts (a whole "
                            f"number of updates): give at least {worded(self.budget, least[n])}")
        return paid

    def check_length(self, n: int, lengths: Mapping[int, int]) -> None:
        """Raises UserError if what the pilot left does not pay for runs as long as its own; it names the least
        budget."""
        pilots = self.pilot.arm_runs
        if self.budget is None or self.pilot.direct or not self.spent.of_unit(self.budget.unit) > 0 or not pilots:
            return
        longest, unit = self.pilot_length(n), self.budget.unit
        if longest <= lengths[n]:
            return
        spent, runs = self.spent.of_unit(unit), counted(len(lengths) * self.pilot.train_seeds, "run")
        needed = self.bill({k: self.as_dear(k, n, longest) for k in lengths}).of_unit(unit)
        enough = spent + needed * (1 + SPARE if self.capped else 1)
        raise UserError(
            f"the pilot has spent {worded(self.budget, spent, up=False)} of {self.budget}, and what is left does "
            f"not pay for {runs} as long as its own of n = {n}, {longest:,} rollouts. A --budget "
            f"of {worded(self.budget, enough)} would"
        )

    def affordable(self, n: int, arms: int) -> int:
        """The most rollouts per run, in whole updates, that n's share of what is left pays for, where
        there are so many arms."""
        if self.budget is None or self.pilot.direct:
            return max(1, self.pilot.train_C // self.unit(n)) * self.unit(n)
        unit, name = self.unit(n), self.budget.unit
        left = (self.budget.amount - self.spent.of_unit(name)) / arms
        left /= 1 + SPARE if self.capped else 1
        k = self.furthest(n) // unit
        while k > 1 and self.bill({n: k * unit}).of_unit(name) > left:
            k = min(k - 1, int(k * max(left, 0.0) / self.bill({n: k * unit}).of_unit(name)) + 1)
        return max(1, k) * unit

    def as_dear(self, n: int, other: int, C: int) -> int:
        """The rollouts of a run of n that costs as much, in the budget's unit, as one of `other` with C rollouts."""
        unit = self.unit(n)
        if self.currency == ROLLOUTS or n == other or self.pilot.direct:
            return max(1, C // unit) * unit
        cost = self.bill({other: C}).of_unit(self.currency)
        return max(1, largest_that(lambda k: self.bill({n: k * unit}).of_unit(self.currency) <= cost)) * unit

    def pilot_length(self, n: int) -> int:
        """Rollouts of the longest pilot run of n, or of any n if it has none; where its runs ended at their share of
        the budget, those that they reached."""
        planned = max((r.C for r in self.pilot.arm_runs if r.n == n), default=self.pilot.C)
        reached = max((float(c.C[-1]) for c in self.curves if c.arm["n"] == n), default=planned)
        return planned if reached > planned - n * self.pilot.B_of(n) else int(reached)

    def furthest(self, n: int) -> int:
        """The largest C at which n may be forecast: `EXTRAPOLATION` times its pilot's runs."""
        return EXTRAPOLATION * self.pilot_length(n)

    def left_over(self, bill: Usage, lengths: Mapping[int, int]) -> tuple[str, ...]:
        """A note if a tenth of the budget is left because forecasts are capped at `EXTRAPOLATION` times the pilot."""
        if self.budget is None or self.pilot.direct:
            return ()
        n, C = next(iter(lengths.items()))
        left = self.budget.amount - self.spent.of_unit(self.budget.unit) - bill.of_unit(self.budget.unit)
        if C + self.unit(n) <= self.furthest(n) or left < self.budget.amount / 10:
            return ()
        return (f"{worded(self.budget, left, up=False)} of {self.budget} are left, because forecasts are capped at "
                f"{EXTRAPOLATION} times the pilot's runs of n = {n}; a longer pilot would use the rest",)

    def unit(self, n: int) -> int:
        """The rollouts that the length of a run of n is a multiple of: the pilot's, else those of its own update."""
        unit, own = self.pilot.unit, n * self.pilot.B_of(n)
        return own if any(unit % (k * self.pilot.B_of(k)) for k in (*self.pilot.grid, n)) else unit

    def bill(self, lengths: Mapping[int, int]) -> Usage:
        """The bill of training: n -> rollouts of each of its runs."""
        sizes = [(n, self.pilot.B_of(n), C, 1 + len(self.pilot.train_points(C)))
                 for n, C in lengths.items() for _ in range(self.pilot.train_seeds)]
        if not self.evidence.prices:
            return self.pilot.prices.bill(sizes, self.timing)
        bills = [self.evidence.prices.get(size[0], self.pilot.prices).bill([size], self.timing) for size in sizes]
        return sum(bills[1:], bills[0])

    # which n -------------------------------------------------------------------------------------------------------

    def choose(self, arms: int) -> Choice:
        """The choice of n where training is so many arms."""
        law = self.identified
        if law is None:
            n = self.fall_back()
            self.payable([n.n])
            return n
        own = {n: self.affordable(n, arms) for n in self.payable(law.ns)}
        behind = ahead(self.curves, self.each)
        paths = self.rewards_at(own)
        seconds = {n: s for n in own if (s := self.seconds(n, own[n])) is not None}
        timed = self.currency == ROLLOUTS and len(seconds) == len(own)
        leader = self.best_at_the_end()[0] if self.curves and not law.flat else None
        made = choose(paths, margin=self.margin, common=COMMON, costs=seconds if timed else None, ahead=behind,
                      leader=leader, where=self.where(own))
        unknown = tuple(n for n in own if n not in paths)
        C = own[made.n]
        risk = Risk(made.risk.reward, law.dearer(C)[made.n] - 1) if made.risk else None
        return replace(made, risk=risk, undecided=tuple(sorted({*made.undecided, *unknown})),
                       chosen="; ".join([made.chosen, *self.crossing(made.n, behind.get(made.n, ()), C)]))

    def where(self, own: Mapping[int, int]) -> str:
        """What the n are compared at, as text."""
        if len(set(own.values())) == 1:
            return f" at {next(iter(own.values())):,} rollouts a run"
        each = ", ".join(f"{C:,} rollouts at n = {k}" for k, C in own.items())
        if any(C + self.unit(k) > self.furthest(k) for k, C in own.items()):
            return f" at no more than {EXTRAPOLATION} times the pilot's runs, {each}"
        return f" at equal {'rollouts' if self.budget is None else self.budget.unit}, {each}"

    def rewards_at(self, own: Mapping[int, int]) -> dict[int, np.ndarray]:
        """The draws (D,) of `select` reward of each n at its own C; without the n that are not known, unless none
        is."""
        law = self.identified
        assert law is not None
        known = {n: C for n, C in own.items() if n not in law.unknown(C)} or own
        return {n: law.paths(n, np.array([float(C)]), SELECT)[:, 0] for n, C in known.items()}

    def crossing(self, n: int, ahead: Sequence[int], C: int) -> list[str]:
        """Where the curve of n passes those of the n that are ahead of it at the pilot's end, as text."""
        law, out = self.identified, []
        for k in ahead:
            assert law is not None
            grid = np.geomspace(law.range[0], C, 60)
            mean = {j: law.paths(j, grid, SELECT).mean(0) for j in (n, k)}
            behind = np.flatnonzero(mean[n] < mean[k])
            at = grid[min(int(behind[-1]) + 1, 59)] if len(behind) else grid[0]
            out.append(f"it is behind n = {k} at the pilot's end and passes it at about {at:,.0f} rollouts")
        return out

    def doubled(self, n: int, arms: int) -> Marginal | None:
        """The gain from twice the budget; None if the law is not identified."""
        law = self.identified
        if law is None:
            return None
        own = {k: self.affordable(k, arms) for k in law.ns}
        paths = self.rewards_at({k: 2 * C for k, C in own.items()})
        later = max(paths, key=lambda k: (paths[k].mean(), -k))
        return Marginal(float(own[n]), n, law.predict(n, own[n])[0].value, later,
                        law.predict(later, 2 * own[later])[0])

    def fall_back(self) -> Choice:
        """The n without an identified law: the best at the pilot's end, or, if none improved, by the profile's dead
        groups."""
        flat = self.law is not None and self.law.flat
        n, chosen = self.pilot.fallback_n, self.pilot.fallback_why
        if self.curves and not flat:
            n, chosen = self.best_at_the_end()
        elif self.curves:
            chosen = f"no n improved measurably in the pilot, so its end does not rank n. By the profile: {chosen}"
        refused = self.law.refused if self.law else None
        if refused:
            why = f"{chosen}, because the law is not identified: {refused.reason}"
            return Choice(n, (n,), chosen, why, refused.settle)
        why = f"there was no pilot: {self.pilot.why}" if self.pilot.direct else "there is no law"
        return Choice(n, (n,), chosen, f"{chosen}; {why}")

    def best_at_the_end(self) -> tuple[int, str]:
        """(n, why): the best of the n with the longest runs, where these have cost the same."""
        longest = self.longest()
        at, reward = ends(longest, self.each), means(longest, self.each)
        n = max(reward, key=lambda k: (reward[k], -k))
        where = "the pilot's largest common budget"
        if len(set(at.values())) > 1 and self.budget is not None:
            each = ", ".join(f"{C:,.0f} at n = {k}" for k, C in at.items())
            where = f"equal {self.budget.unit} of the pilot, {each} rollouts"
        split = "" if self.pilot.preset == IMPORTED else " on the validation split"
        return n, f"n = {n}, best at {where} ({reward[n]:.3f}{split})"

    def longest(self) -> list[Curve]:
        """The curves of the n with the longest runs: where the pilot was continued for several n, those; else all."""
        last = {n: min(float(c.C[-1]) for c in self.curves if c.arm["n"] == n) for n in self.seen}
        continued = {r.n for r in self.pilot.arm_runs if r.first_C} & set(last)
        return [c for c in self.curves if len(continued) < 2 or c.arm["n"] in continued]

    @property
    def seen(self) -> set[int]:
        """The n that have a curve."""
        return {c.arm["n"] for c in self.curves}

    @property
    def each(self) -> dict[int, float]:
        """n -> what a rollout of training costs, in the unit of the budget."""
        return {n: self.update(n).of_unit(self.currency) / self.update(n).rollouts for n in self.seen}

    def update(self, n: int) -> Usage:
        """The bill of one update at n, without evaluations."""
        B = self.pilot.B_of(n)
        return self.evidence.prices.get(n, self.pilot.prices).bill([(n, B, n * B, 0)], self.timing)

    # against what --------------------------------------------------------------------------------------------------

    def rivals(self, choice: Choice, arms: int) -> _Rivals:
        """The default n, or the runner-up where it is prescribed; and the best n at the pilot's end if it is
        another."""
        if self.pilot.train_arms < 2:
            return _Rivals((), "nothing: the budget pays for one arm", False)
        if choice.n != COMMON:
            other, why = COMMON, f"n = {COMMON}, the common default"
        else:
            others = [n for n in self.ranked(arms) if n != COMMON] or [2 * COMMON]
            other, why = others[0], f"n = {others[0]}, the runner-up: the default n = {COMMON} is prescribed"
        claim = choice.n != COMMON and COMMON not in (*choice.equal, *choice.undecided)
        flat = self.law is None or self.law.flat
        best = self.best_at_the_end()[0] if self.curves and not flat else choice.n
        if best in (choice.n, other):
            return _Rivals((other,), why, claim)
        return _Rivals((other, best), f"{why}; and n = {best}, the best at the pilot's end", claim)

    def ranked(self, arms: int) -> list[int]:
        """The n of the grid, best first: by the law, else by the pilot's end; empty if no run was evaluated."""
        law = self.identified
        if law is not None:
            values = {n: law.predict(n, self.affordable(n, arms))[0].value for n in law.ns}
        elif self.curves:
            values = means(self.curves, self.each)
        else:
            return []
        return sorted(values, key=lambda n: (-values[n], n))

    def arm(self, n: int, C: int, role: str) -> PlannedArm:
        B = self.pilot.B_of(n)
        M = C // (n * B)
        confidence, prediction = (None, None)
        if self.law is not None and n in self.law.ns and not self.law.still(n):     # also for a fallback
            confidence, prediction = self.law.predict(n, C, self.pilot.train_seeds)
        seconds = self.seconds(n, C, 1 + len(self.pilot.train_points(C)))
        times = self.pilot.rate_of(n)
        lr = self.rate.of_arm(n, B) if times == 1 else self.rate.at(n * B, times)
        return PlannedArm(role, n, B, M, C, lr, warmup(M), self.epochs(n, C), seconds, confidence, prediction)

    def epochs(self, n: int, C: int) -> float | None:
        return C / (n * self.evidence.problems) if self.evidence.problems else None

    def pilot_epochs(self) -> float | None:
        """The most passes over the training problems that any pilot run made."""
        epochs = [float(c.epochs[-1]) for c in self.curves if isfinite(c.epochs[-1])]
        if epochs:
            return max(epochs)
        return self.epochs(min(self.pilot.grid), self.pilot.C) if self.pilot.grid else None

    def seconds(self, n: int, C: int, evaluations: int = 0) -> float | None:
        """Seconds of a run; None if no timing is known."""
        return self.timing.seconds(n, self.pilot.B_of(n), C, evaluations) or None

    def checks(self, bill: Usage, arms: Sequence[PlannedArm]) -> tuple[Check, ...]:
        if self.pilot.direct:
            return ()
        name = self.budget.unit if self.budget else "rollouts"
        cost, whole_cost = self.spent.of_unit(name), self.left(bill) if self.capped else bill.of_unit(name)
        share = cost / whole_cost if whole_cost else float("inf")
        arm = arms[0]
        ratio = self.pilot_length(arm.n) / arm.C
        seeds = self.pilot.train_seeds
        further = "no run of the pilot has an evaluation after the base"
        if ratio:
            times = f"{1 / ratio:.3g} times as long as the pilot's longest of this n"
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
