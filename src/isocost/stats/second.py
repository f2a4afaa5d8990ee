"""A second rise: reward that rises, pauses and rises again, because a second skill starts late.

The share of its gain that an arm has made is then (1 - w) g(C) + w h(C): g is its first rise (`forms.risen`), w the
share of the gain in the second one, and h a sigmoid with a later midpoint. A pilot shows only the start of h, if any.
So the posterior sums over the second rises below, each with the same prior weight. Whether there is one at all is
weighed by the evidence of all arms together (`posterior.second_weight`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy import ndarray

from isocost.stats.forms import gain_share, reached, steepness

SHARES = (0.2, 0.3, 0.4, 0.5)       # of the gain that are in a second rise
WHEN = (0.7, 1.1, 1.8, 3.0)         # its midpoint, in units of the pilot's longest run: the forms describe an earlier
                                    # one, and of a later one a pilot shows too little
PAUSE = 1.6                         # least midpoint of a second rise, in units of the first's: what follows at once is
                                    # one rise
EXPONENT = 2.0                      # of its sigmoid
STEP = 1e-4                         # of ln C, in a derivative
HALVINGS = 50                       # of an interval of ln C, to invert the share


@dataclass(frozen=True, eq=False)
class Seconds:
    """X second rises that are possible, of equal prior weight: shares of the gain and midpoints (X,)."""

    share: ndarray
    Cmid: ndarray

    @staticmethod
    def of(end: float) -> Seconds:
        """Those of a pilot whose longest run has `end` rollouts."""
        share, Cmid = np.meshgrid(SHARES, end * np.array(WHEN), indexing="ij")
        return Seconds(share.ravel(), Cmid.ravel())

    def allowed(self, Cmid: ndarray) -> ndarray:
        """Which second rises (..., X) can follow first ones with midpoints (...): those `PAUSE` times as late."""
        return np.asarray(self.Cmid >= PAUSE * Cmid[..., None])

    def joined(self, first: ndarray, C: ndarray) -> ndarray:
        """The share of the gain that is made at C (K,) with each second rise: (..., X, K) from that of the first rise
        (..., K)."""
        late = self.share[:, None] * gain_share(C, self.Cmid[:, None], EXPONENT)
        return np.asarray((1 - self.share)[:, None] * first[..., None, :] + late)

    def rows(self, which: ndarray) -> ndarray:
        """Share, midpoint and exponent of the second rises with these indices (D,): (D, 3)."""
        return np.stack([self.share[which], self.Cmid[which], np.full(len(which), EXPONENT)], -1)


def gained(C: ndarray, drawn: ndarray, second: ndarray, tails: Sequence[float]) -> ndarray:
    """The share of the gain that each draw has made at C, 0 to 1, of the common shape of C (...) and the draws (...).

    `drawn` (..., 4) holds the index of the first rise's form in `tails`, A, Cmid and b; `second` (..., 3) the share
    of the gain in a second rise (0: there is none), its midpoint and its exponent.
    """
    which, Cmid, b = drawn[..., 0], drawn[..., 2], drawn[..., 3]
    out = np.empty(np.broadcast_shapes(np.shape(C), which.shape))
    C, which, Cmid, b, w, later, steep = (np.broadcast_to(x, out.shape) for x in (
        C, which, Cmid, b, *np.moveaxis(second, -1, 0)))
    for place, tail in enumerate(tails):
        at = which == place
        out[at] = gain_share(C[at], Cmid[at], b[at], tail)
    at = w > 0
    out[at] = (1 - w[at]) * out[at] + w[at] * gain_share(C[at], later[at], steep[at])
    return out


def reached_by(share: ndarray | float, drawn: ndarray, second: ndarray, tails: Sequence[float]) -> ndarray:
    """The C (...) at which each draw has made this share (...) of its gain: the inverse of `gained`.

    0 for shares <= 0, infinite for shares >= 1. With a second rise, by halving the interval between the C at which the
    first and the second rise alone have made this share.
    """
    out = np.empty(drawn.shape[:-1])
    share = np.broadcast_to(share, out.shape)
    for place, tail in enumerate(tails):
        at = drawn[..., 0] == place
        out[at] = reached(share[at], drawn[at][:, 2], drawn[at][:, 3], tail)
    at = (second[..., 0] > 0) & (share > 0) & (share < 1)
    if at.any():
        first, wanted = out[at], share[at]
        alone = reached(wanted, second[at][:, 1], second[at][:, 2])
        low, high = np.log(np.minimum(first, alone)), np.log(np.maximum(first, alone))
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            short = gained(np.exp(middle), drawn[at], second[at], tails) < wanted
            low, high = np.where(short, middle, low), np.where(short, high, middle)
        out[at] = np.exp((low + high) / 2)
    return out


def steepness_at(C: ndarray, drawn: ndarray, second: ndarray, tails: Sequence[float]) -> ndarray:
    """The exponent (D,) of the sigmoid with the same slope at C (D,), its midpoint: 4 d gained / d ln C."""
    out = drawn[:, 3] * np.array([steepness(1.0, tail) for tail in tails])[drawn[:, 0].astype(int)]
    up, down = (gained(C * np.exp(step), drawn, second, tails) for step in (STEP, -STEP))
    return np.asarray(np.where(second[:, 0] > 0, 4 * (up - down) / (2 * STEP), out))
