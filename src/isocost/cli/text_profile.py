"""The terminal's text of what a profile measured, and of what it would cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console

from isocost.cli.text import head, money, pass_at, spent
from isocost.cli.text_dialogues import by_limit, dialogues
from isocost.cli.text_units import megabytes
from isocost.steps.pass_rates import MOST_CUT
from isocost.words import counted

if TYPE_CHECKING:
    from isocost.steps.profile import Profile, ProfileCost

NAMED = 5      # methods named in a line of many
BARS = " ▁▂▃▄▅▆▇█"


def profile_cost(c: ProfileCost, console: Console) -> None:
    """What profiling would cost at most."""
    console.print(
        f"profile of {c.model} on {c.data}: {counted(c.problems, 'problem')}, {c.rollouts:,} rollouts, at most "
        f"{c.tokens:,} tokens{'' if c.prompts else ' written, and the prompts'}"
        f"{'' if c.flops is None else f' and {c.flops:.1e} FLOP'}, {megabytes(c.memory_mb)} of memory, "
        f"{megabytes(c.disk_mb)} of disk"
        f"{'' if c.money is None else ', at most ' + money(c.money) + ('' if c.prompts else ' without the prompts')}; "
        "the profile itself measures how many seconds that takes here. Nothing was run"
    )


def profile(p: Profile, console: Console) -> None:
    """The profile in a dozen lines."""
    head(console, f"profile: {p.regime}")
    console.print(f"  {p.why}")
    top = max(p.histogram) or 1
    bars = "".join(BARS[(8 * h + top - 1) // top] for h in p.histogram)
    shown = f"right of {p.samples}: 0 [{bars}] {p.samples}"
    if p.graded:
        shown = f"problems by their mean reward: 0 [{bars}] 1"
    what = "mean reward" if p.graded else "pass@1"
    console.print(f"  {what} {p.mean:.3f} over {counted(len(p.right), 'problem')}; {shown}")
    pass_at(p.pass_at, console)
    dead = "  ".join(
        f"n={d['n']}: {d['share']:.0%}"
        + ("" if d["kind"] == "unbiased" else f" [{d['low']:.0%}, {d['high']:.0%}]")
        for d in p.dead
    )
    console.print(f"  dead groups  {dead}")
    answers = "not known: no token was counted"
    if p.lengths:
        cut = p.lengths["truncated"]
        answers = (f"{p.lengths['mean']:.1f} tokens (90 % within {p.lengths['p90']:.0f}), "
                   f"{'cut completions not known' if cut is None else f'{cut:.1%} cut'}")
    where = "from its server" if p.server else "here"
    speed = f"; {p.rate['rollouts_per_second']:.3g} rollouts/s {where}" if p.rate else ""
    console.print(f"  answers: {answers}{speed}")
    if p.lengths and (p.lengths["truncated"] or 0) > MOST_CUT:
        console.print(f"[yellow]! {p.lengths['truncated']:.1%} of the completions were cut at their length limit, and "
                      "the numbers above are of cut answers: raise --max-tokens[/]")
    dialogues(p.dialogues, console)
    by_limit(p.by_limit, console)
    if p.stored:
        stored(p.stored, p.money, console)
    elif p.server or p.money:
        spent(p.cost or {}, p.money, p.server, console)
    console.print(f"  recipe {p.recipe['method']}: {p.recipe['why']}")
    for line in p.found[:8]:
        console.print(f"  [yellow]{line}[/]")
    by = {m["name"]: m for m in p.methods}
    if own := by.get(p.recipe["method"]):
        console.print(f"  its preconditions: {own['state']}: {own['why']}")


def stored(found: Mapping[str, Any], paid: Mapping[str, Any] | None, console: Console) -> None:
    """What stored completions are, and what they cost when they were sampled."""
    tokens = [f"{found[k]:,} tokens {k}" for k in ("read", "written") if found.get(k) is not None]
    worth = f"; sampling them cost {money(paid)}" if paid else ""
    what = ", ".join([f"{found['completions']:,} completions of {found['file']}", *tokens])
    console.print(f"  {what}{worth}", markup=False, highlight=False, soft_wrap=True)


def preconditions(methods: Sequence[Mapping[str, str]]) -> list[str]:
    """Of the methods whose preconditions fail or are not measured: how many, and a line for each reason.

    A line has at most `NAMED` names of methods; profile.json has all of them.
    """
    lines = []
    for state, said in (("fails", "preconditions fail for"), ("not measured", "preconditions are not measured for")):
        by: dict[str, list[str]] = {}
        for m in methods:
            if m["state"] == state:
                by.setdefault(m["why"], []).append(m["name"])
        if by:
            more = ":" if all(len(names) <= NAMED for names in by.values()) else " (all names are in profile.json):"
            lines.append(f"{said} {sum(map(len, by.values()))} of {counted(len(methods), 'method')}{more}")
        for why, names in sorted(by.items(), key=lambda item: -len(item[1])):
            shown = ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
            lines.append(f"  {shown}: {why}")
    return lines
