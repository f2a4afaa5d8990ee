"""GUI-G1 on boxes: rewards for hit, overlap and size together.

A box is described and the policy names its four sides; an answer is right if the middle of its box is in the target,
and the base is right in one of four. GUI-G1 also pays for overlap and for sides that agree, and weighs small targets
more; its parent is Dr. GRPO, with the same sizes. The paper's claim is that boxes stay honest in size; here the
question is of accuracy. Every run has about 8,700 answers. GRPO is known here: with one seed accuracy rose from 0.30
to 0.36 in 30,000. No run of GUI-G1 or Dr. GRPO was looked at.
"""

from collections.abc import Mapping
from pathlib import Path

from agents_costs import at_tokens
from headline import Headline, Question

WORLD = "boxes"
TOKENS = 25_000         # sampled by every run
ALT = "Held-out success over environment steps at boxes: Dr. GRPO and GUI-G1, five runs each"


def numbers(folder: Path) -> Mapping[str, float]:
    """Held-out success at equal tokens."""
    return {"pass@1 at tokens": at_tokens(folder, TOKENS)}


HEADLINE = Headline(
    title="GUI-G1 on boxes",
    methods={"guig1": (0, 1)},
    own=(),
    claim="At equal environment steps, and at equal tokens, GUI-G1 is right more often than Dr. GRPO.",
    arms=("drgrpo", "guig1"),
    options=("--env", "boxes", "--max-turns", "8", "--samples", "4", "-n", "8", "-B", "8",
             "--lr", "5e-4", "--evaluations", "3", "--seeds", "5", "--budget", "100k-env-steps", "--workers", "1"),
    questions=(
        Question("success at equal environment steps", ("guig1", "pass@1"), ("drgrpo", "pass@1")),
        Question("success at equal tokens", ("guig1", "pass@1 at tokens"), ("drgrpo", "pass@1 at tokens")),
    ),
    numbers=numbers,
)
