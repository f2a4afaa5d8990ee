"""Finding kept rollouts: of a study, a folder of runs or a run, by run, update, outcome, fault and problem."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isocost.errors import UserError
from isocost.runs import kept_rollouts as kept
from isocost.runs.files import find_runs, read_json
from isocost.runs.kept_rollouts import PROFILE, KeptRollout, Outcome
from isocost.screen.display import Result
from isocost.types import FaultSource

ANY_FAULT = "any"
FAULTS = (ANY_FAULT, *map(str, FaultSource))
PARTS = (kept.TRAINING, kept.HELD_OUT)


@dataclass(frozen=True)
class Rollouts(Result):
    """Kept rollouts that match, the first of them in `found`.

    started: rollouts of the runs that were searched, kept or not; kept: those with text; matching: how many match.
    outcomes: the matching ones by outcome. runs: the names that were searched, "profile" among them.
    """

    folder: Path
    runs: tuple[str, ...]
    started: int
    kept: int
    matching: int
    outcomes: dict[str, int]
    found: tuple[KeptRollout, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "runs": list(self.runs), "started": self.started, "kept": self.kept, "matching": self.matching,
            "outcomes": self.outcomes, "rollouts": [r.to_dict() for r in self.found],
        }


@dataclass(frozen=True)
class Wanted:
    """Which rollouts are looked for: those that match all that is not None.

    update: updates that were made before it was sampled. part: "training" or "held-out". outcome: one of `Outcome`.
    fault: a source of faults ("tool", "model", "environment") or "any". problem, attempt: its id, and the number of the
    attempt in its group.
    """

    update: int | None = None
    part: str | None = None
    outcome: str | None = None
    fault: str | None = None
    problem: str | None = None
    attempt: int | None = None

    def match(self, r: KeptRollout) -> bool:
        """Whether a rollout is one."""
        alike = ((self.update, r.step), (self.part, r.part), (self.outcome, r.outcome), (self.problem, r.problem),
                 (self.attempt, r.attempt))
        faulty = self.fault is None or (bool(r.sources) if self.fault == ANY_FAULT else self.fault in r.sources)
        return faulty and all(wanted is None or wanted == own for wanted, own in alike)


def find_rollouts(folder: str | Path, *, run: str | None = None, first: int = 3, **wanted: Any) -> Rollouts:
    """The kept rollouts below a folder that match all that is given, in order; the `first` of them are returned.

    **wanted: fields of `Wanted`.

    Raises:
        UserError: without a run or a profile below the folder, or for a run or an update that it does not have.
    """
    folder, asked = Path(folder), Wanted(**wanted)
    there, update = _all(folder), asked.update
    if run is not None:
        if run not in there:
            raise UserError(f"{folder} has no run {run!r}; it has {_some(list(there))}")
        there = {run: there[run]}
    every = [r for _, rollouts in there.values() for r in rollouts]
    if update is not None and update not in (updates := sorted({r.step for r in every})):
        raise UserError(f"no rollout of update {update} was kept; there are some of {_some(updates)}")
    matching = [r for r in every if asked.match(r)]
    outcomes = Counter(str(r.outcome) for r in matching)
    return Rollouts(
        folder, tuple(there), sum(n for n, _ in there.values()), len(every), len(matching),
        {str(o): outcomes[str(o)] for o in Outcome if outcomes[str(o)]}, tuple(matching[:first]),
    )


def _all(folder: Path) -> dict[str, tuple[int, list[KeptRollout]]]:
    """Per run, and for the profile, how many rollouts there were and those that were kept."""
    if not folder.is_dir():
        raise UserError(f"there is no folder {folder}")
    found: dict[str, tuple[int, list[KeptRollout]]] = {}
    for home in find_runs(folder):
        rollouts = kept.of_run(home)
        name = rollouts[0].run if rollouts else home.name
        while name in found:        # the same name below another study
            name = f"{home.parent.parent.name}/{name}"
        found[name] = (kept.started(home), rollouts)
    if (folder / "profile.json").exists():
        profile = read_json(folder / "profile.json", partial=True)
        started = (profile.get("cost") or {}).get("rollouts") or 0
        found[PROFILE] = (int(started), kept.read(profile.get("examples") or (), PROFILE))
    if not found:
        raise UserError(f"{folder} holds neither a run nor a profile: there are no rollouts to show")
    return found


def _some(names: Sequence[Any], most: int = 12) -> str:
    """Names in a sentence, the first of many."""
    shown = ", ".join(map(str, names[:most])) or "none"
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
