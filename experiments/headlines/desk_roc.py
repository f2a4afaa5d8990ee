"""GRPO-RoC at a desk with a store: right answers with fewer failed calls.

One of four registers is copied to another, a register has to be read before it is written, and only the state at the
end pays, so a success may contain calls that failed. GRPO-RoC samples twice as many attempts as it trains on and keeps
the right ones with the fewest faults: 16 of which 8 are trained on, where GRPO has 8. Every run has about 13,000
environment steps, so GRPO-RoC has half of the updates. The store needs no answer tags, so only faults count. Failed
calls are those of the successes in the last tenth of a run's groups, before selection. GRPO was run once here before
this design, with one seed: success rose from 0.33 to 0.85 in 9,000 environment steps and to 0.97 in 30,000. No run of
GRPO-RoC was looked at.
"""

from collections.abc import Mapping
from pathlib import Path

from agents_costs import at_tokens, calls
from headline import Headline, Question

WORLD = "desk"
TOKENS = 40_000         # sampled by every run
ROC = "roc@rollouts=16,reward.opens="
ALT = "Held-out success over environment steps of GRPO and GRPO-RoC at a desk with a store, five runs each"


def numbers(folder: Path) -> Mapping[str, float]:
    """Held-out success at equal tokens, and failed calls in successes at the end of training."""
    return {"pass@1 at tokens": at_tokens(folder, TOKENS), **calls(folder)}


HEADLINE = Headline(
    title="GRPO-RoC at a desk with a store",
    methods={"roc": (0, 1, 2)},
    own=("roc",),
    claim="GRPO-RoC solves as much as GRPO, within 0.05, with fewer failed calls in its successes.",
    arms=("grpo", ROC),
    options=("--env", "desk:store=4", "--max-turns", "8", "--samples", "4", "-n", "8", "-B", "8", "--lr", "5e-4",
             "--evaluations", "3", "--seeds", "5", "--budget", "150k-env-steps", "--workers", "1"),
    questions=(
        # 0.05 is the least difference that counts here: a twentieth of the problems
        Question("failed calls in a success", (ROC, "failed"), ("grpo", "failed"), (float("-inf"), 0.0)),
        Question("success at equal environment steps", (ROC, "pass@1"), ("grpo", "pass@1"), (-0.05, float("inf"))),
        Question("success at equal tokens", (ROC, "pass@1 at tokens"), ("grpo", "pass@1 at tokens"),
                 (-0.05, float("inf"))),
    ),
    numbers=numbers,
)
