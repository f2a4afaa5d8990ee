"""MC returns at a desk with a store: weights by a turn's return against a filter by the dialogue's.

One of four registers is copied to another, a register has to be read before it is written, and only the state at the
end pays. MC returns imitate all dialogues, each turn weighed by how far its discounted return exceeds a learned
value; filtered behaviour cloning imitates successes. Every run has about 5,200 environment steps. GRPO is known here
from earlier headlines: at tuned rates it ends at 0.96 to 0.98 after 8,700 environment steps at four registers. No run
of MC returns or filtered behaviour cloning was looked at.
"""

from collections.abc import Mapping
from pathlib import Path

from agents_costs import at_tokens
from headline import Headline, Question

WORLD = "desk"
TOKENS = 15_000         # sampled by every run
ALT = "Held-out success over environment steps at a desk with a store: filtered cloning and MC returns, five runs each"


def numbers(folder: Path) -> Mapping[str, float]:
    """Held-out success at equal tokens."""
    return {"pass@1 at tokens": at_tokens(folder, TOKENS)}


HEADLINE = Headline(
    title="MC returns at a desk with a store",
    methods={"mcawr": (0, 1)},
    own=("mcawr",),
    claim=(
        "At equal environment steps, and at equal tokens, MC returns solve more than filtered behaviour "
        "cloning."
    ),
    arms=("fbc", "mcawr"),
    options=("--env", "desk:store=4", "--max-turns", "8", "--samples", "4", "-n", "8", "-B", "8",
             "--lr", "5e-4", "--evaluations", "3", "--seeds", "5", "--budget", "60k-env-steps", "--workers", "1"),
    questions=(
        Question("success at equal environment steps", ("mcawr", "pass@1"), ("fbc", "pass@1")),
        Question("success at equal tokens", ("mcawr", "pass@1 at tokens"), ("fbc", "pass@1 at tokens")),
    ),
    numbers=numbers,
)
