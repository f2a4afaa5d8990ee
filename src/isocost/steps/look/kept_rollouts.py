"""Finding kept rollouts: of a study, a folder of runs or a run, by run, update, outcome, fault and problem."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isocost.errors import UserError
from isocost.runs import kept_rollouts as kept
from isocost.runs.files import find_runs, read_json
from isocost.runs.kept_rollouts import PROFILE, WORDS, KeptRollout, KeptTurn, Outcome, Tokens, end_of
from isocost.screen.display import Result, Row
from isocost.screen.words import counted, visible
from isocost.types import FaultSource

ANY_FAULT = "any"
FAULTS = (ANY_FAULT, *map(str, FaultSource))
PARTS = (kept.TRAINING, kept.HELD_OUT)


@dataclass(frozen=True)
class Rollouts(Result):
    """Kept rollouts that match, the first of them in `found`. started: rollouts of the runs that were searched, kept or
    not; kept: those with text; matching: how many match. outcomes: the matching ones by outcome. runs: the names that
    were searched, "profile" among them."""

    folder: Path
    runs: tuple[str, ...]
    started: int
    kept: int
    matching: int
    outcomes: dict[str, int]
    found: tuple[KeptRollout, ...]

    def rows(self) -> list[Row]:
        """How many match, then the first of them turn by turn."""
        outcomes = ", ".join(f"{n} {WORDS[Outcome(k)]}" for k, n in self.outcomes.items())
        where = counted(len(self.runs), "run") if len(self.runs) > 1 else visible(self.runs[0], lines=False)
        more = self.matching - len(self.found)
        return [
            Row("", f"{self.matching:,} of {counted(self.kept, 'kept rollout')} match{': ' if outcomes else ''}"
                    f"{outcomes}. {where} sampled {self.started:,}; docs/records.md says which are kept as text",
                "head"),
            *(row for r in self.found for row in told(r)),
            *([Row("", f"{more:,} more match: --first {self.matching} shows all", "head")] if more else []),
        ]

    def to_dict(self) -> dict[str, Any]:
        return {
            "runs": list(self.runs), "started": self.started, "kept": self.kept, "matching": self.matching,
            "outcomes": self.outcomes, "rollouts": [r.to_dict() for r in self.found],
        }


def told(r: KeptRollout) -> Iterator[Row]:
    """The rows of one rollout."""
    run, problem, variant, part = (visible(x, lines=False) for x in (r.run, r.problem, r.variant, r.part))
    attempt = "" if r.attempt is None else f", attempt {r.attempt}"
    yield Row("", f"{run}, after {counted(r.step, 'update')}{part and f', {part}'}, problem {problem}"
                  f"{variant and f' ({variant})'}{attempt}", "head")
    yield Row("", ", ".join(_facts(r)), "command")
    yield from _said("prompt", r.prompt)
    yield from _said("shown", r.opened)
    for number, turn in enumerate(r.turns, 1):
        yield Row("", ", ".join((f"turn {number}", *_turn(turn))), "command")
        yield from _said("policy", turn.said, empty=True)
        yield from _said("shown", turn.shown)
    if r.left_out:
        yield Row("not kept", counted(r.left_out, "more turn"), "command")
    if not r.turns or r.text not in (r.turns[-1].said, ""):
        yield from _said("answer", r.text, empty=True)


def _facts(r: KeptRollout) -> Iterator[str]:
    """Its outcome, reward and costs."""
    known = r.stop in ("done", "length", "turns", "cancelled", "error")
    words = WORDS[r.outcome]
    yield words if not known or (end := end_of(r.reward, r.stop)) == words else f"{words} ({end})"
    if r.fault:
        yield f"fault {visible(r.fault, lines=False)}"
    if r.reward is not None:
        yield f"reward {r.reward:g}"
    if r.turns:
        yield counted(r.steps, "environment step")
    yield from _tokens(r.tokens)
    if r.fate:
        yield f"fate: {visible(r.fate, lines=False)}"


def _turn(turn: KeptTurn) -> Iterator[str]:
    if turn.reward:
        yield f"reward {turn.reward:g}"
    if turn.fault:
        yield f"fault {visible(turn.fault, lines=False)}"
    if turn.key:
        yield f"state {visible(turn.key, lines=False)}"
    yield from _tokens(turn.tokens)


def _tokens(tokens: Tokens | None) -> Iterator[str]:
    if tokens is not None:
        yield f"{counted(tokens.written, 'token')} written"
        if tokens.fresh is not None:
            yield f"{tokens.fresh:,} read for the first time"
        if tokens.reread:
            yield f"{tokens.reread:,} read again"


def _said(who: str, text: str, empty: bool = False) -> Iterator[Row]:
    """A text with its source, and its further lines below its first."""
    if text or empty:
        lines = visible(text).split("\n")
        yield Row("", "\n".join((f"  {who:<7} {lines[0]}", *(f"{'':12}{line}" for line in lines[1:]))), "command")


@dataclass(frozen=True)
class Wanted:
    """Which rollouts are looked for: those that match all that is not None. update: updates that were made before it
    was sampled. part: "training" or "held-out". outcome: one of `Outcome`. fault: a source of faults ("tool", "model",
    "environment") or "any". problem, attempt: its id, and the number of the attempt in its group."""

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

    Raises UserError without a run or a profile below the folder, or for a run or an update that it does not have.
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
