"""MC returns at a desk with turns to waste: weights by a turn's return against a filter by the dialogue's.

One of four registers is copied to another, a register has to be read before it is written, and only the state at the
end pays. An attempt has up to 16 turns, where 4 are enough, and a run 1,600 environment steps: about 20 updates of 16
attempts. Filtered behaviour cloning imitates successes whole, with what they waste. MC returns weigh every turn by how
much its discounted return exceeds a critic's value of its state, so turns that bring the end nearer weigh more. The
rate is 1e-3 for both and not tuned, as for the other claims in this situation. This is the second design: in the first,
with 8 turns, three times the environment steps and five seeds, both solved 0.96. With four seeds and a desk that are in
no record MC returns solved 0.92 here and filtered cloning 0.88.
"""

from collections.abc import Mapping
from pathlib import Path

from agents_costs import at_tokens
from headline import Headline, Question

WORLD = "desk"
TOKENS = 4_000          # sampled by every run
PARENT, ARM = "fbc", "mcawr"
ALT = "Held-out success over environment steps of filtered cloning and MC returns, turns to waste, 14 runs each"


def numbers(folder: Path) -> Mapping[str, float]:
    """Held-out success at equal tokens."""
    return {"pass@1 at tokens": at_tokens(folder, TOKENS)}


HEADLINE = Headline(
    title="MC returns at a desk with turns to waste",
    methods={"mcawr": (0, 1)},
    own=("mcawr",),
    claim="At equal environment steps, and at equal tokens, MC returns solve more than filtered behaviour cloning.",
    arms=(PARENT, ARM),
    options=("--env", "desk:store=4,seed=1", "--max-turns", "16", "--held-out", "0.3", "--samples", "2", "-n", "8",
             "-B", "2", "--evaluations", "2", "--seeds", "14", "--budget", "47200-env-steps", "--workers", "1"),
    questions=(
        Question("success at equal environment steps", (ARM, "pass@1"), (PARENT, "pass@1")),
        Question("success at equal tokens", (ARM, "pass@1 at tokens"), (PARENT, "pass@1 at tokens")),
    ),
    numbers=numbers,
    rate=1e-3,
)
