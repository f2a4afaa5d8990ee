"""Filtered behaviour cloning at a desk with turns to waste: successes alone, against all attempts.

One of four registers is copied to another, a register has to be read before it is written, and only the state at the
end pays. An attempt has up to 16 turns, where 4 are enough, and a run 1,600 environment steps: about 20 updates of 16
attempts. A failure here ends with the wrong state and tells little about which turn was wrong. Filtered cloning drops
failures and imitates successes, fresh and remembered; REINFORCE is credited with the reward of all attempts. The paper
that used it for agents says that where failures carry little information successes alone perform as well. The rate is
1e-3 for both and not tuned, as for the other claims in this situation. With four seeds and a desk that are in no record
filtered cloning solved 0.88 and REINFORCE 0.84.
"""

from collections.abc import Mapping
from pathlib import Path

from agents_costs import at_tokens
from headline import Headline, Question

WORLD = "desk"
TOKENS = 4_000          # sampled by every run
PARENT, ARM = "reinforce", "fbc"
ALT = "Held-out success over environment steps of REINFORCE and filtered cloning, turns to waste, 14 runs each"


def numbers(folder: Path) -> Mapping[str, float]:
    """Held-out success at equal tokens."""
    return {"pass@1 at tokens": at_tokens(folder, TOKENS)}


HEADLINE = Headline(
    title="Filtered cloning at a desk with turns to waste",
    methods={"fbc": (0, 1)},
    own=("fbc",),
    claim="At equal environment steps, and at equal tokens, successes alone do as well as all attempts, within 0.05.",
    arms=(PARENT, ARM),
    options=("--env", "desk:store=4,seed=1", "--max-turns", "16", "--held-out", "0.3", "--samples", "2", "-n", "8",
             "-B", "2", "--evaluations", "2", "--seeds", "14", "--budget", "47200-env-steps", "--workers", "1"),
    questions=(
        # 0.05 is the least difference that counts here: a twentieth of the problems
        Question("success at equal environment steps", (ARM, "pass@1"), (PARENT, "pass@1"), (-0.05, float("inf"))),
        Question("success at equal tokens", (ARM, "pass@1 at tokens"), (PARENT, "pass@1 at tokens"),
                 (-0.05, float("inf"))),
    ),
    numbers=numbers,
    rate=1e-3,
)
