"""APRIL and ARRoL in a world of unequal lengths: they cut the cost of the tail by what the lengths predict.

Seven in ten problems are answered in four tokens, two take about eight and one seventeen. If a whole wave is decoded at
once, a step of GRPO lasts as many ticks (sequential tokens) as its longest rollout has tokens. APRIL stops the wave
when half of its groups have returned, and continues the others in the next. ARRoL evaluates every rollout that is not
done after 4 tokens (the paper's 512 of several thousand), and continues half of them, from the 21st step.

Both costs follow from the lengths alone, so they are predicted from GRPO's own runs of the same seeds: from waves of 16
groups as long as their longest rollouts, sampled again and run until half have returned; and from the tokens of all
rollouts, with those beyond the fourth halved. The tolerance for the predicted saving is a tenth, because lengths are of
other problems and other policies. Ticks are counted from the journal, which records for every group when it started,
when it returned and how long it was. They are the time of a machine that writes a token for every rollout at once. This
processor does not: for the same number of tokens sampling took APRIL 2.4 times GRPO's seconds, and ARRoL 1.4 times,
because waves are smaller and continued rollouts are read again. At equal tokens APRIL made 1.7 times GRPO's updates
with 1.3 times its FLOP. Accuracy is compared at equal tokens, with a margin of 0.05, half of what training adds.
"""

from collections.abc import Mapping
from math import inf
from pathlib import Path
from typing import Any

from headline import Headline, Question
from isocost.report import charts
from isocost.runs.files import read_json, read_lines

ARROL = "arrol@schedule.at=4"
ALT = "Cost per rollout as a share of GRPO's: foretold from GRPO's lengths and measured, for APRIL and ARRoL"
COLD, AT, KEEP, HOME = 20, 4, 0.5, 0.5      # ARRoL's and APRIL's own


def numbers(folder: Path) -> Mapping[str, float]:
    """Ticks for every hundred rollouts that came home, and tokens for each that was begun; GRPO's foretell the others'.

    A group's rollouts are decoded together, so its ticks are its longest's tokens, less those of earlier waves.
    """
    import numpy as np

    from isocost import chance

    lines = read_lines(folder / "journal.jsonl")
    steps = [x for x in read_lines(folder / "metrics.jsonl") if "reward" in x]
    cold, last = steps[COLD - 1], steps[-1]
    out = {"tokens": (last["decode"] - cold["decode"]) / (last["rollouts"] - cold["rollouts"])}
    if any("outlooks" in x for x in lines):
        return out
    given_up: dict[tuple[int, int], int] = {}
    for x in lines:
        given_up[x["wave"], x["slot"]] = given_up.get((x["wave"], x["slot"]), 0) + x["cancelled"]
    ticks: list[int] = []
    waiting: dict[str, list[int]] = {}          # the waves in which a problem's groups were begun that are not home
    home = sorted((x for x in lines if x["attempts"]), key=lambda x: x["wave"])
    for wave in range(last["step"] + 1):
        lasted = []
        for x in (x for x in home if x["wave"] == wave):
            begun = waiting[x["id"]].pop(0) if given_up[x["wave"], x["slot"]] < 0 else wave
            lasted.append(max(x["lengths"]) - sum(ticks[begun:]))
        assert min(lasted) > 0
        ticks.append(max(lasted))
        for x in (x for x in lines if x["wave"] == wave and given_up[x["wave"], x["slot"]] > 0):
            waiting.setdefault(x["id"], []).append(wave)
    out["ticks"] = 100 * sum(ticks) / sum(len(x["attempts"]) for x in home)
    if read_json(folder / "run.json")["method"] != "grpo":
        return out
    lengths = np.array([k for x in home if x["step"] >= COLD for k in x["lengths"]])
    longest = np.array([max(x["lengths"]) for x in home])
    B, n = len(home) // len(ticks), len(home[0]["attempts"])
    draw, left, passed, done = chance.generator(0, chance.Purpose.CHOOSE, 0), np.zeros(0, dtype=np.int64), 0, 0
    for _ in range(10_000):
        left = np.concatenate([left, draw.choice(longest, B - len(left))])
        lasted = int(np.sort(left)[int(np.ceil(HOME * B)) - 1])
        passed, done, left = passed + lasted, done + int((left <= lasted).sum()), left[left > lasted] - lasted
    halved = lengths - (1 - KEEP) * np.maximum(lengths - AT, 0)
    return {**out, "ticks of APRIL": 100 * passed / (done * n), "tokens of ARRoL": float(halved.mean()),
            "longest": sum(ticks) / len(ticks), "twice the mean": 2 * float(lengths.mean())}


HEADLINE = Headline(
    title="APRIL and ARRoL with heavy tails",
    methods={"april": (0, 1, 2, 5), "arrol": (0, 3, 4, 6)},
    own=("april",),
    claim="APRIL and ARRoL cut the cost of heavy tails by what the distribution of lengths foretells.",
    arms=("grpo", "april", ARROL),
    options=("--data", "70% sums:level=1 + 20% sums:work=1,level=1 + 10% sums:work=2,level=1", "--verifier", "final",
             "--limit", "3000", "--max-tokens", "24", "--samples", "2", "--evaluations", "5", "-n", "16", "-B", "16",
             "--seeds", "7", "--budget", "2.8M-tokens"),
    questions=(
        Question("a step lasts twice as long as a rollout is", ("grpo", "longest"), ("grpo", "twice the mean")),
        Question("APRIL cuts ticks", ("april", "ticks"), ("grpo", "ticks"), (-inf, 0.0)),
        Question("by what is foretold", ("april", "ticks"), ("grpo", "ticks of APRIL"), (-0.4, 0.4)),
        Question("ARRoL cuts tokens", (ARROL, "tokens"), ("grpo", "tokens"), (-inf, 0.0)),
        Question("by what is foretold", (ARROL, "tokens"), ("grpo", "tokens of ARRoL"), (-0.11, 0.11)),
        Question("APRIL is as accurate", ("april", "pass@1"), ("grpo", "pass@1"), (-0.05, inf)),
        Question("ARRoL is as accurate", (ARROL, "pass@1"), ("grpo", "pass@1"), (-0.05, inf)),
    ),
    numbers=numbers,
)


def picture(record: Mapping[str, Any]) -> dict[str, Any]:
    """What was foretold, and what was measured, run by run."""
    there = record["runs"]["grpo"]
    rows = []
    for name, arm, cost in (("APRIL", "april", "ticks"), ("ARRoL", ARROL, "tokens")):
        for kind, role, of, number in (("foretold", "guess", "grpo", f"{cost} of {name}"),
                                       ("measured", "outcome", arm, cost)):
            shares = [n[number] / there[seed][cost] for seed, n in record["runs"][of].items()]
            label = f"{name} {kind}"
            rows += [{"label": label, "value": share, "role": "run"} for share in shares]
            rows.append({"label": label, "value": sum(shares) / len(shares), "role": role})
    spec = charts.forest(rows, "ticks (APRIL) and tokens (ARRoL) of a rollout, as a share of GRPO's", ALT)
    return {**spec, "padding": 12}      # labels are wider in some fonts than in the one they were measured in
