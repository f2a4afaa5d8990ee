"""GiGPO at a desk with a store: credit by states, where attempts at one task pass through the same states.

One of four registers is copied to another, a register has to be read before it is written, and only the state at the
end pays. The environment names its states, what is held and what was read, so turns of different attempts form groups.
The base solves a third. Every run has about 8,700 environment steps, in which GRPO is far from done. GRPO was run once
here before this design, with one seed, to see whether the world is learned: success rose from 0.33 to 0.85 in 9,000
environment steps and to 0.97 in 30,000. GiGPO was asked on rooms before; of its runs here none was looked at.
"""

from collections.abc import Mapping
from pathlib import Path

from agents_costs import at_tokens, dead
from headline import Headline, Question

WORLD = "desk"
TOKENS = 25_000         # sampled by every run
ALT = "Held-out success over environment steps of GRPO and GiGPO at a desk with a store, five runs each"


def numbers(folder: Path) -> Mapping[str, float]:
    """Held-out success at equal tokens, and the share of rollouts that carried no advantage."""
    return {"pass@1 at tokens": at_tokens(folder, TOKENS), "dead": dead(folder)}


HEADLINE = Headline(
    title="GiGPO at a desk with a store",
    methods={"gigpo": (0, 1, 2)},
    own=("gigpo",),
    claim="At equal environment steps, and at equal tokens, GiGPO solves more than GRPO, with fewer dead rollouts.",
    arms=("grpo", "gigpo"),
    options=("--env", "desk:store=4", "--max-turns", "8", "--samples", "4", "-n", "8", "-B", "8", "--lr", "5e-4",
             "--evaluations", "3", "--seeds", "5", "--budget", "100k-env-steps", "--workers", "1"),
    questions=(
        Question("success at equal environment steps", ("gigpo", "pass@1"), ("grpo", "pass@1")),
        Question("success at equal tokens", ("gigpo", "pass@1 at tokens"), ("grpo", "pass@1 at tokens")),
        Question("dead rollouts", ("gigpo", "dead"), ("grpo", "dead"), (float("-inf"), 0.0)),
    ),
    numbers=numbers,
)
