"""LOOP at a desk with a store: leave-one-out credit, two epochs over the attempts that differ, and a cut of stragglers.

A task with tools and rules, as that of the paper is: one of four registers is copied to another, a register has to be
read before it is written, and only the state at the end pays. The base solves a third. Every run has about 8,700
environment steps, in which GRPO is far from done. LOOP has its own n of 6 and GRPO here the same; both have 8 groups.
GRPO was run once here before this design, with one seed, to see whether the world is learned: success rose from 0.33 to
0.85 in 9,000 environment steps and to 0.97 in 30,000. LOOP was asked on rooms before; of its runs here none was looked
at.
"""

from collections.abc import Mapping
from pathlib import Path

from agents_costs import at_tokens
from headline import Headline, Question

WORLD = "desk"
TOKENS = 25_000         # sampled by every run
ALT = "Held-out success over environment steps of GRPO and LOOP at a desk with a store, five runs each"


def numbers(folder: Path) -> Mapping[str, float]:
    """Held-out success at equal tokens."""
    return {"pass@1 at tokens": at_tokens(folder, TOKENS)}


HEADLINE = Headline(
    title="LOOP at a desk with a store",
    methods={"loop": (0, 1)},
    own=("loop",),
    claim="At equal environment steps, and at equal tokens, LOOP solves more than GRPO.",
    arms=("grpo", "loop"),
    options=("--env", "desk:store=4", "--max-turns", "8", "--samples", "4", "-n", "6", "-B", "8", "--lr", "5e-4",
             "--evaluations", "3", "--seeds", "5", "--budget", "100k-env-steps", "--workers", "1"),
    questions=(
        Question("success at equal environment steps", ("loop", "pass@1"), ("grpo", "pass@1")),
        Question("success at equal tokens", ("loop", "pass@1 at tokens"), ("grpo", "pass@1 at tokens")),
    ),
    numbers=numbers,
)
