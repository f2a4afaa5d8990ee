"""Per-problem pass rates over training: bins, what was unlearned, how evenly the rest improved; from records alone."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from isocost.laws.interference import by_n, interference, interferences
from isocost.stats.progress import against, bins_of, chance_of_zero, uniformity


def record(folder: Path, name: str, *, n: int = 4, seed: int = 0, purpose: str = "pilot") -> Path:
    run = folder / "runs" / name
    run.mkdir(parents=True)
    (run / "run.json").write_text(json.dumps({
        "schema": 1, "name": name, "purpose": purpose, "seed": seed, "arm": {"n": n, "B": 2, "multiplier": 1.0}}))
    return run


def lines(path: Path, rows: list[dict]) -> None:
    path.write_text("".join(json.dumps(x) + "\n" for x in rows))


def evaluated(run: Path, rates: list[list[float]], **more: object) -> None:
    lines(run / "metrics.jsonl", [
        {"step": k, "rollouts": 100 * k, "eval/select": 0.5, **more,
         **{f"eval/{name}": v for name, v in against(now, rates[0]).items()}} for k, now in enumerate(rates)])


def test_bins_are_sixteenths_and_end_where_rates_do():
    assert bins_of(np.array([0, 0.031, 1 / 32, 0.5, 0.968, 0.97, 1.0, -3.0, 7.0])).tolist() == [
        0, 0, 1, 8, 15, 16, 16, 0, 16]


def test_unlearned_and_learned_by_hand():
    """From 1/16 to below 1/32 is unlearned; a tremble about zero is not; what was not scored is in no count."""
    base = [0.5, 1 / 16, 0.04, 0.0, 0.0, None, 0.5]
    now = [0.0, 0.03, 0.0, 1 / 16, 0.05, 0.9, float("nan")]
    found = against(now, base)
    assert (found["forgotten"], found["learned"]) == (2, 1)
    assert sum(found["histogram"]) == 6 and found["histogram"][0] == 3
    assert found["by_base"][8] == 0.0 and found["by_base"][1] == pytest.approx((0.03 + 0.0) / 2)
    assert found["by_base"][0] == pytest.approx((1 / 16 + 0.05) / 2) and found["by_base"][5] is None


def test_uniformity_by_hand():
    """1 where every bin closes the same share of its distance to 1; w where a share w of the problems does it all."""
    then = [0.0, 0.5, 0.8]
    assert uniformity([0.5, 0.75, 0.9], then, [10, 20, 5]) == pytest.approx(1.0)
    assert uniformity([0.4, 0.5, 0.8], then, [25, 50, 25]) == pytest.approx(0.25)
    # half closes .8, half falls by .4 of it: mean .2, deviations .6: 1 - .6 / .4 < 0
    assert uniformity([0.8, 0.3], [0.0, 0.5], [1, 1]) == 0.0
    assert np.isnan(uniformity([0.0, 0.4], [0.0, 0.5], [1, 1])), "no progress has no evenness"
    assert uniformity([0.5, 0.99], [0.0, 0.99], [1, 99]) == pytest.approx(1.0), "a bin at 1 has no room"
    assert np.isnan(uniformity([None, 1.0], [0.5, 1.0], [1, 1]))


def test_two_runs_of_one_mean_are_distinguished(tmp_path):
    """One lifts all of 40 problems from 1/4 to 1/2, the other solves 15 of them and unlearns 10."""
    base = [0.25] * 20 + [0.5] * 20
    even = [0.25 + 0.75 / 3] * 20 + [0.5 + 0.5 / 3] * 20
    torn = [1.0] * 20 + [0.0] * 10 + [1 / 3] * 10
    assert np.mean(even) == pytest.approx(np.mean(torn) , abs=0.01)
    evaluated(record(tmp_path, "even", n=32), [base, even], **{"eval/exact": True})
    evaluated(record(tmp_path, "torn", n=2), [base, torn], **{"eval/exact": True})
    evaluated(record(tmp_path, "probe", n=2, purpose="probe"), [base, torn])
    found = interferences(tmp_path)
    assert [(x.run, x.n) for x in found] == [("torn", 2), ("even", 32)]
    assert found[0].forgotten.tolist() == [0, 0.25] and found[1].forgotten.tolist() == [0, 0]
    assert found[1].uniformity[-1] == pytest.approx(1.0) and found[0].uniformity[-1] < 0.3
    assert found[0].C.tolist() == [0, 100] and found[0].problems == 40 and found[0].chance == 0.0
    rows = by_n(found)
    assert [r["n"] for r in rows] == [2, 32] and rows[0]["forgotten"] == 0.25 and rows[0]["chance"] == 0.0
    assert found[0].histogram[1][0] == 10 and np.isnan(found[0].by_base[0][0])


def test_records_without_histograms_are_left_out(tmp_path):
    lines(record(tmp_path, "old") / "metrics.jsonl", [{"step": 0, "rollouts": 0, "eval/select": 0.5}])
    assert interferences(tmp_path) == [] and interference(tmp_path / "runs" / "old") is None and by_n([]) == []


def test_what_sampling_alone_would_seem_to_unlearn():
    """Against counting: rates from a Beta, four samples at first, four more later, nothing learned."""
    rng = np.random.default_rng(0)
    p = rng.beta(0.6, 1.5, 20_000)
    first, second = rng.binomial(4, p) / 4, rng.binomial(4, p) / 4
    found = against(second, first)
    bound = chance_of_zero(against(first, first)["histogram"], 4)
    assert bound == pytest.approx(found["forgotten"] / len(p), rel=0.06)
    assert chance_of_zero([1] * 17, None) == 0.0, "exact rates do not tremble"
    assert chance_of_zero([1] * 17, 32) is None, "33 counts do not fit 17 bins"
    assert chance_of_zero([1] * 17, 4) is None, "graded rewards are no counts"
