"""The design of a comparison of methods: the cost of each arm, its evaluation points, the learning rates to probe.

The design is fixed and sealed before anything is trained.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import ceil, hypot, lcm
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar

from isocost import methods
from isocost.compare.judge import MARGIN, QUESTIONS, SHARES
from isocost.compare.many import RATE
from isocost.errors import UserError
from isocost.laws.curves import PASS
from isocost.planner.budget import Budget, Prices, Usage, expected_timing
from isocost.planner.evaluation import EvaluationPlan, points
from isocost.planner.training.learning_rate import MULTIPLIERS, NOISE, RateRule, given, starting_rule
from isocost.planner.training.study_runs import TRAINED_ARM, run_seed, warmup
from isocost.recipe import describe
from isocost.runs import files as records
from isocost.runs.arm import Arm
from isocost.runs.job import compares
from isocost.screen.words import counted
from isocost.seams import Recipe
from isocost.stats.power import detectable_in_comparison
from isocost.steps.training.single import settings_of
from isocost.units import UNITS
from isocost.worlds.setting import Setting

SHARE = 1 / 4           # cost of a probe run over that of a run: shorter probes favour rates that are too low
MANY = 10               # seeds from which a learning rate is probed with two seeds instead of one
SIZES = {"n": "rollouts", "B": "groups"}    # of an arm, by their names in a recipe
LEAST = 16              # least updates of a run; its probes then have four


@dataclass(frozen=True)
class Conditions:
    """What every arm of a comparison has.

    budget: the cost of all probes and runs, with a unit. seeds: runs per arm, paired by seed.
    rollouts, groups: n and B (default 8 and 16). lr: where the learning-rate probe starts; None: by the model's size.
    evaluations: of a run. margin: the difference in reward below which two arms count as the same. metric: what rewards
    are. seed: of everything that is drawn at random.

    Raises UserError without a budget, and for fewer than two seeds.
    """

    budget: str
    seeds: int = 5
    rollouts: int | None = None
    groups: int | None = None
    lr: float | None = None
    evaluations: int = 8
    margin: float = MARGIN
    metric: str = PASS
    seed: int = 0

    def __post_init__(self) -> None:
        if self.budget is None:
            raise UserError("a comparison trains its arms and needs a --budget for all of them, such as 200k-rollouts")
        if self.seeds < 2:
            raise UserError(f"--seeds {self.seeds}: the spread between runs needs at least 2 seeds per arm; use 5 or "
                            "more for a useful power")

    @property
    def arm(self) -> Arm:
        """n and B."""
        return Arm(n=self.rollouts or Recipe.rollouts, B=self.groups or Recipe.groups)

    @property
    def spend(self) -> Budget:
        """The budget of the whole comparison. Raises UserError for a text that is none."""
        return Budget.parse(self.budget)

    def seeds_of(self, purpose: str) -> tuple[int, ...]:
        """The seeds of the runs or of the probes of every arm."""
        many = self.seeds if purpose == "train" else 2 if self.seeds >= MANY else 1
        return tuple(run_seed(self.seed, purpose, i) for i in range(many))

    def each(self, arms: int) -> float:
        """The training budget of each run: equal shares for all arms, each for its probes and its runs."""
        probes = len(MULTIPLIERS) * len(self.seeds_of("probe")) * SHARE
        return self.spend.amount / (arms * (self.seeds + probes))


@dataclass(frozen=True)
class Design:
    """What a comparison of methods will do, fixed before anything is trained.

    `cost` is the training budget of each run and `probe_cost` that of each probe run, in `unit`. `rollouts` and
    `probe_rollouts` are the rollouts expected for it; evaluations are at `points` and `probe_points`, in rollouts.
    `rule` gives the learning rates to probe: `rates`, or others for an arm with its own n B. All arms share `seeds` and
    `probe_seeds`. `margin` and `sd`, the standard deviation assumed between runs, are in reward. `arm` has the n and B
    of all methods except the ones in `sizes`.
    """

    arms: dict[str, str]            # label -> method
    labels: tuple[str, ...]         # in the order given; JSON objects do not keep it
    recipes: dict[str, Any]         # label -> its recipe with all defaults
    arm: Annotated[Arm, TRAINED_ARM]
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
    parents: dict[str, str] = field(default_factory=dict)   # label -> its parent's, if judged against it only
    sets: dict[str, dict[str, str]] = field(default_factory=dict)   # label -> its settings and the shared ones
    sizes: dict[str, Annotated[Arm, TRAINED_ARM]] = field(default_factory=dict)     # label -> its own n and B
    OLDER: ClassVar = {"arm": TRAINED_ARM, "sizes": dict[str, list[int]]}

    def recipe(self, label: str) -> dict[str, Any]:
        """An arm's recipe by the code of now, with all defaults."""
        return dict(describe(arm_recipe(self.arms[label], self.sets.get(label, {}), self.size(label))))

    def size(self, label: str) -> Arm:
        """The n and B of a method."""
        return self.sizes.get(label, self.arm)

    def batch(self, label: str) -> int:
        """An arm's n B, rollouts per update."""
        return int(self.size(label)["n"] * self.size(label)["B"])

    def rates_at(self, batch: int) -> tuple[float, ...]:
        """The learning rates probed for arms of `batch` rollouts per update."""
        return tuple(RateRule.of(self.rule).at(batch, x) for x in MULTIPLIERS)

    def used(self, label: str, setting: Setting) -> dict[str, Any]:
        """The planned values of an arm's runs, by the names of `isocost.runs.job.PLANNED`."""
        M, sets = self.rollouts // self.batch(label), self.sets.get(label, {})
        steps = self.recipes[label]["pace"].get("warmup") if "pace.warmup" in sets else warmup(M)
        return {**setting.to_dict(), **self.size(label), "lr": "tuned", "warmup": steps}

    def alike(self) -> dict[Arm, list[str]]:
        """The methods by n and B."""
        out: dict[Arm, list[str]] = {}
        for label in self.labels:
            out.setdefault(self.size(label), []).append(label)
        return out

    @property
    def pairs(self) -> int:
        """The number of pairs of arms that are judged."""
        return len(self.parents) or len(self.arms) * (len(self.arms) - 1) // 2

    @property
    def alpha(self) -> float:
        """The error rate of the first difference: at equal cost, or over all answers in a comparison with parents."""
        return RATE / (len(QUESTIONS) * self.pairs) if self.parents else SHARES[0] / self.pairs

    def detectable(self, sd: float) -> float:
        """Minimum detectable difference at equal cost (80 % power) for a standard deviation `sd` between runs."""
        return detectable_in_comparison(len(self.seeds), sd, self.alpha)

    @property
    def total(self) -> float:
        """The cost of all runs and probes, in `unit`."""
        probes = len(self.rates) * len(self.probe_seeds) * self.probe_cost
        return len(self.arms) * (len(self.seeds) * self.cost + probes)

    def data(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return dict(json.loads(records.canonical(asdict(self))))

    @staticmethod
    def of(data: Mapping[str, Any]) -> Design:
        """The design that `data()` wrote, in this or an earlier format."""
        fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
        own = {label: size_of(data, label) for label in data.get("sizes", {})}
        return Design(**{k: v for k, v in fields.items() if k not in SIZES} | {"arm": Arm.of(data), "sizes": own})


def size_of(design: Mapping[str, Any], label: str) -> Arm:
    """The n and B of a method in the data of a design, of this or an earlier format."""
    own = design.get("sizes", {}).get(label)
    if own is None:
        return Arm.of(design)
    return Arm(own if isinstance(own, Mapping) else dict(zip(SIZES, own, strict=True)))


def arm_recipe(method: str, sets: Mapping[str, str], size: Mapping[str, float] = MappingProxyType({})) -> Recipe:
    """A method's recipe with these settings, at this n and B if given, else at its own."""
    return methods.tuned(methods.recipe(method, **{SIZES[k]: int(v) for k, v in size.items()}), sets)


def design(arms: Sequence[str], known: Mapping[str, Any], common: Conditions, *, samples: int,
           parents: Mapping[str, str] = MappingProxyType({}), sets: Mapping[str, str] = MappingProxyType({}),
           own_sizes: bool = False) -> Design:
    """The design that a budget pays for: equal shares for all arms, each for a probe of three rates and its runs.

    `known` is a profile with the completions' lengths, the speed and the number of held-out problems, of which each has
    `samples` completions. With `own_sizes` an arm has its method's n and B instead of those in `common`. Runs cost, and
    are evaluated at, multiples of every arm's n B, or of the largest n B if the budget is too small for that.

    Raises UserError for a budget that is too small, or in a unit that cannot stop a run.
    """
    labels, spend, shared = labels_of(arms), common.spend, common.arm
    if spend.unit not in UNITS:
        raise UserError(f"a comparison needs a budget in {', '.join(UNITS)}, because runs stop by one of these; "
                        f"got {spend}")
    each = common.each(len(arms))
    held_out, exact = known["select"] + known["audit"], bool(known["exact"])
    timing = expected_timing(known, held_out, None if exact else samples)
    named = {label: arm_of(arm, sets) for label, arm in zip(labels, arms, strict=True)}
    made = {label: arm_recipe(method, own, {} if own_sizes else shared) for label, (method, own) in named.items()}
    sizes = {label: Arm(n=r.rollouts, B=r.groups) for label, r in made.items()}
    batch = {label: r.rollouts * r.groups for label, r in made.items()}
    update = {label: arm_prices(r, known).bill([(r.rollouts, r.groups, batch[label], 0)], timing)
              for label, r in made.items()}
    pays = {label: each / cost.of_unit(spend.unit) for label, cost in update.items()}       # updates of a run
    size = max(batch.values())
    M = min(pays[label] for label in labels if batch[label] == size)
    if int(M) < LEAST:
        least = ceil(1.001 * LEAST * spend.amount / M)
        updates = counted(int(M), "update")
        raise UserError(f"{spend} over {len(arms)} arms of {common.seeds} seeds pays for {updates} of {size:,} "
                        f"rollouts a run; the minimum is {LEAST}: give {least:,.0f} {spend.unit}, or fewer seeds"
                        + ("" if own_sizes else ", or a smaller n or B"))
    whole = lcm(*batch.values())
    rollouts_paid = min(pays[label] * batch[label] for label in labels)
    step = whole if rollouts_paid / whole >= LEAST else size
    room = rollouts_paid / step
    C, probe_C = step * int(room), step * max(int(SHARE * room), 1)
    shared_batch = int(shared["n"] * shared["B"])
    rule = starting_rule(known["parameters"], own=known.get("starting_rate"), adapter="learned" in known)
    if common.lr is not None:
        rule = given(common.lr, shared_batch)
    in_rollouts = spend.unit == "rollouts"
    at = points(C, step, 1)[-common.evaluations:]
    beyond = () if in_rollouts else (2 * C,)     # if completions get shorter, the budget pays for more rollouts
    d = Design(
        arms={label: method for label, (method, _) in named.items()}, labels=tuple(labels), recipes={},
        sets={label: own for label, (_, own) in named.items() if own},
        sizes={label: own for label, own in sizes.items() if own != shared},
        arm=shared, budget=spend.data(), unit=spend.unit,
        cost=float(C) if in_rollouts else each, probe_cost=float(probe_C) if in_rollouts else SHARE * each,
        rollouts=C, probe_rollouts=probe_C, points=(*at, *beyond),
        probe_points=points(probe_C, step, 0), rule=rule.data(),
        rates=tuple(rule.at(shared_batch, x) for x in MULTIPLIERS),
        seeds=common.seeds_of("train"), probe_seeds=common.seeds_of("probe"),
        margin=common.margin, metric=common.metric,
        sd=hypot(NOISE, EvaluationPlan(known["audit"], None if exact else samples).sd),
        parents={label: labels[list(arms).index(parents[arm])] for label, arm in zip(labels, arms, strict=True)
                 if arm in parents},
    )
    return replace(d, recipes={label: d.recipe(label) for label in labels})


def expected(d: Design, known: Mapping[str, Any], samples: int) -> Usage:
    """The expected cost of a design on this machine."""
    timing = expected_timing(known, known["select"] + known["audit"], None if known["exact"] else samples)
    probe, run = (d.probe_rollouts, 1 + len(d.probe_points)), (d.rollouts, 1 + len(d.points))
    probes, runs = len(d.rates) * len(d.probe_seeds), len(d.seeds)
    bills = []
    for label in d.labels:
        recipe = arm_recipe(d.arms[label], d.sets.get(label, {}), d.size(label))
        size = recipe.rollouts, recipe.groups
        bills.append(arm_prices(recipe, known).bill([*[(*size, *probe)] * probes, *[(*size, *run)] * runs], timing))
    return sum(bills[1:], bills[0])


def arm_prices(recipe: Recipe, known: Mapping[str, Any]) -> Prices:
    """What a rollout of an arm costs."""
    return Prices.of_profile(known, compares=compares(recipe))


# arms -------------------------------------------------------------------------------------------------------


def arm_of(name: str, shared: Mapping[str, str] | None = None) -> tuple[str, dict[str, str]]:
    """The method and the settings of an arm named METHOD or METHOD@SEAM.NAME=VALUE,SEAM.NAME=VALUE. `shared` are the
    settings of all arms; an arm's own override them. Raises UserError for one without a value."""
    method, own = methods.parted(name)
    return method, {**(shared or {}), **settings_of(own.split(",") if own else (), name)}


def labels_of(names: Sequence[str]) -> list[str]:
    """Short names for arms: the last part of each path, or the whole path if two are alike. Raises UserError for an arm
    that is given twice."""
    short = [_short(n) for n in names]
    out = short if len(set(short)) == len(short) else [str(n).replace("/", "_") for n in names]
    if len(set(out)) < len(out):
        raise UserError(f"{next(n for n in names if list(names).count(n) > 1)} is given twice: arms must differ")
    return out


def _short(name: str) -> str:
    """The last part of a path, without .py; a method's settings are kept, with / replaced by _."""
    path, settings = methods.parted(name)
    last = Path(path).stem if path.endswith(".py") else Path(path).name
    return f"{last}@{settings.replace('/', '_')}" if settings else last
