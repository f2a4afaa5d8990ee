"""VRAG-RL and a needle: zooming and an ordered search.

Pictures hide a digit; the policy looks at them coarsely, zooms into parts and answers. The base finds one in seven.
VRAG-RL's reward is for the answer, its form, and finding the right pictures early. Every run has about 8,700
environment steps. GRPO was run once here before this design, with one seed: success rose from 0.16 to 0.20 in 30,000
environment steps. No run of VRAG-RL was looked at.
"""

from collections.abc import Mapping
from pathlib import Path

from agents_costs import at_tokens
from headline import Headline, Question

WORLD = "needle"
TOKENS = 25_000         # sampled by every run
ALT = "Held-out success over environment steps at a needle: GRPO and VRAG-RL, five runs each"


def numbers(folder: Path) -> Mapping[str, float]:
    """Held-out success at equal tokens."""
    return {"pass@1 at tokens": at_tokens(folder, TOKENS)}


HEADLINE = Headline(
    title="VRAG-RL and a needle",
    methods={"vragrl": (0, 1)},
    own=("vragrl",),
    claim="At equal environment steps, and at equal tokens, VRAG-RL answers more than GRPO.",
    arms=("grpo", "vragrl"),
    options=("--env", "needle", "--max-turns", "8", "--samples", "4", "-n", "8", "-B", "8",
             "--lr", "5e-4", "--evaluations", "3", "--seeds", "5", "--budget", "100k-env-steps", "--workers", "1"),
    questions=(
        Question("success at equal environment steps", ("vragrl", "pass@1"), ("grpo", "pass@1")),
        Question("success at equal tokens", ("vragrl", "pass@1 at tokens"), ("grpo", "pass@1 at tokens")),
    ),
    numbers=numbers,
)
