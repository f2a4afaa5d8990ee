"""The runs of a study: sizes, seeds, presets, and the compute at which runs are evaluated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from math import floor, lcm
from typing import Annotated, Any, ClassVar, Self

from isocost.chance import Purpose, generator
from isocost.disk.shape import Keys, Plain
from isocost.planner.training.learning_rate import RateRule
from isocost.runs.arm import Arm
from isocost.units import ENV_STEPS, TOKENS, of_run

COMMON = 8              # the default n that a prescription is compared with
WARMUP_SHARE, WARMUP_MOST = 0.05, 10
CAPPED = (ENV_STEPS, TOKENS)    # units in which a rollout's cost changes while training: a budget in one caps each run
SIZES = ("n", "B")      # of an arm, which a plan compares
TRAINED_ARM = Keys({"n": int, "B": int}, {"turns": int | None}, rest=float)     # `turns`: training's own limit
RUN_ARM = TRAINED_ARM.needing(multiplier=float)
_ORDER = ("probe", "pilot", "edge", "train")


@dataclass(frozen=True)
class Preset:
    """A study's shape and, without a budget, its size. `C` are rollouts per run."""

    grid: tuple[int, ...]
    B: int
    C: int
    seeds: int
    probe_C: int
    probe_seeds: int
    edge_seeds: int
    train_C: int
    train_seeds: int
    batch: int | None = None    # n B if it is fixed; B is then that of the default n
    evaluation_share: float | None = None       # largest cost of evaluations over training; None: the default

    def B_of(self, n: int) -> int:
        """Problems per update of arm n."""
        return problems_of(n, self.B, self.batch)

    def arms(self, ns: Sequence[int], turns: int | None) -> list[Arm]:
        """The arms of these n at a turn limit."""
        return arms_of(ns, self.B, self.batch, turns)

    @property
    def unit(self) -> int:
        """The fewest rollouts that are a whole number of updates for every n, and for the default n."""
        return self.batch or whole(self.grid, self.B)


def problems_of(n: int, B: int, batch: int | None = None) -> int:
    """Problems per update at n: B, or batch / n if `batch` = n B is fixed."""
    return batch // n if batch else B


GENERAL = {      # presets that no world has for itself
    "tiny": Preset((2, 4, 8), 1, 32, 2, 16, 1, 1, 184, 3),
    "quick": Preset((2, 4, 8, 16, 32), 8, 10240, 3, 4096, 1, 1, 40960, 6),
    "standard": Preset((2, 4, 8, 16, 32), 8, 16384, 5, 8192, 2, 2, 131072, 5),
    "long": Preset((2, 4, 8, 16, 32), 8, 65536, 3, 4096, 1, 1, 524288, 3),
}


class OfArm:
    """What has an arm of training, and its values by name."""

    arm: Arm

    @property
    def n(self) -> int:
        """Rollouts per problem."""
        return int(self.arm["n"])

    @property
    def B(self) -> int:
        """Problems per update."""
        return int(self.arm["B"])

    @property
    def turns(self) -> int | None:
        """The turn limit of training; None: the environment's, or no turns."""
        return int(self.arm["turns"]) if "turns" in self.arm else None


@dataclass(frozen=True)
class PlannedRun(OfArm, Plain):
    """One run of a study: purpose, sizes and seed. Its learning rate follows from a rule and n B."""

    purpose: str            # probe, pilot, edge or train
    arm: Annotated[Arm, RUN_ARM]    # `multiplier` is of the rule's learning rate
    C: int
    index: int              # of the seed within the arm: runs of one index are paired across arms
    seed: int
    first_C: int | None = None      # the original C of a run that was continued
    # Beside C, what the run may spend, by the unit of a run's budget ("env-steps", "tokens"). None: nothing but C.
    cap: dict[str, float] | None = field(default=None, hash=False)

    OLDER: ClassVar = {"arm": RUN_ARM}
    LATER: ClassVar = ("cap",)

    @property
    def multiplier(self) -> float:
        """Of the learning rate, relative to the rule's."""
        return self.arm["multiplier"]

    @property
    def name(self) -> str:
        times = "" if self.multiplier == 1 else f"-x{self.multiplier:g}"
        limit = "" if self.turns is None else f"-h{self.turns}"
        return f"{self.purpose}-{self.arm.only('n').label}{limit}{times}-s{self.index}"

    @property
    def M(self) -> int:
        """Updates."""
        return self.C // (self.n * self.B)

    @property
    def warmup(self) -> int:
        """Updates of linear warm-up: at most 5 % of the run at its original length, and at most 10."""
        return warmup((self.first_C or self.C) // (self.n * self.B))

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Self:
        """A run from the plain data of a record, of this or an earlier version."""
        return super().of({**data, "arm": Arm.of(data)})

    def lr(self, rule: RateRule) -> float:
        """The learning rate of this run under a rule: the starting rule for probes, the fitted one for others."""
        return rule.at(self.n * self.B, self.multiplier)


def worded(arm: Arm) -> str:
    """The sizes of an arm as text."""
    return f"n = {arm['n']}, B = {arm['B']}"


def capped(runs: Sequence[PlannedRun], unit: str, amount: float, costs: Sequence[float]) -> tuple[PlannedRun, ...]:
    """The runs, each with a cap: its share of `amount`, in proportion to its expected cost. Unchanged for a unit that
    is not of `CAPPED`."""
    if unit not in CAPPED or not sum(costs):
        return tuple(runs)
    key, each = of_run(unit), amount / sum(costs)
    return tuple(replace(r, cap={key: float(f"{each * cost:.6g}")}) for r, cost in zip(runs, costs, strict=True))


def warmup(M: int) -> int:
    """Updates of linear warm-up in a run of M: at most 5 % of it, and at most 10."""
    return min(WARMUP_MOST, floor(WARMUP_SHARE * M))


@cache
def run_seed(seed: int, purpose: str, index: int) -> int:
    """The seed of a study's run. Trained runs never share a seed with the pilot that predicts them."""
    kind = "train" if purpose == "train" else "pilot"
    return int(generator(seed, Purpose.INIT, _ORDER.index(kind), index).integers(2**31))


def arms_of(ns: Sequence[int], B: int, batch: int | None = None, turns: int | None = None) -> list[Arm]:
    """An arm for each n. `batch` fixes n B instead of B, `turns` is the turn limit."""
    return [Arm(n=n, B=problems_of(n, B, batch), turns=turns) for n in ns]


def make_runs(
    seed: int, purpose: str, arms: Sequence[Arm], C: int, seeds: int, multipliers: Sequence[float] = (1.0,)
) -> tuple[PlannedRun, ...]:
    """Every combination, seeds outermost, so that an interrupted phase has whole replicates."""
    return tuple(
        PlannedRun(purpose, arm.but(multiplier=x), C, i, run_seed(seed, purpose, i))
        for i in range(seeds) for arm in arms for x in multipliers
    )


def whole(grid: Sequence[int], B: int, most: int | None = None) -> int:
    """The fewest rollouts that are whole updates for each n and the default; above `most`, the largest n's update."""
    common = lcm(*(n * B for n in (*grid, COMMON)))
    return common if most is None or common <= most else max(grid) * B


Size = tuple[int, int, int]     # n, B and C of a run


def sizes_of(runs: Sequence[PlannedRun]) -> list[Size]:
    return [(r.n, r.B, r.C) for r in runs]


def largest_that(fits: Any, cap: int = 2**40) -> int:
    """The largest k in 0..cap for which `fits(k)`, which must be monotone, is true."""
    low, high = 0, 1
    while high <= cap and fits(high):
        low, high = high, 2 * high
    high = min(high, cap + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
