"""Second rises: truths of two stages and of one, forecast with second rises in the law and without."""

from __future__ import annotations

from accuracy.pieces import HELD, Record, Target, percent
from isocost.screen.words import markdown_table

LEAST, WIDER = 0.8, 1.1     # share of 90 % intervals that hold on two stages; widening on one stage
WORDS = {"two-stage": "two stages", "beyond": "two stages, outside the law's prior", "one stage": "one stage"}


def _row(name: str, g: Record, at: int) -> list[str]:
    own, before = g["with"], g["without"]
    return [name, str(g["studies"]), percent(own["held"][at]), percent(before["held"][at]),
            f"{own['width'][at]:.3f}", f"{before['width'][at]:.3f}", f"{g['ratio']['median']:.3f}",
            f"{g['ratio']['mean']:.3f}", f"{own['error'][at]:+.3f}", f"{before['error'][at]:+.3f}",
            f"{own['twice']:.2f}"]


def section(r: Record) -> str:
    """What second rises in the law change."""
    at = r["times"].index(4)
    head = ["truths", "studies", "coverage at 90 %", "without", "width", "without", "ratio of widths: median", "mean",
            "median error", "without", "mean probability of a second rise"]
    rows = [_row(WORDS[name], r["groups"][name], at) for name in WORDS]
    other, before = (r["groups"]["unrelated"][k]["held"][at] for k in ("with", "without"))
    wide = r["groups"]["two-stage"]["ratio"]["median"]
    return (
        "### Second rises\n\n"
        "A truth of two stages rises, pauses and rises again: a second skill starts late. The law weighs second rises"
        f" by their evidence, with a prior probability of {r['prior']:g} (see [laws](laws.md)). These studies are new"
        f" (seed {r['seed']}, drawn by the system); every pilot was fitted with second rises and without, and both"
        " forecast the same new runs at 4 times the pilot's end.\n\n"
        + markdown_table(head, rows) +
        f"\nThe cost: on truths of two stages intervals are {wide:.2f} times as wide (median of studies), and curves"
        f" unrelated across n are sometimes taken for second rises ({percent(other)} of their intervals cover, against"
        f" {percent(before)} without). The range of second rises that the law allows (20 to 50 % of the gain, midpoints"
        " of 0.7 to 3 pilots, exponent 2) is about that of these truths. The second row has truths outside it: 10 to"
        " 60 % of the gain, midpoints of 0.4 to 6 pilots, exponents of 1.2 to 3.5. In noisy logs of other trainers no"
        " second rise is looked for.\n\n"
        f"`python experiments/second_rise.py --twice 40 --out experiments/results/second_rise.json`{HELD}\n"
    )


def targets(r: Record) -> list[Target]:
    """Coverage on two stages, and what it costs on one."""
    at, groups = r["times"].index(4), r["groups"]
    two, ratio = groups["two-stage"], groups["one stage"]["ratio"]["median"]
    held = two["with"]["held"][at]
    return [(f"90 % interval covers: two-stage rise at 4 times, prediction ({two['studies']} new studies)",
             "at least 80 %", percent(held), held >= LEAST),
            (f"width on one-stage truths with second rises in the law, median of {groups['one stage']['studies']}",
             "at most 1.10 times", f"{ratio:.3f} times", ratio <= WIDER)]
