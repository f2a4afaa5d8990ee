"""GiGPO at a desk with turns to waste: credit for the turns that helped.

One of four registers is copied to another, a register has to be read before it is written, and only the state at the
end pays. An attempt has up to 16 turns, where 4 are enough, and a run 1,600 environment steps: about 20 updates of 16
attempts. The environment names its states, what is held and what was read, so turns of different attempts form groups,
and a turn that leaves the state as it was is worth less than one that comes nearer. The rate is 1e-3 for both and not
tuned, as for the other claims in this situation. This is the third design: on rooms neither method learned, and with 8
turns and five times the environment steps GRPO ended at 0.96. GRPO's runs have the settings and seeds of those of OTC
with turns to waste. No run of GiGPO with turns to waste was looked at.
"""

from collections.abc import Mapping
from pathlib import Path

from agents_costs import at_tokens
from headline import Headline, Question

WORLD = "desk"
TOKENS = 5_000          # sampled by every run
PARENT, ARM = "grpo", "gigpo"
ALT = "Held-out success over environment steps of GRPO and GiGPO, with turns to waste, six runs each"


def numbers(folder: Path) -> Mapping[str, float]:
    """Held-out success at equal tokens."""
    return {"pass@1 at tokens": at_tokens(folder, TOKENS)}


HEADLINE = Headline(
    title="GiGPO at a desk with turns to waste",
    methods={"gigpo": (0, 1)},
    own=("gigpo",),
    claim="At equal environment steps, and at equal tokens, GiGPO solves more than GRPO.",
    arms=(PARENT, ARM),
    options=("--env", "desk:store=4", "--max-turns", "16", "--held-out", "0.3", "--samples", "2", "-n", "8", "-B", "2",
             "--evaluations", "2", "--seeds", "6", "--budget", "21600-env-steps", "--workers", "1"),
    questions=(
        Question("success at equal environment steps", (ARM, "pass@1"), (PARENT, "pass@1")),
        Question("success at equal tokens", (ARM, "pass@1 at tokens"), (PARENT, "pass@1 at tokens")),
    ),
    numbers=numbers,
    rate=1e-3,
)
