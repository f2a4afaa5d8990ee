"""The page docs/train_or_infer.md with its pictures, from results/train_or_infer.json.

    python -m experiments.train_or_infer

Policies: the base, GRPO at three budgets, and methods whose papers train for more than one sample, at GRPO's largest
budget. All budgets are FLOP. Each policy is measured by one pool of samples of every held-out problem: best-of-n with
the verifier as scorer is pass@n, and a vote is the most frequent answer. Both are averages over all subsets of the
pool. An answer of n samples costs n times the mean FLOP of a sample, prompts included each time. `beside` was asked
later and nothing in it was sealed: three more methods, and a particle search with the exact checker of steps.
`foretold` forecasts trained policies, as if they were not trained. Commit 3dc66dd6 has what trained and measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from experiments import pages
from isocost.disk.jsonfile import read_json
from isocost.planner.frontier import SURE, Pair, PolicyFrontier
from isocost.report import charts, theme
from isocost.screen.words import markdown_table
from isocost.stats.passk import pass_at

HOME = Path(__file__).resolve().parents[1]
KEPT = HOME / "experiments" / "results" / "train_or_infer.json"
PAGE, IMAGES = HOME / "docs" / "train_or_infer.md", HOME / "docs" / "images"
LARGEST = "2.7"         # TFLOP of training
OTHERS = ("bon", "dars")       # trained at the largest budget only
FEWEST = 5              # searches of the base
SAMPLES = 64            # of each problem, in a pool
SIZES = (1, 2, 4, 8, 16, 32)
BESIDE = ("mrt", "rc", "scalerl")       # asked later
BESIDE_RATE = 2.5e-5    # that of GRPO, BoN and DARS at the largest budget
FEWER = 32              # samples of each problem in their pools
TABLE = ("best-of 1", "best-of 4", "best-of 16", "vote 4", "vote 16", "particles 16")
ALPHA = 0.05            # of each question, one-sided
ANSWERS = (1e2, 1e4, 1e6)
WANTED = {"best-of": (0.44, 0.60, 0.72), "vote": (0.57, 0.62)}


@cache
def _subsets(n: int, samples: int = SAMPLES) -> ndarray:
    return np.array([pass_at([k], samples, n) for k in range(samples + 1)])


def accuracy(found: Mapping[str, Any], strategy: str, samples: int = SAMPLES) -> ndarray:
    """(..., P) the chance of a right answer on each problem."""
    kind, n = strategy.split()
    if kind == "particles":
        return np.array(found["particles"], dtype=float)
    return np.array(found["vote"][n]) if kind == "vote" else _subsets(int(n), samples)[np.array(found["right"])]


def pairs(record: Mapping[str, Any], kind: str) -> Iterator[Pair]:
    """Every policy with every size of one kind of strategy, in FLOP."""
    for policy, found in record["policies"].items():
        for n in SIZES:
            if kind == "vote" and n > 1:
                if "vote" not in found:
                    continue
                right = np.array(found["vote"][str(n)])
            else:
                right = _subsets(n)[np.array(found["right"])]
            name = "one sample" if n == 1 else f"{kind} {n}"
            yield Pair(policy=policy, strategy=name, training=found.get("training", 0.0), answer=n * found["flops"],
                       right=right)


def frontiers(record: Mapping[str, Any]) -> dict[str, PolicyFrontier]:
    """By kind of strategy: with a verifier at hand, and without."""
    return {kind: PolicyFrontier(list(pairs(record, kind))) for kind in WANTED}


def cheapest(frontier: PolicyFrontier, accuracy_: float, answers: float) -> tuple[Pair, float] | None:
    """The cheapest pair with this accuracy, and the share of the draws that agree on it; None if none has it."""
    costs = np.array([p.cost(answers) for p in frontier.pairs])
    own = np.where([p.accuracy >= accuracy_ for p in frontier.pairs], costs, np.inf)
    drawn, best = np.where(frontier.drawn >= accuracy_, costs[:, None], np.inf), int(own.argmin())
    agree = (drawn.argmin(0) == best) & (drawn.min(0) < np.inf)
    return None if own[best] == np.inf else (frontier.pairs[best], float(agree.mean()))


def _cheapest(frontier: PolicyFrontier, wanted: Sequence[float]) -> str:
    rows = []
    for accuracy_ in wanted:
        cells = [f"{accuracy_:.2f}"]
        for answers in ANSWERS:
            found = cheapest(frontier, accuracy_, answers)
            cells.append("not reached" if found is None else f"{found[0].name}: {found[0].cost(answers):.1e}" + (
                "" if found[1] >= SURE else f" ({found[1]:.0%})"))
        rows.append(cells)
    return markdown_table(["accuracy", *(f"{a:.0e} answers" for a in ANSWERS)], rows)


def picture(record: Mapping[str, Any], kind: str, dark: bool) -> str:
    """The staircases of one kind of strategy as SVG."""
    frontier, rows = frontiers(record)[kind], []
    for answers in ANSWERS:
        for p in frontier.staircase(answers):
            low, high = frontier.interval(p)
            rows.append({"answers": f"{answers:.0e}", "C": p.cost(answers), "accuracy": p.accuracy, "low": low,
                         "high": high, "pair": p.name, "policy": p.policy})
    alt_text = f"Accuracy against the FLOP of training and answering by {kind}, a staircase for each number of answers"
    return theme.svg(charts.staircases(rows, alt_text, "FLOP"), dark=dark)


def gains(record: Mapping[str, Any], kind: str) -> str:
    """Accuracy of the base by size, and of every other policy less the base at equal samples."""
    every = {(p.policy, p.strategy): p for p in pairs(record, kind)}
    names = [s for s in dict.fromkeys(s for _, s in every)
             if s[-2:] not in (" 2", " 8") and (kind, s) != ("vote", "one sample")]
    rows = []
    for policy in (p for p in record["policies"] if p == "base" or p.startswith("grpo")):
        cells = [policy]
        for name in names:
            own, base = every[policy, name], every["base", name]
            cells.append(f"{own.accuracy:.3f}" if policy == "base" else _gain(own.right, base.right))
        rows.append(cells)
    return markdown_table(["policy", *names], rows)


def _gain(own: ndarray, base: ndarray) -> str:
    """A policy less the base, (seeds, P) each, with a 90 % interval over problems and seeds; of one seed over
    problems alone."""
    gap, by_problem = (own - base.mean(0)).mean(1), (own - base.mean(0)).mean(0)
    over_seeds = gap.std(ddof=1) / len(gap) ** 0.5 if len(gap) > 1 else 0.0
    se = np.hypot(over_seeds, by_problem.std(ddof=1) / len(by_problem) ** 0.5)
    return f"{gap.mean():+.3f} ± {1.645 * se:.3f}"


def _called(strategy: str) -> str:
    return "one sample" if strategy == "best-of 1" else strategy


def _right(record: Mapping[str, Any], policy: str, strategy: str) -> ndarray | None:
    """(seeds, P): of the sealed study where that has it, else of what was asked later; None where neither has."""
    found = record["policies"].get(policy if policy == "base" else f"{policy}-{LARGEST}", {})
    kind, _ = strategy.split()
    if kind != "particles" and found and (kind != "vote" or "vote" in found):
        return accuracy(found, strategy)
    later = record["beside"].get(policy)
    return None if later is None else accuracy(later, strategy, later["samples"])


def which(record: Mapping[str, Any]) -> str:
    """Which training for which strategy: every policy at equal FLOP of training, and the best for each strategy."""
    names = ["base", "grpo", *OTHERS, *BESIDE]
    rights = {s: {p: x for p in names if (x := _right(record, p, s)) is not None} for s in TABLE}
    cells = {p: ["" if p not in own else f"{own[p].mean():.3f}" if p == "base" else _gain(own[p], own["base"])
                 for own in rights.values()] for p in names}
    seeds = {p: sorted({len(own[p]) for own in rights.values() if p in own}) for p in names}
    rows = [[p, "none" if p == "base" else " to ".join(map(str, seeds[p])), *cells[p]] for p in names]
    best = []
    for s, own in rights.items():
        made = PolicyFrontier([Pair(policy=p, strategy=s, training=0.0, answer=1.0, right=x) for p, x in own.items()])
        order = sorted(range(len(own)), key=lambda i: -made.pairs[i].accuracy)
        top, of = order[0], list(own)
        near = [of[i] for i in order[1:] if np.quantile(made.drawn[top] - made.drawn[i], ALPHA) <= 0]
        answer = f"cannot tell: {', '.join((of[top], *near))}" if near else of[top]
        best.append([_called(s), answer, f"{made.pairs[top].accuracy:.3f}"])
    return (markdown_table(["training", "seeds", *map(_called, TABLE)], rows) + "\n" + markdown_table(
        ["strategy", "train by", "best accuracy"], best))


def ahead(record: Mapping[str, Any]) -> str:
    """How often, how narrowly and with what error the held-out policy of each line was forecast."""
    return markdown_table(["line", "hits", "mean width", "largest error", "missed"], [
        [name, f"{sum(map(_held, own))} of {len(own)}", f"{np.mean([c['high'] - c['low'] for c in own]):.3f}",
         f"{max((c['value'] - c['measured'] for c in own), key=abs):+.3f}",
         ", ".join(c["strategy"] for c in own if not _held(c))] for name, own in record["foretold"].items()])


def _held(cell: Mapping[str, Any]) -> bool:
    return bool(cell["low"] <= cell["measured"] <= cell["high"])


def break_evens(record: Mapping[str, Any]) -> str:
    """From how many answers GRPO's largest budget is cheaper than the base."""
    rows = []
    for kind, frontier in frontiers(record).items():
        for accuracy_ in WANTED[kind]:
            found = frontier.break_even("base", f"grpo-{LARGEST}", accuracy_)
            if found.answers is None or found.interval is None:
                rows.append([kind, f"{accuracy_:.2f}", "GRPO does not reach it", ""])
            else:
                low, high = found.interval
                rows.append([kind, f"{accuracy_:.2f}", f"{found.answers:.1e}", f"{low:.1e} to {high:.1e}"])
    return markdown_table(["strategy", "accuracy", "answers", "90 % interval"], rows)


TEXT = """# Train or infer

A budget can train a model or let it answer several times. Measured: the built-in puzzles, {problems}
held-out problems, {seeds} seeds of training, {samples} samples a problem. Questions, learning rates and seeds were
sealed after a pilot (`{seal}`). Costs are FLOP of training and of all answers. To measure again, run
`python -m experiments.train_or_infer` with `run`, `beside` and `foretell` at commit 3dc66dd6.

## What training gives to each strategy

Accuracy of the base, and of each policy, named by its TFLOP of training, less the base; ± 90 % intervals over problems
and seeds. With the verifier (best-of-n):

{best_of}
Without it (the most frequent answer):

{vote}
## The questions

{answers}
Intervals: one-sided, 95 %, paired by seed, over training seeds alone.

## Which training for which strategy

The same at {budget} of training, measured after the seal; `mrt`, `rc` and `scalerl` have {fewer} samples a problem.
Particles: one search of 16 a problem and seed with the exact step checker, {fewest} of the base.

{which}
"Cannot tell": the 90 % interval of the difference from the best includes 0. The learning rate is {rate:g}, chosen by
the pilot for the first three. The base was not trained to summarise (`rc`) or to stop early (`mrt`).

## Which is cheaper

The cheapest pair for an accuracy and a number of answers, with its FLOP; undecided where a share of bootstrap draws
(below 90 %) is shown.

{cheapest}
Number of answers from which GRPO's largest budget is cheaper than the base:

{even}
{picture}
## Forecasts before training

A law forecasts one sample; [measured policies](train_or_think.md) give the other strategies. Here GRPO's largest budget
is held out. Its measured accuracy of one sample replaces the law's, to test the rule alone; the last line uses the
tutorial's law. Cells: gains over the base, best-of 2 to 32, votes of 4 to 32, 90 % intervals.

{foretold}
The rule was fixed after the sealed seeds were seen, before the other lines. Best-of with many samples is missed where
accuracy fell, then rose: a line cannot turn.

## What this does not say

One model of 279,072 parameters, one family of problems, an exact verifier: errors of a verifier lower best-of more than
a vote. An answer of n samples is billed n prompts.
"""


def page() -> None:
    """Write the page and its pictures."""
    record = read_json(KEPT)
    for kind in WANTED:
        for dark, side in ((False, "light"), (True, "dark")):
            (IMAGES / f"train-or-infer-{kind}-{side}.svg").write_text(picture(record, kind, dark), encoding="utf-8")
    PAGE.write_text(text(record), encoding="utf-8")


def text(record: Mapping[str, Any]) -> str:
    """docs/train_or_infer.md."""
    rows = [[a["says"], f"{a['value']:+.3f} [{a['low']:+.3f}, {a['high']:+.3f}]", f"{f['value']:+.3f}", a["answer"]]
            for a, f in zip(record["answers"], record["forecasts"], strict=True)]
    made = frontiers(record)
    return TEXT.format(
        problems=len(record["policies"]["base"]["right"][0]), seeds=len(record["seeds"]), samples=SAMPLES,
        seal=record["seal"][:12], which=which(record), fewer=FEWER, rate=BESIDE_RATE, budget=f"{LARGEST} TFLOP",
        best_of=gains(record, "best-of"), vote=gains(record, "vote"),
        fewest=FEWEST, foretold=ahead(record),
        picture=pages.picture("train-or-infer-best-of",
                              "Accuracy against FLOP, a frontier for each number of answers"),
        answers=markdown_table(["question", "difference", "pilot", "answer"], rows),
        cheapest="\n".join(f"{'With' if k == 'best-of' else 'Without'} a verifier:\n\n{_cheapest(made[k], WANTED[k])}"
                           for k in WANTED), even=break_evens(record))


if __name__ == "__main__":
    page()
