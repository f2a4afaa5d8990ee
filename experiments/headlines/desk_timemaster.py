"""TimeMaster at a desk with turns to waste: a share of the reward for the form.

One of four registers is copied to another, a register has to be read before it is written, and only the state at the
end pays. An attempt has up to 16 turns, where 4 are enough: what is wasted costs a policy of GRPO nothing, and it
wastes much. The rate is 1e-3 for both and not tuned, since a lower rate by itself leaves more waste; earlier headlines
at this desk chose 5e-4 to 2e-3. Every run has 1,600 environment steps. With one seed that is in no record GRPO went
here from 0.41 to 0.90 in 5,000, with 0.5 failed calls and 4.7 calls in a success (3 are enough). TimeMaster pays 0.9
for a right attempt and 0.1 for one in the required form: it ended by itself, and none of its turns was malformed. The
paper says that the form becomes reliable at no cost in right answers. The form's share is that of the attempts of the
last quarter of a run's groups; in the test split's attempts GRPO, which is not paid for it, had 0.64 with that seed. No
run of TimeMaster was looked at.
"""

from collections.abc import Mapping
from pathlib import Path

from agents_costs import at_tokens, form
from headline import Headline, Question

WORLD = "desk"
TOKENS = 5_000          # sampled by every run
ARM = "timemaster"
ALT = "Held-out success over environment steps of GRPO and TimeMaster at a desk with turns to waste, nine runs each"


def numbers(folder: Path) -> Mapping[str, float]:
    """Held-out success at equal tokens, and the share of attempts in form in the last quarter of the groups."""
    return {"pass@1 at tokens": at_tokens(folder, TOKENS), "form": form(folder)}


HEADLINE = Headline(
    title="TimeMaster at a desk with turns to waste",
    methods={"timemaster": (0, 1, 2)},
    own=("timemaster",),
    claim="TimeMaster solves as much as GRPO, within 0.05, and more attempts are in the required form.",
    arms=("grpo", ARM),
    options=("--env", "desk:store=4", "--max-turns", "16", "--held-out", "0.3", "--samples", "2", "-n", "8", "-B", "2",
             "--evaluations", "2", "--seeds", "9", "--budget", "31200-env-steps", "--workers", "1"),
    questions=(
        # 0.05 is the least difference that counts here: a twentieth of the problems
        Question("share of attempts in form", (ARM, "form"), ("grpo", "form")),
        Question("success at equal environment steps", (ARM, "pass@1"), ("grpo", "pass@1"), (-0.05, float("inf"))),
        Question("success at equal tokens", (ARM, "pass@1 at tokens"), ("grpo", "pass@1 at tokens"),
                 (-0.05, float("inf"))),
    ),
    numbers=numbers,
    rate=1e-3,
)
