"""Marks finished rollouts. A verifier that fails gives no score, never a zero, and is counted by how it failed.

A verifier that fails too often raises `RewardFailed`, because rollouts without a score cost compute and give no
signal. The limits are:

- `RESTARTS_IN_A_ROW` calls in a row that ended or hung the verifier's process;
- `FAILURES_IN_A_ROW` calls in a row without a score;
- of the last `WINDOW` calls (`LEAST` at least), more than `FAILED` failed or more than `RESTARTED` cost a process.

A call that returned None gives no score but is not a failure: only the second limit counts it.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence

from isocost.errors import RewardFailed, UserError
from isocost.meter import Meter
from isocost.tasks.verify import verifiers
from isocost.tasks.verify.processes import Outcome, WorkerPool, finite, printable
from isocost.types import Cost, Problem, Rollout, Score

RESTARTS_IN_A_ROW, FAILURES_IN_A_ROW = 8, 32
WINDOW, LEAST = 256, 64
FAILED, RESTARTED = 0.5, 0.25     # shares of the window
_NO_TURNS: Outcome = ("exception", "no environment answered a turn, so there is no reward")
_RIGHT, _WRONG = Score(1.0), Score(0.0)   # one object for the scores that nearly every rollout gets


class Grader:
    """Implements `world.Grade` with a verifier's name.

    Pure fast verifiers are called in place. Slow and untrusted ones (math, reasoning-gym, a user's file) run in
    `workers` processes (0: one per core, at most 4), each call within `timeout` seconds; a worker that overruns or
    dies is replaced. Scores come back in launch order. `failures` counts kinds, `examples` keeps the first of each.
    """

    def __init__(self, verifier: str, *, workers: int = 0, timeout: float = 5.0, meter: Meter | None = None):
        if timeout <= 0:
            raise UserError(f"a verifier's time limit is more than 0 seconds, not {timeout:g}")
        self.verifier, self.timeout, self.meter = verifier, timeout, meter or Meter()
        self._kind = verifiers.find(verifier)
        self.scored: Callable[[Sequence[Rollout]], Awaitable[list[float | None]]] | None = None   # set with the world
        self._record = _Record(verifier)
        self.failures, self.examples = self._record.failures, self._record.examples
        workers = workers or min(os.cpu_count() or 1, 4)
        self._pool = WorkerPool(verifier, workers, timeout, lambda: self._record.stopped) if self._kind.slow else None

    async def __call__(self, rollouts: Sequence[Rollout]) -> list[Score | None]:
        """A score each, None where the verifier failed. Raises UserError for a user's file, RewardFailed for many
        failures."""
        pool = self._pool
        if self._kind.of_turns:
            return self._by_turns(rollouts)
        if self.scored is not None:
            said = await self.scored(rollouts)
            outcomes: list[Outcome] = [("none", None) if x is None else finite(("score", x)) for x in said]
            self._record.saw_all(outcomes, [r.problem for r in rollouts])
            return self._scores(outcomes)
        if pool is None:
            return self._in_place([r.final for r in rollouts], [r.problem for r in rollouts])
        self.meter.charge(Cost(verify=len(rollouts)))
        waiting = [pool.submit(r.final, r.problem, _tokens(r), self._record.saw) for r in rollouts]
        timed: list[tuple[Outcome, float]] = []
        try:
            for w in waiting:
                timed.append(await asyncio.wrap_future(w))
        finally:     # a cancelled call pays for what was marked before
            self.meter.charge(Cost(seconds=sum((seconds for _, seconds in timed), 0.0)))
        return self._scores([o for o, _ in timed])

    def texts(self, finals: Sequence[str], problems: Sequence[Problem]) -> list[Score | None] | None:
        """The same for texts, at once; None for a verifier that needs the rollouts, as one with processes does."""
        return self._in_place(finals, problems) if self._pool is None and self._kind.of_text else None

    @property
    def scorer(self) -> str:
        """The specification of the scorer that marks; empty for any other verifier."""
        return self._kind.scorer

    def _by_turns(self, rollouts: Sequence[Rollout]) -> list[Score | None]:
        """What environments paid: the sum of a rollout's turns, with the reward of each. No turns, no score."""
        outcomes: list[Outcome] = [
            finite(("score", float(sum(t.reward for t in r.turns)))) if r.turns else _NO_TURNS for r in rollouts
        ]
        self.meter.charge(Cost(verify=len(rollouts)))
        self._record.saw_all(outcomes, [r.problem for r in rollouts])
        return [
            None if score is None else Score(score.value, turns=tuple(t.reward for t in r.turns))
            for r, score in zip(rollouts, self._scores(outcomes), strict=True)
        ]

    def _in_place(self, finals: Sequence[str], problems: Sequence[Problem]) -> list[Score | None]:
        began, mark = time.perf_counter(), self._kind.mark
        outcomes = [_safely(mark, text, p) for text, p in zip(finals, problems, strict=True)]
        self.meter.charge(Cost(verify=len(finals), seconds=time.perf_counter() - began))
        self._record.saw_all(outcomes, problems)
        return self._scores(outcomes)

    def _scores(self, outcomes: Sequence[Outcome]) -> list[Score | None]:
        if self._record.stopped:
            raise RewardFailed(self._record.stopped)
        return [_score(o) for o in outcomes]

    def mark(self, pairs: Sequence[tuple[str, Problem]]) -> list[float | str]:
        """The score of each (text, problem), or the reason why it has none; charged, and no failure is counted."""
        if self._pool is None:
            began = time.perf_counter()
            outcomes = [_safely(self._kind.mark, text, p) for text, p in pairs]
            seconds = time.perf_counter() - began
        else:
            waiting = [self._pool.submit(text, p, (), self._record.checked) for text, p in pairs]
            timed = [w.result() for w in waiting]
            outcomes, seconds = [o for o, _ in timed], sum((s for _, s in timed), 0.0)
        self.meter.charge(Cost(verify=len(pairs), seconds=seconds))
        return [value if kind == "score" and isinstance(value, float) else _in_words(kind, value)
                for kind, value in outcomes]

    def together(self, pairs: Sequence[tuple[str, Problem]]) -> list[float] | str:
        """The rewards of several completions in one call of a user's function, or the reason why they have none."""
        if self._pool is None:
            return f"{self.verifier} marks one text at a time"
        (kind, value), seconds = self._pool.together(pairs, self._record.checked).result()
        self.meter.charge(Cost(verify=len(pairs), seconds=seconds))
        return value if isinstance(value, list) else _in_words(kind, value)

    def close(self) -> None:
        """End the workers. The next call starts new ones."""
        if self._pool is not None:
            self._pool.close()

    def __enter__(self) -> Grader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Record:
    """The latest outcomes of one verifier, and the reason to stop calling it. Threads may share it."""

    def __init__(self, verifier: str):
        self.stopped = ""                 # the reason, after too many failures
        self.failures: Counter[str] = Counter()
        self.examples: dict[str, str] = {}
        self._verifier, self._first = verifier, ""
        self._latest: deque[tuple[bool, bool]] = deque()    # (failed, process replaced), at most WINDOW
        self._failed = self._restarted = 0     # how many of these
        self._unscored = self._restarts = 0    # in a row
        self._lock = threading.Lock()

    def saw(self, outcome: Outcome, problem: str, replaced: bool = False) -> None:
        """Count an answer; `replaced`: a process was replaced for it."""
        failed = outcome[0] not in ("score", "none")
        with self._lock:
            if outcome[0] != "score":
                self.failures[outcome[0]] += 1
                self.examples.setdefault(outcome[0], f"problem {problem!r}: {outcome[1]}")
            self._latest.append((failed, replaced))
            old = self._latest.popleft() if len(self._latest) > WINDOW else (False, False)
            self._failed += failed - old[0]
            self._restarted += replaced - old[1]
            self._unscored = 0 if outcome[0] == "score" else self._unscored + 1
            self._count(outcome, problem, failed, replaced)

    def saw_all(self, outcomes: Sequence[Outcome], problems: Sequence[Problem]) -> None:
        """Count answers in order, none of which replaced a process."""
        if self.failures or any(kind != "score" for kind, _ in outcomes):
            for outcome, problem in zip(outcomes, problems, strict=True):
                self.saw(outcome, problem.id)
            return
        with self._lock:        # every answer so far has a score
            self._latest.extend([(False, False)] * min(len(outcomes), WINDOW - len(self._latest)))

    def checked(self, outcome: Outcome, problem: str, replaced: bool) -> None:
        """Count an answer to a text that no policy wrote: a verifier may raise on these, but must not hang or exit."""
        with self._lock:
            self._count(outcome, problem, replaced, replaced)

    def _count(self, outcome: Outcome, problem: str, failed: bool, replaced: bool) -> None:
        if failed and not self._first:
            self._first = f"the first failure, on problem {problem!r}: {_in_words(*outcome)}"
        self._restarts = self._restarts + 1 if failed and replaced else 0
        self.stopped = self.stopped or self._too_often()

    def _too_often(self) -> str:
        n = len(self._latest)
        if self._restarts >= RESTARTS_IN_A_ROW:
            said = f"ended or hung its process {self._restarts} times in a row"
        elif self._unscored >= FAILURES_IN_A_ROW:
            said = f"gave no score {self._unscored} times in a row"
        elif n >= LEAST and self._failed > FAILED * n:
            said = f"failed on {self._failed} of the last {n} answers, and at most {FAILED:.0%} may fail"
        elif n >= LEAST and self._restarted > RESTARTED * n:
            said = f"cost {self._restarted} processes for the last {n} answers; at most {RESTARTED:.0%} may cost one"
        else:
            return ""
        return f"{self._verifier} {said}; {self._first or 'it returned None'}"


def _score(outcome: Outcome) -> Score | None:
    kind, value = outcome
    if kind != "score" or not isinstance(value, float):
        return None
    return _RIGHT if value == 1.0 else _WRONG if value == 0.0 else Score(value)


def _safely(mark: verifiers.Verifier, text: str, problem: Problem) -> Outcome:
    try:
        value = mark(text, problem)
    except (Exception, SystemExit) as e:
        return "exception", printable(f"{type(e).__name__}: {e}"[:500])
    return ("score", value) if value == 1.0 or value == 0.0 else finite(("score", value))


def _in_words(kind: str, value: float | str | list[float] | None) -> str:
    return str(value) if kind in ("exception", "stopped") else f"{kind}: {value}"


def _tokens(rollout: Rollout) -> list[int]:
    return [int(t) for t in rollout.segments[-1].reply()] if rollout.segments else []
