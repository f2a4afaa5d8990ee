"""RaC at a desk with turns to waste: help where attempts went wrong, against clean demonstrations.

One of four registers is copied to another, a register has to be read before it is written, and only the state at the
end pays. An attempt has up to 16 turns, where 4 are enough, and a run 1,600 environment steps, those of the expert
among them. RaC lets the policy act until it is lost, has an expert lead it back and correct it, and imitates what the
expert did and attempts that were right without it. The other arm imitates whole attempts of the same expert, with the
same loss; it samples nothing, so at equal tokens it is its last policy. The paper says that help teaches more than the
same amount of clean demonstrations. Its people err, and its robots meet states that clean demonstrations never show;
here the expert is faultless. The rate is 1e-3 for both and not tuned, as for the other claims in this situation. With
three seeds and a desk that are in no record RaC solved 0.92, demonstrations 0.96 and filtered cloning, which has no
help, 0.88.
"""

from collections.abc import Mapping
from pathlib import Path

from agents_costs import at_tokens
from headline import Headline, Question

WORLD = "desk"
TOKENS = 3_500          # sampled by every run of RaC
PARENT, ARM = "experiments/headlines/methods/demonstrated.py", "rac"
ALT = "Held-out success over environment steps of clean demonstrations and RaC, turns to waste, eight runs each"


def numbers(folder: Path) -> Mapping[str, float]:
    """Held-out success at equal tokens."""
    return {"pass@1 at tokens": at_tokens(folder, TOKENS)}


HEADLINE = Headline(
    title="RaC at a desk with turns to waste",
    methods={"rac": (0, 1)},
    own=("rac",),
    claim="At equal environment steps, and at equal tokens, RaC solves more than clean demonstrations.",
    arms=(PARENT, ARM),
    options=("--env", "desk:store=4,seed=1", "--max-turns", "16", "--held-out", "0.3", "--samples", "2", "-n", "8",
             "-B", "2", "--evaluations", "2", "--seeds", "8", "--budget", "28000-env-steps", "--workers", "1"),
    questions=(
        Question("success at equal environment steps", (ARM, "pass@1"), ("demonstrated", "pass@1")),
        Question("success at equal tokens", (ARM, "pass@1 at tokens"), ("demonstrated", "pass@1 at tokens")),
    ),
    numbers=numbers,
    rate=1e-3,
)
