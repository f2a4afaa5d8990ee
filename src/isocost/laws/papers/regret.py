"""What thought is worth along the way: progress from episode to episode, and regret over a budget of tokens.

From MRT (arXiv:2503.07572): an answer is asked for at the end of every episode of a trace, and the share of right
ones there is the worth of the trace so far.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def progress(rates: Sequence[float]) -> list[float]:
    """What each episode added to the chance of a right answer; `rates` begins with that before the first."""
    return np.diff(np.asarray(rates, dtype=np.float64)).tolist()


def normalised_regret(tokens: Sequence[float], rates: Sequence[float], budget: float) -> float:
    """1 − the mean of the share of right answers over a budget of tokens, in [0, 1]; 0 is right from the first on.

    `rates` are shares of right answers after so many `tokens`, rising. Between them the share is interpolated, from
    0 at no token; past the last it stays. Raises ValueError where tokens do not rise, or the budget is not positive.
    """
    x, y = np.asarray([0.0, *tokens]), np.asarray([0.0, *rates])
    if budget <= 0 or len(x) != len(y) or np.any(np.diff(x) <= 0):
        raise ValueError("regret takes a positive budget, and one rate for each of a rising number of tokens")
    at = np.append(x[x < budget], budget)
    right = np.interp(at, x, y)
    return float(1 - np.sum(np.diff(at) * (right[1:] + right[:-1]) / 2) / budget)
