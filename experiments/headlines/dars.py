"""DARS: depth for hard problems raises pass@k on the half that the base finds hard.

Half of the sums are right at most once in 16 attempts of the base, the other half three to six times in ten. A group of
16 equal rollouts spends as much on either half, and the sum of its advantages is small where few are right. Progress
then goes to problems that were nearly solved, and pass@64 on the hard half falls below the base's. DARS first gives
every problem 8 rollouts, as in the paper, and distributes the other 8 per problem to problems with few right answers,
for equal treatment (at most 32) or weighted by hardness (at most 64). Groups that are all wrong or all right are not
trained on. Its parent here is Dr. GRPO. The measurement is the chance that one of k attempts at a held-out problem is
right, from the policy's exact pass rates, so k may be larger than any sample. The paper's k is 128, for policies of
billions of parameters. The methods ran with their own settings only. At equal FLOP DARS made a fifth more updates than
its parent, because groups that are all wrong or all right cost no training. On the easy half its pass@1 is lower.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headline import Headline, Question

KS = (1, 2, 4, 8, 16, 32, 64)
HALVES = {" hard": "hard half", " easy": "easy half"}
BEFORE = "before training"


def numbers(folder: Path) -> dict[str, float]:
    """pass@k of a run's last policy on the problems that are reported and on either half, and the base's ("before").

    The halves are by the base's exact rate: at most 1 in 16, or more.
    """

    import numpy as np

    from isocost.runs.files import read_json
    from isocost.tasks.builtin.sums import HARD, base_rates, operands
    from isocost.types import Sampling
    from isocost.worlds.setting import Setting, open_setting

    setting = Setting.of(read_json(folder / "run.json")["job"]["setting"])
    opened = open_setting(setting.but(model=str(folder / "final")))
    sampling = Sampling(setting.sampling.temperature, setting.sampling.top_p, setting.sampling.top_k)
    now = np.array(opened.world.exact(opened.sides.audit, sampling))
    before = np.array([base_rates()[operands(p)] for p in opened.sides.audit])
    opened.grader.close()
    hard = before <= HARD[1]
    parts = {"": np.ones_like(hard), " hard": hard, " easy": ~hard}
    return {f"pass@{k}{part}{when}": float(np.mean(1 - (1 - rates[which]) ** k)) for part, which in parts.items()
            for when, rates in (("", now), (" before", before)) for k in (1, 2, 4, 8, 16, 32, 64)}


def curves(record: Mapping[str, Any], halves: Mapping[str, str], alt_text: str) -> dict[str, Any]:
    """pass@k over k of every arm, and before training, on these parts of the problems."""
    from isocost.report import arm_charts

    rows = [{"arm": arm, "half": said, "run": f"{arm}-{seed}", "k": k, "rate": n[f"pass@{k}{half}"]}
            for half, said in halves.items() for arm, own in record["runs"].items() for seed, n in own.items()
            for k in KS]
    some = next(iter(next(iter(record["runs"].values())).values()))     # every run began from the same policy
    rows += [{"arm": BEFORE, "half": said, "run": BEFORE, "k": k, "rate": some[f"pass@{k}{half} before"]}
             for half, said in halves.items() for k in KS]
    return arm_charts.pass_at_k(rows, alt_text, BEFORE)


def picture(record: Mapping[str, Any]) -> dict[str, Any]:
    """Both halves: what is won on one, and what it costs on the other."""
    return curves(record, HALVES, ALT)


ALT = "pass@k over k on the hard and the easy half of held-out problems, for Dr. GRPO, DARS and DARS by hardness"
HEADLINE = Headline(
    title="DARS on a half that is hard",
    methods={"dars": (0, 1, 2), "darshw": (0, 3, 4)},
    own=("dars",),
    claim="Rollouts that go where few were right raise pass@k on the hard half.",
    arms=("drgrpo", "dars", "darshw"),
    options=("--data", "50% sums:base=hard + 50% sums:base=easy", "--held-out", "0.5", "-n", "16", "-B", "8",
             "--seeds", "5", "--budget", "2e12flop"),
    questions=(         # 0.02 is the difference that held-out sets are made to show
        Question("hard half: equal rollouts lose pass@64", ("drgrpo", "pass@64 hard"),
                 ("drgrpo", "pass@64 hard before"), (float("-inf"), 0.0)),
        Question("hard half, pass@4: DARS", ("dars", "pass@4 hard"), ("drgrpo", "pass@4 hard"), (0.02, float("inf"))),
        Question("hard half, pass@64: DARS", ("dars", "pass@64 hard"), ("drgrpo", "pass@64 hard"),
                 (0.02, float("inf"))),
        Question("hard half, pass@4: by hardness", ("darshw", "pass@4 hard"), ("drgrpo", "pass@4 hard"),
                 (0.02, float("inf"))),
        Question("hard half, pass@64: by hardness", ("darshw", "pass@64 hard"), ("drgrpo", "pass@64 hard"),
                 (0.02, float("inf"))),
    ),
    numbers=numbers,
)
