"""Second forms of what a step does most: each gives the bytes of the first one."""

import asyncio
import json
import math
from collections import Counter
from functools import partial

import numpy as np
import pytest
import torch

from isocost import methods, ops
from isocost.batch import Forward
from isocost.disk import jsonfile
from isocost.fast import slope
from isocost.fast.columns import whole
from isocost.fast.forms import Forms, of_wave
from isocost.fast.pack import pack
from isocost.fast.slope import sloped
from isocost.fast.wave import sampled as sample_wave
from isocost.ledger import JournalLine, Ledger
from isocost.loop import train
from isocost.methods import vade
from isocost.parts import choose, loss, weight
from isocost.recipe import paced
from isocost.seams import Pace
from isocost.traits import draws
from isocost.types import Cost, Fate, Group, Message, Place, Problem, Rollout, Sampling, Score, Stop
from local_world import batch, model, sums, world
from toy import group

PAGE = json.JSONEncoder(indent=1, sort_keys=True, default=jsonfile.plain, allow_nan=False).encode


@pytest.mark.parametrize("data", [
    {"b": [1.0, 0.1, -0.0, 1e-9, 1e22], "a": (2, 3.5), "é\n\"": None, "c": {"x": [], "y": {}}, "d": [True, False]},
    [[1, 2.0], [], {"a": [np.float64(0.5), np.int64(3)]}, "\u2028"], {2: "a", 10: "b"}, Counter({"b": 2, "a": 1}), 7,
])
def test_a_page_has_the_bytes_of_the_encoder_that_indents(data):
    assert jsonfile.page(data) == PAGE(data)


@pytest.mark.parametrize("data", [[1.0, math.nan], {"a": math.inf}, [1, -math.inf], math.nan])
def test_numbers_that_json_lacks_are_null_in_a_page(data):
    assert jsonfile.page(data) == PAGE(jsonfile.finite(data))


def sampled(counts=(3, 2, 4), scores=None):
    w = world(model(sharp=1.5), kernels="native")
    problems = [Problem(f"{p}\"", (Message("user", p),)) for p in sums(len(counts), 2)]
    places = [Place(7, 3, slot) for slot in range(len(counts))]
    wave = sample_wave(problems, list(counts), w, Pace(1e-3, 6, Sampling()), places)
    wave.scores = scores or [Score(i / 7) for i in range(sum(counts))]
    return w, wave


def test_a_rollout_of_a_whole_wave_is_done_if_an_end_token_is_its_last_and_cut_if_not():
    w, wave = sampled((8, 5, 9))
    ended = [(r.segments[0].tokens[-1] in w.text.ends, r.segments[0].written, r.stop)
             for g in wave.groups() for r in g.rollouts]
    assert {e for e, *_ in ended} == {True, False} and len({k for e, k, _ in ended if e}) > 1
    assert all(stop is (Stop.DONE if e else Stop.LENGTH) and (e or k == 6) for e, k, stop in ended)


def test_rollouts_of_a_whole_wave_that_cannot_be_marked_are_charged_and_cancelled():
    """They were paid for when the reward failed: no later code would give them a fate."""
    class Fails(Exception):
        pass

    async def failing(rollouts: list[Rollout]) -> list[Score]:
        assert len(rollouts) == 8, "a whole wave at once"
        raise Fails

    w = world(model(sharp=1.5), kernels="native")
    w.problems = [Problem(p, (Message("user", p),), answer="1") for p in sums(4, 2)]
    w.grade = failing
    recipe, ledger = paced(methods.recipe("grpo", groups=2, rollouts=4), max_tokens=6), Ledger()

    async def go() -> None:
        async for _ in train(recipe, w, ledger, {"rollouts": 64}):
            raise AssertionError("a step was trained on rollouts without a score")

    with pytest.raises(Fails):
        asyncio.run(go())
    assert w.meter.of().rollouts == 8 and +ledger.fates == Counter({"cancelled": 8})


def test_groups_settled_together_are_counted_as_one_by_one():
    _, wave = sampled()
    groups = wave.groups()
    fates = [[Fate.TRAINED if k % 2 else Fate.DEAD for k in range(g.size)] for g in groups]
    at_once, one_by_one = Ledger(), Ledger()
    at_once.settle_all(groups, fates, 2)
    for g, some in zip(groups, fates, strict=True):
        one_by_one.settle(g, some, 2)
    assert +at_once.fates == +one_by_one.fates and at_once.fates["cancelled"] == 6
    assert [x.data for x in at_once.fresh] == [x.data for x in one_by_one.fresh]


def packed():
    return batch(world(model(sharp=1.5), kernels="native"), sums(2, 2), 2)


def test_lines_of_waves_have_the_bytes_that_the_encoder_gives_them():
    _, wave = sampled()
    for g in wave.groups():
        fates = [Fate.TRAINED if k else Fate.DEAD for k in range(g.size)]
        assert of_wave(JournalLine(4, g, fates, 1)) == jsonfile.line(JournalLine(4, g, fates, 1).data)
    unscored, one = [Score(0.5)] * 8 + [None], Score(math.nan)
    assert all(of_wave(JournalLine(0, g, [], 0)) is None for g in sampled(scores=unscored)[1].groups())
    assert of_wave(JournalLine(0, sampled(scores=[one] * 9)[1].groups()[0], [], 0)) is None
    made = group([0.0, 1.0])
    line = JournalLine(0, made, [Fate.DEAD] * 2, 0)
    assert of_wave(line) is None and line["rewards"] == [0.0, 1.0]
    for each in (line, JournalLine(4, wave.groups()[0], [], 0)):
        assert Forms().line(each) == each.text() == jsonfile.line(each.data)


def test_tallies_that_are_read_late_are_those_that_are_read_after_every_group():
    late, early = Ledger(), Ledger()
    for step in range(5):
        for slot in range(3):
            one = group([step / 4, slot / 2, 1.0], slot=slot)
            late.saw(one)
            early.saw(one)
            assert early.tallies is early.tallies and early.history
        for ledger in (late, early):
            ledger.close(Cost(), 3, {})
    assert late.tallies == early.tallies and late.history == early.history and late == early


@pytest.mark.parametrize("counts", [(3, 3, 3), (3, 2, 4), (1, 1, 1)])
def test_a_wave_is_counted_and_settled_as_its_groups_are_one_by_one(counts):
    _, wave = sampled(counts)
    together, apart = Ledger(), Ledger()
    groups = wave.groups()
    objects = [g.of(g.rollouts) for g in groups]
    fates = [[Fate.TRAINED if k else Fate.DEAD for k in range(g.size)] for g in groups]
    together.saw(*groups)
    together.settle_all(groups, fates)
    for g, some in zip(objects, fates, strict=True):
        apart.saw(g)
        apart.settle(g, some)
    assert list(map(dict, together.fresh)) == list(map(dict, apart.fresh)) and together.fates == apart.fates
    assert together.close(Cost(rollouts=9), 3, {}) == apart.close(Cost(rollouts=9), 3, {})
    assert together.tallies == apart.tallies and together.history == apart.history


def test_a_wave_with_a_rollout_that_has_no_score_is_counted_group_by_group():
    _, wave = sampled(scores=[None, *[Score(0.5)] * 8])
    together, apart = Ledger(), Ledger()
    together.saw(*wave.groups())
    for g in wave.groups():
        apart.saw(g.of(g.rollouts))
    assert together.close(Cost(), 3, {}) == apart.close(Cost(), 3, {}) and together.history == apart.history
    first, second, _ = wave.groups()
    assert first.scored.attempts == [1, 2] and second.scored is second


def test_groups_are_a_whole_wave_only_all_together_and_in_order():
    _, wave = sampled()
    groups = wave.groups()
    assert whole(groups) is wave and whole(wave.groups()) is wave
    others = sampled()[1].groups()
    for some in ([], groups[:2], groups[1:], groups[::-1], [*groups[:2], others[2]], [groups[0].of(()), *groups[1:]]):
        assert whole(some) is None


@pytest.mark.parametrize("settings", [{}, {"low": 0.1, "high": 0.3}, {"dual": 3.0}])
def test_the_slope_of_the_clipped_loss_is_what_autograd_finds(settings):
    made = packed()
    made = made.but(advantage=torch.linspace(-2, 2, made.tokens.numel()).view(made.tokens.shape))
    logp = (-torch.rand(made.tokens.shape)).requires_grad_()
    per_token, said = loss.clipped(Forward(logp, logp.detach()), made, **settings)
    per_token.sum().backward()
    known = sloped(partial(loss.clipped, **settings))(Forward(logp.detach(), logp.detach()), made)
    assert known is not None
    assert torch.equal(known[0], per_token.detach()) and torch.equal(known[2], logp.grad)
    assert known[1].keys() == said.keys()
    assert all(torch.equal(torch.as_tensor(known[1][k]).expand_as(said[k]), said[k]) for k in said)


def test_a_metric_that_is_a_number_is_what_a_tensor_of_it_is(monkeypatch):
    """Of an update on the sampler's tapes, by the slope and by autograd."""

    def known(out, batch):
        asked.append(out)
        return -batch.advantage, {"share": 0.25, "gap": batch.logp}, -batch.advantage

    def surrogate(out, batch):
        said = {"share": torch.full(batch.tokens.shape, 0.25), "gap": batch.logp}
        return loss.pessimistic(ops.log_ratio(out, batch).exp(), batch.advantage, 0.2, 0.2, 0.0)[0], said

    def with_slope(out, batch):
        return surrogate(out, batch)

    monkeypatch.setattr(slope, "FORMS", [(with_slope, known)])
    (w, wave), asked = sampled(), []
    made = pack(wave.groups(), version=0)
    made = made.but(advantage=ops.spread(made.reward - 0.5, made), weight=weight.rollout_mean(made))
    found = []
    for fn in (with_slope, surrogate):
        found.append((w.learner.gradient(made, fn), w.learner._grad.clone()))
    (by_slope, slopes), (by_autograd, gradient) = found
    assert asked and by_slope == pytest.approx(by_autograd, rel=1e-6) and by_slope["share"] == 0.25
    assert torch.equal(slopes, gradient)


def test_autograd_is_left_what_the_slope_does_not_know():
    made = packed()
    made = made.but(advantage=torch.ones(made.tokens.shape))
    out = Forward(*torch.zeros(2, *made.tokens.shape))
    assert sloped(partial(loss.clipped, dual=1.0))(out, made) is None
    assert sloped(partial(loss.clipped, low=0.0))(out, made) is None
    assert sloped(loss.clipped)(out, made.but(old=out.logp)) is None
    assert sloped(loss.reweighed) is None


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_adamw_in_the_kernel_is_torchs(weight_decay):
    made = [world(model(), kernels=k).learner for k in ("native", "torch")]
    for learner in made:
        learner.adam = type(learner.adam)(weight_decay=weight_decay, max_norm=0.5)
    draw = torch.Generator().manual_seed(0)
    for step in range(4):
        gradient = torch.randn(made[0].parameters, generator=draw) * 10.0 ** (step - 2)
        versions = [x.weights().version for x in made]
        norms = [x.step(gradient, lr=1e-3) for x in made]
        assert norms[0] == norms[1] and all(x.weights().version > v for x, v in zip(made, versions, strict=True))
    a, b = (x.state() for x in made)
    # The last bit of a product that is added is the processor's in torch, which may have no fused multiply-add: that of
    # the summands, which may be larger than their sum.
    assert all(torch.allclose(a[k], b[k], rtol=1e-6, atol=1e-6 * float(b[k].abs().max())) for k in a)


def test_numpys_form_of_the_average_is_torchs():
    made = packed()
    x = torch.linspace(-1, 1, len(made.reward))
    assert torch.equal(ops.spread(x, made), x[made.rollout, None] * made.mask)
    length = torch.zeros_like(made.reward).index_add_(0, made.rollout, made.mask.sum(-1, dtype=torch.float32))
    assert torch.equal(ops.lengths(made), length)
    assert ops.spread(x.clone().requires_grad_(), made).requires_grad
    share = (1 / length.clamp(min=1))[made.rollout, None] * made.mask / weight.count(length)
    assert torch.equal(weight.rollout_mean(made), share)


def test_outcomes_that_are_kept_are_so_many_at_most(monkeypatch):
    monkeypatch.setattr(ops, "KNOWN", 2)
    calls = []

    def centred(r):
        calls.append(r.tolist())
        return r - r.mean()

    made, known = packed(), {}
    made = made.but(group=torch.tensor([0, 0, 1, 1]))
    for k in (1.0, 1.0, 2.0, 1.0):      # the third leaves four outcomes, so all are forgotten before the last
        ops.in_groups(centred, torch.tensor([0.0, k, k, 0.0]), made, known)
        assert sum(map(len, known.values())) <= 2 + 2
    assert calls == [[0.0, 1.0], [1.0, 0.0], [0.0, 2.0], [2.0, 0.0], [0.0, 1.0], [1.0, 0.0]]


def test_outcomes_that_are_kept_are_those_of_their_settings():
    calls = []

    @ops.per_group
    def advantage(r, *, scale=1.0):
        calls.append(r.tolist())
        return (r - r.mean()) * scale

    made = packed()
    made = made.but(reward=torch.tensor([0.0, 1.0, 0.0, 1.0]), group=torch.tensor([0, 0, 1, 1]))
    first, again, double = advantage(made), advantage(made), advantage(made, scale=2.0)
    assert torch.equal(first, again) and torch.equal(double, 2 * first) and calls == [[0.0, 1.0]] * 2
    apart = made.but(group=torch.tensor([0, 1, 0, 1]))          # siblings that are not neighbours are all equal here
    assert not advantage(apart).any()


def test_a_choice_that_draws_nothing_says_so():
    assert not draws(choose.uniform) and draws(vade.choose) and draws(partial(vade.choose))


def test_tapes_of_a_wave_are_one_object_and_are_freed_with_it():
    w, wave = sampled()
    together = w.engine.tapes_of(wave)
    assert together is not None and together.rows.tolist() == [3, 2, 4]
    cache = w.engine.cache
    assert len(cache._taped) == 1
    each = w.engine.tapes
    assert list(each) == wave.places and w.engine.tapes_of(wave) is None      # now they are one by one
    tape = each[wave.places[1]]
    w.engine.restore(w.learner.weights(), 1)
    del each, together
    assert len(cache._taped) == 1 and tape.tokens[0] == wave.prompts[1][0]     # one of them is still held
    del tape
    assert not cache._taped


def test_a_group_object_of_a_wave_has_the_rewards_of_its_columns():
    _, wave = sampled()
    for g in wave.groups():
        assert g.rewards.tolist() == Group(g.problem, g.rollouts, g.place).rewards.tolist()
