"""What the answers of a strategy took: tokens an answer, how many one after the other, and who wrote and read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from isocost.screen.display import Row
from isocost.screen.words import counted
from isocost.strategies import Strategy
from isocost.strategies.paths import written
from isocost.types import Cost, Group, Stop

CONSTANT, MUTE = 0.95, 0.05     # shares of answers and of tries above which a caution is given


@dataclass(frozen=True)
class StrategyBill:
    """The bill of `answers` answers by a strategy, in tokens unless it says otherwise.

    answer: of the answers that were chosen; tries: of all other tries; scorer: read or written by the scorer, with
    `calls` verifier calls; read: prompts and texts read by the engine for the first time, reread: again. depth: tokens
    written one after the other, its mean and its 95th percentile. unanswered: answers for which no try had a score;
    unstepped: answers of a search whose text never ended a step; alike: answers whose tries all had one score; mute:
    tries that gave no answer to vote for; failures: calls of the scorer that failed, by reason; second: of a second
    model, the steps that it wrote (`routed`) and tokens written and read for them (`strong`, `strong_read`), which are
    charged to it and are in no other number here.
    """

    strategy: str
    answers: int
    rollouts: int
    answer: int
    tries: int
    scorer: int
    calls: int
    read: int
    reread: int
    depth: float
    depth_95: float
    unanswered: int = 0
    unstepped: int = 0
    alike: int = 0
    mute: int = 0
    failures: Mapping[str, int] = field(default_factory=dict)
    second: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, strategy: Strategy, groups: Sequence[Group], cost: Cost, failures: Mapping[str, int]) -> StrategyBill:
        """Of an evaluation's groups, what it cost, and the failures of its world."""
        made = [r for g in groups for r in g.rollouts]
        notes = [r.numbers for r in made]
        names = ("scoring", "scoring_read", "scoring_written", "calls")
        scorer, read, wrote, calls = (int(sum(n.get(k, 0.0) for n in notes)) for k in names)
        depths = np.array([n.get("depth", 0.0) for n in notes])
        lost = [r.stop is Stop.ERROR for r in made]
        second = {k: int(sum(n.get(k, 0.0) for n in notes)) for k in ("routed", "strong", "strong_read")}
        answer = sum(written(r) for r, none in zip(made, lost, strict=True) if not none)
        return cls(
            str(strategy), len(made), cost.rollouts, answer, cost.decode - answer - wrote, scorer,
            calls, cost.fresh - read, cost.reread,
            float(depths.mean()), float(np.quantile(depths, 0.95)), sum(lost),
            sum(n.get("steps") == 1 for n in notes), sum(n.get("alike") == 1 for n in notes),
            int(sum(n.get("mute", 0.0) for n in notes)),
            {k: n for k, n in failures.items() if k.startswith("scorer: ")}, second if any(second.values()) else {},
        )

    def rows(self) -> list[Row]:
        """For people."""
        each = (self.answer + self.tries) / self.answers
        depth = f"{self.depth:.1f} on average, {self.depth_95:.0f} at the 95th percentile"
        rows = [
            Row("strategy", self.strategy),
            Row("an answer", f"{each:,.1f} tokens written in {self.rollouts / self.answers:.1f} tries; one after the "
                             f"other {depth}"),
            Row("bill", f"tokens written: answers {self.answer:,}, other tries {self.tries:,}; scorer {self.scorer:,} "
                        f"tokens and {counted(self.calls, 'call')}; read {self.read:,}, read again {self.reread:,}"),
        ]
        if x := self.second:
            rows.append(Row("second model", f"{x['strong']:,} tokens written and {x['strong_read']:,} read for "
                                            f"{counted(x['routed'], 'step')}, charged to it"))
        if self.failures:
            why = next(iter(self.failures)).removeprefix("scorer: ")
            rows.append(Row("", f"{counted(sum(self.failures.values()), 'call')} of the scorer failed, the first "
                                f"because {why}; these texts have no score", "flag"))
        if self.unanswered:
            rows.append(Row("", f"{counted(self.unanswered, 'answer')} of {self.answers:,} could not be chosen: no try "
                                "had a score. They are billed, and in no mean", "flag"))
        if self.alike > CONSTANT * self.answers:
            rows.append(Row("", f"all tries of {self.alike / self.answers:.0%} of the answers have one score: best-of "
                                "is then one sample; a vote is not", "flag"))
        if self.mute > MUTE * self.rollouts:
            rows.append(Row("", f"{self.mute / self.rollouts:.0%} of the tries give no answer to vote for: they were "
                                "cut, or none was found in them", "flag"))
        if self.unstepped == self.answers:
            rows.append(Row("", "no text ever ended a step, so this was best-of: name the mark of a step with "
                                "step=MARK", "flag"))
        return rows

    def data(self) -> Mapping[str, Any]:
        """Plain data."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "second" or self.second}
