"""The exact part of each study, by hand, and records and page as the studies' code has them."""

import json
from itertools import pairwise

import numpy as np
import pytest
import torch

from experiments import studies
from experiments.studies import (
    Question,
    calm,
    dpt,
    ftpedel,
    imitation,
    lhf,
    martingale,
    oni,
    protected,
    rac,
    sar,
    scalezero,
    sqirl,
    stlnpc,
)
from experiments.studies.__main__ import page


def record(name):
    return json.loads((studies.KEPT / f"{name}.json").read_text(encoding="utf-8"))


def test_records_are_of_this_code_and_their_answers_are_those_of_their_values():
    old = [n for n in studies.names() if record(n)["sealed"] != json.loads(json.dumps(studies.study(n).seal))]
    assert old == [], "python -m experiments.studies run NAME"
    assert [n for n in studies.names() if record(n)["answers"] != studies.answers(studies.study(n), record(n)["values"])
            ] == []


def test_the_page_is_current_and_its_sections_are_short():
    assert studies.PAGE.read_text(encoding="utf-8") == page(), "python -m experiments.studies page"
    long = {n: k for n in studies.names() if (k := len(studies.study(n).text.split())) > 120}
    assert long == {}


def test_a_study_that_was_changed_is_older_than_its_code(tmp_path, monkeypatch):
    """Also by a study that it imports; a comment changes nothing."""
    for name in ("calm", "oni"):
        (tmp_path / f"{name}.py").write_text((studies.Path(studies.__file__).parent / f"{name}.py").read_text())
    kept = {n: studies.digest(n) for n in ("calm", "oni")}
    monkeypatch.setattr(studies, "__file__", str(tmp_path / "__init__.py"))
    assert {n: studies.digest(n) for n in kept} == kept
    text = (tmp_path / "calm.py").read_text()
    (tmp_path / "calm.py").write_text(text + "\n# a comment\n")
    assert {n: studies.digest(n) for n in kept} == kept
    (tmp_path / "calm.py").write_text(text.replace("LIMIT, WIDE", "WIDE, LIMIT"))
    assert all(studies.digest(n) != kept[n] for n in kept)


def test_an_answer_is_that_of_an_interval_on_one_side_of_the_bound():
    above, below = Question("?", "x", above=0.1), Question("?", "x", below=0.1)
    assert [above.answer(*x) for x in ((0.11, 0.2), (0.1, 0.2), (0.0, 0.1))] == ["yes", "cannot tell", "no"]
    assert [below.answer(*x) for x in ((0.0, 0.09), (0.0, 0.1), (0.1, 0.2))] == ["yes", "cannot tell", "no"]
    with pytest.raises(ValueError, match="one bound"):
        Question("?", "x")


def test_seeds_that_agree_do_not_make_an_interval_of_no_width():
    of = studies.Study("x", ("", ""), "", (Question("?", "x", above=0.97, effect=0.1),), dict, (), 8)
    told = studies.answers(of, {"x": [1.0] * 8})[0]
    assert told["answer"] == "cannot tell"
    assert told["high"] - told["low"] == pytest.approx(2 * 2.3646 * 3 / 1.96 / 80, rel=1e-3)


def test_a_study_that_is_asked_again_keeps_its_earlier_answers(tmp_path, monkeypatch):
    monkeypatch.setattr(studies, "KEPT", tmp_path)
    monkeypatch.setattr(studies, "PILOT", 2)
    monkeypatch.setattr(studies, "FEWEST", 2)
    first = studies.run("ftpedel", lambda _: None)
    assert first["pilot"]["seeds"] == [500, 501] and "before" not in studies.run("ftpedel", lambda _: None)
    told = {**first, "sealed": {"code": "other"}}
    (tmp_path / "ftpedel.json").write_text(json.dumps(told))
    before = studies.run("ftpedel", lambda _: None)["before"]
    assert before == [{"sealed": {"code": "other"}, "answers": first["answers"]}]


# the exact part of each ---------------------------------------------------------------------------------------------


def test_sqirl_a_deceptive_lock_needs_three_backups():
    """T = 6: the right action is worth 2^-5, 2^-4, 2^-3 with k = 1, 2, 3, the lure 0.08."""
    assert sqirl.gaps(sqirl.LURE)[:3] == pytest.approx([2**-5 - 0.08, 2**-4 - 0.08, 2**-3 - 0.08])
    assert sqirl.horizon(sqirl.Lock(4, 4, 0.0)) == 4 and sqirl.horizon(sqirl.Lock(4, 1, 0.0)) == 5
    assert sqirl.gaps(sqirl.Lock(4, 4, 0.2))[0] == pytest.approx(0.6 / 8)
    rng = np.random.default_rng(0)
    assert sqirl.solved(sqirl.Lock(4, 1, 0.0), 1, 64, rng) == 1 and sqirl.solved(sqirl.LURE, 1, 256, rng) == 0


def test_martingale_the_squared_error_ends_at_minus_one_half():
    t = np.linspace(0, 1, 10_001)
    squared, td, loss = martingale.solutions(np.stack((t[:-1], t[1:], t[:-1])), t[:-1], t)
    assert squared == pytest.approx(-0.5, abs=2e-4) and (td, loss) == pytest.approx((1, 1))
    # two steps: J at 0, 1/2 and 1 is 0, (θ + 1)/2 X, X; squares (θ + 1)²/8 + 1/2 + (1 − θ)²/8, least at θ = 0
    t = np.array((0.0, 0.5, 1.0))
    assert martingale.solutions(np.stack((t[:-1], t[1:], t[:-1])), t[:-1], t)[0] == pytest.approx(0)
    # one step: θ of (1 − t) x² + (1 − t)²/2 at t = 0 is 1/2, the left sum is 0
    assert martingale.running(1) == pytest.approx(-1)


def test_protected_keeps_the_policies_that_some_attacker_makes_best():
    game = np.array([[0.5, 0.5, 0.5], [0.9, 0.1, 0.2], [0.4, 0.4, 0.4], [0.1, 0.8, 0.3], [0.6, 0.2, 0.1]])
    assert protected.kept(game) == [0, 1, 3]
    assert protected.exp3(np.array([0.3]), np.random.default_rng(0)) == 0.3
    assert protected.exp3(np.array([0.0, 1.0]), np.random.default_rng(0)) > 0.95


def test_dpt_the_exact_thompson_probabilities():
    """One win: E θ = 2/3; Beta(3, 2) against Beta(2, 1): 1 − E θ² = 1 − 12/30 is the second's."""
    assert dpt.first_is_best(0, 0, 0, 0) == pytest.approx(1 / 2)
    assert dpt.first_is_best(1, 0, 0, 0) == pytest.approx(2 / 3)
    assert dpt.first_is_best(2, 1, 1, 0) == pytest.approx(0.4)
    assert dpt.first_is_best(1, 0, 2, 1) == pytest.approx(0.6)
    arm, paid = np.array([[0, 1], [1, 1]]), np.array([[True, False], [True, True]])
    assert dpt.thompson(arm, paid) == pytest.approx([5 / 6, 1 / 4])
    torch.manual_seed(0)
    net = dpt.Reader()
    assert net(dpt.history(arm[:, :0], paid[:, :0])).shape == (2, 1, 2)
    assert torch.allclose(net(dpt.history(arm, paid))[:, :2], net(dpt.history(arm[:, :1], paid[:, :1])), atol=1e-5)


def test_lhf_draws_histories_that_rise_and_stay_steady():
    pays = np.array([[0] * 10 + [1] * 10, [1] * 20, [1] * 10 + [0] * 10])
    raw = np.array([1 - 0.5, 0.0, -1 - 0.5])
    assert lhf.utility(pays) == pytest.approx((raw + 1.5) / 2)
    assert lhf.key(np.array([[[1, 0], [2, 3]]])).tolist() == [1 + 2 * 21**2 + 3 * 21**3]


def test_imitation_the_gap_is_the_share_beyond_the_line():
    """Environments everywhere, no errors of the majority: no gap. One environment: a line through the middle, 1/2."""
    lines, rng = np.array([[1.0, 0.0, -0.5]]), np.random.default_rng(0)
    assert imitation.gap(lines, 1, 99, rng) == pytest.approx(0.5, abs=0.05)
    assert imitation.gap(lines, 300, 99, rng) < 0.05
    assert imitation.gap(lines, 300, 1, rng) == pytest.approx(imitation.ERROR, abs=0.06)


def test_scalezero_arms_have_equal_weights():
    dense, mixed = (scalezero.weights(scalezero.Net(*x)) for x in ((72, 0), (14, 4)))
    assert mixed / dense == pytest.approx(1, abs=0.03)
    torch.manual_seed(0)
    block, x = scalezero.Experts(14, 4), torch.randn(5, 24)
    p, which = block.router(x).softmax(-1).max(-1)
    want = [block.experts[0](x[i]) + p[i] * block.experts[1 + int(which[i])](x[i]) for i in range(5)]
    assert torch.allclose(block(x), torch.stack(want), atol=1e-6)


def test_stlnpc_robustness_is_the_formulas():
    """Through A, then B, at their centres: 0.3 by the smaller disc; B first fails by its distance to B after A."""
    a, b, far = stlnpc.A[:2], stlnpc.B[:2], torch.tensor((-1.4, 0.0))
    good, reverse = torch.stack((far, a, b))[None], torch.stack((far, b, a))[None]
    assert stlnpc.robustness(good).item() == pytest.approx(0.3)
    assert stlnpc.robustness(reverse).item() == pytest.approx(0.3 - float((a - b).norm()))
    wall = torch.stack((far, a, stlnpc.WALL[:2], b))[None]
    assert stlnpc.robustness(wall).item() == pytest.approx(-0.5)
    x = torch.tensor([0.1, 0.5, -2.0])
    over = [float(stlnpc.greatest(x, tau)) - 0.5 for tau in (1.0, 10.0, 100.0)]
    assert all(0 <= later < before for before, later in pairwise(over)) and over[1] <= np.log(3) / 10


def test_ftpedel_visits_and_plans():
    phi = ftpedel.visits()
    assert phi[2, :3] == pytest.approx([1, 0.8, 0]) and phi[2, ftpedel.LENGTH + 2] == pytest.approx(0.64)
    assert phi[-1, ftpedel.LENGTH :].sum() == 0 and phi[0, 0] == 0 and phi[0, ftpedel.LENGTH] == 1
    most = ftpedel.EPSILON**2 / (2 * np.log(360))
    for kind in ("none", "uniform", "on"):
        x, before = np.array(ftpedel.planned(kind)), ftpedel.offline(kind)
        assert ftpedel.uncertainty(x, before).max() == pytest.approx(most, rel=1e-4)
        rng = np.random.default_rng(0)
        for _ in range(20):     # no mixture of fewer episodes is certain enough
            other = rng.dirichlet(np.ones(len(x))) * 0.5 + 0.5 * x / x.sum()
            assert ftpedel.uncertainty(0.99 * x.sum() * other, before).max() > most


def move(before, action, after, key, door, fresh):
    return calm.Move(*(np.full(calm.RUNS, v) for v in (before, action, after, key, door, fresh)))


def test_calm_pays_once_a_subgoal_and_again_in_the_next_episode():
    pay = calm.labelled([0.0], [0.0], [0.5], np.random.default_rng(0))
    steps = [move(0, 0, 1, False, False, True), move(1, 0, 2, True, False, False), move(2, 0, 3, True, False, False),
             move(3, 0, 4, False, True, False), move(0, 0, 1, True, False, True)]
    assert [float(pay(m)[0]) for m in steps] == [0, 0.5, 0, 0.5, 0.5]
    at = np.array([5, 5]), np.array([1, 1]), np.array([True, False]), np.array([False, False]), np.array([0, 0])
    x, _, _, door = calm.stepped(*at)
    assert x.tolist() == [6, 5] and door.tolist() == [True, False]


def test_oni_a_caption_helps_once_its_label_is_there():
    """Labels come every second step: nothing at first, then 0.4, then a cube less."""
    rng = np.random.default_rng(0)
    pay = oni.annotated([2], [True], [3], [0.4], rng)
    key, nothing = move(0, 0, 2, True, False, False), move(0, 0, 8, False, False, False)
    assert oni.kinds(key)[0] == 2 and oni.kinds(nothing)[0] == 0
    assert pay(key)[0] == 0 and pay(nothing)[0] == 0
    assert {round(float(x), 6) for _ in range(6) for x in pay(key)} <= {0.4, 0.05, round(0.4 / 27, 6), 0.00625, 0.0032}
    assert not any(pay(nothing).any() for _ in range(40)) and pay(key).all()


def test_rac_goes_back_to_a_known_cell_and_stops():
    """From (3, 7) the known row y = 4 is three steps away; the gap is the only way through the wall."""
    assert rac.distances(frozenset({rac.GOAL}))[rac.START] == 14
    assert rac.distances(frozenset({rac.GOAL}))[6, 8] == 8 + 4
    assert rac.moved((6, 3), 0) == (6, 3) and rac.moved((6, 4), 0) == (7, 4) and rac.moved((0, 0), 3) == (0, 0)
    known = {(x, 4) for x in range(15)}
    shown, at = rac.led((3, 7), known, np.random.default_rng(0), 100)
    assert at in known and shown[0][0] == (3, 7) and len(shown) >= 3
    assert all(cell not in known for cell, _ in shown)
    assert rac.led((3, 7), known, np.random.default_rng(0), 2)[0] == shown[:2]


def test_sar_adds_nothing_where_predictions_are_the_truth_and_teaches_the_second_pass_alone():
    word = torch.tensor([[0, 1, 2, 3, 3, 2, 1, 0]])
    assert [sar.scaled(word, size)[0].tolist() for size in (1, 2, 4)] == [
        [0] * 8, [0] * 4 + [3] * 4, [0, 0, 2, 2, 3, 3, 1, 1]]
    net = sar.made(np.random.default_rng(0))
    true = [sar.scaled(word, size) for size in sar.SCALES]
    first = sar.forced(net, word, true)
    sure = [torch.nn.functional.one_hot(x, 4).float() for x in true]
    right = [sar.likeliest(x, size) for x, size in zip(sure, sar.SCALES, strict=True)]
    assert sar.extra(first, sar.forced(net, word, right)).item() == 0
    own = [sar.likeliest(x, size) for x, size in zip(first, sar.SCALES, strict=True)]
    assert any((a != b).any() for a, b in zip(own[:-1], true, strict=False)), "a network that knows nothing is wrong"
    loss = sar.extra(first, second := sar.forced(net, word, own))
    (slope,) = torch.autograd.grad(loss, second[-1], retain_graph=True)
    assert loss > 0 and slope.abs().sum() > 0
    assert torch.autograd.grad(loss, first[-1], allow_unused=True) == (None,)
    even, sure = torch.zeros(1, 8, 4), torch.tensor([0.5, 0.25, 0.125, 0.125]).log().expand(1, 8, 4)
    assert sar.extra([even] * 4, [sure] * 4).item() == pytest.approx(0.25 * np.log(2))    # log 4 less, 1.75 log 2 more


def test_sar_counts_wrong_letters_of_what_it_generates():
    class Copy(torch.nn.Module):
        """The view's letters of the scale, and a wrong last letter of the whole word."""

        def forward(self, x):
            view = x[:, 4:36].view(-1, 8, 4)
            size = sar.SCALES[int(x[0, :4].argmax())]
            out = torch.nn.functional.one_hot(sar.scaled(view.argmax(-1), size), 4).float()
            return (out.roll(1, -1) if size == 8 else out).flatten(1)

    word = torch.tensor([[0, 1, 2, 3, 3, 2, 1, 0], [3, 3, 3, 3, 0, 0, 0, 0]])
    assert sar.errors(Copy(), word, word).tolist() == [0, 0, 0, 1]
