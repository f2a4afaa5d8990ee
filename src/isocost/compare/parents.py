"""Many methods, each trained once and judged against the method that it changes (`isocost compare --to-parents`).

The design, probes and runs are those of a comparison (`isocost.compare.steps`); a parent's runs are shared by all of
its children. What differs is what is asked at the end, and so how wrong calls are counted (`isocost.compare.many`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table

from isocost import methods
from isocost.cli import text as tell
from isocost.compare.judge import QUESTIONS, SAME, TOLD, UNKNOWN, Answer
from isocost.compare.many import Change, Wave
from isocost.errors import UserError
from isocost.words import counted

WORDS = {"better": "better", "worse": "[bold]worse[/]", "same": "the same", "cannot tell": "cannot tell"}


def with_parents(arms: Sequence[str]) -> tuple[tuple[str, ...], dict[str, str]]:
    """The arms with every parent that they lack put before them, and each named method's parent.

    Raises UserError for a method that has none.
    """
    parents: dict[str, str] = {}
    for arm in arms:
        parent = methods.load(methods.parted(arm)[0]).CARD.parent
        if parent is None:
            raise UserError(f"{arm} has no parent to be compared with: leave it out, its children bring it in")
        parents[arm] = parent
    lacking = [p for p in dict.fromkeys(parents.values()) if p not in arms]
    return (*lacking, *arms), parents


def exit_code(found: Wave) -> int:
    """For scripts, as a comparison's: 0 if a difference was told, 3 if all are the same within the margin, else 4."""
    said = [c.verdict for c in found.changes]
    if all(x == "same" for x in said):
        return SAME
    return TOLD if any(x in ("better", "worse") for x in said) else UNKNOWN


def show(console: Console, found: Wave, rates: Mapping[str, float]) -> None:
    """A line for each method, those that were told apart first, then how wrong calls were counted."""
    said = {x: [c.method for c in found.changes if c.verdict == x] for x in WORDS}
    tell.head(console, "; ".join(f"{x}: {', '.join(names)}" for x, names in said.items() if names))
    table = Table(box=None, pad_edge=False)
    for name in ("  method", "against", "verdict", "lr", "mean", "parent's", *QUESTIONS):
        table.add_column(name, justify="right" if name in ("lr", "mean", "parent's") else "left")
    for c in sorted(found.changes, key=lambda c: list(WORDS).index(c.verdict)):
        table.add_row(f"  {c.method}", c.parent, _verdict(c), f"{rates[c.method]:.2g}", f"{c.means[0]:.3f}",
                      f"{c.means[1]:.3f}", *(_bounds(c.answer(q)) for q in QUESTIONS))
    console.print(table, soft_wrap=True)
    console.print(f"  {counted(found.asked, 'answer')} asked, {found.called} believed (Benjamini and Hochberg, at most "
                  f"{found.rate:.0%} of them wrong); intervals of {100 * (1 - found.alpha):.3g} %; "
                  f"margin {found.margin:g}", soft_wrap=True)
    for c in found.changes:
        for note in c.notes:
            console.print(f"  [yellow]! {note}[/]", soft_wrap=True)


def _verdict(c: Change) -> str:
    return WORDS[c.verdict] + (f" ({c.by})" if c.verdict in ("better", "worse") else "")


def _bounds(x: Answer) -> str:
    if x.value is None or x.low is None or x.high is None:
        return "not known"
    if x.question == "efficiency":
        return f"x{x.value:.2f} [{x.low:.2f}, {x.high:.2f}]"
    return f"{x.value:+.3f} [{x.low:+.3f}, {x.high:+.3f}]"
