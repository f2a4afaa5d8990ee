"""The text of a profile's dialogues."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console

from isocost.steps.dialogues import where_failed
from isocost.words import visible

SHOWN = 8       # numbers of turns that are listed, at most
FAULTS = 5      # kinds of faults that are listed, at most


def dialogues(found: Mapping[str, Any] | None, console: Console) -> None:
    """Success by turns, where and how rollouts end, dead groups, faults and the cost of a success; nothing for single
    answers."""
    for line in _lines(found) if found else ():
        console.print(f"  {visible(line)}", markup=False, highlight=False, soft_wrap=True)


def _lines(found: Mapping[str, Any]) -> Iterator[str]:
    t, by = found["turns"], found["by_turn"]
    step = -(-len(by) // SHOWN)
    rows = [x for x in by if x["turn"] % step == 0 or x is by[-1]]
    within = "  ".join(f"{x['turn']}: {x['success']:.2f}" for x in rows)
    yield f"turns: {t['mean']:.1f} of at most {t['limit']} (90 % within {t['p90']:.0f}); success within turns  {within}"
    yield "rollouts: " + ", ".join(f"{share:.1%} {end}" for end, share in found["ends"].items())
    if failed := where_failed(found):
        yield "where they fail: " + "; ".join(f"{x['end']} {_turns(x)}" for x in failed)
    if dead := found.get("dead"):
        yield "dead groups, all failed and all succeeded: " + "  ".join(
            f"n={d['n']}: {d['failed']:.0%}, {d['succeeded']:.0%}" for d in dead)
    yield "faults per turn: " + ", ".join(f"{source} {rate:.2%}" for source, rate in found["faults"].items())
    clean = found.get("faultless") or {}
    for x in found["listed"][:FAULTS]:
        yield f"  {x['fault']}: {x['per_turn']:.2%} of turns{_of_these(x, clean)}"
    yield _cost(found)


def _turns(x: Mapping[str, Any]) -> str:
    """At which turns one kind of end was."""
    low, middle, high = x["p10"], x["p50"], x["p90"]
    return f"at turn {middle:.0f}" if low == high else f"at turns {low:.0f} to {high:.0f}, half by {middle:.0f}"


def _of_these(x: Mapping[str, Any], clean: Mapping[str, Any]) -> str:
    """In how many rollouts a fault was, and how many of these succeed; records of older versions lack it."""
    if x.get("success") is None:
        return ""
    other = clean.get("success")
    beside = "" if other is None else f" (of those without a fault {other:.0%})"
    return f", in {x['rollouts']:.1%} of rollouts; mean reward of these {x['success']:.0%}{beside}"


def _cost(found: Mapping[str, Any]) -> str:
    """What a success costs."""
    each = found["success_costs"]
    if each is None:
        return "no rollout succeeded, so the cost of a success is not known"
    again = f"{found['reread']:.0%} of all read were read again"
    again = f"{each['reread']:.1f} read again, {again}" if "reread" in each else again
    failed = f"; {found['failed_steps']:.0%} of env steps were in rollouts that failed" if "failed_steps" in found else ""
    return (f"cost of a success: {each['env_steps']:.1f} env steps, {each['written']:.1f} tokens written, "
            f"{each['read']:.1f} read for the first time ({again}), {each['rollouts']:.2f} rollouts{failed}")
