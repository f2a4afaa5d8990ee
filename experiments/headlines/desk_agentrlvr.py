"""Agent-RLVR at a desk with many registers: attempts that are guided where a task fails.

One of nine registers is copied to another, a register has to be read before it is written, and only the state at the
end pays. Where no attempt at a task is right, Agent-RLVR tries it again with guidance, which here is the turn of one
that knows the way, and trains without it. Every run has about 5,200 environment steps. Its parent is REINFORCE, with
the same sizes. GRPO is known here from earlier headlines: at tuned rates it ends at 0.96 to 0.98 after 8,700
environment steps at four registers. No run of Agent-RLVR or REINFORCE was looked at.
"""

from collections.abc import Mapping
from pathlib import Path

from agents_costs import at_tokens
from headline import Headline, Question

WORLD = "desk"
TOKENS = 15_000         # sampled by every run
ALT = "Held-out success over environment steps at a desk with a store: REINFORCE and Agent-RLVR, five runs each"


def numbers(folder: Path) -> Mapping[str, float]:
    """Held-out success at equal tokens."""
    return {"pass@1 at tokens": at_tokens(folder, TOKENS)}


HEADLINE = Headline(
    title="Agent-RLVR at a desk with many registers",
    methods={"agentrlvr": (0, 1)},
    own=(),
    claim="At equal environment steps, and at equal tokens, Agent-RLVR solves more than REINFORCE.",
    arms=("reinforce", "agentrlvr"),
    options=("--env", "desk:store=9", "--max-turns", "8", "--samples", "4", "-n", "8", "-B", "8",
             "--lr", "5e-4", "--evaluations", "3", "--seeds", "5", "--budget", "60k-env-steps", "--workers", "1"),
    questions=(
        Question("success at equal environment steps", ("agentrlvr", "pass@1"), ("reinforce", "pass@1")),
        Question("success at equal tokens", ("agentrlvr", "pass@1 at tokens"), ("reinforce", "pass@1 at tokens")),
    ),
    numbers=numbers,
)
