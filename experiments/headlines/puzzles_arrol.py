"""ARRoL on puzzles: what is pruned balances the groups.

The problems are the shortest puzzles, with answers of 11 to 64 tokens, 22 in the mean. ARRoL pauses every attempt after
10 tokens (the paper's 512 are a like share of its answers) and continues half of them, so that half of those that go on
are right as far as their log-probs predict it. It begins 16 attempts where GRPO begins 8, so groups of both have 8 on
average when they are trained on. The cold start has 8 updates; the paper's 20 are half of these runs. Balance is read
from the journal, from the updates after the cold start: the share of groups whose attempts are all right or all wrong,
and how far from one half the share right of a group is, in the mean. No other setting was tried.
"""

from collections.abc import Mapping
from math import inf
from pathlib import Path

from headline import Headline, Question
from isocost.runs.files import read_lines

COLD = 8
ARROL = f"arrol@schedule.at=10,schedule.cold={COLD}"
AGAIN = "tails"          # the headline of the older world that asked this
ALT = "Held-out pass@1 over FLOP for GRPO and ARRoL on puzzles: thin lines are runs, thick ones their means"


def numbers(folder: Path) -> Mapping[str, float]:
    """Of the groups after the cold start: attempts trained on, share settled, distance from half right, and tokens.

    Tokens are those decoded for each attempt that was begun, of the same updates.
    """
    groups = [x["rewards"] for x in read_lines(folder / "journal.jsonl") if x["step"] >= COLD and len(x["rewards"]) > 1]
    right = [sum(r) / len(r) for r in groups]
    steps = [x for x in read_lines(folder / "metrics.jsonl") if "reward" in x]
    cold, last = steps[COLD - 1], steps[-1]
    return {
        "group": sum(map(len, groups)) / len(groups), "settled": sum(p in (0.0, 1.0) for p in right) / len(groups),
        "distance": sum(abs(p - 0.5) for p in right) / len(groups), "right": sum(right) / len(groups),
        "tokens": (last["decode"] - cold["decode"]) / (last["rollouts"] - cold["rollouts"]),
    }


HEADLINE = Headline(
    title="ARRoL's balance on puzzles",
    methods={"arrol": (0, 1, 2, 3)},
    own=("arrol",),
    claim="Pruning takes fewer tokens an attempt, leaves fewer groups that are all right or all wrong, and is as good.",
    arms=("grpo", ARROL),
    options=("--data", "puzzles:length=1,count=900", "--max-tokens", "64", "--held-out", "320",
             "--samples", "3", "--evaluations", "2", "--own-sizes", "--threads", "1", "--seeds", "5",
             "--budget", "6e12flop"),
    questions=(         # 0.02 is the difference that held-out sets are made to show
        Question("tokens for each attempt begun", (ARROL, "tokens"), ("grpo", "tokens"), (-inf, 0.0)),
        Question("share of groups all right or all wrong", (ARROL, "settled"), ("grpo", "settled"), (-inf, 0.0)),
        Question("distance of a group's share right from 1/2", (ARROL, "distance"), ("grpo", "distance"), (-inf, 0.0)),
        Question("held-out pass@1 at equal FLOP", (ARROL, "pass@1"), ("grpo", "pass@1"), (-0.02, inf)),
    ),
    numbers=numbers,
)
