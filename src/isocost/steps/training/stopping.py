"""`--stop-at`: the amount at which the runs of a step end, shared among them, and what is said where they did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from isocost.errors import UserError
from isocost.laws.law import DECADE
from isocost.planner.budget import UNTIMED, Machine
from isocost.runs.files import STOPPED
from isocost.runs.job import Job
from isocost.runs.stop_at import StopAt
from isocost.screen.display import Result, Row, folder_field
from isocost.screen.words import counted
from isocost.stats.intervals import Interval
from isocost.steps.study import StudyRecord
from isocost.steps.training.spending import machine_of
from isocost.types import Cost
from isocost.units import CURRENCIES, ENV_STEPS, FLOPS, TOKENS, words
from isocost.world import Learner
from isocost.worlds.setting import Opened

GAIN = 0.01         # of reward, whose price is named
SHOWN = 4           # stopped runs that are named
SAMPLED = 64        # prompts whose tokens are counted for the least cost of an update
NO_LAW = "no forecast is sealed for these runs"


def stop_of(text: str | None, machine: Machine) -> StopAt | None:
    """The amount that `--stop-at` names, at the machine's or service's price; None without one. Raises UserError for an
    amount that cannot be counted."""
    if text is None:
        return None
    found = StopAt.parse(text, machine.worth)
    if machine.tokens and found.unit in CURRENCIES and "train" not in found.each:
        raise UserError(f"--stop-at {text}: the price {machine.tokens!r} has none of trained tokens: add it, such as "
                        f",0.40{found.unit}/M-train")
    return found


def least_update(size: int, opened: Opened) -> Cost:
    """The least that an update of `size` rollouts costs: its prompts are read, and an answer has one token."""
    text, problems = opened.world.text, opened.sides.train[:SAMPLED]
    read = sum(len(text.prompt(p.prompt)) for p in problems) / max(len(problems), 1)
    return Cost(rollouts=size, prefill=int(size * read), decode=size)


def refuse_least(job: Job, least: Cost, learner: Learner | None = None) -> None:
    """Raises UserError for an amount that does not pay for the `least` cost of an update."""
    if (at := job.stop_at) is None or not (at.each or learner):
        return
    at = at if learner is None else at.sized(learner.parameters, learner.learned)
    cost = at.worth(least, least._replace(prefill=0), 0.0)      # a service may have read its prompts before
    if cost > at.amount:
        raise UserError(f"--stop-at {at.text(at.amount)} does not pay for one update, which costs at least "
                        f"{at.text(cost)}: n {job.arm['n']} x B {job.arm['B']} rollouts")


def amount_of(text: str | None, study: StudyRecord) -> StopAt | None:
    """The amount of `--stop-at` for the runs of a study; None without one.

    Of a user's trainer, tokens and FLOP are those of a rollout as it was profiled: its log has neither.

    Raises UserError for an amount that cannot be counted.
    """
    found = stop_of(text, machine_of(study))
    if found is None:
        return None
    prices = study.planned.prices
    if found.unit == FLOPS:
        found = found.sized(prices.parameters, prices.learned)
    if study.trainer is None or found.unit not in (TOKENS, FLOPS, ENV_STEPS):
        return found
    if not prices.decode or found.unit == ENV_STEPS:
        raise UserError(f"--stop-at {text}: the log of your trainer has no {words(found.unit)}: give rollouts, time or "
                        "money")
    rollout = prices.bill([(1, 1, 1, 0)], UNTIMED)
    return replace(found, each={"rollouts": rollout.of_unit(found.unit)})


def shared(at: StopAt | None, jobs: Sequence[Job], study: StudyRecord, others: Sequence[str] = ()) -> list[Job]:
    """The jobs of a phase with the amount at which each ends: in proportion to its rollouts, of what is left when the
    runs `others` of the same command are paid. So neither the order nor the number of workers changes a run. Raises
    UserError, before a run begins, for a share that does not pay for one update."""
    if at is None:
        return list(jobs)
    spent = sum(at.spent_of(run.end) for run in map(study.run, others) if run.has("end.json"))
    whole = sum(job.budget["rollouts"] for job in jobs)
    prices, timing = study.planned.prices, study.planned.timing
    out = []
    for job in jobs:
        share, size = job.budget["rollouts"] / whole, job.arm["n"] * job.arm["B"]
        own = at.shared(share, spent)
        seconds = timing.seconds(job.arm["n"], job.arm["B"], size, 2) if own.whole else 0.0
        update = Cost(size, prices.prefill * size, prices.decode * size, prices.score * size,
                      (prices.prefill + prices.decode if prices.train is None else prices.train) * size,
                      env_steps=prices.env_steps * size)
        cost = own.worth(update, update, seconds)
        if cost > own.amount and not study.run(job.name).has("run.json"):
            raise UserError(f"--stop-at {at.text(at.amount)} leaves {at.text(own.amount)} for {job.name}, and one "
                            f"update of it takes {at.text(cost)}: give at least {at.text(spent + cost / share)}")
        out.append(replace(job, stop_at=own))
    return out


@dataclass(frozen=True)
class StoppedRuns(Result):
    """The runs of a step that `--stop-at` ended: `runs` are (name, rollouts made, rollouts planned), and `spent` what
    they and the others of the command cost of the amount. `there` is the reward that the sealed law forecasts for runs
    of that length, by n; `next` what `GAIN` more reward costs them in words. `why` says why there is neither."""

    at: StopAt
    spent: float
    runs: tuple[tuple[str, float, float], ...]
    there: Mapping[int, Interval]
    next: Mapping[int, str]
    why: str
    command: str
    folder: Path | None = folder_field()

    @staticmethod
    def of(
        at: StopAt | None, jobs: Sequence[Job], ends: Sequence[Mapping[str, Any]], study: StudyRecord, command: str,
        others: Sequence[str] = (),
    ) -> StoppedRuns | None:
        """Of the jobs of a phase and their end.json; None if `--stop-at` ended none of them."""
        made = [(job, end["bill"]["train"]["rollouts"]) for job, end in zip(jobs, ends, strict=True)
                if end["reason"] == STOPPED and "stop_at" in end]
        if at is None or not made:
            return None
        before = [run.end for run in map(study.run, others) if run.has("end.json")]
        spent = sum(map(at.spent_of, (*ends, *before)))
        each = sum(map(at.spent_of, ends)) / sum(end["bill"]["train"]["rollouts"] for end in ends)
        there, more, why = {}, {}, NO_LAW
        if study.has("forecast.json"):
            law = study.law
            why = study.forecast.why if study.forecast.interval is None or law is None or law.refused else ""
            for n in dict.fromkeys(job.arm["n"] for job, _ in made) if not why else ():
                lengths = [C for job, C in made if job.arm["n"] == n]
                C = float(np.mean(lengths))
                assert law is not None
                there[n] = law.predict(n, C, runs=len(lengths)).prediction
                grid = C * np.geomspace(1.0, max(DECADE * law.range[1] / C, 1.0), 400)
                more[n] = _next(grid, law.curve(n, grid).value, at, each * len(lengths))
        return StoppedRuns(at, spent, tuple((job.name, C, job.budget["rollouts"]) for job, C in made), there, more,
                           why, command, study.path)

    @property
    def heading(self) -> str:
        return f"stopped at {self.at.text(self.at.amount)}"

    def rows(self) -> list[Row]:
        """What was spent, the runs, the reward forecast there, the price of more, and the command that continues."""
        names = ", ".join(f"{name} at {C:,.0f} of {planned:,.0f} rollouts" for name, C, planned in self.runs[:SHOWN])
        names += f" and {len(self.runs) - SHOWN} more" * (len(self.runs) > SHOWN)
        known = [Row(f"n = {n}", f"forecast reward there {i} ({i.level:.0%} prediction interval); the next "
                                 f"+{GAIN:g}: {self.next[n]}") for n, i in self.there.items()]
        missing = [Row("forecast there", f"not identified: {self.why}"), Row(f"the next +{GAIN:g}", "not identified")]
        return [Row("", f"{self.at.text(self.spent)} of {self.at.text(self.at.amount)} spent; "
                        f"{counted(len(self.runs), 'run')} ended before the planned length: {names}"),
                *(known or missing), Row("to continue", self.command, "command")]

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "at": self.at.data(), "there": {n: asdict(i) for n, i in self.there.items()},
                "folder": str(self.folder)}


def _next(grid: np.ndarray, value: np.ndarray, at: StopAt, each: float) -> str:
    """What `GAIN` more reward costs than at the start of a law's mean curve, `value` (K,) at `grid` (K,) rollouts, at
    `each` rollout's cost of all its runs."""
    if not (reached := np.flatnonzero(value >= value[0] + GAIN)).size:
        return f"not reached by {grid[-1]:,.0f} rollouts, up to which the law is read"
    k = int(reached[0])
    more = float(np.interp(value[0] + GAIN, value[k - 1:k + 1], grid[k - 1:k + 1]) - grid[0])
    return f"{at.text(more * each)}, for {more:,.0f} rollouts a run more"
