"""The judge of a comparison: statistics by hand, what must not matter, and what must."""

import json
import math
from itertools import pairwise

import numpy as np
import pytest
from click.testing import CliRunner
from scipy import stats

from isocost.chance import Purpose, generator
from isocost.cli.commands import main
from isocost.compare import judge as judge
from isocost.compare.judge import PairAnswer, _answer, _Way, compare, reached, rising
from isocost.errors import UserError
from isocost.laws.tracks import LENGTH, Track, tracks
from isocost.stats.power import (
    PAIRS,
    Estimate,
    bootstrap,
    detectable_in_comparison,
    difference,
    error_shares,
    iqm,
    pooled_sd,
    seeds_for_comparison,
    smallest,
)
from truth import plant

AT = np.geomspace(250, 8000, 8)


def run(name, seed, ends, cost=AT, base=0.3, **more):
    """A track from `base` that rises to `ends` along a sigmoid in ln cost, or with these rewards."""
    reward = np.asarray(ends) if np.ndim(ends) else base + (ends - base) / (1 + (1000 / np.asarray(cost)) ** 1.3)
    return Track(f"{name}-{seed}", seed, np.r_[0, cost], np.r_[base, reward], **more)


def arm(name, mean, sd=0.02, seeds=5, key=1, **more):
    rng = generator(key, Purpose.INIT, ord(name[0]))
    return [run(name, s, mean + sd * rng.normal(), **more) for s in range(seeds)]


def planted(key, seeds=5):
    rng = generator(key, Purpose.INIT)
    P = plant("sigmoid", rng)
    return {n: [Track(f"{n}-{s}", s, np.r_[0, AT], np.r_[P.R0, P.run(k, AT, rng)]) for s in range(seeds)]
            for n, k in (("a", 2), ("b", 32))}


# statistics ---------------------------------------------------------------------------------------------------


def test_the_interquartile_mean_is_that_of_the_middle_half_as_in_rliable():
    assert iqm(np.arange(1.0, 9.0)) == (3 + 4 + 5 + 6) / 4
    assert iqm(np.array([0.5, 100.0, 0.7, -100.0])) == pytest.approx(0.6)      # a quarter at either end
    assert iqm(np.array([1.0, 2.0, 6.0])) == 3.0                               # a quarter of three is none
    x = generator(0, Purpose.INIT).normal(size=(4, 11))
    np.testing.assert_allclose(iqm(x), stats.trim_mean(x, 0.25, axis=1))


def test_the_bootstrap_draws_runs_within_their_stratum_and_never_leaves_their_range():
    def mean(rows):
        return rows.mean(-1)

    assert bootstrap([np.zeros(3), np.ones(3)], mean) == (0.5, 0.5)         # unstratified it would scatter
    assert bootstrap([np.array([0.2])], mean) == (0.2, 0.2)
    # two runs: both low with chance 1/4, both high with chance 1/4, so the 5 % and 95 % quantiles are the runs
    assert bootstrap([np.array([0.0, 1.0])], mean) == (0.0, 1.0)
    # of three, 1 in 27 means is 0, 3 in 27 are 1/3: the 10 % quantile of means is 1/3
    assert bootstrap([np.array([0.0, 1.0, 1.0])], mean, level=0.8, resamples=20_000)[0] == pytest.approx(1 / 3)


def test_samples_of_unlike_means_share_a_standard_deviation():
    sd, dof = pooled_sd([np.array([0.0, 2.0]), np.array([10.0, 11.0, 12.0]), np.array([5.0])])
    assert dof == 3 and sd == pytest.approx(math.sqrt((2 + 2) / 3))
    assert pooled_sd([np.array([1.0]), np.array([2.0])]) is None       # one run each: nothing was measured
    assert pooled_sd([np.array([1.0, 1.0])]) is None


def test_few_seeds_are_compared_by_welch_and_many_in_pairs():
    rng = generator(3, Purpose.INIT)
    assert PAIRS > 4
    x, y = 0.6 + 0.02 * rng.normal(size=PAIRS), 0.58 + 0.06 * rng.normal(size=PAIRS)
    few = difference(*({"": dict(enumerate(z[:4]))} for z in (x, y)), 1e-6)
    theirs = stats.ttest_ind(x[:4], y[:4], equal_var=False)
    assert few.p == pytest.approx(theirs.pvalue) and few.value == pytest.approx(x[:4].mean() - y[:4].mean())
    np.testing.assert_allclose(few.interval(0.05), theirs.confidence_interval(0.95))
    many = difference(*({"": dict(enumerate(z))} for z in (x, y)), 1e-6)
    assert many.p == pytest.approx(stats.ttest_rel(x, y).pvalue) and many.dof == pytest.approx(PAIRS - 1)


def test_families_are_averaged_with_their_variances_added():
    a = {"easy": {0: 0.6, 1: 0.64}, "hard": {0: 0.3, 1: 0.32}}
    b = {"easy": {0: 0.5, 1: 0.5}, "hard": {0: 0.3, 1: 0.3}}
    found = difference(a, b, 1e-9)
    assert found.value == pytest.approx((0.12 + 0.01) / 2)
    assert found.se == pytest.approx(math.sqrt((0.0008 + 0.0002) / 2) / 2)
    # V = .0004 with one degree of freedom and .0001 with one: .0005^2 / (.0004^2 + .0001^2)
    assert found.dof == pytest.approx(25 / 17, rel=1e-6)


def test_one_run_says_nothing():
    assert difference({"": {0: 0.9}}, {"": {0: 0.1, 1: 0.1}}, 1e-3) is None
    assert detectable_in_comparison(1, 0.02, 0.05) == math.inf


def test_the_least_spread_of_a_difference_is_that_of_two_runs():
    """Runs that all agree: each run has a standard deviation of `floor`, and a difference of two has sqrt(2) times it.

    In pairs and by Welch's test the standard error is floor sqrt(2 / seeds).
    """
    for seeds in (PAIRS - 1, PAIRS):
        a, b = ({"": dict.fromkeys(range(seeds), reward)} for reward in (0.7, 0.6))
        found = difference(a, b, 1e-3)
        assert found.value == pytest.approx(0.1) and found.se == pytest.approx(1e-3 * math.sqrt(2 / seeds))
        assert found.dof == (seeds - 1 if seeds >= PAIRS else 2 * (seeds - 1))


def test_the_smallest_effect_is_seen_with_80_percent_power():
    rng = generator(5, Purpose.INIT)
    for seeds in (3, 4, PAIRS):
        effect = detectable_in_comparison(seeds, 0.02, 0.04)
        told = 0
        for x, y in zip(rng.normal(size=(1000, seeds)), rng.normal(size=(1000, seeds)), strict=True):
            found = difference(*({"": dict(enumerate(0.02 * z))} for z in (x, y)), 1e-6)
            told += Estimate(found.value + effect, found.se, found.dof).p < 0.04
        assert told / 1000 == pytest.approx(0.8, abs=0.03), seeds     # 2.4 standard errors


def test_more_seeds_detect_smaller_effects_and_the_fewest_that_detect_one_are_found():
    seen = [detectable_in_comparison(s, 0.02, 0.04) for s in range(2, 30)]
    assert all(a > 0.97 * b for a, b in pairwise(seen))
    for effect in (0.1, 0.04, 0.02):
        enough = seeds_for_comparison(effect, 0.02, 0.04)
        assert detectable_in_comparison(enough, 0.02, 0.04) <= effect < detectable_in_comparison(enough - 1, 0.02, 0.04)
    assert seeds_for_comparison(1e-5, 0.02, 0.04) is None and seeds_for_comparison(0.0, 0.02, 0.04) is None
    # a spread that is all but known: z(.975) + z(.8) standard errors
    assert smallest(1.0, 1e6, 0.05) == pytest.approx(1.95996 + 0.84162, abs=1e-3)


def test_what_is_allowed_to_be_wrong_is_shared_out_by_holm_and_handed_on():
    # .001 < .06/3, then .025 < .06/2, then .2 > .06
    assert error_shares([[0.2, 0.001, 0.025]], [0.06])[0] == pytest.approx([0.06, 0.02, 0.03])
    # the second fails at .03, and so the third is held to that
    assert error_shares([[0.2, 0.001, 0.035]], [0.06])[0] == pytest.approx([0.03, 0.02, 0.03])
    # all told: the first question hands on what it had; not told: it does not
    assert error_shares([[0.01], [0.01]], [0.04, 0.005]) == [[0.04], [pytest.approx(0.045)]]
    assert error_shares([[0.05], [0.01]], [0.04, 0.005]) == [[0.04], [0.005]]
    assert sum(judge.SHARES) == pytest.approx(0.05)


# runs as curves -----------------------------------------------------------------------------------------------


def test_a_rising_curve_pools_what_falls():
    np.testing.assert_allclose(rising(np.array([1.0, 3.0, 2.0, 4.0])), [1, 2.5, 2.5, 4])
    np.testing.assert_allclose(rising(np.array([3.0, 2.0, 1.0])), [2, 2, 2])


def test_a_reward_is_reached_between_evaluations_on_the_log_of_cost():
    t = Track("a", 0, np.array([0.0, 100.0, 400.0]), np.array([0.2, 0.4, 0.8]))
    at = reached(t, np.array([0.3, 0.6, 0.8, 0.9]))
    np.testing.assert_allclose(np.exp(at[:3]), [50, 200, 400])
    assert math.isnan(at[3])
    assert math.isnan(reached(t, np.array([0.7]), upto=200.0)[0])


def test_a_track_counts_an_evaluation_at_one_cost_once_whatever_their_order():
    t = Track("a", 0, np.array([400.0, 0, 100, 100]), np.array([0.8, 0.2, 0.3, 0.5]))
    assert list(t.cost) == [0, 100, 400] and list(t.reward) == [0.2, 0.4, 0.8]
    assert float(t.at(200.0)) == pytest.approx(0.6) and float(t.at(1e6)) == 0.8


# the judge ----------------------------------------------------------------------------------------------------


def test_a_difference_at_equal_cost_with_its_students_interval():
    arms = {"a": [run("a", s, r) for s, r in enumerate((0.80, 0.84, 0.82))],
            "b": [run("b", s, r) for s, r in enumerate((0.60, 0.63, 0.66))]}
    c = compare(arms)
    x, y = ([float(t.at(c.cost)) for t in arms[k]] for k in "ab")
    found, theirs = c.answer("equal cost", "a", "b"), stats.ttest_ind(x, y, equal_var=False)
    assert found.answer == "a" and c.best == "a" and c.exit_code == 0 and c.cost == 8000
    assert found.value == pytest.approx(np.mean(x) - np.mean(y)) and found.level == pytest.approx(0.96)
    np.testing.assert_allclose((found.low, found.high), theirs.confidence_interval(0.96))


def test_arms_with_the_same_runs_are_the_same():
    own = arm("a", 0.8, sd=0.004, seeds=PAIRS)
    c = compare({"a": own, "b": [Track(f"b{t.seed}", t.seed, t.cost, t.reward) for t in own]})
    assert c.answer("equal cost", "a", "b").answer == "same" and c.exit_code == 3 and c.best is None
    assert c.answer("equal cost", "a", "b").value == 0


@pytest.mark.parametrize("key", [1, 2, 3])
def test_a_swap_of_the_arms_mirrors_every_answer(key):
    arms = planted(key)
    there, back = compare(arms), compare({k: arms[k] for k in reversed(arms)})
    for question in judge.QUESTIONS:
        x, y = there.answer(question, "a", "b"), back.answer(question, "a", "b")
        assert x.answer == y.answer and (x.a, x.b) == (y.b, y.a)
        if x.value is not None:
            turned = (1 / y.value, 1 / y.high, 1 / y.low) if question == "efficiency" else (-y.value, -y.high, -y.low)
            np.testing.assert_allclose((x.value, x.low, x.high), turned, rtol=1e-6, atol=1e-9)
    assert there.verdicts[0].better == back.verdicts[0].better and there.best == back.best


def test_order_units_and_doubled_evaluations_do_not_matter():
    arms = planted(4)
    plain = compare(arms)
    shuffled = compare({k: list(reversed(own)) for k, own in arms.items()})
    doubled = compare({k: [Track(t.run, t.seed, np.repeat(t.cost, 2), np.repeat(t.reward, 2)) for t in own]
                       for k, own in arms.items()})
    scaled = compare({k: [Track(t.run, t.seed, 1e6 * t.cost, t.reward) for t in own] for k, own in arms.items()})
    assert plain.answers == shuffled.answers == doubled.answers
    for x, y in zip(plain.answers, scaled.answers, strict=True):
        assert x.answer == y.answer
        np.testing.assert_allclose((x.value, x.low, x.high), (y.value, y.low, y.high), rtol=1e-5, atol=1e-7)


def test_who_needs_twice_the_cost_is_found_half_as_efficient():
    slow = [run("b", t.seed, t.reward[1:], cost=2 * t.cost[1:]) for t in arm("a", 0.8, sd=0.005)]
    fast = arm("a", 0.8, sd=0.005)
    found = compare({"a": fast, "b": slow}).answer("efficiency", "a", "b")
    assert found.answer == "a" and found.value == pytest.approx(2.0, rel=0.02) and found.low < 2 < found.high


def test_curves_that_have_levelled_off_tell_their_asymptotes_and_others_do_not():
    long = np.geomspace(250, 1e6, 12)
    c = compare({"a": arm("a", 0.9, 0.01, cost=long), "b": arm("b", 0.6, 0.01, cost=long)})
    found = c.answer("asymptote", "a", "b")
    assert found.answer == "a" and found.value == pytest.approx(0.3, abs=0.05)
    assert c.verdicts[0].by == "asymptote"
    short = np.geomspace(60, 700, 8)        # before the knee
    early = compare({"a": arm("a", 0.9, 0.02, cost=short), "b": arm("b", 0.75, 0.02, cost=short)})
    assert early.answer("asymptote", "a", "b").answer == "cannot tell"


def test_the_verdict_goes_in_the_order_of_scalerl():
    def said(asymptote, efficiency, equal):
        answers = [PairAnswer(q, "a", "b", x, None, None, None, 0.95, "") for q, x in
                   (("equal cost", equal), ("efficiency", efficiency), ("asymptote", asymptote))]
        v = judge._verdict("a", "b", answers)
        return v.better, v.by

    assert said("b", "a", "a") == ("b", "asymptote")
    assert said("same", "a", "b") == ("a", "efficiency")
    assert said("same", "cannot tell", "b") == ("b", "equal cost")
    assert said("cannot tell", "a", "b") == ("b", "equal cost")
    assert said("cannot tell", "cannot tell", "cannot tell") == ("cannot tell", "equal cost")


def test_the_best_of_three_beats_both_others():
    low = 0.5
    three = {"a": arm("a", 0.9, 0.005), "b": arm("b", low, 0.005), "c": arm("c", low, 0.02, key=8)}
    c = compare(three)
    assert c.best == "a" and c.verdicts[-1].better == "cannot tell" and c.exit_code == 0
    assert [v.better for v in c.verdicts[:2]] == ["a", "a"]


def test_a_run_that_diverged_counts_and_one_that_ended_early_does_not():
    own = arm("a", 0.8)
    fallen = Track("a-9", 9, np.array([0.0, 500, 1000]), np.array([0.3, 0.2, 0.05]), diverged=True)
    early = run("a", 8, 0.8, cost=AT[:4])
    c = compare({"a": [*own, fallen, early], "b": arm("b", 0.8)})
    a = c.arms[0]
    assert c.cost == 8000 and a.diverged == ("a-9",) and a.short == ("a-8",) and 0.05 in a.values and len(a.runs) == 6
    assert "diverged" in c.answer("efficiency", "a", "b").why
    assert c.answer("equal cost", "a", "b").why == "mean reward of 6 and 5 runs"
    assert c.answer("asymptote", "a", "b").answer == "cannot tell"


def test_runs_that_went_on_are_read_where_the_others_ended():
    long = np.array([500.0, 5000, 50_000])
    c = compare({"a": arm("a", 0.8, cost=long), "b": arm("b", 0.8)})
    assert c.cost == 8000 and any("a: runs continue to 50,000" in m for m in c.missing)
    assert any("a factor of 1.6 from the nearest" in m for m in c.missing)
    assert compare({"a": arm("a", 0.8), "b": arm("b", 0.8)}).missing == ()


def test_a_first_evaluation_just_above_the_common_cost_is_enough():
    """Half of the cost of the first evaluation is half of the gain by then."""
    t = Track("a", 0, np.array([0.0, 1000, 2000]), np.array([0.2, 0.6, 0.7]))
    assert t.at(500) == pytest.approx(0.4) and t.at(1000) == 0.6
    assert t.at(np.sqrt(2) * 1000) == pytest.approx(0.65)
    late = [Track(f"a-{s}", s, np.array([0.0, 1000]), np.array([0.2, 0.6 + s / 100])) for s in range(3)]
    early = [Track(f"b-{s}", s, np.array([0.0, 800]), np.array([0.2, 0.3 + s / 100])) for s in range(3)]
    c = compare({"a": late, "b": early})
    assert c.cost == 800 and c.arms[0].mean == pytest.approx(0.2 + 0.8 * 0.41)


def test_what_cannot_be_compared_is_said_in_one_line():
    a, b = arm("a", 0.8), arm("b", 0.8)
    with pytest.raises(UserError, match="at least two arms, got 1"):
        compare({"a": a})
    with pytest.raises(UserError, match="b has no run"):
        compare({"a": a, "b": []})
    with pytest.raises(UserError, match="both a, seed 0"):
        compare({"a": [*a, run("again", 0, 0.8)], "b": b})
    with pytest.raises(UserError, match="b on hard"):
        compare({"a": a, "b": arm("b", 0.8, family="hard")})
    with pytest.raises(UserError, match=r"no evaluation at 600 .* at 400 is unknown"):
        compare({"a": [run("a", s, 0.8, cost=AT[3:]) for s in range(3)], "b": b}, cost=400.0)
    with pytest.raises(UserError, match="no run of a reached"):
        compare({"a": a, "b": b}, cost=1e9)
    with pytest.raises(UserError, match="finite"):
        Track("a", 0, np.array([0.0, 1.0]), np.array([0.1, math.nan]))


# records ------------------------------------------------------------------------------------------------------


def recorded(folder, seed, per_rollout, speed=1.0, method="m"):
    """A run record by hand: answers of `per_rollout` tokens, one line per step of 256 rollouts."""
    folder.mkdir(parents=True)
    arm = {"n": 8, "B": 32, "lr": 1e-3, "multiplier": 1.0}
    (folder / "run.json").write_text(json.dumps({
        "schema": 1, "name": folder.name, "purpose": "run", "method": method, "arm": arm, "seed": seed,
        "problems": {"spec": "p", "select": 64, "audit": 64}, "model": {"name": "tiny", "parameters": 1000}}))
    luck, lines = 0.01 * math.sin(1.7 * seed), []

    def reward(C):
        return 0.3 + (0.5 + luck) * C * speed / (C * speed + 2000)

    lines.append({"step": 0, "rollouts": 0, "eval/select": 0.3, "eval/audit": 0.3, "eval/exact": True})
    for step in range(32):
        C = 256 * (step + 1)
        lines.append({"step": step, "rollouts": C, "prefill": 6 * C, "decode": per_rollout * C, "score": 0,
                      "train": (6 + per_rollout) * C, "reward": 0.5})
        if (step + 1) & step == 0:
            lines.append({"step": step + 1, "rollouts": C, "eval/select": reward(C), "eval/audit": reward(C),
                          "eval/exact": True})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    clock = ({"step": s, "rollouts": 256 * s, "seconds": 9.0 * s, "sample": 2.0 * s, "score": 0.5 * s, "learn": 1.0 * s}
             for s in range(33))
    (folder / "timing.jsonl").write_text("".join(json.dumps(x) + "\n" for x in clock))


def test_equal_tokens_are_not_equal_rollouts_where_one_arm_writes_longer(tmp_path):
    for s in range(4):
        recorded(tmp_path / "long" / str(s), s, 40, speed=1.6)      # better per rollout
        recorded(tmp_path / "short" / str(s), s, 10)                # four times as many of them per token
    folders = {k: sorted((tmp_path / k).iterdir()) for k in ("long", "short")}
    by = {unit: compare({k: tracks(own, unit) for k, own in folders.items()}, unit=unit)
          for unit in ("rollouts", "tokens", "flops", "seconds")}
    assert {u: c.answer("equal cost", "long", "short").answer for u, c in by.items()} == {
        "rollouts": "long", "tokens": "short", "flops": "short", "seconds": "long"}
    assert by["rollouts"].cost == 8192 and by["tokens"].cost == 81920
    # 2P (prefill + decode) + 6P trained, P = 1000, 16 tokens a rollout
    assert by["flops"].cost == pytest.approx(8192 * 16 * 8000) and by["seconds"].cost == 32 * 3.5


def test_tokens_that_are_read_again_cost_nothing(tmp_path):
    """Their keys and values are known: 2P for what is read first and what is written, and 6P for what is trained on."""
    for name, again in (("first", 0), ("again", 4)):
        recorded(tmp_path / name, 0, 10)
        file = tmp_path / name / "metrics.jsonl"
        lines = [json.loads(x) for x in file.read_text().splitlines()]
        lines = [{**x, "reread": again * x["rollouts"]} if "prefill" in x else x for x in lines]
        file.write_text("".join(json.dumps(x) + "\n" for x in lines))
    first, again = (tracks([tmp_path / name], "flops")[0].cost[-1] for name in ("first", "again"))
    assert first == pytest.approx(8192 * 16 * 8000) and first - again == pytest.approx(8192 * 4 * 2000)


def test_a_cost_that_was_not_recorded_is_named(tmp_path):
    recorded(tmp_path / "a", 0, 10)
    lines = [json.loads(x) for x in (tmp_path / "a" / "metrics.jsonl").read_text().splitlines()]
    bare = "".join(json.dumps({k: v for k, v in x.items() if k != "decode"}) + "\n" for x in lines)
    (tmp_path / "a" / "metrics.jsonl").write_text(bare)
    with pytest.raises(UserError, match="does not record its cost in tokens"):
        tracks([tmp_path / "a"], "tokens")
    with pytest.raises(UserError, match="unknown unit of cost"):
        tracks([tmp_path / "a"], "steps")
    assert len(tracks([tmp_path / "a"])) == 1


def test_an_answer_written_down_is_the_answer():
    c = compare(planted(1), missing=["a note"])
    assert judge.Comparison.of(json.loads(json.dumps(c.data()))) == c


def test_an_unbounded_factor_is_reported_as_a_million():
    """Two seeds of a wide spread: 12.7 standard errors either way, of the logarithm."""
    way = _Way(0.9, 2.0, lambda alpha: (-900.0, 904.0), "cost to reach rewards from 0.3 to 0.5")
    told = _answer("efficiency", "a", "b", way, 0.05, 0.01)
    assert (told.answer, told.low, told.high) == ("cannot tell", pytest.approx(1e-6), pytest.approx(1e6))
    assert told.value == pytest.approx(np.exp(2.0))
    assert _answer("asymptote", "a", "b", way, 0.05, 0.01).high == 904.0


# logs of other trainers ---------------------------------------------------------------------------------------

LENGTHS = {10: 100, 20: 200}      # tokens of an answer in the steps up to here; the log tells no more


def brought(out, *more, held="held_out", ends=0.6):
    """Three logs as CSV, imported into `out`: 40 steps of n B = 8 x 16 = 128 rollouts, of LENGTHS tokens an answer."""
    folder = out.parent / f"logs-{out.name}"
    folder.mkdir()
    for s in range(3):
        rows = [(step, 0.2 + (ends - 0.2) * share + 0.01 * s * share, LENGTHS.get(step, ""))
                for step, share in ((0, 0.0), (10, 0.5), (20, 0.8), (40, 1.0))]
        (folder / f"n8-s{s}.csv").write_text(
            f"step,{held},length,reward\n" + "".join(f"{t},{r:.4f},{x},{r:.4f}\n" for t, r, x in rows))
    sizes = ("--names", "n{n}-s{seed}", "--B", "16", "--lr", "1e-6")
    said("import", *sorted(folder.glob("*.csv")), *sizes, "--out", out, *more)
    return out


def said(*args, code=0):
    done = CliRunner().invoke(main, [str(a) for a in args])
    assert done.exit_code == code, (args, done.output, done.exception)
    assert code != 2 or done.stderr.count("\n") == 1, done.stderr
    return done.stderr if code == 2 else done.output


@pytest.mark.parametrize(("more", "held", "words"), [
    (("--scale", "0,2"), "held_out", "the scale of a is from 0 to 1, of b from 0 to 2"),
    (("--from", "csv", "--map", "held_out=val_pass4"), "val_pass4", "the metric of a is held_out, of b val_pass4"),
    ((), "other", "the kind of reward of a is held-out, of b training"),
])
def test_rewards_of_two_measures_are_not_compared(tmp_path, more, held, words):
    assert words in said("compare", brought(tmp_path / "a"), brought(tmp_path / "b", *more, held=held), code=2)


def test_tokens_of_imported_runs_are_their_answers_lengths(tmp_path):
    """1,280 rollouts of 100 tokens, 1,280 of 200, and 2,560 more for which no other length is recorded."""
    runs = sorted((brought(tmp_path / "a") / "runs").iterdir())
    for track in tracks(runs, "tokens"):
        np.testing.assert_allclose(track.cost, [0, 128_000, 384_000, 896_000])
    with pytest.raises(UserError, match="not known; compare in rollouts or tokens"):
        tracks(runs, "flops")
    for run in runs:
        lines = [json.loads(x) for x in (run / "metrics.jsonl").read_text().splitlines()]
        bare = ({k: v for k, v in x.items() if k != LENGTH} for x in lines)
        (run / "metrics.jsonl").write_text("".join(json.dumps(x) + "\n" for x in bare))
    with pytest.raises(UserError, match="does not record its cost in tokens"):
        tracks(runs, "tokens")
    with pytest.raises(UserError, match=r"not known; compare in rollouts$"):
        tracks(runs, "flops")


def test_an_imported_arm_is_compared_with_one_of_isocosts_own(tmp_path):
    a = brought(tmp_path / "a", "--data", "p", ends=0.5)
    for s in range(3):
        recorded(tmp_path / "ours" / str(s), s, 40)
    found = json.loads(said("compare", a, tmp_path / "ours", "--json"))
    assert found["cost"] == 5120 and found["best"] == "ours"
    note = "which model some of the runs started from is not in their logs: give `isocost import --model`"
    assert note in found["missing"]
    assert any("held_out of the logs is compared with isocost's own held-out reward" in m for m in found["missing"])


@pytest.mark.parametrize("option", [
    ("--budget", "10k-rollouts"), ("--seeds", "5"), ("--rollouts", "8"), ("--lr", "1e-6"), ("--model", "tiny"),
    ("--dry-run",)])
def test_what_only_methods_have_a_use_for_is_refused_with_folders(tmp_path, option):
    """Whether or not it is the default."""
    for arm in "ab":
        for s in range(3):
            recorded(tmp_path / arm / str(s), s, 40, speed=1 + (arm == "a"))
    assert f"{option[0]} is for methods" in said("compare", tmp_path / "a", tmp_path / "b", *option, code=2)
