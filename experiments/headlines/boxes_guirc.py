"""GUI-RCPO on boxes: attempts that agree on a region are rewarded, without labels.

A box is described and the policy names its four sides; the base is right in one of four. GUI-RCPO pays for agreement
with the other attempts and never sees whether an answer is right. The question is whether held-out accuracy rises
from the base's; GRPO, which sees labels, is the other arm and shows how much could be gained. Every run has about
8,700 answers. GRPO was run once here before this design, with one seed: accuracy rose from 0.30 to 0.36 in 30,000. No
run of GUI-RCPO was looked at.
"""

from collections.abc import Mapping
from pathlib import Path

from agents_costs import at_tokens
from headline import Headline, Question

WORLD = "boxes"
TOKENS = 25_000         # sampled by every run
ALT = "Held-out success over environment steps at boxes: GRPO and GUI-RCPO, five runs each"


def numbers(folder: Path) -> Mapping[str, float]:
    """Held-out success at equal tokens."""
    return {"pass@1 at tokens": at_tokens(folder, TOKENS)}


HEADLINE = Headline(
    title="GUI-RCPO on boxes",
    methods={"guirc": (0,)},
    own=("guirc",),
    claim="Without labels accuracy rises over the base's.",
    arms=("grpo", "guirc"),
    options=("--env", "boxes", "--max-turns", "8", "--samples", "4", "-n", "8", "-B", "8",
             "--lr", "5e-4", "--evaluations", "3", "--seeds", "5", "--budget", "100k-env-steps", "--workers", "1"),
    questions=(
        Question("accuracy after less before", ("guirc", "pass@1"), ("guirc", "pass@1 before")),
    ),
    numbers=numbers,
)
