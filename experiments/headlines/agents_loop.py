"""LOOP against GRPO on rooms: leave-one-out credit, two epochs over the attempts that differ, and a cut of stragglers.

The default house, whose base solves two of three; dialogues have up to 12 turns. LOOP has its own n of 6 and GRPO here
the same; both have 16 groups. LOOP makes eight updates an epoch, and the paper's two epochs, where GRPO makes one
update of a wave; the claim is at equal environment steps and equal tokens, where more updates of one wave are LOOP's
own. The tool world of the paper is not there yet, and this asks the method in the world that is. No run of LOOP was
looked at before this design.
"""

from collections.abc import Mapping
from pathlib import Path

from agents_costs import at_tokens
from headline import Headline, Question

WORLD = "rooms"
TOKENS = 40_000
ALT = "Held-out success over environment steps of GRPO and LOOP on rooms, five runs each"


def numbers(folder: Path) -> Mapping[str, float]:
    """Held-out success at equal tokens."""
    return {"pass@1 at tokens": at_tokens(folder, TOKENS)}


HEADLINE = Headline(
    title="LOOP on rooms",
    methods={"loop": (0, 1)},
    own=(),
    claim="At equal environment steps, and at equal tokens, LOOP solves more than GRPO.",
    arms=("grpo", "loop"),
    options=("--env", "rooms", "--max-turns", "12", "--samples", "4", "-n", "6", "-B", "16", "--lr", "3e-4",
             "--evaluations", "3", "--seeds", "5", "--budget", "300k-env-steps", "--workers", "1"),
    questions=(
        Question("success at equal environment steps", ("loop", "pass@1"), ("grpo", "pass@1")),
        Question("success at equal tokens", ("loop", "pass@1 at tokens"), ("grpo", "pass@1 at tokens")),
    ),
    numbers=numbers,
)
