"""POPE: help in training becomes success without help, where plain RL has no signal.

The problems are sums of three digits that carry twice. The base was taught sums of two digits: it stops one digit
early, and it solves none of these 512 problems as often as once in 300 attempts. Advantages within a group whose
attempts are all wrong are zero, so GRPO has no signal. (If a few problems of a set are solved now and then, it
memorises these; the sums were chosen so that there are none.) POPE poses every problem twice, once with the beginning
of its solution as a prefix, and never trains on the prefix. As in the paper the question is about the hard problems
themselves, posed without help: the exact chance that the final policy is right on them. The picture also shows problems
that were never trained on. The paper gives at most a quarter of a solution, which is one digit here. Here it is up to
three quarters, three digits of four, after which the base is right about once in 270 attempts. Each length has 8
attempts. No other lengths and numbers of attempts were tried.
"""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from headline import Headline, Question
from isocost.report import arm_charts, theme

HELPED = "pope@guide.most=0.75,guide.tries=8"
ALT = ("Share right over FLOP without help, on the problems trained on and on others, for GRPO and for POPE: thin "
       "lines are runs")
PARTS = 12      # of a run, each a point of the picture


def numbers(folder: Path) -> dict[str, float]:
    """The chance of being right without help on the problems trained on, before and after, and the share by parts."""
    from isocost import methods
    from isocost.ledger import Ledger
    from isocost.runs.evaluate import evaluate
    from isocost.worlds.setting import Setting, open_setting

    def exactly(setting: Setting) -> float:
        opened, recipe = open_setting(setting), methods.load("grpo").recipe()
        pace = replace(recipe.pace(Ledger()), max_tokens=setting.lengths.max_tokens)
        return asyncio.run(evaluate(recipe, opened.world, opened.sides.train, pace, samples=1, seed=0)).mean

    setting = Setting.of(json.loads((folder / "run.json").read_text())["job"]["setting"])
    groups = [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]
    steps = 1 + max(g["step"] for g in groups)
    right: list[list[float]] = [[] for _ in range(PARTS)]
    for g in groups:
        if not g["variant"]:
            right[PARTS * g["step"] // steps] += g["rewards"]
    return {
        "trained on before": exactly(setting),
        "trained on": exactly(setting.but(model=str(folder / "final"))),
        **{f"trained on, part {i}": sum(part) / len(part) for i, part in enumerate(right, 1)},
    }


def picture(record: Mapping[str, Any]) -> theme.Spec:
    """Each arm twice: the problems trained on, by parts of a run; and held-out ones, whenever they were measured."""
    rows, means = [], []
    for arm, runs in record["runs"].items():
        method = arm.partition("@")[0]
        for name, points in ((f"{method}, trained on", _parts(list(runs.values()), record["cost"])),
                             (f"{method}, held out", _measured(record["curves"], arm))):
            rows += [{"arm": name, "run": f"{name} {i}", "C": C, "reward": y} for i, C, y in points]
            places = max(sum(i == run for i, _, _ in points) for run in range(len(runs)))
            for k in range(places):
                here = [[p for p in points if p[0] == run][k] for run in range(len(runs))]
                means.append({"arm": name, "C": sum(p[1] for p in here) / len(here),
                              "reward": sum(p[2] for p in here) / len(here)})
    return arm_charts.arm_curves(rows, means, ALT, "FLOP", "share right without help")


def _parts(runs: list[dict[str, float]], cost: float) -> list[tuple[int, float, float]]:
    return [(i, cost * (k - 0.5) / PARTS, run[f"trained on, part {k}"])
            for i, run in enumerate(runs) for k in range(1, PARTS + 1)]


def _measured(curves: list[dict[str, Any]], arm: str) -> list[tuple[int, float, float]]:
    names = list(dict.fromkeys(c["run"] for c in curves if c["arm"] == arm))
    return [(i, c["C"], c["reward"]) for i, name in enumerate(names) for c in curves if c["run"] == name]


HEADLINE = Headline(
    title="POPE on problems that are never solved",
    methods={"pope": (0, 1)},
    own=("pope",),
    claim="Guided success turns into unguided success where plain RL stays at zero.",
    arms=("grpo", HELPED),
    options=("--data", "sums:digits=3,level=2,count=512", "--max-tokens", "5", "--seeds", "5", "--budget", "8e12flop"),
    numbers=numbers,
    questions=(
        # 0.01 is one problem in a hundred: less than that is zero to whoever trains on them.
        Question("plain RL stays where the base was, on the problems it trains on",
                 ("grpo", "trained on"), ("grpo", "trained on before"), (-0.01, 0.01)),
        Question("POPE is right more often on them, without help",
                 (HELPED, "trained on"), ("grpo", "trained on"), (0.01, float("inf"))),
    ),
)
