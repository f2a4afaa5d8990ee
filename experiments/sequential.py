"""Sequential search against parallel samples at equal tokens, and where accuracy saturates: records of the puzzles.

    python experiments/sequential.py equal        backtracking against best-of, and best-first search against a vote
    python experiments/sequential.py saturation   F (1 - (1 - p)^N) fitted to few samples, per problem and for the set

Each writes a part of experiments/results/sequential.json, from the built-in base and the held-out puzzles. The parallel
strategy has as many samples as the tokens of the sequential one pay for, in each band by itself. Bands are of the pass
rate in samples that nothing else uses; kinds are those of the puzzles. Intervals are Student's at 90 %, paired over
problems, and nothing was chosen by the outcome.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray
from scipy.optimize import curve_fit

import made_with
from isocost import scorers, strategies
from isocost.gather import finished
from isocost.stats.passk import pass_at
from isocost.steps.look.evaluate import mean_over
from isocost.steps.settings import setting_of
from isocost.steps.test_time.sampling import PoolSampler
from isocost.strategies.backtrack import matched
from isocost.types import Problem
from isocost.worlds.setting import open_setting

RECORD = Path(__file__).resolve().parent / "results" / "sequential.json"
PARTS = ("strategies", "scorers/steps.py", "scorers/__init__.py", "tasks/builtin")
SEED, POOL, BANDS = 0, 16, ((0.0, 0.1), (0.1, 0.5), (0.5, 1.01))
# sequential, the parallel one of as many tokens, and the scorer
PAIRS = (("backtrack:n=16,scorer=({s})", "best-of:n={n},scorer=({s})", "steps"),
         ("backtrack:n=16,scorer=({s})", "best-of:n={n},scorer=({s})", "steps:wrong=0.15"),
         ("bfs:n=16", "vote:n={n}", ""))
MANY, FEW, LATER = 256, 16, 128         # samples in all, samples that are fitted, and N that is forecast


def main() -> None:
    """Run one of the commands."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=MAKE)
    what = parser.parse_args().what
    opened = open_setting(setting_of({"data": "puzzles"}), check=True, learn=False)
    problems = [*opened.sides.select, *opened.sides.audit]
    with tempfile.TemporaryDirectory() as folder:
        made = MAKE[what](lambda seed: PoolSampler(opened, problems, seed, lambda *_: None), problems, Path(folder))
    opened.close()
    kept = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    kept[what] = {"command": f"python experiments/sequential.py {what}", "problems": len(problems), **made}
    RECORD.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    made_with.note(RECORD, PARTS)


def equal(sampler: Any, problems: Sequence[Problem], folder: Path) -> dict[str, Any]:
    """The difference of accuracy at equal tokens, over all problems and within each band and kind."""
    rates = _pool(sampler(9), folder / "rates.jsonl", POOL).mean(1)
    groups = {"all": np.ones(len(problems), dtype=bool)}
    groups |= {f"pass rate {low:g} to {min(high, 1):g}": (low <= rates) & (rates < high) for low, high in BANDS}
    kinds = [p.id.partition("-")[0] for p in problems]
    groups |= {kind: np.array([k == kind for k in kinds]) for kind in sorted(set(kinds))}

    def ran(spec: str, mine: ndarray = groups["all"]) -> tuple[ndarray, ndarray]:
        """Accuracy and tokens written an answer, of some of the problems."""
        some = replace(sampler(SEED), problems=[p for p, is_in in zip(problems, mine, strict=True) if is_in])
        lines = finished(some.live(folder / f"{len(list(folder.iterdir()))}.jsonl", strategies.parse(spec), spec, 0))
        right, tokens = (np.array([x[k] for x in lines]) for k in ("right", "tokens"))
        return right, tokens

    one, direct = ran("one")
    out = {}
    for sequential, parallel, scorer in PAIRS:
        spec = sequential.format(s=scorer)
        right, tokens = ran(spec)
        out[spec] = {}
        for name, mine in groups.items():
            n = max(matched(tokens[mine].mean(), direct[mine].mean()), 1)
            other, spent = ran(parallel.format(s=scorer, n=n), mine)
            gain = mean_over(right[mine] - other)
            out[spec][name] = {
                "problems": int(mine.sum()), "one": float(one[mine].mean()), "accuracy": float(right[mine].mean()),
                "tokens": float(tokens[mine].mean()), "parallel": parallel.format(s=scorer, n=n),
                "parallel_accuracy": float(other.mean()), "parallel_tokens": float(spent.mean()),
                "difference": gain.value, "low": gain.low, "high": gain.high}
    return {"pairs": out}


def saturation(sampler: Any, problems: Sequence[Problem], folder: Path) -> dict[str, Any]:
    """Forecasts of pass@N from the first samples, against all samples."""
    right = _pool(sampler(5), folder / "pool.jsonl", MANY)
    hits, few = right.sum(1).astype(int), right[:, :FEW].sum(1).astype(int)
    truth, single = pass_at(hits, MANY, LATER), 1 - (1 - few / FEW) ** LATER
    each = np.array([pass_at(np.array([h]), MANY, LATER) for h in hits])
    seen = np.array([pass_at(few, FEW, k) for k in range(1, FEW + 1)])
    found, _ = curve_fit(lambda n, f, p: f * (1 - (1 - p) ** n), np.arange(1, FEW + 1), seen, p0=(0.8, 0.3),
                         bounds=((0, 1e-4), (1, 1)))
    cast = float(found[0] * (1 - (1 - found[1]) ** LATER))
    inside = (few > 0) & (few < FEW)
    return {
        "fitted": FEW, "forecast_at": LATER, "truth": float(truth), "set": {"plateau": float(found[0]),
        "p": float(found[1]), "forecast": cast, "error": cast - float(truth)},
        "per_problem": {"forecast": float(single.mean()), "error": float(single.mean() - truth),
                        "mean_absolute_error": float(np.abs(single - each).mean()), "problems": len(problems)},
        "per_problem_where_some_are_right": {"problems": int(inside.sum()),
                                             "mean_absolute_error": float(np.abs(single - each)[inside].mean())},
        "none_right_in_few": {"problems": int((few == 0).sum()), "truth": float(each[few == 0].mean())},
    }


def _pool(sampler: PoolSampler, file: Path, samples: int) -> ndarray:
    """(P, samples) rewards."""
    return np.array([x["right"] for x in finished(sampler.pool(file, samples, scorers.parse("outcome")))])


MAKE = {"equal": equal, "saturation": saturation}

if __name__ == "__main__":
    main()
