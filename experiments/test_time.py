"""How far plans of test-time strategies can be trusted: the records, and docs/test_time_evidence.md from them.

    python experiments/test_time.py counts        forecasts and plans on public counts of right answers
    python experiments/test_time.py verdicts      plans on a public record of a verifier that does not help
    python experiments/test_time.py builtin       plans on the built-in puzzles with an exact checker
    python experiments/test_time.py simulated     200 studies of made-up populations
    python experiments/test_time.py page

Each command but the last writes a part of experiments/results/test_time.json. The public data are in
experiments/outside_strategies, with their sources. A forecast sees samples that its outcome does not: of the counts,
the validation split is planned with, and the choice is judged on all problems by all 10,000 samples.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import textwrap
from collections.abc import Mapping, Sequence
from functools import partial
from multiprocessing import Pool as Processes
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

import made_with
from isocost.planner.test_time.choice import decide
from isocost.planner.test_time.estimates import SIZES, label, measure, orders, possible
from isocost.planner.test_time.mixture import FURTHEST, fit_mixture
from isocost.planner.test_time.outcome import outcome
from isocost.planner.test_time.pool import Pool, parts, statistic
from isocost.planner.test_time.prescribe import AnswerGoal, BandStrategy, StrategyPlan, prescribe, seal
from isocost.runs.files import read_lines
from isocost.screen.words import markdown_table
from isocost.stats.intervals import Interval, student
from isocost.stats.passk import pass_at
from isocost.steps.settings import setting_of
from isocost.steps.test_time.profile import Compared, profile_live

HOME = Path(__file__).resolve().parents[1]
DATA, RECORD = HOME / "experiments" / "outside_strategies", HOME / "experiments" / "results" / "test_time.json"
PAGE = HOME / "docs" / "test_time_evidence.md"
PARTS = ("planner/test_time", "stats/intervals.py", "stats/passk.py")
DRAWS, SHOWN = 20, 18               # draws of samples; of these the plan is to prescribe more than one sample
FORECASTS = ((16, 64), (64, 256))       # (samples, k) of pass@k
BUDGETS = (2.5, 4, 8, 16, 32, 64, 128, 256)             # samples an answer, with `PROFILED` samples of a problem
PROFILED, LOSS, MANY = 64, 0.02, 256
WRONG, WORKERS = "steps:wrong=0.15", 2
STUDIES, PROBLEMS, SAMPLES, TRUE = 200, 120, 32, 300    # simulated; problems from which the truth is computed


def main() -> None:
    """Run one of the commands."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=(*MAKE, "page"))
    what = parser.parse_args().what
    made = {} if what == "page" else {"command": f"python experiments/test_time.py {what}", **MAKE[what]()}
    kept = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    if what == "page":
        PAGE.write_text(page(kept), encoding="utf-8")
        return
    kept[what] = made
    RECORD.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    made_with.note(RECORD, PARTS)


# public counts --------------------------------------------------------------------------------------------------------


def counts() -> dict[str, Any]:
    """pass@k forecast from few samples of the same problems, and plans with the verifier as scorer."""
    data = json.loads((DATA / "repeated_sampling.json").read_text(encoding="utf-8"))
    with Processes(WORKERS) as some:
        models = some.map(partial(_model, samples=data["samples"]), map(np.array, data["right"].values()), chunksize=1)
    return {"source": data["source"], "models": dict(zip(data["right"], models, strict=True))}


def _model(right: ndarray, samples: int) -> dict[str, Any]:
    own: dict[str, Any] = {}
    for m, k in FORECASTS:
        rng, truth = np.random.default_rng([m, k]), pass_at(right, samples, k)
        cast = [fit_mixture(rng.hypergeometric(right, samples - right, m), m).forecast(k) for _ in range(DRAWS)]
        own[f"{m} to {k}"] = {
            "truth": truth, "error": float(np.mean([abs(i.value - truth) for i in cast])),
            "bias": float(np.mean([i.value - truth for i in cast])),
            "held": float(np.mean([i.holds(truth) for i in cast])), "width": float(np.mean([i.width for i in cast])),
        }
    return {**own, "plans": _dares(right, samples)}


def _dares(right: ndarray, samples: int, profiled: int = PROFILED) -> dict[str, Any]:
    """For each budget: in how many draws more than one sample is prescribed, and what the choice costs."""
    out: dict[str, Any] = {}
    for budget in (b for b in BUDGETS if b <= FURTHEST * profiled):
        more, loss = 0, []
        best = pass_at(right, samples, int(budget))
        for draw in range(DRAWS):
            rng = np.random.default_rng([7, draw])
            few = rng.hypergeometric(right, samples - right, profiled)
            marks = rng.permuted((np.arange(profiled) < few[:, None]).astype(float), axis=1)
            pool = Pool(tuple(map(str, range(len(right)))), marks, marks, exact=True)
            split = parts(pool, probe=0, bands=1, least=10, seed=draw)
            plan = prescribe(split, ("best-of",), AnswerGoal.of(f"{budget}-rollouts/answer", None, None, None), draw)
            more += plan.decision == "more"
            loss.append(best - pass_at(right, samples, plan.each[0].size))
        out[f"{budget:g}"] = {"more": more, "loss": float(np.mean(loss)), "worst": float(np.max(loss)), "best": best}
    return out


def builtin() -> dict[str, Any]:
    """The same on the built-in puzzles, whose checker is exact."""
    searches = ("best-of", "vote", "weighted-vote", "beam", "particles")
    with tempfile.TemporaryDirectory() as folder:
        setting, exact, wrong = setting_of({"data": "puzzles"}), Path(folder) / "exact", Path(folder) / "wrong"
        tables = {
            "0": profile_live(exact, setting, Compared(searches, "steps", samples=MANY)).table,
            "0.15": profile_live(wrong, setting, Compared(searches, WRONG, samples=MANY // 4)).table,
        }
        lines = read_lines(exact / "pool.jsonl")
    right = np.array([round(sum(line["right"])) for line in lines])
    by = {q: {label(r.strategy, r.size): [r.tokens, r.accuracy] for r in t.rows} for q, t in tables.items()}
    return {"problems": len(right), "samples": MANY, "right": right.tolist(), "strategies": by,
            "plans": _dares(right, MANY, PROFILED // 2)}


# a verifier that does not help ----------------------------------------------------------------------------------------


def verdicts() -> dict[str, Any]:
    """For budgets of 1 to 128 samples: the policy that is best on the development half, and what is said of it.

    Only means over problems are public, so the interval of a gain is that of two independent means, with the level
    shared out among the policies that the budget pays for.
    """
    data = json.loads((DATA / "gpqa_verification.json").read_text(encoding="utf-8"))
    rows = [dict(zip(data["columns"], row, strict=True)) for row in data["rows"]]
    one, P = rows[0], data["problems"]
    out: list[dict[str, Any]] = []
    for budget in (1, 2, 4, 8, 16, 32, 64, 128):
        fits = [r for r in rows if r["dev_tokens"] <= budget * one["dev_tokens"] * 1.02]
        best = min(fits, key=lambda r: r["dev_error"])
        gain = one["dev_error"] - best["dev_error"]
        spread = sum(x["dev_error"] * (1 - x["dev_error"]) for x in (one, best))
        reach = student(1 - 0.1 / len(fits), P - 1) * (spread / P) ** 0.5 if best is not one else 0.0
        told = Interval(gain, gain - reach, gain + reach, 0.9, "confidence", P - 1)
        said = "one" if best is one else decide(told)
        out.append({"budget": budget, "policies": len(fits), "best": f"{best['policy']} {best['generations']}",
                    "gain": gain, "reach": reach, "said": said, "later": one["test_error"] - best["test_error"]})
    return {"source": data["source"], "budgets": out}


# simulated studies ----------------------------------------------------------------------------------------------------


def _population(rng: np.random.Generator) -> dict[str, float]:
    """Problems with logit-normal pass rates, and a scorer that is wrong on a share of samples or of answers."""
    return {"centre": rng.normal(-0.5, 1.0), "sd": rng.uniform(1, 2.5), "wrong": rng.choice([0.0, 0.15, 0.3, 0.45]),
            "shared": rng.uniform(0, 0.8), "few": rng.uniform(0.03, 0.3)}


def _sampled(world: Mapping[str, float], problems: int, samples: int, rng: np.random.Generator) -> Pool:
    shape, kinds = (problems, samples), 30
    p = 1 / (1 + np.exp(-(world["centre"] + world["sd"] * rng.normal(size=problems))))
    right = rng.random(shape) < p[:, None]
    wrong = np.array([rng.choice(kinds, samples, p=rng.dirichlet(np.full(kinds, world["few"]))) for _ in p])
    answer = np.where(right, 0, 1 + wrong)
    by_answer = np.take_along_axis(rng.random((problems, kinds + 1)) < world["wrong"], answer, 1)
    flip = np.where(rng.random(shape) < world["shared"], by_answer, rng.random(shape) < world["wrong"])
    tokens = rng.poisson(40, shape) + rng.poisson(20, problems)[:, None]
    return Pool(tuple(map(str, range(problems))), right.astype(float), (right ^ flip).astype(float), answer, tokens,
                exact=bool(world["wrong"] == 0))


def simulated() -> dict[str, Any]:
    """Whole studies: does the interval hold, and what does the choice cost against the best candidate known."""
    with Processes(WORKERS) as some:
        found = some.map(_study, range(STUDIES), chunksize=5)
    loss = np.array([x["loss"] for x in found])
    return {
        "studies": STUDIES, "held": float(np.mean([x["held"] for x in found])),
        "verdicts": {v: sum(x["verdict"] == v for x in found) for v in ("hit", "miss", "uninformative", "cannot tell")},
        "loss": float(loss.mean()), "within": float((loss <= LOSS).mean()), "worst": float(loss.max()),
        "optimism": float(np.mean([x["said"] - x["true"] for x in found])),
        "naive_optimism": float(np.mean([x["naive"] - x["true"] for x in found])),
        "decisions": {d: sum(x["decision"] == d for x in found) for d in ("more", "one", "cannot tell", "bands")},
        "dares": [sum(x["decision"] in ("more", "bands") for x in found if x["exact"]), sum(x["exact"] for x in found)],
        "list": found,
    }


def _study(number: int) -> dict[str, Any]:
    rng = np.random.default_rng([7, number])
    world, budget = _population(rng), float(rng.choice([2.5, 4, 8, 16, 28]))
    pool = _sampled(world, PROBLEMS, SAMPLES, rng)
    large = _sampled(world, TRUE, SAMPLES, np.random.default_rng([8, number]))
    split = parts(pool, probe=4, bands=3, least=10, seed=number)
    plan = prescribe(split, possible(pool), AnswerGoal.of(f"{budget}-rollouts/answer", None, None, None), number)
    judged = outcome(seal(plan, split, number, {}), split, number)
    best, got = _truth(plan, large, budget)
    return {"decision": "bands" if len(plan.each) > 1 else plan.decision, "budget": budget, "label": plan.label,
            "exact": pool.exact, "said": plan.expected.value, "naive": plan.best.accuracy, "true": got,
            "loss": best - got, "held": judged.verdict in ("hit", "uninformative"), "verdict": judged.verdict}


def _truth(plan: StrategyPlan, large: Pool, budget: float) -> tuple[float, float]:
    """(the accuracy of the best candidate within the budget, that of the prescription), on many problems."""
    rest = large.columns(4, large.samples)
    order = orders(rest, 0)

    def accuracy(b: BandStrategy) -> ndarray:
        return rest.right.mean(1) if b.size == 1 else measure(rest, b.strategy, b.size, order).accuracy

    sizes = sorted({k for k in SIZES if 1 < k <= budget} | {int(budget)})
    best = max(rest.right.mean(), *(measure(rest, s, k, order).accuracy.mean() for s in possible(rest) for k in sizes))
    if len(plan.each) == 1:
        return float(best), float(accuracy(plan.each[0]).mean())
    told = statistic(large.score[:, :4], None) if large.score is not None else None
    assert told is not None
    band, begun = np.digitize(told, plan.edges), orders(large, 0, 4)
    each = np.array([measure(large, b.strategy, b.size, begun, 4).accuracy for b in plan.each])
    return float(best), float(each[band, np.arange(TRUE)].mean())


MAKE = {"counts": counts, "verdicts": verdicts, "builtin": builtin, "simulated": simulated}


# the page -------------------------------------------------------------------------------------------------------------


def page(found: Mapping[str, Any]) -> str:
    """The page, from the parts of the record that are there."""
    lack = [f"Not measured yet: `python experiments/test_time.py {name}`.\n" for name in SECTIONS if name not in found]
    text = "\n".join([HEAD, *(make(found[name]) for name, make in SECTIONS.items() if name in found), *lack])
    return "\n\n".join(map(_wrapped, text.replace(" |\n\n\n", " |\n\n").split("\n\n")))


def _wrapped(part: str) -> str:
    """A paragraph in lines of at most 120 characters; tables and headings as they are."""
    if part.lstrip()[:1] in ("|", "#", ""):
        return part
    end = "\n" if part.endswith("\n") else ""
    return textwrap.fill(" ".join(part.split()), 120, break_long_words=False, break_on_hyphens=False) + end


HEAD = """# How far plans of test-time strategies can be trusted

`python experiments/test_time.py page` writes this page from `experiments/results/test_time.json`; each part names its
command. Missed targets are marked. Terms are in the [glossary](glossary.md);
[Think longer instead of training](test_time.md) has the commands.
"""


def _met(holds: bool) -> str:
    return "met" if holds else "**missed**"


def _counts(part: Mapping[str, Any]) -> str:
    models = part["models"]
    near = [f"{m} to {k}" for m, k in FORECASTS]
    rows = [[name, *(f"{own[k]['error']:.3f}, {own[k]['held']:.0%}" for k in near),
             f"{min(p['more'] for p in own['plans'].values())}", f"{max(p['loss'] for p in own['plans'].values()):.3f}"]
            for name, own in models.items()]
    told = []
    for k in near:
        error, held = [m[k]["error"] for m in models.values()], [m[k]["held"] for m in models.values()]
        out = [f"{n} ({h:.0%})" for n, h in zip(models, held, strict=True) if not 0.85 <= h <= 0.95]
        told.append([k, f"{np.mean(error):.3f}", _met(np.mean(error) <= 0.045), f"{max(error):.3f}",
                     _met(max(error) <= 0.09), f"{np.mean(held):.0%}", _met(0.85 <= np.mean(held) <= 0.95),
                     ", ".join(out) or "none"])
    least = min(p["more"] for m in models.values() for p in m["plans"].values())
    loss = max(p["loss"] for m in models.values() for p in m["plans"].values())
    return f"""## Public counts: pass@k beyond the samples

{part["source"]}. {DRAWS} draws of samples for each of {len(models)} models; pass@k of the same problems at 4 times the
samples. Targets: an error of at most 0.045 in the mean and 0.09 for the worst model, and 90 % intervals that hold in 85
to 95 %. A power law in k had 0.043 and 0.045.

{markdown_table(["samples to k", "mean error", "", "worst model", "", "held", "", "models outside 85 to 95 %"], told)}
By model: error and share of intervals that hold; then, with {PROFILED} samples profiled and the verifier as scorer, in
how many of {DRAWS} draws more than one sample is prescribed at budgets of 2.5 to 256 samples (the least over budgets;
target {SHOWN}: {_met(least >= SHOWN)}), and what the choice costs against the best size (the largest mean over budgets;
target {LOSS}: {_met(loss <= LOSS)}).

{markdown_table(["model", *near, "dares", "cost of the choice"], rows)}
`{part["command"]}`
"""


def _verdicts(part: Mapping[str, Any]) -> str:
    rows = [[b["budget"], b["policies"], b["best"], f"{b['gain']:+.3f} ± {b['reach']:.3f}",
             {"one": "one sample", "more": "**more**"}.get(b["said"], b["said"]), f"{b['later']:+.3f}"]
            for b in part["budgets"]]
    heads = ["samples paid for", "policies", "best on the development half", "gain there", "said",
             "gain on the test half"]
    source = part["source"][0].upper() + part["source"][1:]
    ok = all(b["said"] in ("one", "cannot tell") for b in part["budgets"])
    return f"""## A verifier that does not help

{source}. Majority stays at an error of one half from 1 to 256 samples. Target: "one sample" or "cannot tell" at
every budget up to 128 samples: {_met(ok)}. Only means over 32 problems are public, so the intervals are wide; with
them a gain below about 0.3 is not detectable.

{markdown_table(heads, rows)}
`{part["command"]}`
"""


def _builtin(part: Mapping[str, Any]) -> str:
    plans = part["plans"]
    rows = [[k, p["more"], f"{p['loss']:.3f}", f"{p['worst']:.3f}", f"{p['best']:.3f}"]
            for k, p in sorted(plans.items(), key=lambda x: float(x[0]))]
    least, loss = min(p["more"] for p in plans.values()), max(p["loss"] for p in plans.values())
    exact, wrong = part["strategies"]["0"], part["strategies"]["0.15"]
    order = sorted(set(exact) & set(wrong), key=lambda name: (name.rpartition("-")[0], exact[name][0]))
    both = [[name, f"{exact[name][0]:,.0f}", f"{exact[name][1]:.3f}", f"{wrong[name][1]:.3f}"] for name in order
            if not name.endswith(("-2", "-8"))]
    heads = ["samples paid for", f"of {DRAWS} draws: more than one", "mean cost", "worst", "pass@n of the best"]
    return f"""## The built-in puzzles with their exact checker

{part["problems"]} problems, {part["samples"]} samples each; {DRAWS} draws of {PROFILED // 2} samples. More than one
sample in {SHOWN} of {DRAWS} draws at every budget: {_met(least >= SHOWN)}. Cost of the choice at most {LOSS}:
{_met(loss <= LOSS)}.

{markdown_table(heads, rows)}
Accuracy by strategy on the validation split, with the step checker right, and wrong on 15 % of the texts:

{markdown_table(["strategy", "tokens an answer", "checker right", "wrong on 15 %"], both)}
`{part["command"]}`
"""


def _simulated(part: Mapping[str, Any]) -> str:
    d, v = part["decisions"], part["verdicts"]
    rows: Sequence[Sequence[str]] = [
        ["90 % intervals that hold", "85 to 95 %", f"{part['held']:.1%}", _met(0.85 <= part["held"] <= 0.95)],
        [f"studies whose choice costs at most {LOSS}", "90 %", f"{part['within']:.1%}", _met(part["within"] >= 0.9)],
        ["accuracy stated minus true, mean", "within 0.005", f"{part['optimism']:+.4f}",
         _met(abs(part["optimism"]) <= 0.005)],
        ["exact scorer: more than one sample prescribed", "90 %", "{} of {}".format(*part["dares"]),
         _met(part["dares"][0] >= 0.9 * part["dares"][1])],
    ]
    return f"""## Simulated studies

{part["studies"]} studies of {PROBLEMS} problems and {SAMPLES} samples, at budgets of 2.5 to 28 samples. Scorers are
wrong on 0, 15, 30 or 45 % of the samples, in part alike for all samples with one answer.

{markdown_table(["what", "target", "measured", ""], rows)}
The chosen strategy's own mean is {part["naive_optimism"]:+.4f} from the truth, and the worst choice costs
{part["worst"]:.3f}. Decisions: more {d["more"]}, one {d["one"]}, cannot tell {d["cannot tell"]}, by band {d["bands"]}.
Verdicts: hit {v["hit"]}, miss {v["miss"]}, uninformative {v["uninformative"]}.

`{part["command"]}`
"""


SECTIONS = {"counts": _counts, "verdicts": _verdicts, "builtin": _builtin, "simulated": _simulated}


if __name__ == "__main__":
    main()
