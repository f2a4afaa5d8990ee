"""Fission-GRPO at a desk with a store whose tools fail: what is sampled again after a fault teaches to recover.

One of four registers is copied to another, a register has to be read before it is written, and only the state at the
end pays; one call in five fails. Fission-GRPO continues some of its attempts again from after a fault, four times, and
trains on these continuations as well. Both arms have 8 attempts; what is continued is paid for in environment steps.
Every run has about 8,700 of them. GRPO was run once in the store without failures before this design, with one seed:
success rose from 0.33 to 0.85 in 9,000 environment steps. No run with failures, and none of Fission-GRPO, was looked
at.
"""

from collections.abc import Mapping
from pathlib import Path

from agents_costs import at_tokens
from headline import Headline, Question

WORLD = "desk"
TOKENS = 25_000         # sampled by every run
ALT = "Held-out success over environment steps of GRPO and Fission-GRPO at a desk whose tools fail, five runs each"


def numbers(folder: Path) -> Mapping[str, float]:
    """Held-out success at equal tokens."""
    return {"pass@1 at tokens": at_tokens(folder, TOKENS)}


HEADLINE = Headline(
    title="Fission-GRPO at a desk whose tools fail",
    methods={"fission": (0, 1)},
    own=("fission",),
    claim="At equal environment steps, and at equal tokens, Fission-GRPO solves more than GRPO where tools fail.",
    arms=("grpo", "fission"),
    options=("--env", "desk:store=4,noise=0.2", "--max-turns", "8", "--samples", "4", "-n", "8", "-B", "8", "--lr",
             "5e-4", "--evaluations", "3", "--seeds", "5", "--budget", "100k-env-steps", "--workers", "1"),
    questions=(
        Question("success at equal environment steps", ("fission", "pass@1"), ("grpo", "pass@1")),
        Question("success at equal tokens", ("fission", "pass@1 at tokens"), ("grpo", "pass@1 at tokens")),
    ),
    numbers=numbers,
)
