"""The driver of a run: it evaluates at points fixed in advance, saves, resumes, and records why the run ended.

What the run does is a `Workload`; the driver knows nothing else of it. Of the run's folder it writes run.json,
metrics.jsonl, timing.jsonl, the checkpoints and end.json. Other streams are the workload's.
"""

from __future__ import annotations

import asyncio
import gc
import math
import os
import resource
import signal
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from typing import Any, NamedTuple, Protocol

from torch import Tensor

from isocost import meter as meters
from isocost.disk.jsonfile import write_json
from isocost.errors import RewardFailed
from isocost.meter import Meter
from isocost.runs import files, schema
from isocost.runs.files import COMPLETE, DIVERGED, REWARD_FAILED, STOPPED, read_lines
from isocost.runs.record import RunRecord
from isocost.runs.speed import rates
from isocost.runs.stop_at import StopAt
from isocost.types import Cost, End
from isocost.units import STOPS

ALLOCATED = 200_000  # objects between two collections: a run makes few cycles, and collecting took 6 % of its time
WORTH_SAVING = 1.0      # seconds of work: a checkpoint takes some hundredths of a second, files synced


class Clocks(NamedTuple):
    """Wall-clock and CPU seconds of this process, all its threads; differences count."""

    wall: float
    cpu: float

    @staticmethod
    def now() -> Clocks:
        return Clocks(time.perf_counter(), time.process_time())


class Workload(Protocol):
    """What a run does: it advances in steps, can be evaluated between two steps, and continues from a checkpoint.

    It charges its meter for all that it computes, and its random numbers have addresses (`isocost.chance`): a killed
    and resumed run then leaves the same bytes as one that was never stopped.
    """

    @property
    def units(self) -> tuple[str, ...]: ...     # of `units.STOPS`, what timing.jsonl counts; points are in the first
    @property
    def meter(self) -> Meter: ...
    @property
    def step(self) -> int: ...                  # the number of complete steps
    @property
    def spent(self) -> Cost: ...                # the account of training when the last step was complete

    def about(self) -> Mapping[str, Any]:
        """What run.json says of the run (`schema.RUN`); it is written once, when the run begins."""
        ...

    def steps(self, run: Driver) -> AsyncGenerator[Mapping[str, Any], None]:
        """Make steps until its budget cannot pay for another one; yields the line of each for metrics.jsonl.

        A line has the number of its step, from 0, as `step`. `run.end` is set before the generator returns, or before
        the line of a step that must be the last. A budget of seconds is compared with `run.clock()`. The driver closes
        the generator of a run that is stopped: what is unfinished then is cancelled and charged.

        Here and in `evaluate`, FloatingPointError ends the run as diverged, and RewardFailed as one that goes on once
        its reward is corrected. Any other exception leaves it as a kill does.
        """
        ...

    def done(self, run: Driver) -> float:
        """How many steps of the next one's size are done: `step`, where all have one size."""
        ...

    async def evaluate(self) -> Mapping[str, Any]:
        """Measure it, charged to the account "evaluation": `eval/select` or `eval/audit`, and more for
        metrics.jsonl."""
        ...

    def state(self) -> tuple[Mapping[str, Tensor], Mapping[str, Any]]:
        """The tensors and plain data that `restore` needs. Streams of its own are complete up to here."""
        ...

    def restore(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any], lines: Sequence[Any]) -> None:
        """Continue from these, the meter restored and streams truncated; `lines` are those of metrics.jsonl."""
        ...

    def finish(self, run: Driver) -> Mapping[str, Any]:
        """End. What only it knows for end.json: `notes`, and a `detail` that is not `run.end.why`."""
        ...


class Driver:
    """The live state of one run: its workload, its record, and its clock."""

    def __init__(
        self, workload: Workload, record: RunRecord, *, points: Sequence[float] = (), save_every: int = 0,
        save_seconds: float = 0.0, on_step: Callable[[Mapping[str, Any]], None] = lambda line: None,
        stop_at: StopAt | None = None,
        opening: Clocks | None = None,
    ):
        """`points` are evaluations besides those at the start and the end, in the first of the workload's units.
        `opening` are the clocks when the workload began to be opened, by default now.

        A checkpoint follows every `save_every` steps, and each step that ends `save_seconds` after the last one; 0:
        without this rule. `on_step` is called with each line of metrics.jsonl. The run ends at the last step that
        `stop_at` pays for.
        """
        self.workload, self.record, self.on_step = workload, record, on_step
        self.points, self.counted = sorted(p for p in points if p > 0), STOPS[workload.units[0]]
        self.save_every, self.save_seconds, self.stop_at = save_every, save_seconds, stop_at
        self.end = End()
        self.stop: int | None = None  # the signal that requested a stop
        self.measured = 0  # number of evaluations, including that at the start
        self.evaluated: tuple[int, float] = (-1, -1)  # step and amount of the last one: late steps may cost nothing
        self.peak = 0  # MB of memory
        self.before = 0.0  # seconds of earlier processes
        self.began = self.saved = 0.0  # when this process began, and when the last checkpoint was written
        self.opening = opening or Clocks.now()
        self.start_up = self.evaluating = self.cpu_before = 0.0     # see `end.json`, docs/records.md
        self.shares = False     # whether its process drives other runs

    async def go(self) -> dict[str, Any]:
        """Begin the run or resume it; returns the contents of end.json."""
        with _rare_collections(), _stoppable([self]):
            return await self.drive()

    async def drive(self) -> dict[str, Any]:
        """`go` without the handlers of signals, which several runs of one process share: `together`."""
        if not (told := self.record.path / "run.json").exists():
            write_json(told, {"schema": files.SCHEMA, **self.workload.about(), "code": files.code()})
        self.saved = self.began = time.perf_counter()
        self.start_up = self.began - self.opening.wall
        self._restore()
        self.workload.meter.observer = self.record.paid
        try:
            await self._run()
        except RewardFailed as why:
            self.end.reason, self.end.why = REWARD_FAILED, str(why)
        except FloatingPointError as why:
            self.end.reason, self.end.why = DIVERGED, str(why)
        if self.end.reason not in ("interrupted", STOPPED):
            self._save()
        return self._finish()

    async def _run(self) -> None:
        if not self.measured or self.due:
            await self._evaluate()
            self.record.write("timing.jsonl", self._timing())
            self._save()
        steps = self.workload.steps(self)
        async with aclosing(steps):
            while not self._stopped() and (line := await anext(steps, None)) is not None:
                self._write(line)
                if self.end.reason:
                    break
                if due := self.due:
                    await self._evaluate()
                if self.stop:
                    self.end.reason = "interrupted"
                    self._save()    # with what is ahead, which ends with the steps
                    break
                if self._unsaved(due):
                    self._save()
        if self.end.reason in COMPLETE and self.evaluated < (self.workload.step, self._amount):
            await self._evaluate()

    def _stopped(self) -> bool:
        """Whether the run ends here because `stop_at` does not pay for another step and an evaluation. The checkpoint
        is from before the evaluation of the end, so that a run with a larger amount continues without it."""
        if self.stop_at is None:
            return False
        at, seconds, work = self.stop_at, self.seconds(), self.workload
        spent, more = at.spent(work.meter, seconds), at.next(work.meter, seconds, work.done(self), self.measured)
        if spent + more <= at.amount:
            return False
        least = spent + more if work.step == 0 else spent
        self.end.reason, self.end.why = STOPPED, (
            f"--stop-at {at.text(at.amount)} does not pay for one update{' and evaluations' * at.whole}: give at least "
            f"{at.text(least)}" if work.step < 2 and least > at.amount else
            f"{at.text(spent)} of --stop-at {at.text(at.amount)} spent; another update"
            f"{' and an evaluation take' if at.whole else ' takes'} {at.text(more)}")
        self._save()
        return True

    @property
    def due(self) -> bool:
        """Whether a point at which to evaluate is reached and not yet evaluated."""
        return bool(self.points) and self._amount >= self.points[0]

    def seconds(self) -> float:
        """Wall-clock seconds of the run, over all its processes."""
        return self.before + time.perf_counter() - self.began

    def cpu(self) -> float:
        """CPU seconds of the run with its start-up, over all its processes; not those of processes that it starts. NaN
        where others run in its process."""
        return math.nan if self.shares else self.cpu_before + time.process_time() - self.opening.cpu

    def clock(self) -> float:
        """These seconds, plus those expected for the evaluation at the end: a budget of time pays for both."""
        return self.seconds() + self.workload.meter.of(meters.EVALUATION).seconds / max(self.measured, 1)

    @property
    def _amount(self) -> float:
        """How much is spent, in the unit of the points."""
        return float(getattr(self.workload.spent, self.counted))

    def _write(self, line: Mapping[str, Any]) -> None:
        self.record.write("metrics.jsonl", line)
        self.record.write("timing.jsonl", self._timing())
        self.on_step(line)

    async def _evaluate(self) -> None:
        """If a step passed several points, there is one evaluation for all."""
        work, amount, began = self.workload, self._amount, self.cpu()
        line = {"step": work.step, self.counted: getattr(work.spent, self.counted), **await work.evaluate()}
        self.record.write("metrics.jsonl", line)
        self.measured, self.evaluated = self.measured + 1, (work.step, amount)
        self.evaluating += self.cpu() - began
        self.points = [p for p in self.points if p > amount]
        self.record.flush()
        self.on_step(line)

    def _timing(self) -> dict[str, float]:
        """Wall-clock seconds so far, and busy seconds by activity."""
        meter, spent = self.workload.meter, self.workload.spent
        return {
            "step": self.workload.step,
            **{unit: getattr(spent, STOPS[unit]) for unit in self.workload.units},
            "seconds": round(self.seconds(), 4),
            **_known(cpu=self.cpu()),
            **{work: round(meter.seconds(work), 4) for work in (meters.SAMPLE, meters.SCORE, meters.LEARN)},
            "evaluate": round(meter.of(meters.EVALUATION).seconds, 4),
            "rss_mb": self._peak_memory(),
        }

    def _peak_memory(self) -> int:
        """Peak memory in MB, read every 128th step: a system call that takes a millisecond in some sandboxes."""
        if not self.peak or self.workload.step % 128 == 0:
            self.peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        return self.peak

    def _unsaved(self, evaluated: bool) -> bool:
        """Whether a checkpoint is due: by steps or seconds, or after an evaluation if enough is at risk."""
        seconds = time.perf_counter() - self.saved
        if self.save_every and self.workload.step % self.save_every == 0:
            return True
        return (evaluated and seconds >= WORTH_SAVING) or 0 < self.save_seconds <= seconds

    def _save(self) -> None:
        tensors, state = self.workload.state()
        own = {"meter": self.workload.meter.state(), "measured": self.measured, "seconds": round(self.seconds(), 4),
               **_known(cpu=self.cpu(), start_up=self.start_up, evaluation_cpu=self.evaluating)}
        self.record.save(self.workload.step, tensors, {**state, **own})
        self.saved = time.perf_counter()

    def _restore(self) -> None:
        meter = self.workload.meter
        checked = meter.of(meters.CHECK)    # charged before the record was opened
        found = self.record.restore(meter)
        self.record.pay_since(0 if found is None else found[1]["step"])
        self.record.paid(meters.CHECK, checked)
        if found is None:
            return
        tensors, state = found
        lines = read_lines(self.record.path / "metrics.jsonl")
        self.workload.restore(tensors, state, lines)
        evaluations = (x for x in reversed(lines) if schema.is_evaluation(x))
        self.evaluated = next(((x["step"], x[self.counted]) for x in evaluations), (-1, -1))
        self.points = [p for p in self.points if p > self.evaluated[1]]
        self.measured, self.before = state["measured"], state["seconds"]
        unknown = math.nan      # earlier versions did not save these
        self.cpu_before, self.evaluating = state.get("cpu", unknown), state.get("evaluation_cpu", unknown)
        self.start_up += state.get("start_up", unknown)

    def _stop_data(self) -> dict[str, Any]:
        """Where the run was stopped, for end.json: the amount, and what was spent of it, the end's evaluation too."""
        assert self.stop_at is not None
        return {**self.stop_at.data(), "spent": self.stop_at.spent(self.workload.meter, self.seconds())}

    def _finish(self) -> dict[str, Any]:
        meter, step, end = self.workload.meter, self.workload.step, self.end
        known = self.workload.finish(self)
        self.peak = 0  # read it again
        timing = self._timing()
        speed = rates(timing)
        details = {
            DIVERGED: f"update {step}: {end.why}",
            REWARD_FAILED: f"{end.why}. All that was paid for is kept: correct it, and the same command goes on",
            "interrupted": f"stopped by signal {self.stop} after step {step}; it goes on where it was",
        }
        written = {
            "schema": files.SCHEMA, "reason": end.reason, "detail": details.get(end.reason, end.why),
            **({"bound": end.bound} if end.bound else {}),
            **({"stop_at": self._stop_data()} if end.reason == STOPPED else {}),
            "steps": step,
            "bill": {k: v.data() for k, v in meter.logical.items()},
            "physical": {k: v.data() for k, v in meter.physical.items()},
            "seconds": round(timing["seconds"], 3), "timing": timing, **(speed.data() if speed else {}),
            **_known(start_up=self.start_up, evaluation_cpu=self.evaluating, load=os.getloadavg()[0]),
            "signal": self.stop,
            **known,
            "notes": [*self.record.notes, *known.get("notes", ())],
        }
        self.record.check()
        write_json(self.record.path / "end.json", written)
        return written


def _known(**measured: float) -> dict[str, float]:
    return {name: round(x, 4) for name, x in measured.items() if math.isfinite(x)}


async def together(runs: Sequence[Driver]) -> None:
    """Drive several runs in one process. A signal stops all of them; an error in one leaves the others as a kill does.
    """
    for run in runs:
        run.shares = len(runs) > 1
    with _rare_collections(), _stoppable(runs):
        async with asyncio.TaskGroup() as group:
            for run in runs:
                group.create_task(run.drive())


@contextmanager
def _stoppable(runs: Sequence[Driver]) -> Iterator[None]:
    """Ctrl-C and SIGTERM request a stop after the current step, in the main thread; a second one acts as usual."""
    before: dict[int, Any] = {}

    def handle(signum: int, frame: Any) -> None:
        for run in runs:
            run.stop = signum
        signal.signal(signum, before[signum])

    if threading.current_thread() is threading.main_thread():
        for s in (signal.SIGINT, signal.SIGTERM):
            before[s] = signal.signal(s, handle)
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


@contextmanager
def _rare_collections() -> Iterator[None]:
    """The garbage collector skips what is loaded by now, and seldom looks at the rest."""
    often, frozen = gc.get_threshold(), gc.get_freeze_count()
    gc.freeze()
    gc.set_threshold(ALLOCATED, *often[1:])
    try:
        yield
    finally:
        gc.set_threshold(*often)
        if not frozen:  # else somebody else's objects would thaw too
            gc.unfreeze()
