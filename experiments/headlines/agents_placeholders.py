"""WebAgent-R1 on pages: earlier pages are a placeholder, against GRPO that reads them all.

The situation of MiroThinker's headline: a search through 16 rooms, 12 turns at most, two pages with what is asked. The
last result is kept and each earlier one is a single character, a space, which the base has met. Tokens have two
meanings, and both are asked: all that is read at every turn, and what is read for the first time. Both arms have one
learning rate; WebAgent-R1 also averages over turns and has a KL term, as its paper has. No run on pages was looked at
before this design.
"""

from collections.abc import Mapping
from pathlib import Path

from agents_costs import at_tokens, read_per_rollout
from headline import Headline, Question

WORLD = "pages"
TOKENS = 50_000         # sampled by every run
SHORT = "experiments/headlines/methods/webagentr1_pages.py"
ALT = "Held-out success over environment steps of GRPO with all pages and with placeholders for earlier ones"


def numbers(folder: Path) -> Mapping[str, float]:
    """Held-out success at equal sampled tokens, and the tokens that a rollout reads."""
    return {"pass@1 at tokens": at_tokens(folder, TOKENS), **read_per_rollout(folder)}


HEADLINE = Headline(
    title="WebAgent-R1's placeholders on pages",
    methods={"webagentr1": (0, 1, 2, 3)},
    own=("webagentr1",),
    claim="With placeholders for earlier pages success is as high, in fewer tokens.",
    arms=("grpo", SHORT),
    options=("--env", "pages:copies=2", "--max-turns", "12", "--samples", "2", "-n", "8", "-B", "16", "--lr", "5e-4",
             "--evaluations", "3", "--seeds", "5", "--budget", "40k-env-steps", "--workers", "1"),
    questions=(
        # 0.05 is the least difference that counts here: a twentieth of the problems
        Question("success at equal environment steps", ("webagentr1_pages", "pass@1"), ("grpo", "pass@1"),
                 (-0.05, float("inf"))),
        Question("success at equal tokens", ("webagentr1_pages", "pass@1 at tokens"), ("grpo", "pass@1 at tokens"),
                 (-0.05, float("inf"))),
        Question("tokens read by a rollout, at all turns", ("webagentr1_pages", "read"), ("grpo", "read"),
                 (float("-inf"), 0.0)),
        Question("tokens read for the first time", ("webagentr1_pages", "fresh"), ("grpo", "fresh"),
                 (float("-inf"), 0.0)),
    ),
    numbers=numbers,
)
