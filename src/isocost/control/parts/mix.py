"""How transitions are drawn from a fixed set, by trajectories and by their weights, and beside a run's own samples."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from isocost.control.luck import Luck
from isocost.control.replay import Replay, gathered, uniform
from isocost.control.types import Transitions
from isocost.errors import UserError
from isocost.traits import bounds


def last_rows(replay: Replay) -> Tensor:
    """(N,): of each row, the last row of its trajectory."""
    def made() -> Tensor:
        *_, end, cut = replay.split(replay.rows[0, : replay.stored[0]])
        at = torch.arange(len(end))
        ends = torch.where((end + cut > 0) | (at == len(end) - 1), at, len(end))
        return ends.flip(0).cummin(0).values.flip(0)
    found: Tensor = replay.once("last", made)
    return found


def returns(replay: Replay, gamma: float) -> Tensor:
    """(N,): the return from each row to its trajectory's end; one that was cut goes on with its last reward for ever.

    So it is exact where each step costs the same until the goal.
    """
    def made() -> Tensor:
        _, _, reward, _, end, _ = (x.tolist() for x in replay.split(replay.rows[0, : replay.stored[0]].double()))
        out, total = list(reward), 0.0
        for i, last in reversed(list(enumerate(last_rows(replay).tolist()))):
            if last == i:
                total = 0.0 if end[i] else reward[i] / (1 - gamma)
            out[i] = total = reward[i] + gamma * total
        return torch.tensor(out)
    found: Tensor = replay.once(("returns", gamma), made)
    return found


def scores(replay: Replay, advantage: bool) -> Tensor:
    """(N,): the undiscounted return of each row's trajectory; as an advantage, less its linear fit in the start."""
    rows, last = replay.rows[0, : replay.stored[0]].double(), last_rows(replay)
    start, _, reward, *_ = replay.split(rows)
    total = torch.zeros_like(reward).index_add(0, last, reward)
    if advantage:
        ends = last.unique()
        first = torch.cat((torch.zeros(1, dtype=torch.long), ends[:-1] + 1))
        known = torch.cat((start[first], torch.ones(len(first), 1, dtype=torch.double)), -1)
        total[ends] -= known @ torch.linalg.pinv(known) @ total[ends]
    return total[last]


WEIGHTINGS: dict[str, Callable[[Replay], Tensor]] = {
    "none": lambda replay: torch.zeros(replay.stored[0], dtype=torch.double),
    "return": lambda replay: scores(replay, False),
    "advantage": lambda replay: scores(replay, True),
}


def weighted(
    replay: Replay, count: int, luck: Luck, *, gamma: float = 0.99, weighting: str = "none", temperature: float = 0.1
) -> Transitions:
    """Transitions by the weight of their trajectory, w in [0, 1]: in proportion to exp(w / T). `others` has their rows.

    `weighting` is "none", "return" or "advantage". (Hong et al. 2023, arXiv:2306.13085)
    """
    if weighting not in WEIGHTINGS:
        raise UserError(f"weighting is {weighting!r}: expected {', '.join(WEIGHTINGS)}")

    def made() -> Tensor:
        score = WEIGHTINGS[weighting](replay)
        low, high = score.min(), score.max()
        scaled = (score - low) / (high - low) if high > low else score
        return (scaled / temperature).softmax(0).cumsum(0)

    u = luck.uniform("replay", count)
    bounds = replay.once(("weights", weighting, temperature), made)
    at = torch.searchsorted(bounds, u.double().contiguous(), right=True).clamp(max=len(bounds) - 1)
    return gathered(replay, at, gamma=gamma)._replace(others={"row": at})


@bounds(old="[0, 1]")
def beside(replay: Replay, count: int, luck: Luck, *, gamma: float = 0.99, old: float = 0.5) -> Transitions:
    """A share `old` of the batch from the run's set, the rest from its own samples; rows of the set come last.

    Without a set all rows are the run's own; in updates before the first sample all are of the set.
    """
    many = round(old * count) if replay.prior else 0
    new = uniform(replay, count - many, luck, gamma=gamma)
    if not replay.prior or not many:
        return new
    at = (luck.uniform("replay of the set", many) * replay.prior.stored[0]).long()
    past = gathered(replay.prior, at, gamma=gamma)
    s, a, r, s2, discount = (torch.cat(pair, 1) for pair in zip(new[:5], past[:5], strict=True))
    return Transitions(s, a, r, s2, discount)
