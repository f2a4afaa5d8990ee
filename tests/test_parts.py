"""The ready-made values of the seams, each against what its docstring promises."""

import asyncio
import itertools
from collections import Counter
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from isocost import chance, methods
from isocost.errors import UserError
from isocost.ledger import Ledger
from isocost.methods import april, arrol, dapo, reinforce
from isocost.pack import pack
from isocost.parts import allocate, choose, enrich, pace, play, reward, select
from isocost.recipe import tune
from isocost.runs.evaluate import evaluate
from isocost.seams import Pace
from isocost.types import Message, Place, Role, Said, Sampling, Segment, Shown, Stop
from isocost.worlds import toy
from toy import attempt, group, run

PLACE, PACE = Place(7, 3, 2), Pace(lr=0.0, max_tokens=8, max_turns=3)


def sample(world, attempts=range(6), pace=PACE, start=None, problem=None):
    return asyncio.run(play.sample(problem or world.problems[1], attempts, world, pace, PLACE, start))


def same(a: Segment, b: Segment) -> bool:
    fields = ("tokens", "role", "logp", "turn", "version")
    pairs = [(getattr(a, f), getattr(b, f)) for f in fields]
    return all(np.array_equal(x, y) and x.dtype == y.dtype for x, y in pairs)


# choose, allocate --------------------------------------------------------------------------------------------------

def test_every_problem_of_an_epoch_is_used_once_however_waves_are_cut():
    pool = toy.questions(10)

    def drawn(counts):
        ledger, out = Ledger(seed=5), []
        for wave, count in enumerate(counts):
            out += choose.uniform(pool, ledger, count, chance.generator(5, chance.Purpose.CHOOSE, wave))
            ledger.drawn += count
        return [p.id for p in out]

    whole = drawn([30])
    assert [Counter(whole[k : k + 10]) for k in (0, 10, 20)] == [Counter("0123456789")] * 3
    assert whole[:10] != whole[10:20] != whole[20:]
    assert drawn([4, 4, 4, 7, 11]) == whole == drawn([1] * 30)
    assert drawn([10]) != [p.id for p in choose.uniform(pool, Ledger(seed=6), 10, np.random.default_rng())]


@pytest.mark.parametrize(("slots", "total"), [(4, 32), (5, 32), (7, 3), (1, 9)])
def test_equal_shares_sum_exactly_and_differ_by_at_most_one(slots, total):
    counts = allocate.equal(toy.questions(slots), Ledger(), total)
    assert sum(counts) == total and len(counts) == slots and max(counts) - min(counts) <= 1


# play --------------------------------------------------------------------------------------------------------------

def test_a_group_is_asked_of_the_engine_once_and_reads_what_append_would():
    world, calls = toy.world(), []
    generate = world.engine.generate

    async def spy(start, attempts, **how):
        said = await generate(start, attempts, **how)
        calls.append((start, list(attempts), said, how))
        return said

    world.engine.generate = spy
    rollouts = sample(world, [4, 0, 2])
    ((start, asked, said, how),) = calls
    assert asked == [4, 0, 2] == [r.attempt for r in rollouts] and how["turn"] == 0
    for rollout, s in zip(rollouts, said, strict=True):
        assert same(rollout.segments[0], start.wrote(s))
        assert rollout.final == world.text.decode(s.tokens) and rollout.stop is s.stop
    assert world.meter.of().rollouts == 3 and world.meter.of().prefill == 6


@pytest.mark.parametrize("count", [0, 1, 256, 257, 600])
def test_texts_of_any_length_are_appended_with_their_roles(count):
    """Arrays for 256 tokens are made once; longer ones are made when they are needed."""
    tokens = np.arange(count)
    said = Said(tokens, np.full(count, -0.5, dtype=np.float32), np.full(count, 3), Stop.DONE)
    for text, role, turn, version in (
        (Segment.empty().read(tokens), Role.SEEN, -1, -1), (Segment.empty().wrote(said), Role.OWN, 0, 3),
    ):
        assert text.tokens.tolist() == tokens.tolist() and text.role.tolist() == [int(role)] * count
        assert text.turn.tolist() == [turn] * count and text.version.tolist() == [version] * count
        assert len(text.logp) == count


def test_a_reply_begins_after_all_that_the_policy_was_given():
    said = Said(np.array([5]), np.zeros(1, dtype=np.float32), np.zeros(1, dtype=int), Stop.DONE)
    text = Segment.given([1, 2], Role.PROMPT).wrote(said)
    assert text.reply().tolist() == [5]
    text = text.read([3, 4]).read([6], Role.HINT).wrote(said)
    assert text.reply().tolist() == [6, 5], "a hint is part of the answer, what the environment said is not"


def test_attempts_say_the_same_alone_and_together():
    together = sample(toy.world())
    for rollout in together:
        (alone,) = sample(toy.world(), [rollout.attempt])
        assert same(alone.segments[0], rollout.segments[0])
    assert len({r.final for r in together}) > 1


def test_a_prefix_is_a_hint_in_the_mouth_and_part_of_what_is_marked():
    world = toy.world()
    problem = replace(world.problems[1], prefix="ab")
    for rollout in sample(world, problem=problem):
        (text,) = rollout.segments
        assert [Role(r).name for r in text.role[:4]] == ["PROMPT", "PROMPT", "HINT", "HINT"]
        assert rollout.final.startswith("ab") and not text.own[:4].any()


@pytest.mark.parametrize("at", [2, 3, 4])
def test_resuming_from_a_prefix_says_what_would_have_been_said(at):
    world = toy.world()
    whole = next(r for r in sample(world, range(40)) if len(r.segments[0]) > 5)
    (again,) = sample(world, [whole.attempt], start=whole.segments[0].cut(at))
    assert same(again.segments[0], whole.segments[0]) and again.final == whole.final


def test_truncation_is_by_the_turn_whether_resumed_or_not():
    short = Pace(lr=0.0, max_tokens=3)
    world = toy.world()
    cut = next(r for r in sample(world, range(40), short) if r.stop is Stop.LENGTH)
    assert cut.segments[0].own.sum() == 3
    (again,) = sample(world, [cut.attempt], short, cut.segments[0].cut(4))
    assert same(again.segments[0], cut.segments[0]) and again.stop is Stop.LENGTH


class Again:
    """Three goes; being wrong is answered with "?", and `said` is what was heard."""

    def __init__(self, problem):
        self.problem, self.said = problem, []

    async def open(self):
        return Shown(self.problem.prompt)

    async def step(self, said, luck):
        self.said.append(said)
        await asyncio.sleep(0)
        return Shown((Message("user", "?"),), said == self.problem.answer)

    def final(self):
        return self.said[-1]

    async def close(self):
        pass


def test_a_dialogue_is_one_segment_with_a_turn_for_each_answer():
    world = toy.world()
    world.env = Again
    rollouts = sample(world, range(20))
    stops = Counter(r.stop for r in rollouts)
    assert stops[Stop.DONE] and stops[Stop.TURNS]
    for rollout in rollouts:
        (text,) = rollout.segments
        turns = text.turn[text.own]
        assert set(turns) == set(range(turns[-1] + 1)) and turns[-1] < 3
        assert not text.own[text.role == Role.SEEN].any() and (text.logp[text.role == Role.SEEN] == 0).all()
        if rollout.stop is Stop.TURNS:
            assert turns[-1] == 2
        if rollout.stop is Stop.DONE:
            assert rollout.final == rollout.problem.answer
    mask = pack([group([1]).of([r.but(score=attempt([3], 1.0).score) for r in rollouts])], 0)
    assert (mask.mask == (mask.turn >= 0)).all()


def test_a_fork_takes_the_environment_through_what_was_said():
    world, heard = toy.world(), []

    class Heard(Again):
        def __init__(self, problem):
            super().__init__(problem)
            heard.append(self)

    world.env = Heard
    whole = next(r for r in sample(world, range(20)) if r.segments[0].turn.max() == 2)
    first = next(env.said for env in heard if len(env.said) == 3)
    (text,) = whole.segments
    start = text.cut(int(np.flatnonzero(text.turn == 2)[0]))      # before its third answer
    heard.clear()
    (again,) = sample(world, [whole.attempt], start=start)
    assert same(again.segments[0], text) and again.final == whole.final
    assert len(heard) == 1 and len(heard[0].said) == 3 == len(first)


class Broken(Again):
    async def step(self, said, luck):
        raise OSError("the sandbox is gone")


def test_an_environment_that_fails_gives_a_rollout_without_score(caplog):
    world = toy.world()
    world.env = Broken
    rollouts = sample(world, range(3))
    assert {r.stop for r in rollouts} == {Stop.ERROR} and "the sandbox is gone" in caplog.text
    scored = asyncio.run(reward.verified(group([1]).of(rollouts), world))
    assert [r.score for r in scored.rollouts] == [None] * 3 and world.meter.of().verify == 0


class GoneError(Exception):
    pass


class Final(Again):
    def final(self):
        raise GoneError


def test_an_environment_that_fails_while_it_is_taken_through_or_at_its_end_gives_such_a_rollout_too():
    """What was said stays, and was paid for; the step that failed was asked for, those taken again were not."""
    world, text = toy.world(), None
    world.env = Again
    whole = next(r for r in sample(world, range(20)) if r.segments[0].turn.max() == 2)
    (text,) = whole.segments
    start = text.cut(int(np.flatnonzero(text.turn == 2)[0]))      # before its third answer

    class Resumed(Again):
        async def step(self, said, luck):
            raise GoneError

    for env, most in ((Resumed, 3), (Final, 3), (Final, 1)):
        world = toy.world()
        world.env = env
        first = start if env is Resumed else None
        (again,) = sample(world, [whole.attempt], replace(PACE, max_turns=most), first)
        cost = world.meter.of()
        assert (again.stop, again.final) == (Stop.ERROR, "") and again.segments[0].written > 0
        assert cost.decode == again.segments[0].written - (0 if first is None else first.written)
        assert cost.env_steps == (0 if first is not None else again.segments[0].turn.max() + 1)
    world = toy.world()
    world.env = Broken
    (failed,) = sample(world, [0])
    assert world.meter.of().env_steps == 1 and failed.stop is Stop.ERROR


def test_rollouts_whose_environment_fails_are_lost_and_billed_and_measured_as_nothing():
    """Attempts are cut after two tokens of a turn and resumed; every third step fails, of those taken again too."""
    calls = itertools.count(1)

    class Third(Again):
        async def step(self, said, luck):
            if next(calls) % 3 == 0:
                raise GoneError
            return await super().step(said, luck)

    world = toy.world()
    world.env = Third
    recipe = tune(methods.load("grpo").recipe(groups=5, rollouts=4), "pace.max_turns", 3)
    ledger, steps = run(recipe.but(schedule=partial(arrol.schedule, at=2)), world, 100)
    assert len(steps) == 5 and sum(ledger.fates.values()) == world.meter.of().rollouts == 100
    assert ledger.fates["lost"] > 10 and next(calls) > world.meter.of().env_steps + 1, "some were taken through again"
    world.env = Broken
    found = asyncio.run(evaluate(recipe, world, world.problems, recipe.pace(ledger), samples=4, exact=False))
    assert found.unscored == 4 * len(world.problems) and world.meter.of("evaluation").verify == 0


# schedule ----------------------------------------------------------------------------------------------------------

def test_first_back_keeps_the_shortest_and_pays_for_the_rest():
    world, ledger = toy.world(), Ledger()

    async def attempts(problem, which, start=None):
        return await play.sample(problem, which, world, PACE, PLACE, start)

    everyone = {r.attempt: int(r.segments[0].own.sum()) for r in sample(toy.world(), range(8))}
    kept = asyncio.run(april.first_back(world.problems[1], range(8), attempts, ledger, keep=0.5))
    best = sorted(everyone, key=lambda a: (everyone[a], a))[:4]
    assert [r.attempt for r in kept] == sorted(best)
    assert world.meter.of().rollouts == 8
    assert sum(everyone[a] for a in best) < world.meter.of().decode < sum(everyone.values())


def test_first_back_trains_and_every_rollout_has_a_fate():
    world = toy.world()
    ledger, steps = run(methods.load("grpo").recipe(schedule=april.first_back, groups=5), world, 120)
    assert len(steps) == 3 and ledger.fates["cancelled"] == 30
    assert sum(ledger.fates.values()) == world.meter.of().rollouts == 120


# reward, select, enrich, pace --------------------------------------------------------------------------------------

def test_running_out_of_room_is_charged_and_the_verdict_kept_beside_it():
    world = toy.world()
    right, wrong = attempt([0, 3], None), attempt([1, 3], None, 1)
    made = [right.but(final="a"), wrong.but(final="b"), right.but(final="a", stop=Stop.LENGTH, attempt=2)]
    scored = asyncio.run(dapo.reward(group([1]).of(made), world, penalty=0.5))
    assert [r.score.value for r in scored.rollouts] == [1.0, 0.0, -0.5]     # what was cut was not right
    assert [r.score.parts["right"] for r in scored.rollouts] == [1.0, 0.0, 0.0]
    assert [r.score.parts["overlong"] for r in scored.rollouts] == [0, 0, -0.5]


def test_mixed_reads_the_part_that_is_named():
    assert select.mixed(group([1, 1, 1]), Ledger()) is None
    assert select.mixed(group([1, 0, 1]), Ledger()) is not None
    shaped = [r.but(score=type(r.score)(r.score.value, {"right": 0.0})) for r in group([0, -0.5]).rollouts]
    assert select.mixed(group([0, 0]).of(shaped), Ledger()) is not None
    assert select.mixed(group([0, 0]).of(shaped), Ledger(), part="right") is None
    assert select.mixed(group([1, 0]).of([attempt([3], None), attempt([3], 1.0, 1)]), Ledger()) is None


def test_a_reference_that_is_not_there_is_asked_for_by_name():
    world, batch = toy.world(), pack([group([1, 0])], 0)
    assert enrich.reference(batch, world).extra["reference"].shape == batch.tokens.shape
    assert world.meter.of().score == 10
    world.reference = None
    with pytest.raises(UserError, match="reference=True"):
        enrich.reference(batch, world)


def test_warming_up_is_linear_and_then_constant():
    rates = [pace.warmed(Ledger(step=k), lr=1.0, warmup=4).lr for k in range(7)]
    assert rates == [0.25, 0.5, 0.75, 1, 1, 1, 1]
    assert pace.warmed(Ledger(), lr=1.0, warmup=0).lr == 1.0
    assert pace.warmed(Ledger(), temperature=0.5, top_p=0.9, top_k=3).sampling == Sampling(0.5, 0.9, 3)


# the toy world itself ------------------------------------------------------------------------------------------------

def test_the_exact_pass_rate_is_the_sampled_one():
    world = toy.world()
    for sampling in (Sampling(), Sampling(0.5), Sampling(1.3, 0.8), Sampling(1.0, 1.0, 2)):
        made = sample(world, range(1000), Pace(0.0, 8, sampling))
        rate = np.mean([r.final == "b" and r.stop is Stop.DONE for r in made])
        (exact,) = world.exact(world.problems[1:2], sampling)
        assert abs(rate - exact) < 4 * np.sqrt(exact * (1 - exact) / 1000) + 1e-9


def test_the_toy_learner_continues_exactly():
    from isocost.parts import weight
    from toy import batch_of

    world, batch = toy.world(), batch_of([1, 0, 0])
    batch = batch.but(advantage=batch.mask.float(), weight=weight.token_mean(batch))
    world.learner.update(batch, reinforce.loss, lr=0.1)
    saved = world.learner.state()
    world.learner.update(batch, reinforce.loss, lr=0.1)
    other = toy.world(seed=9)
    other.learner.restore(saved)
    other.learner.update(batch, reinforce.loss, lr=0.1)
    assert all(v.equal(other.learner.weights()[k]) for k, v in world.learner.weights().items())
