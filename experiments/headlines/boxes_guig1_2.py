"""GUI-G1 on boxes: rewards for hit, overlap and size together keep boxes honest.

A box is described and the policy names its four sides; an answer is right if the middle of its box is in the target,
and the base is right in one of four. Dr. GRPO is paid for that alone, which says nothing about the size of a box.
GUI-G1 also pays for overlap and for sides that agree, and weighs small targets more. The paper's claim is that boxes
stay honest in size while hits are as frequent, so the questions are of overlap with the target and of hits. This is the
second design: the first asked of hits alone. Overlap is that of the last policy in four answers at each test problem,
0 for an answer that is no box. Every run has 1,500 answers; the rate is 5e-4 for both, which the first design's probes
chose for both. No run of this size was looked at.
"""

from collections.abc import Mapping
from pathlib import Path

from agents_costs import at_tokens
from agents_ends import ends, regions
from headline import Headline, Question

WORLD = "boxes"
TOKENS = 6_000          # sampled by every run
ALT = "Held-out success over environment steps at boxes: Dr. GRPO and GUI-G1, six runs each"


def numbers(folder: Path) -> Mapping[str, float]:
    """Held-out success at equal tokens, and the last policy's boxes in four answers at each test problem."""
    return {"pass@1 at tokens": at_tokens(folder, TOKENS), **ends(folder, regions, samples=4)}


HEADLINE = Headline(
    title="GUI-G1 on boxes, asked again",
    methods={"guig1": (0, 1, 2)},
    own=("guig1",),
    claim="GUI-G1 hits as often as Dr. GRPO, within 0.05, with boxes that overlap their targets more.",
    arms=("drgrpo", "guig1"),
    options=("--env", "boxes", "--held-out", "0.3", "--samples", "2", "-n", "8", "-B", "4", "--evaluations", "2",
             "--seeds", "6", "--budget", "20250-env-steps", "--workers", "1"),
    questions=(
        # 0.05 is the least difference that counts here: a twentieth of the problems
        Question("overlap with the target", ("guig1", "overlap"), ("drgrpo", "overlap")),
        Question("success at equal environment steps", ("guig1", "pass@1"), ("drgrpo", "pass@1"),
                 (-0.05, float("inf"))),
        Question("success at equal tokens", ("guig1", "pass@1 at tokens"), ("drgrpo", "pass@1 at tokens"),
                 (-0.05, float("inf"))),
    ),
    numbers=numbers,
    rate=5e-4,
)
