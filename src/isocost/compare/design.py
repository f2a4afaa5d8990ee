"""The design of a comparison of methods: what each arm may cost, where it is evaluated, which rates are probed.

Everything that is fixed before anything is trained, and sealed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import ceil, hypot, lcm
from pathlib import Path
from typing import Any

from isocost import methods
from isocost.compare.judge import QUESTIONS, SHARES
from isocost.compare.many import RATE
from isocost.errors import UserError
from isocost.planner.budget import Bill, Budget, Prices, expected_timing
from isocost.planner.evaluation import Evaluation, points
from isocost.planner.learning_rate import MULTIPLIERS, NOISE, RateRule, given, starting_rule
from isocost.planner.study_runs import run_seed, warmup
from isocost.recipe import describe
from isocost.runs import files as records
from isocost.runs.run import compares
from isocost.seams import Recipe
from isocost.stats.power import effect_seen
from isocost.steps.single import settings_of
from isocost.units import UNITS
from isocost.worlds.setting import Setting

SHARE = 1 / 4           # of a run's cost that a probe run may spend: shorter ones favour rates that are too low
MANY = 10               # seeds from which on a rate is probed with two seeds instead of one
LEAST = 16              # updates of a run below which there is nothing to compare, and its probes have four


@dataclass(frozen=True)
class Design:
    """What a comparison of methods will do, fixed before anything is trained.

    `cost` is what each run may spend on training, in `unit`, and `probe_cost` each probe run; `rollouts` and
    `probe_rollouts` what that is expected to be, which places evaluations. `rule` is where the rates begin: each arm
    is probed at `rates`, or at those of its own n B. `seeds` are shared by all arms, `probe_seeds` too. `sd` is what
    runs are assumed to differ by. `n` and `B` are those of all arms but the ones in `sizes`.
    """

    arms: dict[str, str]            # label -> method
    labels: tuple[str, ...]         # in the order given, which JSON does not keep
    recipes: dict[str, Any]         # label -> its recipe, every default bound
    n: int
    B: int
    budget: dict[str, Any]
    unit: str
    cost: float
    probe_cost: float
    rollouts: int
    probe_rollouts: int
    points: tuple[int, ...]
    probe_points: tuple[int, ...]
    rule: dict[str, Any]
    rates: tuple[float, ...]
    seeds: tuple[int, ...]
    probe_seeds: tuple[int, ...]
    margin: float
    metric: str
    sd: float
    parents: dict[str, str] = field(default_factory=dict)   # label -> its parent's, where that alone is asked
    sets: dict[str, dict[str, str]] = field(default_factory=dict)   # label -> its settings, the shared ones among them
    sizes: dict[str, Sequence[int]] = field(default_factory=dict)   # label -> its own n and B

    def recipe(self, label: str) -> dict[str, Any]:
        """An arm's recipe as it is now, every default bound."""
        n, B = self.size(label)
        return dict(describe(arm_recipe(self.arms[label], self.sets.get(label, {}), groups=B, rollouts=n)))

    def size(self, label: str) -> tuple[int, int]:
        """An arm's n and B."""
        n, B = self.sizes.get(label, (self.n, self.B))
        return n, B

    def batch(self, label: str) -> int:
        """An arm's n B, rollouts per update."""
        n, B = self.size(label)
        return n * B

    def rates_at(self, batch: int) -> tuple[float, ...]:
        """The learning rates that arms of so many rollouts per update are probed at."""
        return tuple(RateRule.of(self.rule).at(batch, x) for x in MULTIPLIERS)

    def used(self, label: str, setting: Setting) -> dict[str, Any]:
        """What an arm's runs have of all that is planned for a run, by the names of `isocost.runs.run.PLANNED`."""
        n, B = self.size(label)
        M, sets = self.rollouts // (n * B), self.sets.get(label, {})
        steps = self.recipes[label]["pace"].get("warmup") if "pace.warmup" in sets else warmup(M)
        return {**asdict(setting), "n": n, "B": B, "lr": "tuned", "warmup": steps}

    def alike(self) -> dict[tuple[int, int], list[str]]:
        """The arms of each n and B."""
        out: dict[tuple[int, int], list[str]] = {}
        for label in self.labels:
            out.setdefault(self.size(label), []).append(label)
        return out

    @property
    def pairs(self) -> int:
        """How many pairs of arms are judged."""
        return len(self.parents) or len(self.arms) * (len(self.arms) - 1) // 2

    @property
    def alpha(self) -> float:
        """The error that the first call is held to: at equal cost, or of all answers to all parents."""
        return RATE / (len(QUESTIONS) * self.pairs) if self.parents else SHARES[0] / self.pairs

    def detectable(self, sd: float) -> float:
        """The smallest true difference at equal cost that is told with 80 % power, if runs differ by this much."""
        return effect_seen(len(self.seeds), sd, self.alpha)

    @property
    def total(self) -> float:
        """All that is spent on training and probes, in `unit`."""
        probes = len(self.rates) * len(self.probe_seeds) * self.probe_cost
        return len(self.arms) * (len(self.seeds) * self.cost + probes)

    def data(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return dict(json.loads(records.canonical(asdict(self))))

    @staticmethod
    def of(data: Mapping[str, Any]) -> Design:
        """The design that `data()` wrote."""
        fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
        return Design(**fields)


def arm_recipe(method: str, sets: Mapping[str, str], **sizes: int) -> Recipe:
    """An arm's recipe: the method's at these sizes, else at its own, with its settings."""
    return methods.tuned(methods.recipe(method, **sizes), sets)


def design(arms: Sequence[str], known: Mapping[str, Any], *, budget: str, seeds: int, rollouts: int, groups: int,
           lr: float | None, evaluations: int, margin: float, metric: str, seed: int, samples: int,
           parents: Mapping[str, str], sets: Mapping[str, str], own_sizes: bool = False) -> Design:
    """The design that a budget pays for: of each arm's share a probe of three rates, the rest its runs.

    `known` is a profile, of which lengths, speed and the number of held-out problems are read. With `own_sizes` an arm
    has its method's n and B instead of `rollouts` and `groups`. Runs cost, and are evaluated at, multiples of every
    arm's n B, or of the largest where the budget has no room for such. Raises UserError for a budget that does not pay
    for runs worth comparing, or in a unit that no run can be stopped by.
    """
    labels, spend = labels_of(list(arms), "an arm is compared with others"), Budget.parse(budget)
    if spend.unit not in UNITS:
        raise UserError(f"a comparison's budget is in {', '.join(UNITS)}, which runs can be stopped by; {spend} is "
                        "not: give what it buys")
    if seeds < 2:
        raise UserError("one seed says nothing of how runs differ: give --seeds 2 at the least, 5 or more to see much")
    probe_seeds = 2 if seeds >= MANY else 1
    each = spend.amount / (len(arms) * (seeds + len(MULTIPLIERS) * probe_seeds * SHARE))
    held_out, exact = known["select"] + known["audit"], bool(known["exact"])
    timing = expected_timing(known, held_out, None if exact else samples)
    named = {label: arm_of(arm, sets) for label, arm in zip(labels, arms, strict=True)}
    shared = {} if own_sizes else {"groups": groups, "rollouts": rollouts}
    made = {label: arm_recipe(method, own, **shared) for label, (method, own) in named.items()}
    sizes = {label: (r.rollouts, r.groups) for label, r in made.items()}
    batch = {label: n * B for label, (n, B) in sizes.items()}
    pays = {label: each / arm_prices(made[label], known).bill([(n, B, n * B, 0)], timing).of_unit(spend.unit)
            for label, (n, B) in sizes.items()}     # updates of a run
    size = max(batch.values())
    M = min(pays[label] for label in labels if batch[label] == size)
    if int(M) < LEAST:
        least = ceil(1.001 * LEAST * spend.amount / M)
        raise UserError(f"{spend} over {len(arms)} arms of {seeds} seeds pays for {int(M)} updates of {size} rollouts "
                        f"a run, and {LEAST} is the least: give {least:,.0f} {spend.unit}, or fewer seeds"
                        + ("" if own_sizes else ", or a smaller n or B"))
    common = lcm(*batch.values())
    rollouts_paid = min(pays[label] * batch[label] for label in labels)
    step = common if rollouts_paid / common >= LEAST else size
    room = rollouts_paid / step
    C, probe_C = step * int(room), step * max(int(SHARE * room), 1)
    rule = starting_rule(known["parameters"])
    if lr is not None:
        rule = given(lr, rollouts * groups)
    counted = spend.unit == "rollouts"
    at = points(C, step, 1)[-evaluations:]
    beyond = () if counted else (2 * C,)     # answers that grow shorter leave room for more rollouts
    d = Design(
        arms={label: method for label, (method, _) in named.items()}, labels=tuple(labels), recipes={},
        sets={label: own for label, (_, own) in named.items() if own},
        sizes={label: own for label, own in sizes.items() if own != (rollouts, groups)},
        n=rollouts, B=groups, budget=spend.data(), unit=spend.unit,
        cost=float(C) if counted else each, probe_cost=float(probe_C) if counted else SHARE * each,
        rollouts=C, probe_rollouts=probe_C, points=(*at, *beyond),
        probe_points=points(probe_C, step, 0), rule=rule.data(),
        rates=tuple(rule.at(rollouts * groups, x) for x in MULTIPLIERS),
        seeds=tuple(run_seed(seed, "train", i) for i in range(seeds)),
        probe_seeds=tuple(run_seed(seed, "probe", i) for i in range(probe_seeds)),
        margin=margin, metric=metric,
        sd=hypot(NOISE, Evaluation(known["audit"], None if exact else samples).sd),
        parents={label: labels[list(arms).index(parents[arm])] for label, arm in zip(labels, arms, strict=True)
                 if arm in parents},
    )
    return replace(d, recipes={label: d.recipe(label) for label in labels})


def expected(d: Design, known: Mapping[str, Any], samples: int) -> Bill:
    """What a design is expected to cost here."""
    timing = expected_timing(known, known["select"] + known["audit"], None if known["exact"] else samples)
    probe, run = (d.probe_rollouts, 1 + len(d.probe_points)), (d.rollouts, 1 + len(d.points))
    probes, runs = len(d.rates) * len(d.probe_seeds), len(d.seeds)
    bills = []
    for label in d.labels:
        n, B = d.size(label)
        prices = arm_prices(arm_recipe(d.arms[label], d.sets.get(label, {}), groups=B, rollouts=n), known)
        bills.append(prices.bill([*[(n, B, *probe)] * probes, *[(n, B, *run)] * runs], timing))
    return sum(bills[1:], bills[0])


def arm_prices(recipe: Recipe, known: Mapping[str, Any]) -> Prices:
    return Prices.of(known, compares=compares(recipe))


# arms -------------------------------------------------------------------------------------------------------


def arm_of(name: str, shared: Mapping[str, str] | None = None) -> tuple[str, dict[str, str]]:
    """The method that an arm's name gives, and its settings: METHOD, or METHOD@SEAM.NAME=VALUE,SEAM.NAME=VALUE.

    `shared` are the settings of all arms; an arm's own come after them. Raises UserError for one without a value.
    """
    method, own = methods.parted(name)
    return method, {**(shared or {}), **settings_of(own.split(",") if own else (), name)}


def labels_of(names: Sequence[str], said: str) -> list[str]:
    """Short names for arms: the last part of each, or all of it where two are alike."""
    short = [_short(n) for n in names]
    out = short if len(set(short)) == len(short) else [str(n).replace("/", "_") for n in names]
    if len(set(out)) < len(out):
        raise UserError(f"{next(n for n in names if list(names).count(n) > 1)} is given twice: {said}")
    return out


def _short(name: str) -> str:
    """The last part of a folder or file's name; a method's settings as they are, but for what parts folders."""
    path, settings = methods.parted(name)
    last = Path(path).stem if path.endswith(".py") else Path(path).name
    return f"{last}@{settings.replace('/', '_')}" if settings else last
