"""How well a number tells right from wrong: the area under the ROC curve, within groups, and errors that are shared."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import combinations

import numpy as np
from numpy import ndarray


def auroc(scores: Sequence[float], right: Sequence[bool]) -> float:
    """P(a right one scores higher than a wrong one), ties counted as half; NaN where all are right or all wrong."""
    truth, known = np.asarray(right, dtype=bool), np.asarray(scores, dtype=np.float64)
    good, bad = known[truth], np.sort(known[~truth])
    if not len(good) or not len(bad):
        return float("nan")
    below = (np.searchsorted(bad, good, "left") + np.searchsorted(bad, good, "right")) / 2
    return float(below.mean() / len(bad))


def auroc_within(groups: Sequence[tuple[Sequence[float], Sequence[bool]]]) -> ndarray:
    """(groups,) the AUROC of each group that has both right and wrong ones."""
    each = np.array([auroc(scores, right) for scores, right in groups])
    return each[~np.isnan(each)]


def shared_errors(wrong: Sequence[bool], keys: Sequence[Hashable]) -> float:
    """The correlation of the errors of two texts with one key, (problem, answer), over all pairs; NaN without pairs."""
    groups: dict[Hashable, list[float]] = {}
    for key, x in zip(keys, wrong, strict=True):
        groups.setdefault(key, []).append(float(x))
    pairs = [p for own in groups.values() for p in combinations(own, 2)]
    if not pairs:
        return float("nan")
    table = np.array([*pairs, *((b, a) for a, b in pairs)])
    return float(np.corrcoef(table.T)[0, 1]) if table.std() > 0 else float("nan")
