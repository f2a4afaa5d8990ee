"""Plans of test-time strategies: estimates against enumeration and the strategies themselves, and the choice."""

import numpy as np
import pytest

from isocost import strategies
from isocost.errors import UserError
from isocost.laws.papers.inference import best_of
from isocost.planner.test_time.choice import choose, choose_by_band, decide, paired, predicted, reaching, within
from isocost.planner.test_time.estimates import auroc, measure, orders, table
from isocost.planner.test_time.mixture import fit_mixture
from isocost.planner.test_time.outcome import outcome
from isocost.planner.test_time.pool import Pool, parts
from isocost.planner.test_time.prescribe import AnswerGoal, StrategyForecast, prescribe, seal
from isocost.stats.passk import majority_at, pass_at


def pool(problems=6, samples=6, *, kinds=3, seed=0, **more):
    rng = np.random.default_rng(seed)
    answer = rng.integers(0, kinds, (problems, samples))
    return Pool(tuple(map(str, range(problems))), (answer == 0).astype(float), rng.integers(0, 4, answer.shape) / 4,
                answer, rng.integers(5, 20, answer.shape), **more)


def chosen(strategy, right, answer, score):
    """The reward of what the strategy of `isocost.strategies` takes of samples in this order."""
    said = [None if a < 0 else str(a) for a in answer]
    return right[strategies.parse(strategy).choose(said, list(score)).chosen]


def test_best_of_with_the_verifier_is_pass_at_n():
    p = pool()
    exact = Pool(p.ids, p.right, p.right, exact=True)
    for n in range(1, 7):
        assert measure(exact, "best-of", n, orders(exact, 0)).accuracy.mean() == pytest.approx(
            pass_at(p.right.sum(1).astype(int), 6, n))


@pytest.mark.parametrize("name, spec", [("best-of", "best-of"), ("vote", "vote"), ("weighted-vote", "vote")])
def test_estimates_are_what_the_strategies_choose_on_average(name, spec):
    """Over subsets in random orders, so that ties to the first are ties in equal shares."""
    p = pool(3, 6, seed=4)
    p.answer[0, :3] = -1        # no answer, no vote
    p = Pool(p.ids, np.where(p.answer == 0, 1.0, 0.0), p.score + 0.05, p.answer, p.tokens)
    rng, n = np.random.default_rng(1), 3
    scorer = ",scorer=outcome" if name != "vote" else ""
    for i in range(3):
        drawn = [rng.permutation(6)[:n] for _ in range(600)]
        mean = np.mean([chosen(f"{spec}:n={n}{scorer}", p.right[i, x], p.answer[i, x], p.score[i, x]) for x in drawn])
        assert measure(p, name, n, np.stack([np.array(drawn)] * 3)).accuracy[i] == pytest.approx(mean, abs=0.06)


def test_a_vote_is_the_exact_majority_within_the_orders_noise():
    p = pool(40, 8, seed=2)
    found = measure(p, "vote", 4, orders(p, 0)).accuracy
    exact = [majority_at([int((row == k).sum()) for k in range(3)], 0, 4) for row in p.answer]
    assert found.mean() == pytest.approx(np.mean(exact), abs=0.01)


def test_until_sure_stops_four_to_nothing_and_goes_on_otherwise():
    agree = Pool(("a",), np.ones((1, 12)), None, np.zeros((1, 12), dtype=int), np.full((1, 12), 7))
    found = measure(agree, "until-sure", 12, orders(agree, 0))
    assert (found.samples[0], found.tokens[0], found.depth) == (4, 28, 7)       # Beta(5, 1) above 1/2: 0.969
    split = Pool(("a",), np.zeros((1, 12)), None, np.arange(12)[None], np.full((1, 12), 7))
    found = measure(split, "until-sure", 12, orders(split, 0))
    assert (found.samples[0], found.depth) == (12, 21)      # three batches of four, one after the other


def test_depth_is_the_longest_of_the_samples_that_are_written_side_by_side():
    p = Pool(("a", "b"), np.zeros((2, 4)), np.zeros((2, 4)), tokens=np.array([[1, 2, 3, 4], [5, 5, 5, 5]]))
    assert measure(p, "best-of", 4, orders(p, 0)).depth == pytest.approx(np.quantile([4] * 32 + [5] * 32, 0.95))


def test_what_begins_with_given_samples_has_them_in_every_subset():
    p = pool(4, 6, seed=5)
    found = measure(p, "best-of", 3, orders(p, 0, 2), 2).accuracy
    for i in range(4):
        each = [best_of(p.score[i, [0, 1, k]], p.right[i, [0, 1, k]], 3) for k in range(2, 6)]
        assert found[i] == pytest.approx(np.mean(each), abs=0.12) and min(each) <= found[i] <= max(each)


def test_a_pool_without_scores_or_answers_names_what_it_suffices_for():
    p = pool()
    bare = Pool(p.ids, p.right, None, p.answer)
    with pytest.raises(UserError, match=r"best-of needs the score of each sample, .*; vote, until-sure need none"):
        measure(bare, "best-of", 2, orders(bare, 0))
    with pytest.raises(UserError, match="vote-7: the pool has 6 samples per problem; sample more"):
        measure(p, "vote", 7, orders(p, 0))


def test_auroc_is_the_mean_over_problems_that_have_right_and_wrong_samples():
    score = np.array([[0.9, 0.2, 0.5], [0.1, 0.1, 0.7], [0.1, 0.2, 0.3]])
    found = auroc(score, np.array([[1, 0, 0], [1, 0, 0], [0, 0, 0.0]]))
    assert found.value == pytest.approx((1 + 0.25) / 2)     # the second: a tie and a loss; the third has no right one


# beyond the samples -------------------------------------------------------------------------------------------


def test_a_mixture_is_unbiased_for_its_own_samples_and_holds_beyond_them():
    rng = np.random.default_rng(3)
    p = np.where(rng.random(400) < 0.2, 0.0, 1 / (1 + np.exp(-rng.normal(-2, 1.5, 400))))
    counts = rng.binomial(16, p)
    fit = fit_mixture(counts, 16)
    assert fit.forecast(1).value == pytest.approx(counts.mean() / 16, abs=0.01)
    truth = (1 - (1 - p) ** 64).mean()
    assert fit.forecast(64).holds(truth) and fit.forecast(64).width < 0.2
    assert fit.forecast(64, new=50).width > fit.forecast(64).width
    with pytest.raises(UserError, match="forecasts reach 4 times the samples, 64; sample more"):
        fit.forecast(65)


def test_problems_never_right_keep_a_share_that_stays_wrong():
    assert fit_mixture(np.zeros(60, dtype=int), 32).forecast(128).value < 0.05
    assert fit_mixture(np.full(60, 32), 32).forecast(128).value > 0.99


# the choice ---------------------------------------------------------------------------------------------------


def test_a_rule_takes_the_cheapest_of_those_that_tie_within_the_budget():
    accuracy, cost = np.array([0.5, 0.7, 0.703, 0.9]), np.array([1.0, 2.0, 4.0, 8.0])
    assert within(4)(accuracy, cost) == 1 and within(8)(accuracy, cost) == 3
    assert reaching(0.7)(accuracy, cost) == 1 and reaching(0.95)(accuracy, cost) == 3


def test_the_stated_accuracy_is_without_the_luck_of_the_best_of_many():
    """Twenty candidates that are all alike: the best one's own mean is too high, and the stated one is not."""
    rng = np.random.default_rng(0)
    own, told = [], []
    for draw in range(60):
        table_ = (rng.random((20, 60)) < 0.5).astype(float)
        found = choose(table_, np.ones((20, 60)), within(1), draw)
        own.append(table_[found.single].mean())
        told.append(found.accuracy.mean())
    assert np.mean(own) > 0.58 and abs(np.mean(told) - 0.5) < 0.012


def test_bands_give_hard_problems_more_samples_within_the_mean_budget():
    band = np.repeat([0, 1], 50)
    cost = np.broadcast_to(np.array([1.0, 4.0])[:, None], (2, 100))
    accuracy = np.array([np.where(band == 0, 0.2, 0.9), np.where(band == 0, 0.6, 0.91)])
    found = choose_by_band(accuracy, cost, band, 2.6, 0)
    assert found.each == (1, 0) and found.cost.mean() == pytest.approx(2.5)
    assert choose_by_band(accuracy, cost, band, 0.5, 0) is None


def test_a_gain_decides_by_its_interval():
    assert decide(paired(np.array([0.2, 0.3, 0.25]))) == "more"
    assert decide(paired(np.array([-0.5, 0.5, 0.2]))) == "cannot tell"
    assert decide(paired(np.array([0.001, 0.0, -0.001]))) == "one"


def test_a_prediction_is_wider_than_a_confidence_interval_even_where_all_agree():
    agree = predicted(np.ones(50), 50)
    assert agree.high == 1 and 0.9 < agree.low < 1


# plans --------------------------------------------------------------------------------------------------------


def exact_pool(problems=80, samples=24, seed=0):
    rng = np.random.default_rng(seed)
    p = 1 / (1 + np.exp(-rng.normal(-0.7, 1.5, problems)))
    right = (rng.random((problems, samples)) < p[:, None]).astype(float)
    answer = np.where(right > 0, 0, 1 + rng.integers(0, 9, right.shape))
    return Pool(tuple(map(str, range(problems))), right, right, answer, rng.integers(20, 60, right.shape), exact=True)


def noise_pool(problems=80, samples=24):
    """A scorer that knows nothing, and wrong answers that agree: one sample is as good as any strategy."""
    rng = np.random.default_rng(1)
    right = np.repeat(rng.random((problems, 1)) < 0.5, samples, 1) ^ (rng.random((problems, samples)) < 0.15)
    return Pool(tuple(map(str, range(problems))), right.astype(float), rng.random(right.shape),
                np.broadcast_to(np.arange(samples), right.shape), rng.integers(20, 60, right.shape))


def asked(budget):
    return AnswerGoal.of(budget, None, None, None)


def split(p, bands=1, probe=0):
    return parts(p, probe=probe, bands=bands, least=10, seed=0)


@pytest.mark.parametrize("budget, size", [("2.5-rollouts/answer", 2), ("24-rollouts/answer", 24),
                                          ("90-rollouts/answer", 90)])
def test_with_the_verifier_at_hand_a_plan_takes_all_that_the_budget_pays_for(budget, size):
    """Beyond the 24 samples too, where a mixture forecasts."""
    plan = prescribe(split(exact_pool()), ("best-of",), asked(budget), 0)
    assert (plan.decision, plan.each[0].size, plan.beyond) == ("more", size, size > 24)
    assert plan.gain.low > 0


def test_without_a_gain_a_plan_says_one_sample_or_cannot_tell():
    for budget in ("2-rollouts/answer", "8-rollouts/answer", "24-rollouts/answer"):
        plan = prescribe(split(noise_pool()), ("best-of", "vote", "weighted-vote"), asked(budget), 0)
        assert plan.decision in ("one", "cannot tell") and plan.each[0].size == 1
        assert any("does not tell right from wrong" in x for x in plan.flags)


def test_no_forecast_beyond_the_samples_of_a_scorer_that_errs():
    p = exact_pool()
    plan = prescribe(split(Pool(p.ids, p.right, p.right * 0.6 + 0.2, p.answer, p.tokens)), ("best-of",),
                     asked("60-rollouts/answer"), 0)
    assert plan.each[0].size <= 24 and any("no forecast beyond them" in x for x in plan.flags)
    with pytest.raises(UserError, match=r"pays for 200 samples and 24 were profiled: .* Profile 50 samples"):
        prescribe(split(p), ("best-of",), asked("200-rollouts/answer"), 0)


@pytest.mark.parametrize("budget, why", [
    ("400", "of one answer: write it as 1k-tokens/answer"), ("2h", "of one answer"),
    ("1e15flop/answer", "counted in tokens, rollouts, seconds or money"), ("2s/answer", "needs --speed"),
    ("0.1usd/answer", "needs a --price in usd"),
])
def test_a_budget_that_cannot_be_counted_says_what_is_needed(budget, why):
    with pytest.raises(UserError, match=why):
        asked(budget)


def test_a_budget_below_one_sample_says_what_one_takes():
    with pytest.raises(UserError, match=r"below one sample, which takes 39\.\d tokens \(40 tokens on average, 58 at"):
        prescribe(split(exact_pool()), ("best-of",), asked("10-tokens/answer"), 0)


def test_equal_samples_are_named_as_those_of_temperature_0():
    same = Pool(("a", "b", "c"), np.ones((3, 4)), None, np.zeros((3, 4), dtype=int), np.full((3, 4), 9))
    with pytest.raises(UserError, match="all samples of each problem are equal, as at temperature 0"):
        prescribe(parts(same, probe=0, bands=1, least=1, seed=0), ("vote",), asked("2-rollouts/answer"), 0)


def test_seconds_count_the_longest_text_and_money_counts_what_is_read():
    p = exact_pool()
    fast = prescribe(split(p), ("best-of",), AnswerGoal.of("2s/answer", None, None, 40.0), 0)
    assert fast.each[0].size == 24 and fast.cost <= 2       # samples are written side by side
    one = table(p, (), (), 0)[0]
    priced = AnswerGoal.of("1usd/answer", None, "1000usd/M-input,2000usd/M-output", None)
    read = Pool(p.ids, p.right, p.score, p.answer, p.tokens, np.full(80, 100.0), exact=True)
    assert priced.costs(read, one).mean() == pytest.approx(0.1 + p.tokens.mean() * 0.002)


def test_a_user_column_makes_bands_and_few_problems_make_none():
    p = exact_pool(60)
    named = Pool(p.ids, p.right, p.score, p.answer, p.tokens, level=("easy", "hard") * 30, exact=True)
    found = split(named, bands=3)
    assert found.bands == ("easy", "hard") and found.probe == 0
    few = Pool(p.ids, p.right, level=("a",) * 55 + ("b",) * 5)
    assert split(few, bands=3).bands == ("all",)


def test_probe_samples_are_in_no_estimate_of_a_single_strategy():
    p = exact_pool()
    found = split(p, bands=3, probe=4)
    assert found.select.samples == 20 and found.select_all.samples == 24 and len(found.bands) > 1
    assert not set(found.select.ids) & set(found.audit.ids)
    with pytest.raises(UserError, match="--probe 24 leaves none of 24 samples"):
        split(p, probe=24)


def test_a_forecast_is_sealed_and_judged_on_the_other_problems():
    found = split(exact_pool(160))
    plan = prescribe(found, ("best-of", "vote"), asked("8-rollouts/answer"), 0)
    sealed = seal(plan, found, 0, {"pool": "x"})
    assert StrategyForecast.of(sealed.data()) == sealed
    judged = outcome(sealed, found, 0)
    assert judged.verdict == "hit" and judged.outcome == pytest.approx(
        pass_at(found.audit.right.sum(1).astype(int), 24, 8))
    assert {a.name: a.better for a in judged.against} == {
        "one sample": "prescribed", "majority of 8, equal cost": "prescribed"}
    assert outcome(sealed, found, 0, ("the samples",)).verdict == "cannot tell"
    with pytest.raises(UserError, match="changed after it was sealed"):
        StrategyForecast.of({**sealed.data(), "problems": 3})
