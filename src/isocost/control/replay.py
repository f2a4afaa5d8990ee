"""The replay of each run: a ring of transitions, (S, capacity, W), and how batches are drawn from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from isocost.control.luck import Luck
from isocost.control.types import Space, Transitions


@dataclass
class Replay:
    """The newest `capacity` transitions of each run. A row is observation, action, reward, following, terminal, cut.

    With `stride` environments a run's next step in the same environment is `stride` rows later.
    """

    space: Space
    rows: Tensor                # (S, capacity, W)
    stored: list[int]           # transitions so far, of each run: those above `capacity` were evicted
    stride: int = 1
    runs: Sequence[int] = ()    # which of S, in a view of some of them; `stored` is of these

    @classmethod
    def of(cls, space: Space, runs: int, capacity: int, stride: int = 1) -> Replay:
        return cls(space, torch.zeros(runs, capacity, 2 * space.observation + space.actions + 3), [0] * runs, stride)

    def view(self, runs: Sequence[int]) -> Replay:
        """The part of these runs, to draw from."""
        return Replay(self.space, self.rows, [self.stored[i] for i in runs], self.stride, runs)

    @property
    def capacity(self) -> int:
        return self.rows.shape[1]

    def add(self, runs: Sequence[int], rows: Tensor) -> None:
        """(n, k, W): k transitions of each of these runs."""
        for i, new in zip(runs, rows, strict=True):
            for row in new:
                self.rows[i, self.stored[i] % self.capacity] = row
                self.stored[i] += 1

    def split(self, rows: Tensor) -> tuple[Tensor, ...]:
        """Rows (..., W) as observation, action, reward, following, terminal, cut."""
        o, a = self.space.observation, self.space.actions
        s, act, r, s2, end, cut = rows.split((o, a, 1, o, 1, 1), -1)
        return s, act, r[..., 0], s2, end[..., 0], cut[..., 0]


def uniform(replay: Replay, count: int, luck: Luck, *, gamma: float = 0.99, steps: int = 1) -> Transitions:
    """Each stored transition with the same chance; with `steps` the return of n steps of the same episode:

        r = Σ_{i<k} gamma^i r_{t+i},  discount gamma^k,  k = min(n, steps to the episode's end or to the newest row)
    """
    held = torch.tensor([min(x, replay.capacity) for x in replay.stored])
    at = (luck.uniform("replay", count) * held[:, None]).long()        # < 2^24 rows: float32 reaches each of them
    which = torch.tensor(replay.runs)[:, None]
    s, a, total, s2, end, cut = replay.split(replay.rows[which, at])
    discount = torch.full_like(total, gamma)
    if steps > 1:
        newest = torch.tensor([x % replay.capacity if x > replay.capacity else x for x in replay.stored])[:, None]
        goes_on = (end + cut) == 0
        for _ in range(steps - 1):
            # rows before this one in age: those behind the newest are older, and never follow it
            left = torch.where(at < newest, newest - at, newest - at + held[:, None])
            at = (at + replay.stride) % held[:, None].clamp(min=1)
            goes_on &= left > replay.stride
            _, _, r, later, ended, stopped = replay.split(replay.rows[which, at])
            total = torch.where(goes_on, total + discount * r, total)
            s2 = torch.where(goes_on[..., None], later, s2)
            end = torch.where(goes_on, ended, end)
            discount = torch.where(goes_on, discount * gamma, discount)
            goes_on &= (ended + stopped) == 0
    return Transitions(s, a, total, s2, discount * (1 - end))
