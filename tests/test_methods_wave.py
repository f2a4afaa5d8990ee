"""Ten methods, AIPO to LATR, against numbers worked by hand from each paper's rule."""

import asyncio
import math
from collections import Counter
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from isocost import methods
from isocost.batch import Forward
from isocost.errors import UserError
from isocost.ledger import Ledger
from isocost.loop import train
from isocost.methods import apriel, brorl, drpo, latr, mssr, redstar, rlpt, t1, xrpo
from isocost.methods.grpo import advantage as grpo_advantage
from isocost.pack import pack
from isocost.parts import play
from isocost.recipe import tune
from isocost.runs.arm import Arm
from isocost.runs.job import Job
from isocost.runs.run import run as run_of
from isocost.types import Group, Message, Place, Problem, Sampling, Score, Stop
from isocost.worlds import toy
from isocost.worlds.setting import Setting
from toy import QUESTION, attempt, batch_of, group, per_rollout, ratios, run

LEDGER = Ledger()


def assert_close(a, b, within=1e-6):
    assert a == pytest.approx(b, abs=within)


def problems(count, **meta):
    return [Problem(f"p{k}", (Message("user", f"{k}?"),), "a", meta=meta) for k in range(count)]


def told(*steps):
    """A ledger that has seen these groups, step by step: {problem: rewards}."""
    ledger = Ledger()
    for groups in steps:
        for name, rewards in groups.items():
            ledger._tally(name, "", rewards)
        ledger.step += 1
    return ledger


# AIPO ---------------------------------------------------------------------------------------------------------------

def test_aipo_caps_the_ratio_to_the_sampler_from_above_alone():
    out, batch, now = ratios([1.0, 3.0, 10.0, 0.1], [1.0, -2.0, 1.0, 1.0])
    batch = batch.but(logp=batch.old, old=None)         # μ is the sampler; no old policy was scored
    value, _ = methods.load("aipo").recipe().loss(out, batch)
    value.sum().backward()
    assert_close(now.grad[batch.mask].tolist(), [-1.0, 6.0, -4.0, -0.1], 1e-5)


def test_aipo_reads_the_sampler_of_a_rollout_that_is_a_step_old():
    recipe, world = methods.load("aipo").recipe(groups=4, rollouts=4), toy.world()
    ledger, steps = run(recipe, world, 64)
    assert world.meter.of().score == 0 and any(line["version"] < line["step"] for line in ledger.fresh)
    assert all("sampling/importance_ratio" in s.line for s in steps)


# DRPO ---------------------------------------------------------------------------------------------------------------

def drpo_credit(rewards, lengths, **settings):
    batch = batch_of(rewards, lengths=[lengths])
    return per_rollout(drpo.advantage(batch, LEDGER, **settings), batch)


def test_drpo_never_makes_a_long_right_answer_less_likely():
    mixed = batch_of([0.3, 1.0, 0.0])       # right and long, right and short, wrong: the mean is 0.433
    assert per_rollout(grpo_advantage(mixed, LEDGER), mixed)[0] < 0
    said = drpo_credit([1, 1, 0], [9, 2, 3], lam=0.1, longest=10)
    w = [math.exp((1 - 0.9) / 0.1), math.exp((1 - 0.2) / 0.1)]
    assert_close(said, [w[0] / sum(w), w[1] / sum(w), -1])
    assert_close(drpo_credit([1, 1, 0], [9, 2, 3], lam=math.inf), [0.5, 0.5, -1])       # DisCO: all alike
    assert drpo_credit([1, 1, 1], [9, 2, 3]) == [0, 0, 0] == drpo_credit([0, 0, 0], [9, 2, 3])


def test_drpos_step_is_the_gradient_of_its_equation():
    """Two right and three wrong answers, log-probs at random: by the recipe, and by autograd of the formula."""
    batch = batch_of([1, 0, 1, 0, 0], lengths=[[2, 5, 4, 1, 3]])
    logp = torch.empty(batch.logp.shape).uniform_(-3, 0, generator=torch.Generator().manual_seed(1)) * batch.mask
    batch, now = batch.but(logp=logp), logp.clone().requires_grad_()
    batch = batch.but(advantage=drpo.advantage(batch, LEDGER, lam=0.2, tau=0.5, longest=10))
    (drpo.loss(Forward(now, now.detach()), batch)[0] * drpo.weight(batch) * batch.mask).sum().backward()
    theirs = logp.clone().requires_grad_()
    s = (theirs * batch.mask).sum(-1) / batch.mask.sum(-1)
    w = torch.exp((1 - batch.mask.sum(-1) / 10) / 0.2)[[0, 2]]
    wrong = s[[1, 3, 4]]
    (-((w * s[[0, 2]]).sum() / w.sum() - 0.5 * torch.log(torch.exp(wrong / 0.5).mean()))).backward()
    assert_close(now.grad.flatten().tolist(), theirs.grad.flatten().tolist())


def test_drpos_trust_region_pulls_back_what_is_beyond_it():
    recipe = tune(tune(methods.load("drpo").recipe(groups=4, rollouts=8), "pace.lr", 0.3), "pace.warmup", 0)
    leashes, real = [], drpo.loss

    def watched(out, batch):
        leashes.append(float(batch.extra["leash"].max()) if "leash" in batch.extra else None)
        return real(out, batch)

    for delta, tight in ((0.0, True), (1e9, False)):
        leashes.clear()
        world = toy.world()
        batch = pack([group([0, 1] * 4, [2, 4] * 4, slot=k) for k in range(4)], 0)
        batch = batch.but(advantage=drpo.advantage(batch, LEDGER))
        drpo.improve(batch, recipe.but(loss=watched), world, LEDGER, delta=delta)
        assert leashes[0] == 0 and (max(leashes[1:]) > 0) is tight      # before the first update KL is 0
        assert world.meter.of().score == 2 * int(batch.length.sum())    # the batch, then each part again
    leashes.clear()
    seen = drpo.improve(batch, recipe.but(loss=watched), world, LEDGER, beta=3.0, delta=0.0, minibatches=2)
    assert_close(leashes[1], 3 * 2 * seen["kl"] / 8)   # 8 rollouts a group; KL was 0 at first
    now = batch.logp.clone().requires_grad_()
    held = batch.but(advantage=torch.zeros_like(now), extra={"leash": torch.full_like(now, 2.0)})
    drpo.loss(Forward(now, now.detach()), held)[0].sum().backward()
    assert set(now.grad[batch.mask].tolist()) == {-2.0}                 # what was sampled becomes likelier again


# MSSR ---------------------------------------------------------------------------------------------------------------

def test_mssrs_tracker():
    known = mssr.tracked(told({"p0": [1.0]}), rho=0.9, prior=2.0)
    assert_close(mssr.rate(known, "p0"), 2.8 / 4.6)
    assert mssr.rate(known, "p1") == 0.5
    known = mssr.tracked(told({"p0": [1.0]}, {"p0": [0.0]}, {"p0": [1.0]}), rho=1.0, prior=1e-9)
    assert_close(mssr.rate(known, "p0"), 2 / 3)        # without decay or prior, the running mean


def test_mssr_compares_with_the_rate_before_and_keeps_the_sign():
    names = problems(2)
    ledger = told({"p0": [1.0], "p1": [0.0]})          # rates 1.9/2.8 and 0.9/2.8 with a prior of 1
    made = [Group(p, (attempt([0, 3], r),)) for p, r in zip(names, (1.0, 0.0), strict=True)]
    batch = pack(made, 1)
    batch = batch.but(extra={"entropy": torch.full_like(batch.logp, 0.7)})
    lead = [1 - 1.9 / 2.8, -0.9 / 2.8]                 # equal and opposite: ±1 after the batch's mean and spread
    assert_close(lead[0], -lead[1])
    said = per_rollout(mssr.advantage(batch, ledger, eps=0.0), batch)
    assert_close(said, [1 + 0.4 * 0.7, -1 + 0.4 * 0.7])
    batch = batch.but(extra={"entropy": torch.full_like(batch.logp, 90.0)})
    assert_close(per_rollout(mssr.advantage(batch, ledger, eps=0.0), batch), [1.5, -0.5])      # at most |A| / 2


def test_mssr_draws_problems_by_the_spread_of_their_rate():
    pool = problems(3)
    ledger = told(*[{"p0": [1.0], "p2": [0.0]}] * 60)
    drawn = [mssr.choose(pool, ledger, 1, np.random.default_rng(k))[0].id for k in range(300)]
    v = mssr.rate(mssr.tracked(ledger, rho=0.9, prior=1.0), "p0")
    want = 0.51 / (0.51 + 2 * (math.sqrt(v * (1 - v)) + 0.01))
    assert abs(drawn.count("p1") / 300 - want) < 0.08
    assert len({p.id for p in mssr.choose(pool, ledger, 3, np.random.default_rng(0))}) == 3


# XRPO ---------------------------------------------------------------------------------------------------------------

def test_xrpos_priority():
    assert_close(xrpo.priority(0.0, 4, 99, bonus=0.5, alpha=0.05), 0.5 * math.sqrt(math.log(100) / 4))
    half = [12.706205 * 0.5 / math.sqrt(2), 4.302653 * 0.5 / math.sqrt(3)]        # t(0.975; 1 and 2)
    assert_close(xrpo.priority(0.5, 2, 99, bonus=0.0, alpha=0.05), half[0] - half[1], 1e-5)


def test_xrpo_gives_more_where_the_mean_is_uncertain_and_all_that_there_is():
    uncertain, settled = [1.0, 0.0, 1.0, 0.0], [1.0] * 4
    assert xrpo.counts([settled, uncertain], [4, 4], 3, bonus=0.0, alpha=0.05) == [0, 3]
    assert xrpo.counts([settled, [0.0] * 4], [4, 4], 4, bonus=0.1, alpha=0.05) == [2, 2]    # the fewest first
    assert xrpo.counts([settled, []], [4, 4], 4, bonus=0.1, alpha=0.05) == [2, 2]      # whose verifier failed
    plan = xrpo.allocate(problems(2), LEDGER, 13, first=0.5, phases=2)
    first = next(plan)
    assert first == [3, 3]
    groups = [group([1.0] * 3), group([1.0, 0.0, 1.0], slot=1)]
    second = plan.send(groups)
    assert sum(second) == 4                            # half of the 7 that are left, rounded up
    groups = [group([1.0] * (3 + second[0])), group([1.0, 0.0, 1.0] + [0.0] * second[1], slot=1)]
    assert sum(plan.send(groups)) == 3
    with pytest.raises(StopIteration):
        plan.send([group([1.0] * 6), group([0.0] * 7, slot=1)])


def test_xrpo_raises_unusual_right_answers_up_to_half():
    replies, rewards = [[0, 3], [1, 3], [2, 3], [0, 1]], [1.0, 1.0, 0.0, 0.0]
    logp = [[-0.1, -0.1], [-3.0, -3.0], [-9.0, -9.0], [-1.0, -1.0]]
    made = Group(QUESTION, tuple(attempt(y, r, i, logp=x) for i, (y, r, x) in
                                 enumerate(zip(replies, rewards, logp, strict=True))))
    batch = pack([made], 0)
    base = per_rollout(grpo_advantage(batch, LEDGER), batch)
    said = per_rollout(xrpo.advantage(batch, LEDGER), batch)
    mean = (-0.1 - 3 - 9 - 1) / 4
    assert said[0] == base[0] and said[2:] == base[2:]           # usual (η > 1), and wrong: unchanged
    assert_close(1 - math.exp(-3.0 - mean), 1 - math.exp(0.275))
    assert said[1] == base[1]
    rarer = [[-0.1, -0.1], [-3.0, -3.0], [-0.1, -0.1], [-0.1, -0.1]]
    batch = pack([made.of(attempt(y, r, i, logp=x) for i, (y, r, x) in
                          enumerate(zip(replies, rewards, rarer, strict=True)))], 0)
    said = per_rollout(xrpo.advantage(batch, LEDGER), batch)
    assert_close(said[1], 1.5 * base[1], 1e-5)                   # 2.5 (1 − η) is above κ A
    small = per_rollout(xrpo.advantage(batch, LEDGER, novelty=0.1), batch)
    assert_close(small[1], base[1] + 0.1 * (1 - math.exp(-3.0 + 3.3 / 4)), 1e-5)


# BroRL --------------------------------------------------------------------------------------------------------------

def test_brorl_is_centred_by_group_and_scaled_by_batch():
    recipe = methods.load("brorl").recipe()
    batch = batch_of([1, 0, 0, 0], [1, 1, 0, 0])
    lead = [0.75, -0.25, -0.25, -0.25, 0.5, 0.5, -0.5, -0.5]
    std = math.sqrt(sum(x * x for x in lead) / 8)
    assert_close(per_rollout(recipe.advantage(batch, LEDGER), batch), [x / std for x in lead], 1e-5)
    assert (recipe.groups * recipe.rollouts, recipe.refill) == (65536, True)
    assert_close(recipe.pace(LEDGER, lr=1e-6, warmup=0).lr, 1e-6 * math.sqrt(8), 1e-12)
    assert_close(brorl.pace(LEDGER, grown=1.0, lr=1e-6, warmup=0).lr, 1e-6, 1e-12)


# Apriel -------------------------------------------------------------------------------------------------------------

def test_apriels_domains_keep_to_their_targets():
    target = np.array([0.5, 0.5])
    assert_close(list(apriel.factors(target, [80, 20])), [0.625, 2.5])
    assert list(apriel.factors(target, [20, 20])) == [1, 1]                # fewer than 50
    assert list(apriel.factors(target, [0, 0], cold=0)) == [1, 1]
    assert list(apriel.factors(target, [50, 0])) == [0.5, 10]              # without one: 10
    assert_close(list(apriel.factors(target, [990, 10])), [0.1 * 0.5 / 0.1 / 0.99, 10])


def test_apriel_draws_the_domain_that_lags():
    pool = problems(4, source="a") + [Problem(f"q{k}", (Message("user", f"q{k}?"),), "a", meta={"source": "b"})
                                      for k in range(4)]
    ledger = told({"p0": [1.0] * 80, "q0": [1.0] * 20})
    drawn = [p.meta["source"] for k in range(100) for p in apriel.choose(pool, ledger, 4, np.random.default_rng(k))]
    assert abs(drawn.count("b") / 400 - 0.8) < 0.06                        # 2.5 / (2.5 + 0.625)
    for k in range(9):       # at most 4 of a domain are new
        wave = [p.id for p in apriel.choose(pool, LEDGER, 8, np.random.default_rng(k))]
        assert len(set(wave)) == sum(min(sum(i[0] == d for i in wave), 4) for d in "pq")


def test_apriels_penalty_of_length_falls_with_difficulty():
    assert apriel.penalty(768, 1024, 256) == 0 and apriel.penalty(1024, 1024, 256) == -1
    assert apriel.penalty(896, 1024, 256) == -0.5 and apriel.penalty(4000, 1024, 256) == -1
    world = toy.world()
    right, wrong = [0, 0, 0, 3], [1, 1, 1, 3]        # the answer to "0?" is a: only "a" and the end is right
    made = [attempt([0, 3], None, 0), *(attempt(y, None, k + 1) for k, y in enumerate((wrong, wrong, right)))]
    made = [r.but(final=world.text.decode(r.segments[0].reply())) for r in made]
    made[3] = made[3].but(stop=Stop.LENGTH)
    one = Group(QUESTION, tuple(made))
    marked = asyncio.run(apriel.reward(one, world, limit=4, buffer=4)).rollouts
    # one of four is right: a quarter of 2/4 tokens' penalty; wrong ones have none, what was cut has all
    assert [r.score.parts["length"] for r in marked] == [-0.125, 0, 0, -1]
    assert [r.score.value for r in marked] == [0.875, 0, 0, -1]
    fined = asyncio.run(apriel.reward(one, world, limit=4, buffer=4, wrong=0.5)).rollouts
    assert [r.score.parts["length"] for r in fined] == [-0.125, -0.5, -0.5, -1]


# T1 -----------------------------------------------------------------------------------------------------------------

def test_t1_fines_what_is_truncated_or_repeats_itself():
    def said(*tokens, stop=Stop.DONE):
        return attempt(tokens, None, stop=stop)

    assert t1.repeats(said(2, 0, 1, 0, 1, 0, 1, 3), 8, 3) and not t1.repeats(said(2, 0, 1, 0, 1, 0, 1, 3), 8, 4)
    assert not t1.repeats(said(0, 1, 0, 1, 0, 1, 3), 1, 3)                  # a sequence of two is longer than the span
    assert t1.repeats(said(0, 1, 0, 1, stop=Stop.LENGTH), 2, 2) and not t1.repeats(said(3), 8, 2)
    world = toy.world()
    one = Group(QUESTION, (said(0, 3), said(0, 0, 0, 0, 3).but(attempt=1), said(1, 2, stop=Stop.LENGTH).but(attempt=2)))
    one = one.of(r.but(final=world.text.decode(r.segments[0].reply())) for r in one.rollouts)
    scored = asyncio.run(t1.reward(one, world)).rollouts
    assert [r.score.value for r in scored] == [1.0, -0.5, -0.5] and [r.mark.value for r in scored] == [1.0, 0.0, 0.0]


def test_t1s_entropy_bonus_has_no_gradient_at_the_uniform_policy():
    logits = torch.zeros(5, requires_grad=True)
    logp = torch.log_softmax(logits, 0)
    entropy = -(logp.exp() * logp).sum()
    batch = batch_of([0.0], lengths=[[1]])
    batch = batch.but(advantage=torch.zeros_like(batch.logp), extra={"reference": torch.zeros_like(batch.logp)})
    value, _ = t1.loss(Forward(torch.zeros_like(batch.logp), entropy.expand_as(batch.logp)), batch, kl=0.0, entropy=1.0)
    value[batch.mask].sum().backward()
    assert_close(float(value.detach()[batch.mask].sum()), -math.log(5))
    assert logits.grad.abs().max() < 1e-7


def test_t1s_reference_is_a_moving_mean_of_the_policy_and_a_checkpoint_has_it():
    def weights(learner):
        return torch.cat([v.flatten() for v in learner.weights().values()]).clone()

    world = toy.world()
    assert not any(k.startswith("reference.") for k in world.state())
    recipe = tune(tune(methods.load("t1").recipe(groups=2, rollouts=8), "pace.lr", 0.3), "pace.warmup", 0)
    recipe, ledger, want, seen = tune(recipe, "improve.keep", 0.75), Ledger(), weights(world.reference), []

    async def go(world, ledger, steps):
        nonlocal want
        async for step in train(recipe, world, ledger, {"rollouts": 16 * steps}):
            if "reward" in step.line:
                want = 0.75 * want + 0.25 * weights(world.learner)
                seen.append(weights(world.reference))
                assert_close(seen[-1].tolist(), want.tolist(), 1e-12)

    asyncio.run(go(world, ledger, 3))
    assert len(seen) >= 2 and not torch.equal(seen[0], seen[-1])
    other = toy.world()
    other.restore(world.state())
    assert torch.equal(weights(other.reference), weights(world.reference))
    assert torch.equal(weights(other.learner), weights(world.learner)) and other.state().keys() == world.state().keys()


# RLPT ---------------------------------------------------------------------------------------------------------------

SUM = Problem("0?", (Message("user", "11+89?"),), "100", meta={"solution": "1+9=10;1+8+1=10;100"})


def tasks(problem, count=60, **settings):
    return [asyncio.run(rlpt.guide(problem, None, Ledger(drawn=k), **settings))[0] for k in range(count)]


def test_rlpt_asks_for_every_segment_but_the_first():
    assert rlpt.segments("1+9=10;1+8+1=10;100", ";") == ["1+9=10;", "1+8+1=10;", "100"]
    assert rlpt.segments("a;b;", ";") == ["a;", "b;"] and rlpt.segments("", ";") == []
    made = {t.variant: (t.prefix, t.meta["segment"]) for t in tasks(SUM, boundary=";")}
    assert made == {                                   # of four segments, the prompt being one: n − 1
        "segment-0": ("", "1+9=10;"), "segment-1": ("1+9=10;", "1+8+1=10;"), "segment-2": ("1+9=10;1+8+1=10;", "100")}
    blank = replace(SUM, meta={"solution": "1;\n;2;\n"})
    assert {t.variant for t in tasks(blank, boundary=";")} == {"segment-0", "segment-2"}
    assert {t.variant for t in tasks(blank, boundary=";", infill=1.0) if t.prefix == ""} == {
        "segment-0", "between-0", "between-2"}
    plain = Problem("p", SUM.prompt, "100")
    assert asyncio.run(rlpt.guide(plain, None, LEDGER)) == [plain]


def test_rlpt_fills_in_what_stands_between_two_segments():
    made = tasks(SUM, 400, boundary=";", infill=1.0)
    between = {t.variant: t for t in made if t.variant.startswith("between")}
    assert sorted(between) == ["between-0", "between-1"]                        # n − 2
    assert abs(sum(t.variant in between for t in made) / 400 - 0.5) < 0.1       # λ / (1 + λ)
    one = between["between-1"]
    assert one.prompt[-1].content == rlpt.BETWEEN.replace("{before}", "11+89?1+9=10;").replace("{after}", "100")
    assert (one.prefix, one.meta["segment"]) == ("", "1+8+1=10;")


def test_rlpt_pays_for_the_texts_own_segment_and_stops_there():
    world = toy.world()
    asked = Problem(QUESTION.id, QUESTION.prompt, "zzz", prefix="b", variant="segment-1",
                    meta={"solution": "bab", "segment": "a", "boundary": "a"})
    pace = methods.load("rlpt").recipe().pace(LEDGER)
    said = asyncio.run(rlpt.play(asked, range(16), world, replace(pace, max_tokens=4), Place(0, 0, 0)))
    texts = [world.text.decode([t for t in s.tokens[s.own].tolist() if t not in world.text.ends])
             for s in (r.segments[-1] for r in said)]
    assert all("a" not in t[:-1] for t in texts) and any(t == "a" for t in texts)
    scored = asyncio.run(rlpt.reward(Group(asked, tuple(said)), world)).rollouts
    assert [r.score.value for r in scored] == [float(t == "a") for t in texts]
    cut = Group(asked, tuple(r.but(stop=Stop.LENGTH) for r in said))
    assert {r.score.value for r in asyncio.run(rlpt.reward(cut, world)).rollouts} == {0.0}
    assert world.meter.of().verify == 0


# RedStar ------------------------------------------------------------------------------------------------------------

def test_redstar_keeps_the_worked_answers_of_what_is_seldom_solved():
    worked = replace(QUESTION, variant="worked")

    def select(*rewards, problem=worked, **settings):
        made = [attempt([0, 3], r, k, problem) for k, r in enumerate(rewards)]
        made.append(attempt([1, 3], 1.0, len(made), problem).but(origin="expert"))
        kept = redstar.select(Group(problem, tuple(made)), LEDGER, **settings)
        return None if kept is None else [r.origin for r in kept.rollouts]

    assert select(1, 0, 0, 0) == ["expert"] and select(0, 0, 0, 0) == ["expert"]
    assert select(1, 1, 0, 0) is None and select(1, 1, 0, 0, hardest=0.5) == ["expert"]
    assert len(select(1, 1, 0, 0, problem=QUESTION)) == 5                       # RL: the whole group


def test_redstar_imitates_first_and_then_reinforces():
    recipe, world = methods.load("redstar").recipe(groups=4, rollouts=4), toy.world()
    recipe = tune(tune(recipe, "guide.steps", 2), "select.hardest", 1.0)
    ledger, steps = run(recipe, world, 64)
    assert [s.line.get("taught", 0) > 0 for s in steps if "reward" in s.line] == [True, True, False, False]
    fates = Counter((line["variant"], fate) for line in ledger.fresh for fate in line["fates"])
    assert fates["worked", "filtered"] == 24 and fates["worked", "trained"] == 8      # 3 own and 1 shown of 8 groups
    assert fates["", "filtered"] == 0 and fates["", "trained"] + fates["", "dead"] == 32


# LATR ---------------------------------------------------------------------------------------------------------------

def text(tokens, *, born=0, parent=None, p1=0.9, p2=0.0, stop=Stop.DONE):
    k = len(tokens)
    return latr.Lookahead(list(tokens), np.log(np.full(k, p1)), [9] * k, np.full(k, p2), stop, born, parent)


def test_latr_needs_a_sampler_that_truncates(tmp_path):
    points = Setting.of(model="flow2d:modes", data="modes:count=20", max_tokens=11, samples=1)
    job = Job(name="latr", setting=points, method="latr", seed=0, budget={"rollouts": 8}, arm=Arm(n=4, B=2, lr=1e-3))
    with pytest.raises(UserError, match=r"latr\.play needs log-probs under top-p and top-k"):
        asyncio.run(run_of(job, tmp_path))


def test_latrs_distance():
    assert latr.distance("abcd", "abxd") / 4 == 0.25                     # pruned at 0.4
    assert [latr.distance(a, b) for a, b in (("", "ab"), ("abc", "bc"), ("kitten", "sitting"))] == [2, 1, 3]
    one, other = text("xabcdz"), text("xabxdz")
    assert latr.alike(replace(other, born=1), one, 4, 0.4) and not latr.alike(replace(other, born=1), one, 4, 0.25)
    assert not latr.alike(replace(other, born=1), one, 5, 0.9)           # the window holds the end: not compared


def test_latr_branches_where_two_tokens_are_close():
    assert latr.branches(text("ab", p1=0.4, p2=0.3), 0, sure=0.25, apart=0.15)
    assert not latr.branches(text("ab", p1=0.45, p2=0.3), 0, sure=0.25, apart=0.15)       # 0.15 apart
    assert not latr.branches(text("ab", p1=0.3, p2=0.25), 0, sure=0.25, apart=0.15)
    assert not latr.branches(text("ab", p1=0.4, p2=0.3), 2, sure=0.25, apart=0.15)        # it has ended


def test_latrs_tree_keeps_branches_that_become_different():
    """Texts of six letters that branch at step 1: with "b" into the same text again, with "c" into another one."""
    async def grow(words):
        said = {"": "aaaaaa", "ab": "abaaaa", "abc": "abcccc"}["".join(words)]
        made = text(said, p1=0.4, p2=0.0, stop=Stop.LENGTH)
        made.second = list("-bc---")
        made.p2[1 if not words else 2] = 0.3 if said != "abcccc" else 0.0
        return made

    async def go(differ):
        live, t = await latr.tree(3, grow, (3,), differ, partial(latr.branches, sure=0.25, apart=0.15), 6)
        return sorted("".join(x.tokens) for x in live), t

    assert asyncio.run(go(0.0)) == (["aaaaaa", "abaaaa", "abcccc"], 6)
    assert asyncio.run(go(0.5))[0] == ["aaaaaa", "abcccc"]      # "baa" is 1 of 3 from "aaa"; "ccc" 3 of 3 from "aaa"
    assert asyncio.run(go(1.1))[0] == ["aaaaaa"]


def test_latrs_second_token_has_its_probability():
    world, place = toy.world(), Place(0, 0, 0)
    pace = replace(methods.load("latr").recipe().pace(LEDGER), max_tokens=4)
    prompt = asyncio.run(play.opening(QUESTION, world, pace, place))
    x = asyncio.run(latr._grown(QUESTION, prompt, world, pace, place, []))
    assert len(x.tokens) == len(x.second) == len(x.p2) > 0
    for t, (top, second) in enumerate(zip(x.tokens, x.second, strict=True)):
        tried = [attempt([*x.tokens[:t], k], 0.0, i) for i, k in enumerate((top, second))]
        batch = pack([Group(QUESTION, tuple(tried))], 0)
        one, two = (world.learner.score(batch).logp * batch.mask).sum(-1).exp().tolist()
        assert_close([one, two], [math.exp(x.logp[: t + 1].sum()), math.exp(x.logp[:t].sum()) * x.p2[t]], 1e-4)


def test_latr_in_the_toy():
    world, pace = toy.world(), methods.load("latr").recipe().pace(LEDGER)
    pace = replace(pace, max_tokens=5)
    never = asyncio.run(latr.play(QUESTION, range(6), world, pace, Place(0, 0, 0), sure=1.0))
    assert len(never) == 6 and not any(r.parent for r in never)
    world = toy.world()
    made = asyncio.run(latr.play(QUESTION, range(6), world, pace, Place(0, 0, 0), sure=0.0, apart=1.0, windows=(1,),
                                 differ=0.0))
    begun = world.meter.of().rollouts
    assert [r.attempt for r in made] == list(range(6)) and begun >= 6
    batch = pack([Group(QUESTION, tuple(r.scored(Score(0.0)) for r in made), Place(0, 0, 0))], 0)
    assert torch.allclose(batch.logp.double(), world.learner.score(batch).logp.double(), atol=1e-5)
    firsts = {int(r.segments[-1].tokens[r.segments[-1].own][0]) for r in made}
    assert len(firsts) >= 2                                             # branches at the first step
    late = asyncio.run(latr.play(QUESTION, range(6), toy.world(), pace, Place(0, 200, 0), sure=0.0))
    plain = asyncio.run(play.sample(QUESTION, range(6), toy.world(), pace, Place(0, 200, 0)))
    assert [r.final for r in late] == [r.final for r in plain]          # η is 0 from step 200 on
    with pytest.raises(UserError, match="top-p"):
        cut = replace(pace, sampling=Sampling(1.0, 0.9, 0))
        asyncio.run(latr.play(QUESTION, range(6), toy.world(), cut, Place(0, 0, 0)))
