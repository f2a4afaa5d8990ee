"""Each method against numbers worked by hand from its paper's equation."""

import math
from functools import partial

import pytest
import torch

from isocost import methods
from isocost.batch import Forward
from isocost.ledger import Ledger
from isocost.methods import gspo, metartl, solrl
from isocost.parts import weight
from isocost.recipe import tune
from toy import batch_of, per_rollout, ratios

LEDGER = Ledger()


def credit(name, *rewards, **settings):
    recipe = methods.load(name).recipe()
    for knob, value in settings.items():
        recipe = tune(recipe, f"advantage.{knob}", value)
    batch = batch_of(*rewards)
    return per_rollout(recipe.advantage(batch, LEDGER), batch)


def assert_close(a, b, within=2e-5):
    assert a == pytest.approx(b, abs=within)


def test_reinforce_is_the_reward_over_the_mean_of_the_batch():
    assert_close(credit("reinforce", [1, 0, 0, 0], [1, 1, 1, 1]), [0.375, -0.625, -0.625, -0.625, *[0.375] * 4])


def test_grpo_is_in_units_of_the_unbiased_spread():
    assert_close(credit("grpo", [1, 0, 0, 0]), [1.5, -0.5, -0.5, -0.5])   # mean 1/4, std sqrt((9/16 + 3/16) / 3) = 1/2
    assert_close(credit("grpo", [1, 0]), [math.sqrt(0.5), -math.sqrt(0.5)])
    half = math.sqrt(3) / 2
    assert_close(credit("grpo", [1, 0, 0, 0], [1, 1, 0, 0]), [1.5, -0.5, -0.5, -0.5, half, half, -half, -half])


def test_rloo_compares_with_the_mean_of_the_others():
    assert_close(credit("rloo", [1, 0, 0, 0]), [1, -1 / 3, -1 / 3, -1 / 3])
    assert_close(credit("rloo", [2, 1, 0]), [1.5, 0, -1.5])


@pytest.mark.parametrize("name", ["drgrpo", "isoeasy", "isohard"])
def test_the_group_mean_alone(name):
    assert_close(credit(name, [1, 0, 0, 0], [1, 1, 1, 0]), [0.75, -0.25, -0.25, -0.25, 0.25, 0.25, 0.25, -0.75])


def test_isoeasy_with_the_spread_on_is_grpo():
    assert_close(credit("isoeasy", [1, 0, 0, 1], [1, 1, 1, 0], std="true"), credit("grpo", [1, 0, 0, 1], [1, 1, 1, 0]))


def weights(name, lengths, **changes):
    batch = batch_of(*[[0.0] * len(k) for k in lengths], lengths=lengths)
    return per_rollout(methods.load(name).recipe(**changes).weight(batch), batch)


@pytest.mark.parametrize(("name", "each"), [
    ("reinforce", [1 / 4] * 4),                                   # 1/R a token
    ("rloo", [1 / 4] * 4),
    ("grpo", [1 / 4, 1 / 36, 1 / 8, 1 / 16]),                     # 1/(R |y|)
    ("gspo", [1 / 4, 1 / 36, 1 / 8, 1 / 16]),
    ("isoeasy", [1 / 4, 1 / 36, 1 / 8, 1 / 16]),
    ("drgrpo", [1 / 4096] * 4),                                   # 1/(R L), L = 1024
    ("dapo", [1 / 16] * 4),                                       # 1/Σ|y|
    ("cispo", [1 / 20, 1 / 20, 1 / 12, 1 / 12]),                  # 1/(groups Σ|y| of the group)
])
def test_averages(name, each):
    assert_close(weights(name, [[1, 9], [2, 4]]), each)


def surrogate(name, values, rewards):
    out, batch, now = ratios(values, rewards)
    per_token, seen = methods.load(name).recipe().loss(out, batch)
    per_token.sum().backward()
    here = batch.mask
    return per_token[here].tolist(), now.grad[here].tolist(), {k: v[here].tolist() for k, v in seen.items()}


def test_grpo_and_dapo_clip_where_the_papers_do():
    for name, high in (("grpo", 1.2), ("dapo", 1.28)):
        value, gradient, seen = surrogate(name, [1.25, 1.5, 0.5, 0.5, 1.5], [1.0, 1.0, 1.0, -1.0, -1.0])
        assert_close(value, [-min(1.25, high), -high, -0.5, 0.8, 1.5])
        assert_close(gradient, [-1.25 if high > 1.25 else 0.0, 0.0, -0.5, 0.0, 1.5])
        assert seen["clip_ratio/low_mean"] == [0, 0, 0, 1, 0]
        assert seen["clip_ratio/high_mean"] == [float(high < 1.25), 1, 0, 0, 0]


def test_cispo_caps_the_weight_and_keeps_the_gradient():
    value, gradient, _ = surrogate("cispo", [1.0, 10.0, 10.0, 0.1], [1.0, 1.0, -2.0, 1.0])
    now = [-1 + math.log(r) for r in (1.0, 10.0, 10.0, 0.1)]
    assert_close(gradient, [-1.0, -5.0, 10.0, -0.1])
    assert_close(value, [g * x for g, x in zip(gradient, now, strict=True)])


def test_cispo_at_ratio_one_is_reinforce():
    assert surrogate("cispo", [1.0, 1.0], [0.5, -2.0])[1] == surrogate("reinforce", [1.0, 1.0], [0.5, -2.0])[1]


def test_gspo_has_one_ratio_for_the_response():
    batch = batch_of([1.0, 0.0], lengths=[[2, 4]])
    old = batch.logp * batch.mask
    shift = torch.zeros_like(old)
    shift[0, 2:4] = torch.tensor([0.1, -0.0996])              # mean 2e-4: inside the clip of 4e-4
    shift[1, 2:6] = torch.tensor([0.02, 0.0, 0.0, -0.0])      # mean 5e-3: outside, but A < 0 keeps it
    now = (old + shift).requires_grad_()
    batch = batch.but(old=old, advantage=torch.tensor([[1.0], [-1.0]]) * batch.mask)
    value, seen = gspo.loss(Forward(now, torch.zeros_like(now)), batch)
    s = [math.exp(2e-4), math.exp(5e-3)]
    assert_close(value[0, 2:4].tolist(), [-s[0]] * 2)
    assert_close(value[1, 2:6].tolist(), [s[1]] * 4)
    assert seen["clip_ratio/region_mean"][batch.mask].sum() == 0
    (value * weight.rollout_mean(batch)).sum().backward()
    assert_close(now.grad[0, 2:4].tolist(), [-s[0] / 2 / 2] * 2)     # ∂(s A / R)/∂log π_t = s A / (R |y|)
    assert_close(now.grad[1, 2:6].tolist(), [s[1] / 2 / 4] * 4)


def test_gspo_clips_the_response_whole():
    batch = batch_of([1.0], lengths=[[2]])
    old = batch.logp * batch.mask
    now = (old + torch.tensor([0, 0, 2e-3, 0.0])).requires_grad_()
    value, seen = gspo.loss(Forward(now, now.detach()), batch.but(old=old, advantage=batch.mask.float()))
    assert_close(value[batch.mask].tolist(), [-1.0004] * 2)
    assert seen["clip_ratio/high_mean"][batch.mask].tolist() == [1, 1]


def test_isoeasy_is_the_corrected_surrogate_with_leash_and_bonus():
    out, batch, _ = ratios([1.0, 1.0, 1.5], [1.0, -1.0, 1.0])
    sampler = batch.old - torch.tensor([0.0, math.log(5.0), math.log(1.5)])[:, None] * batch.mask
    batch = batch.but(logp=sampler, extra={"reference": batch.old - 0.3 * batch.mask})
    out = Forward(out.logp, torch.full_like(out.logp, 0.7))
    value, seen = methods.load("isoeasy").loss(out, batch, kl=0.1, entropy=0.01)
    ratio = torch.tensor([0.0, 0.0, math.log(1.5)])
    leash = 0.1 * (ratio + 0.3) ** 2 / 2 - 0.01 * 0.7
    assert_close(value[batch.mask].tolist(), (torch.tensor([-1.0, 2.0, -1.2 * 1.5]) + leash).tolist())   # min(5, 2) = 2
    assert {"kl", "sampling/importance_ratio", "clip_ratio/region_mean"} <= set(seen)


def test_isohard_is_the_corrected_surrogate_alone():
    out, batch, _ = ratios([1.0, 1.5], [1.0, 1.0])
    value, _ = methods.load("isohard").loss(out, batch.but(logp=batch.old - math.log(3.0) * batch.mask))
    assert_close(value[batch.mask].tolist(), [-2.0, -2.4])
    recipe = methods.load("isohard").recipe()
    assert recipe.enrich == () and not recipe.refill and recipe.select.__name__ == "everything"


def test_the_rate_of_isocompute():
    """1e-6 at 1024 rollouts per update, by the square root: half of it at 256, and ten steps of warm-up."""
    recipe = methods.load("isoeasy").recipe()
    assert recipe.groups * recipe.rollouts == 256
    paces = [recipe.pace(Ledger(step=k)) for k in (0, 9, 500)]
    assert_close([p.lr * 1e7 for p in paces], [0.5, 5.0, 5.0])
    assert {(p.sampling.temperature, p.sampling.top_p) for p in paces} == {(0.6, 1.0)}


def test_dapo_charges_for_length_as_its_equation_does():
    """R(y) = 0, ((L - c) - |y|) / c, -1: on a scale from -1 to 1, so halved on one from 0 to 1."""
    from isocost.methods.dapo import _overlong
    from isocost.types import Stop
    from toy import attempt

    def fine(length, stop=Stop.DONE):
        return _overlong(attempt([0] * length, 1.0, stop=stop), limit=20, cache=4)

    assert [fine(n) for n in (1, 16, 17, 18, 20)] == [0, 0, 0.25, 0.5, 1]
    assert fine(3, Stop.LENGTH) == 1
    reward = methods.load("dapo").recipe().reward
    assert isinstance(reward, partial) and reward.keywords == {"penalty": 0.5, "limit": 20480, "cache": 4096}


def test_solrl_keeps_the_best_and_the_worst_half():
    assert solrl.extremes([0.1, 0.9, 0.5, 0.3, 0.7, 0.2], 4) == [0, 1, 4, 5]
    assert solrl.extremes([0.1, 0.9, 0.5, 0.3, 0.7, 0.2], 3) == [0, 1, 4]         # two of the best, one of the worst
    assert solrl.extremes([0, 0, 1, 0, 1, 1], 4) == [1, 2, 3, 4]    # of equal ones the first are best, the last worst
    assert solrl.extremes([None, 0.2, None, 0.4], 3) == [0, 1, 3] and solrl.extremes([None, 1.0], 2) == [0, 1]


def test_solrl_measures_agreement_as_spearman():
    """ρ = 1 − 6 Σ d² / (n (n² − 1)): ranks 1 2 3 4 and 1 3 2 4 have Σ d² = 2, so 1 − 12 / 60."""
    assert_close([solrl.agreement([0.1, 0.2, 0.3, 0.4], [1.0, 3.0, 2.0, 9.0])], [0.8])
    assert_close([solrl.agreement([0, 0, 1, 1], [0, 1, 1, 1])], [1 / math.sqrt(3)])     # of two bits: φ, 1/8 of √3/8
    assert_close([solrl.agreement([0, 1, 2], [2, 1, 0])], [-1.0])


def test_metartl_moves_its_weights_to_what_helps_the_target():
    assert metartl.simplex({"a": math.log(3.0), "b": 0.0}) == pytest.approx({"a": 0.75, "b": 0.25})
    # r̄ = 0.75 · 0.2 + 0.25 · 0.6 = 0.3; steps 2 · 0.75 · −0.1 and 2 · 0.25 · 0.3
    got = metartl.moved({"a": math.log(3.0), "b": 0.0}, {"a": 0.2, "b": 0.6}, 2.0)
    assert got == pytest.approx({"a": math.log(3.0) - 0.15, "b": 0.15})
    assert metartl.moved({"a": 1.0, "b": 2.0}, {"a": 0.5, "b": 0.5}, 0.1) == {"a": 1.0, "b": 2.0}
    assert sum(metartl.simplex({"a": 800.0, "b": 0.0, "c": -800.0}).values()) == pytest.approx(1)
