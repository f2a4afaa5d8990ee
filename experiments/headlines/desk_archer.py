"""ArCHer at a desk with turns to waste: a replayed critic of turns.

One of four registers is copied to another, a register has to be read before it is written, and only the state at the
end pays. An attempt has up to 16 turns, where 4 are enough, and a run 1,600 environment steps: about 20 updates of 16
attempts. ArCHer fits a critic of turns to replayed and fresh dialogues by one-step backups, and credits a turn with
what the critic says it gained; its parent credits all turns with the reward at the end. The paper's claim is of far
fewer dialogues, against REINFORCE and others, with its critic trained first; here the critic begins untrained. The
rates are tuned alike. At 1e-3 for both, with four seeds and a desk that are in no record, ArCHer stayed at the base's
0.42 and REINFORCE came to 0.84.
"""

from collections.abc import Mapping
from pathlib import Path

from agents_costs import at_tokens
from headline import Headline, Question

WORLD = "desk"
TOKENS = 4_000          # sampled by every run
PARENT, ARM = "reinforce", "archer"
ALT = "Held-out success over environment steps of REINFORCE and ArCHer, with turns to waste, eight runs each"


def numbers(folder: Path) -> Mapping[str, float]:
    """Held-out success at equal tokens."""
    return {"pass@1 at tokens": at_tokens(folder, TOKENS)}


HEADLINE = Headline(
    title="ArCHer at a desk with turns to waste",
    methods={"archer": (0, 1)},
    own=("archer",),
    claim="At equal environment steps, and at equal tokens, ArCHer solves more than REINFORCE.",
    arms=(PARENT, ARM),
    options=("--env", "desk:store=4,seed=1", "--max-turns", "16", "--held-out", "0.3", "--samples", "2", "-n", "8",
             "-B", "2", "--lr", "5e-4", "--evaluations", "2", "--seeds", "8", "--budget", "28000-env-steps",
             "--workers", "1"),
    questions=(
        Question("success at equal environment steps", (ARM, "pass@1"), (PARENT, "pass@1")),
        Question("success at equal tokens", (ARM, "pass@1 at tokens"), (PARENT, "pass@1 at tokens")),
    ),
    numbers=numbers,
)
