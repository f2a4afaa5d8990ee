"""The text of a profile's dialogues."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console

SHOWN = 8       # numbers of turns that are listed, at most


def dialogues(found: Mapping[str, Any] | None, console: Console) -> None:
    """Success by turns, ends, dead groups, faults and the cost of a success; nothing for single answers."""
    if not found:
        return
    t, by = found["turns"], found["by_turn"]
    step = -(-len(by) // SHOWN)
    rows = [x for x in by if x["turn"] % step == 0 or x is by[-1]]
    within = "  ".join(f"{x['turn']}: {x['success']:.2f}" for x in rows)
    faults = ", ".join(f"{source} {rate:.2%}" for source, rate in found["faults"].items())
    dead = "  ".join(f"n={d['n']}: {d['failed']:.0%}, {d['succeeded']:.0%}" for d in found.get("dead", ()))
    for line in (
        f"turns: {t['mean']:.1f} of at most {t['limit']} (90 % within {t['p90']:.0f}); success within turns  {within}",
        "rollouts: " + ", ".join(f"{share:.1%} {end}" for end, share in found["ends"].items()),
        *_failures(found),
        *([f"dead groups, all failed and all succeeded  {dead}"] if dead else []),
        f"faults per turn: {faults}",
        *_listed(found),
        _cost(found["success_costs"], found["reread"]),
    ):
        console.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)


def _cost(each: Mapping[str, float] | None, reread: float) -> str:
    """What a success costs."""
    if each is None:
        return "no rollout succeeded, so the cost of a success is not known"
    again = f"{each['reread']:.1f} read again; " if "reread" in each else ""
    return (f"cost of a success: {each['env_steps']:.1f} env steps, {each['written']:.1f} tokens written, "
            f"{each['read']:.1f} read for the first time ({again}{reread:.0%} of all read were read again), "
            f"{each['rollouts']:.2f} rollouts")


def _failures(found: Mapping[str, Any]) -> list[str]:
    """At which turns rollouts failed, by how they ended; records of older versions lack it."""
    def turns(x: Mapping[str, Any]) -> str:
        low, middle, high = x["p10"], x["p50"], x["p90"]
        return f"at turn {middle:.0f}" if low == high else f"at turns {low:.0f} to {high:.0f} (half by {middle:.0f})"

    failed = [f"{x['end']} {turns(x)}" for x in found.get("failures", ())]
    spent = f"; {found['failed_steps']:.0%} of env steps were in these rollouts" if "failed_steps" in found else ""
    return [f"where they fail: {'; '.join(failed)}{spent}"] if failed else []


def _listed(found: Mapping[str, Any]) -> list[str]:
    """The most frequent kinds of faults, in how many rollouts each was, and how these did."""
    without = found.get("faultless", {}).get("success")
    beside = "" if without is None else f" (without a fault {without:.2f})"
    return [
        f"  {x['fault']}: {x['per_turn']:.2%} of turns" + (
            "" if x.get("success") is None
            else f", in {x['rollouts']:.1%} of rollouts, with mean reward {x['success']:.2f}{beside}")
        for x in found["listed"][:SHOWN]
    ]
