"""Train or infer on the built-in puzzles: what RL gives to one sample, to best-of-n and to a vote, at equal total cost.

    python -m experiments.train_or_infer pilot     trains every method at four learning rates
    python -m experiments.train_or_infer seal      chooses the rates, trains a second seed at them, forecasts the
                                                   questions below, and seals all of it with the seeds of `run`
    python -m experiments.train_or_infer run       trains what was sealed with fresh seeds and answers the questions
    python -m experiments.train_or_infer beside    trains MRT, RC and ScaleRL too, and measures votes and a search
    python -m experiments.train_or_infer foretell  forecasts trained policies, to test the rule
    python -m experiments.train_or_infer page      docs/train_or_infer.md with its picture, from the record

Policies: the base, GRPO at three budgets, and methods whose papers train for more than one sample, at GRPO's largest
budget. All budgets are FLOP. Each policy is measured by one pool of samples of every held-out problem: best-of-n with
the verifier as scorer is pass@n, and a vote is the most frequent answer. Both are averages over all subsets of the
pool. An answer of n samples costs n times the mean FLOP of a sample, prompts included each time. `beside` was asked
later and nothing in it was sealed: three more methods, and a particle search with the exact checker of steps.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from experiments import pages
from isocost import methods
from isocost.disk.jsonfile import read_json, write_json
from isocost.errors import UserError
from isocost.gather import finished
from isocost.planner.forecast import digest
from isocost.planner.frontier import SURE, Pair, PolicyFrontier
from isocost.report import charts, theme
from isocost.runs.evaluate import EVALUATION_SEED, evaluate, scores_of
from isocost.screen.words import markdown_table
from isocost.stats.passk import majority_at
from isocost.stats.power import Estimate, difference, seeds_for_comparison
from isocost.strategies import parse
from isocost.tasks.builtin.drawn import STEP
from isocost.types import Cost, Group
from isocost.worlds.setting import Setting, open_setting

HOME = Path(__file__).resolve().parents[1]
KEPT = HOME / "experiments" / "results" / "train_or_infer.json"
PAGE, IMAGES = HOME / "docs" / "train_or_infer.md", HOME / "docs" / "images"
RUNS = Path("comparisons") / "train-or-infer"
BUDGETS = {"0.25": "2.5e11flop", "0.8": "8e11flop", "2.7": "2.7e12flop"}      # of training, named in TFLOP
LARGEST = "2.7"
OTHERS = ("bon", "dars")       # trained at the largest budget only
RATES = (1.25e-5, 2.5e-5, 5e-5, 1e-4)
PILOT = 100, 101        # seeds: the first at all rates, both at the chosen ones
FEWEST, MOST = 5, 12    # seeds of `run`, of which the pilot says how many tell EFFECT
EFFECT = 0.03           # in accuracy
SAMPLES = 64            # of each problem, in a pool
SIZES = (1, 2, 4, 8, 16, 32)
BESIDE = {      # asked later: the method, n and B; each has its own n, as its groups need, and 128 rollouts an update
    "mrt": ("mrt@play.boundary=;,play.room=32", 16, 8), "rc": ("rc@play.room=34", 22, 6), "scalerl": ("scalerl", 8, 16)}
BESIDE_RATE = 2.5e-5    # that of GRPO, BoN and DARS at the largest budget
FEWER = 32              # samples of each problem in their pools
SEARCH = "particles:n=16"
TABLE = ("best-of 1", "best-of 4", "best-of 16", "vote 4", "vote 16", "particles 16")
ALPHA = 0.05            # of each question, one-sided
ANSWERS = (1e2, 1e4, 1e6)
WANTED = {"best-of": (0.44, 0.60, 0.72), "vote": (0.57, 0.62)}
# name: what is claimed of the mean of (policy, strategy) less (comparator, its strategy)
QUESTIONS: tuple[tuple[str, str, str, str, str], ...] = (
    ("GRPO raises one sample", f"grpo-{LARGEST}", "base", "best-of 1", "above"),
    ("GRPO lowers best-of-16", f"grpo-{LARGEST}", "base", "best-of 16", "below"),
    ("GRPO raises a vote of 4", f"grpo-{LARGEST}", "base", "vote 4", "above"),
    ("BoN training beats GRPO at best-of-16", f"bon-{LARGEST}", f"grpo-{LARGEST}", "best-of 16", "above"),
    ("DARS beats GRPO at best-of-16", f"dars-{LARGEST}", f"grpo-{LARGEST}", "best-of 16", "above"),
)


def policies() -> list[tuple[str, str]]:
    """(method, budget) of every policy that is trained."""
    return [*(("grpo", b) for b in BUDGETS), *((m, LARGEST) for m in OTHERS)]


# measuring ------------------------------------------------------------------------------------------------------------


def trained(method: str, budget: str, seed: int, rate: float) -> Path:
    """The folder of a run that has ended; it is trained, or continued, if it has not."""
    out = RUNS / f"{method}-{budget}-{rate:g}-{seed}"
    spec, n, batch = BESIDE.get(method, (method, 8, 16))
    if not (out / "final").is_dir():
        run_isocost("train", spec, "--data", "puzzles", "-n", n, "-B", batch, "--budget", BUDGETS[budget], "--seed",
                    seed, "--threads", 1, "--lr", f"{rate:g}", "--evaluations", 1, "--out", out)
    return out


def run_isocost(*words: Any) -> None:
    """A command of isocost, on one thread and without its output."""
    subprocess.run([sys.executable, "-m", "isocost", *map(str, words)], check=True, stdout=subprocess.DEVNULL,
                   env=os.environ | {"OMP_NUM_THREADS": "1"})


def flops_of(run: Path) -> float:
    """Training FLOP of a run, without evaluations."""
    record, end = read_json(run / "run.json"), read_json(run / "end.json")
    return Cost.of(end["bill"]["train"]).flops(record["model"]["parameters"])


def sampled(
    folder: Path | None, strategy: str, samples: int, seed: int = EVALUATION_SEED
) -> tuple[Sequence[Group], float]:
    """Answers of the base (None), or of a run's final policy, to each held-out problem, and the mean FLOP of one."""
    setting = Setting.of(read_json(base_record() / "run.json")["job"]["setting"])
    opened = open_setting(setting if folder is None else setting.but(model=str(folder / "final")))
    try:
        found = finished(evaluate(
            methods.recipe("reinforce").but(play=parse(strategy).play), opened.world, opened.sides.held_out,
            setting.measured, samples=samples, seed=seed, exact=False))
        return found.groups, opened.world.meter.total.flops(base_parameters()) / (samples * len(found.groups))
    finally:
        opened.close()


def pool(folder: Path | None, samples: int = SAMPLES) -> dict[str, Any]:
    """The base (None), or a run's final policy, sampled on each held-out problem, kept on disk.

    right: right samples by problem; vote: by size and problem, the chance that the most frequent answer is right, with
    ties shared; flops: of a sample in the mean.
    """
    kept = (folder or RUNS / "base") / (f"pool-{samples}.json" if samples != SAMPLES else "pool.json")
    if kept.exists():
        return read_json(kept)
    groups, flops = sampled(folder, "one", samples)
    sizes = [n for n in SIZES if n <= samples]
    votes: dict[str, list[float]] = {str(n): [] for n in sizes}
    for group in groups:
        counts = Counter(r.final.rpartition(STEP)[2] for r in group.rollouts)
        good = {r.final.rpartition(STEP)[2] for r in group.rollouts if r.score and r.score.value >= 1}
        names = list(counts)
        for n in sizes:
            votes[str(n)].append(round(sum(
                majority_at([counts[x] for x in names], names.index(g), n) for g in good), 4))
    right = [int(sum(s >= 1 for s in scores_of(g))) for g in groups]
    kept.parent.mkdir(parents=True, exist_ok=True)
    write_json(kept, {"right": right, "vote": votes, "flops": flops})
    return read_json(kept)


def searched(folder: Path | None, again: int = 0) -> dict[str, Any]:
    """One answer by `SEARCH` to each held-out problem, kept on disk: right, by problem, and the mean FLOP of one. Those
    `again` have other random numbers."""
    kept = (folder or RUNS / "base") / (f"particles-{again}.json" if again else "particles.json")
    if not kept.exists():
        groups, flops = sampled(folder, SEARCH, 1, EVALUATION_SEED + again)
        write_json(kept, {"right": [int(sum(s >= 1 for s in scores_of(g))) for g in groups], "flops": flops})
    return read_json(kept)


@cache
def base_record() -> Path:
    """Any run of the pilot: its setting names the base and the held-out problems."""
    return trained("grpo", "0.25", PILOT[0], RATES[1])


def base_parameters() -> int:
    """Of the base, and so of every policy."""
    return int(read_json(base_record() / "run.json")["model"]["parameters"])


@cache
def _subsets(n: int, samples: int = SAMPLES) -> ndarray:
    from isocost.stats.passk import pass_at
    return np.array([pass_at([k], samples, n) for k in range(samples + 1)])


def accuracy(found: Mapping[str, Any], strategy: str, samples: int = SAMPLES) -> ndarray:
    """(..., P) the chance of a right answer on each problem."""
    kind, n = strategy.split()
    if kind == "particles":
        return np.array(found["particles"], dtype=float)
    return np.array(found["vote"][n]) if kind == "vote" else _subsets(int(n), samples)[np.array(found["right"])]


# the steps ------------------------------------------------------------------------------------------------------------


def pilot() -> None:
    """Train and pool all methods at all rates."""
    pool(None)
    for method, budget in policies():
        for rate in RATES:
            pool(trained(method, budget, PILOT[0], rate))
            print(method, budget, rate, flush=True)


def chosen() -> dict[str, Any]:
    """The learning rate of each policy: highest mean of one sample and best-of-16 in the pilot; and all curves."""
    out: dict[str, Any] = {}
    for method, budget in policies():
        pools = {rate: pool(trained(method, budget, PILOT[0], rate)) for rate in RATES}
        tried = {rate: [float(accuracy(p, f"best-of {n}").mean()) for n in SIZES] for rate, p in pools.items()}
        best = max(tried, key=lambda rate: tried[rate][0] + tried[rate][SIZES.index(16)])
        out[f"{method}-{budget}"] = {
            "rate": best, "edge": best in (min(RATES), max(RATES)), "tried": {f"{r:g}": c for r, c in tried.items()}}
    return out


def values(policy: str, strategy: str, rates: Mapping[str, Any], seeds: Sequence[int]) -> dict[int, float]:
    """Accuracy of a policy with a strategy, by seed of training; the base has the same with every seed."""
    if policy == "base":
        return dict.fromkeys(seeds, float(accuracy(pool(None), strategy).mean()))
    method, budget = policy.rsplit("-", 1)
    return {s: float(accuracy(pool(trained(method, budget, s, rates[policy]["rate"])), strategy).mean()) for s in seeds}


def seal() -> dict[str, Any]:
    """Seal questions, rates, seeds and forecasts. Raises UserError if there is a seal."""
    if KEPT.exists() and "seal" in read_json(KEPT):
        raise UserError(f"{KEPT.name} is sealed already")
    rates, forecasts = chosen(), []
    for says, a, b, strategy, side in QUESTIONS:
        of, less = values(a, strategy, rates, PILOT), values(b, strategy, rates, PILOT)
        found = _difference(of, less)
        sd = found.se / np.sqrt(2 / len(PILOT))
        forecasts.append({"says": says, "of": a, "less": b, "strategy": strategy, "claimed": side, "value": found.value,
                          "sd": float(sd), "seeds": seeds_for_comparison(EFFECT, float(sd), 2 * ALPHA)})
    needed = max(f["seeds"] or MOST for f in forecasts)
    sealed = {"budgets": BUDGETS, "seeds": list(range(min(MOST, max(FEWEST, needed)))), "pilot": list(PILOT),
              "rates": rates, "forecasts": forecasts}
    write_json(KEPT, sealed | {"seal": digest(sealed)})
    return read_json(KEPT)


def _difference(of: Mapping[int, float], less: Mapping[int, float]) -> Estimate:
    found = difference({"": dict(of)}, {"": dict(less)}, 1e-3)
    assert found is not None
    return found


def run() -> dict[str, Any]:
    """Train the sealed seeds and answer. Raises UserError without a seal, or if it was changed."""
    record = read_json(KEPT) if KEPT.exists() else {}
    sealed = {k: record.get(k) for k in ("budgets", "seeds", "pilot", "rates", "forecasts")}
    if "seal" not in record or digest(sealed) != record["seal"]:
        raise UserError("not sealed, or changed after it was sealed: python -m experiments.train_or_infer seal")
    for seed in record["seeds"]:
        for policy, rate in record["rates"].items():
            pool(trained(*policy.rsplit("-", 1), seed, rate["rate"]))
        print("seed", seed, flush=True)
    answers = []
    for q in record["forecasts"]:
        of, less = (values(q[k], q["strategy"], record["rates"], record["seeds"]) for k in ("of", "less"))
        found = _difference(of, less)
        low, high = found.interval(2 * ALPHA)
        right, wrong = (low > 0, high < 0) if q["claimed"] == "above" else (high < 0, low > 0)
        answers.append({"says": q["says"], "of": float(np.mean(list(of.values()))),
                        "less": float(np.mean(list(less.values()))), "value": found.value, "low": low, "high": high,
                        "answer": "holds" if right else "does not hold" if wrong else "cannot tell"})
    kept = {"base": {"flops": pool(None)["flops"], "right": [pool(None)["right"]], "vote": votes([pool(None)])}}
    for policy, rate in record["rates"].items():
        method, budget = policy.rsplit("-", 1)
        folders = [trained(method, budget, s, rate["rate"]) for s in record["seeds"]]
        pools = [pool(f) for f in folders]
        kept[policy] = {
            "training": float(np.mean([flops_of(f) for f in folders])), "right": [p["right"] for p in pools],
            "flops": float(np.mean([p["flops"] for p in pools])),
            **({"vote": votes(pools)} if method == "grpo" else {})}
    write_json(KEPT, record | {"answers": answers, "policies": kept})
    return read_json(KEPT)


def votes(pools: Sequence[Mapping[str, Any]], sizes: Sequence[int] = SIZES) -> dict[str, list[list[float]]]:
    """By size, seed and problem: the chance that the most frequent answer is right."""
    return {str(n): [[round(x, 2) for x in p["vote"][str(n)]] for p in pools] for n in sizes if n > 1}


# MRT, RC and ScaleRL beside them --------------------------------------------------------------------------------------


def beside() -> None:
    """Measure what was asked later, training what is not there; each seed is kept in the record once it is measured."""
    folders: dict[str, list[Path | None]] = {"base": [None]}
    for methods_ in (("grpo", *OTHERS), BESIDE):
        for seed in read_json(KEPT)["seeds"]:
            for method in methods_:
                folders.setdefault(method, []).append(trained(method, LARGEST, seed, BESIDE_RATE))
                kept = {name: _measured(own, FEWER if name in BESIDE else SAMPLES) for name, own in folders.items()}
                write_json(KEPT, read_json(KEPT) | {"beside": kept})
                print(method, seed, flush=True)


def _measured(folders: Sequence[Path | None], samples: int) -> dict[str, Any]:
    pools = [pool(f, samples) for f in folders]
    found = [searched(f) for f in folders] if folders[0] else [searched(None, k) for k in range(FEWEST)]
    bills = [flops_of(f) for f in folders if f is not None] or [0.0]
    return {"right": [p["right"] for p in pools], "samples": samples, "vote": votes(pools, (4, 16)),
            "particles": [s["right"] for s in found], "flops": float(np.mean([p["flops"] for p in pools])),
            "search": float(np.mean([s["flops"] for s in found])), "training": float(np.mean(bills))}


# the page -------------------------------------------------------------------------------------------------------------


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
sealed after a pilot (`{seal}`). Costs are FLOP of training and of all answers. To measure again:

```text
python -m experiments.train_or_infer run
python -m experiments.train_or_infer beside
python -m experiments.train_or_infer foretell
python -m experiments.train_or_infer page
```

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


def main(arguments: Sequence[str]) -> int:
    """One of the steps; returns the exit code."""
    match list(arguments):
        case ["pilot"]:
            pilot()
        case ["seal"]:
            print(f"sealed {seal()['seal'][:12]}")
        case ["run"]:
            print(json.dumps(run()["answers"], indent=1))
        case ["beside"]:
            beside()
        case ["foretell"]:
            from experiments.train_ahead import foretell

            foretell()
        case ["page"]:
            page()
        case _:
            raise UserError("say `pilot`, `seal`, `run`, `beside`, `foretell` or `page`")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
