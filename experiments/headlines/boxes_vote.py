"""GUI-RC on boxes: the region that several answers agree on is right more often than one answer.

A box is described and the policy names its four sides. GUI-RC trains nothing: it samples several answers, here 8,
counts for every cell how many boxes cover it, and answers with the region that most agree on. The paper reports two to
three points more than one answer, for models of several kinds. The question is asked of the base, and of policies that
Dr. GRPO trained for 1,000 answers: hits of the voted answer less hits of one answer, four of either at each test
problem. A voted answer costs 8 samples, as in the paper. GUI-RCPO, which trains on such votes, was asked before and did
not hold; no vote was looked at.
"""

from collections.abc import Mapping
from pathlib import Path

from agents_ends import ends, regions, voted
from headline import Headline, Question

WORLD = "boxes"
ALT = "Held-out success over environment steps at boxes: Dr. GRPO and GRPO, eight runs each"


def numbers(folder: Path) -> Mapping[str, float]:
    """Hits of one answer and of a vote: of a run's last policy, and of the base with the same random numbers."""
    return {f"{name}{who}": ends(folder, regions, samples=4, base=bool(who), **how)["hit"]
            for who in ("", ", base") for name, how in (("one", {}), ("vote", {"play": voted}))}


HEADLINE = Headline(
    title="GUI-RC on boxes",
    methods={"guirc": (0, 1)},
    own=(),
    claim="A vote of eight regions hits more often than one answer, before training and after.",
    arms=("drgrpo", "grpo"),
    options=("--env", "boxes", "--held-out", "0.3", "--samples", "4", "-n", "8", "-B", "4", "--evaluations", "2",
             "--seeds", "8", "--budget", "17500-env-steps", "--workers", "1"),
    questions=(
        Question("the base: a vote against one answer", ("drgrpo", "vote, base"), ("drgrpo", "one, base")),
        Question("trained: a vote against one answer", ("drgrpo", "vote"), ("drgrpo", "one")),
    ),
    numbers=numbers,
    rate=5e-4,
)
