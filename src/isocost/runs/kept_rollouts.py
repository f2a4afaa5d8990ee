"""The rollouts of a record whose text was kept: lines of samples.jsonl and examples of a profile, as values.

`isocost.runs.samples` says which are kept. Lines of other versions lack some keys; what is missing is None or empty.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from isocost.runs.files import good_lines, read_json
from isocost.types import Stop

TRAINING, HELD_OUT = "training", "held-out"     # parts of a run
FAULTY = "fault"        # why a rollout was kept, if not with its group
PROFILE = "profile"     # the name of what a study's profile sampled, beside the names of runs


class Outcome(StrEnum):
    """What became of a rollout. Each has one."""

    SUCCESS = "success"
    FAILURE = "failure"
    LIMIT = "limit"
    STOPPED = "stopped"
    FAULT = "fault"


WORDS = {
    Outcome.SUCCESS: "success",
    Outcome.FAILURE: "failure",
    Outcome.LIMIT: "cut at the limit",
    Outcome.STOPPED: "stopped early",
    Outcome.FAULT: "fault, no score",
}


def outcome_of(reward: float | None, stop: str) -> Outcome:
    """The outcome of a rollout: a reward above 1/2 is a success; one without a reward has a fault."""
    if stop == Stop.ERROR or (reward is None and stop != Stop.CANCELLED):
        return Outcome.FAULT
    if reward is not None and reward > 0.5:
        return Outcome.SUCCESS
    if stop == Stop.CANCELLED:
        return Outcome.STOPPED
    return Outcome.LIMIT if stop in (Stop.TURNS, Stop.LENGTH) else Outcome.FAILURE


_ENDS: Mapping[str, str] = {
    Stop.TURNS: "out of turns", Stop.LENGTH: "turn cut at its token limit", Stop.CANCELLED: "stopped early",
}


def end_of(reward: float | None, stop: str) -> str:
    """How a rollout ended, for a reader: its outcome, and which limit or what failed."""
    outcome = outcome_of(reward, stop)
    if outcome is Outcome.FAULT:
        return "environment failed" if stop == Stop.ERROR else "no score"
    return "success" if outcome is Outcome.SUCCESS else _ENDS.get(stop, "ended without success")


def ends_in_order(ends: Mapping[str, float]) -> list[str]:
    """Ends by `end_of` with how often each was: success first, then the others by how frequent they are."""
    return sorted(ends, key=lambda name: (name != Outcome.SUCCESS, -ends[name], name))


@dataclass(frozen=True)
class Tokens:
    """Tokens read for the first time, read again under the same weights, and written; None for a server's model."""

    fresh: int | None
    reread: int | None
    written: int


@dataclass(frozen=True)
class KeptTurn:
    """What the policy wrote in a turn and what it was shown then; a fault is "source: what", empty if there is none."""

    said: str
    shown: str
    reward: float
    fault: str
    key: str
    tokens: Tokens | None


@dataclass(frozen=True)
class KeptRollout:
    """A rollout as text.

    run: the name of its run, or "profile". step: updates before it was sampled. part: "training", "held-out" or "".
    problem, variant, prompt: its problem. opened: what the policy read first, where that is not the prompt.
    attempt: its number in its group; None in older records. text: what the verifier read. left_out: turns that were
    not kept. chosen_for: "fault" if it was kept because it is faulty, and not with its group. fault: "source: what" of
    its environment outside a turn: while it opened, or at its end.
    """

    run: str
    step: int
    part: str
    problem: str
    variant: str
    prompt: str
    opened: str
    attempt: int | None
    text: str
    reward: float | None
    stop: str
    fate: str
    tokens: Tokens | None
    turns: tuple[KeptTurn, ...]
    left_out: int
    chosen_for: str
    fault: str = ""

    @property
    def outcome(self) -> Outcome:
        return outcome_of(self.reward, self.stop)

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources of its faults, in order: "environment", "model", "tool"."""
        every = (self.fault, *(t.fault for t in self.turns))
        return tuple(sorted({fault.partition(":")[0] for fault in every if fault}))

    @property
    def steps(self) -> int:
        """Environment steps: turns that its environment answered."""
        return len(self.turns) + self.left_out

    def to_dict(self) -> dict[str, Any]:
        each = [{"said": t.said, "shown": t.shown, "reward": t.reward, "fault": t.fault, "key": t.key,
                 "tokens": _counts(t.tokens)} for t in self.turns]
        return {
            "run": self.run, "step": self.step, "part": self.part, "id": self.problem, "variant": self.variant,
            "attempt": self.attempt, "outcome": str(self.outcome), "reward": self.reward, "stop": self.stop,
            "fate": self.fate, "fault": self.fault, "env_steps": self.steps, "tokens": _counts(self.tokens),
            "prompt": self.prompt, "opened": self.opened, "text": self.text, "turns": each, "left_out": self.left_out,
        }


def read(lines: Sequence[Mapping[str, Any]], run: str) -> list[KeptRollout]:
    """The rollouts of lines of samples.jsonl, or of the examples of a profile, in order."""
    return [r for line in lines for r in _of_line(line, run)]


def of_run(folder: Path) -> list[KeptRollout]:
    """The kept rollouts of a run's folder; lines that cannot be read are left out."""
    name = str(read_json(folder / "run.json", partial=True).get("name") or folder.name)
    return read(good_lines(folder / "samples.jsonl")[0], name)


def started(folder: Path) -> int:
    """How many rollouts a run's record has a fate for: those of end.json, or of the journal while it has not ended."""
    if (folder / "end.json").exists():
        fates = read_json(folder / "end.json", partial=True).get("fates")
        if fates:
            return sum(fates.values())
    return sum(len(x.get("rewards") or ()) + (x.get("cancelled") or 0) + (x.get("unchosen") or 0)
               for x in good_lines(folder / "journal.jsonl")[0])


def _of_line(line: Mapping[str, Any], run: str) -> Iterator[KeptRollout]:
    for a in line.get("attempts") or ():
        yield KeptRollout(
            run=run, step=int(line.get("step") or 0), part=str(line.get("part") or ""),
            problem=str(line.get("id") or ""), variant=str(line.get("variant") or ""),
            prompt=str(line.get("prompt") or ""), opened=str(line.get("opened") or ""), attempt=a.get("attempt"),
            text=str(a.get("text") or ""), reward=a.get("reward"), stop=str(a.get("stop") or ""),
            fate=str(a.get("fate") or ""), tokens=_tokens(a), turns=tuple(map(_turn, a.get("turns") or ())),
            left_out=int(a.get("left_out") or 0), chosen_for=FAULTY if line.get("kept") == FAULTY else "",
            fault=str(a.get("fault") or ""),
        )


def _turn(t: Mapping[str, Any]) -> KeptTurn:
    return KeptTurn(
        str(t.get("said") or ""), str(t.get("shown") or ""), float(t.get("reward") or 0.0), str(t.get("fault") or ""),
        str(t.get("key") or ""), _tokens(t),
    )


def _tokens(of: Mapping[str, Any]) -> Tokens | None:
    counts = of.get("tokens")
    return None if not counts else Tokens(counts.get("fresh"), counts.get("reread"), int(counts.get("written") or 0))


def _counts(tokens: Tokens | None) -> dict[str, int | None] | None:
    return None if tokens is None else {k: getattr(tokens, k) for k in ("fresh", "reread", "written")}
