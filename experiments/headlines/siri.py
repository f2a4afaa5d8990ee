"""SIRI: answers get shorter while their limit shrinks and grows, at equal accuracy.

The problems are two-digit sums that may be worked out in full, column by column (15 to 20 tokens), or by the columns'
totals alone (7 to 10). The verifier reads what follows the last step, so both are right. The embedded model writes the
form that the prompt requests and nothing else: one answer in twelve thousand was right and a step shorter, too few for
SIRI to select. So the base is another small model, made here, trained on both forms, the short one a little more often.
It is more accurate in the full form (96 in a hundred right, against 92), and RL without SIRI moves to it. Two bases
before it had a short form that was wrong half of the time or nearly always; those answers disappeared before the first
compression. An answer has room for 20 tokens, and at the narrowest for 10, SIRI's half, which fits the short form only.
A cycle is 40 updates (the paper's 640 are a third of its run, and so are these). A length of 20 was tried on an earlier
base, and shortened answers as much. A probe is a quarter of a run and ends in its first compression, so the rates
reported for SIRI are below all probed rates. At DAPO's own rate, on another seed, the result was the same. Every policy
is measured with room for 20 tokens and four attempts at each held-out problem. The question is about the cosine
schedule, SIRI's own choice; the stairs schedule is shown for comparison.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from headline import Headline, Question
from isocost.report import arm_charts, theme

SIRI, PLAIN = "siri@pace.period=40", "dapo"
STAIR, BOTH = f"{SIRI},pace.shape=stair", f"{SIRI},pace.shape=stair_cosine"
NAMES = {PLAIN: "DAPO", SIRI: "SIRI, cosine", STAIR: "SIRI, stair", BOTH: "SIRI, stair and cosine"}
BASE = "before training"
ALT = ("Held-out accuracy over tokens an answer, for the base, DAPO and SIRI with its three schedules: small marks are "
       "runs, large ones their means")


def prepare(home: Path) -> None:
    """A base that works out two-digit sums in full, or by the columns' totals."""
    import torch

    import bases as make
    from isocost import chance
    from isocost.tasks.builtin import sums as family

    def lesson(lessons: make.Lessons, step: int) -> tuple[make.Tensor, make.Tensor]:
        draw = chance.generator(lessons.seed, chance.Purpose.INIT, 1 + step)
        pairs, short = draw.integers(10, 100, (lessons.rows, 2)).tolist(), draw.random(lessons.rows) < 0.55
        return make.padded([(f"{a}+{b}:", family.solution(a, b, 1 if less else 2))
                            for (a, b), less in zip(pairs, short.tolist(), strict=True)])

    if not (home / "base" / "config.json").exists():
        torch.set_num_threads(1)
        lessons = make.Lessons(steps=600, rows=256)
        make.save(home / "base", make.taught_in_torch(lessons, lesson), {"lessons": asdict(lessons)})


def numbers(folder: Path) -> dict[str, float]:
    """Tokens an answer before training; those after are in every evaluation."""
    with (folder / "metrics.jsonl").open(encoding="utf-8") as lines:
        return {"length before": next(x["eval/length"] for x in map(json.loads, lines) if "eval/length" in x)}


def picture(record: Mapping[str, Any]) -> theme.Spec:
    """Where each run ended."""
    rows = [{"arm": NAMES[label], "x": run["length"], "y": run["pass@1"]}
            for label, runs in record["runs"].items() for run in runs.values()]
    before = next(iter(record["runs"][PLAIN].values()))     # every run began from the same policy
    rows.append({"arm": BASE, "x": before["length before"], "y": before["pass@1 before"]})
    return arm_charts.ends(rows, "tokens an answer", "held-out accuracy", ALT, BASE)


HEADLINE = Headline(
    title="SIRI where answers can be short",
    methods={"siri": (0, 1, 2)},
    own=("siri",),
    claim="Squeezed and released in cycles, answers grow shorter at equal accuracy.",
    arms=(PLAIN, SIRI, STAIR, BOTH),
    options=("--model", "comparisons/headline-siri/base", "--data", "sums:work=1,count=1600", "--held-out", "400",
             "--max-tokens", "20", "-n", "16", "-B", "8", "--threads", "1", "--samples", "4", "--evaluations", "3",
             "--seeds", "6", "--budget", "5.4e12flop"),
    questions=(
        # 2 tokens are a tenth of an answer's room; 0.02 is the difference that held-out sets are made to show
        Question("left alone, answers grow no shorter", (PLAIN, "length"), (PLAIN, "length before"),
                 (-2.0, float("inf"))),
        Question("tokens an answer: SIRI against DAPO", (SIRI, "length"), (PLAIN, "length"), (float("-inf"), -2.0)),
        Question("accuracy: SIRI against DAPO", (SIRI, "pass@1"), (PLAIN, "pass@1"), (-0.02, float("inf"))),
    ),
    prepare=prepare,
    numbers=numbers,
)
