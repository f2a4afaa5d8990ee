"""How sure the figures on other people's runs are: intervals over sources, and scores that count every miss.

The targets ask for the median interval score. A forecast that misses in less than half of the cases can have a small
median and a large mean, so both are given here. Intervals come from drawing sources with replacement (`DRAWS` times,
percentiles): cases of one source are alike, so sources are what is counted.

`left_out` judges the law's `UPPER`, the factor on the distance of a prediction's upper end in logs: on each source with
the factor that the other sources choose.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from outside import LEVEL, NAIVE, interval, median, score, weigh

DRAWS, SEED = 1000, 0
Case = dict[str, Any]
Figure = tuple[float, float, float]     # the figure, and the ends of its interval
SHARE = (2.5, 97.5)
UPPERS = tuple(round(1 + i / 10, 1) for i in range(21))     # the factors that the law's `UPPER` was chosen from


def figures(found: Sequence[Case], tuning: Sequence[Case], others: Sequence[str] = NAIVE) -> Mapping[str, Figure]:
    """Shares that hold, the ratio of median scores and of mean scores, each with its 95 % interval over sources.

    found: cases of the sets to judge; those without a curve are left out. tuning: the cases that give the naive
    forecasts, or `others` in their place, their intervals. A ratio is the law's score over that of the best of them, by
    the same measure: which one is best is found anew in each draw.
    """
    drawn = [x for x in found if "law" in x]
    names = sorted({x["source"] for x in drawn})
    source = np.array([names.index(x["source"]) for x in drawn])
    true = np.array([x["outcome"] for x in drawn])
    ends = {"law": [(x["law"][1], x["law"][2]) for x in drawn],
            **{name: [interval(x, name, tuning) for x in drawn] for name in others}}
    marks = {name: np.array([score(low, high, y) for (low, high), y in zip(own, true, strict=True)])
             for name, own in ends.items()}
    holds = {name: np.array([low <= y <= high for (low, high), y in zip(own, true, strict=True)])
             for name, own in ends.items()}

    def once(times: np.ndarray) -> dict[str, float]:
        """The figures if each source counted so many times."""
        weights = (times / np.bincount(source, minlength=len(names)))[source]
        mean = {name: float(np.average(x, weights=weights)) for name, x in marks.items()}
        middle = {name: median(x, weights) for name, x in marks.items()}
        return {**{f"{name} held": float(np.average(x, weights=weights)) for name, x in holds.items()},
                **{f"mean score to {name}": mean["law"] / mean[name] for name in others},
                "median score": middle["law"] / min(middle[name] for name in others),
                "mean score": mean["law"] / min(mean[name] for name in others)}

    whole, rng = once(np.ones(len(names))), np.random.default_rng(SEED)
    again = [once(rng.multinomial(len(names), np.full(len(names), 1 / len(names)))) for _ in range(DRAWS)]
    spread = {key: np.percentile([x[key] for x in again], SHARE) for key in whole}
    return {key: (value, float(spread[key][0]), float(spread[key][1])) for key, value in whole.items()}


def left_out(found: Sequence[Case]) -> dict[str, Any]:
    """What one factor on the distance of the upper ends does to judged forecasts, each source left out once.

    found: cases of all sets, forecast with the factor 1. For each source the factor is the least of `UPPERS` at which
    `LEVEL` of the other sources' intervals hold, all sources alike. Returns `factors` (source to factor), `chosen` (the
    factor from all sources), and for the cases in their order `drawn`, `held` and `score` with it.
    """
    drawn = [x for x in found if "law" in x]
    source, weights = np.array([x["source"] for x in drawn]), weigh(drawn, False)
    true, ends = np.array([x["outcome"] for x in drawn]), np.array([x["law"] for x in drawn])
    value, low, high = ends.T
    holds, marks = [], []
    for factor in UPPERS:
        upper = np.minimum(value + factor * (high - value), 1.0)
        holds.append((low <= true) & (true <= upper))
        marks.append([score(*x) for x in zip(low, upper, true, strict=True)])

    def least(used: np.ndarray) -> int:
        """The place in `UPPERS` that these cases choose."""
        return int(np.argmax(np.average(np.array(holds)[:, used], axis=1, weights=weights[used]) >= LEVEL))

    places = {name: least(source != name) for name in dict.fromkeys(source.tolist())}
    own = np.array([places[name] for name in source])
    cases = np.arange(len(drawn))
    return {"factors": {name: UPPERS[i] for name, i in places.items()},
            "chosen": UPPERS[least(np.ones(len(drawn), dtype=bool))], "drawn": drawn,
            "held": np.array(holds)[own, cases], "score": np.array(marks)[own, cases]}


def scores(drawn: Sequence[Case]) -> np.ndarray:
    """The interval scores of forecasts as they are."""
    return np.array([score(x["law"][1], x["law"][2], x["outcome"]) for x in drawn])
