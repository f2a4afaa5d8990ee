"""Covar-GMM: tasks whose returns rise, by a mixture of Gaussians over tasks, times and returns.

    after every E episodes: as ALP-GMM, over (c, t, r) of the last E, t = 0, 1/E, .. 1 − 1/E
    c ~ a Gaussian of it, drawn in proportion to max(0, cov(t, r)); with chance ε any task

    Moulin-Frier et al. 2014, doi:10.3389/fpsyg.2013.01006; E 250, ε 0.2 as in TeachMyAgent, arXiv:2103.09815.
"""

from __future__ import annotations

import numpy as np

from isocost.control.teachers import Lesson, Lessons
from isocost.control.teachers.alp_gmm import by_mixture
from isocost.found import Card
from isocost.traits import bounds

CARD = Card("Covar-GMM", "2103.09815", 2021, "alp-gmm", "Tasks whose returns rise with time teach faster.")


@bounds(every="[2, inf)", fresh="[0, 1]")
def choose(past: Lessons, rng: np.random.Generator, *, every: int = 250, fresh: float = 0.2) -> Lesson:
    """A task by the covariance of time and return. `every` is E, `fresh` is ε."""
    return by_mixture(past, rng, every, fresh,
                      lambda last: np.column_stack((np.arange(every) / every, past.returns[last])),
                      lambda m: np.maximum(m.covariances[:, -2, -1], 0.0))
