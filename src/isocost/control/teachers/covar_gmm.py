"""Covar-GMM: tasks whose returns rise, by a mixture of Gaussians over tasks, times and returns.

    after every E episodes: as ALP-GMM, over (c, t, r) of the last E, t = 0, 1/E, .. 1 − 1/E
    c ~ a Gaussian of it, drawn in proportion to max(0, cov(t, r)); with chance ε any task

    Moulin-Frier et al. 2014, doi:10.3389/fpsyg.2013.01006; E 250, ε 0.2 as in TeachMyAgent, arXiv:2103.09815.
"""

from __future__ import annotations

import numpy as np

from isocost.control.teachers import Lesson, Lessons
from isocost.control.teachers.alp_gmm import Mixture, drawn, fitted
from isocost.found import Card
from isocost.traits import bounds

CARD = Card("Covar-GMM", "2103.09815", 2021, "alp-gmm", "Tasks whose returns rise with time teach faster.")


@bounds(every="[2, inf)", fresh="[0, 1]")
def choose(past: Lessons, rng: np.random.Generator, *, every: int = 250, fresh: float = 0.2) -> Lesson:
    """A task of the mixture of the last `every` episodes; until there is one, and with chance `fresh`, any."""
    def added(found: Mixture | None, i: int) -> Mixture | None:
        if (i + 1) % every:
            return found
        last = slice(i + 1 - every, i + 1)
        points = np.column_stack((past.contexts[last], np.arange(every) / every, past.returns[last]))
        return fitted(points, past.draws(i + 1))

    rises = past.folded("mixture", lambda: None, added)
    return drawn(past, rng, rises, fresh, lambda m: np.maximum(m.covariances[:, -2, -1], 0.0))
