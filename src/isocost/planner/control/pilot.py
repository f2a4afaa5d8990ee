"""Which runs a pilot of control has: a star of batch and rate about a centre, at several updates per sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from isocost.disk.jsonfile import finite
from isocost.disk.shape import UNKNOWN, Keys, Plain, Size
from isocost.errors import UserError
from isocost.laws.papers.value import rounded
from isocost.laws.value_fit import OFFLINE, SEEDS, SIGMA, SIGMAS, ControlPrice, check_sigma
from isocost.planner.budget import Budget, worded
from isocost.runs.arm import Arm
from isocost.screen.words import counted, grouped
from isocost.units import ENV_STEPS, FLOPS, SECONDS

GRIDS = ((0.5, 1.0, 2.0, 4.0, 8.0), (1.0, 2.0, 4.0))    # updates per sample, by what the budget pays for
COUNT = 5                       # seeds of a setting
BATCHES, RATES = 4.0, 3.0       # factors between the centre and the values beside it
SHARE = 2 / 3                   # of the budget, at most
POINTS, EPISODES = 16, 4        # evaluations of a run, and the episodes of each half of one
SPACED = 1000                   # between the first seeds of studies with different seeds
KIND = "control"
SigmaArm = Annotated[Arm, Keys(dict.fromkeys(("sigma", "batch", "rate"), float), {"width": float, OFFLINE: int},
                               rest=UNKNOWN)]


class ControlFile(Plain):
    """A dataclass that a file of a study of control holds, as its fields."""

    SHOWN: ClassVar[tuple[str, ...]] = ("kind",)

    @property
    def kind(self) -> str:
        """The kind of study whose file it is."""
        return KIND

    def data(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return dict(finite(super().data()))


@dataclass(frozen=True)
class ControlCosts(Plain):
    """What a sample, an update, and each example of its batch cost: in seconds and FLOP. A sample's FLOP are those of
    its action; they and what all evaluations of a run took are 0 where a profile of an earlier version lacks them. A
    `first` update is one before the first sample."""

    sample_seconds: float
    update_seconds: float
    example_seconds: float
    update_flop: float
    example_flop: float
    sample_flop: float = 0.0
    evaluation_seconds: float = 0.0
    evaluation_flop: float = 0.0
    first_seconds: float = 0.0
    first_flop: float = 0.0

    LATER: ClassVar = ("first_seconds", "first_flop")

    def price(self, unit: str) -> ControlPrice:
        """The costs in a unit. In environment steps updates cost nothing."""
        if unit == SECONDS:
            return ControlPrice(self.sample_seconds, self.update_seconds, self.example_seconds, unit,
                                self.first_seconds)
        if unit == FLOPS:
            return ControlPrice(self.sample_flop, self.update_flop, self.example_flop, unit, self.first_flop)
        if unit == ENV_STEPS:
            return ControlPrice(1.0, 0.0, 0.0, unit)
        raise UserError(f"a study of control counts environment steps, time, money and FLOP; its budget is in {unit}: "
                        "give 200k-env-steps, 20m, 1e15flop or 5usd")


@dataclass(frozen=True)
class ControlRunPlan(Plain):
    """A planned run: its purpose, its arm, its seed and the samples that it collects."""

    purpose: str
    arm: SigmaArm
    seed: int
    samples: Size

    @property
    def name(self) -> str:
        """The folder of its record."""
        return f"{self.purpose}-{self.arm.label}-s{self.seed}"


@dataclass(frozen=True)
class ControlPilot(ControlFile):
    """A pilot: its runs, what they cost in `unit`, and what of the budget they leave."""

    unit: str
    budget: Budget | None
    seeds: Size
    samples: Size
    runs: tuple[ControlRunPlan, ...]
    cost: float
    why: str


def star(sigma: float, batch: float, rate: float, width: float | None) -> list[Arm]:
    """The arms at a sigma: the centre, and a smaller and a larger batch and rate beside it, one at a time."""
    pairs = ((batch, rate), (batch / BATCHES, rate), (batch * BATCHES, rate), (batch, rate / RATES),
             (batch, rate * RATES))
    return [Arm(sigma=sigma, batch=rounded(b), rate=float(f"{r:.3g}"), width=width) for b, r in pairs]


def spends(price: ControlPrice, runs: Sequence[ControlRunPlan]) -> float:
    """What these runs cost, in the unit of the price."""
    return sum(price.run(r.arm, r.samples) for r in runs)


def plan_control_pilot(
    centre: Arm, samples: int, price: ControlPrice, budget: Budget | None, *, sigmas: Sequence[float] | None = None,
    seeds: int | None = None, seed: int = 0, shorter: float = 0.0,
) -> ControlPilot:
    """The largest grid that two thirds of the budget pay for; without a budget, three values of sigma.

    `centre` has batch and rate (and width) of the middle of the grid; `seed` is the study's. Runs have `samples` at the
    least sigma and samples (sigma / least)^-shorter at the others: samples to a return fall with sigma, too. If it has
    sigma, `sigmas` are updates before the first sample, and batch and rate do not vary.

    Raises UserError for fewer than three sigmas or seeds, a sigma that cannot be run, and a budget below the smallest
    grid, with what that costs.
    """
    over = OFFLINE if SIGMA in centre else SIGMA
    if sigmas is not None:
        for sigma in sigmas if over == SIGMA else ():
            check_sigma(sigma, "--sigma")
        if len(set(sigmas)) < SIGMAS:
            raise UserError(f"--sigma names {counted(len(set(sigmas)), 'value')}: a law needs at least {SIGMAS}")
    if seeds is not None and seeds < SEEDS:
        raise UserError(f"--seeds {seeds}: a law needs at least {SEEDS} seeds of each setting")
    grids = [tuple(sorted(set(sigmas)))] if sigmas is not None else list(GRIDS if budget else GRIDS[-1:])
    sizes = [(grid, count) for count in ([seeds] if seeds else [COUNT, SEEDS]) for grid in grids]
    made = []
    for grid, count in sizes:
        arms = [centre.but(**{over: int(u)}) for u in grid] if over == OFFLINE else [
            arm for s in grid for arm in star(s, centre["batch"], centre["rate"], centre.get("width"))]
        runs = tuple(ControlRunPlan("pilot", arm, SPACED * seed + k,
                                    round(samples * (arm[over] / grid[0])**-shorter))
                     for arm in dict.fromkeys(arms) for k in range(count))
        made.append((grid, count, runs, spends(price, runs)))
        if budget is None or made[-1][3] <= SHARE * budget.amount:
            break
    else:
        grid, count, runs, cost = made[-1]
        asked = worded(budget, cost / SHARE) if budget else ""
        raise UserError(f"the smallest pilot has {counted(len(runs), 'run')} of {grouped(samples)} samples, and with "
                        f"the training after it needs a budget of {asked}; the budget is {budget}. Raise it, or name "
                        "a smaller --length")
    grid, count, runs, cost = made[-1]
    size = f"batch {centre['batch']:g}{' and' if over == SIGMA else ','} rate {centre['rate']:g}"
    why = f"sigma {', '.join(f'{s:g}' for s in grid)}; about {size}, {BATCHES:g} times less and more of the one and " \
        f"{RATES:g} times of the other" if over == SIGMA else \
        f"{', '.join(grouped(int(u)) for u in grid)} offline updates; sigma {centre['sigma']:g}, {size}"
    why += f"; {counted(count, 'seed')}"
    why += f"; {grouped(runs[-1].samples)} samples at {over} {grid[-1]:g}" * (shorter > 0)
    return ControlPilot(price.unit, budget, count, samples, runs, cost, why)
