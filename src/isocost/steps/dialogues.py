"""What a profile says of dialogues: success by turns, how they end, faults, and what a success costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from isocost.types import Cost, Fault, FaultSource, Group, Stop

LISTED = 5      # kinds of faults that are listed


def of_group(group: Group) -> dict[str, Any]:
    """The turns of each rollout of a group, and its faults by text; empty without an environment."""
    if not any(r.turns for r in group.rollouts):
        return {}
    faults = [Counter(str(t.fault) for t in r.turns if t.fault is not None) for r in group.rollouts]
    return {"turns": [len(r.turns) for r in group.rollouts], "faults": [dict(sorted(f.items())) for f in faults]}


def summary(lines: Sequence[Mapping[str, Any]], cost: Cost, limit: int) -> dict[str, Any] | None:
    """The summary of a profile's lines (see `of_group`); None without an environment. `limit` is the turns allowed.

    `by_turn` has, for each number of turns, the share of rollouts that took so many and the mean score of those that
    had ended by then, others counted as 0. `ends` are shares of rollouts, `faults` are per turn. The cost of a success,
    a score of 1, is the cost of all rollouts divided by the sum of their scores; None without any.
    """
    there = [line for line in lines if "turns" in line]
    if not there:
        return None
    turns = np.array([k for line in there for k in line["turns"]])
    scores = [x for line in there for x in line["rewards"]]
    stops = [s for line in there for s in line["stops"]]
    score = np.array([0.0 if x is None else x for x in scores])
    said = sum((Counter(f) for line in there for f in line["faults"]), Counter[str]())
    sources = Counter[str]()
    for text, count in said.items():
        if (fault := Fault.of(text)) is not None:
            sources[str(fault.source)] += count
    ends = Counter(_end(x, s) for x, s in zip(scores, stops, strict=True))
    steps, successes = max(int(turns.sum()), 1), float(score.sum())
    each = {"rollouts": len(turns), "env_steps": int(turns.sum()), "written": cost.decode, "read": cost.fresh}
    return {
        "turns": {"mean": round(float(turns.mean()), 3), "p90": float(np.percentile(turns, 90)), "limit": limit},
        "by_turn": [
            {"turn": t, "took": round(float((turns >= t).mean()), 4),
             "success": round(float(np.where(turns <= t, score, 0.0).mean()), 4)}
            for t in range(1, int(turns.max(initial=1)) + 1)
        ],
        "ends": {name: round(n / len(turns), 4) for name, n in ends.most_common()},
        "faults": {str(s): round(sources[str(s)] / steps, 5) for s in FaultSource},
        "listed": [{"fault": text, "per_turn": round(n / steps, 5)} for text, n in said.most_common(LISTED)],
        "success_costs": {k: round(v / successes, 2) for k, v in each.items()} if successes else None,
        "reread": round(cost.reread / max(cost.prefill, 1), 4),
    }


def _end(score: float | None, stop: str) -> str:
    """How a rollout ended, for a reader."""
    if stop == Stop.ERROR:
        return "environment failed"
    if score is None:
        return "no score"
    if score > 0.5:
        return "success"
    others = {Stop.TURNS: "out of turns", Stop.LENGTH: "turn cut at its token limit"}
    return others.get(Stop(stop), "ended without success")
