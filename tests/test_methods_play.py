"""Methods that play, schedule and pace: numbers worked by hand, and rollouts that add up whatever becomes of them."""

import asyncio
import itertools
import json
from collections import Counter
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

import kill9
import local_world
from isocost import meter, methods
from isocost.chance import Purpose
from isocost.errors import UserError
from isocost.ledger import Ledger
from isocost.methods import april, arrol, ettrl, rc, siri, tti
from isocost.pack import pack
from isocost.parts import improve, play
from isocost.recipe import tune
from isocost.runs import run as runs
from isocost.runs import shelf
from isocost.runs.arm import Arm
from isocost.runs.evaluate import evaluate
from isocost.runs.job import Job
from isocost.seams import Attempts, Pace, Wave
from isocost.strategies import rounds
from isocost.types import Message, Place, Role, Sampling, Score, Segment, Shown, Stop
from isocost.worlds import toy
from isocost.worlds.setting import Setting
from toy import batch_of, group, per_rollout, run

PLACE = Place(7, 3, 2)


def at(step, fn, **settings):
    return fn(Ledger(step=step), **settings)


# SIRI ----------------------------------------------------------------------------------------------------------------

def lengths(shape, *steps, **settings):
    given = {"max_tokens": 16384, "shortest": 0.5, "period": 640, **settings}
    return [at(t, siri.pace, shape=shape, **given).max_tokens for t in steps]


def test_siri_has_the_lengths_of_its_paper():
    """16384 and 8192 over 640 steps; the middle is 12288, the swing 4096, and cos 45 degrees is 0.70711."""
    up, down = 12288 + 2896, 12288 - 2896
    assert lengths("cosine", 0, 80, 160, 240, 320, 400, 480, 560, 640) == [
        16384, up, 12288, down, 8192, down, 12288, up, 16384
    ]
    assert lengths("stair", 0, 319, 320, 639, 640) == [8192, 8192, 16384, 16384, 8192]     # compression first
    assert lengths("stair_cosine", 0, 79, 80, 160, 240, 320, 400, 480, 560, 639) == [
        16384, 16384, 16384, 12288, 8192, 8192, 8192, 12288, 16384, 16384
    ]
    assert lengths("stair_cosine", 120, 520) == [up, up]     # half way between a knot and the middle
    assert lengths("cosine", 5, 10, max_tokens=9, shortest=1 / 3, period=10) == [3, 9]


@pytest.mark.parametrize("shape", ["cosine", "stair_cosine"])
def test_siri_moves_without_a_jump_and_stays_within(shape):
    """Its steepest is 4096 · 2 · 2π/640 = 80.4 tokens a step, in the shape that has stays."""
    room = lengths(shape, *range(1281))
    assert max(abs(a - b) for a, b in itertools.pairwise(room)) <= 81
    assert (min(room), max(room)) == (8192, 16384) and room[:640] == room[640:1280] and room == room[::-1]


def test_siri_cuts_what_is_sampled_and_never_what_is_measured():
    recipe = methods.load("siri").recipe(groups=8)
    for path, value in (("pace.period", 4), ("pace.shortest", 0.25), ("pace.max_tokens", 8)):
        recipe = tune(recipe, path, value)
    ledger, _ = run(recipe, toy.world(), 64 * 10)
    now = [recipe.pace(Ledger(step=t)).max_tokens for t in range(4)]
    assert now == [8, 5, 2, 5]
    longest = [max(k for line in ledger.fresh if line["step"] == t for k in line["lengths"]) for t in range(3)]
    assert longest[2] == 2 < longest[0] and all(a <= b for a, b in zip(longest, now, strict=False))
    assert {recipe.pace(Ledger(step=t)).evaluated(8, Sampling()).max_tokens for t in range(9)} == {8}


def test_siri_has_dapos_filter_and_clip_and_the_verifiers_word():
    recipe, dapo = methods.load("siri").recipe(), methods.load("dapo").recipe()
    assert recipe.reward.__name__ == "verified" and recipe.refill
    assert (recipe.loss.keywords, recipe.select.keywords) == (dapo.loss.keywords, dapo.select.keywords)
    with pytest.raises(UserError, match="expected one of stair, cosine, stair_cosine"):
        lengths("sine", 0)


# TTI -----------------------------------------------------------------------------------------------------------------

def turns(*steps, **settings):
    return [at(t, tti.pace, **settings).max_turns for t in steps]


def test_tti_has_the_horizons_of_its_paper():
    assert turns(0, 1, 2, 3, 14) == [10, 20, 30, 30, 30]
    assert turns(0, 1, 2, 9, rule="plus", first=10, by=1) == [11, 12, 13, 20]     # i from 1, and i · c is added
    assert turns(0, 1, 2, rule="plus", first=10, by=8) == [18, 26, 30]
    assert turns(0, 1, 2, 3, 14, listed=(10, 20, 20, 30)) == [10, 20, 20, 30, 30]          # as released
    assert turns(0, 99, 100, 250, listed=(6, 13, 20), each=100) == [6, 6, 13, 20]          # ScalingInter on BabyAI
    assert turns(0, 4, 5, each=5) == [10, 10, 20]
    with pytest.raises(UserError, match="expected times or plus"):
        turns(0, rule="add")


class Endless:
    """It always answers "?", and is never content."""

    def __init__(self, problem):
        self.problem = problem

    async def open(self):
        return Shown(self.problem.prompt)

    async def step(self, said, luck):
        return Shown((Message("user", "?"),))

    def final(self):
        return ""

    async def close(self):
        pass


def test_tti_never_plays_a_dialogue_beyond_its_horizon_and_every_interaction_is_paid_for():
    world = toy.world()
    world.env = Endless
    recipe = tune(tune(methods.load("tti").recipe(), "pace.first", 2), "pace.max_turns", 5)
    for step, horizon in ((0, 2), (1, 4), (2, 5), (9, 5)):
        before, now = world.meter.of().env_steps, recipe.pace(Ledger(step=step))
        made = asyncio.run(play.sample(world.problems[0], range(4), world, now, PLACE))
        assert [int(r.segments[0].turn.max()) + 1 for r in made] == [horizon] * 4
        assert world.meter.of().env_steps - before == 4 * horizon
        assert now.evaluated(4, Sampling()).max_turns == 5


def test_an_answer_of_goedel_is_corrected_up_to_two_times():
    world = toy.world()
    world.env = Endless
    now = methods.recipe("goedel").pace(Ledger())
    made = asyncio.run(play.sample(world.problems[0], range(4), world, now, PLACE))
    assert [len(r.turns) for r in made] == [3] * 4


def test_lengths_and_temperatures_of_the_day_are_in_no_evaluation():
    now = Pace(0.0, 7, Sampling(0.3), max_turns=3, stop=("!",))
    assert now.evaluated(9, Sampling(0.6)) == Pace(0.0, 9, Sampling(0.6), max_turns=3, stop=("!",))


def paid_and_met(ledger, world):
    """Rollouts that were begun, and those that have a fate."""
    return world.meter.of().rollouts, sum(ledger.fates.values())


# APRIL ---------------------------------------------------------------------------------------------------------------

def run_april(home, rollouts=400, **changes):
    world = toy.world()
    recipe = tune(methods.load("april").recipe(groups=10, **changes), "schedule.home", home)
    ledger, steps = run(recipe, world, rollouts)
    return world, ledger, steps


def test_april_trains_on_the_first_groups_home_and_loses_no_token():
    world, ledger, steps = run_april(0.5)
    waiting = [r for g in ledger.kept[april.UNFINISHED] for r in g.rollouts]
    assert waiting and len({len(step.groups) for step in steps} | {5}) > 1      # ties in the last tick come along
    assert all(5 <= len(step.groups) < 10 for step in steps[:3])
    home = sum(k for line in ledger.fresh for k in line["lengths"])
    assert world.meter.of().decode == home + sum(s.written for r in waiting for s in r.segments)
    paid, met = paid_and_met(ledger, world)
    assert paid == met and ledger.fates["cancelled"] == len(waiting)       # begun, and not home by the end
    assert all(len(g.rollouts) == 8 for step in steps for g in step.groups)
    trained = [(line["id"], line["wave"], line["slot"]) for line in ledger.fresh if line["attempts"]]
    assert len(set(trained)) == len(trained)


def test_aprils_resumed_rollouts_were_written_by_several_policies_and_say_so():
    _, _, steps = run_april(0.5)
    resumed = [r for step in steps for g in step.groups for r in g.rollouts if r.origin == "resumed"]
    versions = [r.segments[0].version[r.segments[0].own] for r in resumed]
    assert any(len(set(v.tolist())) > 1 for v in versions) and all((np.diff(v) >= 0).all() for v in versions)
    assert {r.stop for r in resumed} <= {Stop.DONE, Stop.LENGTH} and all(r.score is not None for r in resumed)
    first = {r.origin for g in steps[0].groups for r in g.rollouts}
    assert first == {"policy"}


def test_april_that_waits_for_everyone_is_its_parent():
    _, ledger, steps = run_april(1.0)
    _, plain = run(methods.load("grpo").recipe(groups=10), toy.world(), 400)
    assert [s.line for s in steps] == [s.line for s in plain] and not ledger.kept[april.UNFINISHED]


def test_april_draws_every_problem_once_an_epoch():
    """Deferred groups are not sampled again when they are continued."""
    _, ledger, _ = run_april(0.5, 640)
    home = Counter(line["id"] for line in ledger.fresh if line["attempts"])
    home.update(g.problem.id for g in ledger.kept[april.UNFINISHED])
    assert max(home.values()) - min(home.values()) <= 1 and sum(home.values()) == ledger.drawn


def test_what_april_puts_by_outlives_the_process():
    _, ledger, _ = run_april(0.5)
    stored = json.loads(json.dumps(shelf.data(ledger.kept[april.UNFINISHED])))
    back = shelf.groups(stored, toy.questions())
    for there, here in zip(back, ledger.kept[april.UNFINISHED], strict=True):
        assert (there.problem.id, there.place) == (here.problem.id, here.place)
        for a, b in zip(there.rollouts, here.rollouts, strict=True):
            assert (a.stop, a.attempt, a.origin) == (b.stop, b.attempt, b.origin)
            assert all(np.array_equal(getattr(a.segments[0], c), getattr(b.segments[0], c))
                       for c in ("tokens", "role", "logp", "turn", "version"))


def test_deferred_groups_are_continued_once_the_oldest_first_and_the_newest_are_kept():
    ledger, (a, b, _) = Ledger(drawn=3), toy.questions(3)
    groups = [replace(group([r, 1 - r]), problem=p) for r, p in ((0, a), (1, b), (1, a))]
    for one in groups:
        ledger.kept[april.UNFINISHED].append(one)
        improve.remember(one, ledger, 2)
    assert [april.resumed_group(p, ledger).rollouts for p in (replace(a, variant="x"), a, a, a)] == [
        (), groups[0].rollouts, groups[2].rollouts, ()
    ]
    assert ledger.kept[april.UNFINISHED] == [groups[1]] and ledger.drawn == 1
    assert [g.rewards.tolist() for g in ledger.kept[improve.SHELF]] == [g.rewards.tolist() for g in groups[1:]]
    improve.remember(groups[0], ledger, 1)
    assert [g.rewards.tolist() for g in ledger.kept[improve.SHELF]] == [groups[0].rewards.tolist()]


def test_a_run_that_died_continues_with_its_deferred_groups(tmp_path):
    """From its checkpoint, byte for byte as a run that nobody disturbed; all that was begun has a fate."""
    job = Job("april", Setting.of(data="sums:base=easy,count=60", held_out=0.2), "april", 5, {"rollouts": 96},
              Arm(n=4, B=4, lr=1e-4), save_every=2)
    asyncio.run(runs.run(job, tmp_path / "whole"))
    waiting = kill9.dies_at_step(job, tmp_path / "died", 4, lambda r: bool(r.ledger.kept[april.UNFINISHED]))
    end = asyncio.run(runs.run(job, tmp_path / "died"))
    assert waiting[1]                                       # something was deferred where it was saved
    for name in ("metrics.jsonl", "journal.jsonl"):
        whole, died = ((tmp_path / out / name).read_bytes() for out in ("whole", "died"))
        assert whole == died and whole
    assert sum(end["fates"].values()) == sum(cost["rollouts"] for cost in end["bill"].values())
    assert end["fates"]["lost"] > 0


def say(world, text, attempts):
    room = 8 - text.written
    return asyncio.run(world.engine.generate(text, attempts, place=PLACE, turn=0, max_tokens=room))


def halted(world, text):
    """What four attempts say when their wave is halted after some turns of the event loop; and who asks later."""
    async def go():
        asked = asyncio.create_task(world.engine.generate(text, range(4), place=PLACE, turn=0, max_tokens=8))
        for _ in range(4):
            await asyncio.sleep(0)
        world.engine.halt(PLACE)
        return await asked, await world.engine.generate(text, [9], place=PLACE, turn=0, max_tokens=8)

    with meter.begins(True):
        return asyncio.run(go())


@pytest.mark.parametrize("make", [toy.world, lambda: local_world.world(kernels="torch")], ids=["toy", "local"])
def test_a_halted_wave_returns_its_partial_answers_and_continues_them_exactly(make):
    world, again = make(), make()
    start = Segment.empty(Sampling()).read(world.text.encode("3?"), Role.PROMPT)
    whole = say(make(), start, range(4))
    got, late = halted(world, start)
    assert late[0].stop is Stop.CANCELLED and not len(late[0].tokens)
    assert world.meter.of().rollouts == 4 and world.meter.of().decode == sum(len(s.tokens) for s in got)
    assert {s.stop for s in got} <= {Stop.CANCELLED, Stop.DONE}
    cut = [i for i, s in enumerate(got) if s.stop is Stop.CANCELLED]
    assert cut and all(0 < len(got[i].tokens) < len(whole[i].tokens) for i in cut)
    for i in cut:
        (rest,) = say(again, start.wrote(got[i]), [i])
        assert [*got[i].tokens, *rest.tokens] == whole[i].tokens.tolist() and rest.stop is whole[i].stop


@pytest.mark.parametrize("make", [toy.world, lambda: local_world.world(kernels="torch")], ids=["toy", "local"])
def test_engines_count_what_they_start_for_who_begins_rollouts_and_for_nobody_else(make):
    world = make()
    start = Segment.empty(Sampling()).read(world.text.encode("3?"), Role.PROMPT)
    for begins, turn, begun in ((True, 0, 2), (False, 0, 2), (False, 1, 2), (True, 1, 4)):
        with meter.begins(begins):
            asyncio.run(world.engine.generate(start, range(2), place=PLACE, turn=turn, max_tokens=2))
        assert world.meter.of().rollouts == begun
    read = world.meter.of().prefill
    world.engine.halt(PLACE)
    with meter.begins(True):
        asyncio.run(world.engine.generate(start, range(2), place=PLACE, turn=0, max_tokens=2))
    assert world.meter.of().rollouts == 4
    assert world.meter.of().prefill == read > 0             # whom a halt finds before the first token has read nothing


# ARRoL ---------------------------------------------------------------------------------------------------------------

def goes_on(odds, keep=0.5, aim=0.5):
    return arrol.chances(odds, keep=keep, aim=aim)


def test_arrol_keeps_half_and_half_of_it_right():
    """κ = ρ = 1/2. p̄ = .4: (.9/.4 + .1/.6)/4, (.5/.4 + .5/.6)/4, (.1/.4 + .9/.6)/4; their mean is 1/2."""
    assert goes_on([0.9, 0.5, 0.1, 0.1]) == pytest.approx([29 / 48, 25 / 48, 7 / 16, 7 / 16], abs=1e-12)
    for odds in ([0.9, 0.5, 0.1, 0.1], [0.3, 0.31, 0.6], [1, 0, 0, 0]):
        assert goes_on(odds).mean() == pytest.approx(0.5, abs=1e-12)
    assert goes_on([0.3] * 5) == pytest.approx([0.5] * 5)            # a head that knows nothing has no effect
    assert goes_on([1, 1, 0, 0], aim=0.25).tolist() == [0.25, 0.25, 0.75, 0.75]
    for right in (2, 3, 4, 6):                                       # of eight, and foreseen: p̄ from 1/4 to 3/4
        p = np.array([1.0] * right + [0.0] * (8 - right))
        assert (goes_on(p) * p).sum() / goes_on(p).sum() == pytest.approx(0.5, abs=1e-12)
    rare = np.array([1.0] + [0.0] * 9)                               # p̄ = .1 is clipped: mean .35, right 2/7
    assert (goes_on(rare).mean(), goes_on(rare)[0] / goes_on(rare).sum()) == pytest.approx((0.35, 2 / 7), abs=1e-12)
    assert goes_on([0.0, 0.0]).tolist() == [0.5, 0.5] == goes_on([1.0, 1.0]).tolist()


def test_arrols_odds_are_shares_right_of_those_with_an_outlook_alike():
    """Two bins of three: of the lower one of three was right, (1 + 1)/(2 + 3); of the upper all, (1 + 3)/(2 + 3)."""
    ledger = Ledger()
    ledger._tally("a", "", [1.0, 0.0, 0.0, 1.0], {arrol.OUTLOOKS: [-3.0, -2.5, -2.0, None]})   # unknown for the last
    ledger._tally("b", "", [1.0, 1.0, 1.0], {arrol.OUTLOOKS: [-1.0, -0.5, -0.25]})
    assert arrol.odds(ledger, [-1.0], bins=2, window=9) == [0.5]               # the step is not closed
    ledger.step += 1
    assert arrol.odds(ledger, [-9.0, -2.0, -1.0, 0.0], bins=2, window=9) == pytest.approx([0.4, 0.4, 0.8, 0.8])
    assert arrol.odds(ledger, [-9.0, 0.0], bins=1, window=3) == pytest.approx([0.8, 0.8])     # the latest three


def arrols(**settings):
    recipe = methods.load("arrol").recipe(groups=10)
    for name, value in {"at": 2, "cold": 2, "bins": 3, **settings}.items():
        recipe = tune(recipe, f"schedule.{name}", value)
    return recipe


def run_arrol(**settings):
    world = toy.world()
    return world, *run(arrols(**settings), world, 800)


def test_arrol_stops_about_half_of_those_that_are_not_done_and_all_have_a_fate():
    world, ledger, steps = run_arrol()
    paid, met = paid_and_met(ledger, world)
    assert paid == met == 800 and ledger.fates["cancelled"] > 0
    lines = [x for x in ledger.fresh if x["attempts"]]
    assert not any(x["cancelled"] for x in ledger.fresh if x["step"] < 2)
    asked = sum(o is not None for x in lines if x["step"] >= 2 for o in x.get("outlooks", ()))
    gone = sum(x["cancelled"] for x in ledger.fresh if x["step"] >= 2)
    assert 0.4 < gone / (gone + asked) < 0.6
    kept = sum(k for x in ledger.fresh for k in x["lengths"])
    assert world.meter.of().decode == kept + 2 * gone         # who is stopped has written two tokens
    assert {len(g.rollouts) for step in steps[:2] for g in step.groups} == {16}
    assert min(len(g.rollouts) for step in steps[2:] for g in step.groups) >= 2


def test_arrol_that_keeps_everyone_is_its_parent_but_for_what_it_reads_twice():
    world, ledger, steps = run_arrol(keep=1.0, cold=99)
    there, plain = run(methods.load("grpo").recipe(groups=10, rollouts=16), other := toy.world(), 800)
    assert [s.line["reward"] for s in steps] == [s.line["reward"] for s in plain]
    assert world.meter.of().decode == other.meter.of().decode and world.meter.of().prefill > other.meter.of().prefill
    assert ledger.fates == there.fates


def test_arrol_asks_the_environment_as_often_as_its_parent():
    """A turn that is cut to be looked at is not over: nobody hears half of it, or pays for that."""
    paid = []
    for changes in ({"cold": 99}, {"cold": 99, "at": 99}):
        world = toy.world()
        world.env = Endless
        run(tune(arrols(**changes), "pace.max_turns", 2), world, 160)
        paid.append((world.meter.of().env_steps, world.meter.of().decode))
    assert paid[0] == paid[1] and paid[0][0] > 160


def test_arrol_has_nothing_to_tell_from_before_the_first_token():
    with pytest.raises(KeyError, match=r"arrol:schedule expects a value in \[1, inf\)"):
        arrols(at=0)
    with pytest.raises(UserError, match=r"schedule\.at is 0"):     # a recipe that nobody has checked
        run(arrols().but(schedule=partial(arrol.schedule, at=0)), toy.world(), 800)


def test_arrols_head_is_learnt_again_from_the_journal():
    _, ledger, _ = run_arrol()
    again = Ledger()
    again.replay(json.loads(json.dumps([line.data for line in ledger.fresh])))
    again.step = ledger.step
    assert again.history == ledger.history
    asked = [-2.0, -1.0, -0.3]
    assert arrol.odds(again, asked, bins=3, window=99) == arrol.odds(ledger, asked, bins=3, window=99)


# RC ------------------------------------------------------------------------------------------------------------------

LONG = Pace(0.0, 4)


class Listened:
    """An engine that remembers what it was asked."""

    def __init__(self, inner):
        self.inner, self.heard = inner, []

    async def generate(self, start, attempts, **asked):
        said = await self.inner.generate(start, attempts, **asked)
        self.heard.append((start, list(attempts), asked["max_tokens"], [s.tokens.tolist() for s in said]))
        return said


def run_rc(n=22, slot=2, pace=LONG, **settings):
    world = toy.world()
    world.engine = Listened(world.engine)
    place = Place(7, 3, slot)
    made = asyncio.run(rc.play(world.problems[4], range(n), world, pace, place, **settings))
    return world, made


def test_rc_of_no_rounds_is_plain_sampling():
    world, made = run_rc(n=8, rounds=0)
    other = toy.world()
    plain = asyncio.run(play.sample(other.problems[4], range(8), other, LONG, Place(7, 3, 2)))
    assert [r.segments[0].tokens.tolist() for r in made] == [r.segments[0].tokens.tolist() for r in plain]
    assert world.meter.of() == other.meter.of() and {r.cohort for r in made} == {"round 0"}


def test_rc_goes_on_from_summaries_alone():
    """Each trace sees the problem and the last summary, each summary the trace and the summary before: by hand."""
    for slot in range(6):
        world, made = run_rc(slot=slot, room=2, reason="!{summary}", condense="?{summary}!{trace}")
        depth = max(int(r.cohort.split()[1]) for r in made)
        heard, spell = world.engine.heard, world.text.decode
        summary, opening = "", {0: "4?"}
        for t in range(depth):
            (trace, (a,), room, (thought,)), (asked, (b,), less, (said,)) = heard[2 * t : 2 * t + 2]
            assert (a, b, room, less) == (2 * t, 2 * t + 1, 4, 2)
            assert spell(trace.tokens) == opening[t]
            assert spell(asked.tokens) == f"4??{summary}!{spell(thought)}"
            summary = spell(said)
            opening[t + 1] = f"4?!{summary}" if summary else "4?"
        assert len(heard) == 2 * depth + 2
        for r in made:
            text = r.segments[0]
            assert spell(text.tokens[~text.own]) == opening[int(r.cohort.split()[1])]
            assert len(text) <= 2 + 1 + 2 + 4 and r.problem == world.problems[4]    # no context grows with the rounds
        assert [r.attempt for r in made] == list(range(2 * depth, 22)) and len({r.cohort for r in made}) == 2
        assert world.meter.of().rollouts == 22


def test_rc_fills_in_what_it_knows_and_leaves_other_braces():
    said = rounds.filled(r"{summary} Now {x}: \boxed{7} {trace}", summary="{trace}", trace="t")
    assert said == r"{trace} Now {x}: \boxed{7} t"


def test_rc_draws_its_states_evenly_and_spends_half_on_them_at_most():
    seen = Counter(r for slot in range(60) for r in {r.cohort for r in run_rc(slot=slot)[1]})
    assert set(seen) == {f"round {t}" for t in range(4)} and sum(seen.values()) == 120
    assert all(15 <= k <= 45 for k in seen.values())        # 30 each; the spread is 3.9
    for n in (1, 2, 4, 8, 9):
        sizes = [len(run_rc(n=n, slot=slot)[1]) for slot in range(8)]
        assert min(sizes) >= n / 2 and max(sizes) <= n


def run_buffered(world, ledger, wave, n=22, slot=2, **settings):
    attempts = Attempts(play.sample, world, LONG, Wave(1, lambda place: None), Place(7, wave, slot))
    said = {"room": 2, "reason": "!{summary}", "condense": "?{summary}!{trace}", **settings}
    return asyncio.run(rc.buffered(world.problems[4], range(n), attempts, ledger, **said))


def test_the_buffer_of_rc_goes_on_from_what_the_last_epoch_kept():
    """Three summaries a wave, of rounds 1 to 3; the next wave starts from one of them and replaces all."""
    world, ledger = toy.world(), Ledger()
    world.engine = Listened(world.engine)
    spell, starts = world.text.decode, set()
    for wave in range(12):
        before = [(r.final, int(r.notes[rc.ROUNDS])) for g in ledger.kept[rc.SUMMARIES] for r in g.rollouts]
        del world.engine.heard[:]
        made = run_buffered(world, ledger, wave)
        (group,) = ledger.kept[rc.SUMMARIES]
        opened = spell(world.engine.heard[0][0].tokens)
        start = opened.removeprefix("4?").removeprefix("!")
        rounds = [int(r.notes[rc.ROUNDS]) for r in group.rollouts]
        depth = rounds[0] - 1
        starts.add(depth)
        assert group.place.wave == wave and rounds == [depth + 1, depth + 2, depth + 3]
        assert (start, depth) in (before or [("", 0)])
        assert [r.attempt for r in made] == list(range(6, 22)) and len(world.engine.heard) == 2 * 3 + 2
        assert all(depth <= int(r.cohort.split()[1]) <= depth + 3 and r.problem == world.problems[4] for r in made)
        assert len({r.cohort for r in made}) == 2
    assert max(starts) > 6      # deeper than a group's own rounds


def test_the_buffer_of_rc_reads_no_summary_of_its_own_wave():
    world, ledger, other = toy.world(), Ledger(), Ledger()
    run_buffered(world, ledger, 0, slot=1)
    first = run_buffered(world, ledger, 0, slot=2)
    alone = run_buffered(toy.world(), other, 0, slot=2)
    assert [r.segments[0].tokens.tolist() for r in first] == [r.segments[0].tokens.tolist() for r in alone]
    assert [g.place.slot for g in ledger.kept[rc.SUMMARIES]] == [1, 2]
    run_buffered(world, ledger, 1)
    assert [(g.place.wave, g.place.slot) for g in ledger.kept[rc.SUMMARIES]] == [(1, 2)]


def test_the_buffer_of_rc_is_paid_for_and_survives_a_checkpoint():
    recipe = methods.load("rc").recipe(groups=4, play=play.sample, schedule=partial(rc.buffered, room=2))
    world = toy.world()
    ledger, _ = run(recipe, world, 22 * 4 * 3)
    paid, met = paid_and_met(ledger, world)
    assert paid == met == 264 and ledger.fates["cancelled"] == 6 * 12
    stored = ledger.kept[rc.SUMMARIES]
    again = shelf.groups(json.loads(json.dumps(shelf.data(stored))), world.problems)
    assert [[(r.final, r.notes) for r in g.rollouts] for g in again] == [
        [(r.final, r.notes) for r in g.rollouts] for g in stored]


def test_rc_compares_attempts_that_share_a_summary_and_credits_nothing_else():
    recipe = methods.load("rc").recipe(groups=4)
    world = toy.world()
    ledger, steps = run(recipe, world, 22 * 4 * 3)
    paid, met = paid_and_met(ledger, world)
    assert paid == met == 264 and ledger.fates["cancelled"] > 0
    most = max((g for s in steps for g in s.groups), key=lambda g: len(g.rollouts))
    names = sorted({r.cohort for r in most.rollouts})
    earned = {names[0]: [1, 0, 0, 0], names[1]: [1, 1, 0, 0]}
    some = [r.scored(Score(float(x))) for name in names
            for r, x in zip([r for r in most.rollouts if r.cohort == name], earned[name], strict=False)]
    batch = pack([most.of(some)], 0)
    half = 3**0.5 / 2
    assert per_rollout(recipe.advantage(batch, ledger), batch) == pytest.approx(
        [1.5, -0.5, -0.5, -0.5, half, half, -half, -half], abs=1e-5)
    read = batch.role != int(Role.OWN)
    assert (recipe.advantage(batch, ledger)[read] == 0).all()


def walked(count, attempts=range(3), purpose=Purpose.EVALUATION):
    world = toy.world()
    world.engine = Listened(world.engine)
    walk = partial(rc.walked, rounds=count, room=2, reason="!{summary}", condense="?{summary}!{trace}")
    return world, asyncio.run(walk(world.problems[4], attempts, world, LONG, Place(7, 0, 2, int(purpose))))


def replies(world, rollout):
    return [world.text.decode(s.reply().tolist()) for s in rollout.segments]


def test_a_walk_of_no_rounds_is_plain_sampling():
    world, made = walked(0)
    other = toy.world()
    plain = asyncio.run(play.sample(other.problems[4], range(3), other, LONG, Place(7, 0, 2, int(Purpose.EVALUATION))))
    assert [replies(world, r) for r in made] == [replies(other, r) for r in plain]
    assert [r.final for r in made] == [r.final for r in plain] and world.meter.of() == other.meter.of()


def test_each_attempt_walks_its_own_rounds_and_all_of_them_are_paid_for():
    """Three traces and two summaries an attempt; each trace sees the problem and the last summary, and no more."""
    world, made = walked(2)
    spell = world.text.decode
    assert [r.attempt for r in made] == [0, 1, 2] and all(r.problem == world.problems[4] for r in made)
    for r in made:
        first, said, second, again, last = replies(world, r)
        asked = [spell(s.tokens[~s.own]) for s in r.segments]
        posed = [f"4?!{summary}" if summary else "4?" for summary in (said, again)]
        assert asked == ["4?", f"4??!{first}", posed[0], f"4??{said}!{second}", posed[1]]
        assert r.final == last and r.stop is not Stop.CANCELLED
        assert max(s.written for s in r.segments[1::2]) <= 2
    assert len({tuple(replies(world, r)) for r in made}) == 3
    spent = world.meter.of()
    assert spent.rollouts == 3 * 5 and spent.decode == sum(s.written for r in made for s in r.segments)
    assert spent.prefill == sum(len(s) - s.written for r in made for s in r.segments)
    (alone,) = walked(2, [1])[1]
    assert replies(world, alone) == replies(world, made[1])


def test_every_trace_of_a_walk_has_draws_of_its_own():
    """A summary that nobody reads leaves each trace the same prompt: only its draws tell them apart."""
    world = toy.world()
    place = Place(7, 0, 2, int(Purpose.EVALUATION))
    made = asyncio.run(rc.walked(world.problems[4], range(8), world, LONG, place, rounds=2, reason=""))
    thoughts = [tuple(replies(world, r)[::2]) for r in made]
    assert {world.text.decode(r.segments[k].tokens[~r.segments[k].own]) for r in made for k in (0, 2, 4)} == {"4?"}
    assert all(len({t[k] for t in thoughts}) > 1 for k in range(3))
    assert all(sum(t[a] != t[b] for t in thoughts) >= 3 for a, b in ((0, 1), (0, 2), (1, 2)))


def test_a_longer_walk_goes_on_from_the_answer_of_a_shorter_one():
    for shorter in range(4):
        for few, many in zip(walked(shorter)[1], walked(4)[1], strict=True):
            assert [s.tokens.tolist() for s in few.segments] == [
                s.tokens.tolist() for s in many.segments[: 2 * shorter + 1]]


def test_a_walk_is_measured_by_evaluations_on_their_account_and_refused_in_training():
    world = toy.world()
    recipe = methods.load("rc").recipe(play=partial(rc.walked, rounds=3, room=2))
    found = asyncio.run(evaluate(recipe, world, world.problems, LONG, samples=2, exact=False))
    asked = 2 * len(world.problems)
    assert world.meter.of(meter.EVALUATION).rollouts == 7 * asked and world.meter.of().rollouts == 0
    assert world.meter.of(meter.EVALUATION).verify == asked and len(found.right) == len(world.problems)
    with pytest.raises(UserError, match=r"use play=rc\.play"):
        walked(1, purpose=Purpose.TRAIN)


# ETTRL ---------------------------------------------------------------------------------------------------------------

def endless():
    """A world whose every attempt has eight tokens."""
    world = toy.world()
    for policy in (world.engine.policy, world.learner.policy):
        with torch.no_grad():
            policy.last[:, toy.END] = -1e9
    return world


def at_each(trunks, world, place):
    """Least sure at its tokens 2k and 2k + 1, where it is the k-th trunk; a tie is not broken by chance."""
    return [np.array([9.0, 9.0, *[float(j // 2 == k) for j in range(8)]]) for k in range(len(trunks))]


def trees(world, n, **settings):
    return asyncio.run(ettrl.play(world.problems[0], range(n), world, Pace(0.0, 8), PLACE, **settings))


def test_ettrl_has_the_leaves_and_the_tokens_of_its_paper():
    """4 trees of 1 + 2 · 2, forked once at each of 8 places: 32 + 2 (8 + 7 + .. + 1) = 104 tokens of 160.

    That is (1 + BN (L + 1) / 2L) / (1 + BN) at L = 8, which becomes the paper's (1 + BN/2) / (1 + BN) = 3/5.
    """
    world = endless()
    leaves = trees(world, 20, unsure=at_each)
    trunks = {r.attempt: r.segments[0] for r in leaves if r.parent is None}
    assert sorted(r.attempt for r in leaves) == list(range(20)) and set(trunks) == {0, 1, 2, 3}
    forks = Counter(r.parent for r in leaves if r.parent)
    assert forks == {(k, 2 + 2 * k + j): 2 for k in range(4) for j in range(2)}
    assert world.meter.of().decode == 104 and world.meter.of().rollouts == 20
    for r in leaves:
        text = r.segments[0]
        assert text.written == 8
        if r.parent:
            trunk, at = trunks[r.parent[0]], r.parent[1]
            assert (text.tokens[:at] == trunk.tokens[:at]).all() and (text.logp[:at] == trunk.logp[:at]).all()
            assert text.own[2:at].all()                     # the shared beginning keeps its credit
    twins = [[r.segments[0].tokens.tolist() for r in leaves if r.parent == key] for key in forks]
    assert any(a != b for a, b in twins)                    # each draws for itself


@pytest.mark.parametrize("n", [1, 2, 5, 8, 13])
def test_ettrl_deals_out_whatever_there_is(n):
    world = toy.world()
    leaves = trees(world, n)
    assert sorted(r.attempt for r in leaves) == list(range(n)) and world.meter.of().rollouts == n
    assert sum(r.parent is None for r in leaves) == -(-n // 5)
    assert (world.meter.of().score > 0) == (n > 1)          # to know where it was least sure is paid for


def test_ettrl_forks_where_the_policy_was_least_sure():
    """The toy's entropies, from its table of logits."""
    world = endless()
    leaves = trees(world, 5, points=1, branches=4)
    text = leaves[0].segments[0]
    logits = world.learner.policy.first[text.tokens[0]] + world.learner.policy.last[torch.from_numpy(text.tokens)]
    p = torch.softmax(logits.detach(), -1)
    doubt = -(p * p.clamp(min=1e-30).log()).sum(-1)[1:-1]                    # before each of its own tokens
    assert {r.parent for r in leaves[1:]} == {(0, 2 + int(doubt.argmax()))}


@pytest.mark.parametrize("method", ["rc", "ettrl"])
def test_what_is_measured_are_the_policys_own_draws(method):
    """By the leaves of trees the pass rate of this policy, .198, is measured as .15; by summaries of it as .165."""
    found = []
    for name in (method, "grpo"):
        world = toy.world(count=3)
        known = asyncio.run(evaluate(methods.load(name).recipe(), world, world.problems, LONG, samples=10, exact=False))
        found.append(([r.final for g in known.groups for r in g.rollouts], world.meter.of("evaluation")))
    assert found[0] == found[1]


def agreed(*finals, stops=()):
    some = group([0.0] * len(finals))
    stops = stops or [Stop.DONE] * len(finals)
    some = some.of(r.but(final=f, stop=s, score=None) for r, f, s in zip(some.rollouts, finals, stops, strict=True))
    return [r.score and r.score.value for r in asyncio.run(ettrl.reward(some, None)).rollouts]


def test_ettrl_takes_the_majority_for_right():
    assert agreed("7", "7", "3") == [1, 1, 0]
    assert agreed("3", "7 ", " 7") == [0, 1, 1]
    assert agreed("3", "7") == [1, 0]                       # the first of a tie
    cut = [Stop.LENGTH, Stop.LENGTH, Stop.DONE, Stop.ERROR]
    assert agreed("7", "7", "3", "3", stops=cut) == [0, 0, 1, None]
    assert agreed("7", "7", stops=cut[:2]) == [0, 0]


def test_ettrl_damps_the_doubtful_and_raises_the_sure():
    """Mean entropies .2 and .6, so .4 in all: factors 3/2 and 1/2 on GRPO's ±.7071."""
    batch = batch_of([1.0, 0.0], lengths=[[2, 4]])
    doubt = torch.tensor([[0.1], [0.6]]) * batch.mask
    doubt[0, 3] = 0.3
    recipe = methods.load("ettrl").recipe()
    credit = recipe.advantage(batch.but(extra={"entropy": doubt}), Ledger())
    assert per_rollout(credit, batch) == pytest.approx([1.5 * 0.5**0.5, -0.5 * 0.5**0.5], abs=1e-5)
    even = per_rollout(recipe.advantage(batch.but(extra={"entropy": 0.7 * batch.mask}), Ledger()), batch)
    assert even == pytest.approx([0.5**0.5, -(0.5**0.5)], abs=1e-5)       # all as sure: GRPO's
    capped = tune(recipe, "advantage.cap", 0.5).advantage(batch.but(extra={"entropy": doubt}), Ledger())
    assert per_rollout(capped, batch) == pytest.approx([0.5, -0.5 * 0.5**0.5], abs=1e-5)


def test_ettrl_trains_without_a_verifier_and_every_leaf_has_a_fate():
    world = toy.world()
    ledger, _ = run(methods.load("ettrl").recipe(groups=5), world, 300)
    assert paid_and_met(ledger, world) == (300, 300) and world.meter.of().verify == 0
