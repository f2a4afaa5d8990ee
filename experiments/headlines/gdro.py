"""GDRO: rollouts, or weight, by difficulty bins raise pass@k on the half that the base finds hard.

Half of the sums are right at most once in 16 attempts of the base, the other half three to six times in ten. Both forms
sort problems into ten bins by how often they have been solved. This needs problems that are sampled repeatedly:
training uses a fifth of them, each about three times. Prompt-GDRO weights a group by how far from solved its bin is.
Rollout-GDRO allocates rollouts to bins to minimise the variance of the groups' means, as in the paper's theory, which
gives most to the most uncertain outcomes: at one half right, not where all are wrong. The paper claims a higher mean
pass@8 over its benchmarks, with 4 rollouts a problem on average. The question here is pass@8 on the hard half, with 16
rollouts, each method against its own parent. The methods ran with their own settings only.
"""

from collections.abc import Mapping
from typing import Any

from headline import Headline, Question, load

halves = load("dars")       # which has the same problems and reads them in the same way

ALT = "pass@k over k on the hard half of held-out problems, for GRPO and Rollout-GDRO, Dr. GRPO and Prompt-GDRO"
HEADLINE = Headline(
    title="GDRO on a half that is hard",
    methods={"rolloutgdro": (0, 2), "promptgdro": (1, 3)},
    own=(),
    claim="Rollouts or weight by difficulty bins raise pass@k on the hard half.",
    arms=("grpo", "rolloutgdro", "drgrpo", "promptgdro"),
    options=("--data", "50% sums:base=hard + 50% sums:base=easy", "--held-out", "0.8", "-n", "16", "-B", "8",
             "--seeds", "5", "--budget", "2.6e12flop"),
    questions=(         # 0.02 is the difference that held-out sets are made to show
        Question("GRPO leaves the halves apart", ("grpo", "pass@1 easy"), ("grpo", "pass@1 hard"),
                 (0.1, float("inf"))),
        Question("Dr. GRPO leaves the halves apart", ("drgrpo", "pass@1 easy"), ("drgrpo", "pass@1 hard"),
                 (0.1, float("inf"))),
        Question("hard half, pass@8: Rollout-GDRO", ("rolloutgdro", "pass@8 hard"), ("grpo", "pass@8 hard"),
                 (0.02, float("inf"))),
        Question("hard half, pass@8: Prompt-GDRO", ("promptgdro", "pass@8 hard"), ("drgrpo", "pass@8 hard"),
                 (0.02, float("inf"))),
    ),
    numbers=halves.numbers,
)


def picture(record: Mapping[str, Any]) -> dict[str, Any]:
    """The hard half alone: of four arms, two would lie on one another."""
    return dict(halves.curves(record, {" hard": "hard half"}, ALT))
