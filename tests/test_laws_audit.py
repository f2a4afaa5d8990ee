"""Verdicts exactly as they are defined, scores and paired differences by hand, and the seal that is asked for."""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import t as student_t

from isocost.errors import UserError
from isocost.laws.curves import Curve
from isocost.planner import forecast as forecasts
from isocost.planner.audit import Audit, at_their_share, audit, interval_score, seals
from isocost.planner.forecast import Forecast, Naive, changed
from isocost.runs.arm import Arm
from isocost.stats.intervals import Interval

RUNS = tuple(f"train-n4-s{i}" for i in range(3))
OTHERS = tuple(f"train-n8-s{i}" for i in range(3))


def forecast(low=0.86, high=0.94, naive=(0.68, 0.95), **changes) -> Forecast:
    guesses = tuple(Naive(name, v, v - 0.02, v + 0.02) for name, v in zip(("last", "slope"), naive, strict=False))
    bare = Forecast(
        arm=Arm(n=4, B=8), C=1024, runs=RUNS, comparator=Arm(n=8, B=8), comparator_runs=OTHERS,
        interval=Interval(0.9, low, high, 0.9, "prediction", 10.0), base=0.4, naive=guesses, falsifier="", why="no law",
        extrapolation=8.0, epochs=1.0, pilot_epochs=1.0, claim=True, flags=(), hashes={}, seal_version=forecasts.SEAL,
    )
    bare = replace(bare, **changes)
    return replace(bare, seal=forecasts._hash(bare))


def run(name, end, n=4, C=1024.0, **changes) -> Curve:
    at = np.array([0.0, C / 2, C])
    y = np.array([0.4, 0.6, end])
    bare = Curve(name, Arm(n=n, B=8, lr=1e-3), int(name[-1]), at, y * 0, y, at, at, False, "train")
    return replace(bare, **changes)


def trained(ends, others=(0.8, 0.8, 0.8), **changes):
    return [run(name, e, **changes) for name, e in zip(RUNS, ends, strict=False)] + [
        run(name, e, n=8) for name, e in zip(OTHERS, others, strict=False)]


def judged(f, curves, **more) -> Audit:
    return audit(f, curves, {c.run: f.seal for c in curves}, **more)


@pytest.mark.parametrize("ends,verdict,code", [
    ((0.88, 0.90, 0.92), "hit", 0), ((0.86, 0.86, 0.86), "hit", 0), ((0.94, 0.94, 0.94), "hit", 0),
    ((0.8, 0.85, 0.9), "miss", 3), ((0.95, 0.95, 0.95), "miss", 3), ((0.4, 0.4, 0.4), "miss", 3),
])
def test_inside_is_a_hit_and_outside_a_miss(ends, verdict, code):
    found = judged(forecast(), trained(ends))
    assert (found.verdict, found.exit_code) == (verdict, code)
    assert found.outcome.mean == pytest.approx(np.mean(ends))
    side = {3: "below" if ends[0] < 0.86 else "above"}.get(code, "an interval that leaves out: last, slope")
    assert side in found.reason


def test_what_was_changed_since_it_was_sealed_cannot_be_a_hit():
    then, now = {"plan": "a", "law": "b", "records": ""}, {"plan": "a", "law": "", "records": "c"}
    assert changed(then, now) == ("law.json",) and changed(then, {"plan": "x"}) == ("plan.json",)
    found = judged(forecast(), trained((0.88, 0.90, 0.92)), changed=("plan.json", "the pilot's records"))
    assert (found.verdict, found.exit_code) == ("cannot tell", 4)
    assert found.reason == "changed since it was sealed: plan.json, the pilot's records"
    assert found.outcome.mean == pytest.approx(0.9)


def test_an_interval_that_holds_every_naive_forecast_is_uninformative():
    inside = forecast(naive=(0.87, 0.93))
    found = judged(inside, trained((0.9, 0.9, 0.9)))
    assert found.verdict == "uninformative" and found.exit_code == 4
    assert judged(forecast(naive=(0.87, 0.95)), trained((0.9, 0.9, 0.9))).verdict == "hit"
    assert judged(inside, trained((0.7, 0.7, 0.7))).verdict == "miss"     # risk nothing and still miss


def test_near_the_highest_reward_an_uninformative_forecast_says_why():
    """The quickstart of agents: 0.988 in [0.919, 1], and every guess is as near to 1."""
    found = judged(forecast(0.919, 1.0, (0.95, 1.0)), trained((0.98, 0.99, 0.994)))
    assert found.verdict == "uninformative"
    assert "all of them lie between 0.95 and the highest reward, 1, where no forecast can stand out" in found.reason
    assert "does not count against the law; a harder task would leave room" in found.reason
    lower = judged(forecast(naive=(0.87, 0.93)), trained((0.9, 0.9, 0.9)))
    assert lower.reason.endswith("holds every naive forecast too: a guess would have been as good")


def test_no_outcome_lies_beyond_the_highest_and_the_lowest_reward():
    """0.988, measured to 0.019, in [0.919, 1]: it cannot be above. That it may be below 0.975 does count."""
    ends = trained((0.985, 0.988, 0.991))
    assert judged(forecast(0.919, 1.0), ends, noise=0.02).verdict == "hit"
    found = judged(forecast(0.975, 1.0), ends, noise=0.02)
    assert found.verdict == "cannot tell" and "may lie on either side of 0.9750; more held-out problems" in found.reason
    assert judged(forecast(0.0, 0.06, (0.2,)), trained((0.01, 0.01, 0.01)), noise=0.02).verdict == "hit"


def test_the_whole_range_cannot_hit():
    assert judged(forecast(low=0.0, high=1.0), trained((0.9, 0.9, 0.9))).verdict == "uninformative"


def test_too_few_or_short_runs_cannot_tell():
    f = forecast()
    found = judged(f, trained((0.9, 0.9)))
    assert found.verdict == "cannot tell" and found.exit_code == 4 and found.missing == (RUNS[2],)
    short = [*trained((0.9, 0.9)), run(RUNS[2], 0.9, C=512.0)]
    assert judged(f, short).verdict == "cannot tell"
    within = [*trained((0.9, 0.9)), run(RUNS[2], 0.9, C=1024.0 - 31)]     # less than one update of 32 rollouts
    assert judged(f, within).verdict == "hit"
    assert judged(f, []).verdict == "cannot tell"


def test_a_missing_comparator_does_not_touch_the_verdict():
    found = judged(forecast(), trained((0.9, 0.9, 0.9), others=(0.8,)))
    assert found.verdict == "hit" and found.difference.count == 1 and found.better == "cannot tell"


def test_no_forecast_cannot_tell_but_still_reports_the_gain():
    found = judged(forecast(interval=None, naive=()), trained((0.9, 0.9, 0.9)))
    assert found.verdict == "cannot tell" and found.gain.mean == pytest.approx(0.5) and found.scores == ()
    assert found.reason == "no law"


def at_its_share(name, end, C=640.0):
    """A run that ended early, and what is said of it."""
    return run(name, end, C=C), {name: f"{name} ended at {C:,.0f} of 1,024 rollouts"}


def test_a_run_that_ended_at_its_share_of_the_budget_is_no_miss_and_is_not_left_out():
    """Below the interval at 640 of 1,024 rollouts: the forecast is of 1,024. Its reward is in the gain all the same."""
    short, shares = at_its_share(RUNS[2], 0.6)
    curves = [*trained((0.9, 0.9)), short]
    found = judged(forecast(), curves, shares=shares)
    assert (found.verdict, found.exit_code) == ("cannot tell", 4)
    assert found.reason == (
        "1 of the 3 runs forecast ended at their share of the budget, before the 1,024 rollouts that the forecast is "
        f"of. {RUNS[2]} ended at 640 of 1,024 rollouts. The outcome there is 0.8000")
    assert found.capped == (RUNS[2],) and found.missing == () and found.scores == ()
    assert found.outcome.values == (0.9, 0.9, 0.6) and found.gain.mean == pytest.approx(0.4)
    assert found.difference.count == 3
    assert Audit.of(json.loads(json.dumps(found.data()))) == found
    unexplained = judged(forecast(), curves)        # as a run that was killed
    assert unexplained.missing == (RUNS[2],) and unexplained.outcome.count == 2 and not unexplained.capped


def test_a_share_that_ends_a_run_within_an_update_or_the_comparator_leaves_the_verdict():
    within = run(RUNS[2], 0.9, C=1024.0 - 31)
    found = judged(forecast(), [*trained((0.9, 0.9)), within], shares={RUNS[2]: "at its share"})
    assert found.verdict == "hit" and found.capped == () and "capped" not in found.data()
    other = replace(run(OTHERS[2], 0.7, n=8, C=512.0))
    found = judged(forecast(), [*trained((0.9, 0.9, 0.9), others=(0.8, 0.8)), other], shares={OTHERS[2]: "short"})
    assert found.verdict == "hit" and found.capped == (OTHERS[2],) and found.difference.count == 3
    none = judged(forecast(interval=None, naive=()), [*trained((0.9, 0.9)), at_its_share(RUNS[2], 0.6)[0]],
                  shares=at_its_share(RUNS[2], 0.6)[1])
    assert none.reason == f"no law. {RUNS[2]} ended at 640 of 1,024 rollouts"


def test_what_a_share_paid_for_is_read_from_the_records(tmp_path):
    for name, bound in (("a", "env-steps"), ("b", "rollouts"), ("c", None)):
        folder = tmp_path / "runs" / name
        folder.mkdir(parents=True)
        budget = {"rollouts": 1024.0, "env-steps": 2048.0}
        paid = {"rollouts": 640, "env_steps": 2000}
        (folder / "run.json").write_text(json.dumps({"name": name, "budget": budget}))
        (folder / "end.json").write_text(json.dumps({"reason": "spent", "seconds": 1.0, "bill": {"train": paid}}
                                                    | ({"bound": bound} if bound else {})))
    assert at_their_share(sorted((tmp_path / "runs").iterdir())) == {"a": (
        "a ended at 640 of 1,024 rollouts: they cost 3.12 env-steps each, and its share of the budget, "
        "2,048 env-steps, pays for 2")}
    end = {"reason": "spent", "seconds": 1.0, "bound": "env-steps", "bill": {"train": {"rollouts": 0, "env_steps": 0}}}
    (tmp_path / "runs" / "a" / "end.json").write_text(json.dumps(end))
    assert at_their_share(sorted((tmp_path / "runs").iterdir())) == {
        "a": "a ended at 0 of 1,024 rollouts: its share of the budget, 2,048 env-steps, pays for 2"}


def test_a_diverged_run_counts():
    """Leaving it out would turn this miss into a hit."""
    collapsed = [*trained((0.9, 0.9)), run(RUNS[2], 0.1, C=512.0, diverged=True)]
    found = judged(forecast(), collapsed)
    assert found.verdict == "miss" and found.diverged == (RUNS[2],) and found.outcome.count == 3


def test_an_outcome_measured_too_coarsely_decides_nothing():
    near = trained((0.87, 0.87, 0.87))
    assert judged(forecast(), near).verdict == "hit"
    assert judged(forecast(), near, noise=0.02).verdict == "cannot tell"       # 1.645 x 0.02 / sqrt(3) = 0.019 > 0.01
    assert judged(forecast(), near, noise=0.01).verdict == "hit"               # 0.0095 < 0.01
    assert judged(forecast(), trained((0.85, 0.85, 0.85)), noise=0.02).verdict == "cannot tell"
    assert judged(forecast(), trained((0.7, 0.7, 0.7)), noise=0.02).verdict == "miss"


def test_equal_values_that_were_sampled_are_not_known_exactly():
    """Three equal outcomes, each measured to 0.08: 1.645 x 0.08 / sqrt 3 = 0.0760; their differences sqrt 2 wider."""
    curves = trained((0.9, 0.9, 0.9))
    found = judged(forecast(), curves, noise=0.08)
    assert found.outcome.high - found.outcome.mean == pytest.approx(0.0760, abs=5e-5)
    assert found.difference.mean - found.difference.low == pytest.approx(0.1074, abs=5e-5)
    assert found.better == "cannot tell" and judged(forecast(), curves).better == "prescribed"
    apart = judged(forecast(), trained((0.8, 0.9, 1.0)), noise=0.08).outcome      # t(2) 2.92 x 0.1 / sqrt 3 = 0.169
    assert apart.high - apart.mean == pytest.approx(0.1686, abs=5e-5)


def test_interval_scores_by_hand():
    assert interval_score(0.8, 0.9, 0.85, 0.9) == pytest.approx(0.1)
    assert interval_score(0.8, 0.9, 0.75, 0.9) == pytest.approx(0.1 + 20 * 0.05)
    assert interval_score(0.8, 0.9, 0.92, 0.8) == pytest.approx(0.1 + 10 * 0.02)
    found = judged(forecast(), trained((0.9, 0.9, 0.9)))
    assert [s.name for s in found.scores] == ["forecast", "last", "slope"]
    assert [s.score for s in found.scores] == pytest.approx([0.08, 0.04 + 20 * 0.2, 0.04 + 20 * 0.03])
    assert found.beats_naive


def test_a_forecast_that_scores_as_a_naive_one_does_not_beat_it():
    found = judged(forecast(), trained((0.9, 0.9, 0.9)))
    own, *naive = found.scores
    assert replace(found, scores=(own, replace(naive[0], score=own.score))).beats_naive is False
    assert replace(found, scores=(own,)).beats_naive is None


def test_the_interval_score_rewards_the_true_quantiles():
    """Proper: over a normal outcome no narrower or wider interval scores better on average."""
    y = np.random.default_rng(0).normal(0, 1, 20_000)

    def mean(half):
        return np.mean([interval_score(-half, half, v, 0.9) for v in y[:4000]])

    assert mean(1.645) < mean(1.2) and mean(1.645) < mean(2.3)


def test_the_difference_is_paired_by_seed():
    """Seeds that shift both arms alike: a paired interval is narrow where an unpaired one would be wide."""
    shift = np.array([-0.03, 0.0, 0.03])
    found = judged(forecast(), trained(0.9 + shift, others=0.88 + shift))
    d = found.difference
    assert d.mean == pytest.approx(0.02) and d.high - d.low < 1e-9 and found.better == "prescribed"
    crossed = judged(forecast(), trained(0.9 + shift, others=0.88 - shift))
    half = student_t(2).ppf(0.95) * np.std([-0.04, 0.02, 0.08], ddof=1) / np.sqrt(3)
    assert crossed.difference.low == pytest.approx(0.02 - half) and crossed.better == "cannot tell"
    worse = judged(forecast(), trained(0.9 + shift, others=0.93 + shift))
    assert worse.better == "comparator"


LEADERS = tuple(f"train-n2-s{i}" for i in range(3))


def test_the_best_at_the_pilots_end_is_a_second_comparator():
    """Its outcome and its difference, paired by seed; the verdict and the first comparator are as without it."""
    shift = np.array([-0.02, 0.0, 0.02])
    both = trained(0.9 + shift, others=0.88 + shift)
    led = [run(name, e, n=2) for name, e in zip(LEADERS, 0.95 + shift, strict=True)]
    found = judged(forecast(leader=Arm(n=2, B=8), leader_runs=LEADERS), [*both, *led])
    assert found.leader.arm == {"n": 2, "B": 8} and found.leader.comparison.mean == pytest.approx(0.95)
    assert found.leader.difference.mean == pytest.approx(-0.05) and found.leader.better == "leader"
    plain = judged(forecast(), both)
    assert (found.verdict, found.difference, found.better) == (plain.verdict, plain.difference, "prescribed")
    assert plain.leader is None and "leader" not in plain.data()
    assert Audit.of(json.loads(json.dumps(found.data(), allow_nan=False))) == found
    assert Audit.of(json.loads(json.dumps(plain.data(), allow_nan=False))) == plain
    some = judged(forecast(leader=Arm(n=2, B=8), leader_runs=LEADERS), [*both, *led[:1]])
    assert some.leader.better == "cannot tell" and some.missing == LEADERS[1:] and some.verdict == plain.verdict


def test_runs_of_the_second_comparator_need_the_seal_and_its_sizes():
    f = forecast(leader=Arm(n=2, B=8), leader_runs=LEADERS)
    led = run(LEADERS[0], 0.9, n=2)
    with pytest.raises(UserError, match=rf"{LEADERS[0]}: run.json does not have the seal"):
        audit(f, [led], {LEADERS[0]: None})
    with pytest.raises(UserError, match="was run at n = 16, B = 8; the forecast is of n = 2"):
        judged(f, [replace(led, arm=led.arm.but(n=16))])


def test_arms_that_cost_the_same_are_compared_each_at_its_own_end():
    """n = 8 takes half the time a rollout, so its runs have 2,048 rollouts: at 1,024 they would be short."""
    lengths = {**dict.fromkeys(RUNS, 1024), **dict.fromkeys(OTHERS, 2048)}
    f = forecast(lengths=lengths)
    whole = [run(name, 0.9) for name in RUNS] + [run(name, 0.95, n=8, C=2048.0) for name in OTHERS]
    found = judged(f, whole)
    assert found.verdict == "hit" and not found.missing and found.difference.mean == pytest.approx(-0.05)
    assert found.better == "comparator"
    short = judged(f, [*whole[:3], *(run(name, 0.8, n=8) for name in OTHERS)])
    assert short.missing == OTHERS and short.difference is None and short.verdict == "hit"


def test_only_seeds_of_both_arms_are_paired():
    curves = trained((0.9, 0.9, 0.9), others=(0.8, 0.8))
    found = judged(forecast(), [replace(c, seed=7) if c.run == OTHERS[1] else c for c in curves])
    assert found.difference.count == 1


def test_runs_without_the_seal_are_refused():
    f, curves = forecast(), trained((0.9, 0.9, 0.9))
    carried = {c.run: f.seal for c in curves}
    for bad in (None, "0" * 64):
        with pytest.raises(UserError, match=rf"{RUNS[1]}: run.json does not have the seal"):
            audit(f, curves, {**carried, RUNS[1]: bad})
    with pytest.raises(UserError, match="does not have the seal"):
        audit(f, curves, {})


def test_a_forecast_changed_in_memory_is_refused():
    f, curves = forecast(), trained((0.9, 0.9, 0.9))
    wide = replace(f, interval=replace(f.interval, low=0.0))
    with pytest.raises(UserError, match="changed after it was sealed"):
        audit(wide, curves, {c.run: f.seal for c in curves})


def test_runs_of_other_sizes_are_refused_and_unnamed_ones_not_counted():
    f = forecast()
    with pytest.raises(UserError, match="was run at n = 16"):
        judged(f, [run(RUNS[0], 0.9, n=16)])
    extra = [*trained((0.9, 0.9, 0.9)), run("train-n4-s9", 0.1)]
    assert judged(f, extra).outcome.count == 3
    pilots = [replace(c, purpose="pilot") for c in trained((0.9, 0.9, 0.9))]
    assert judged(f, pilots).verdict == "cannot tell"


def test_seals_are_read_from_trained_runs_only(tmp_path):
    for name, purpose, carried in (("a", "train", "x"), ("b", "train", None), ("c", "pilot", None)):
        folder = tmp_path / "runs" / name
        folder.mkdir(parents=True)
        (folder / "run.json").write_text(json.dumps({"name": name, "purpose": purpose, "seal": carried}))
    assert seals(sorted((tmp_path / "runs").iterdir())) == {"a": "x", "b": None}


def test_an_audit_survives_json():
    found = judged(forecast(), trained((0.9, 0.91, 0.9)))
    assert Audit.of(json.loads(json.dumps(found.data(), allow_nan=False))) == found
    nothing = judged(forecast(interval=None), [])
    assert Audit.of(json.loads(json.dumps(nothing.data(), allow_nan=False))) == nothing
