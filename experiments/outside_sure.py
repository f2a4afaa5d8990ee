"""How sure the figures on other people's runs are: intervals over sources, and scores that count every miss.

The targets ask for the median interval score. A forecast that misses in less than half of the cases can have a small
median and a large mean, so both are given here. Intervals come from drawing sources with replacement (`DRAWS` times,
percentiles): cases of one source are alike, so sources are what is counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from outside import NAIVE, interval, median, score

DRAWS, SEED = 1000, 0
Case = dict[str, Any]
Figure = tuple[float, float, float]     # the figure, and the ends of its interval
SHARE = (2.5, 97.5)


def figures(found: Sequence[Case], tuning: Sequence[Case]) -> Mapping[str, Figure]:
    """Shares that hold, the ratio of median scores and of mean scores, each with its 95 % interval over sources.

    found: cases of the sets to judge; those without a curve are left out. tuning: the cases that give the naive
    forecasts their intervals. A ratio is the law's score over that of the best naive forecast, by the same measure:
    which one is best is found anew in each draw.
    """
    drawn = [x for x in found if "law" in x]
    names = sorted({x["source"] for x in drawn})
    source = np.array([names.index(x["source"]) for x in drawn])
    true = np.array([x["outcome"] for x in drawn])
    ends = {"law": [(x["law"][1], x["law"][2]) for x in drawn],
            **{name: [interval(x, name, tuning) for x in drawn] for name in NAIVE}}
    scores = {name: np.array([score(low, high, y) for (low, high), y in zip(found, true, strict=True)])
              for name, found in ends.items()}
    holds = {name: np.array([low <= y <= high for (low, high), y in zip(found, true, strict=True)])
             for name, found in ends.items()}

    def once(times: np.ndarray) -> dict[str, float]:
        """The figures if each source counted so many times."""
        weights = (times / np.bincount(source, minlength=len(names)))[source]
        mean = {name: float(np.average(x, weights=weights)) for name, x in scores.items()}
        middle = {name: median(x, weights) for name, x in scores.items()}
        return {**{f"{name} held": float(np.average(x, weights=weights)) for name, x in holds.items()},
                "median score": middle["law"] / min(middle[name] for name in NAIVE),
                "mean score": mean["law"] / min(mean[name] for name in NAIVE)}

    whole, rng = once(np.ones(len(names))), np.random.default_rng(SEED)
    again = [once(rng.multinomial(len(names), np.full(len(names), 1 / len(names)))) for _ in range(DRAWS)]
    spread = {key: np.percentile([x[key] for x in again], SHARE) for key in whole}
    return {key: (value, float(spread[key][0]), float(spread[key][1])) for key, value in whole.items()}
