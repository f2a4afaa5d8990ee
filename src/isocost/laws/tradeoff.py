"""n against B at a fixed batch: n B is constant, so more rollouts per problem mean fewer problems per update.

A law fitted to such a sweep has one learning rate, and C = nB M is proportional to the number of updates. IsoCompute
(arXiv 2603.12151): n*(M) rises as a sigmoid on easy problems and B*(M) = nB / n*(M) falls; on hard problems the best n
is not monotone, so no sigmoid is fitted and the best n at each M are shown. A sweep at fixed B is another question, and
`fit_law` does not pool the two.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from isocost.errors import UserError
from isocost.laws.law import Growth, Law, NotIdentified
from isocost.stats.intervals import Interval

POINTS = 6      # at which the best n is listed, log-spaced over the pilot


@dataclass(frozen=True)
class Winner:
    """At M updates: the n with the highest curve, its B, and every n equal to it within margin or noise."""

    M: float
    n: int
    B: int
    equal: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Tradeoff:
    """n*(M) and B*(M) at `batch` = nB rollouts per update, or why they are not identified; `winners` in both cases.

    `growth` is the sigmoid of log2 n* in ln C, C = nB M; its saturation is n = 2^U, B = nB / 2^U.
    """

    batch: int
    winners: tuple[Winner, ...]
    growth: Growth | None
    refused: NotIdentified | None
    level: float

    def n_at(self, M: float) -> Interval:
        """n*(M), not rounded, with its confidence interval. Raises UserError if it is not identified."""
        if self.growth is None:
            why = self.refused.reason if self.refused else "the law has no curve"
            raise UserError(f"n*(M) is not identified: {why}")
        return self.growth.at(self.batch * M)

    def B_at(self, M: float) -> Interval:
        """B*(M) = nB / n*(M), with the interval of n* inverted. Raises UserError if it is not identified."""
        n = self.n_at(M)
        return Interval(self.batch / n.value, self.batch / n.high, self.batch / n.low, n.level, n.kind, n.dof)

    @property
    def parameters(self) -> dict[str, Interval]:
        """L, U, k and M0 (updates) of log2 n* = L + (U - L) / (1 + exp(-k (ln M - ln M0))); empty if not identified."""
        if self.growth is None:
            return {}
        p = dict(self.growth.parameters)
        C0 = p.pop("C0")
        value, low, high = (x / self.batch for x in (C0.value, C0.low, C0.high))
        return {**p, "M0": Interval(value, low, high, C0.level, C0.kind, C0.dof)}

    @property
    def path(self) -> str:
        """The winners in words, each named once: "n=2, B=64 to 40 updates, then n=4, B=32"."""
        runs: list[list[Winner]] = []
        for w in self.winners:
            if runs and runs[-1][-1].n == w.n:
                runs[-1].append(w)
            else:
                runs.append([w])
        parts = [f"n={r[0].n}, B={r[0].B}" + (f" to {r[-1].M:.0f} updates" if r is not runs[-1] else "") for r in runs]
        return ", then ".join(parts)

    def data(self) -> dict[str, Any]:
        """Plain data for JSON: winners, and the parameters with their intervals or why they are not identified."""
        return {"batch": self.batch, "winners": [asdict(w) for w in self.winners], "path": self.path,
                "parameters": {k: asdict(v) for k, v in self.parameters.items()},
                "refused": asdict(self.refused) if self.refused else None, "level": self.level}


def tradeoff(law: Law) -> Tradeoff:
    """n against B from a law at one batch. Raises UserError for a law of a sweep at one B.

    It is not identified for the same reasons as n*(C) (`identify.optimum`): the best n is not monotone, is not
    distinguishable from the others, or does not saturate inside the grid.
    """
    if not law.arms:
        raise UserError(law.refused.reason if law.refused else "the law has no curve")
    batches = {arm.n * arm.B for arm in law.arms}
    if len(batches) > 1:
        raise UserError(f"this law is of a sweep at B = {law.arms[0].B}; n against B needs a fixed batch: plan "
                        "another study with --fixed-batch")
    batch = batches.pop()
    C = np.geomspace(*law.range, POINTS)
    equal = law.close(C, law.margin)
    ns = np.array(law.ns)
    winners = tuple(Winner(float(c / batch), int(n), batch // int(n), tuple(map(int, ns[equal[:, i]])))
                    for i, (c, n) in enumerate(zip(C, law.ns_at(C), strict=True)))
    growth = law.n_star if isinstance(law.n_star, Growth) else None
    refused = law.n_star if isinstance(law.n_star, NotIdentified) else None
    return Tradeoff(batch, winners, growth, refused, law.level)
