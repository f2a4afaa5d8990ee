"""UI-S1 at a desk with a store: attempts that follow a demonstration, and are put right where they leave it.

One of six registers is copied to another, a register has to be read before it is written, and only the state at the end
pays. UI-S1 walks along demonstrations, here of one that knows the way, and patches a turn that differs. The paper
compares it with learning from single steps; here it is compared with GRPO, which has no demonstrations. A mistake of
this design was seen after the run: the desk's problems listed no demonstration, so UI-S1 had none to walk along, and
what was asked is GRPO's attempts with its credit for turns. Every run has about 5,200 environment steps. GRPO is known
here from earlier headlines: at tuned rates it ends at 0.96 to 0.98 after 8,700 environment steps at four registers. No
run of UI-S1 was looked at.
"""

from collections.abc import Mapping
from pathlib import Path

from agents_costs import at_tokens
from headline import Headline, Question

WORLD = "desk"
TOKENS = 15_000         # sampled by every run
ALT = "Held-out success over environment steps at a desk with a store: GRPO and UI-S1, five runs each"


def numbers(folder: Path) -> Mapping[str, float]:
    """Held-out success at equal tokens."""
    return {"pass@1 at tokens": at_tokens(folder, TOKENS)}


HEADLINE = Headline(
    title="UI-S1 at a desk with a store",
    methods={"uis1": (0, 1)},
    own=(),
    claim="At equal environment steps, and at equal tokens, UI-S1 solves more than GRPO.",
    arms=("grpo", "uis1"),
    options=("--env", "desk:store=6", "--max-turns", "8", "--samples", "4", "-n", "8", "-B", "8",
             "--lr", "5e-4", "--evaluations", "3", "--seeds", "5", "--budget", "60k-env-steps", "--workers", "1"),
    questions=(
        Question("success at equal environment steps", ("uis1", "pass@1"), ("grpo", "pass@1")),
        Question("success at equal tokens", ("uis1", "pass@1 at tokens"), ("grpo", "pass@1 at tokens")),
    ),
    numbers=numbers,
)
