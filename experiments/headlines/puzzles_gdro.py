"""GDRO on puzzles: rollouts, or weight, by difficulty bins raise pass@k.

Half of the puzzles are right at most once in 16 attempts of the base, the other half three to six times in ten. Groups
have 4 rollouts on average, as in the paper, so that Rollout-GDRO deals between 2 and 16. Both forms sort problems into
ten bins by how often they were solved, which needs problems that come back: training uses 350 of them, each about four
times. The measurement is 16 attempts at every held-out problem, on either half; pass@8 is the paper's, over all
problems, and that on the hard half is what the method is for. Each method is compared with its own parent. No other
setting was tried.
"""

from collections.abc import Mapping
from math import inf
from pathlib import Path
from typing import Any

from headline import Headline, Question
from isocost.report import arm_charts

KS = (1, 2, 4, 8)
HALVES = {" hard": "hard half", " easy": "easy half"}
AGAIN = "gdro"          # the headline of the older world that asked this
ALT = "pass@k over k on a hard and an easy half of held-out puzzles, for GRPO, Rollout-GDRO, Dr. GRPO and Prompt-GDRO"


def numbers(folder: Path) -> dict[str, float]:
    """pass@k of a run's last policy on all problems that are reported and on either half, from 16 attempts at each."""
    import asyncio

    import numpy as np

    from isocost import methods
    from isocost.runs.evaluate import evaluate
    from isocost.runs.files import read_json
    from isocost.runs.job import Job
    from isocost.seams import Pace
    from isocost.tasks.builtin.puzzles import Puzzles, base_rates, listed
    from isocost.worlds.setting import open_setting

    job = Job.of(read_json(folder / "run.json")["job"])
    opened = open_setting(job.setting.but(model=str(folder / "final")))
    known = dict(zip((p.id for p in listed(Puzzles())), base_rates().tolist(), strict=True))
    hard = np.array([known[p.id] <= 0.0625 for p in opened.sides.audit])
    pace, recipe = Pace(0.0, job.setting.lengths.max_tokens), methods.load("reinforce").recipe()
    found = asyncio.run(evaluate(recipe, opened.world, opened.sides.audit, pace, samples=16, seed=job.seed))
    opened.grader.close()
    parts = {"": np.ones_like(hard), " hard": hard, " easy": ~hard}
    return {f"pass@{k}{part}": float(np.mean(found.best(k)[which])) for part, which in parts.items() for k in KS}


def picture(record: Mapping[str, Any]) -> dict[str, Any]:
    """Both halves."""
    rows = [{"arm": arm, "half": said, "run": f"{arm}-{seed}", "k": k, "rate": n[f"pass@{k}{half}"]}
            for half, said in HALVES.items() for arm, own in record["runs"].items() for seed, n in own.items()
            for k in KS]
    return dict(arm_charts.pass_at_k(rows, ALT, ""))


HEADLINE = Headline(
    title="GDRO on puzzles, half of them hard",
    methods={"rolloutgdro": (0, 2), "promptgdro": (1, 3)},
    own=("rolloutgdro", "promptgdro"),
    claim="Rollouts or weight by difficulty bins raise pass@8.",
    arms=("grpo", "rolloutgdro", "drgrpo", "promptgdro"),
    options=("--data", "50% puzzles:base=hard + 50% puzzles:base=easy", "--held-out", "0.4", "--samples", "4",
             "--evaluations", "2", "-n", "4", "-B", "32", "--threads", "1", "--seeds", "5", "--budget", "1.6e13flop"),
    questions=(         # 0.02 is the difference that held-out sets are made to show
        Question("pass@8: Rollout-GDRO", ("rolloutgdro", "pass@8"), ("grpo", "pass@8"), (0.0, inf)),
        Question("pass@8: Prompt-GDRO", ("promptgdro", "pass@8"), ("drgrpo", "pass@8"), (0.0, inf)),
        Question("hard half, pass@8: Rollout-GDRO", ("rolloutgdro", "pass@8 hard"), ("grpo", "pass@8 hard"),
                 (0.02, inf)),
        Question("hard half, pass@8: Prompt-GDRO", ("promptgdro", "pass@8 hard"), ("drgrpo", "pass@8 hard"),
                 (0.02, inf)),
    ),
    numbers=numbers,
)
