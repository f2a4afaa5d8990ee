"""UI-S1 at a desk with demonstrations: attempts that follow one, and are put right where they leave it.

One of four registers is copied to another, a register has to be read before it is written, and only the state at the
end pays. An attempt has up to 16 turns, where 4 are enough, and a run 1,600 environment steps. UI-S1 walks along
demonstrations, which the desk's problems list, and patches up to two turns that differ; its turns are paid for in
environment steps like any other. The paper compares it with learning from single steps of demonstrations, here an
attempt of which every turn may be patched and is credited alone: with three seeds and a desk that are in no record that
did as well (0.93 both), and the difference is not asked. What is asked is whether demonstrations that are followed
teach more than attempts without any: there GRPO solved 0.84. The rate is 1e-3 for both and not tuned, as for the other
claims in this situation. This is the second design: in the first the desk listed no demonstrations.
"""

from collections.abc import Mapping
from pathlib import Path

from agents_costs import at_tokens
from headline import Headline, Question

WORLD = "desk"
TOKENS = 3_500          # sampled by every run
PARENT, ARM = "grpo", "uis1"
ALT = "Held-out success over environment steps at a desk with demonstrations: GRPO and UI-S1, eight runs each"


def numbers(folder: Path) -> Mapping[str, float]:
    """Held-out success at equal tokens."""
    return {"pass@1 at tokens": at_tokens(folder, TOKENS)}


HEADLINE = Headline(
    title="UI-S1 at a desk with demonstrations",
    methods={"uis1": (0, 1)},
    own=(),
    claim="At equal environment steps, and at equal tokens, UI-S1 solves more than GRPO.",
    arms=(PARENT, ARM),
    options=("--env", "desk:store=4,seed=1", "--max-turns", "16", "--held-out", "0.3", "--samples", "2", "-n", "8",
             "-B", "2", "--evaluations", "2", "--seeds", "8", "--budget", "28000-env-steps", "--workers", "1"),
    questions=(
        Question("success at equal environment steps", (ARM, "pass@1"), (PARENT, "pass@1")),
        Question("success at equal tokens", (ARM, "pass@1 at tokens"), (PARENT, "pass@1 at tokens")),
    ),
    numbers=numbers,
    rate=1e-3,
)
