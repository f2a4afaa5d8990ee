"""ScalingInter-RL at a desk with turns to waste: a horizon that grows, against the long one from the beginning.

One of four registers is copied to another, a register has to be read before it is written, and only the state at the
end pays. An attempt has up to 16 turns, where 4 are enough, and a run 3,200 environment steps: about 45 updates of 16
attempts. ScalingInter has 5, 10 and 16 turns for 15 updates each, GRPO 16 throughout, and both are evaluated with 16.
The card's claim is of fixed horizons both short and long. This asks only about the long one, since 4 turns are enough
for every problem of this desk, and about calls in a success (3 are enough) of the last policy on the test split. The
rate is 1e-3 for both and not tuned, as for the other claims in this situation. In rooms, at tuned rates, five seeds
could not tell. With four seeds and a desk that are in no record GRPO solved 0.91 with 4.0 calls. No run of ScalingInter
was looked at here. TTI, another growing horizon, solved more than its parent there, with fewer calls.
"""

from collections.abc import Mapping
from pathlib import Path

from agents_costs import at_tokens
from agents_ends import ends, turns
from headline import Headline, Question

WORLD = "desk"
TOKENS = 9_000          # sampled by every run
PARENT, ARM = "grpo", "turns_grow"
ALT = "Held-out success over environment steps of GRPO and ScalingInter-RL, with turns to waste, eight runs each"


def numbers(folder: Path) -> Mapping[str, float]:
    """Held-out success at equal tokens, and turns of the last policy in four attempts at each test problem."""
    return {"pass@1 at tokens": at_tokens(folder, TOKENS), **ends(folder, turns, samples=4)}


HEADLINE = Headline(
    title="ScalingInter-RL against a long horizon at a desk with turns to waste",
    methods={"scalinginter": (0, 1, 2)},
    own=(),
    claim="A horizon that grows solves more than the long one, with fewer calls.",
    arms=(PARENT, "experiments/headlines/methods/turns_grow.py"),
    options=("--env", "desk:store=4,seed=3", "--max-turns", "16", "--held-out", "0.3", "--samples", "2", "-n", "8",
             "-B", "2", "--evaluations", "3", "--seeds", "8", "--budget", "56000-env-steps", "--workers", "1"),
    questions=(
        Question("calls in a success", (ARM, "calls"), (PARENT, "calls"), (float("-inf"), 0.0)),
        Question("success at equal environment steps", (ARM, "pass@1"), (PARENT, "pass@1")),
        Question("success at equal tokens", (ARM, "pass@1 at tokens"), (PARENT, "pass@1 at tokens")),
    ),
    numbers=numbers,
    rate=1e-3,
)
