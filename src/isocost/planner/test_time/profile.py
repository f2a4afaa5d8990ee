"""What a pool says before anything is chosen: accuracy by strategy and number of samples, and the scorer's errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from isocost.disk.shape import Count, Plain, Size
from isocost.planner.test_time.estimates import Measured, auroc, over_runs, table
from isocost.planner.test_time.policies import PolicyCost
from isocost.planner.test_time.pool import Parts
from isocost.planner.test_time.prescribe import KIND, StrategyRow
from isocost.runs.schema import VERSION, Costs
from isocost.stats.intervals import Interval
from isocost.stats.passk import pass_at, worst_at

DOUBLING = tuple(2**i for i in range(10))


@dataclass(frozen=True)
class ArmRow(StrategyRow):
    """A strategy with its size at other settings, or of another policy."""

    arm: str


@dataclass(frozen=True)
class StrategyTable(Plain):
    """profile.json of a study of strategies.

    `samples` are those of a problem, without the `probe`. `solved` is pass@k and `always` pass^k (all k right), by k =
    1, 2, 4, ... on the validation split: what an exact scorer would give, and what one sample gives k times.
    `within` is the scorer's AUROC within problems, `passes` and `fails` the shares of wrong samples with a score of 1/2
    or more and of right ones below it; None without scores. `told` are notes on the file.
    """

    model: str
    problems: Size
    select: Count
    audit: Count
    samples: Size
    probe: Count
    exact: bool
    strategies: tuple[str, ...]
    bands: tuple[str, ...]
    in_band: tuple[Count, ...]
    rows: tuple[StrategyRow, ...]
    solved: tuple[float, ...]
    always: tuple[float, ...]
    within: Interval | None
    passes: float | None
    fails: float | None
    told: tuple[str, ...]
    seed: int = 0
    cost: Costs | None = None       # of sampling; None for stored completions
    arms: tuple[ArmRow, ...] = ()   # other settings and policies: one sample, and the largest of each strategy
    policies: tuple[PolicyCost, ...] = ()   # the study's own model first; empty without others

    HEAD: ClassVar = {"schema": VERSION, "kind": KIND}
    LATER: ClassVar = ("arms", "policies")


def described(
    split: Parts, asked: Mapping[str, Any], strategies: Sequence[str], model: str, told: Sequence[str],
    live: Sequence[Measured] = (), cost: Costs | None = None, policies: Sequence[PolicyCost] = (),
) -> StrategyTable:
    """The table of a pool's parts, and of strategies that were run on the validation split; `asked` has seed and
    probe."""
    mine, right = split.select, split.select.right >= 0.5
    found = [*table(mine, strategies, DOUBLING, asked["seed"]), *(m for m in live if not m.arm)]
    rows = tuple(StrategyRow.measured(m, found[0].accuracy) for m in found)
    most = [k for k in DOUBLING if k <= mine.samples][-1:]
    others = []
    for arm, halves in split.arms.items():
        each = zip(*(table(its, strategies, most, asked["seed"]) for its, _ in halves), strict=True)
        others += [over_runs(same, arm) for same in each] + [m for m in live if m.arm == arm]
    arms = tuple(ArmRow.measured(m, found[0].accuracy, arm=m.arm) for m in others)
    ks, counts = [k for k in DOUBLING if k <= mine.samples], right.sum(1)
    score = None if mine.exact else mine.score
    return StrategyTable(
        model, len(mine.ids) + len(split.audit.ids), len(mine.ids), len(split.audit.ids), mine.samples,
        asked["probe"], mine.exact, tuple(dict.fromkeys((*strategies, *(m.strategy for m in live)))), split.bands,
        tuple(int((split.band == k).sum()) for k in range(len(split.bands))), rows,
        tuple(pass_at(counts, mine.samples, k) for k in ks),
        tuple(worst_at(counts, mine.samples, k) for k in ks), None if score is None else auroc(score, mine.right),
        None if score is None or right.all() else float((score[~right] >= 0.5).mean()),
        None if score is None or not right.any() else float((score[right] < 0.5).mean()), tuple(told),
        asked["seed"], cost, arms, tuple(policies),
    )
