"""GiGPO at a desk with turns to waste: fewer rollouts without an advantage, at no cost in success.

One of four registers is copied to another, a register has to be read before it is written, and only the state at the
end pays. An attempt has up to 16 turns, where 4 are enough, and a run 3,200 environment steps. A group of GRPO whose
attempts are all right or all wrong carries no advantage, and towards the end most are all right. GiGPO compares turns
that were taken in one state as well, with returns that are discounted, so such groups still tell turns that were wasted
from those that were not. The paper says that this costs nothing. The rate is 1e-3 for both and not tuned, as for the
other claims in this situation. This is the fifth design. The fourth, with 4,800 environment steps, asked for fewer
calls as well: rollouts were dead less often (0.05 and 0.46), success was no lower, and ten seeds could not tell about
calls (3.4 and 3.9 in a success). Here less is asked, in a shorter run at another desk: dead rollouts and success alone,
so it is not the whole of the card's claim.
"""

from collections.abc import Mapping
from pathlib import Path

from agents_costs import at_tokens, dead
from headline import Headline, Question

WORLD = "desk"
TOKENS = 9_000          # sampled by every run
PARENT, ARM = "grpo", "gigpo"
ALT = "Held-out success over environment steps of GRPO and GiGPO, turns to waste and 3,200 steps, eight runs each"


def numbers(folder: Path) -> Mapping[str, float]:
    """Held-out success at equal tokens, and the share of rollouts that carried no advantage."""
    return {"pass@1 at tokens": at_tokens(folder, TOKENS), "dead": dead(folder)}


HEADLINE = Headline(
    title="GiGPO and dead rollouts at a desk",
    methods={"gigpo": (0, 1, 2)},
    own=(),
    claim="GiGPO solves as much as GRPO, within 0.05, with fewer dead rollouts.",
    arms=(PARENT, ARM),
    options=("--env", "desk:store=4,seed=2", "--max-turns", "16", "--held-out", "0.3", "--samples", "2", "-n", "8",
             "-B", "2", "--evaluations", "2", "--seeds", "8", "--budget", "56000-env-steps", "--workers", "1"),
    questions=(
        Question("dead rollouts", (ARM, "dead"), (PARENT, "dead"), (float("-inf"), 0.0)),
        # 0.05 is the least difference that counts here: a twentieth of the problems
        Question("success at equal environment steps", (ARM, "pass@1"), (PARENT, "pass@1"), (-0.05, float("inf"))),
        Question("success at equal tokens", (ARM, "pass@1 at tokens"), (PARENT, "pass@1 at tokens"),
                 (-0.05, float("inf"))),
    ),
    numbers=numbers,
    rate=1e-3,
)
