"""Given answers, laid out so that the log-prob of every token and of the end is computed at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy import ndarray

from isocost.local.layout import TokenRows, Units
from isocost.types import Sampling


def answered(laid: TokenRows) -> tuple[ndarray, ndarray, ndarray, ndarray]:
    """Row, position and token of each token that predicts one of an answer, or its end; and whether it is the end."""
    length, here = laid.length, np.arange(laid.tokens.shape[1])[None, :]
    row, at = np.nonzero((here >= laid.prompt[:, None] - 1) & (here < length[:, None]))
    after = laid.tokens[row, np.minimum(at + 1, laid.tokens.shape[1] - 1)]
    return row, at, after, at == length[row] - 1


@dataclass(frozen=True)
class AnswerBatch:
    """Prompts and answers, laid out for the kernel: it takes the log-prob of each answer's tokens and of every end."""

    rows: list[int]
    units: Units
    row: ndarray         # (K,) the row of each token that is predicted
    back: ndarray        # of each log-prob of `units`, which of the K it belongs to

    @classmethod
    def of(
        cls, rows: list[int], tokens: list[list[int]], prompt: list[int], ends: ndarray, sampling: Sampling
    ) -> AnswerBatch:
        laid = TokenRows.apart(tokens, prompt)
        row, at, after, is_end = answered(laid)
        times = np.where(is_end, len(ends), 1)
        which = np.repeat(np.arange(len(row)), times)
        target = after[which]
        target[is_end[which]] = np.tile(ends, int(is_end.sum()))
        longer = TokenRows(laid.tokens, laid.prompt, laid.length + 1, laid.owner)     # the last token is read as well
        warm = np.full(len(which), sampling.temperature)
        units = Units.of(longer.beginning_alike(), row[which], at[which] + 1, target, warm)
        width = int(at.max(initial=0)) + 2
        place = np.zeros(len(tokens) * width, dtype=np.int64)
        place[row * width + at + 1] = np.arange(len(row))
        return cls(rows, units, row, place[units.row * width + units.position])
