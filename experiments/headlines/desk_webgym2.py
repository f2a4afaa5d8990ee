"""WebGym at a desk with turns to waste: imitation of the turns that had an effect.

One of four registers is copied to another, a register has to be read before it is written, and only the state at the
end pays. An attempt has up to 16 turns, where 4 are enough, and a run 1,600 environment steps: about 20 updates of 16
attempts. WebGym imitates successes, and of these only turns that changed something; its parent, filtered behaviour
cloning, imitates them whole, with what they waste. The question is of calls in a success (3 are enough), in the last
quarter of a run's groups, and that success is no lower. The rate is 1e-3 for both and not tuned, as for the other
claims in this situation. This is the second design: in the first, with 8 turns, only success was asked, which was near
1 for both. In attempts of 8 turns with one seed that is in no record successes had 3.3 calls with WebGym and 4.3 with
its parent; with turns to waste no run of WebGym was looked at.
"""

from collections.abc import Mapping
from pathlib import Path

from agents_costs import at_tokens, calls
from headline import Headline, Question

WORLD = "desk"
TOKENS = 5_000          # sampled by every run
PARENT, ARM = "fbc", "webgym"
ALT = "Held-out success over environment steps of filtered cloning and WebGym, with turns to waste, six runs each"


def numbers(folder: Path) -> Mapping[str, float]:
    """Held-out success at equal tokens, and calls in the successes of the last quarter of the groups."""
    return {"pass@1 at tokens": at_tokens(folder, TOKENS), **calls(folder, 0.25)}


HEADLINE = Headline(
    title="WebGym at a desk with turns to waste",
    methods={"webgym": (0, 1, 2)},
    own=(),
    claim="WebGym solves as much as filtered behaviour cloning, within 0.05, with fewer calls.",
    arms=(PARENT, ARM),
    options=("--env", "desk:store=4", "--max-turns", "16", "--held-out", "0.3", "--samples", "2", "-n", "8", "-B", "2",
             "--evaluations", "2", "--seeds", "6", "--budget", "21600-env-steps", "--workers", "1"),
    questions=(
        # 0.05 is the least difference that counts here: a twentieth of the problems
        Question("calls in a success", (ARM, "calls"), (PARENT, "calls"), (float("-inf"), 0.0)),
        Question("success at equal environment steps", (ARM, "pass@1"), (PARENT, "pass@1"), (-0.05, float("inf"))),
        Question("success at equal tokens", (ARM, "pass@1 at tokens"), (PARENT, "pass@1 at tokens"),
                 (-0.05, float("inf"))),
    ),
    numbers=numbers,
    rate=1e-3,
)
