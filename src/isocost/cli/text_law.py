"""The terminal's text of a law, or of why there is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from isocost.cli.text import flags, head, interval
from isocost.cli.text_dialogues import turn_limit
from isocost.laws.curves import PASS
from isocost.laws.law import NotIdentified
from isocost.laws.tradeoff import Tradeoff, tradeoff
from isocost.stats.posterior import USUAL
from isocost.steps.limits import of_chosen
from isocost.words import counted, word

if TYPE_CHECKING:
    from isocost.steps.fit import Law


def law(found: Law, console: Console) -> None:
    """What the law predicts at the end of the pilot, or why it is not identified."""
    title = "law" if found.metric == PASS else f"law of {found.metric}"
    head(console, title if found.refused is None else f"{title}: not identified")
    if found.refused is not None:
        console.print(f"  {found.refused.reason}\n  to resolve: {found.refused.settle}")
        if found.forecast_refused is None:
            console.print("  the curves themselves can be forecast; a plan needs the above")
        if found.extendable and found.refused.option:
            option = of_chosen(found.refused.option, found.turn_limit)
            console.print(f"      isocost pilot {word(found.folder)} {option}", highlight=False, soft_wrap=True)
    if found.forecast_refused not in (None, found.refused):
        console.print(f"  no forecast: {found.forecast_refused.reason}\n  to resolve: {found.forecast_refused.settle}")
    table = Table(box=None, pad_edge=False, show_header=True)
    end = "at their end, test split" if found.splits else "at their end"
    for name in ("  n", "B", "lr", "runs", found.unit, end, "diverged"):
        table.add_column(name, justify="right")
    for arm in found.arms:
        C = float(arm.C[-1])
        known = interval(found.predict(arm.n, C)[0])
        table.add_row(
            f"  {arm.n}", str(arm.B), f"{arm.lr:.1e}", str(len(arm.runs)), f"{C:,.0f}", known, str(arm.diverged)
        )
    console.print(table)
    if found.binned:
        console.print(f"  fitted to means over at most {USUAL} bins of each run's evaluations; a curve ends at the "
                      "mean C of its last bin")
    console.print(f"  {found.how_runs_differ}")
    if any(f.name == "fixed_batch" for f in found.flags) and found.arms:
        trade(console, tradeoff(found.law))
    elif isinstance(found.n_star, NotIdentified):
        console.print(f"  n*(C) is not identified: {found.n_star.reason}")
    elif found.n_star is not None:
        console.print(
            "  n*(C): " + "  ".join(f"{C:.0f}: {found.n_star.at(C).value:.1f}" for C in found.range)
        )
    flags(console, (f.text for f in found.flags))
    interference(console, found.interference)
    turn_limit(console, found)
    if found.advice:
        console.print(f"  {found.advice}", highlight=False, soft_wrap=True)


def trade(console: Console, t: Tradeoff) -> None:
    """n*(M) and B*(M) at one batch, or the winners and why no sigmoid goes through them."""
    if t.growth is None:
        why = t.refused.reason if t.refused else ""
        console.print(f"  n*(M) at n B = {t.batch} is not identified: {why}\n  best along the pilot: {t.path}")
        return
    for w in (t.winners[0], t.winners[-1]):
        n, B = t.n_at(w.M), t.B_at(w.M)
        told = " and ".join(f"{k}* = {i.value:.1f} [{i.low:.1f}, {i.high:.1f}]" for k, i in (("n", n), ("B", B)))
        after = f"after {counted(round(w.M), 'update')} of n B = {t.batch}"
        console.print(f"  {after}: {told} ({t.level:.0%})", highlight=False)


def interference(console: Console, rows: Sequence[Mapping[str, Any]]) -> None:
    """By n, held-out problems that regressed and how uniform the gains were; nothing where no record holds them."""
    if not rows:
        return
    told = "  ".join(
        f"n={r['n']}: {r['forgotten']:.1%}" + ("" if r["uniformity"] is None else f", {r['uniformity']:.2f}")
        for r in rows
    )
    chance = max((r["chance"] or 0.0 for r in rows), default=0.0)
    note = f" (by sampling alone up to {chance:.1%})" if chance else ""
    even = ", uniformity of gains (1: equal on every problem)" if any(r["uniformity"] is not None for r in rows) else ""
    console.print(f"  held-out problems that regressed vs. base{note}{even}: {told}")
