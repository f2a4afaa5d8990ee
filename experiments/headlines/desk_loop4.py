"""LOOP at a desk with turns to waste, at one rate: many updates of one wave.

One of four registers is copied to another, a register has to be read before it is written, and only the state at the
end pays. An attempt has up to 16 turns, where 4 are enough, and a run 1,600 environment steps: about 20 updates of 16
attempts. LOOP and RLOO have the same baseline, the mean of an attempt's siblings. RLOO makes one update of a wave; LOOP
makes two passes of eight updates each. This is the fifth design. In the fourth the rates were tuned alike by short
probes, which chose 8.7e-4 for LOOP and 8.1e-4 for RLOO: LOOP ended between 0.34 and 0.94, RLOO at 0.77. In the third
they chose 5e-4 and 2e-3, and LOOP ended at 0.90. So LOOP's gain depends on its rate, and here a rate is given: 5e-4 for
both, not tuned. That is not low for RLOO: with five seeds and a desk that are in no record it solved 0.78 at this rate,
and LOOP 0.92. What holds here holds at this rate, so it is not the whole of the paper's claim.
"""

from collections.abc import Mapping
from pathlib import Path

from agents_costs import at_tokens
from headline import Headline, Question

WORLD = "desk"
TOKENS = 4_000          # sampled by every run
PARENT, ARM = "rloo", "loop"
ALT = "Held-out success over environment steps of RLOO and LOOP at one rate, with turns to waste, eight runs each"


def numbers(folder: Path) -> Mapping[str, float]:
    """Held-out success at equal tokens."""
    return {"pass@1 at tokens": at_tokens(folder, TOKENS)}


HEADLINE = Headline(
    title="LOOP at a desk with turns to waste, at one rate",
    methods={"loop": (0, 1)},
    own=(),
    claim="At one low rate, at equal environment steps and at equal tokens, LOOP solves more than RLOO.",
    arms=(PARENT, ARM),
    options=("--env", "desk:store=4,seed=2", "--max-turns", "16", "--held-out", "0.3", "--samples", "2", "-n", "8",
             "-B", "2", "--evaluations", "2", "--seeds", "8", "--budget", "28000-env-steps", "--workers", "1"),
    questions=(
        Question("success at equal environment steps", (ARM, "pass@1"), (PARENT, "pass@1")),
        Question("success at equal tokens", (ARM, "pass@1 at tokens"), (PARENT, "pass@1 at tokens")),
    ),
    numbers=numbers,
    rate=5e-4,
)
