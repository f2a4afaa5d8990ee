"""pass@k beyond the samples: a mixture over problems, averaged over its posterior.

    pass@k = E[1 - (1 - p)^k],  p is 0 with probability z, else logit-normal or Beta

A curve through the mean pass@k is not enough: saturation, F_max (1 - (1 - p)^k) with one p, is too low for a set of
problems of unequal difficulty, and a power law in k is that of one shape of the mixture (Schaeffer et al. 2025, arXiv
2502.17578). Both families and the share that is never right are averaged by their likelihood on a grid, with equal
prior weights of the families, so that the interval holds what the counts cannot tell apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np
from numpy import ndarray
from scipy.special import expit, gammaln, logsumexp, ndtri

from isocost.errors import UserError
from isocost.stats.intervals import Interval

LOGITS = np.linspace(-16.0, 8.0, 241)
NEVER = (0.0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4)       # z
FURTHEST = 4        # times the samples: as far as the forecast was compared with public counts


@cache
def _grid() -> tuple[ndarray, ndarray, ndarray]:
    """((J,) values of p with 0 in front, (G, J) their weights in each mixture, (G,) log prior weights)."""
    up, down = -np.log1p(np.exp(-LOGITS)), -np.log1p(np.exp(LOGITS))        # ln p and ln (1 - p)
    centre, sd = np.meshgrid(np.linspace(-10, 4, 57), np.geomspace(0.3, 6, 20), indexing="ij")
    a, b = np.meshgrid(np.geomspace(0.03, 30, 40), np.geomspace(0.1, 300, 20), indexing="ij")
    normal = -0.5 * ((LOGITS - centre.reshape(-1, 1)) / sd.reshape(-1, 1)) ** 2
    beta = a.reshape(-1, 1) * up + b.reshape(-1, 1) * down
    weights, prior = [], []
    for density in (normal, beta):
        w = np.exp(density - density.max(1, keepdims=True))
        w /= w.sum(1, keepdims=True)
        weights += [np.concatenate((np.full((len(w), 1), z), (1 - z) * w), 1) for z in NEVER]
        prior += [np.full(len(NEVER) * len(w), -np.log(len(NEVER) * len(w)))]
    return np.concatenate(([0.0], expit(LOGITS))), np.concatenate(weights), np.concatenate(prior)


@dataclass(frozen=True, eq=False)
class PassMixture:
    """The posterior of the mixture, from (P,) counts of right answers among `samples`."""

    counts: ndarray
    samples: int
    weight: ndarray         # (G,) of each mixture

    def each(self, k: int) -> ndarray:
        """(P,) the expected 1 - (1 - p)^k of each of the problems."""
        first, _ = _moments(self.samples, k)
        return np.asarray(self.weight @ first)[self.counts]

    def forecast(self, k: int, level: float = 0.9, new: int | None = None) -> Interval:
        """The mean pass@k of these problems or `new` ones. Raises UserError for k beyond `FURTHEST` times the
        samples."""
        if not 1 <= k <= FURTHEST * self.samples:
            raise UserError(f"pass@{k} from {self.samples} samples per problem: forecasts reach {FURTHEST} times the "
                            f"samples, {FURTHEST * self.samples}; sample more")
        if new is None:
            first, second = _moments(self.samples, k)
            many = np.bincount(self.counts, minlength=self.samples + 1) / len(self.counts)
            mean, within = first @ many, (second - first**2) @ many / len(self.counts)
        else:
            p, weights, _ = _grid()
            reach = -np.expm1(k * np.log1p(-p))
            mean = weights @ reach
            within = (weights @ reach**2 - mean**2) / new
        value = float(self.weight @ mean)
        z = float(ndtri((1 + level) / 2)) * float(self.weight @ (within + (mean - value) ** 2)) ** 0.5
        return Interval(value, max(0.0, value - z), min(1.0, value + z), level, "prediction", len(self.counts))



def fit_mixture(right: ndarray, samples: int) -> PassMixture:
    """The posterior from (P,) counts of right answers of `samples`. Raises UserError for counts outside 0..samples."""
    counts = np.asarray(right, dtype=np.int64)
    if counts.ndim != 1 or not len(counts) or counts.min() < 0 or counts.max() > samples:
        raise UserError(f"expected one count from 0 to {samples} for each problem")
    prior = _grid()[2]
    many = np.bincount(counts, minlength=samples + 1)
    told = prior + np.log(_marginal(samples)) @ many
    return PassMixture(counts, samples, np.exp(told - logsumexp(told)))


@lru_cache(4)
def _moments(samples: int, k: int) -> tuple[ndarray, ndarray]:
    """(G, m + 1) mean and mean square of 1 - (1 - p)^k where 0 to m samples were right, in each mixture."""
    p, weights, _ = _grid()
    reach, like, marginal = -np.expm1(k * np.log1p(-p)), _likelihood(samples), _marginal(samples)
    return (weights * reach) @ like / marginal, (weights * reach**2) @ like / marginal


@lru_cache(4)
def _marginal(samples: int) -> ndarray:
    """(G, m + 1) the probability of 0 to m right answers in each mixture."""
    return np.asarray(_grid()[1] @ _likelihood(samples))


@lru_cache(4)
def _likelihood(samples: int) -> ndarray:
    """(J, m + 1) the probability of 0 to m right answers at each value of p; at least 1e-300."""
    p, x = _grid()[0][:, None], np.arange(samples + 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = (gammaln(samples + 1) - gammaln(x + 1) - gammaln(samples - x + 1)
                + np.where(x > 0, x * np.log(p), 0.0) + (samples - x) * np.log1p(-p))
    return np.maximum(np.exp(logs), 1e-300)
