"""What a profile says of every turn limit: success, pass@k, dead groups and cost, from one set of rollouts.

A rollout at the limit h is the rollout at the environment's limit, cut after h turns: the policy does not know the
limit. Where turns are paid (the verifier `environment`) it has earned what its first h turns were paid; else a rollout
that had not ended by then counts as 0. Its cost is what was read, read again and written up to then; of a model behind
a server, what was written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import comb
from typing import Any

import numpy as np
from numpy import ndarray

from isocost.screen.display import Row, Table
from isocost.screen.words import counted
from isocost.stats.passk import pass_at
from isocost.types import Group, Rollout
from isocost.world import Text

KS = (1, 2, 4, 8, 16)       # of pass@k, and from 2 on of dead groups
SHOWN = 8                   # turn limits that are printed, at most
RIGHT = 0.5                 # a rollout with a higher score counts as a success


def of_group(group: Group, text: Text) -> dict[str, Any]:
    """What each turn of each rollout of a group cost, [read first, read again, written], and what it was paid. Empty
    without an environment; `paid` is left out where no turn is paid."""
    if not any(r.turns for r in group.rollouts):
        return {}
    found: dict[str, Any] = {"turn_costs": [turn_costs(r, text) for r in group.rollouts]}
    paid = [list(r.score.turns) if r.score is not None else [] for r in group.rollouts]
    return found | ({"paid": paid} if any(paid) else {})


def turn_costs(rollout: Rollout, text: Text) -> list[list[int]]:
    """Per turn, the tokens read for the first time, those read again, and those written, as the engine charges them. Of
    a model behind a server only those written: it alone knows what it read, and the others are 0."""
    counted = getattr(text, "tokenized", True)
    out = [[0, 0, 0] for _ in rollout.turns]
    for segment in rollout.segments:
        own = np.flatnonzero(segment.own)
        for turn in np.unique(segment.turn[own]).tolist():
            at = own[segment.turn[own] == turn]
            before = own[own < at[0]]
            known = int(before[-1]) + 1 if len(before) else 0
            if 0 <= turn < len(out):
                out[turn] = [int(at[0]) - known, known, len(at)] if counted else [0, 0, len(at)]
    return out


def table(lines: Sequence[Mapping[str, Any]], limit: int) -> list[dict[str, Any]]:
    """A row for each turn limit from 1 to `limit`, of a profile's lines (`of_group`); empty without an environment.

    `success` is the mean score; `env_steps`, `read`, `reread` and `written` are means per rollout; `cost` is what one
    success takes, the same divided by `success` (None without any); `pass_at` and `dead` are unbiased. Problems with a
    rollout that has no score are left out.
    """
    there = [x for x in lines if "turn_costs" in x and None not in x["rewards"]]
    if not there:
        return []
    turns = np.array([x["turns"] for x in there])                                           # (P, m)
    costs = np.array([[_padded(c, limit) for c in x["turn_costs"]] for x in there])         # (P, m, limit, 3)
    return [_row(h, scores_within(there, h), np.minimum(turns, h), costs[:, :, :h].sum(2)) for h in range(1, limit + 1)]


def scores_within(lines: Sequence[Mapping[str, Any]], h: int) -> ndarray:
    """(P, m) scores of the rollouts cut after h turns."""
    return np.array([
        [_score(x, i, h) for i in range(len(x["rewards"]))] for x in lines
    ])


def _score(line: Mapping[str, Any], i: int, h: int) -> float:
    if line["turns"][i] <= h:
        return float(line["rewards"][i])
    return float(sum(line["paid"][i][:h])) if "paid" in line else 0.0


def _padded(costs: Sequence[Sequence[int]], limit: int) -> list[Sequence[int]]:
    return [*costs[:limit], *([(0, 0, 0)] * (limit - len(costs)))]


def _row(h: int, scores: ndarray, turns: ndarray, costs: ndarray) -> dict[str, Any]:
    m, success = scores.shape[1], float(scores.mean())
    read, again, written = costs.mean((0, 1)).tolist()
    each = {"env_steps": float(turns.mean()), "read": read, "reread": again, "written": written}
    right, ks = (scores > RIGHT).sum(1), [k for k in KS if k <= m]
    return {
        "turns": h, "success": round(success, 4), **{k: round(v, 4) for k, v in each.items()},
        "cost": {k: round(v / success, 3) for k, v in each.items()} if success > 0 else None,
        "pass_at": [{"k": k, "value": round(pass_at(right, m, k), 4)} for k in ks],
        "dead": [{"n": n, "share": round(dead_share(scores, n), 4)} for n in ks if n > 1],
    }


def dead_share(scores: ndarray, size: int) -> float:
    """The share of groups of `size` with equal scores, unbiased from m per problem (P, m): sum of C(c, size) /
    C(m, size) over the counts c of each distinct score."""
    ways = comb(scores.shape[1], size)
    return float(np.mean([sum(comb(c, size) for c in Counter(row.tolist()).values()) / ways for row in scores]))


def rows(limits: Sequence[Mapping[str, Any]] | None) -> list[Row | Table]:
    """What each turn limit gives and costs, by the same rollouts cut; at most `SHOWN` limits, the last one always."""
    if not limits or len(limits) < 2:
        return []
    step, last = -(-len(limits) // SHOWN), limits[-1]
    ks, ns = [x["k"] for x in last["pass_at"] if x["k"] in (1, 4, 16)], (4, 8)
    costs = {"env_steps": "env steps", "written": "written"}
    if last["read"]:        # a server does not say what it read
        costs |= {"read": "read", "reread": "read again"}
    cells = []
    for r in (x for x in limits if (last["turns"] - x["turns"]) % step == 0):
        passed, dead = {x["k"]: x["value"] for x in r["pass_at"]}, {x["n"]: x["share"] for x in r["dead"]}
        cells.append((
            f"{r['turns']}", *(f"{passed[k]:.3f}" for k in ks), *(f"{dead[n]:.0%}" if n in dead else "" for n in ns),
            *(f"{r[k]:.1f}" for k in costs), f"{r['cost']['env_steps']:.1f}" if r["cost"] else "none succeeded",
        ))
    heads = ("turn limit", *(f"pass@{k}" for k in ks), *(f"dead, n={n}" for n in ns), *costs.values(),
             "env steps a success")
    return [
        Table(heads, cells),
        Row("", "a lower limit cuts the same rollouts short; steps and tokens are per rollout"),
        Row("", _attempts(limits)),
    ]


def _attempts(rows: Sequence[Mapping[str, Any]]) -> str:
    """One attempt at the largest limit against several at lower ones, for at most its environment steps."""
    steps, said = rows[-1]["env_steps"], []
    for k in (1, 2, 4, 8):
        solved = [(r["turns"], x["value"]) for r in rows if k * r["env_steps"] <= steps for x in r["pass_at"]
                  if x["k"] == k]
        if solved:
            turns, value = solved[-1]
            said.append(f"{counted(k, 'attempt')} of {counted(turns, 'turn')} {value:.2f}")
    return f"problems solved at least once with {steps:.1f} environment steps: {', '.join(said)}"
