"""GiGPO in long dialogues with a sparse reward: credit by states should find what the outcome of a dialogue cannot.

A house of 26 rooms with a locked door, which the base has not learnt (it was taught one of 16 rooms): it finds the goal
in about one of five dialogues of 12 turns, and there is no other reward. Dialogues have up to 20 turns, visit rooms
again and again, and most groups of eight are all wrong. With one seed that is in no record, GRPO at 3e-4 stayed where
it was over 40,000 environment steps (0.40 to 0.38 held out) and fell at 1e-3. Of GiGPO no run in this house was looked
at before this design. A move is a letter and the end of a turn, two tokens, so that equal environment steps are nearly
equal tokens; both are asked. The dead share is that of rollouts without any advantage in their update.
"""

from collections.abc import Mapping
from pathlib import Path

from agents_costs import at_tokens, dead
from headline import Headline, Question

WORLD = "rooms"
TOKENS = 40_000         # sampled by every run
ALT = "Held-out success over environment steps of GRPO and GiGPO in a house of 26 rooms, five runs each"


def numbers(folder: Path) -> Mapping[str, float]:
    """Held-out success at equal tokens, and the share of rollouts that carried no advantage."""
    return {"pass@1 at tokens": at_tokens(folder, TOKENS), "dead": dead(folder)}


HEADLINE = Headline(
    title="GiGPO on long dialogues with a sparse reward",
    methods={"gigpo": (0, 1, 2)},
    own=("gigpo",),
    claim="At equal environment steps, and at equal tokens, GiGPO solves more than GRPO, with fewer dead rollouts.",
    arms=("grpo", "gigpo"),
    options=("--env", "rooms:size=26", "--max-turns", "20", "--samples", "2", "-n", "8", "-B", "8", "--lr", "3e-4",
             "--evaluations", "3", "--seeds", "5", "--budget", "300k-env-steps", "--workers", "1"),
    questions=(
        Question("success at equal environment steps", ("gigpo", "pass@1"), ("grpo", "pass@1")),
        Question("success at equal tokens", ("gigpo", "pass@1 at tokens"), ("grpo", "pass@1 at tokens")),
        Question("dead rollouts", ("gigpo", "dead"), ("grpo", "dead"), (float("-inf"), 0.0)),
    ),
    numbers=numbers,
)
