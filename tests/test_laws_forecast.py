"""The seal: written once, whole, and broken by any change; the naive forecasts by hand."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from isocost.errors import UserError
from isocost.laws import naive
from isocost.laws.curves import Curve
from isocost.planner import forecast as forecasts
from isocost.planner.budget import Timing
from isocost.planner.training.afford import plan_pilot
from isocost.planner.training.learning_rate import given
from isocost.planner.training.prescribe import prescribe
from isocost.runs.arm import Arm
from isocost.stats.intervals import Interval, student

PROFILE = {"samples": 16, "right": [8] * 50, "rate": {"rollouts_per_second": 8000.0}, "parameters": 1e5}


class FakeLaw(SimpleNamespace):
    """One n that is best, forecast at 0.9; noise of 0.02."""

    def __init__(self, **more):
        noise = SimpleNamespace(sd=lambda C, reward, split=1: np.array(0.02))
        given = {"name": "law", "unmoved": "", **more}
        super().__init__(refused=None, flags=(), ns=(4, 8), flat=False, range=(512, 6144), level=0.9, dof=10.0,
                         noise=noise, **given)

    def dearer(self, C):
        return dict.fromkeys(self.ns, 1.0)

    def paths(self, n, C, split=1):
        return np.full((20, len(C)), {4: 0.9, 8: 0.8}[n])

    def unknown(self, C):
        return []

    def still(self, n):
        return self.unmoved

    def predict(self, n, C, runs=3):
        return Interval(0.9, 0.88, 0.92, 0.9, "confidence", 10), Interval(0.9, 0.86, 0.94, 0.9, "prediction", 10)

    def data(self):
        return {"name": self.name}


def pilot_plan():
    return plan_pilot(PROFILE, preset="quick", timing=Timing(0.003, 0.0, 0.0002, 0.05, ""))


def own_curves():
    C = np.array([0.0, 1024, 2048, 4096])
    return [
        Curve(f"pilot-n4-s{s}", Arm(n=4, B=8, lr=1e-3), s, C, y, y, C, C / 2800, False, "pilot")
        for s, y in enumerate((np.array([0.4, 0.5, 0.60, 0.66]), np.array([0.4, 0.5, 0.60, 0.70])))
    ]


def sealed(law=None, curves=None, planned_by=None, **more):
    law = law or FakeLaw()
    pilot = pilot_plan()
    plan = prescribe(planned_by or law, given(1e-3, 256), None, pilot.timing, pilot=pilot, problems=700)
    return forecasts.seal(plan, law, own_curves() if curves is None else curves, records="r", code="c", **more)


def test_a_forecast_says_what_and_what_would_falsify_it():
    f = sealed()
    assert (f.value, f.low, f.high, f.level) == (0.9, 0.86, 0.94, 0.9) and f.interval.kind == "prediction"
    assert (f.arm, f.C, f.comparator) == (Arm(n=4, B=8), 40960, Arm(n=8, B=8)) and f.base == pytest.approx(0.4)
    assert f.runs == tuple(f"train-n4-s{i}" for i in range(6)) and len(f.comparator_runs) == 6
    assert "6 new runs at n = 4, B = 8, C = 40,960" in f.falsifier and "[0.8600, 0.9400]" in f.falsifier
    other = [replace(c, metric="best@4") for c in own_curves()]
    assert "held-out reward of" in f.falsifier and "held-out best@4 of" in sealed(curves=other).falsifier


def test_naive_forecasts_by_hand():
    last, slope, quarter, line = sealed().naive
    assert last.value == pytest.approx(0.68)                         # mean of 0.66 and 0.70
    assert slope.value == pytest.approx(0.68 + np.log2(10) * 0.08)     # 0.08 a doubling, log2(10) doublings to 40960
    half = student(0.9, 10) * 0.02 * np.sqrt(1 / 6 + 1 / 2)
    assert (last.low, last.high) == pytest.approx((0.68 - half, 0.68 + half))
    assert quarter.value == pytest.approx(0.25 * 0.9 + 0.75 * 0.68)     # the law's 0.9, and the last value
    assert (quarter.low, quarter.high) == pytest.approx((quarter.value - half, quarter.value + half))
    # 0.5, 0.6 and 0.68 a doubling apart: 0.09 a doubling about 0.5933; half of that slope is kept up
    assert line.value == pytest.approx(0.5933 + 0.09 + np.log2(10) * 0.045, abs=1e-4)
    assert (line.low, line.high) == (0, 1)                          # no earlier end has three points before it


def test_a_line_has_its_scale_from_its_own_earlier_errors():
    """A curve that is straight in ln C is forecast by half of its slope; each error is half of the rise missed."""
    C = 2.0 ** np.arange(10)
    straight = 0.1 + 0.05 * np.arange(10)
    value, low, high = naive.line_interval(C, straight, 2 * C[-1], 0.9)
    assert value == pytest.approx(0.55 + 0.025)                     # 0.05 a doubling
    half = student(0.9, 7) * 0.025                                  # seven earlier ends, each wrong by 0.025
    assert (low, high) == pytest.approx((value - half, value + half))
    assert naive.line_interval(C, np.full(10, 0.4), 8 * C[-1], 0.9) == pytest.approx((0.4, 0.4, 0.4))
    rough = straight + 0.05 * (-1.0) ** np.arange(10)
    wide = naive.line_interval(C, rough, 2 * C[-1], 0.9)
    assert wide[2] - wide[1] > 2 * (high - low)
    many = np.linspace(1, 400, 400)                                 # of many points, the last quarter of the rollouts
    late = np.where(many < 300, 0.2, 0.6)
    assert naive.line(many, late, 800.0) == pytest.approx(0.6)


def test_nothing_is_forecast_of_runs_that_have_not_risen():
    why = "the runs of n=4 have not risen measurably"
    assert sealed(FakeLaw(unmoved=why)).interval is None
    f = sealed(FakeLaw(unmoved=why), planned_by=FakeLaw())          # a plan with a value, as earlier versions wrote it
    assert f.interval is None and f.why == f"no value is forecast: {why}" and "nothing is forecast" in f.falsifier
    assert f.hashes["plan"] == sealed().hashes["plan"]              # of the plan as it was given


def test_a_slope_kept_up_stays_within_the_possible():
    steep = [replace(c, audit=np.array([0.4, 0.4, 0.5, 0.9])) for c in own_curves()]
    assert sealed(curves=steep).naive[1].value == 1.0


def test_runs_that_diverged_or_were_for_something_else_make_no_naive_forecast():
    odd = [replace(c, diverged=True) for c in own_curves()] + [replace(c, purpose="edge") for c in own_curves()]
    assert sealed(curves=odd).naive == () and sealed(curves=odd).base is None


def test_runs_of_different_lengths_and_a_third_arm_are_in_the_seal():
    plan = prescribe(FakeLaw(), given(1e-3, 256), None, pilot_plan().timing, pilot=pilot_plan(), problems=700)
    short = replace(plan.arms[1], C=20480)
    leader = replace(short, role="leader", n=2)
    third = [replace(r, arm=r.arm.but(n=2), C=20480) for r in plan.runs if r.n == 8]
    runs = (*(r if r.n == 4 else replace(r, C=20480) for r in plan.runs), *third)
    apart = replace(plan, arms=(plan.arm, short, leader), runs=runs)
    f = forecasts.seal(apart, FakeLaw(), own_curves(), records="r", code="c")
    assert (f.length("train-n4-s0"), f.length("train-n8-s0"), f.length("train-n2-s5")) == (40960, 20480, 20480)
    assert f.leader == Arm(n=2, B=8) and f.leader_runs == tuple(f"train-n2-s{i}" for i in range(6))
    assert f.comparator == Arm(n=8, B=8)
    data = json.loads(json.dumps(f.data()))
    assert forecasts.Forecast.of(data) == f
    lengths = {**f.lengths, "train-n8-s0": 1}
    for key, value in (("leader", {"n": 16, "B": 8}), ("leader_runs", f.leader_runs[:5]), ("lengths", lengths)):
        with pytest.raises(UserError, match="changed after it was sealed"):
            forecasts.Forecast.of({**data, key: value})


def test_a_forecast_of_two_arms_of_one_length_is_written_as_before():
    f = sealed()
    assert not {"lengths", "leader", "leader_runs"} & set(f.data()) and f.length("train-n8-s0") == f.C
    assert forecasts.Forecast.of(json.loads(json.dumps(f.data()))) == f


def test_without_a_law_nothing_is_forecast_and_it_says_so():
    pilot = plan_pilot(PROFILE, preset="quick", timing=Timing(0.003, 0.0, 0.0002, 0.05, ""))
    plan = prescribe(None, given(1e-3, 256), None, pilot.timing, pilot=pilot)
    f = forecasts.seal(plan, None)
    assert f.value is None and "no value is forecast" in f.why and "nothing" in f.falsifier


def test_the_seal_depends_on_everything_and_on_nothing_else():
    a = sealed()
    assert a.seal == sealed().seal and len(a.seal) == 64
    assert a.seal != sealed(FakeLaw(extra=1), own_curves()[:1]).seal
    changed = FakeLaw()
    changed.name = "another"
    assert sealed(changed).seal != a.seal


def test_written_once_and_read_back(tmp_path):
    f, path = sealed(), tmp_path / "forecast.json"
    assert forecasts.write(f, path) == f and forecasts.read(path) == f
    before = path.read_bytes()
    assert forecasts.write(f, path) == f and path.read_bytes() == before
    with pytest.raises(UserError, match="never rewritten"):
        forecasts.write(sealed(curves=own_curves()[:1]), path)
    assert path.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == ["forecast.json"]


@pytest.mark.parametrize("change", [
    lambda data: data.update(C=1), lambda data: data.update(claim=False), lambda data: data.update(why="x"),
    lambda data: data["interval"].update(low=0.0), lambda data: data["naive"][0].update(low=0.0)])
def test_a_changed_forecast_and_a_widened_interval_are_refused(tmp_path, change):
    path = tmp_path / "forecast.json"
    forecasts.write(sealed(), path)
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))
    with pytest.raises(UserError, match="changed after it was sealed"):
        forecasts.read(path)


def test_missing_and_torn_files_are_named(tmp_path):
    with pytest.raises(UserError, match="seals the forecast before it trains"):
        forecasts.read(tmp_path / "forecast.json")
    (tmp_path / "forecast.json").write_text('{"n": 4')
    with pytest.raises(UserError, match="is not whole JSON"):
        forecasts.read(tmp_path / "forecast.json")


def test_the_records_hash_sees_the_pilot_and_not_what_is_trained_after(tmp_path):
    def run(name, purpose, line):
        folder = tmp_path / "runs" / name
        folder.mkdir(parents=True)
        (folder / "run.json").write_text(json.dumps({"purpose": purpose}))
        (folder / "metrics.jsonl").write_text(line)

    run("pilot-n2-s0", "pilot", "a\n")
    before = forecasts.records_hash(tmp_path)
    run("train-n2-s0", "train", "b\n")
    assert forecasts.records_hash(tmp_path) == before
    (tmp_path / "runs" / "pilot-n2-s0" / "metrics.jsonl").write_text("c\n")
    assert forecasts.records_hash(tmp_path) != before
