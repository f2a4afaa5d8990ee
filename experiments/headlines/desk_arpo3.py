"""ARPO at a desk with turns to waste: forks where the policy is uncertain.

One of four registers is copied to another, a register has to be read before it is written, and only the state at the
end pays. An attempt has up to 16 turns, where 4 are enough, and a run 1,600 environment steps: about 20 updates of 16
attempts. ARPO begins with four of eight attempts and forks them where the policy is less certain after a call than at
the start; a fork pays only for its own turns, so that there are more updates. The rate is 1e-3 for both and not tuned,
as for the other claims in this situation. This is the third design: in the second, with 8 turns, GRPO had solved 0.95
at the end and the interval was 0.16 wide on either side. GRPO's runs have the settings and seeds of those of OTC with
turns to waste. No run of ARPO with turns to waste was looked at.
"""

from collections.abc import Mapping
from pathlib import Path

from agents_costs import at_tokens
from headline import Headline, Question

WORLD = "desk"
TOKENS = 5_000          # sampled by every run
PARENT, ARM = "grpo", "arpo@play.trunks=4"
ALT = "Held-out success over environment steps of GRPO and ARPO, with turns to waste, eight runs each"


def numbers(folder: Path) -> Mapping[str, float]:
    """Held-out success at equal tokens."""
    return {"pass@1 at tokens": at_tokens(folder, TOKENS)}


HEADLINE = Headline(
    title="ARPO at a desk with turns to waste",
    methods={"arpo": (0, 1)},
    own=("arpo",),
    claim="At equal environment steps, and at equal tokens, ARPO solves more than GRPO.",
    arms=(PARENT, ARM),
    options=("--env", "desk:store=4", "--max-turns", "16", "--held-out", "0.3", "--samples", "2", "-n", "8", "-B", "2",
             "--evaluations", "2", "--seeds", "8", "--budget", "28k-env-steps", "--workers", "1"),
    questions=(
        Question("success at equal environment steps", (ARM, "pass@1"), (PARENT, "pass@1")),
        Question("success at equal tokens", (ARM, "pass@1 at tokens"), (PARENT, "pass@1 at tokens")),
    ),
    numbers=numbers,
    rate=1e-3,
)
