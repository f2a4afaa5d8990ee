"""DART at a desk with a store: curated dialogues teach more than all of them.

One of four registers is copied to another, a register has to be read before it is written, and only the state at the
end pays. DART chooses by earlier outcomes how often a task is attempted and how long, keeps successes for tasks that
fail, and trains on uncertain turns. Every run has about 5,200 environment steps. GRPO is known here from earlier
headlines: at tuned rates it ends at 0.96 to 0.98 after 8,700 environment steps at four registers. No run of DART was
looked at.
"""

from collections.abc import Mapping
from pathlib import Path

from agents_costs import at_tokens
from headline import Headline, Question

WORLD = "desk"
TOKENS = 15_000         # sampled by every run
ALT = "Held-out success over environment steps at a desk with a store: GRPO and DART, five runs each"


def numbers(folder: Path) -> Mapping[str, float]:
    """Held-out success at equal tokens."""
    return {"pass@1 at tokens": at_tokens(folder, TOKENS)}


HEADLINE = Headline(
    title="DART at a desk with a store",
    methods={"dart": (0, 1)},
    own=("dart",),
    claim="At equal environment steps, and at equal tokens, DART solves more than GRPO.",
    arms=("grpo", "dart"),
    options=("--env", "desk:store=4", "--max-turns", "8", "--samples", "4", "-n", "8", "-B", "8",
             "--lr", "5e-4", "--evaluations", "3", "--seeds", "5", "--budget", "60k-env-steps", "--workers", "1"),
    questions=(
        Question("success at equal environment steps", ("dart", "pass@1"), ("grpo", "pass@1")),
        Question("success at equal tokens", ("dart", "pass@1 at tokens"), ("grpo", "pass@1 at tokens")),
    ),
    numbers=numbers,
)
