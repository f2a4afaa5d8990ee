"""GRPO-RoC at a desk with turns to waste, trained longer: right answers with fewer failed calls.

One of four registers is copied to another, a register has to be read before it is written, and only the state at the
end pays. An attempt has up to 16 turns, where 4 are enough: what is wasted costs a policy of GRPO nothing. GRPO-RoC
trains on half of the attempts that it samples, and keeps the right ones with the fewest faults; it samples 8 as GRPO
does. The rate is 1e-3 for both and not tuned, as for the other claims in this situation. This is the third design: in
the second, with 8 seeds and 1,600 environment steps, failed calls were fewer (0.25 and 0.38 in a success) and success
was not known well enough; here are 16 seeds, 4,800 environment steps and another desk. With four seeds and a desk that
are in no record failed calls in a success were 0.17 and 0.28 after 4,500, success 0.97 with both. The store needs no
answer tags, so only faults count. Failed calls are those in successes of the last policy, on the test split.
"""

from collections.abc import Mapping
from pathlib import Path

from agents_costs import at_tokens
from agents_ends import ends, turns
from headline import Headline, Question

WORLD = "desk"
TOKENS = 14_000         # sampled by every run
PARENT, ARM = "grpo", "roc@reward.opens="
ALT = "Held-out success over environment steps of GRPO and GRPO-RoC, turns to waste and 4,800 steps, 16 runs each"


def numbers(folder: Path) -> Mapping[str, float]:
    """Held-out success at equal tokens, and turns of the last policy in four attempts at each test problem."""
    return {"pass@1 at tokens": at_tokens(folder, TOKENS), **ends(folder, turns, samples=4)}


HEADLINE = Headline(
    title="GRPO-RoC at a desk with turns to waste, trained longer",
    methods={"roc": (0, 1, 2)},
    own=("roc",),
    claim="GRPO-RoC solves as much as GRPO, within 0.05, with fewer failed calls in its successes.",
    arms=(PARENT, ARM),
    options=("--env", "desk:store=4,seed=1", "--max-turns", "16", "--held-out", "0.3", "--samples", "2", "-n", "8",
             "-B", "2", "--evaluations", "3", "--seeds", "16", "--budget", "160800-env-steps", "--workers", "1"),
    questions=(
        # 0.05 is the least difference that counts here: a twentieth of the problems
        Question("failed calls in a success", (ARM, "failed"), (PARENT, "failed"), (float("-inf"), 0.0)),
        Question("success at equal environment steps", (ARM, "pass@1"), (PARENT, "pass@1"), (-0.05, float("inf"))),
        Question("success at equal tokens", (ARM, "pass@1 at tokens"), (PARENT, "pass@1 at tokens"),
                 (-0.05, float("inf"))),
    ),
    numbers=numbers,
    rate=1e-3,
)
