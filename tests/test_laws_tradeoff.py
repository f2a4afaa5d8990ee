"""n against B at one batch: n*(M) and B*(M) where they are identified, the best n where not, and never pooled."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

import law_truths as simulated
from isocost.cli.commands import main
from isocost.errors import UserError
from isocost.laws import fit_law
from isocost.laws.curves import curves
from isocost.planner.budget import Budget, Timing
from isocost.planner.training.afford import plan_pilot
from isocost.planner.training.learning_rate import given
from isocost.planner.training.pilot import PilotPlan
from isocost.planner.training.prescribe import prescribe
from isocost.runs.arm import Arm
from isocost.stats.forms import SIGMOID
from isocost.steps.training.fit import _traded
from test_laws_audit import forecast, judged, trained

BATCH, R0, END = 256, 0.3, 8192.0
NS = (2, 4, 8, 16, 32, 64)
PROFILE = {
    "samples": 16, "right": [3] * 100 + [8] * 100 + [0] * 20, "parameters": 1e5, "select": 128, "audit": 128,
    "exact": True, "rate": {"rollouts_per_second": 8000.0}, "cost": {"rollouts": 100, "prefill": 600, "decode": 300},
}


def easy(n, C):
    """Larger n later and higher, up to about 16."""
    x = np.log2(n)
    return SIGMOID.f(C, R0, 0.92 - 0.02 * (x - 4.0) ** 2, 30 * 2 ** (1.2 * x), 1.5)


def hard(n, C):
    """Large n early, larger B in the middle, large n again: back and forth, as on the paper's hard set."""
    where = {16: 400.0, 2: 1800.0, 64: 8000.0}.get(n)
    lead = 0.0 if where is None else 0.12 * np.exp(-(np.log(C / where) ** 2))
    return SIGMOID.f(C, R0, 0.6, 1000.0, 1.0) + lead - 0.05


def pilot(truth, ns=NS, batch=BATCH, sd=0.002, **changes):
    C, rng, out = np.geomspace(256, END, 9), np.random.default_rng(0), []
    for n in ns:
        for seed in range(3):
            luck = sd * (rng.normal() + rng.normal(size=len(C))) / np.sqrt(2)
            y = np.concatenate([[R0], truth(n, C) + luck])
            C0 = np.concatenate([[0], C])
            out.append(simulated.curve(n, seed, C0, y, y, **{"B": batch // n if batch else 16, **changes}))
    return out


def test_n_rises_and_B_falls_along_updates():
    law = fit_law(pilot(easy), draws=60)
    x = np.linspace(1, 6, 2001)
    for M in (2, 6, 15, 32):
        best, n = 2 ** x[easy(2**x, M * BATCH).argmax()], law.n_star.at(M * BATCH)
        assert abs(np.log2(n.value / best)) < 0.5 and n.low <= n.value <= n.high
    first, last = _traded(law)
    assert [row.name for row in (first, last)] == [f"after {k} updates of n B = 256" if k > 1 else
                                                   "after 1 update of n B = 256" for k in (1, 32)]
    for row, C in ((first, 256), (last, END)):
        n = law.n_star.at(C)
        assert row.text == (f"n* = {n.value:.1f} [{n.low:.1f}, {n.high:.1f}] and B* = {256 / n.value:.1f} "
                            f"[{256 / n.high:.1f}, {256 / n.low:.1f}] (90%)")


def test_on_a_hard_set_no_rising_sigmoid_is_fitted_and_the_winners_are_shown():
    why, path = _traded(fit_law(pilot(hard), draws=60))
    assert why.text.startswith("n*(M) at n B = 256 is not identified: the best n is not monotone in C")
    assert path.text.startswith("n=16, B=16 to 2 updates, then n=2, B=128 to ")


def test_sweeps_at_one_B_and_at_one_batch_are_never_pooled():
    fixed_B, fixed_batch = pilot(easy, batch=0, lr=1e-3), pilot(easy)
    with pytest.raises(UserError, match=r"two runs are called n16-s0.*fit them separately|two runs are called n2-s0"):
        fit_law([*fixed_B, *fixed_batch], draws=20)
    with pytest.raises(UserError, match=r"n=2 but B=(16|128).* B=(16|128).*a law needs one B"):
        fit_law([*fixed_B, *(replace(c, run=f"{c.run}-batch", seed=c.seed + 9) for c in fixed_batch)], draws=20)
    apart = [c for c in fixed_B if c.arm["n"] < 16] + [c for c in fixed_batch if c.arm["n"] > 16]
    with pytest.raises(UserError, match="one B for all n, or one n B; fit them separately"):
        fit_law(apart, draws=20)


# planning one -------------------------------------------------------------------------------------------------


def planned(**asked):
    return plan_pilot(PROFILE, timing=Timing(0.003, 0.0, 0.0002, 0.05, "for the test"), **asked)


def test_a_fixed_batch_has_equal_updates_and_one_rate():
    p = planned(preset="quick", batch=128)
    assert p.batch == 128 and p.unit == 128 and p.C % 128 == 0
    grid = p.of_purpose("pilot")
    assert {(r.n, r.B) for r in grid} == {(2, 64), (4, 32), (8, 16), (16, 8), (32, 4)}
    assert len({r.M for r in grid}) == 1 and len({r.lr(given(1e-3, 256)) for r in p.runs if r.multiplier == 1}) == 1
    assert "n B = 128, 48 updates each" in p.why
    assert PilotPlan.of(json.loads(json.dumps(p.data()))) == p
    old = {k: v for k, v in planned(preset="quick").data().items() if k != "batch"}
    assert PilotPlan.of(old).batch is None, "plans written before still read"


@pytest.mark.parametrize(("asked", "said"), [
    ({"batch": 100}, "multiple of 16"), ({"batch": 0}, "multiple of 16"),
    ({"batch": 128, "B": 4}, "cannot both be fixed"), ({"batch": 16, "grid": (16, 32, 64)}, "fewer than two n"),
])
def test_a_batch_that_cannot_be_fixed_is_refused(asked, said):
    with pytest.raises(UserError, match=said):
        planned(**asked)


@pytest.mark.parametrize("text", ["50k-rollouts", "1M-rollouts", "2h", "2k-rollouts"])
def test_a_budget_holds_at_a_fixed_batch_and_the_prescription_keeps_it(text):
    budget = Budget.parse(text)
    p = planned(preset="quick", batch=64, budget=budget)
    assert p.bill.of_unit(budget.unit) <= budget.amount * (1 + 1e-9)
    assert all(r.n * r.B == 64 for r in p.runs)
    made = prescribe(None, given(1e-3, 256), budget, p.timing, pilot=p, problems=300)
    assert all(a.n * a.B == 64 and a.C == a.M * 64 for a in made.arms) and all(r.n * r.B == 64 for r in made.runs)
    assert made.bill.of_unit(budget.unit) <= budget.amount


def test_an_audit_takes_a_comparator_of_the_same_batch():
    """The forecast is of n = 4, B = 8; n = 8 beside it has the B that is sealed. Seals of earlier versions have none:
    it is then 8, or 4 at one n B, and no other."""
    ends = {c.run: c for c in trained((0.88, 0.9, 0.92))}
    old, batch = forecast(comparator=Arm(n=8), seal_version=2), forecast(comparator=Arm(n=8, B=4))
    for B, holds in ((8, (forecast(), old)), (4, (batch, old)), (16, ())):
        curves_ = [replace(c, arm=c.arm.but(B=B)) if c.arm["n"] == 8 else c for c in ends.values()]
        for sealed in (forecast(), batch, old):
            if sealed in holds:
                assert judged(sealed, curves_).verdict == "hit"
            else:
                with pytest.raises(UserError, match=f"was run at n = 8, B = {B}"):
                    judged(sealed, curves_)
    with pytest.raises(UserError, match="was run at n = 4, B = 4"):
        judged(forecast(), [replace(c, arm=c.arm.but(B=4)) if c.arm["n"] == 4 else c for c in ends.values()])


def said(*args, code=0):
    done = CliRunner().invoke(main, [str(a) for a in args])
    assert done.exit_code == code, (args, done.output, done.exception)
    return done.output


def test_a_real_study_trades_n_for_B_and_fits_another_metric(tmp_path, ran):
    """A pilot at n B = 16, its law and plan; then the same by best@4, until a forecast is sealed."""
    out = tmp_path / "study"
    said("profile", "--out", out, "--data", "sums:base=easy,count=240", "--problems", "20")
    assert "n B = 16" in said("plan", out, "--size", "tiny", "--fixed-batch", 16)
    ran("pilot", out, "--workers", 1)
    assert {(c.arm["n"], c.arm["B"]) for c in curves(out)} == {(2, 8), (4, 4), (8, 2)}
    assert "only --budget" in said("plan", out, "-B", 1, code=2), "a study never holds both sweeps"
    text = said("fit", out)
    assert "n*(M) at n B = 16" in text or "updates of n B = 16" in text or "law: not identified" in text
    assert "trades n against B" in text
    first = json.loads((out / "law.json").read_text())
    assert first["metric"] == "pass@1"
    assert "law of best@4" in said("fit", out, "--metric", "best@4")
    best = json.loads((out / "law.json").read_text())
    assert best["metric"] == "best@4" and best["R0"][0] > first["R0"][0]
    assert any(f["name"] == "metric" for f in best["flags"])
    assert "of best@4: such values were found hard to predict" in " ".join(said("plan", out).split())
    assert "not best@8" in said("fit", out, "--metric", "best@8", code=2)
    assert json.loads((out / "law.json").read_text())["metric"] == "best@4", "what is not there changes nothing"
    plan = json.loads((out / "plan.json").read_text())
    assert all(a["n"] * a["B"] == 16 for a in plan["arms"])
    (out / "forecast.json").write_text("{}")
    assert "sealed for best@4" in said("fit", out, "--metric", "pass@1", code=2)
