"""BoN-aware RL: better at best-of-N than plain RL, worse at one sample.

Half of the sums are right at most once in 16 attempts of the base, the other half three to six times in ten. REINFORCE
optimises the chance that one attempt is right. Its gradient is largest where that chance is near one half, and small
for problems that are seldom right. BoN-aware RL optimises the chance that one of 4 is right: a right answer counts more
if more of its siblings are wrong, and hardly at all if most are right. Its form for best-of-N's own samples (BoN-RLB)
trains on the best of every 4; this leaves less to train on, so equal cost allows more rollouts. The paper trains with N
of 16 and 32 on sets of its own difficulty; here N is 4, with groups of 8. The two objectives differ for problems that
are right about half the time. If hard problems can be learned within the budget, as here, both objectives favour them,
and the one that weights them more learns them first; one sample over all problems then gains as well. BoN-aware RL is
worse at one sample on the easy half alone. The measurement is the chance that one of k attempts at a held-out problem
is right, from the policy's exact pass rates. The methods ran with their own settings only.
"""

from collections.abc import Mapping
from typing import Any

from headline import Headline, Question, load

halves = load("dars")       # which has the same problems and reads them in the same way

ALT = "pass@k over k on the hard and the easy half of held-out problems, for REINFORCE, BoN-aware RL and BoN-RLB"
HEADLINE = Headline(
    title="BoN-aware RL at one sample and at four",
    methods={"bon": (0, 1, 2), "bonrlb": (0, 3, 4)},
    own=("bon",),
    claim="Trained for the best of N, a policy wins at N and gives way at one sample.",
    arms=("reinforce", "bon", "bonrlb"),
    options=("--data", "50% sums:base=hard + 50% sums:base=easy", "--held-out", "0.5", "-n", "8", "-B", "16",
             "--seeds", "5", "--budget", "2e12flop"),
    questions=(         # 0.02 is the difference that held-out sets are made to show
        Question("plain RL loses pass@64", ("reinforce", "pass@64"), ("reinforce", "pass@64 before"),
                 (float("-inf"), 0.0)),
        Question("best of 4: BoN-aware", ("bon", "best@4"), ("reinforce", "best@4"), (0.02, float("inf"))),
        Question("one sample: BoN-aware", ("bon", "pass@1"), ("reinforce", "pass@1"), (float("-inf"), 0.0)),
        Question("best of 4: BoN-RLB", ("bonrlb", "best@4"), ("reinforce", "best@4"), (0.02, float("inf"))),
        Question("one sample: BoN-RLB", ("bonrlb", "pass@1"), ("reinforce", "pass@1"), (float("-inf"), 0.0)),
    ),
    numbers=halves.numbers,
)


def picture(record: Mapping[str, Any]) -> dict[str, Any]:
    """Both halves: where it wins, and where it gives way."""
    return dict(halves.curves(record, halves.HALVES, ALT))
