"""GRPO-RoC at a desk with turns to waste: right answers with fewer failed calls.

One of four registers is copied to another, a register has to be read before it is written, and only the state at the
end pays. An attempt has up to 16 turns, where 4 are enough: what is wasted costs a policy of GRPO nothing, and it
wastes much. The rate is 1e-3 for both and not tuned, since a lower rate by itself leaves more waste; earlier headlines
at this desk chose 5e-4 to 2e-3. Every run has 1,600 environment steps. With one seed that is in no record GRPO went
here from 0.41 to 0.90 in 5,000, with 0.5 failed calls and 4.7 calls in a success (3 are enough). GRPO-RoC trains on
half of the attempts that it samples, and keeps the right ones with the fewest faults; it samples 8 as GRPO does. This
is its second design: in the first, with 8 turns and four times the environment steps, GRPO's successes had 0.04 failed
calls at the end and left nothing to save. GRPO-RoC was run once before, with the same seed: 0.2 failed calls in a
success, success 0.93. The store needs no answer tags, so only faults count. Failed calls are those in successes of the
last policy, on the test split.
"""

from collections.abc import Mapping
from pathlib import Path

from agents_costs import at_tokens
from agents_ends import ends, turns
from headline import Headline, Question

WORLD = "desk"
TOKENS = 5_000          # sampled by every run
ARM = "roc@reward.opens="
ALT = "Held-out success over environment steps of GRPO and GRPO-RoC at a desk with turns to waste, eight runs each"


def numbers(folder: Path) -> Mapping[str, float]:
    """Held-out success at equal tokens, and turns of the last policy in four attempts at each test problem."""
    return {"pass@1 at tokens": at_tokens(folder, TOKENS), **ends(folder, turns, samples=4)}


HEADLINE = Headline(
    title="GRPO-RoC at a desk with turns to waste",
    methods={"roc": (0, 1, 2)},
    own=("roc",),
    claim="GRPO-RoC solves as much as GRPO, within 0.05, with fewer failed calls in its successes.",
    arms=("grpo", ARM),
    options=("--env", "desk:store=4", "--max-turns", "16", "--held-out", "0.3", "--samples", "2", "-n", "8", "-B", "2",
             "--evaluations", "2", "--seeds", "8", "--budget", "28k-env-steps", "--workers", "1"),
    questions=(
        # 0.05 is the least difference that counts here: a twentieth of the problems
        Question("failed calls in a success", (ARM, "failed"), ("grpo", "failed"), (float("-inf"), 0.0)),
        Question("success at equal environment steps", (ARM, "pass@1"), ("grpo", "pass@1"), (-0.05, float("inf"))),
        Question("success at equal tokens", (ARM, "pass@1 at tokens"), ("grpo", "pass@1 at tokens"),
                 (-0.05, float("inf"))),
    ),
    numbers=numbers,
    rate=1e-3,
)
