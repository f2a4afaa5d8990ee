"""MiroThinker at a desk with turns to waste: only the last results stay in the context.

One of four registers is copied to another, a register has to be read before it is written, and only the state at the
end pays. An attempt has up to 16 turns, where 4 are enough, and a run 1,600 environment steps: about 20 updates of 16
attempts. MiroThinker keeps every turn of the policy but only the last results, here 2 of up to 15 (the paper: 5 of
600), and takes 0.1 from an attempt with a malformed turn. The report says that success is as high, in fewer tokens;
here those are the tokens read for each environment step, over the whole run. The base has met such contexts in another
world, pages, not at this desk. The rate is 1e-3 for both and not tuned, as for the other claims in this situation. No
run of MiroThinker was looked at.
"""

from collections.abc import Mapping
from pathlib import Path

from agents_costs import at_tokens, read_tokens
from headline import Headline, Question

WORLD = "desk"
TOKENS = 5_000          # sampled by every run
PARENT, ARM = "grpo", "mirothinker@play.view.keep=2"
ALT = "Held-out success over environment steps of GRPO and MiroThinker, with turns to waste, eight runs each"


def numbers(folder: Path) -> Mapping[str, float]:
    """Held-out success at equal tokens, and tokens read for each environment step."""
    return {"pass@1 at tokens": at_tokens(folder, TOKENS), "read": read_tokens(folder)}


HEADLINE = Headline(
    title="MiroThinker at a desk with turns to waste",
    methods={"mirothinker": (0, 1, 2)},
    own=("mirothinker",),
    claim="MiroThinker solves as much as GRPO, within 0.05, and reads fewer tokens a turn.",
    arms=(PARENT, ARM),
    options=("--env", "desk:store=4", "--max-turns", "16", "--held-out", "0.3", "--samples", "2", "-n", "8", "-B", "2",
             "--evaluations", "2", "--seeds", "8", "--budget", "28k-env-steps", "--workers", "1"),
    questions=(
        # 0.05 is the least difference that counts here: a twentieth of the problems
        Question("tokens read for each environment step", (ARM, "read"), (PARENT, "read"), (float("-inf"), 0.0)),
        Question("success at equal environment steps", (ARM, "pass@1"), (PARENT, "pass@1"), (-0.05, float("inf"))),
        Question("success at equal tokens", (ARM, "pass@1 at tokens"), (PARENT, "pass@1 at tokens"),
                 (-0.05, float("inf"))),
    ),
    numbers=numbers,
    rate=1e-3,
)
