"""Methods that choose, allocate and select: numbers worked by hand from each paper's rule."""

import asyncio
import itertools
import json
import math
from collections import Counter
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

import kill9
from isocost import methods
from isocost.batch import Forward
from isocost.ledger import Ledger
from isocost.loop import train
from isocost.methods import balanced, dapo, dars, dots, roc, rolloutgdro, scaler, vade
from isocost.ops import log_ratio
from isocost.parts import allocate, improve, select
from isocost.recipe import tune
from isocost.runs import run as runs
from isocost.runs import shelf
from isocost.runs.arm import Arm
from isocost.runs.job import Job
from isocost.types import Fate, Fault, Group, Message, Place, Problem, Role, Said, Score, Segment, Stop, Turn
from isocost.worlds import toy
from isocost.worlds.setting import Setting
from toy import attempt, batch_of, group, per_rollout, run

MINE = ("balanced", "vade", "dots", "dars", "darshw", "promptgdro", "rolloutgdro", "roc", "scaler")


def problems(count, **meta):
    return [Problem(f"p{k}", (Message("user", f"{k}?"),), "a", meta=meta) for k in range(count)]


def told(*steps, seed=0):
    """A ledger that has seen these groups, step by step: {problem: rewards}."""
    ledger = Ledger(seed=seed)
    for groups in steps:
        for name, rewards in groups.items():
            ledger._tally(name, "", rewards)      # what `saw` does with a group's rewards
        ledger.step += 1
    return ledger


def right(k, n):
    return [1.0] * k + [0.0] * (n - k)


def assert_close(a, b, within=1e-7):
    assert a == pytest.approx(b, abs=within)


# online difficulty filtering --------------------------------------------------------------------------------------

def kept_of_eight(**band):
    return [k for k in range(9) if balanced.select(group(right(k, 8)), Ledger(), **band) is not None]


def test_balanced_keeps_from_a_quarter_to_three_quarters_and_does_not_know_right_from_wrong():
    assert kept_of_eight() == [2, 3, 4, 5, 6]
    assert kept_of_eight(low=0.3, high=0.7) == [3, 4, 5]
    assert kept_of_eight(low=0.0, high=1.0) == list(range(1, 8)) == [
        k for k in range(9) if select.mixed(group(right(k, 8)), Ledger()) is not None
    ]


def test_balanced_counts_what_the_verifier_said_and_not_what_the_reward_made_of_it():
    wrong = group([0.0] * 4)
    shaped = wrong.of(r.but(mark=r.score, score=Score(0.25 * i)) for i, r in enumerate(wrong.rollouts))
    assert select.mixed(shaped, Ledger()) is not None and balanced.select(shaped, Ledger()) is None


def test_the_band_is_where_three_quarters_of_the_most_is_to_be_learned():
    """The divergence of the paper's bound, at β = 10."""
    def bound(p, beta=10.0):
        return math.log(1 - p + p * math.exp(1 / beta)) - p / beta

    assert_close([bound(p) for p in (0.1, 0.5, 0.9)], [0.00046, 0.00125, 0.00044], 1e-5)
    assert_close([bound(0.25, 1e3) / bound(0.5, 1e3), bound(0.75, 1e3) / bound(0.5, 1e3)], [0.75, 0.75], 1e-3)
    recipe = methods.load("balanced").recipe()
    assert recipe.select.keywords == {"low": 0.25, "high": 0.75} and recipe.refill


def test_balanced_fills_every_step_and_says_when_it_could_not():
    balanced = methods.load("balanced")
    assert_close([balanced.held(0.5), balanced.held(0.1), balanced.held(0.9)], [238 / 256, 0.1868953, 0.1868953], 1e-6)
    recipe = balanced.recipe(groups=4, rollouts=4)
    _, steps = run(recipe, toy.world(), 400)
    assert len(steps) > 3 and {len(s.groups) for s in steps} == {4}
    assert all(0.25 <= g.rewards.mean() <= 0.75 for s in steps for g in s.groups)
    one_in_four = {"mean": 0.25, "histogram": [0] * 4 + [1] + [0] * 12}
    assert balanced.needs(one_in_four)[0] == methods.HOLDS
    assert balanced.needs({"mean": 0.5, "histogram": [50] + [0] * 15 + [50]})[0] == methods.FAILS


# VADE -------------------------------------------------------------------------------------------------------------

def test_without_forgetting_beliefs_are_the_exact_posterior():
    ledger = told({"a": right(2, 4), "b": right(1, 4)}, {"a": right(3, 4)}, {"b": right(0, 8)})
    assert vade.beliefs(ledger, touched=1, idle=1) == {"a": (5, 3), "b": (1, 11)}
    assert ledger.of("a").total == 5 and ledger.of("a").tries == 8


def test_beliefs_fade_fast_where_a_problem_speaks_again_and_slowly_where_it_does_not():
    ledger = told({"a": right(2, 4), "b": right(1, 4)}, {"c": right(1, 2)}, {"a": right(4, 4)})
    known = vade.beliefs(ledger, touched=0.5, idle=0.9)
    assert_close(known["a"], (0.5 * 0.9 * 2 + 4, 0.5 * 0.9 * 2))     # one idle step, then halved, then four right
    assert_close(known["b"], (1 * 0.9**2, 3 * 0.9**2))
    assert_close(known["c"], (0.9, 0.9))


def test_a_step_that_is_not_closed_teaches_nothing_yet():
    ledger = told({"a": right(2, 4)})
    ledger.saw(group(right(4, 4)))
    assert set(vade.beliefs(ledger, touched=1, idle=1)) == {"a"}
    ledger.step += 1
    assert vade.beliefs(ledger, touched=1, idle=1)["0"] == (4, 0)


def test_vade_poses_problems_near_a_third_and_its_symmetric_form_near_a_half():
    pool = [Problem(f"{k}/12", ()) for k in range(13)]
    ledger = told({p.id: right(1000 * k, 12000) for k, p in enumerate(pool)})
    rng = np.random.default_rng(0)
    picked = vade.choose(pool, ledger, 3, rng, lean=2)
    assert [p.id for p in picked] == ["4/12", "5/12", "3/12"]      # p(1-p)²: .148, .1418, .1406
    assert {p.id for p in vade.choose(pool, ledger, 3, rng, lean=1)} == {"5/12", "6/12", "7/12"}


def test_vade_notices_that_the_policy_has_learned_only_if_it_forgets():
    ledger = told(*[{"a": right(0, 8)}] * 20, *[{"a": right(8, 8)}] * 3)
    def mean(**decay):
        a, b = vade.beliefs(ledger, **decay)["a"]
        return (1 + a) / (2 + a + b)

    assert_close(mean(touched=1, idle=1), 25 / 186)
    assert_close(mean(touched=0.5, idle=0.99), 15 / (2 + 14 + 2 - 2**-19), 1e-6)     # 8+4+2 right, (8+4+..)/8 → 2 wrong


def test_a_pool_smaller_than_the_wave_is_gone_through_again():
    pool = problems(3)
    drawn = vade.choose(pool, Ledger(), 7, np.random.default_rng(0))
    assert sorted(Counter(p.id for p in drawn).values()) == [2, 2, 3]


# DOTS and rollout replay ------------------------------------------------------------------------------------------

def on_a_line(problem):
    angle = problem.meta["angle"]
    return np.array([math.cos(angle), math.sin(angle)])


def test_a_pass_rate_is_read_off_the_problems_that_are_alike():
    pool = [Problem(f"{k}", (), meta={"angle": 0.1 * k}) for k in range(16)]
    ledger = told({"0": right(7, 8), "2": right(6, 8), "13": right(2, 8), "15": right(1, 8)})
    guess = dots.predicted(pool, ledger, references=256, sharpness=0.05, embed=on_a_line)
    assert_close(guess[[0, 2, 13, 15]], [7 / 8, 6 / 8, 2 / 8, 1 / 8])
    assert guess[1] > 0.7 and guess[14] < 0.3 and (np.diff(guess[3:13]) < 0).all()
    assert (dots.predicted(pool, Ledger(), references=256, sharpness=0.05, embed=on_a_line) == 0.5).all()


def test_attention_by_hand():
    """Two references at right angles, the asker on the first: weights e^(1/s) : 1."""
    pool = [Problem(n, (), meta={"angle": a}) for n, a in (("x", 0.0), ("y", math.pi / 2), ("q", 0.0))]
    weight = np.exp([[0.0, -2.0]])
    assert_close(dots._attend(np.log(weight), np.array([1.0, 0.0]))[0], 1 / (1 + math.exp(-2)))
    only = told({"x": right(3, 4)})
    assert_close(dots.predicted(pool, only, references=9, sharpness=0.5, embed=on_a_line), [0.75] * 3)


def test_calibration_finds_the_line_and_never_turns_a_guess_round():
    guess = np.linspace(0.02, 0.98, 4001)
    truth = 1 / (1 + np.exp(-(2 * np.log(guess / (1 - guess)) - 0.5)))
    assert_close(dots.calibration(guess, truth), (2.0, -0.5), 5e-3)
    assert dots.calibration(guess, 1 - guess)[0] == 0
    for seed in range(20):       # it settles, whatever it is given
        rng = np.random.default_rng(seed)
        few, some = rng.random(3 + seed), rng.integers(0, 9, 3 + seed) / 8
        assert_close(dots.calibration(few, some), dots.calibration(few, some, steps=200), 1e-6)


def test_dots_draws_in_proportion_without_replacement():
    pool = [Problem(str(k), (), meta={"angle": k}) for k in range(3)]
    ledger = told({"0": right(4, 8), "1": right(5, 8), "2": right(8, 8)})
    w = np.exp(-np.array([0, 0.125, 0.5]) / 0.25)
    second = {i: w[i] / w.sum() * sum(w[j] / (w.sum() - w[i]) for j in range(3) if j != i) for i in range(3)}
    assert_close(sum(second.values()), 1)
    pairs = Counter()
    for k in range(1500):
        rng = np.random.default_rng(k)
        a, b = dots.choose(pool, ledger, 2, rng, spread=0.25, probes=0, embed=on_a_line)
        pairs[a.id, b.id] += 1
    for i, j in itertools.permutations(range(3), 2):
        assert_close(pairs[str(i), str(j)] / 1500, w[i] / w.sum() * w[j] / (w.sum() - w[i]), 0.04)


def test_dots_takes_what_is_nearest_to_its_aim_as_the_spread_vanishes_and_probes_the_rest():
    pool = [Problem(str(k), (), meta={"angle": k}) for k in range(9)]
    ledger = told({str(k): right(k, 8) for k in range(9)})
    rng = np.random.default_rng(0)
    near = dots.choose(pool, ledger, 3, rng, spread=1e-6, probes=0, embed=on_a_line)
    assert {p.id for p in near} == {"3", "4", "5"}
    drawn = Counter()
    for k in range(300):
        some = dots.choose(pool, ledger, 6, np.random.default_rng(k), spread=1e-6, probes=1 / 3, embed=on_a_line)
        assert len({p.id for p in some}) == 6
        drawn.update(p.id for p in some)
    assert min(drawn.values()) > 30 and drawn["4"] == 300      # a probe now and then, even of what is settled


def watched(world):
    """Every batch that the learner is given from now on."""
    batches, update = [], world.learner.update

    def spy(batch, loss, *, lr):
        batches.append(batch)
        return update(batch, loss, lr=lr)

    world.learner.update = spy
    return batches


def learning(name, **changes):
    return tune(tune(methods.load(name).recipe(**changes), "pace.lr", 0.3), "pace.warmup", 0)


def test_replayed_groups_keep_the_samplers_log_probs_and_fresh_ones_the_learners():
    world = toy.world()
    batches = watched(world)
    run(learning("dots", groups=4, rollouts=8), world, 4 * 8 * 6)
    assert len(batches[0].groups) == 4 and len(batches[-1].groups) == 8
    batch = batches[-1]
    old = torch.tensor([r.origin == "replay" for g in batch.groups for r in g.rollouts])
    assert old.sum() == 32 and (batch.age[old] > 0).all() and (batch.age[~old] == 0).all()
    assert torch.equal(batch.old[old], (batch.logp * batch.mask)[old])
    out = Forward(batch.logp + 0.3, batch.logp)
    ratio = log_ratio(out, batch)[old][batch.mask[old]]
    assert_close(ratio.tolist(), [0.3] * len(ratio), 1e-5)         # log π_θ − stored, and not 0
    assert all(g.rewards.std() > 0 for g in batch.groups if g.rollouts[0].origin == "replay")


def test_a_replayed_rollout_is_paid_for_once_has_one_fate_and_one_place_in_the_journal():
    world = toy.world()
    batches = watched(world)
    ledger, _ = run(learning("dots", groups=4, rollouts=8), world, 4 * 8 * 6)
    assert sum(len(b.groups) for b in batches) > 24 + 8
    assert sum(ledger.fates.values()) == world.meter.of().rollouts == world.meter.of().verify == 192
    assert len(ledger.fresh) == len({(x["wave"], x["slot"]) for x in ledger.fresh}) == 24
    assert sum(t.tries for t in ledger.tallies.values()) == 192
    assert world.meter.of().train == sum(int(b.length.sum()) for b in batches)


def test_the_shelf_keeps_the_newest_mixed_group_of_each_problem_and_so_many_at_most():
    world, ledger = toy.world(), Ledger()
    recipe = learning("dots")
    for step, rewards in enumerate(([1, 0], [0, 1], [1, 1])):
        batch = batch_of(*[rewards] * 5)
        batch = batch.but(advantage=torch.ones_like(batch.logp), weight=batch.mask / 10)
        there = tuple(Group(replace(p, id=f"{p.id}"), g.rollouts, Place(0, step, s)) for s, (p, g) in
                      enumerate(zip(toy.questions(5), batch.groups, strict=True)))
        improve.replayed(batch.but(groups=there), recipe, world, ledger, room=4)
        ledger.step += 1
    assert [g.problem.id for g in ledger.kept[improve.SHELF]] == ["1", "2", "3", "4"]    # the oldest went
    assert {g.place.wave for g in ledger.kept[improve.SHELF]} == {1}           # step 2's were settled
    assert all(r.origin == "replay" for g in ledger.kept[improve.SHELF] for r in g.rollouts)


def test_a_run_with_a_shelf_goes_on_from_plain_data_as_if_nothing_had_happened():
    def go(world, ledger, budget):
        async def steps():
            made = learning("dots", groups=4, rollouts=4)
            return [s.line async for s in train(made, world, ledger, {"rollouts": budget})]

        return asyncio.run(steps())

    whole = go(toy.world(), Ledger(seed=3), 160)
    world, ledger = toy.world(), Ledger(seed=3)
    go(world, ledger, 80)
    again, there = Ledger(), toy.world()
    again.replay(ledger.fresh)
    again.seed, again.step, again.waves, again.drawn = ledger.seed, ledger.step, ledger.waves, ledger.drawn
    stored = {name: shelf.data(groups) for name, groups in ledger.kept.items()}
    again.kept.update(shelf.kept({"kept": json.loads(json.dumps(stored))}, there.problems))
    there.learner.restore(world.learner.state())
    there.engine.restore(world.learner.weights(), world.engine.version)
    there.meter.restore(json.loads(json.dumps(world.meter.state())))
    assert again.history == ledger.history and again.tallies == ledger.tallies
    assert go(there, again, 160) == whole[5:]


def test_a_run_that_died_goes_on_with_its_shelf(tmp_path):
    """From its checkpoint, byte for byte as a run that nobody disturbed."""
    small = Setting.of(data="sums:base=easy,count=60", held_out=0.2)
    job = Job(arm=Arm(n=4, B=4, lr=1e-4), name="dots", setting=small, method="dots", seed=5, budget={"rollouts": 96},
              save_every=2)
    asyncio.run(runs.run(job, tmp_path / "whole"))
    kill9.dies_at_step(job, tmp_path / "died", 4)
    asyncio.run(runs.run(job, tmp_path / "died"))
    for name in ("metrics.jsonl", "journal.jsonl"):
        whole, died = ((tmp_path / out / name).read_bytes() for out in ("whole", "died"))
        assert whole == died and whole
    assert b'"replayed": 4.0' in (tmp_path / "died" / "metrics.jsonl").read_bytes()


def test_a_shelf_reads_back_to_the_last_bit():
    said = Said(np.array([1, 3]), np.array([-0.1, -1 / 3], dtype=np.float32), np.array([4, 5]), Stop.DONE,
                kept=(np.array([1, 2]), np.array([3])))
    text = attempt([0], 1.0).segments[0].cut(2).wrote(said)
    problem = replace(toy.questions()[0], variant="guided")
    one = replace(attempt([0], 1.0, 3), problem=problem, segments=(text,), origin="replay", parent=(1, 2),
                  score=Score(0.5, {"right": 1.0}, (0.25,)), notes={"x": (np.arange(4, dtype=np.float32),), "y": 0.1})
    stored = json.loads(json.dumps(shelf.data([Group(problem, (one,), Place(1, 2, 3))])))
    (back,) = shelf.kept({"kept": {"own": stored}}, toy.questions())["own"]
    (r,) = back.rollouts
    assert back.place == Place(1, 2, 3) and r.problem == problem
    assert (r.score, r.parent, r.origin, r.attempt, r.stop) == (one.score, (1, 2), "replay", 3, one.stop)
    for field in ("tokens", "role", "logp", "turn", "version"):
        a, b = getattr(r.segments[0], field), getattr(text, field)
        assert np.array_equal(a, b) and a.dtype == b.dtype
    assert [k.tolist() for k in r.segments[0].kept] == [[1, 2], [3]] and r.notes["x"][0].tolist() == [0, 1, 2, 3]
    assert r.numbers == {"y": 0.1}


def test_groups_that_an_earlier_version_kept_are_read_by_their_old_keys():
    stored = json.loads(json.dumps(shelf.data([Group(toy.questions()[0], (attempt([0], 1.0, 3),), Place(1, 2, 3))])))
    stored[0]["rollouts"][0]["outlook"] = -0.5
    back = shelf.kept({"shelf": stored, "unfinished": stored, "step": 3}, toy.questions())
    assert sorted(back) == ["shelf", "unfinished"]
    assert [r.numbers for (g,) in back.values() for r in g.rollouts] == [{"outlooks": -0.5}] * 2


def test_numbers_that_seams_note_are_columns_of_the_journal_and_outlive_the_process():
    ledger, again = Ledger(), Ledger()
    one = group([1, 0, 0])
    noted = one.of(r.but(notes={"seen": 0.12345678} if r.attempt == 1 else {}) for r in one.rollouts)
    ledger.saw(noted)
    ledger.settle(noted, [Fate.TRAINED] * 3)
    assert ledger.fresh[0]["seen"] == [None, 0.123457, None]
    again.replay(ledger.fresh)
    assert again.history == ledger.history and ledger.history[0][0].notes == {"seen": (None, 0.123457, None)}
    with pytest.raises(ValueError, match="'rewards': the journal has a column"):
        ledger.settle(one.of(r.but(notes={"rewards": 1.0}) for r in one.rollouts), [Fate.TRAINED] * 3)


# DARS -------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("settings", "table"), [
    ({"most": 32}, [24, 11, 3, 1, 0, 0, 0, 0, 0]),
    ({"most": 64, "hard": True}, [56, 24, 8, 3, 0, 0, 0, 0, 0]),
    # with the spread: S = 2√(a(1−a)), at most N = 8; a = 1/8: S = .6614, (8 − 5.29) / .6614 = 4.09
    ({"most": 32, "std": True}, [9, 5, 2, 1, 0, 0, 0, 0, 0]),
], ids=["equal treatment", "hardness weighted", "with the spread"])
def test_the_tables_of_extra_rollouts(settings, table):
    assert [dars.missing(k / 8, 8, **settings) for k in range(9)] == table


def test_more_until_advantages_sum_to_those_of_a_half_solved_group():
    """Σ|A| of a binary group is 2 N a (1 − a); with the extra rollouts at the same rate it reaches N / 2."""
    advantage = methods.load("dars").recipe().advantage
    for k in range(9):
        batch = batch_of(right(k, 8))
        assert_close(sum(map(abs, per_rollout(advantage(batch, Ledger()), batch))), 2 * 8 * (k / 8) * (1 - k / 8), 1e-5)
    for a in (1 / 8, 2 / 8, 3 / 8):
        more = dars.missing(a, 8, most=999)
        assert (8 + more - 1) * 2 * a * (1 - a) < 4 <= (8 + more) * 2 * a * (1 - a)


def phases(rates, total, **settings):
    """What the allocator asks for, where groups return with so many of the first phase right."""
    plan = dars.allocate(problems(len(rates)), Ledger(), total, **settings)
    first = next(plan)
    try:
        return first, plan.send([group(right(k, n)) for k, n in zip(rates, first, strict=True)])
    except StopIteration:
        return first, None


def test_dars_deals_a_wave_by_hand():
    assert phases([0, 4], 32) == ([8, 8], [16, 0])
    # they want 24, 11, 3 and 0 of the 32 that are left: 20.21, 9.26, 2.53, and the largest remainder takes the last
    assert phases([0, 1, 2, 8], 64) == ([8] * 4, [20, 9, 3, 0])
    # 56, 24, 8, 0: 20.36, 8.73, 2.91
    assert phases([0, 1, 2, 8], 64, most=64, hard=True) == ([8] * 4, [20, 9, 3, 0])
    assert phases([4, 4, 8, 5], 64) == ([8] * 4, [8] * 4)                 # nobody wants more: equal
    assert phases([3, 8], 32) == ([8, 8], [1 + 8, 7])                     # one is wanted, the other 15 are for all
    assert phases([0, 8], 4, first=1.0) == ([2, 2], None)


@pytest.mark.parametrize("total", [4, 5, 31])
def test_dars_counts_sum_to_the_wave_whatever_it_is(total):
    for rates in itertools.product((0, 1), repeat=3):
        first, second = phases(rates, total, hard=bool(rates[0]))
        assert sum(first) + sum(second or []) == total and min(second or [0]) >= 0


def test_a_phase_receives_scores_and_no_attempt_is_marked_twice():
    """The first look is scored before the second is dealt out, and its verifier is asked once."""
    world = toy.world()
    for p in world.problems[5:]:
        world.problems[world.problems.index(p)] = replace(p, answer="never")
    ledger, _ = run(methods.load("dars").recipe(groups=10, rollouts=8), world, 10 * 8 * 3)
    counts = {x["id"]: len(x["attempts"]) for x in ledger.fresh}
    assert sum(counts.values()) == 80
    hopeless, others = [counts[str(k)] for k in range(5, 10)], [counts[str(k)] for k in range(5)]
    assert sum(hopeless) > sum(others) + 10 and min(hopeless) >= max(others)
    assert world.meter.of().verify == world.meter.of().rollouts == sum(ledger.fates.values()) == 240


def test_a_group_is_rewarded_whole_after_every_phase_from_one_mark_each():
    """A reward that compares siblings sees all of them, and a shaped one is not shaped twice."""
    world, asked = toy.world(), []

    async def grade(rollouts):
        asked.extend(r.attempt for r in rollouts)
        return [Score(float(r.attempt % 2)) for r in rollouts]

    world.grade = grade
    shaped = partial(dapo.reward, penalty=0.5, limit=1, cache=1)
    early = asyncio.run(shaped(group([None, None], [5, 5]), world))
    whole = asyncio.run(shaped(early.of([*early.rollouts, attempt([0, 3], None, 2), attempt([0, 3], None, 3)]), world))
    assert asked == [0, 1, 2, 3]
    assert [r.score.value for r in whole.rollouts] == [-0.5, 0.5, -0.5, 0.5]
    assert [r.mark.value for r in whole.rollouts] == [0, 1, 0, 1]


# GDRO -------------------------------------------------------------------------------------------------------------

def test_rollouts_go_with_the_square_root_of_the_variance():
    """One case, and the law behind it: 25 and 4 hundredths give five to two."""
    assert rolloutgdro.best_numbers({0: 1, 1: 1}, {0: 0.25, 1: 0.09}, range(2, 9), 8) == {0: 5, 1: 3}
    assert rolloutgdro.best_numbers({0: 1, 1: 1}, {0: 0.25, 1: 0.04}, range(2, 71), 70) == {0: 50, 1: 20}


def test_the_dynamic_program_finds_what_listing_finds():
    rng = np.random.default_rng(1)
    for _ in range(30):
        size = {b: int(rng.integers(1, 5)) for b in range(3)}
        spread = {b: float(rng.uniform(0, 0.25)) for b in range(3)}
        total = 6 * sum(size.values())
        best = min(
            sum(size[b] * spread[b] / n[b] for b in range(3)) for n in itertools.product(range(2, 13), repeat=3)
            if sum(size[b] * n[b] for b in range(3)) == total
        )
        found = rolloutgdro.best_numbers(size, spread, range(2, 13), total)
        assert sum(size[b] * found[b] for b in range(3)) == total
        assert_close(sum(size[b] * spread[b] / found[b] for b in range(3)), best)
    with pytest.raises(ValueError, match="sum to 5"):
        rolloutgdro.best_numbers({0: 3}, {0: 0.1}, [1, 2], 5)


def test_rollout_gdro_by_hand():
    """A bin half right (v = 1/4) and one never right (p = 1/26 from a flat prior): .25/12 + .037/4 is the least."""
    pool = problems(2)
    ledger = told(*[{"p0": right(4, 8), "p1": right(0, 8)}] * 3)
    assert rolloutgdro.allocate(pool, ledger, 16) == [12, 4]
    settled = told(*[{"p0": right(4, 8), "p1": right(8, 8)}] * 3)
    assert rolloutgdro.allocate(pool, settled, 16, k=1) == [12, 4]          # always right is as sure as never
    assert rolloutgdro.allocate(pool, settled, 16) == [8, 8]                # to pass@8 the two are alike
    assert rolloutgdro.allocate(pool, Ledger(), 16) == [8, 8]               # nothing known: one bin, equal
    assert rolloutgdro.allocate(pool, ledger, 17) == [13, 4]                # what does not divide goes to the first
    assert sum(rolloutgdro.allocate(problems(7), ledger, 7 * 5 + 3)) == 38


@pytest.mark.parametrize(("right_ones", "attempts", "k"), [(1, 4, 2), (2, 5, 3), (0, 4, 2), (4, 4, 8), (3, 8, 8)])
def test_pass_at_k_is_the_share_of_subsets_with_a_right_one(right_ones, attempts, k):
    subsets = list(itertools.combinations(right(right_ones, attempts), min(k, attempts)))
    assert_close(allocate.pass_at(right_ones, attempts, k), sum(any(s) for s in subsets) / len(subsets))


def test_a_problem_leaves_its_bin_when_it_is_past_the_edge_by_the_margin():
    def after(rate, old):
        return allocate.rebin(rate, old, 10, 0.02)

    assert [after(r, allocate.UNSEEN) for r in (0, 0.1, 0.31, 0.999, 1)] == [0, 1, 3, 9, 9]
    assert [after(r, 3) for r in (0.41, 0.419, 0.42, 0.75)] == [3, 3, 4, 7]
    assert [after(r, 3) for r in (0.29, 0.281, 0.28, 0.05)] == [3, 3, 2, 0]


def weights_of(ledger, *names, **settings):
    """How many times its parent's credit each problem's group gets."""
    method = methods.load("promptgdro")
    batch = batch_of(*[[1.0, 0.0]] * len(names))
    groups = [Group(Problem(n, ()), g.rollouts, g.place) for n, g in zip(names, batch.groups, strict=True)]
    credit = method.advantage(batch.but(groups=tuple(groups)), ledger, **settings)
    return [2 * x for x in per_rollout(credit, batch)[::2]]


KNOWN = ({"a": right(4, 4), "b": right(0, 4)}, {"a": right(3, 4), "b": right(0, 4)})


def test_prompt_gdro_weighs_bins_by_how_far_from_solved_they_are():
    """Step 0: both unseen, mean loss 1/2. Step 1: a's bin (pass@k 1) loses 1/4, b's (pass@k 0) loses 1."""
    assert_close(weights_of(told(*KNOWN), "a", "b", "new"), [math.exp(0.25), math.exp(1), math.exp(0.5)], 1e-5)
    later = told(*KNOWN, {"a": right(1, 4)})
    assert_close(weights_of(later, "a"), [math.exp(0.9 * 0.25 + 0.1 * 0.75)], 1e-5)
    assert_close(weights_of(told(*KNOWN), "a", "b", eta=5.0), [3.0, 3.0], 1e-5)                # ω_max
    assert_close(weights_of(told(*KNOWN), "a", "b", eta=2.0, clip=0.5, cap=9), [math.exp(0.5), math.exp(1.0)], 1e-5)


def test_a_rare_bin_counts_as_much_as_a_common_one():
    ledger = told({"a": right(4, 4), "b": right(4, 4), "c": right(0, 4)},
                  {"a": right(4, 4), "b": right(2, 4), "c": right(1, 4)})
    known = allocate.bins(ledger, count=10, k=8, window=16, margin=0.02)
    assert_close([known.score[9], known.score[0]], [0.25, 0.75])


def test_equal_scores_are_one_factor_and_no_change_where_the_batch_is_levelled():
    ledger = told({"a": right(1, 4), "b": right(1, 4)}, {"a": right(1, 4), "b": right(1, 4)})
    assert_close(weights_of(ledger, "a", "b"), [math.exp(0.75)] * 2, 1e-5)
    assert_close(weights_of(ledger, "a", "b", level=True), [1, 1], 1e-5)
    assert_close(weights_of(Ledger(), "a", "b"), [1, 1], 1e-5)
    assert sum(weights_of(told(*KNOWN), "a", "b", level=True)) == pytest.approx(2, abs=1e-5)


def test_the_rewards_of_a_step_do_not_weigh_their_own_step():
    ledger = told(*KNOWN)
    before = weights_of(ledger, "a", "b")
    ledger.saw(Group(Problem("a", ()), group([0.0, 0.0]).rollouts, Place(0, 9, 0)))
    assert weights_of(ledger, "a", "b") == before


# GRPO-RoC ---------------------------------------------------------------------------------------------------------

def resampled(k, n=32, faults=lambda i: 0.0, **settings):
    """(right kept, wrong kept) of a group of n with k right; attempt i has faults(i)."""
    whole = group(right(k, n))
    made = [r.but(score=Score(r.score.value, {"faults": faults(r.attempt)})) for r in whole.rollouts]
    kept = roc.select(whole.of(made), Ledger(), **settings)
    if kept is None:
        return None
    good = [r.attempt for r in kept.rollouts if r.score.value > 0]
    return good, [r.attempt for r in kept.rollouts if r.score.value == 0]


def test_roc_keeps_half_in_proportion_and_two_of_either():
    sizes = {k: tuple(map(len, resampled(k))) for k in (1, 2, 3, 5, 7, 8, 16, 25, 29, 30, 31)}
    assert sizes == {1: (1, 15), 2: (2, 14), 3: (2, 14), 5: (2, 14), 7: (4, 12), 8: (4, 12), 16: (8, 8), 25: (12, 4),
                     29: (14, 2), 30: (14, 2), 31: (15, 1)}
    assert resampled(0) is None and resampled(32) is None
    assert tuple(map(len, resampled(1, 2))) == (1, 1)


def test_roc_keeps_the_cleanest_of_the_right_and_any_of_the_wrong():
    good, wrong = resampled(8, faults=lambda i: (0.75, 0.0, 0.5, 0.25)[i % 4])
    assert good == [1, 3, 5, 7]                         # 0/4 and 1/4 failed calls; 3/4 and 2/4 are out
    assert resampled(8)[0] == [0, 1, 2, 3]              # ties: the first
    assert wrong != list(range(8, 20)) and len(set(wrong)) == 12
    drawn = Counter()
    whole = group(right(8, 32))
    for slot in range(400):
        kept = roc.select(Group(whole.problem, whole.rollouts, Place(0, 0, slot)), Ledger())
        drawn.update(r.attempt for r in kept.rollouts if r.score.value == 0)
    assert set(drawn) == set(range(8, 32)) and min(drawn.values()) > 150        # each half of the time


def spoken(*turns):
    """A dialogue: what the policy said, what came back, and so on."""
    text = Segment.empty().read([4, 14], Role.PROMPT)
    for k, words in enumerate(turns):
        tokens = np.array(toy.Letters().encode(words))
        none = np.zeros(len(tokens), dtype=int)
        said = Said(tokens, none.astype(np.float32), none, Stop.DONE)
        text = text.read(tokens, Role.SEEN) if k % 2 else text.wrote(said)
    return replace(attempt([0], None), segments=(text,))


def test_faults_are_failed_calls_and_a_loose_form():
    """In this alphabet "!" is the environment's complaint, and an answer stands between a and b."""
    cases = {
        ("ab",): 0.5 + 0,                       # nothing asked, one answer
        ("c", "1", "ab"): 0 + 0,
        ("c", "!", "c", "1!", "c", "2", "c", "3", "ab"): 0.5 + 0,      # two of four calls failed
        ("c", "!", "c"): 1 + 1,                 # no answer
        ("aab", "1", "c"): 0 + 1,               # unmatched
        ("ab", "1", "ab", "2", "c"): 0 + 1 / 3,                   # one answer too many, in three turns
    }
    world = toy.world()

    async def grade(rollouts):
        return [Score(1.0) for _ in rollouts]

    world.grade = grade
    whole = group([None]).of([spoken(*turns) for turns in cases])
    scored = asyncio.run(roc.reward(whole, world, failed="!", opens="a", closes="b"))
    assert_close([r.score.parts["faults"] for r in scored.rollouts], list(cases.values()))
    assert {r.score.value for r in scored.rollouts} == {1.0}


def test_failed_calls_are_of_the_calls_and_an_attempt_without_one_has_a_half():
    """The paper's p_err in dialogues: the turn that answers is no call, one that ended in a fault is."""
    wrong = Fault.model("no such call")
    cases = [       # faults of the turns, why the dialogue ended, p_err
        ([None], Stop.DONE, 0.5),                           # the answer alone
        ([wrong, None], Stop.DONE, 1.0),                    # 1 call, 1 error, then the answer
        ([wrong, None, None, None, None], Stop.DONE, 0.25),
        ([None, None], Stop.DONE, 0.0),
        ([Fault.tool("failed"), wrong, None], Stop.DONE, 1.0),
        ([None, wrong], Stop.TURNS, 0.5),                   # no answer within the turn limit: both are calls
        ([None, wrong], Stop.DONE, 0.5),                    # a call that failed ended it
        ([None], Stop.LENGTH, 0.5),                         # an answer that ran out of tokens
        ([wrong, None], Stop.LENGTH, 1.0),
    ]
    made = [spoken("c").but(turns=tuple(Turn("k", fault=f) for f in faults), stop=stop) for faults, stop, _ in cases]
    world = toy.world()

    async def grade(rollouts):
        return [Score(1.0) for _ in rollouts]

    world.grade = grade
    scored = asyncio.run(roc.reward(group([None]).of(made), world, opens=""))
    assert_close([r.score.parts["faults"] for r in scored.rollouts], [x for _, _, x in cases])
    tagged = asyncio.run(roc.reward(group([None]).of(made[:2]), world))      # no answer tags: 1 more
    assert_close([r.score.parts["faults"] for r in tagged.rollouts], [1.5, 2.0])


def test_what_roc_leaves_out_was_paid_for_and_is_filtered():
    world = toy.world()
    ledger, steps = run(methods.load("roc").recipe(groups=5, rollouts=8), world, 120)
    assert sum(ledger.fates.values()) == world.meter.of().rollouts == 120
    trained = sum(len(g.rollouts) for s in steps for g in s.groups)
    assert ledger.fates["filtered"] == 120 - trained and {len(g.rollouts) for s in steps for g in s.groups} == {4}


# SCALER -----------------------------------------------------------------------------------------------------------

RULE = {"window": 1, "gain": 2.0, "aim": 0.5, "step": 1.0, "never": 5, "full": 5, "slope": 10}


def levelled(levels=9, each=4, environments=("sums",)):
    return [
        Problem(f"{e}-{level}-{k}", (), meta={"environment": e, "level": level})
        for e in environments for level in range(levels) for k in range(each)
    ]


def turned(*rates, pool=None, start=4.0, **rule):
    """Where a dial that stands at `start` is after steps with these shares right at its own levels."""
    pool = pool or levelled()
    ledger = Ledger()
    known = scaler.dials(ledger, pool, **{**RULE, **rule})
    known.of["sums"].at = start
    stood = [start]
    for rate in rates:
        level = math.floor(known.of["sums"].at)
        both = {level, math.ceil(known.of["sums"].at)}
        made = told({f"sums-{x}-0": right(round(8 * rate), 8) for x in both})
        ledger.history[ledger.step] = made.history[0]
        ledger.step += 1
        known = scaler.dials(ledger, pool, **{**RULE, **rule})
        stood.append(known.of["sums"].at)
    return stood, known


def test_a_dial_turns_by_twice_the_distance_from_half_and_one_level_at_most():
    assert turned(0.5)[0] == [4, 4]
    assert turned(1.0)[0] == [4, 5]
    assert turned(0.25)[0] == [4, 3.5]
    assert turned(0.0, 0.0, 0.0, 0.0)[0] == [4, 3, 2, 1, 0]
    assert turned(0.625, 0.625)[0] == [4, 4.25, 4.5]
    assert turned(1.0, 1.0, start=7.5)[0] == [7.5, 8, 8]          # the highest level
    assert turned(0.0, start=0.25)[0] == [0.25, 0]


def test_accuracy_between_two_levels_is_that_of_the_mix():
    assert_close(scaler._between(3.25, {3: 1.0, 4: 0.0}), 0.75)
    assert_close(scaler._between(3.0, {3: 0.5}), 0.5)
    assert_close(scaler._between(3.0, {6: 0.5, 7: 1.0}), 0.75)            # stale: neither is near


@pytest.mark.parametrize(("at", "count"), [(3.0, 8), (3.25, 8), (3.4, 5), (0.0, 3), (7.9, 1), (2.5, 64)])
def test_the_mix_has_the_dial_for_its_mean_up_to_a_problem(at, count):
    rng = np.random.default_rng(0)
    for _ in range(20):
        mix = scaler.mixed_levels(at, count, rng)
        assert sum(n for _, n in mix) == count and {level for level, _ in mix} <= {math.floor(at), math.ceil(at)}
        assert min(n for _, n in mix) >= 0
        assert abs(sum(level * n for level, n in mix) - at * count) < 1


def test_one_problem_at_a_time_is_mixed_by_chance():
    rng = np.random.default_rng(0)
    above = [scaler.mixed_levels(3.25, 1, rng)[1][1] for _ in range(2000)]
    assert_close(sum(above) / 2000, 0.25, 0.03)                          # rounded it would be 0 each time


def test_scaler_poses_at_its_dials_from_its_window_only():
    pool = levelled(environments=("even", "odd", "prime"))
    ledger = Ledger(seed=2)
    known = scaler.dials(ledger, pool, **{**RULE, "window": 2})
    known.of[known.active[0]].at, known.of[known.active[1]].at = 2.25, 6.0
    drawn = scaler.choose(pool, ledger, 8, np.random.default_rng(0), window=2)
    levels = {e: Counter(p.meta["level"] for p in drawn if p.meta["environment"] == e) for e in known.active}
    assert levels == {known.active[0]: {2: 3, 3: 1}, known.active[1]: {6: 4}}
    assert len({p.id for p in drawn}) == 8
    assert len(scaler.choose(pool, ledger, 5, np.random.default_rng(0), window=2)) == 5


def retired(*rates, environments=("sums", "other"), **how):
    """After which of these steps the environment was first put back; None if never."""
    pool = levelled(environments=environments)
    for k in range(1, len(rates) + 1):
        known = played(rates[:k], pool, **how)
        if known.retired:
            return k
    return None


def played(rates, pool, start=4.0, seed=0, **rule):
    ledger = Ledger(seed=seed)
    known = scaler.dials(ledger, pool, **{**RULE, **rule})
    name = known.active[0]
    known.of[name].at = start
    for rate in rates:
        at = known.of[name].at
        seen = told({f"{name}-{x}-0": right(round(8 * rate), 8) for x in {math.floor(at), math.ceil(at)}})
        ledger.history[ledger.step] = seen.history[0]
        ledger.step += 1
        known = scaler.dials(ledger, pool, **{**RULE, **rule})
    return known


def test_environments_are_put_back_after_exactly_as_many_steps_as_the_rule_says():
    assert retired(*[0.0] * 6) == 5                              # nothing right
    assert retired(*[0.0] * 4, 0.5, *[0.0] * 5) == 10            # the count begins again
    assert retired(*[1.0] * 6, start=8.0) == 5                   # at the highest level
    assert retired(*[1.0] * 8, start=5.0) == 8                   # gets there in three
    assert retired(*[0.5] * 12) == 10                            # stays where it is: it does not rise
    assert retired(*[0.625] * 12) is None                        # rises by a quarter of a level a step
    assert retired(*[0.375] * 12) == 10


def test_who_is_put_back_makes_room_for_another_and_alone_it_stays():
    pool = levelled(environments=("even", "odd"))
    first = played([], pool).active
    after = played([0.0] * 5, pool)
    assert set(after.active) == {"even", "odd"} - set(first) and after.retired == 1
    assert after.of[first[0]].past == []
    assert played([0.0] * 5, levelled(environments=("only",))).active == ["only"]
    assert played([0.0] * 5, pool).active == played([0.0] * 5, pool).active


def test_slope_of_a_line():
    assert_close(scaler.rise([1, 3, 5, 7]), 2)
    assert_close(scaler.rise([0, 1, 0]), 0)


def test_scaler_climbs_where_it_is_right_and_needs_levels():
    """Problems whose level is how seldom they are solved: accuracy hovers about a half, and the dial moves."""
    pool, ledger = levelled(levels=11, each=8), Ledger(seed=1)
    shares = []
    for step in range(40):
        skill = 2 + step / 10
        rng = np.random.default_rng(step)
        drawn = scaler.choose(pool, ledger, 16, rng, window=4)
        chance_of = {p.id: 1 / (1 + math.exp(2 * (p.meta["level"] - skill))) for p in drawn}
        seen = told({name: (rng.random(8) < p).astype(float).tolist() for name, p in chance_of.items()})
        ledger.history[ledger.step] = seen.history[0]
        ledger.step += 1
        shares.append(np.mean([np.mean(s.rewards) for s in seen.history[0]]))
    assert 0.4 < np.mean(shares[10:]) < 0.65
    known = scaler.dials(ledger, pool, **{**RULE, "window": 4})
    assert 4.5 < known.of["sums"].at < 7.5
    method = methods.load("scaler")
    one = {"mean": 0.5, "histogram": [0, 50, 0], "levels": [2, 2]}
    assert method.needs(one)[0] == methods.FAILS
    assert method.needs({**one, "levels": [1, 2]})[0] == methods.HOLDS


# what they learn from ---------------------------------------------------------------------------------------------

def counted(state, seen):
    return [*state, len(seen)]


def test_a_fold_takes_in_each_closed_step_once_and_knows_its_settings_apart():
    ledger = told({"a": right(1, 2)}, {"a": right(1, 2), "b": right(0, 2)})
    assert ledger.fold(counted, []) == [1, 2] == ledger.fold(counted, [])
    ledger.step += 1
    assert ledger.fold(counted, []) == [1, 2, 0]
    assert vade.beliefs(ledger, touched=1, idle=1) != vade.beliefs(ledger, touched=0.5, idle=1)


@pytest.mark.parametrize("name", MINE)
def test_a_journal_gives_back_all_that_a_curriculum_knows(name):
    ledger, _ = run(methods.load(name).recipe(groups=5, rollouts=8), toy.world(), 240)
    again = Ledger()
    again.replay(ledger.fresh)
    assert again.history == ledger.history and again.tallies == ledger.tallies and again.fates == ledger.fates


def _grows(by, state, seen):
    return state + by


def test_what_is_folded_differs_by_what_it_is_folded_with():
    ledger = Ledger(step=2)
    assert [ledger.fold(partial(_grows, by), 0.0) for by in (0.5, 0.9, 0.5)] == [1.0, 1.8, 1.0]
