"""R-MCTS at a desk with turns to waste: imitation of the right branches of a search tree.

One of four registers is copied to another, a register has to be read before it is written, and only the state at the
end pays. An attempt has up to 16 turns, where 4 are enough, and a run 1,600 environment steps: about 20 updates of 16
attempts. R-MCTS grows a tree of attempts at a problem, each from where the search is most promising, and imitates the
shorter half of the right ones; its parent imitates all right ones of independent attempts. The environment is set back
to a state of the tree at no cost, as in the paper, so that an attempt from there costs only its new turns. The question
is of what is learnt; the memory of errors, which the card is about, has nothing to remember here, since no problem is
searched twice in so short a run. The rate is 1e-3 for both and not tuned, as for the other claims in this situation.
With four seeds and a desk that are in no record R-MCTS solved 0.95, with 3.2 calls in a success, and filtered cloning
0.88, with 4.0 (3 are enough).
"""

from collections.abc import Mapping
from pathlib import Path

from agents_costs import at_tokens
from agents_ends import ends, turns
from headline import Headline, Question

WORLD = "desk"
TOKENS = 4_000          # sampled by every run
PARENT, ARM = "fbc", "rmcts"
ALT = "Held-out success over environment steps of filtered cloning and R-MCTS, with turns to waste, ten runs each"


def numbers(folder: Path) -> Mapping[str, float]:
    """Held-out success at equal tokens, and turns of the last policy in four attempts at each test problem."""
    return {"pass@1 at tokens": at_tokens(folder, TOKENS), **ends(folder, turns, samples=4)}


HEADLINE = Headline(
    title="R-MCTS at a desk with turns to waste",
    methods={"rmcts": (0, 1, 2)},
    own=(),
    claim="At equal environment steps, and at equal tokens, R-MCTS solves more than filtered cloning, in fewer calls.",
    arms=(PARENT, ARM),
    options=("--env", "desk:store=4,seed=1", "--max-turns", "16", "--held-out", "0.3", "--samples", "2", "-n", "8",
             "-B", "2", "--evaluations", "2", "--seeds", "10", "--budget", "34400-env-steps", "--workers", "1"),
    questions=(
        Question("calls in a success", (ARM, "calls"), (PARENT, "calls"), (float("-inf"), 0.0)),
        Question("success at equal environment steps", (ARM, "pass@1"), (PARENT, "pass@1")),
        Question("success at equal tokens", (ARM, "pass@1 at tokens"), (PARENT, "pass@1 at tokens")),
    ),
    numbers=numbers,
    rate=1e-3,
)
