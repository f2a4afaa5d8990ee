"""ScalingInter-RL on rooms: a horizon that grows in stages against short and long fixed ones.

A house of 16 rooms that the base was not taught (seed 7), where it solves nearly half in 12 turns and few of the far
goals. All arms are evaluated with 16 turns. The growing arm has 5, 10 and 16 turns for 15 updates each, the short one 5
and the long one 16 throughout; with 5 turns an update costs a third of the environment steps, so that at equal steps
the arms differ in updates. No run in this house was looked at before this design.
"""

from collections.abc import Mapping
from pathlib import Path

from agents_costs import at_tokens
from headline import Headline, Question

WORLD = "rooms"
TOKENS = 40_000
HERE = "experiments/headlines/methods/"
GROWS, SHORT, LONG = (f"{HERE}turns_{name}.py" for name in ("grow", "short", "long"))
ALT = "Held-out success over environment steps of growing, short and long horizons on rooms, five runs each"


def numbers(folder: Path) -> Mapping[str, float]:
    """Held-out success at equal tokens."""
    return {"pass@1 at tokens": at_tokens(folder, TOKENS)}


HEADLINE = Headline(
    title="ScalingInter-RL on rooms",
    methods={"scalinginter": (0, 1, 2, 3)},
    own=("scalinginter",),
    claim="A horizon that grows solves more than a short and a long one, at equal environment steps and equal tokens.",
    arms=(GROWS, SHORT, LONG),
    options=("--env", "rooms:seed=7", "--max-turns", "16", "--samples", "4", "-n", "8", "-B", "8", "--lr", "3e-4",
             "--evaluations", "3", "--seeds", "5", "--budget", "450k-env-steps", "--workers", "1"),
    questions=(
        Question("over short at equal environment steps", ("turns_grow", "pass@1"), ("turns_short", "pass@1")),
        Question("over long at equal environment steps", ("turns_grow", "pass@1"), ("turns_long", "pass@1")),
        Question("over short at equal tokens", ("turns_grow", "pass@1 at tokens"), ("turns_short", "pass@1 at tokens")),
        Question("over long at equal tokens", ("turns_grow", "pass@1 at tokens"), ("turns_long", "pass@1 at tokens")),
    ),
    numbers=numbers,
)
