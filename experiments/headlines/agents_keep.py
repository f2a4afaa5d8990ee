"""MiroThinker on pages: GRPO that reads its last five results alone, against GRPO that reads all.

A search through the pages of a house of 16 rooms, 12 turns at most, two pages with what is asked. A result has about 13
tokens, a turn of the policy two, and all turns stay in the context, so where the policy has been is known. The claim is
equal success at equal environment steps in fewer tokens. Tokens have two meanings, and both are asked: all that is read
at every turn, which is what a server without a cache computes and what a context must hold, and what is read for the
first time, which is what an engine computes that keeps a dialogue's keys: a view that drops what was read makes all
after it new. Both arms have one learning rate. No run on pages was looked at before this design.
"""

from collections.abc import Mapping
from pathlib import Path

from agents_costs import at_tokens, read_per_rollout
from headline import Headline, Question

WORLD = "pages"
TOKENS = 50_000         # sampled by every run
ALT = "Held-out success over environment steps of GRPO with all results and with the last five, on pages"


def numbers(folder: Path) -> Mapping[str, float]:
    """Held-out success at equal sampled tokens, and the tokens that a rollout reads."""
    return {"pass@1 at tokens": at_tokens(folder, TOKENS), **read_per_rollout(folder)}


HEADLINE = Headline(
    title="MiroThinker's last results on pages",
    methods={"mirothinker": (0, 1, 2, 3)},
    own=("mirothinker",),
    claim="With the last five results alone success is as high, in fewer tokens.",
    arms=("grpo", "mirothinker"),
    options=("--env", "pages:copies=2", "--max-turns", "12", "--samples", "2", "-n", "8", "-B", "16", "--lr", "5e-4",
             "--evaluations", "3", "--seeds", "5", "--budget", "40k-env-steps", "--workers", "1"),
    questions=(
        # 0.05 is the least difference that counts here: a twentieth of the problems
        Question("success at equal environment steps", ("mirothinker", "pass@1"), ("grpo", "pass@1"),
                 (-0.05, float("inf"))),
        Question("success at equal tokens", ("mirothinker", "pass@1 at tokens"), ("grpo", "pass@1 at tokens"),
                 (-0.05, float("inf"))),
        Question("tokens read by a rollout, at all turns", ("mirothinker", "read"), ("grpo", "read"),
                 (float("-inf"), 0.0)),
        Question("tokens read for the first time", ("mirothinker", "fresh"), ("grpo", "fresh"), (float("-inf"), 0.0)),
    ),
    numbers=numbers,
)
