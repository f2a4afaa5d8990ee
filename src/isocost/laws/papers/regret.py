"""Progress per episode of reasoning, and regret over a token budget, as in MRT (arXiv:2503.07572).

At the end of every episode of a trace the policy is made to answer; the share of right answers there is the value of
the trace so far.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def progress(rates: Sequence[float]) -> list[float]:
    """The gain in the share of right answers per episode; `rates` starts with the share before the first."""
    return np.diff(np.asarray(rates, dtype=np.float64)).tolist()


def normalised_regret(tokens: Sequence[float], rates: Sequence[float], budget: float) -> float:
    """1 - the mean share of right answers over a budget of tokens, in [0, 1]; 0 is right from the first token on.

    `rates` are shares of right answers after so many `tokens`, ascending. The share is 0 at 0 tokens, linear between
    points and constant after the last. Raises ValueError if tokens do not ascend or the budget is not positive.
    """
    x, y = np.asarray([0.0, *tokens]), np.asarray([0.0, *rates])
    if budget <= 0 or len(x) != len(y) or np.any(np.diff(x) <= 0):
        raise ValueError("expected a positive budget, and as many rates as tokens, with tokens ascending")
    at = np.append(x[x < budget], budget)
    right = np.interp(at, x, y)
    return float(1 - np.sum(np.diff(at) * (right[1:] + right[:-1]) / 2) / budget)
