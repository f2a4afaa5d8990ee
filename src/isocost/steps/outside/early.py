"""Ending a run of a user's trainer early, by the verdict on it after each of its evaluations.

The rule is that of `isocost verdict` (isocost.planner.stopping): a run is ended if it will reach its target, or gain
what the rest must be worth, with a probability of at most 3 %. Its folder then holds verdict.json.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from isocost.errors import UserError
from isocost.planner.stopping import StoppingVerdict
from isocost.screen.words import word
from isocost.steps.folder import StudyFolder
from isocost.steps.look.verdict import Bearings, judge_run

VERDICT = "verdict.json"    # in the folder of a run that was ended early


@dataclass(frozen=True)
class Stops:
    """When a run is ended early: once the rest of it is unlikely to gain `worth` in held-out reward, and with `target`
    once it is unlikely to reach the forecast's lower bound. `at` is the amount at which all runs of a step end, those
    of isocost too ("40usd", "2h", "1e18flop")."""

    worth: float | None = None
    target: bool = False
    at: str | None = None

    @property
    def any(self) -> bool:
        return self.target or self.worth is not None

    def require(self, home: StudyFolder) -> None:
        """Raises UserError where runs cannot be ended early: they are isocost's own."""
        if self.any and home.trainer is None:
            option = "--stop" if self.target else "--worth"
            raise UserError(f"{option} ends runs of a trainer of yours; those of {home.path} are isocost's own: see "
                            f"`isocost verdict {word(home.path)}`, and stop them by hand")

    def judge(self, home: StudyFolder) -> Callable[[Path], StoppingVerdict | None]:
        """The verdict on the run in a folder, if it is to be ended now."""
        bearings = Bearings.of(home.path)
        if not self.target:
            bearings = Bearings(bearings.law, None, bearings.equal, bearings.machine, bearings.metric)

        def stopped(run: Path) -> StoppingVerdict | None:
            found = judge_run(run, bearings, worth=self.worth)
            return found if found is not None and found.word == "stop" else None

        return stopped


NEVER = Stops()
