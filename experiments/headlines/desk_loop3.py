"""LOOP at a desk with turns to waste, with more seeds: many updates of one wave, without a critic.

One of four registers is copied to another, a register has to be read before it is written, and only the state at the
end pays. An attempt has up to 16 turns, where 4 are enough, and a run 1,600 environment steps: about 20 updates of 16
attempts. LOOP and RLOO have the same baseline, the mean of an attempt's siblings. RLOO makes one update of a wave; LOOP
makes two passes of eight updates each, and its clip is to bound how far they go. The paper's comparison with RLOO is at
one number of rollouts, so that these updates are LOOP's gain. The rates are tuned alike. This is the fourth design: in
the first two LOOP was compared with GRPO, which the paper does too, at tasks that GRPO nearly solved; in the third,
with six seeds, LOOP solved 0.90 and RLOO 0.76, in an interval too wide to tell. Here are 14 seeds and another desk. At
a rate of 5e-4 for both, with five seeds and a desk that are in no record, LOOP solved 0.92 and RLOO 0.78.
"""

from collections.abc import Mapping
from pathlib import Path

from agents_costs import at_tokens
from headline import Headline, Question

WORLD = "desk"
TOKENS = 5_000          # sampled by every run
PARENT, ARM = "rloo", "loop"
ALT = "Held-out success over environment steps of RLOO and LOOP, with turns to waste, 14 runs each"


def numbers(folder: Path) -> Mapping[str, float]:
    """Held-out success at equal tokens."""
    return {"pass@1 at tokens": at_tokens(folder, TOKENS)}


HEADLINE = Headline(
    title="LOOP at a desk with turns to waste, with more seeds",
    methods={"loop": (0, 1)},
    own=("loop",),
    claim="At equal environment steps, and at equal tokens, LOOP solves more than RLOO.",
    arms=(PARENT, ARM),
    options=("--env", "desk:store=4,seed=1", "--max-turns", "16", "--held-out", "0.3", "--samples", "2", "-n", "8",
             "-B", "2", "--lr", "5e-4", "--evaluations", "2", "--seeds", "14", "--budget", "47200-env-steps",
             "--workers", "1"),
    questions=(
        Question("success at equal environment steps", (ARM, "pass@1"), (PARENT, "pass@1")),
        Question("success at equal tokens", (ARM, "pass@1 at tokens"), (PARENT, "pass@1 at tokens")),
    ),
    numbers=numbers,
)
