"""What a profile says of dialogues: success by turns, where and how they end, faults, dead groups, a success's cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import comb
from typing import Any

import numpy as np

from isocost.runs.kept_rollouts import Outcome, end_of, ends_in_order, outcome_of
from isocost.screen.display import Row
from isocost.types import Cost, Fault, FaultSource, Group

LISTED = 8              # kinds of faults that are listed
SIZES = (2, 4, 8, 16)   # of groups, whose dead shares are estimated


def of_group(group: Group) -> dict[str, Any]:
    """The turns of each rollout of a group, and its faults by text; empty without an environment."""
    if not any(r.turns or r.fault for r in group.rollouts):
        return {}
    faults = [Counter(map(str, r.faults)) for r in group.rollouts]
    return {"turns": [len(r.turns) for r in group.rollouts], "faults": [dict(sorted(f.items())) for f in faults]}


def summary(lines: Sequence[Mapping[str, Any]], cost: Cost, limit: int) -> dict[str, Any] | None:
    """The summary of a profile's lines (see `of_group`); None without an environment. `limit` is the turns allowed.

    `by_turn` has, for each number of turns, the share of rollouts that took so many and the mean score of those that
    had ended by then, others counted as 0. `ends` are shares of rollouts; `ended` has the number of rollouts that ended
    so at each turn, `failures` the turns by which 10, 50 and 90 % of each kind that failed had ended; `by_end` has the
    share of environment steps of each kind of end, and `failed_steps` of all that failed. `faults` are per turn;
    `listed` are the most frequent kinds, with the share of rollouts that had one and the mean score of these;
    `faultless` is the same of rollouts without a fault. `dead` are shares of groups of n rollouts whose scores are all
    equal, and at most 1/2 (`failed`) or above (`succeeded`): unbiased, from the rollouts of each problem. The cost of a
    success, a score of 1, is the cost of all rollouts divided by the sum of their scores; None without any.
    """
    there = [line for line in lines if "turns" in line]
    if not there:
        return None
    turns = np.array([k for line in there for k in line["turns"]])
    scores = [x for line in there for x in line["rewards"]]
    stops = [s for line in there for s in line["stops"]]
    score = np.array([0.0 if x is None else x for x in scores])
    each_faults = [f for line in there for f in line["faults"]]
    said = sum(map(Counter, each_faults), Counter[str]())
    sources = Counter[str]()
    for text, count in said.items():
        if (fault := Fault.of(text)) is not None:
            sources[str(fault.source)] += count
    named = [end_of(x, s) for x, s in zip(scores, stops, strict=True)]
    ends = Counter(named)
    steps, successes = max(int(turns.sum()), 1), float(score.sum())
    failed = np.array([outcome_of(x, s) is not Outcome.SUCCESS for x, s in zip(scores, stops, strict=True)])
    each = {"rollouts": len(turns), "env_steps": int(turns.sum()), "written": cost.decode, "read": cost.fresh,
            "reread": cost.reread}
    clean = np.array([not f for f in each_faults])
    return {
        "turns": {"mean": round(float(turns.mean()), 3), "p90": float(np.percentile(turns, 90)), "limit": limit},
        "by_turn": [
            {"turn": t, "took": round(float((turns >= t).mean()), 4),
             "success": round(float(np.where(turns <= t, score, 0.0).mean()), 4)}
            for t in range(1, int(turns.max(initial=1)) + 1)
        ],
        "ends": {name: round(n / len(turns), 4) for name, n in ends.most_common()},
        "ended": [{"end": name, "turn": turn, "rollouts": n} for name in ends_in_order(ends)
                  for turn, n in sorted(_at(turns, named, name).items())],
        "failures": list(_failures(turns, named, ends)),
        "by_end": [{"end": name, "env_steps": round(float(turns[[x == name for x in named]].sum()) / steps, 4)}
                   for name in ends_in_order(ends)],
        "faults": {str(s): round(sources[str(s)] / steps, 5) for s in FaultSource},
        "listed": [
            {"fault": text, "per_turn": round(n / steps, 5),
             **_of_these(np.array([text in f for f in each_faults]), score)}
            for text, n in said.most_common(LISTED)
        ],
        "faultless": _of_these(clean, score),
        "dead": list(_dead([line["rewards"] for line in there if None not in line["rewards"]])),
        "success_costs": {k: round(v / successes, 2) for k, v in each.items()} if successes else None,
        "failed_steps": round(float(turns[failed].sum()) / steps, 4),
        "reread": round(cost.reread / max(cost.prefill, 1), 4),
    }


def _failures(turns: np.ndarray, named: Sequence[str], ends: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    """Per kind of end but success, its share of rollouts and the turns by which 10, 50 and 90 % of these had ended."""
    for name in ends_in_order(ends):
        if name != Outcome.SUCCESS:
            at = turns[[x == name for x in named]]
            by = {f"p{q}": int(np.percentile(at, q, method="inverted_cdf")) for q in (10, 50, 90)}
            yield {"end": name, "share": round(len(at) / len(turns), 4), **by}


def _at(turns: np.ndarray, named: Sequence[str], name: str) -> Counter[int]:
    return Counter(int(t) for t, x in zip(turns, named, strict=True) if x == name)


def _of_these(which: np.ndarray, score: np.ndarray) -> dict[str, float | None]:
    success = round(float(score[which].mean()), 4) if which.any() else None
    return {"rollouts": round(float(which.mean()), 4), "success": success}


def _dead(rewards: Sequence[Sequence[float]]) -> Iterator[dict[str, float]]:
    """Rows of `dead` for the sizes that the samples of each problem allow."""
    tallies = [Counter(row) for row in rewards]
    for n in (n for n in SIZES if all(t.total() >= n for t in tallies) and tallies):
        yield {"n": n, "failed": _equal(tallies, n, False), "succeeded": _equal(tallies, n, True)}


def _equal(tallies: Sequence[Counter[float]], size: int, succeeded: bool) -> float:
    """The share of groups of `size` with equal rewards, all above 1/2 or none."""
    ways = (sum(comb(c, size) for x, c in t.items() if (x > 0.5) is succeeded) / comb(t.total(), size) for t in tallies)
    return round(sum(ways) / len(tallies), 4)


def rows(found: Mapping[str, Any] | None) -> Iterator[Row]:
    """Success by turns, ends, dead groups, faults and the cost of a success; none for single answers."""
    if not found:
        return
    t, by = found["turns"], found["by_turn"]
    step = -(-len(by) // LISTED)
    within = "  ".join(f"{x['turn']}: {x['success']:.2f}" for x in by if x["turn"] % step == 0 or x is by[-1])
    dead = "  ".join(f"n={d['n']}: {d['failed']:.0%}, {d['succeeded']:.0%}" for d in found.get("dead", ()))
    yield Row("turns", f"{t['mean']:.1f} of at most {t['limit']} (90 % within {t['p90']:.0f}); success within turns  "
                       f"{within}")
    steps = {x["end"]: f" ({x['env_steps']:.1%} of env steps)" for x in found.get("by_end", ())}
    yield Row("rollouts", ", ".join(f"{share:.1%} {end}{steps.get(end, '')}" for end, share in found["ends"].items()))
    yield Row("where they fail", _fallen(found))
    yield Row("", dead and f"dead groups, all failed and all succeeded  {dead}")
    yield Row("faults per turn", ", ".join(f"{source} {rate:.2%}" for source, rate in found["faults"].items()))
    yield from (Row("", f"  {line}") for line in _listed(found))
    yield _cost(found["success_costs"], found["reread"])


def _cost(each: Mapping[str, float] | None, reread: float) -> Row:
    """What a success costs."""
    if each is None:
        return Row("", "no rollout succeeded, so the cost of a success is not known")
    again = f"{each['reread']:.1f} read again; " if "reread" in each else ""
    return Row("cost of a success", f"{each['env_steps']:.1f} env steps, {each['written']:.1f} tokens written, "
               f"{each['read']:.1f} read for the first time ({again}{reread:.0%} of all read were read again), "
               f"{each['rollouts']:.2f} rollouts")


def _fallen(found: Mapping[str, Any]) -> str:
    """At which turns rollouts failed, by how they ended; records of older versions lack it."""
    def turns(x: Mapping[str, Any]) -> str:
        low, middle, high = x["p10"], x["p50"], x["p90"]
        return f"at turn {middle:.0f}" if low == high else f"at turns {low:.0f} to {high:.0f} (half by {middle:.0f})"

    failed = [f"{x['end']} {turns(x)}" for x in found.get("failures", ())]
    spent = f"; {found['failed_steps']:.0%} of env steps were in these rollouts" if "failed_steps" in found else ""
    return f"{'; '.join(failed)}{spent}" if failed else ""


def _listed(found: Mapping[str, Any]) -> list[str]:
    """The most frequent kinds of faults, in how many rollouts each was, and how these did."""
    without = found.get("faultless", {}).get("success")
    beside = "" if without is None else f" (without a fault {without:.2f})"
    return [
        f"{x['fault']}: {x['per_turn']:.2%} of turns" + (
            "" if x.get("success") is None
            else f", in {x['rollouts']:.1%} of rollouts, with mean reward {x['success']:.2f}{beside}")
        for x in found["listed"][:LISTED]
    ]
