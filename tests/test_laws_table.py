"""Curves from run folders: what is read, what is refused, when a run has diverged."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from isocost.errors import UserError
from isocost.laws import Curve, curves
from isocost.laws.curves import attempts_of, diverged, multiplier
from isocost.runs.arm import Arm


def write(folder: Path, name: str, rewards: list[float], *, end: dict | None = None, torn: str = "",
          schema: int = 1, **arm: object) -> Path:
    run = folder / "runs" / name
    run.mkdir(parents=True)
    (run / "run.json").write_text(json.dumps({
        "schema": schema, "name": name, "purpose": "pilot", "seed": arm.pop("seed", 0),
        "problems": {"spec": "sums", "train": 700, "select": 128, "audit": 128},
        "arm": {"n": 8, "B": 16, "lr": 1e-3, "multiplier": 1.0, "warmup": 1, "M": 10, **arm}}))
    lines, clock = [], []
    for k, reward in enumerate(rewards):
        lines.append({"step": k, "rollouts": 128 * k, "reward": 0.1})
        lines.append({"step": k, "rollouts": 128 * k, "eval/select": reward, "eval/audit": reward / 2, "epoch": k / 4})
        clock.append({"step": k, "seconds": 1.5 * k})
    (run / "metrics.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines) + torn)
    (run / "timing.jsonl").write_text("".join(json.dumps(x) + "\n" for x in clock))
    if end:
        (run / "end.json").write_text(json.dumps(end))
    return run


def test_a_study_is_read_in_a_fixed_order(tmp_path):
    write(tmp_path, "b", [0.3, 0.4, 0.5], n=8, seed=1)
    write(tmp_path, "a", [0.3, 0.5, 0.6], n=16, seed=0)
    write(tmp_path, "c", [0.3, 0.4, 0.5], n=8, seed=0)
    found = curves(tmp_path)
    assert [c.run for c in found] == ["c", "b", "a"]
    assert found == sorted(found, key=lambda c: (c.arm["n"], c.arm["B"], c.seed, c.run))
    first = found[0]
    assert first.arm.only("n", "B", "lr") == {"n": 8, "B": 16, "lr": 1e-3}
    assert first.purpose == "pilot" and multiplier(first) == 1.0
    assert first.C.tolist() == [0, 128, 256]
    assert first.select.tolist() == [0.3, 0.4, 0.5] and first.audit.tolist() == [0.15, 0.2, 0.25]
    assert first.seconds.tolist() == [0, 1.5, 3.0] and first.epochs.tolist() == [0, 0.25, 0.5]
    listed = curves([tmp_path / "runs" / name for name in ("a", "b", "c")])
    assert [c.run for c in listed] == ["c", "b", "a"]


def test_metrics_cut_short_of_their_end_are_refused(tmp_path):
    """Three steps, of which the last loses its line."""
    spent = {"reason": "spent", "steps": 3}
    write(tmp_path, "a", [0.3, 0.4, 0.5], end=spent)
    assert len(curves(tmp_path)[0].C) == 3
    path = tmp_path / "runs" / "a" / "metrics.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-2]))
    with pytest.raises(UserError, match=r"a/metrics\.jsonl holds 2 steps, and end.json records 3"):
        curves(tmp_path)
    (path.parent / "end.json").write_text(json.dumps(spent | {"reason": "interrupted"}))    # it may go on from before
    assert len(curves(tmp_path)[0].C) == 2


def test_a_run_without_an_evaluation_is_left_out(tmp_path):
    write(tmp_path, "a", [0.3, 0.4])
    write(tmp_path, "b", [])
    assert [c.run for c in curves(tmp_path)] == ["a"]


def test_what_is_not_a_record_is_named(tmp_path):
    with pytest.raises(UserError, match="contains no runs"):
        curves(tmp_path)
    with pytest.raises(UserError, match="not a run record"):
        curves([tmp_path])
    write(tmp_path, "a", [0.3], schema=3)
    with pytest.raises(UserError, match="schema 3; this isocost reads up to 2"):
        curves(tmp_path)


def test_missing_clock_is_not_a_number(tmp_path):
    run = write(tmp_path, "a", [0.3, 0.4])
    (run / "timing.jsonl").unlink()
    assert all(math.isnan(s) for s in curves(tmp_path)[0].seconds)


def test_diverged_by_its_end_or_by_three_standard_errors(tmp_path):
    """256 held-out problems at reward .45: the standard error is .0311, so .45 to .36 stays and .45 to .33 does not."""
    def of(last: float) -> Curve:
        values = np.array([0.45, 0.46, last])
        return Curve("r", Arm(n=64, B=16, lr=1e-3), 0, np.array([0, 1, 2]), values, values, np.zeros(3), np.zeros(3))
    assert not diverged(of(0.36), 256)
    assert diverged(of(0.33), 256)
    assert not diverged(of(0.33), 100)          # fewer problems, a wider error
    write(tmp_path, "a", [0.4, 0.5], end={"reason": "diverged"})
    write(tmp_path, "b", [0.4, 0.5], end={"reason": "spent"}, seed=1)
    assert [c.diverged for c in curves(tmp_path)] == [True, False]


def test_a_curve_is_sorted_and_checked():
    ones = np.ones(2)
    curve = Curve("r", Arm(n=2, B=4, lr=1e-3), 0, [5, 0], [0.5, 0.3], [0.4, 0.2], [1, 0], [1, 0])
    assert curve.C.tolist() == [0, 5] and curve.select.tolist() == [0.3, 0.5]
    for split in ("select", "audit"):
        for value, says in ((1.5, rf"{split} reward 1.5 is outside \[0, 1\]"),
                            (math.nan, f"its evaluation at 5 rollouts has no {split} reward")):
            with pytest.raises(UserError, match=says):
                Curve("r", Arm(n=2, B=4, lr=1e-3), 0, [0, 5], **{"select": ones, "audit": ones, split: [0.5, value]},
                      seconds=ones, epochs=ones)
    with pytest.raises(UserError, match="equal length"):
        Curve("r", Arm(n=2, B=4, lr=1e-3), 0, [0, 5], [0.5], ones, ones, ones)
    with pytest.raises(UserError, match="no evaluation"):
        Curve("r", Arm(n=2, B=4, lr=1e-3), 0, [], [], [], [], [])


def with_metrics(folder: Path, name: str, **values: list[float]) -> Path:
    """A run whose evaluations hold more than pass@1; training reward rises by a tenth a step."""
    run = write(folder, name, [0.3, 0.4, 0.5], end={"reason": "spent"})
    lines = [json.loads(x) for x in (run / "metrics.jsonl").read_text().splitlines()]
    for k, line in enumerate(x for x in lines if "eval/select" in x):
        for metric, row in values.items():
            line |= {f"eval/{side}/{metric.replace('_', '@')}": row[k] for side in ("select", "audit")}
    for k, line in enumerate(x for x in lines if "reward" in x):
        line["reward"] = 0.1 * (k + 1)
    (run / "metrics.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    return run


def test_a_curve_is_of_the_metric_asked_for_and_of_pass_at_1_unless_asked(tmp_path):
    with_metrics(tmp_path, "a", best_4=[0.6, 0.5, 0.1], worst_4=[0.1, 0.2, 0.3])
    assert curves(tmp_path)[0].select.tolist() == [0.3, 0.4, 0.5] and curves(tmp_path)[0].metric == "pass@1"
    best = curves(tmp_path, "best@4")[0]
    assert best.select.tolist() == best.audit.tolist() == [0.6, 0.5, 0.1] and best.metric == "best@4"
    assert not best.diverged        # a run diverges by its pass rate: sharpening may lower best@k
    with pytest.raises(UserError, match="have pass@1, best@4, worst@4, but not best@8"):
        curves(tmp_path, "best@8")
    with pytest.raises(UserError, match="unknown metric 'best4'; expected pass@1, best@k"):
        curves(tmp_path, "best4")
    write(tmp_path, "old", [0.3, 0.4], seed=1)
    with pytest.raises(UserError, match="old: its evaluations have pass@1, but not best@4; best@4 needs exact"):
        curves(tmp_path, "best@4")


def test_a_metric_is_of_so_many_attempts():
    assert [attempts_of(x) for x in ("pass@1", "best@4", "worst@16")] == [1, 4, 16]
    for wrong in ("best@0", "pass@4", "mean", "best@4.5"):
        with pytest.raises(UserError, match="unknown metric"):
            attempts_of(wrong)


def test_training_reward_is_the_mean_between_evaluations(tmp_path):
    """A step's line stands before the evaluation after it: steps 0, 1, 2 earn .1, .2, .3."""
    found = curves([with_metrics(tmp_path, "a")])[0]
    assert found.train.tolist() == pytest.approx([0.1, 0.2, 0.3])
    assert (found.problems, found.samples) == (256, None)
    run = write(tmp_path, "b", [0.3, 0.4])
    run.joinpath("metrics.jsonl").write_text("".join(
        json.dumps({"step": k, "rollouts": k, "eval/select": 0.3, "eval/audit": 0.3, "eval/exact": False,
                    "eval/samples": 6}) + "\n" for k in (0, 1)))
    assert curves([run])[0].train is None and curves([run])[0].samples == 6
