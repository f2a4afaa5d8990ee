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
    say = {"markup": False, "highlight": False, "soft_wrap": True}
    console.print(f"  turns: {t['mean']:.1f} of at most {t['limit']} (90 % within {t['p90']:.0f}); success within "
                  f"turns  {within}", **say)
    console.print("  rollouts: " + ", ".join(f"{share:.1%} {end}" for end, share in found["ends"].items()), **say)
    faults = ", ".join(f"{source} {rate:.2%}" for source, rate in found["faults"].items())
    most = "; most often " + ", ".join(f"{x['fault']} ({x['per_turn']:.2%})" for x in found["listed"][:3])
    console.print(f"  faults per turn: {faults}{most if found['listed'] else ''}", **say)
    cost = found["success_costs"]
    if cost is None:
        console.print("  no rollout succeeded, so the cost of a success is not known", **say)
    else:
        console.print(f"  cost of a success: {cost['env_steps']:.1f} env steps, {cost['written']:.1f} tokens written, "
                      f"{cost['read']:.1f} read for the first time ({found['reread']:.0%} of all read were read again), "
                      f"{cost['rollouts']:.2f} rollouts", **say)
