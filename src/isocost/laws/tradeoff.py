"""n against B at one batch: n B is fixed, so more rollouts per problem are fewer problems per update.

A law fitted to such a sweep has one learning rate, and C = nB M makes updates and rollouts one axis. IsoCompute
(arXiv 2603.12151): n*(M) rises as a sigmoid on easy problems and B*(M) = nB / n*(M) falls; on hard problems the
winner moves back and forth, so no rising sigmoid is fitted there and the winners are shown instead. A sweep at fixed
B answers another question, and `fit_law` refuses to pool the two.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from isocost.errors import UserError
from isocost.laws.law import Growth, Law, NotIdentified
from isocost.stats.intervals import Interval

POINTS = 6      # at which the winners are told, log-spaced over the pilot


@dataclass(frozen=True)
class Winner:
    """At M updates: the n with the highest curve, its B, and every n equal to it within margin or noise."""

    M: float
    n: int
    B: int
    equal: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Tradeoff:
    """n*(M) and B*(M) at one batch of `batch` = nB rollouts, or why they are not identified; `winners` either way.

    `growth` is the sigmoid of log2 n* in ln C, C = nB M; its saturation is n = 2^U, B = nB / 2^U.
    """

    batch: int
    winners: tuple[Winner, ...]
    growth: Growth | None
    refused: NotIdentified | None
    level: float

    def n_at(self, M: float) -> Interval:
        """n*(M), not rounded, with its confidence interval. Raises UserError where it is not identified."""
        if self.growth is None:
            why = self.refused.reason if self.refused else "the law has no curve"
            raise UserError(f"n*(M) is not identified: {why}")
        return self.growth.at(self.batch * M)

    def B_at(self, M: float) -> Interval:
        """B*(M) = nB / n*(M): its interval is that of n*, turned round. Raises UserError where it is not identified."""
        n = self.n_at(M)
        return Interval(self.batch / n.value, self.batch / n.high, self.batch / n.low, n.level, n.kind, n.dof)

    @property
    def parameters(self) -> dict[str, Interval]:
        """L, U, k and M0 (updates) of log2 n* = L + (U - L) / (1 + exp(-k (ln M - ln M0))); empty if refused."""
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
        said = [f"n={r[0].n}, B={r[0].B}" + (f" to {r[-1].M:.0f} updates" if r is not runs[-1] else "") for r in runs]
        return ", then ".join(said)

    def data(self) -> dict[str, Any]:
        """Plain data for JSON: winners, parameters with their intervals or the refusal."""
        return {"batch": self.batch, "winners": [asdict(w) for w in self.winners], "path": self.path,
                "parameters": {k: asdict(v) for k, v in self.parameters.items()},
                "refused": asdict(self.refused) if self.refused else None, "level": self.level}


def tradeoff(law: Law) -> Tradeoff:
    """What a law of one batch says of n against B. Raises UserError for a law of a sweep at one B.

    The refusals are those of n*(C) (`caution.optimum`): no winner that only rises, no n that can be told from the
    others, or no saturation inside the grid.
    """
    if not law.arms:
        raise UserError(law.refused.reason if law.refused else "the law has no curve")
    batches = {arm.n * arm.B for arm in law.arms}
    if len(batches) > 1:
        raise UserError(f"this law is of a sweep at B = {law.arms[0].B}: it says nothing of n against B at one batch; "
                        "plan another study with --fixed-batch")
    batch = batches.pop()
    C = np.geomspace(*law.range, POINTS)
    equal = law.equal(C, law.margin)
    ns = np.array(law.ns)
    winners = tuple(Winner(float(c / batch), int(n), batch // int(n), tuple(map(int, ns[equal[:, i]])))
                    for i, (c, n) in enumerate(zip(C, law.ns_at(C), strict=True)))
    growth = law.n_star if isinstance(law.n_star, Growth) else None
    refused = law.n_star if isinstance(law.n_star, NotIdentified) else None
    return Tradeoff(batch, winners, growth, refused, law.level)
