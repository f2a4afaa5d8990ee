"""Laws of model size and of test-time compute: known values, and fits that give back what was planted."""

import numpy as np
import pytest

from isocost.errors import UserError
from isocost.laws.papers.inference import Saturation, fit_saturation, worth_of_size
from isocost.laws.papers.size import FlooredLaw, SizeLaw, SizeRun, fit_floored, fit_size
from isocost.stats.passk import pass_at

LAW = SizeLaw(0.12, 5e9, {5e8: -0.1, 1.5e9: 0.0, 7e9: 0.2, 3.2e10: 0.4})
X = np.geomspace(1e3, 1e5, 12)


def runs(law, noise=0.0, rng=None):
    return [SizeRun(n, X, law(n, X) * np.exp(noise * (rng.standard_normal(len(X)) if rng else 0.0)))
            for n in law.height]


def test_the_slope_is_half_at_n0_and_never_more_than_the_fastest():
    assert float(LAW.slope(5e9)) == pytest.approx(0.06)
    assert float(LAW.slope(1e15)) == pytest.approx(0.12, rel=1e-5)
    assert (np.diff(LAW.slope(np.geomspace(1e7, 1e13, 20))) > 0).all()


def test_a_law_of_size_is_recovered_and_predicts_a_size_it_has_not_seen():
    exact = fit_size(runs(LAW))
    assert (exact.fastest, exact.halfway) == pytest.approx((0.12, 5e9), rel=1e-4)
    assert exact.height == pytest.approx(LAW.height, abs=1e-3)
    rng, errors = np.random.default_rng(0), []
    large = SizeLaw(0.12, 5e9, {7.2e10: 0.5})
    for _ in range(20):
        law = fit_size(runs(LAW, 0.01, rng))
        (new,) = runs(large, 0.01, rng)
        begun = new.first(0.25)
        assert begun.x.max() <= 0.25 * X.max()
        errors.append(float(law.placed(begun)(7.2e10, X[-1]) / large(7.2e10, X[-1]) - 1))
    assert abs(np.mean(errors)) < 0.01 and np.max(np.abs(errors)) < 0.05


def test_sizes_weigh_alike_however_many_points_they_have():
    bent = runs(LAW)
    bent[0] = SizeRun(5e8, X, bent[0].loss * np.exp(np.linspace(-0.1, 0.1, len(X))))
    once = fit_size(bent)
    twice = fit_size([*bent[:3], SizeRun(3.2e10, np.tile(X, 3), np.tile(bent[3].loss, 3))])
    assert (twice.fastest, twice.halfway) == pytest.approx((once.fastest, once.halfway), rel=1e-6)


def test_what_a_law_of_size_refuses():
    with pytest.raises(UserError, match="at least 2 sizes"):
        fit_size(runs(LAW)[:1])
    with pytest.raises(UserError, match=r"5e\+08 parameters has losses outside"):
        fit_size([SizeRun(5e8, X, X), *runs(LAW)[1:]])
    with pytest.raises(UserError, match="does not fall"):
        fit_size([SizeRun(n, X, np.linspace(0.4, 0.6, len(X))) for n in (1e8, 1e9)])
    with pytest.raises(UserError, match="`placed` and its first points"):
        LAW(1e9, 10.0)


def test_the_rest_of_a_run_is_predicted_from_its_first_quarter():
    """The paper's test within a size: all sizes' first 25 % (of X), and the end of each."""
    rng = np.random.default_rng(1)
    whole = runs(LAW, 0.01, rng)
    law = fit_size([r.first(0.25) for r in whole])
    assert all(abs(float(law(r.parameters, X[-1]) / LAW(r.parameters, X[-1])) - 1) < 0.03 for r in whole)
    assert all(law.explained(r) > 0.8 for r in whole if r.parameters > 1e9)
    assert LAW.explained(SizeRun(7e9, X, LAW(7e9, X))) == pytest.approx(1.0)


def floored(sizes=(5e8, 1.5e9, 3e9, 7e9, 1.4e10, 3.2e10)):
    """N_0, beta, alpha and the shapes of B and X_0 are the repository's starting values, B at 0.3 of them."""
    gain = {n: 0.3 * (224 + 4.62e4 * (3e9 / n) ** 2.1) for n in sizes}
    return FlooredLaw(3.7e8, 1.02, 0.198, gain, {n: 3.42e3 + 1.54e5 * (3e9 / n) ** 1.72 for n in sizes})


def test_a_law_with_a_floor_by_hand():
    law = FlooredLaw(5e8, 1.0, 0.2, {4e9: 1e4}, {4e9: 2e4})
    assert float(law(4e9, 0.0)) == pytest.approx(0.625**0.2)             # 1/8 + 1/2
    assert float(law(4e9, 2e4)) == pytest.approx(0.375**0.2)             # 1/8 + 1/4
    assert float(law.floor(4e9)) == pytest.approx(0.125**0.2)
    assert float(FlooredLaw(5e8, 1.09, 0.198, {}, {}).floor(7e9)) == pytest.approx(0.5658, abs=1e-4)
    with pytest.raises(UserError, match=r"has sizes 4e\+09, not 1e\+09"):
        law(1e9, 1.0)


def test_a_floor_is_recovered_where_runs_bend_though_its_two_exponents_are_not():
    law, x = floored(), np.geomspace(1e3, 1e6, 25)
    exact = fit_floored([SizeRun(n, x, law(n, x)) for n in law.gain])
    assert (exact.halfway, exact.beta, exact.alpha) == pytest.approx((3.7e8, 1.02, 0.198), rel=1e-5)
    rng = np.random.default_rng(1)                           # left alone, alpha would come out as 31 here
    shaken = {n: np.minimum(law(n, x) * np.exp(0.01 * rng.standard_normal(25)), 1) for n in law.gain}
    noisy = fit_floored([SizeRun(n, x, loss) for n, loss in shaken.items()])
    for n in law.gain:
        assert float(noisy.floor(n) / law.floor(n)) == pytest.approx(1, abs=0.02)
        np.testing.assert_allclose(noisy(n, x), law(n, x), rtol=0.02)
    assert noisy.alpha * noisy.beta == pytest.approx(law.alpha * law.beta, rel=0.03)
    assert 0.3 < noisy.alpha <= 1.0
    assert noisy.explained(SizeRun(3.2e10, x, law(3.2e10, x))) > 0.97


def test_what_a_law_with_a_floor_refuses():
    law, x = floored(), np.geomspace(1e3, 1e6, 25)
    with pytest.raises(UserError, match="at least 3 sizes"):
        fit_floored([SizeRun(n, x, law(n, x)) for n in (7e9, 1.4e10)])
    with pytest.raises(UserError, match="at least 4 points each"):
        fit_floored([SizeRun(n, x[:3], law(n, x[:3])) for n in law.gain])
    with pytest.raises(UserError, match="where this law is infinite"):
        fit_size([SizeRun(n, np.array([0.0, 1.0]), np.array([0.9, 0.8])) for n in (1e8, 1e9)])


def test_saturation_by_hand():
    s = Saturation(1.0, 0.2)
    assert s.enough(0.01) == 14                                    # ln(.05) / ln(.8) = 13.43
    assert float(s.gain(14)) <= 0.01 < float(s.gain(13))
    assert float(s(1)) == pytest.approx(0.2) and float(s(2)) == pytest.approx(0.36)
    assert float(s(3) - s(2)) == pytest.approx(float(s.gain(2)))
    assert Saturation(0.5, 0.1).enough(0.2) == 0                   # the first one adds 0.05 already
    with pytest.raises(UserError, match="above 0"):
        s.enough(0.0)


@pytest.mark.parametrize("plateau, p", [(1.0, 0.2), (0.63, 0.05), (0.3, 0.9)])
def test_a_plateau_is_recovered(plateau, p):
    n = np.array([1, 2, 4, 8, 16, 32, 64])
    found = fit_saturation(n, Saturation(plateau, p)(n))
    assert (found.plateau, found.p) == pytest.approx((plateau, p), rel=1e-3)
    with pytest.raises(UserError, match="at least 2 values of N"):
        fit_saturation(np.array([4, 4]), np.array([0.3, 0.3]))


def test_pass_at_k_of_equal_problems_saturates_as_the_law_says():
    rng = np.random.default_rng(3)
    right = rng.binomial(64, 0.15, 4000)
    k = np.array([1, 2, 4, 8, 16])
    measured = np.array([pass_at(right, 64, int(j)) for j in k])
    found = fit_saturation(k, measured)
    assert found.p == pytest.approx(0.15, abs=0.01) and found.plateau == pytest.approx(1.0, abs=0.02)


def test_what_a_larger_model_costs_in_test_time_compute():
    assert worth_of_size(14, 1.0, 1.0) == 53.0                     # equal tokens: 14 + 3 * 13
    assert worth_of_size(14, 1.0, 1e12) == pytest.approx(14.0)     # all inference: as many times as it is larger
    with pytest.raises(UserError, match="above 0"):
        worth_of_size(0, 1, 1)
