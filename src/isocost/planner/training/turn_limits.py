"""The turn limits H that a pilot compares, and the comparison: is another turn or another attempt worth more?

Training at a lower limit cuts rollouts short, so the same environment steps pay for more of them. Evaluations always
have the environment's own limit: the limit of training is a setting like n, and all arms are measured alike. The pilot
crosses n with H. Runs of one n and seed differ in H alone and cost the same in the budget's unit, so their rewards are
compared in pairs. A limit is prescribed against the environment's own only if the interval of the mean difference
excludes 0, and the laws of the limits do not predict the opposite order at the size of training; else the comparison is
not identified, and the environment's own limit is used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from isocost.disk.shape import Plain
from isocost.laws.curves import Curve
from isocost.laws.law import SELECT, Law
from isocost.planner.budget import Prices, Timing, Usage
from isocost.planner.training.study_runs import COMMON, PlannedRun
from isocost.screen.words import counted
from isocost.stats.intervals import student
from isocost.stats.power import LEVEL, MOST, seeds_for
from isocost.units import ENV_STEPS, ROLLOUTS, TOKENS

KEPT = 0.98     # share of the live groups at the environment's limit that a lower one must keep to be compared
MARGIN = 0.01   # the least difference in reward that is worth resolving
SAVED = 0.9     # and the most of its environment steps that it may take


@dataclass(frozen=True)
class TurnLimit(Plain):
    """A turn limit of training, and what a rollout costs at it before training.

    `env_steps` are per rollout; `steps`, `read` and `written` are environment steps, tokens read for the first time and
    tokens written, as shares of those at the environment's limit.
    """

    turns: int
    env_steps: float
    steps: float
    read: float
    written: float

    def share(self, unit: str) -> float:
        """The cost of a rollout relative to one at the environment's limit, in a budget's unit."""
        return {ROLLOUTS: 1.0, TOKENS: self.written}.get(unit, self.steps)

    def prices(self, prices: Prices) -> Prices:
        """The prices of a rollout at this limit, from those at the environment's."""
        tokens = prices.prefill + prices.decode
        now = replace(prices, prefill=prices.prefill * self.read, decode=prices.decode * self.written,
                      env_steps=prices.env_steps * self.steps)
        share = (now.prefill + now.decode) / tokens if tokens else 1.0
        return replace(now, score=prices.score * share, train=None if prices.train is None else prices.train * share)

    def timing(self, timing: Timing) -> Timing:
        """The timing of a run at this limit, from that at the environment's: rollouts take time by their turns."""
        return replace(timing, rollout=timing.rollout * self.steps, problem=timing.problem * self.steps)

    def relative_to(self, other: TurnLimit) -> TurnLimit:
        """The same limit with its shares relative to another one's."""
        return replace(self, steps=self.steps / other.steps, read=self.read / other.read,
                       written=self.written / other.written)


def limit_of(rows: Sequence[Mapping[str, Any]], turns: int) -> TurnLimit:
    """The limit of so many turns, from a profile's `by_limit`; uncounted tokens are shared out by environment steps."""
    row, whole = next(r for r in rows if r["turns"] == turns), rows[-1]

    def share(key: str) -> float:
        return next((float(row[k] / whole[k]) for k in (key, "env_steps") if whole[k]), 1.0)

    return TurnLimit(turns, row["env_steps"], share("env_steps"), share("read"), share("written"))


def live(row: Mapping[str, Any]) -> tuple[float, int]:
    """(share of groups with a gradient, their n): at the default n, or the largest n below it in the profile."""
    shares = {d["n"]: d["share"] for d in row["dead"] if d["n"] <= COMMON}
    return (1 - shares[max(shares)], max(shares)) if shares else (0.0, 0)


def candidates(rows: Sequence[Mapping[str, Any]]) -> tuple[tuple[TurnLimit, ...], str]:
    """(limits to compare, why): the environment's, and the lowest that keeps `KEPT` of its live groups; no limits if
    that takes more than `SAVED` of the environment steps.

    A limit that kills groups trades signal for cost, and the profile cannot say at what rate; one that keeps them gives
    the same signal for fewer steps.
    """
    if len(rows) < 2:
        return (), ""
    own = rows[-1]
    alive, n = live(own)
    best = next(r for r in rows if live(r)[0] >= KEPT * alive)
    share = best["env_steps"] / own["env_steps"]
    if share > SAVED or not alive:
        return (), (f"turn limit: {own['turns']}, the environment's; by the profile no lower limit keeps its live "
                    f"groups and takes at most {SAVED:.0%} of its environment steps")
    limits = tuple(limit_of(rows, r["turns"]) for r in (best, own))
    return limits, (f"turn limits {best['turns']} and {own['turns']} are compared: at {best['turns']} turns a rollout "
                    f"takes {share:.0%} of the environment steps, and {live(best)[0]:.0%} of groups have a gradient "
                    f"(at {own['turns']}: {alive:.0%}; n = {n}, by the profile)")


def bill_of(
    runs: Sequence[tuple[PlannedRun, int]], prices: Prices, timing: Timing, limits: Sequence[TurnLimit]
) -> Usage:
    """The bill of runs with their number of evaluations, each at the prices of its own turn limit."""
    at = {limit.turns: limit for limit in limits}
    bills = []
    for turns in dict.fromkeys(r.turns for r, _ in runs):
        sizes = [(r.n, r.B, r.C, e) for r, e in runs if r.turns == turns]
        own = at.get(turns or 0)
        bills.append(prices.bill(sizes, timing) if own is None else own.prices(prices).bill(sizes, own.timing(timing)))
    if not bills:
        return prices.bill([], timing)
    return sum(bills[1:], bills[0])


@dataclass(frozen=True)
class LimitChoice(Plain):
    """The turn limits compared: mean `select` reward of a limit minus that at `turns[-1]`, over pairs of runs of one n
    and seed at equal cost.

    `differences` has a row per other limit: turns, mean, low, high (None with one pair), pairs, and `by_n`, the mean
    difference of each n. `chosen` is the limit to train at; `identified` whether the comparison says so. `at` is the
    cost of a run at which they are compared, in `unit`; `level` that of the intervals. `option` is the option of
    `isocost pilot` that would resolve it.
    """

    turns: tuple[int, ...]
    chosen: int
    identified: bool
    unit: str
    at: float
    level: float
    differences: tuple[Mapping[str, Any], ...]
    text: str
    settle: str = ""
    option: str = ""


def choose(curves: Sequence[Curve], limits: Sequence[TurnLimit], unit: str) -> LimitChoice | None:
    """The limit that a pilot's curves support, by Student's intervals against the largest; None without two limits."""
    turns, unit = tuple(sorted(x.turns for x in limits)), unit if unit in (ROLLOUTS, TOKENS) else ENV_STEPS
    used = [c for c in curves if c.purpose == "pilot" and not c.diverged and c.arm.get("turns") in turns]
    if len(turns) < 2 or not any(c.arm.get("turns") == turns[-1] for c in used):
        return None
    at = min(float(spent(c, unit)[-1]) for c in used)
    values = {(c.arm["turns"], c.arm["n"], c.seed): reward_at(c, unit, at) for c in used}
    rows = [_difference(values, h, turns[-1]) for h in turns[:-1]]
    rows = [r for r in rows if r["pairs"]]
    better = [r for r in rows if r["low"] is not None and r["low"] > 0]
    best = max(better, key=lambda r: r["mean"], default=None)
    chosen = turns[-1] if best is None else int(best["turns"])
    worse = all(r["high"] is not None and r["high"] < 0 for r in rows)
    identified = bool(rows) and (best is not None or worse)
    text = "; ".join(_told(r, turns[-1]) for r in rows) + f", at {at:,.0f} {unit} a run"
    if not rows:
        text = "no pair of runs that differ in the turn limit alone has ended without diverging"
    if identified:
        more = "attempt" if best is not None else "turn"
        return LimitChoice(turns, chosen, True, unit, at, LEVEL, tuple(rows),
                           f"turn limit {chosen}: {text}; another {more} is worth more than another "
                           f"{'turn' if best is not None else 'attempt'}")
    settle, option = _settle(rows, used)
    return LimitChoice(turns, chosen, False, unit, at, LEVEL, tuple(rows),
                       f"turn limit not identified, so the environment's own is used, {chosen}: {text}", settle, option)


def extrapolated(choice: LimitChoice, laws: Mapping[int, Law], sizes: Mapping[int, int]) -> LimitChoice:
    """The choice with what the laws of its limits predict at `sizes`, the rollouts per run that training is planned to
    have at each, at equal cost: mean difference of `select` reward with its interval, each limit at its best n.

    A limit that is better in the pilot and predicted to be worse there is not identified. Unchanged where a law is not
    identified.
    """
    own = choice.turns[-1]
    if not choice.identified or any(laws[h].refused is not None for h in choice.turns):
        return choice
    reward = {h: laws[h].paths(laws[h].best(sizes[h]), np.array([float(sizes[h])]), SELECT)[:, 0] for h in choice.turns}
    rows, told = [], []
    for row in choice.differences:
        h, d = row["turns"], reward[row["turns"]] - reward[own]
        low, high = (float(x) for x in np.quantile(d, [(1 - choice.level) / 2, (1 + choice.level) / 2]))
        rows.append({**row, "later": {"mean": float(d.mean()), "low": low, "high": high}})
        told.append(f"{h} turns instead of {own}: {d.mean():+.3f} [{low:+.3f}, {high:+.3f}]")
    text = f"predicted at {sizes[own]:,} rollouts at {own} turns, and the same cost: {'; '.join(told)}"
    watched = [r for r in rows if choice.chosen in (own, r["turns"])]
    crossed = [r for r in watched if (r["later"]["mean"] > 0) != (r["mean"] > 0)]
    if not crossed:
        return replace(choice, differences=tuple(rows), text=f"{choice.text}; {text}")
    return replace(
        choice, differences=tuple(rows), identified=False, chosen=own,
        text=f"turn limit not identified, so the environment's own is used, {own}: the pilot and the laws of the "
             f"limits have them in opposite order. {choice.text}; {text}",
        settle="runs twice as long for every n at every turn limit", option="--longer all=2x",
    )


def spent(c: Curve, unit: str) -> np.ndarray:
    """What training had cost at each evaluation (K,), in rollouts, tokens or environment steps; rollouts where the
    record does not hold it."""
    found = {TOKENS: c.tokens, ENV_STEPS: c.env_steps}.get(unit)
    return c.C if found is None else found


def reward_at(c: Curve, unit: str, at: float) -> float:
    """The `select` reward of a run where it had cost so much, linear in the logarithm of cost between evaluations."""
    cost = spent(c, unit)
    after = cost > 0
    return float(np.interp(np.log(at), np.log(cost[after]), c.select[after])) if after.any() else float(c.select[0])


def _difference(values: Mapping[tuple[int | None, int, int], float], h: int, own: int) -> dict[str, Any]:
    pairs = {(n, s): v - values[own, n, s] for (t, n, s), v in values.items() if t == h and (own, n, s) in values}
    by_n = {n: [v for (k, _), v in pairs.items() if k == n] for n in sorted({n for n, _ in pairs})}
    x = np.array(list(pairs.values()))
    half = student(LEVEL, len(x) - 1) * float(x.std(ddof=1)) / len(x) ** 0.5 if len(x) > 1 else None
    mean = float(x.mean()) if len(x) else 0.0
    return {
        "turns": h, "mean": mean, "low": None if half is None else mean - half,
        "high": None if half is None else mean + half, "pairs": len(x),
        "sd": float(x.std(ddof=1)) if len(x) > 1 else None,
        "by_n": [{"n": n, "mean": float(np.mean(v))} for n, v in by_n.items()],
    }


def _told(r: Mapping[str, Any], own: int) -> str:
    bounds = "" if r["low"] is None else f" [{r['low']:+.3f}, {r['high']:+.3f}]"
    return f"{r['turns']} turns instead of {own}: {r['mean']:+.3f}{bounds} over {counted(r['pairs'], 'pair')} of runs"


def _settle(rows: Sequence[Mapping[str, Any]], used: Sequence[Curve]) -> tuple[str, str]:
    """(what would resolve it, as text; the option of `isocost pilot`): more seeds, or none if there are too many."""
    known = [r for r in rows if r["sd"] is not None]
    if not known:
        return "as many seeds again for every n", "--seeds all=1"
    r = max(known, key=lambda r: abs(r["mean"]))
    arms, effect = len({c.arm["n"] for c in used}), max(abs(r["mean"]), MARGIN)
    need = seeds_for(effect, r["sd"] / 2**0.5, level=LEVEL) or MOST
    more = max(-(-(need - r["pairs"]) // arms), 1)
    return (f"{counted(more, 'more seed')} of every n at every turn limit, to detect a difference of {effect:.3f}; "
            "there may be none"), f"--seeds all={more}"
