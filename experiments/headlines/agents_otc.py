"""OTC on rooms: as many goals with fewer moves.

In the default house a dialogue that finds its goal takes about two moves more than the shortest route, because the base
was taught by a walker that takes a random door most of the time. A move is a call. OTC pays a success most where its
number of calls is the fewest that were ever enough for this start and goal; GRPO pays all alike. Up to 12 turns; n = 8,
B = 8, equal environment steps. The moves are those of the successes of the last training steps, since an evaluation
keeps no turns: of the last tenth of a run's groups. The claim of half as many calls is the paper's, about dialogues
that need none or one; here the shortest route is a limit, so the question is of the moves beyond it. No run of OTC was
looked at before this design.
"""

from collections.abc import Mapping
from pathlib import Path

from agents_costs import at_tokens, detour
from headline import Headline, Question

WORLD = "rooms"
TOKENS = 40_000
ALT = "Held-out success over environment steps of GRPO and OTC on rooms, five runs each"


def numbers(folder: Path) -> Mapping[str, float]:
    """Held-out success at equal tokens, and moves beyond the shortest route in successes at the end of training."""
    return {"pass@1 at tokens": at_tokens(folder, TOKENS), "detour": detour(folder)}


HEADLINE = Headline(
    title="OTC on rooms",
    methods={"otc": (0, 1, 2)},
    own=("otc",),
    claim="OTC finds as many goals as GRPO, within 0.05, with fewer moves.",
    arms=("grpo", "otc"),
    options=("--env", "rooms", "--max-turns", "12", "--samples", "4", "-n", "8", "-B", "8", "--lr", "3e-4",
             "--evaluations", "3", "--seeds", "5", "--budget", "300k-env-steps", "--workers", "1"),
    questions=(
        Question("moves beyond the shortest route", ("otc", "detour"), ("grpo", "detour"), (float("-inf"), 0.0)),
        Question("success at equal environment steps", ("otc", "pass@1"), ("grpo", "pass@1"), (-0.05, float("inf"))),
        Question("success at equal tokens", ("otc", "pass@1 at tokens"), ("grpo", "pass@1 at tokens"),
                 (-0.05, float("inf"))),
    ),
    numbers=numbers,
)
