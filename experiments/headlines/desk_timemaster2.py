"""TimeMaster at a desk with turns to waste, asked again: half of the reward for the form.

One of four registers is copied to another, a register has to be read before it is written, and only the state at the
end pays. An attempt has up to 16 turns, where 4 are enough, and a run 1,600 environment steps. TimeMaster pays for a
right attempt and for one in the required form: it ended by itself, and none of its turns was malformed. This is the
second design. In the first the form had the paper's share of 0.1, and 0.74 of the attempts were in form, where GRPO,
which is not paid for it, had 0.72; so short a run hardly follows so small a share. Here both rewards have one half,
which is not the paper's setting: the question is whether the form becomes reliable at no cost in right answers where it
is paid for as well as them. The form's share is that of the last policy's attempts at the test split. The rate is 1e-3
for both and not tuned, as for the other claims in this situation. With four seeds and a desk that are in no record GRPO
on the sum of both rewards had 0.84 in form and 0.86 right; this arm, which weighs tokens alike, was not looked at.
"""

from collections.abc import Mapping
from pathlib import Path

from agents_costs import at_tokens
from agents_ends import ends, turns
from headline import Headline, Question

WORLD = "desk"
TOKENS = 4_000          # sampled by every run
PARENT, ARM = "grpo", "timemaster@reward.right=0.5,reward.form=0.5"
ALT = "Held-out success over environment steps of GRPO and TimeMaster with equal shares, turns to waste, 12 runs each"


def numbers(folder: Path) -> Mapping[str, float]:
    """Held-out success at equal tokens, and turns of the last policy in four attempts at each test problem."""
    return {"pass@1 at tokens": at_tokens(folder, TOKENS), **ends(folder, turns, samples=4)}


HEADLINE = Headline(
    title="TimeMaster's two rewards in equal shares, at a desk with turns to waste",
    methods={"timemaster": (0, 1, 2)},
    own=(),
    claim="Paid by halves for right and form, as many attempts are right as GRPO's, within 0.05, and more in form.",
    arms=(PARENT, ARM),
    options=("--env", "desk:store=4,seed=1", "--max-turns", "16", "--held-out", "0.3", "--samples", "2", "-n", "8",
             "-B", "2", "--evaluations", "2", "--seeds", "12", "--budget", "40800-env-steps", "--workers", "1"),
    questions=(
        Question("share of attempts in form", (ARM, "form"), (PARENT, "form")),
        # 0.05 is the least difference that counts here: a twentieth of the problems
        Question("success at equal environment steps", (ARM, "pass@1"), (PARENT, "pass@1"), (-0.05, float("inf"))),
        Question("success at equal tokens", (ARM, "pass@1 at tokens"), (PARENT, "pass@1 at tokens"),
                 (-0.05, float("inf"))),
    ),
    numbers=numbers,
    rate=1e-3,
)
