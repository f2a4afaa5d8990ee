"""VL-DAC at a desk with turns to waste: a critic of turns against a critic of tokens.

One of four registers is copied to another, a register has to be read before it is written, and only the state at the
end pays. An attempt has up to 16 turns, where 4 are enough, and a run 1,600 environment steps: about 20 updates of 16
attempts. PPO's critic has a value for each token, VL-DAC's one for each turn, with which all tokens of a turn are
credited alike. The card says that it is steadier; the paper's curves show this as success that is reached by every run,
so the question is of success, over 16 seeds. The rate is 1e-3 for both and not tuned, as for the other claims in this
situation. With four seeds and a desk that are in no record VL-DAC solved 0.94 (spread of runs 0.015) and PPO 0.88
(0.084).
"""

from collections.abc import Mapping
from pathlib import Path

from agents_costs import at_tokens
from headline import Headline, Question

WORLD = "desk"
TOKENS = 4_000          # sampled by every run
PARENT, ARM = "ppo", "vldac"
ALT = "Held-out success over environment steps of PPO and VL-DAC, with turns to waste, 16 runs each"


def numbers(folder: Path) -> Mapping[str, float]:
    """Held-out success at equal tokens."""
    return {"pass@1 at tokens": at_tokens(folder, TOKENS)}


HEADLINE = Headline(
    title="VL-DAC at a desk with turns to waste",
    methods={"vldac": (0, 1)},
    own=("vldac",),
    claim="At equal environment steps, and at equal tokens, VL-DAC solves more than PPO.",
    arms=(PARENT, ARM),
    options=("--env", "desk:store=4,seed=1", "--max-turns", "16", "--held-out", "0.3", "--samples", "2", "-n", "8",
             "-B", "2", "--evaluations", "2", "--seeds", "16", "--budget", "53600-env-steps", "--workers", "1"),
    questions=(
        Question("success at equal environment steps", (ARM, "pass@1"), (PARENT, "pass@1")),
        Question("success at equal tokens", (ARM, "pass@1 at tokens"), (PARENT, "pass@1 at tokens")),
    ),
    numbers=numbers,
    rate=1e-3,
)
