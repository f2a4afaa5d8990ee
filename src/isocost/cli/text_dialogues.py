"""The text of a profile's dialogues."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console

SHOWN = 8       # numbers of turns that are listed, at most


def dialogues(found: Mapping[str, Any] | None, console: Console) -> None:
    """Success by turns, ends, faults and the cost of a success; nothing for single answers."""
    if not found:
        return
    t, by = found["turns"], found["by_turn"]
    step = -(-len(by) // SHOWN)
    rows = [x for x in by if x["turn"] % step == 0 or x is by[-1]]
    within = "  ".join(f"{x['turn']}: {x['success']:.2f}" for x in rows)
    faults = ", ".join(f"{source} {rate:.2%}" for source, rate in found["faults"].items())
    most = "; most often " + ", ".join(f"{x['fault']} ({x['per_turn']:.2%})" for x in found["listed"][:3])
    for line in (
        f"turns: {t['mean']:.1f} of at most {t['limit']} (90 % within {t['p90']:.0f}); success within turns  {within}",
        "rollouts: " + ", ".join(f"{share:.1%} {end}" for end, share in found["ends"].items()),
        f"faults per turn: {faults}{most if found['listed'] else ''}",
        _cost(found["success_costs"], found["reread"]),
    ):
        console.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)


def _cost(each: Mapping[str, float] | None, reread: float) -> str:
    """What a success costs."""
    if each is None:
        return "no rollout succeeded, so the cost of a success is not known"
    return (f"cost of a success: {each['env_steps']:.1f} env steps, {each['written']:.1f} tokens written, "
            f"{each['read']:.1f} read for the first time ({reread:.0%} of all read were read again), "
            f"{each['rollouts']:.2f} rollouts")
