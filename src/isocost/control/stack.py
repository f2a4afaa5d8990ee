"""Runs that share a stack: each asks for what it wants next, and the loop turns when all of them wait.

A run asks to reach a number of samples, or to be evaluated. Nothing is computed while one of them still writes its
record, and what is computed serves all that wait: the runs go on at their own pace and stay in one loop.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import numpy as np
from numpy import ndarray

from isocost.control.loop import Loop, StackedRun


class Stack:
    """One loop, and the wishes of its runs. Everything happens in one thread."""

    def __init__(self, loop: Loop):
        self.loop = loop
        self._wishes: dict[int, tuple[str, Any, asyncio.Future[Any]]] = {}      # by a run's identity
        self.seconds = {id(run): 0.0 for run in loop.runs}      # busy seconds: each run has an equal share

    async def reach(self, run: StackedRun, samples: int) -> None:
        """Wait until the run has taken so many samples and made the updates that pay them back.

        Raises FloatingPointError if it diverged, and RewardFailed if its environment failed.
        """
        if run.failure is None:
            await self._ask(run, "reach", samples)
        if run.failure is not None:
            raise run.failure

    async def evaluate(self, run: StackedRun, episodes: int) -> ndarray:
        """(2, episodes): returns and steps of fresh episodes without exploration."""
        found: ndarray = await self._ask(run, "evaluate", episodes)
        return found

    def leave(self, run: StackedRun) -> None:
        """The run has ended: the others go on without it."""
        if len(self.loop.runs) > 1:
            self.loop.drop(self.index(run))
        else:
            self.loop.runs = []
        self._serve()

    def index(self, run: StackedRun) -> int:
        return next(i for i, r in enumerate(self.loop.runs) if r is run)

    async def _ask(self, run: StackedRun, kind: str, amount: int) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._wishes[id(run)] = kind, amount, future
        self._serve()
        return await future

    def _serve(self) -> None:
        """If all runs wait, fulfil the wishes of some."""
        runs = self.loop.runs
        if not runs or any(id(r) not in self._wishes for r in runs):
            return
        began, wishes = time.perf_counter(), [self._wishes[id(r)] for r in runs]
        episodes = max((amount for kind, amount, _ in wishes if kind == "evaluate"), default=0)
        # those that asked for fewer wait: what an evaluation draws depends on its number of episodes
        if evaluated := [i for i, (kind, amount, _) in enumerate(wishes) if kind == "evaluate" and amount == episodes]:
            found = self.loop.evaluate(evaluated, episodes)
            answers = {i: found[:, j] for j, i in enumerate(evaluated)}
        else:
            answers = dict.fromkeys(self.loop.advance([amount for _, amount, _ in wishes]), np.empty(0))
        share = (time.perf_counter() - began) / len(evaluated or runs)
        for i in evaluated or range(len(runs)):
            self.seconds[id(runs[i])] += share
        for i, answer in answers.items():
            *_, future = self._wishes.pop(id(runs[i]))
            if not future.done():       # it was cancelled
                future.set_result(answer)
