"""The text of a profile's dialogues, and of the turn limits that a pilot compares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from isocost.steps.fit import Law
from isocost.words import counted, word

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


def by_limit(rows: Sequence[Mapping[str, Any]] | None, console: Console) -> None:
    """What each turn limit gives and costs, by the same rollouts cut; at most `SHOWN` limits, the last one always."""
    if not rows or len(rows) < 2:
        return
    step = -(-len(rows) // SHOWN)
    table = Table(box=None, pad_edge=False)
    ks, ns = [x["k"] for x in rows[-1]["pass_at"] if x["k"] in (1, 4, 16)], (4, 8)
    costs = {"env_steps": "env steps", "written": "written"}
    if rows[-1]["read"]:        # a server does not say what it read
        costs |= {"read": "read", "reread": "read again"}
    heads = ["  turn limit", *(f"pass@{k}" for k in ks), *(f"dead, n={n}" for n in ns), *costs.values(),
             "env steps a success"]
    for name in heads:
        table.add_column(name, justify="right")
    for r in (x for x in rows if (rows[-1]["turns"] - x["turns"]) % step == 0):
        passed, dead = ({x[key]: x[value] for x in r[of]} for of, key, value in
                        (("pass_at", "k", "value"), ("dead", "n", "share")))
        table.add_row(
            f"  {r['turns']}", *(f"{passed[k]:.3f}" for k in ks), *(f"{dead[n]:.0%}" if n in dead else "" for n in ns),
            *(f"{r[k]:.1f}" for k in costs),
            f"{r['cost']['env_steps']:.1f}" if r["cost"] else "none succeeded",
        )
    console.print(table)
    console.print("  a lower limit cuts the same rollouts short; steps and tokens are per rollout", highlight=False)
    console.print(f"  {_attempts(rows)}", highlight=False, soft_wrap=True)


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


def turn_limit(console: Console, law: Law) -> None:
    """The turn limits that a pilot compared, and what would resolve it if they are not separated."""
    found = law.turn_limit
    if found is None:
        return
    console.print(f"  {found.text}", highlight=False)
    for r in found.differences:
        each = "  ".join(f"n={x['n']}: {x['mean']:+.3f}" for x in r["by_n"])
        console.print(f"    {counted(r['turns'], 'turn')} instead of {found.turns[-1]}, by n  {each}", highlight=False)
    if found.settle:
        console.print(f"  to resolve: {found.settle}", highlight=False)
    if law.extendable and found.option:
        console.print(f"      isocost pilot {word(law.folder)} {found.option}", highlight=False, soft_wrap=True)


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
