"""ARPO at a desk with a store: forks after uncertain answers of a tool find more.

One of four registers is copied to another, a register has to be read before it is written, and only the state at the
end pays. ARPO forks dialogues where the policy is less certain after a call than at the start; a fork pays only for its
own turns. A mistake of this design was seen after the run: ARPO begins with eight dialogues, so with eight attempts
none is left to fork, and it is GRPO. It is asked again with four at the beginning. Every run has about 5,200
environment steps.
"""

from collections.abc import Mapping
from pathlib import Path

from agents_costs import at_tokens
from headline import Headline, Question

WORLD = "desk"
TOKENS = 15_000         # sampled by every run
ALT = "Held-out success over environment steps at a desk with a store: GRPO and ARPO, five runs each"


def numbers(folder: Path) -> Mapping[str, float]:
    """Held-out success at equal tokens."""
    return {"pass@1 at tokens": at_tokens(folder, TOKENS)}


HEADLINE = Headline(
    title="ARPO at a desk with a store",
    methods={"arpo": (0, 1)},
    own=("arpo",),
    claim="At equal environment steps, and at equal tokens, ARPO solves more than GRPO.",
    arms=("grpo", "arpo"),
    options=("--env", "desk:store=4", "--max-turns", "8", "--samples", "4", "-n", "8", "-B", "8",
             "--lr", "5e-4", "--evaluations", "3", "--seeds", "5", "--budget", "60k-env-steps", "--workers", "1"),
    questions=(
        Question("success at equal environment steps", ("arpo", "pass@1"), ("grpo", "pass@1")),
        Question("success at equal tokens", ("arpo", "pass@1 at tokens"), ("grpo", "pass@1 at tokens")),
    ),
    numbers=numbers,
)
