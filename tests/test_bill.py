"""The bill by hand: of a run's record, of a forecast and its interval; what the audit names; and the sealed bill."""

import json
from dataclasses import replace
from math import exp, log, sqrt

import numpy as np
import pytest
from scipy.stats import t as student_t

from isocost.errors import UserError
from isocost.planner import bill as bills
from isocost.planner.audit import Audit, audit
from isocost.planner.bill import ALL, EVALUATIONS, RUNS, UPDATES, WORK, Bill, BillLine, PaidRun, Stretch
from isocost.planner.budget import Machine
from isocost.planner.evaluation import evaluated
from isocost.planner.forecast import Forecast, _bill_seal, verify_seal
from isocost.runs.files import RunFiles
from isocost.steps.training.spending import priced
from isocost.units import CPU, ENV_STEPS, FLOPS, SECONDS, TOKENS
from test_laws_audit import forecast, trained

P = 1000
NOTHING = dict.fromkeys(("rollouts", "prefill", "decode", "score", "train", "updates", "env_steps", "verify"), 0)


def write_run(folder, name="r", scale=1.0, env=0, clock=True):
    """A run of 2 updates, evaluated at the start, at 16 and at 32 rollouts."""
    home = folder / name
    home.mkdir(parents=True)
    (home / "run.json").write_text(json.dumps({"name": name, "model": {"name": "m", "parameters": P}}))
    train = {**NOTHING, "rollouts": 32, "prefill": 200, "reread": 40, "decode": 100, "train": 260, "score": 10,
             "updates": 2, "env_steps": env, "seconds": 6.0}
    measured = {**NOTHING, "prefill": 30, "decode": 20, "env_steps": env and 5, "seconds": 0.5}
    lost = {**NOTHING, "decode": 7, "seconds": 0.2}
    times = [(0, 0, 1, 0.9, 0, 0, 0, 0.2), (1, 16, 5, 4, 1, 0.5, 1.5, 0.2), (2, 32, 9.7, 7.6, 2, 1, 3, 0.4)]
    names = ("step", "rollouts", "seconds", "cpu", "sample", "score", "learn", "evaluate")
    lines = [dict(zip(names, [*row[:2], *(scale * x for x in row[2:])], strict=True)) for row in times]
    last = lines[-1] | {"seconds": 10.0 * scale, "cpu": 8.0 * scale, "evaluate": 0.5 * scale}
    end = {"reason": "spent", "steps": 2, "seconds": 10.0 * scale, "start_up": 0.5, "evaluation_cpu": 0.4,
           "bill": {"train": train, "evaluation": measured, "lost": lost}, "timing": last}
    if not clock:
        end = {k: v for k, v in end.items() if k in ("reason", "steps", "seconds", "bill")}
        lines = []
    (home / "end.json").write_text(json.dumps(end))
    (home / "timing.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    (home / "metrics.jsonl").write_text("".join(
        json.dumps({"step": k, "rollouts": 16 * k, "eval/select": 0.5}) + "\n" for k in range(3)))
    return RunFiles(home)


def values(bill):
    return {(x.part, x.unit): x.value for x in bill.lines}


def test_a_run_is_billed_part_by_part(tmp_path):
    """Of 10 s with 8 CPU seconds, 2 + 3 + 1 + 0.5 are in accounts: 3.5 are not, 80 % of them the loop's. A token that
    is read again costs no FLOP."""
    found = values(bills.billed([write_run(tmp_path)]))
    times = {"sampling": 2, "learning": 3, "evaluation": 0.5, "grading": 1, "start-up": 0.5, "loop": 2.8,
             "waiting": 0.7, "lost": 0.2, ALL: 10.7}
    flops = {"sampling": 2 * P * 260, "learning": 2 * P * 10 + 6 * P * 260, "evaluation": 2 * P * 50, "lost": 2 * P * 7}
    expected = {(part, SECONDS): x for part, x in times.items()} | {(part, FLOPS): x for part, x in flops.items()} | {
        (ALL, FLOPS): sum(flops.values()), (ALL, CPU): 8, ("evaluation", CPU): 0.4,
        ("sampling", TOKENS): 100, ("evaluation", TOKENS): 20, ("lost", TOKENS): 7, (ALL, TOKENS): 127}
    assert found == pytest.approx(expected)
    of_agent = values(bills.billed([write_run(tmp_path, "agent", env=40)]))
    assert of_agent["environment", SECONDS] == 1 and ("grading", SECONDS) not in of_agent
    assert (of_agent["environment", ENV_STEPS], of_agent[ALL, ENV_STEPS]) == (40, 45)


def test_what_one_run_does_not_know_is_not_known_of_all(tmp_path):
    found = values(bills.billed([write_run(tmp_path, "a"), write_run(tmp_path, "b", clock=False)]))
    assert found["sampling", SECONDS] is None and found[ALL, CPU] is None and found["sampling", TOKENS] == 200
    assert found[ALL, SECONDS] == pytest.approx(10.7 + 10.2)
    text = str(Bill((BillLine("sampling", SECONDS, None),), 2).rows())
    assert "not known" in text and "sampling (run time)" in text


def test_a_forecast_scales_each_part_by_what_drives_it(tmp_path):
    """Three equal runs: twice the work and updates at as many evaluations, in one run."""
    pilot = [bills.paid_run(write_run(tmp_path, f"r{i}")) for i in range(3)]
    assert pilot[0].trend == {}
    assert pilot[0].whole.did == {RUNS: 1, UPDATES: 2, WORK: 32, EVALUATIONS: 3}
    found = values(bills.forecast(pilot, [{RUNS: 1, UPDATES: 4, WORK: 64, EVALUATIONS: 3}]))
    assert found["sampling", SECONDS] == pytest.approx(4) and found["learning", SECONDS] == pytest.approx(6)
    assert found["evaluation", SECONDS] == pytest.approx(0.5, rel=0.2) and found["start-up", SECONDS] == 0.5
    assert found["sampling", TOKENS] == 200 and found["evaluation", TOKENS] == 20 and found[ALL, TOKENS] == 220
    assert found["learning", FLOPS] == pytest.approx(2 * (2 * P * 10 + 6 * P * 260))
    assert all(x is None for (part, _), x in found.items() if part == "lost")
    parts = sum(x for (part, unit), x in found.items() if unit == SECONDS and part not in (ALL, "lost"))
    assert found[ALL, SECONDS] == pytest.approx(parts, rel=1e-4)


def made(logs, work=100.0):
    """Runs of `work` that cost `work` tokens, times exp of each of these."""
    did = {RUNS: 1.0, UPDATES: 1.0, WORK: work, EVALUATIONS: 1.0}
    return [PaidRun(Stretch(did, dict.fromkeys((("sampling", TOKENS), (ALL, TOKENS)), work * exp(x))), ())
            for x in logs]


def test_the_interval_is_that_of_the_model():
    """s^2 of three runs about one factor has two degrees of freedom; of R new runs only s^2 averages out."""
    extra, ratio = bills.SPREAD["counts"]
    pilot, new = made([0.1, 0.0, -0.1]), {RUNS: 1, UPDATES: 1, WORK: 300, EVALUATIONS: 1}
    for many in (1, 4):
        x = bills.forecast(pilot, [new] * many).line("sampling", TOKENS)
        factor = x.value / (300 * many)
        s2 = sum((d - log(factor)) ** 2 for d in (0.1, 0.0, -0.1)) / 2
        half = student_t.ppf(0.95, 2) * sqrt(extra**2 + (ratio**2 - 1 + 1 / many) * s2)
        assert (x.low, x.high) == pytest.approx((x.value * exp(-half), x.value * exp(half)), rel=1e-4)
    longer = [replace(run, trend={TOKENS: 0.2}) for run in pilot]      # three times the work at b = 0.2
    wide = bills.forecast(longer, [new]).line("sampling", TOKENS)
    s2 = sum((d - log(x.value / 1200)) ** 2 for d in (0.1, 0.0, -0.1)) / 2
    half = student_t.ppf(0.95, 2) * sqrt(extra**2 + ratio**2 * s2 + (0.2 * log(3)) ** 2)
    assert log(wide.high / wide.value) == pytest.approx(half, rel=1e-4)
    one = bills.forecast(made([0.0]), [new]).line("sampling", TOKENS)
    assert one.value == 300 and one.low is None     # one run has no spread


def test_answers_that_grow_are_a_trend():
    """Tokens per rollout as work^b: 2^(b + 1) - 1 times as many in the second half as in the first. Answers of an
    evaluation that end at 20 tokens, at a mean of 15, are log(4 / 3) above it."""
    lines = [{"rollouts": c, "decode": 10 * c**1.25, "env_steps": 0} for c in range(8, 72, 8)]
    lines += [{"eval/select": 0.5, "eval/length": x} for x in (10.0, 20.0)]
    found = bills._trend(lines, "rollouts")
    assert found == pytest.approx({TOKENS: 0.25, FLOPS: 0.25, "evaluation": log(4 / 3)})


def test_nine_in_ten_simulated_runs_are_inside():
    """Where the model holds: a study's trained runs share a shift, beyond the noise that the pilot shows."""
    chance = np.random.default_rng(5)
    extra, ratio = bills.SPREAD["counts"]
    inside = 0
    for _ in range(300):
        s = 0.02
        pilot = made(s * chance.standard_normal(8))
        x = bills.forecast(pilot, [{RUNS: 1, UPDATES: 1, WORK: 400, EVALUATIONS: 1}]).line("sampling", TOKENS)
        inside += x.low <= 400 * exp(sqrt(extra**2 + (ratio * s) ** 2) * chance.standard_normal()) <= x.high
    assert 255 <= inside <= 285


def test_an_audit_names_the_part_that_was_missed(tmp_path):
    """Grading that took twice as long as in the pilot, and one part that the forecast left out."""
    pilot = [bills.paid_run(write_run(tmp_path, f"p{i}", scale)) for i, scale in enumerate((0.98, 1, 1.02))]
    run = {RUNS: 1, UPDATES: 2, WORK: 32, EVALUATIONS: 3}
    expected, paid = bills.forecast(pilot, [run]), bills.billed([write_run(tmp_path)])
    dear = replace(paid, lines=tuple(
        replace(x, value=x.value + {"grading": 1.0, ALL: 1.0}.get(x.part, 0.0)) if x.unit == SECONDS else x
        for x in paid.lines))
    fair, missed = (bills.missed(bills.against(expected, x)) for x in (paid, dear))
    assert [row.name for row in fair] == [row.name for row in missed] == [
        "billed run time", "billed CPU time", "billed tokens", "billed FLOP"]
    assert "grading" not in fair[0].text and "missed: grading 2 s against 1 s" in missed[0].text
    assert "lost 0.2 s, which was not forecast" in missed[0].text and "CPU" not in missed[0].text
    row = next(x for x in bills.compared(bills.against(expected, dear)).cells if x[1] == "grading")
    assert row[2::2] == ("1 s", "2 s") and row[-1] == "above"


def test_money_is_run_time_at_the_machines_price():
    bill = Bill((BillLine(ALL, SECONDS, 7200.0, 3600.0, None), BillLine("grading", SECONDS, None)), 2)
    money = values(priced(bill, Machine.priced("3usd/device-hour", devices=2, side_by_side=4)))
    assert money[ALL, "usd"] == pytest.approx(3.0) and money["grading", "usd"] is None
    assert priced(bill, Machine()) is bill


BILL = Bill((BillLine(ALL, SECONDS, 60.0, 50.0, 70.0), BillLine(ALL, TOKENS, 900.0, 890.0, 910.0)), 6)


def sealed(bill=BILL):
    f = forecast(bill=bill)
    return replace(f, bill_seal=_bill_seal(f))


def test_the_seal_holds_the_counts_and_a_second_one_the_times():
    """Equal studies, timed differently, have equal seals; a bill that was changed later is refused."""
    f = sealed()
    assert Forecast.of(json.loads(json.dumps(f.data()))) == f
    slower, longer = (replace(BILL, lines=tuple(replace(x, value=2 * x.value) if x.unit == unit else x
                                                for x in BILL.lines)) for unit in (SECONDS, TOKENS))
    assert sealed(slower).seal == f.seal != sealed(longer).seal
    for changed in (slower, longer):
        with pytest.raises(UserError, match="changed after it was sealed"):
            verify_seal(replace(f, bill=changed))


def test_an_old_seal_without_a_bill_is_audited_as_before():
    old = forecast(seal_version=3)
    assert "bill" not in old.data() and Forecast.of(json.loads(json.dumps(old.data()))) == old
    curves = trained((0.88, 0.90, 0.92))
    seals = {c.run: old.seal for c in curves}
    found = audit(old, curves, seals, paid=BILL)
    assert found.verdict == "hit" and found.bill == () and "bill" not in found.data()
    f = sealed()
    new = audit(f, curves, dict.fromkeys(seals, f.seal), paid=replace(BILL, lines=(BillLine(ALL, SECONDS, 90.0),)))
    assert [(x.unit, x.verdict) for x in new.bill] == [(SECONDS, "above"), (TOKENS, "not known")]
    assert Audit.of(json.loads(json.dumps(new.data()))) == new
    assert replace(new, bill=(), seal="") == replace(found, seal="")


def test_an_interval_of_orders_of_magnitude_is_named_as_one():
    wide, near = BillLine("waiting", SECONDS, 11, 0.006, 2e4), BillLine("learning", SECONDS, 14, 11.8, 16.7)
    assert bills.between(wide) == "not known within a factor of 100" and bills.between(near) == "11.8 s to 16.7 s"
    assert bills.between(BillLine("grading", SECONDS, 0, 0, 5)) == "0 s to 5 s"


def test_points_that_one_update_reaches_are_one_evaluation():
    """n = 16 of a tiny quickstart is evaluated after 16, 32, 48, 64, 96, 128 and 176 rollouts; n = 8 at each."""
    points = (8, 16, 24, 32, 48, 64, 88, 128, 184)
    assert (evaluated(points, 8, 23), evaluated(points, 16, 11)) == (10, 8)
