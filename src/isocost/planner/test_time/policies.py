"""Train or think: the policies of a study with what they took to train, and the goal of a plan whose answers share it.

Q answers by a policy with a strategy cost C + Q c: C to train it, c to answer once. A plan for Q answers counts
C / Q + c for each, so that a policy that was trained longer competes with more samples of one that was not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
from numpy import ndarray

from isocost.errors import UserError
from isocost.planner.budget import Budget, Machine
from isocost.planner.frontier import Pair, PolicyFrontier
from isocost.planner.test_time.choice import WORTH
from isocost.planner.test_time.estimates import Measured
from isocost.planner.test_time.foretold import FORETOLD
from isocost.planner.test_time.pool import Parts, Pool
from isocost.planner.test_time.prescribe import AnswerGoal, BandStrategy, StrategyPlan, candidates
from isocost.runs.schema import Costs
from isocost.screen.words import grouped
from isocost.units import CURRENCIES, FLOPS, SECONDS

BASE = "base"       # the study's own model, for people
AROUND = (0.01, 1.0, 100.0)     # of the answers that were asked for: numbers of answers of which staircases are shown


@dataclass(frozen=True)
class PolicyCost:
    """What a policy took. `name` is empty for the study's own model, whose training is not counted.

    training: the bill of a run, the mean of `runs`, or without any what it would take. parameters, learned: as of
    `Cost.flops`; 0 where not known. rate: busy seconds of plain sampling for a token written.
    """

    name: str
    runs: tuple[str, ...]
    training: Costs
    parameters: float
    learned: float
    rate: float

    def worth(self, unit: str, price: str | None) -> Mapping[str, float] | None:
        """What each count of a cost is worth in a unit, by its name in `Cost`; None where that is not known."""
        took = self.training
        if unit == FLOPS:
            forward = 2.0 * self.parameters
            known = self.parameters and (took.train or took.decode or not (took.seconds or took.rollouts))
            return {"prefill": forward, "decode": forward, "score": forward, "reread": -forward,
                    "train": 2 * forward + 2.0 * (self.learned or self.parameters)} if known else None
        found = {SECONDS: {"seconds": 1.0}} if price is None else Machine.priced(price, 1, 1).worth
        of_tokens = "decode" in found.get(unit, {})
        lacks = (of_tokens and self.training.train and "train" not in found[unit]) or (not of_tokens and not self.rate)
        return None if lacks else found.get(unit)

    def trained(self, unit: str, price: str | None) -> float | None:
        """The cost of its training; None where that is not known."""
        each = self.worth(unit, price)
        return None if each is None else sum(x * getattr(self.training, k, 0.0) for k, x in each.items())

    def answered(self, unit: str, price: str | None, pool: Pool, m: Measured) -> ndarray | None:
        """(P,) the cost of an answer, which reads its prompt once for each sample; None where that is not known."""
        each, read = self.worth(unit, price), 0.0 if pool.read is None else pool.read
        counts = {"prefill": m.samples * read, "decode": m.tokens, "seconds": m.tokens * self.rate}
        return None if each is None else np.asarray(sum(each[k] * x for k, x in counts.items() if k in each))


@dataclass(frozen=True)
class SharedGoal(AnswerGoal):
    """A goal for many answers, of which each bears its share of the training; `amount` is for one of them."""

    policies: tuple[PolicyCost, ...] = ()

    @staticmethod
    def shared(
        answers: float, budget: str | None, accuracy: float | None, price: str | None, policies: Sequence[PolicyCost]
    ) -> SharedGoal:
        """The ask in a user's words: a budget for training and all answers, an accuracy, or neither, which is the most
        accurate. Raises UserError for both, and for a unit in which not every policy's cost is known."""
        if budget is not None and accuracy is not None:
            raise UserError("name one of --budget and --accuracy, or neither: the most accurate is then chosen")
        if budget is not None and "/" in budget:
            raise UserError(f"the budget {budget!r}: with --answers it is of training and all answers, such as "
                            "1e15flop, 20usd or 8h")
        currency = "" if price is None else Machine.priced(price, 1, 1).currency
        found = None if budget is None else Budget.parse(budget)
        if found is not None and found.unit not in (FLOPS, SECONDS, *CURRENCIES):
            raise UserError(f"the budget {budget!r}: training and answers are counted together in FLOP, time or money, "
                            "such as 1e15flop, 8h or 20usd")
        unit = found.unit if found is not None else currency or FLOPS
        if lacks := [p.name or BASE for p in policies if p.worth(unit, price) is None]:
            hours = f"2.5{unit}/device-hour, or " if all(p.rate for p in policies) else ""     # seconds are known
            why = {FLOPS: "the number of parameters, or of tokens of the training, is not known: name --price",
                   SECONDS: "no time was measured"}.get(
                unit, f"--price is {price!r}, and it takes {hours}a price of tokens with 0.40{unit}/M-train")
            raise UserError(f"the cost of {', '.join(lacks)} in {unit} is not known: {why}")
        text = f"{grouped(answers)} answers" + (f" within {budget.strip()}" if budget else "") + (
            "" if accuracy is None else f", accuracy {accuracy:g}")
        amount = None if accuracy is not None else inf if found is None else found.amount / answers
        return SharedGoal(amount, unit, accuracy, price, None, text, answers, tuple(policies))

    def policy(self, arm: str) -> PolicyCost:
        """That of an arm; settings other than the study's are of its own model."""
        return next((p for p in self.policies if p.name == arm), self.policies[0])

    def answer(self, pool: Pool, found: Measured) -> ndarray:
        """(P,) the cost of an answer without training."""
        cost = self.policy(found.arm).answered(self.unit, self.price, pool, found)
        assert cost is not None     # `shared` has refused what is not known
        return cost

    def costs(self, pool: Pool, found: Measured) -> ndarray:
        """(P,) the cost of an answer with its share of the training."""
        training = self.policy(found.arm).trained(self.unit, self.price) or 0.0
        return self.answer(pool, found) + training / self.answers


@dataclass(frozen=True)
class FrontierStep:
    """A step of a staircase: no cheaper pair is as accurate, in this `share` of the draws over problems and seeds.

    training, answer: costs in the table's unit, of one answer. total: of all, by unit, where it is known.
    """

    policy: str
    strategy: str
    accuracy: float
    low: float
    high: float
    training: float
    answer: float
    total: dict[str, float]
    share: float


@dataclass(frozen=True)
class Staircase:
    """The pairs that no other one beats in cost and accuracy, for so many answers."""

    answers: float
    steps: tuple[FrontierStep, ...]


@dataclass(frozen=True)
class Pays:
    """Answers from which training `policy` pays, against all that were trained less, for what it reaches by `strategy`,
    or for the accuracy that was asked for; with a 90 % interval. None: it never does."""

    policy: str
    strategy: str
    accuracy: float
    answers: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class FrontierTable:
    """Train or think for `answers`: staircases by number of answers, the shares of the draws in which the goal's choice
    is of each policy, and from how many answers each training pays. `policies` have their costs."""

    answers: float
    unit: str
    price: str | None
    policies: tuple[PolicyCost, ...]
    staircases: tuple[Staircase, ...]
    shares: dict[str, float]
    pays: tuple[Pays, ...]

    @property
    def steps(self) -> tuple[FrontierStep, ...]:
        """The staircase of the answers that were asked for."""
        return next(s.steps for s in self.staircases if s.answers == self.answers)


def frontier_table(parts: Parts, strategies: Sequence[str], ask: SharedGoal, seed: int, live: Sequence[Measured]) -> (
        FrontierTable):
    """The frontier of the policies of a study, on its validation split. `live` has what was run, or is foretold."""
    pool, unit = parts.select, ask.unit
    found = candidates(parts, strategies, ask, seed, live)
    pairs, of = [], dict[str, Measured]()
    for m in found:
        policy = ask.policy(m.arm)
        pair = Pair(
            policy=policy.name or BASE, strategy=m.label.removesuffix(f"@{policy.name}"),
            training=policy.trained(unit, ask.price) or 0.0, answer=float(ask.answer(pool, m).mean()),
            right=m.accuracy[None] if m.runs is None else m.runs, foretold=m.how == FORETOLD)
        pairs.append(pair)
        of[pair.name] = m
    made = PolicyFrontier(pairs, seed=seed)

    def step(p: Pair, answers: float) -> FrontierStep:
        m, policy, total = of[p.name], ask.policy(of[p.name].arm), dict[str, float]()
        currency = [] if ask.price is None else [Machine.priced(ask.price, 1, 1).currency]
        for other in dict.fromkeys((unit, FLOPS, *currency, SECONDS)):
            each = policy.answered(other, ask.price, pool, m)
            if each is not None and (training := policy.trained(other, ask.price)) is not None:
                total[other] = training + answers * float(each.mean())
        return FrontierStep(p.policy, p.strategy, p.accuracy, *made.interval(p), p.training, p.answer, total,
                            made.better(p, answers))

    staircases = tuple(Staircase(q, tuple(step(p, q) for p in made.staircase(q, WORTH)))
                       for q in (ask.answers * x for x in AROUND) if q >= 1)
    return FrontierTable(ask.answers, unit, ask.price, ask.policies, staircases,
                         made.chosen(ask.rule(pool.exact), ask.answers), tuple(_pays(made, ask.accuracy)))


def rivals(plan: StrategyPlan, parts: Parts, ask: SharedGoal) -> list[BandStrategy]:
    """What the goal would choose of each policy alone, but of the one that is planned."""
    out, exact = [], parts.select.exact
    for name in (p.name for p in ask.policies if p.name != ask.policy(plan.each[0].arm).name):
        own = [c for c in plan.candidates if ask.policy(c.arm).name == name]
        cost = np.array([c.cost for c in own])
        if (cost <= (inf if ask.amount is None else ask.amount)).any():
            c = own[ask.rule(exact)(np.array([c.accuracy for c in own]), cost)]
            out.append(BandStrategy("all", c.strategy, c.size, len(parts.select.ids), c.arm))
    return out


def _pays(made: PolicyFrontier, wanted: float | None) -> list[Pays]:
    """For each trained policy, for the accuracy `wanted`, else for what it reaches with one sample and at its best."""
    out, training = [], {p.policy: p.training for p in made.pairs}
    for more in made.policies:
        less = [name for name in made.policies if training[name] < training[more]]
        own = [p for p in made.pairs if p.policy == more]
        best = max(own, key=lambda p: (p.accuracy, -p.answer))
        one = next(p for p in own if p.strategy == "one")
        targets = [wanted] if wanted is not None else list({p.strategy: p for p in (one, best)}.values())
        for target in targets if less else ():
            found = made.break_even(less, more, target)
            if found.answers is None or found.interval is None:
                continue        # it does not reach it
            numbers = [None if x == inf else x for x in (found.answers, *found.interval)]
            out.append(Pays(more, target.strategy if isinstance(target, Pair) else "", found.accuracy, *numbers))
    return out
