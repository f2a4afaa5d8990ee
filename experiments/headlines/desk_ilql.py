"""ILQL at a desk with turns to waste: values of the best turns that were seen.

One of four registers is copied to another, a register has to be read before it is written, and only the state at the
end pays. An attempt has up to 16 turns, where 4 are enough, and a run 1,600 environment steps: about 20 updates of 16
attempts. ILQL weighs a turn by one-step backups of a critic that is fitted to the better of what followed, so that good
parts of different dialogues can be joined; its parent, MC returns, weighs it by the return that its own dialogue had.
The rates are tuned alike. At 1e-3 for both, with four seeds and a desk that are in no record, ILQL solved 0.53 and MC
returns 0.92.
"""

from collections.abc import Mapping
from pathlib import Path

from agents_costs import at_tokens
from headline import Headline, Question

WORLD = "desk"
TOKENS = 4_000          # sampled by every run
PARENT, ARM = "mcawr", "ilql"
ALT = "Held-out success over environment steps of MC returns and ILQL, with turns to waste, eight runs each"


def numbers(folder: Path) -> Mapping[str, float]:
    """Held-out success at equal tokens."""
    return {"pass@1 at tokens": at_tokens(folder, TOKENS)}


HEADLINE = Headline(
    title="ILQL at a desk with turns to waste",
    methods={"ilql": (0, 1)},
    own=("ilql",),
    claim="At equal environment steps, and at equal tokens, ILQL solves more than MC returns.",
    arms=(PARENT, ARM),
    options=("--env", "desk:store=4,seed=1", "--max-turns", "16", "--held-out", "0.3", "--samples", "2", "-n", "8",
             "-B", "2", "--lr", "5e-4", "--evaluations", "2", "--seeds", "8", "--budget", "28000-env-steps",
             "--workers", "1"),
    questions=(
        Question("success at equal environment steps", (ARM, "pass@1"), (PARENT, "pass@1")),
        Question("success at equal tokens", (ARM, "pass@1 at tokens"), (PARENT, "pass@1 at tokens")),
    ),
    numbers=numbers,
)
