"""Preferences between answers, and the methods that play against themselves: golden numbers of small games."""

import asyncio
import zlib

import numpy as np
import pytest
import torch

import toy
from isocost import methods
from isocost.ledger import Ledger
from isocost.methods import inpo, nashmp
from isocost.pack import pack
from isocost.parts import prefer
from isocost.recipe import tune
from isocost.types import Group, Score
from isocost.worlds.toy import END, world
from toy import attempt, batch_of, per_rollout

HALF = f"{__file__}:half"        # a judge without a preference
SCISSORS = torch.tensor([[0.5, 1.0, 0.0], [0.0, 0.5, 1.0], [1.0, 0.0, 0.5]], dtype=torch.float64)
UNIFORM = torch.full((3,), 1 / 3, dtype=torch.float64)


def half(problem, texts):
    return [0.5] * len(texts)


def on_tokens(batch, logp):
    """A log-prob for each rollout as (N, T): all of it on the first sampled token."""
    out = torch.zeros_like(batch.logp, dtype=torch.float64)
    out[torch.arange(len(logp)), batch.mask.float().argmax(-1)] = logp
    return out


def game(reward, past, reference=None, sampler=None, won=None):
    """One group in which each answer of a game is one attempt; `won` are the chances to win, as parts."""
    batch = batch_of([0.0] * len(past))
    if won is not None:
        made = [r.scored(Score(0.0, {f"over {k}": float(x) for k, x in enumerate(p)}))
                for r, p in zip(batch.groups[0].rollouts, won, strict=True)]
        batch = batch.but(groups=(batch.groups[0].of(made),))
    flat = [None if p is None else on_tokens(batch, p.log()) for p in (past, reference, sampler)]
    return batch.but(reward=reward, old=flat[0], extra={"reference": flat[0] if flat[1] is None else flat[1]},
                     logp=flat[0] if flat[2] is None else flat[2])


def step(advantage, batch, **settings):
    """The policy at the minimum of the loss: u is linear in log π, so what is missing is all that is missing."""
    missing = torch.tensor(per_rollout(advantage(batch, Ledger(), **settings), batch), dtype=torch.float64)
    return torch.softmax((batch.old * batch.mask).sum(-1) + missing, 0)


def test_the_minimum_of_inpo_is_the_mirror_step_in_closed_form():
    """Four answers, τ = 0.1, η = 0.5: π_t+1 ∝ exp(P(y ≻ π_t) / η) π_ref^(τ/η) π_t^(1 − τ/η)."""
    draw = torch.Generator().manual_seed(3)
    past, reference = (torch.softmax(torch.randn(4, generator=draw, dtype=torch.float64), 0) for _ in range(2))
    edge = torch.rand(4, 4, generator=draw, dtype=torch.float64)
    wins = (0.5 + edge.triu(1) - 0.5 * torch.ones(4, 4).triu(1))
    wins = wins.triu(1) + (1 - wins.T).tril(-1) + 0.5 * torch.eye(4)
    share = wins @ past
    closed = torch.softmax(share / 0.5 + 0.2 * reference.log() + 0.8 * past.log(), 0)
    batch = game(share, past, reference)
    assert (step(inpo.advantage, batch, eta=0.5, tau=0.1) - closed).abs().max() < 1e-12
    there = batch.but(extra={**batch.extra, inpo.NOW: on_tokens(batch, closed.log())})
    assert max(map(abs, per_rollout(inpo.advantage(there, Ledger(), eta=0.5, tau=0.1), batch))) < 1e-12
    assert max(map(abs, per_rollout(inpo.advantage(there, Ledger(), eta=0.5, tau=0.2), batch))) > 1e-3


def test_the_loss_of_all_pairs_has_the_gradient_that_is_missing():
    """L / 2G of the docstring, by autograd, for three answers and any policy under way."""
    u_like = torch.tensor([0.4, -0.3, 1.1], dtype=torch.float64, requires_grad=True)
    share, past, ref, eta, tau = SCISSORS @ UNIFORM, UNIFORM, torch.tensor([0.5, 0.3, 0.2]).double(), 0.5, 0.1
    u = u_like - tau / eta * ref.log() - (1 - tau / eta) * past.log()
    target = (SCISSORS - 0.5) / eta
    (((u[:, None] - u[None, :] - target) ** 2).sum() / 2 / (2 * 3)).backward()
    batch = game(share, past, ref)
    batch = batch.but(extra={**batch.extra, inpo.NOW: on_tokens(batch, u_like.detach())})
    credit = per_rollout(inpo.advantage(batch, Ledger(), eta=eta, tau=tau), batch)
    assert credit == pytest.approx((-u_like.grad).tolist(), abs=1e-12)


def test_the_nash_policy_of_a_game_is_where_neither_method_moves():
    """Margins 0.1, 0.2 and 0.3 of a circle of three: each is played by the margin of the other two, 1/2, 1/6, 1/3."""
    a, b, c = 0.1, 0.3, 0.2                          # first over second, second over third, third over first
    wins = 0.5 + torch.tensor([[0, a, -c], [-a, 0, b], [c, -b, 0]], dtype=torch.float64)
    nash = torch.tensor([b, c, a], dtype=torch.float64) / (a + b + c)
    assert (wins @ nash - 0.5).abs().max() < 1e-12
    for advantage in (inpo.advantage, nashmp.advantage):
        assert (step(advantage, game(wins @ nash, nash)) - nash).abs().max() < 1e-12
        assert (step(advantage, game(wins @ UNIFORM, UNIFORM, nash)) - UNIFORM).abs().max() > 1e-2


@pytest.mark.parametrize(("eta", "mirror", "self_play"), [
    (0.3, 5e-4, 1.4e-5), (0.6, 4e-7, 7.7e-8), (1.2, 1e-9, 8.5e-9),
])
def test_mirror_prox_contracts_as_worked_out_and_self_play_at_equal_queries(eta, mirror, self_play):
    """Rock, paper, scissors, β = 0.3, from (0.8, 0.15, 0.05): KL(π* ‖ π) after 12 steps of two halves, 24 of one."""
    start = torch.tensor([0.8, 0.15, 0.05]).double()

    def away(policy):
        return float((UNIFORM * (UNIFORM / policy).log()).sum())

    policy = start
    for _ in range(12):
        half = step(nashmp.advantage, game(SCISSORS @ policy, policy, UNIFORM), beta=0.3, eta=eta)
        drawn = game(SCISSORS @ policy, policy, UNIFORM, sampler=UNIFORM, won=SCISSORS)    # each answer once
        won = nashmp.against(drawn, on_tokens(drawn, half.log()))
        assert (won - SCISSORS @ half).abs().max() < 1e-12
        policy = step(nashmp.advantage, drawn.but(reward=won), beta=0.3, eta=eta)
    if eta < 1.2:
        assert away(policy) == pytest.approx(mirror, rel=0.35)
    else:
        assert away(policy) < mirror
    alone = start
    for _ in range(24):
        alone = step(nashmp.advantage, game(SCISSORS @ alone, alone, UNIFORM), beta=0.3, eta=eta)
    assert away(alone) == pytest.approx(self_play, rel=0.05)


def answers(*finals):
    made = [attempt([k % 3] * (1 + k // 3) + [END], None, k) for k in range(len(finals))]
    return Group(toy.QUESTION, tuple(r.but(final=x) for r, x in zip(made, finals, strict=True)))


def test_a_scorer_decides_who_wins_and_a_circle_makes_it_cyclic(tmp_path):
    (tmp_path / "j.py").write_text("def f(problem, texts):\n    return [{'x': 0.9, 'y': 0.5}.get(t, 0.1) "
                                   "for t in texts]\n")
    group = answers("x", "y", "z")
    judge = f"{tmp_path / 'j.py'}:f"
    found = asyncio.run(prefer.reward(group, world(), judge=judge))
    assert [r.score.value for r in found.rollouts] == pytest.approx([0.7, 0.5, 0.3])
    assert found.rollouts[0].score.parts == pytest.approx({"right": 0.0, "over 0": 0.5, "over 1": 0.7, "over 2": 0.9})
    assert prefer.circle([0, 1, 2, None], 3).tolist() == [
        [0, 0.5, -0.5, 0], [-0.5, 0, 0.5, 0], [0.5, -0.5, 0, 0], [0, 0, 0, 0]]
    known = {x: zlib.crc32(x.encode()) % 3 for x in "abcdefgh"}
    ring = [next(x for x, c in known.items() if c == k) for k in range(3)]
    found = asyncio.run(prefer.reward(answers(*ring), world(), judge=HALF, cycle=1.0))
    won = np.array([[r.score.parts[f"over {k}"] for k in range(3)] for r in found.rollouts])
    assert won.tolist() == [[0.5, 1, 0], [0, 0.5, 1], [1, 0, 0.5]], "each beats the next, and none beats both"
    assert [r.score.value for r in found.rollouts] == [0.5] * 3


def test_chances_stay_within_0_and_1_and_an_answer_without_a_score_plays_no_one(tmp_path):
    after = next(x for x in "bcdefgh" if (zlib.crc32(x.encode()) - zlib.crc32(b"a")) % 3 == 1)
    (tmp_path / "j.py").write_text("def f(problem, texts):\n    return [None if t == '?' else float(t == 'a') "
                                   "for t in texts]\n")
    found = asyncio.run(prefer.reward(answers("a", after, "?"), world(), judge=f"{tmp_path / 'j.py'}:f", cycle=1.0))
    assert found.rollouts[2].score is None and "over 2" not in found.rollouts[0].score.parts
    assert [r.score.value for r in found.rollouts[:2]] == [0.75, 0.25], "1 and 0, and not 3/2 and -1/2"
    group = answers("a", "b")
    marked = group.of(r.marked(Score(x)) for r, x in zip(group.rollouts, (3.0, 0.5), strict=True))
    found = asyncio.run(prefer.reward(marked, world()))
    assert [r.score.value for r in found.rollouts] == [0.625, 0.375], "marks are limited to [0, 1]"


def test_a_policy_that_compares_is_asked_in_both_orders(monkeypatch):
    """A judge that always names the first has no preference; one that knows decides; a silent one leaves a half."""
    async def prefers(problem, one, other, world):
        return True if "x" not in (one, other) else None if "z" in (one, other) else one == "x"

    monkeypatch.setattr(prefer.generative, "prefer", prefers)
    found = asyncio.run(prefer.reward(answers("x", "y", "z"), world(), judge="pairwise"))
    won = [[r.score.parts[f"over {k}"] for k in range(3)] for r in found.rollouts]
    assert won == [[0.5, 1.0, 0.5], [0.0, 0.5, 0.5], [0.5, 0.5, 0.5]]


@pytest.mark.parametrize(("name", "scale"), [("inpo", 1 / 0.5), ("nashmp", 0.5 / 1.5 / 0.3)])
def test_the_updates_come_to_the_minimum_of_a_step(name, scale, monkeypatch):
    """Three answers of the toy policy, once each, in a game of 1, 1/2 and 0; the reference is the policy itself.

    Centred, log π / π_t is `scale` times the wins; those of Mirror Prox are against the policy of the first half.
    """
    won = torch.tensor([[0.5, 1.0, 0.25], [0.0, 0.5, 0.5], [0.75, 0.5, 0.5]], dtype=torch.float64)
    made = [attempt([k, END], float(won[k].mean()), k) for k in range(3)]
    made = [r.scored(Score(r.score.value, {f"over {j}": float(x) for j, x in enumerate(won[k])}))
            for k, r in enumerate(made)]
    here, settings = world(count=1), {"inpo": {"eta": 0.5, "tau": 0.1}, "nashmp": {"beta": 0.3, "eta": 0.5}}[name]
    recipe = methods.recipe(name)
    for path, value in (("pace.lr", 0.04), ("pace.warmup", 0), ("improve.updates", 80),
                        *((f"advantage.{k}", v) for k, v in settings.items())):
        recipe = tune(recipe, path, value)
    ledger, batch = Ledger(), pack([Group(toy.QUESTION, tuple(made))], 0)
    before = here.learner.score(batch).logp * batch.mask
    batch = batch.but(logp=before, extra={"reference": before})
    batch = batch.but(advantage=recipe.advantage(batch, ledger), weight=recipe.weight(batch))
    descend = inpo.descend

    def checked(batch, *rest):
        assert batch.old is not None and torch.equal(batch.advantage, recipe.advantage(batch, ledger))
        return descend(batch, *rest)

    monkeypatch.setattr(inpo, "descend", checked)       # each update has what is missing at that policy
    recipe.improve(batch, recipe, here, ledger)
    found = ((here.learner.score(batch).logp - before) * batch.mask).sum(-1)
    wins = won.mean(1)
    if name == "nashmp":
        wins = won @ torch.softmax(scale * wins, 0)
    uneven = batch_of([1.0, 0.0], lengths=[[2, 5]])
    assert len({*recipe.weight(uneven)[uneven.mask].tolist()}) == 1, "the loss has log-probs of whole answers"
    assert (found - found.mean()).tolist() == pytest.approx((scale * (wins - wins.mean())).tolist(), abs=0.01)
