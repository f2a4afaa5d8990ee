"""The replay of each run: a ring of transitions, (S, capacity, W), and how batches are drawn from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from isocost.control.luck import Luck
from isocost.control.types import Space, Transitions


@dataclass
class Replay:
    """The newest `capacity` transitions of each run. A row is observation, action, reward, following, terminal, cut.

    After these a row has what the agent's `prepare` computes of each sample of a rollout: numbers named in `extra`.

    With `stride` environments a run's next step in the same environment is `stride` rows later. A `fixed` one is a set
    that all runs share and none adds to: trajectories one after another, each ended by a terminal row or a cut one.
    """

    space: Space
    rows: Tensor                # (S, capacity, W)
    stored: list[int]           # transitions so far, of each run: those above `capacity` were evicted
    stride: int = 1
    runs: Sequence[int] = ()    # in a view: which of the S runs it has; `stored` is of these
    fixed: bool = False
    rollout: int = 1
    extra: tuple[str, ...] = ()     # names of what `prepare` computes
    known: dict[Any, Any] = field(default_factory=dict)     # what `once` computed of a fixed one
    prior: Replay | None = None     # the set of runs that have one besides their samples

    @classmethod
    def of(
        cls, space: Space, runs: int, capacity: int, stride: int = 1, rollout: int = 1, extra: tuple[str, ...] = ()
    ) -> Replay:
        wide = 2 * space.observation + space.actions + 3 + len(extra)
        return cls(space, torch.zeros(runs, capacity, wide), [0] * runs, stride, rollout=rollout, extra=extra)

    @classmethod
    def of_set(cls, space: Space, runs: int, rows: Tensor) -> Replay:
        """A fixed replay of a set, (N, W)."""
        return cls(space, rows.expand(runs, -1, -1), [len(rows)] * runs, fixed=True)

    def view(self, runs: Sequence[int]) -> Replay:
        """The part of these runs, to draw from."""
        return replace(self, stored=[self.stored[i] for i in runs], runs=runs,
                       prior=self.prior and self.prior.view(runs))

    def only(self, runs: Sequence[int]) -> Replay:
        """A replay that holds these runs alone, with a copy of their rows."""
        rows = self.rows[: len(runs)] if self.fixed else self.rows[list(runs)]
        return replace(self, rows=rows, stored=[self.stored[i] for i in runs],
                       prior=self.prior and self.prior.only(runs))

    def once(self, key: Any, make: Callable[[], Any]) -> Any:
        """What `make` computes of the rows: once for a fixed replay."""
        if not self.fixed:
            return make()
        if key not in self.known:
            self.known[key] = make()
        return self.known[key]

    def save(self, i: int) -> dict[str, Tensor]:
        """The rows of a run, for its checkpoint; those of a set are in the set's file."""
        return {} if self.fixed else {"replay": self.rows[i, : min(self.stored[i], self.capacity)].clone()}

    def load(self, i: int, saved: Mapping[str, Tensor], stored: int) -> None:
        """What `save` gave."""
        if not self.fixed:
            self.rows[i, : len(saved["replay"])] = saved["replay"]
            self.stored[i] = stored

    @property
    def capacity(self) -> int:
        return self.rows.shape[1]

    def add(self, runs: Sequence[int], rows: Tensor) -> None:
        """(n, k, W): k transitions of each of these runs."""
        for i, new in zip(runs, rows, strict=True):
            for row in new:
                self.rows[i, self.stored[i] % self.capacity, : len(row)] = row
                self.stored[i] += 1

    def split(self, rows: Tensor) -> tuple[Tensor, ...]:
        """Rows (..., W) as observation, action, reward, following, terminal, cut."""
        o, a = self.space.observation, self.space.actions
        s, act, r, s2, end, cut, _ = rows.split((o, a, 1, o, 1, 1, len(self.extra)), -1)
        return s, act, r[..., 0], s2, end[..., 0], cut[..., 0]

    def newest(self) -> Tensor:
        """(S, N): the rows of each run's last rollout, the oldest first; all rows, if a run has fewer."""
        many = min(self.rollout, *self.stored)
        return (torch.tensor(self.stored)[:, None] - many + torch.arange(many)) % self.capacity

    def at(self, rows: Tensor) -> Tensor:
        """(S, B) numbers of rows -> (S, B, W)."""
        return self.rows[torch.tensor(self.runs)[:, None], rows]

    def named(self, rows: Tensor) -> dict[str, Tensor]:
        """What `keep` stored in these rows, by its name: (S, B) each."""
        return {k: self.at(rows)[..., i - len(self.extra)] for i, k in enumerate(self.extra)}

    def keep(self, numbers: Tensor) -> None:
        """Store what `prepare` computed in the rows of the last rollout: (S, N, M)."""
        self.rows[torch.tensor(self.runs)[:, None], self.newest(), -len(self.extra) :] = numbers


def uniform(replay: Replay, count: int, luck: Luck, *, gamma: float = 0.99, steps: int = 1) -> Transitions:
    """Each stored transition with the same chance, as `gathered`."""
    held = torch.tensor([min(x, replay.capacity) for x in replay.stored])
    at = (luck.uniform("replay", count) * held[:, None]).long()        # < 2^24 rows: float32 reaches each of them
    return gathered(replay, at, gamma=gamma, steps=steps)


def gathered(replay: Replay, at: Tensor, *, gamma: float, steps: int = 1) -> Transitions:
    """The transitions of these rows, (S, B); with `steps` the return of n steps of the same episode:

        r = Σ_{i<k} gamma^i r_{t+i},  discount gamma^k,  k = min(n, steps to the episode's end or to the newest row)
    """
    held = torch.tensor([min(x, replay.capacity) for x in replay.stored])
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
