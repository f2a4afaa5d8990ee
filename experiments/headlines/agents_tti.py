"""TTI on pages: a number of turns that grows against a small and a large one throughout.

In a house of 16 rooms two pages, other ones for each problem, hold what is asked; how likely a walk has found it is
concave in the pages read. What is read of the others is of no use. The growing arm has 4, 8 and 12 turns for 12 updates
each, as TTI multiplies them, the short one 4 and the long one 12 throughout. All imitate their own right attempts, half
of an update remembered ones, at one learning rate, and all are evaluated with 12 turns. With 4 turns an update costs
about a third of the environment steps, so that at equal steps the arms differ in updates; equal tokens are asked as
well. No run on pages was looked at before this design.
"""

from collections.abc import Mapping
from pathlib import Path

from agents_costs import at_tokens
from headline import Headline, Question

WORLD = "pages"
TOKENS = 50_000         # sampled by every run
GROWS = "tti@pace.first=4,pace.each=12"
SHORT, LONG = (f"tti@pace.rule=plus,pace.first={turns},pace.by=0" for turns in (4, 12))
ALT = "Held-out success over environment steps of growing, short and long horizons on pages, five runs each"


def numbers(folder: Path) -> Mapping[str, float]:
    """Held-out success at equal tokens."""
    return {"pass@1 at tokens": at_tokens(folder, TOKENS)}


HEADLINE = Headline(
    title="TTI on pages",
    methods={"tti": (0, 1, 2, 3)},
    own=("tti",),
    claim="A growing horizon finds more than a short and a long one, at equal environment steps and at equal tokens.",
    arms=(GROWS, SHORT, LONG),
    options=("--env", "pages:copies=2", "--max-turns", "12", "--samples", "2", "-n", "8", "-B", "16", "--lr", "5e-4",
             "--evaluations", "3", "--seeds", "5", "--budget", "40k-env-steps", "--workers", "1"),
    questions=(
        Question("over short at equal environment steps", (GROWS, "pass@1"), (SHORT, "pass@1")),
        Question("over long at equal environment steps", (GROWS, "pass@1"), (LONG, "pass@1")),
        Question("over short at equal tokens", (GROWS, "pass@1 at tokens"), (SHORT, "pass@1 at tokens")),
        Question("over long at equal tokens", (GROWS, "pass@1 at tokens"), (LONG, "pass@1 at tokens")),
    ),
    numbers=numbers,
)
