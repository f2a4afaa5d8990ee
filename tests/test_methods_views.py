"""Methods that change what agents read, who acts, or where, against numbers worked by hand from their papers."""

import asyncio
import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from isocost import methods, ops
from isocost.batch import Forward
from isocost.credit import credited
from isocost.envs.tiny import boxes, needle, rooms
from isocost.errors import UserError
from isocost.ledger import Ledger
from isocost.loop import fates_of
from isocost.methods import (
    datamind,
    dynaweb,
    gigpo,
    guig1,
    guirc,
    iterresearch,
    mirothinker,
    rac,
    rmcts,
    timemaster,
    vragrl,
    webagentr1,
    webgym,
    webrl,
)
from isocost.pack import pack
from isocost.parts import experts, view
from isocost.parts.play import sample, viewed
from isocost.seams import Attempts, Pace, Wave
from isocost.types import Fate, Fault, Group, Place, Problem, Role, Rollout, Said, Score, Segment, Shown, Stop, Turn
from isocost.worlds import toy
from toy import QUESTION, attempt, batch_of, flat_gradient, group, per_rollout, run

LEDGER, PLACE = Ledger(), Place(0, 0, 0)
PACE = Pace(lr=0.1, max_tokens=3, max_turns=4)
OURS = ("tti", "mirothinker", "iterresearch", "webagentr1", "webgym", "bpp", "webrl", "datamind", "rac", "dynaweb",
        "rmcts", "guig1", "guirc", "vragrl", "timemaster")


def assert_close(a, b, within=2e-5):
    assert a == pytest.approx(b, abs=within)


def dialogue(reward, keys, number=0, faults=(), lengths=(), rewards=(), own=True):
    """A rollout whose turns were taken in states of these keys; a turn is "a" once or more and the end."""
    text, lengths = Segment.empty().read([4, 14], Role.PROMPT), lengths or [1] * len(keys)
    for length in lengths:
        if length != lengths[0] or text.own.any():
            text = text.read([15])
        tokens = [0] * (length - 1) + [3]
        text = text.wrote(Said(np.array(tokens), np.full(len(tokens), -1.0, dtype=np.float32),
                               np.zeros(len(tokens), dtype=np.int64), Stop.DONE))
    paid = rewards or [0.0] * (len(keys) - 1) + [float(reward)]
    turns = tuple(Turn(k, r, f) for k, r, f in zip(keys, paid, faults or [None] * len(keys), strict=True))
    return Rollout(QUESTION, (text,), "", attempt=number, score=Score(float(reward)), turns=turns)


def packed(*groups):
    return pack([Group(QUESTION, tuple(r.but(attempt=i) for i, r in enumerate(g)), Place(0, 0, s))
                 for s, g in enumerate(groups)], 0)


def by_turn(x, batch):
    turns = ops.turns_of(batch)
    return ops.at_turns(x, turns, batch).tolist()


def rewarded(reward, rollouts, problem=QUESTION):
    """The values that a reward gives to rollouts with marks."""
    made = Group(problem, tuple(r.but(problem=problem, attempt=i, mark=r.score) for i, r in enumerate(rollouts)), PLACE)
    return [r.score for r in asyncio.run(reward(made, toy.world())).rollouts]


# what is read ---------------------------------------------------------------------------------------------------------


def test_mirothinker_takes_the_penalty_for_a_malformed_turn_from_the_score():
    bad, busy = Fault.model("no call"), Fault.tool("busy")
    scores = rewarded(mirothinker.reward, [
        dialogue(1, "ab"), dialogue(1, "ab", faults=[bad, bad]), dialogue(0, "ab", faults=[None, bad]),
        dialogue(0, "ab", faults=[busy, None])])
    assert_close([s.value for s in scores], [1.0, 0.9, -0.1, 0.0])
    assert [s.parts["right"] for s in scores] == [1, 1, 0, 0]


def test_iterresearch_discounts_from_the_last_turn_and_compares_all_turns_of_a_group():
    batch = packed([dialogue(1, "abc"), dialogue(0, "ab")])
    each = iterresearch.discounted(ops.turns_of(batch), batch.reward, gamma=0.9)
    assert_close(each.tolist(), [0.81, 0.9, 1.0, 0.0, 0.0])
    numbers = np.array([0.81, 0.9, 1.0, 0.0, 0.0])
    wanted = (numbers - numbers.mean()) / (numbers.std(ddof=1) + 1e-6)
    assert_close(by_turn(iterresearch.advantage(batch, LEDGER, gamma=0.9), batch), wanted.tolist())
    short, long = packed([dialogue(1, "ab"), dialogue(1, "abcd")]), packed([dialogue(0, "ab"), dialogue(0, "abcd")])
    credit = iterresearch.advantage(short, LEDGER, gamma=0.9)
    mean = [float(np.mean(by_turn(credit, short)[a:b])) for a, b in ((0, 2), (2, 6))]
    assert mean[0] > 0 > mean[1], "of two right dialogues the shorter one has more"
    assert not iterresearch.advantage(long, LEDGER).any()
    ones = batch_of([1, 0, 0, 0])
    assert torch.allclose(iterresearch.advantage(ones, LEDGER), methods.load("grpo").advantage(ones, LEDGER))


def test_averages_over_turns():
    batch = packed([dialogue(1, "ab", lengths=[1, 3]), dialogue(0, "a", lengths=[2])])
    # IterResearch: 3 turns, 1/(3 |a|). WebAgent-R1: 2 rollouts, 1/(2 |turns| |a|)
    assert_close(by_turn(iterresearch.weight(batch), batch), [1 / 3, 1 / 9, 1 / 6])
    assert_close(by_turn(webagentr1.weight(batch), batch), [1 / 4, 1 / 12, 1 / 4])
    for weigh in (iterresearch.weight, webagentr1.weight):
        assert float(weigh(batch).sum()) == pytest.approx(1) and not weigh(batch)[~batch.mask].any()


def test_webgym_imitates_right_episodes_without_the_turns_that_changed_nothing():
    batch = packed([dialogue(1, ["a", "a", "b"]), dialogue(0, ["a", "b"]), dialogue(1, ["", ""])])
    assert by_turn(webgym.advantage(batch, LEDGER), batch) == [0, 1, 1, 0, 0, 1, 1]


def test_webgym_remembers_the_last_waves_and_recent_ones_more_often():
    ledger, drawn = Ledger(), []
    world, recipe = toy.dialogues(), methods.recipe("webgym")
    for wave in range(40):
        ledger.step = wave
        made = Group(QUESTION, (attempt([0, 3], 1.0),), Place(0, wave, 0))
        batch = pack([made], 0)
        batch = batch.but(advantage=webgym.advantage(batch, ledger))
        batch = batch.but(weight=recipe.weight(batch))
        seen = {}

        def learn(batch, recipe, world, ledger, seen=seen):
            seen["waves"] = [g.place.wave for g in batch.groups]
            return {}

        told = webgym.improve(batch, recipe, world, ledger, inner=learn)
        assert told["replayed"] == (wave > 0)
        drawn += [wave - w for w in seen["waves"] if w != wave]
    assert set(drawn) <= {1, 2, 3} and drawn.count(1) > drawn.count(2) + drawn.count(3) > 0
    # (3/4)^2 : (2/4)^2 : (1/4)^2 = 9 : 4 : 1
    assert drawn.count(1) / len(drawn) == pytest.approx(9 / 14, abs=0.2)
    assert {g.place.wave for g in ledger.kept["shelf"]} <= {36, 37, 38, 39}


@pytest.mark.parametrize(("method", "settings"), [("webgym", {}), ("webrl", {"fresh": 0.5, "high": 1e9}), ("dart", {})])
def test_an_update_with_remembered_rollouts_has_what_enrich_adds(method, settings):
    def marked(batch, world):
        return batch.but(extra={**batch.extra, "rows": torch.full(batch.mask.shape, float(len(batch.groups)))})

    world, recipe, ledger, seen = toy.dialogues(), methods.recipe(method), Ledger(), []
    recipe = recipe.but(enrich=(*recipe.enrich, marked))

    def learn(batch, recipe, world, ledger, **settings):
        seen.append((len(batch.groups), batch.extra["rows"].unique().tolist(), batch.reward.numel()))
        return {}

    for wave in range(8):
        ledger.step = wave
        rewards = (1.0, 0.0) if wave % 2 == 0 else (0.0, 0.0)       # what is remembered answers a wave that failed
        made = Group(QUESTION, tuple(attempt([0, 3], r, k) for k, r in enumerate(rewards)), Place(0, wave, 0))
        batch = credited([made], recipe, world, ledger)
        methods.load(method).improve(batch, recipe, world, ledger, inner=learn, **settings)
    assert any(groups > 1 or rollouts > 2 for groups, _, rollouts in seen)
    assert all(rows == [groups] for groups, rows, _ in seen)


@pytest.mark.parametrize(("name", "seen"), [
    ("mirothinker", partial(view.last_results, keep=5)), ("iterresearch", view.workspace),
    ("webagentr1", partial(view.placeholders, keep=1, words="[earlier page]")),
    ("webgym", partial(view.window, rounds=4)), ("bpp", partial(view.keyframes, mark="=", most=4, delay=0)),
])
def test_each_reads_what_its_paper_says_and_trains_each_turn_in_the_context_it_was_taken_in(name, seen):
    play = methods.recipe(name).play
    assert play.func is viewed
    given = play.keywords["view"]
    assert (getattr(given, "func", given), getattr(given, "keywords", {})) == (
        getattr(seen, "func", seen), getattr(seen, "keywords", {}))
    world = toy.dialogues()
    found = asyncio.run(viewed(world.problems[0], range(20), world, PACE, PLACE, view=view.workspace))
    whole = max(found, key=lambda r: len(r.turns))
    assert len(whole.turns) > 2
    for t, text in enumerate(whole.segments):
        assert set(text.turn[text.own].tolist()) == {t} and len(text) <= len(whole.segments[1]) + 3
    batch = pack([Group(world.problems[0], (whole.scored(Score(1.0)),), PLACE)], 0)
    gap = (world.learner.forward(batch).logp - batch.logp).detach()[batch.mask].abs().max()
    assert float(gap) < 1e-6, "the learner sees the context that the sampler saw"


# boxes and composite rewards ------------------------------------------------------------------------------------------


def screen():
    return next(p for p in boxes.problems(boxes.Boxes(size=6)) if boxes.area(p.meta["box"]) >= 2)


def test_guig1_pays_for_middle_overlap_and_size_and_weighs_small_targets_more():
    p = screen()
    left, top, right, bottom = p.meta["box"]
    said = attempt([0, 3], 1.0).but(final=p.answer)
    grown = said.but(final=boxes.written((left, top, right + 1, bottom)) if right < 6 else
                     boxes.written((left - 1, top, right, bottom)))
    none = attempt([0, 3], 0.0).but(final="x")
    perfect, wider, nothing = rewarded(guig1.reward, [said, grown, none], p)
    assert perfect.value == 1 + 0.25 + 0.125 and nothing.value == 0
    area = (right - left) * (bottom - top)
    assert_close(wider.value, 1 + 0.25 * area / (area + bottom - top) + 0.125 * 4 / (3 + 6 / 5))
    assert guig1.difficulty(QUESTION) == 1
    whole, cell = (Problem("p", (), meta={"box": (0, 0, k, k), "size": 6}) for k in (6, 1))
    assert_close([guig1.difficulty(whole), guig1.difficulty(cell)], [0, 2 * (1 - 1 / 6)])
    small = Problem(QUESTION.id, QUESTION.prompt, meta=cell.meta)
    hard = pack([group([1, 0], problem=small)], 0)
    assert_close(per_rollout(guig1.advantage(hard, LEDGER), hard), [5 / 6, -5 / 6])
    batch = batch_of([1, 0])
    weights = methods.recipe("guig1").weight(batch)
    assert_close(per_rollout(weights, batch), [1 / 128, 1 / 128])
    assert rewarded(guig1.reward, [attempt([0, 3], 1.0)])[0].value == 1


def test_guircpo_pays_for_what_siblings_point_at_too():
    assert guirc.agreement(["1133"] * 4, 6) == [1] * 4
    # cells: (0,0,2,2) and (1,0,3,2) share the column x = 1: two cells of four have two votes
    assert_close(guirc.agreement(["0022", "1032", "5566", "x"], 6), [(1 * 2 + 2 * 2) / (2 * 4), 6 / 8, 1 / 2, 0])
    assert_close(guirc.agreement(["a", "b", "a", "a"], None), [1, 1 / 3, 1, 1]), "texts: the majority vote"
    assert guirc.agreement(["x", "y"], 6) == [0, 0]
    scores = rewarded(guirc.reward, [attempt([0, 3], 0.0).but(final="1133"), attempt([0, 3], 1.0).but(final="1133")],
                      screen())
    assert [(s.value, s.parts["right"]) for s in scores] == [(1, 0), (1, 1)], "the verifier has no part in it"


def test_guirc_answers_with_the_region_that_samples_agree_on():
    some = [attempt([0, 3], 0.0, problem=screen()).but(final=f) for f in ("0022", "0032", "4455", "0022")]
    assert guirc._chosen(some, 7).final == "0022" and guirc._chosen(some, 7).attempt == 7
    world = toy.world()
    votes = asyncio.run(guirc.voted(world.problems[0], range(2), world, PACE, Place(0, 0, 0, 1), votes=5))
    assert [r.attempt for r in votes] == [0, 1] and world.meter.of().rollouts == 10
    assert len(asyncio.run(guirc.voted(world.problems[0], range(2), world, PACE, PLACE, votes=5))) == 2


def test_vragrl_sums_answer_form_and_order():
    assert vragrl.ndcg("37", {"3", "7"}) == 1 and vragrl.ndcg("12", {"3"}) == 0 and vragrl.ndcg("", set()) == 0
    assert_close(vragrl.ndcg("13", {"3"}), 1 / math.log2(3))
    assert_close(vragrl.ndcg("317", {"3", "7"}), (1 + 1 / 2) / (1 + 1 / math.log2(3)))
    p = next(iter(needle.problems(needle.Needle(gold=1))))
    k = p.meta["gold"][0]
    scores = rewarded(vragrl.reward, [
        dialogue(1, "ab").but(final=f"7 {k}"), dialogue(1, "ab", faults=[Fault.model("x"), None]).but(final=f"7 x{k}"),
        dialogue(0, "ab").but(final=" ")], p)
    assert_close([s.value for s in scores], [1.0, 0.7 + 0.2 / math.log2(3), 0.1])


def test_timemaster_sums_class_and_form():
    right, cut = attempt([0, 3], 1.0).but(final="<a>"), attempt([0, 3], 1.0, stop=Stop.LENGTH).but(final="<a>")
    wrong = attempt([0, 3], 0.0).but(final="b")
    assert_close([s.value for s in rewarded(timemaster.reward, [right, cut, wrong])], [1.0, 0.9, 0.1])
    formed = partial(timemaster.reward, pattern="<.>")
    assert_close([s.value for s in rewarded(formed, [right, cut, wrong])], [1.0, 0.9, 0.0])


# WebRL ----------------------------------------------------------------------------------------------------------------


def test_webrls_loss_is_least_where_the_mean_log_ratio_is_the_advantage_over_beta():
    batch = packed([dialogue(1, "ab", lengths=[2, 2])])
    old = batch.logp * batch.mask
    credit = torch.where(batch.turn == 0, 1.0, -0.5) * batch.mask

    def at(first, second):
        now = (old + torch.where(batch.turn == 0, first, second) * batch.mask).requires_grad_()
        value, seen = webrl.loss(Forward(now, torch.zeros_like(now)), batch.but(old=old, advantage=credit), beta=0.5)
        value.sum().backward()
        return value[batch.mask].tolist(), now.grad[batch.mask].tolist(), seen["log_ratio"][batch.mask].tolist()

    value, gradient, ratio = at(0.0, 0.0)
    assert_close(value, [1, 1, 0.25, 0.25])                       # A^2 / 2β
    assert_close(gradient, [-1, -1, 0.5, 0.5])                    # REINFORCE: −A for each token
    value, gradient, ratio = at(2.0, -1.0)                        # A / β
    assert_close(value, [0] * 4)
    assert_close(gradient, [0] * 4)
    assert_close(ratio, [2, 2, -1, -1])


def test_webrls_advantage_mixes_one_step_and_the_outcome():
    batch = packed([dialogue(1, "ab"), dialogue(0, "a")])
    values = torch.zeros_like(batch.logp)
    values[batch.mask] = torch.tensor([0.4, 0.7, 0.2])
    batch = batch.but(extra={"values": values})
    one = [0 + 0.7 - 0.4, 1 - 0.7, 0 - 0.2]
    end = [1 - 0.4, 1 - 0.7, 0 - 0.2]
    for lam in (0.0, 0.5, 1.0):
        credit = by_turn(webrl.advantage(batch, LEDGER, lam=lam), batch)
        assert_close(credit, [lam * a + (1 - lam) * b for a, b in zip(one, end, strict=True)])


def test_webrl_chooses_problems_like_those_that_failed_neither_hopeless_nor_easy():
    pool = [Problem(f"{level}-{i}", (), meta={"level": level}) for level in (1, 2, 3) for i in range(10)]
    ledger = Ledger()
    for i in range(4):      # level 1 is always right, level 2 half of the time, level 3 never
        ledger._tally(f"1-{i}", "", [1.0] * 4)
        ledger._tally(f"2-{i}", "", [1.0, 0.0, 1.0, 0.0])
        ledger._tally(f"3-{i}", "", [0.0] * 8)
    rng = np.random.default_rng(0)
    ledger.step = 4
    before = webrl.choose(pool, ledger, 20, rng, each=8, share=1.0)
    assert {p.meta["level"] for p in before} == {1, 2, 3}, "the first phase has no failures yet"
    ledger.step = 8
    chosen = webrl.choose(pool, ledger, 20, rng, each=8, share=1.0)
    assert {p.meta["level"] for p in chosen} == {2}
    mixed = webrl.choose(pool, ledger, 20, rng, each=8, share=0.5)
    assert len(mixed) == 20 and sum(p.meta["level"] == 2 for p in mixed) >= 10
    assert webrl._worth(pool[0], {"1-0": 3.0}, {"1-0": 3}, (5.0, 10)) == 3.5 / 4


def test_webrls_perplexity_is_that_of_the_policy_now():
    world = toy.world()
    made = [group([1.0], [2], slot=0), group([1.0, 1.0], [3, 1], slot=1)]
    batch = pack(made, 0)
    logp = world.learner.score(batch).logp * batch.mask
    each = [logp[batch.rollout == 0].sum() / 2, logp[batch.rollout > 0].sum() / 4]
    assert_close(webrl.perplexities(made[::-1], world), [math.exp(-each[1]), math.exp(-each[0])])


# experts --------------------------------------------------------------------------------------------------------------


def test_dataminds_share_falls_by_half_a_cosine():
    for step, mu in ((0, 0.9), (175, 0.475), (350, 0.05), (1000, 0.05)):
        ledger = Ledger()
        ledger.step = step
        assert datamind.share(ledger) == pytest.approx(mu)


def mixed_batch():
    """Two attempts of the policy, and an expert's at the same question."""
    text = Segment.empty().read([4, 14], Role.PROMPT).read([0, 1, 3], Role.TEACHER)
    shown = Rollout(QUESTION, (text,), "ab", attempt=2, origin=experts.EXPERT, cohort=experts.EXPERT, score=Score(1.0))
    made = [attempt([0, 3], 1.0, 0), attempt([1, 3], 0.0, 1), shown]
    return pack([Group(QUESTION, tuple(made), PLACE)], 0)


def gradient_of(mu, batch):
    world, recipe = toy.world(), methods.recipe("datamind")
    batch = batch.but(advantage=recipe.advantage(batch, LEDGER))
    batch = batch.but(weight=recipe.weight(batch))

    def learn(batch, recipe, world, ledger):
        world.learner.gradient(batch, recipe.loss)
        return {}

    experts.taught(batch, recipe, world, LEDGER, share=lambda ledger: mu, inner=learn)
    return flat_gradient(world.learner)


def test_dataminds_gradient_is_the_mix_of_dapos_and_of_imitations():
    batch = mixed_batch()
    world, dapo = toy.world(), methods.recipe("dapo")
    alone = pack([Group(QUESTION, batch.groups[0].rollouts[:2], PLACE)], 0)
    alone = alone.but(advantage=dapo.advantage(alone, LEDGER))
    alone = alone.but(weight=dapo.weight(alone))
    world.learner.gradient(alone, dapo.loss)
    rl = flat_gradient(world.learner)
    assert torch.allclose(gradient_of(0.0, batch), rl, atol=1e-12), "with no share of imitation it is DAPO"
    imitation = gradient_of(1.0, batch)
    assert torch.allclose(gradient_of(0.3, batch), 0.7 * rl + 0.3 * imitation, atol=1e-9)
    assert not torch.allclose(imitation, rl)


class Deaf(toy.Guess):
    """A tool that is always busy: no answer ends its dialogue."""

    async def step(self, said, luck):
        return replace(await super().step(said, luck), over=False)


def test_an_experts_attempt_is_charged_trained_on_and_compared_with_nobody():
    batch = mixed_batch()
    recipe = methods.recipe("datamind")
    batch = batch.but(advantage=recipe.advantage(batch, LEDGER))
    assert fates_of(batch) == [[Fate.TRAINED] * 3]
    assert per_rollout(batch.advantage, batch)[:2] == pytest.approx([math.sqrt(0.5), -math.sqrt(0.5)], abs=1e-4)
    world = toy.dialogues()
    one = asyncio.run(experts.demonstrated(world.problems[0], 5, world, PACE, PLACE))
    cost = world.meter.of()
    assert (one.final, cost.rollouts, cost.decode) == (world.problems[0].answer, 1, 0) and one.score.value == 1.0
    assert cost.env_steps >= 1 and one.segments[0].written == 0 and not one.turns
    told = (one.segments[0].role == int(Role.TEACHER)).sum()
    assert told == 2 * cost.env_steps, "a letter and the end, again after each fault of the tool"
    slow, limit = toy.dialogues(), replace(PACE, max_turns=2)
    slow.env = Deaf
    cut = asyncio.run(experts.demonstrated(slow.problems[0], 5, slow, limit, PLACE))
    assert (slow.meter.of().env_steps, cut.stop) == (2, Stop.TURNS)
    single = asyncio.run(experts.demonstrated(toy.world().problems[0], 5, toy.world(), PACE, PLACE))
    assert single.final == toy.world().problems[0].answer


def test_an_environment_without_an_expert_is_refused_by_name():
    class Mute(toy.Guess):
        expert = None

    world = toy.dialogues()
    world.env = Mute
    with pytest.raises(UserError, match="no `expert"):
        asyncio.run(experts.demonstrated(world.problems[0], 0, world, PACE, PLACE))


def walks(which, policy_room=None):
    world = toy.dialogues()
    world.problems = list(rooms.problems(which))
    return world


def test_rac_phases_are_recovery_until_new_ground_then_correction_then_the_end():
    plan = rac.PhasePlan({"A", "B"}, 4, 2)
    shown = [experts.Shown(key=k) for k in ("B", "C", "D", "E")]
    assert [plan(s) for s in shown] == [False, False, False, True]
    assert plan.phases == ["recovery", "recovery", "correction", "correction"]
    stuck = rac.PhasePlan({"A"}, 2, 1)
    assert [stuck(experts.Shown(key="A")) for _ in range(3)] == [False, False, True]
    assert stuck.phases == ["recovery", "recovery", "correction"], "recovery has a limit"


def test_rac_ends_lost_attempts_by_an_expert_and_imitates_nothing_that_led_there():
    world = toy.dialogues()
    found = asyncio.run(rac.play(world.problems[0], range(60), world, PACE, PLACE, faults=1, visits=9))
    helped = [r for r in found if r.cohort == rac.HELPED]
    assert helped and len(helped) < 60
    for r in helped:
        (text,) = r.segments
        theirs = text.role == int(Role.TEACHER)
        assert theirs.any() and not text.own[int(np.argmax(theirs)):].any(), "the episode ends with the expert"
        assert r.mark.value == float(r.final == world.problems[0].answer)
    cost = world.meter.of()
    taken = sum(len(r.turns) for r in found)
    steps = sum(int((r.segments[0].role == int(Role.TEACHER)).sum()) // 2 for r in helped)
    assert (cost.rollouts, cost.env_steps) == (60, taken + steps), "replayed turns are not charged"
    batch = pack([Group(world.problems[0], tuple(r.scored(r.mark or Score(0.0)) for r in found), PLACE)], 0)
    credit = per_rollout(rac.advantage(batch, LEDGER), batch)
    assert all(c == 0 for c, r in zip(credit, found, strict=True) if r.cohort == rac.HELPED)


class Cut(toy.Guess):
    """It says how long a turn took, and pays for an episode that the limit of turns ends."""

    async def step(self, said, luck):
        return replace(await super().step(said, luck), seconds=2.0)

    async def cut(self):
        return Shown(over=True, reward=0.25)


def test_rac_watches_an_environment_without_hiding_what_else_it_has():
    world = toy.dialogues()
    world.env = Cut
    found = asyncio.run(rac.play(world.problems[0], range(20), world, replace(PACE, max_turns=2), PLACE, faults=9))
    ended = [r for r in found if r.stop is Stop.TURNS]
    assert ended and all(r.turns[-1].reward == 0.25 for r in ended if r.cohort != rac.HELPED)
    assert all(t.seconds == 2.0 for r in found for t in r.turns)


# other worlds ---------------------------------------------------------------------------------------------------------


def told(which, problem, moves):
    """A rollout of these moves through a house, as text of the rooms' alphabet."""
    from isocost.local.tokenizer import Characters
    text = Characters(rooms.ALPHABET, len(rooms.ALPHABET))
    env, segment, turns = rooms.Walk(problem), Segment.empty().read(text.prompt(problem.prompt), Role.PROMPT), []

    async def go():
        nonlocal segment
        shown = await env.open()
        for said in moves:
            key, tokens = shown.key, [*text.encode(said), *text.ends]
            nothing = np.zeros(2, dtype=np.float32)
            segment = segment.wrote(Said(np.array(tokens), nothing, np.zeros(2, dtype=np.int64), Stop.DONE))
            shown = await env.step(said, lambda: np.random.default_rng(0))
            turns.append(Turn(key, shown.reward, shown.fault))
            if shown.over:
                return
            segment = segment.read(text.answer(shown.messages))

    asyncio.run(go())
    return Rollout(problem, (segment,), env.final(), turns=tuple(turns)), text


def test_a_dream_of_a_known_house_is_the_house_and_of_an_unknown_one_ends():
    which = rooms.Rooms(size=8, keys=0)
    problem = next(p for p in rooms.problems(which) if p.meta["level"] == 2)
    env = rooms.Walk(problem)
    route = []
    state = which.house.start(problem.meta["start"])
    while state[0] != problem.meta["goal"]:
        state = rooms.route(which, state, problem.meta["goal"])[0]
        route.append(rooms.NAMES[state[0]])
    real, text = told(which, problem, ["Z", *route])
    world = toy.world()
    world.text = text
    table = dynaweb.learned([Group(problem, (real,), PLACE)], world)

    async def both(moves):
        dream, env = dynaweb.Dreamt(table, 9, problem), rooms.Walk(problem)
        out = [(await dream.open()).key == (await env.open()).key]
        for said in moves:
            a, b = await dream.step(said, lambda: None), await env.step(said, lambda: None)
            out.append((a.reward, a.over) == (b.reward, b.over) and (a.over or (a.messages, a.key, str(a.fault)) == (
                b.messages, b.key, str(b.fault))))
        return out

    assert all(asyncio.run(both(["Z", *route]))) and all(asyncio.run(both(route)))

    async def lost():
        dream = dynaweb.Dreamt(table, 9, problem)
        await dream.open()
        return await dream.step("Y", lambda: None)

    unknown = asyncio.run(lost())
    assert unknown.over and unknown.reward == 0 and unknown.fault.what == "unknown to the model"
    assert env is not None


def test_dynaweb_dreams_once_it_knows_enough_and_dreams_take_no_steps():
    world = toy.dialogues()
    dreaming = partial(dynaweb.schedule, least=2, real=0.25)
    ledger, _ = run(methods.recipe("dynaweb", groups=4, schedule=dreaming), world, 160)
    lines = ledger.fresh
    assert sum(len(x["attempts"]) for x in lines) == 160 == sum(ledger.fates.values())
    turns = sum(sum(x["turns"]) for x in lines)
    real = sum(len(r.turns) for g in ledger.kept[dynaweb.REAL] for r in g.rollouts)
    steps = world.meter.of().env_steps
    assert steps == real < turns, "imagined turns are not charged as steps of the environment"
    early = [x for x in lines if x["wave"] == 0]
    assert sum(map(len, (x["attempts"] for x in early))) == 32


def test_rmcts_goes_down_the_best_bound_and_backs_up_means():
    root = rmcts.Node()
    for words, reward in (("ab", 1.0), ("ac", 0.0), ("d", 0.0), ("ab", 1.0)):
        rmcts.backed_up(root, list(words), reward, attempt([0, 3], reward))
    a, d = root.branches["a"], root.branches["d"]
    assert (root.visits, root.value, a.visits) == (4, 0.5, 3) and a.value == pytest.approx(2 / 3) and d.value == 0
    assert a.branches["b"].value == 1 and a.branches["c"].value == 0
    # Q + c P sqrt(N) / (1 + n), P = 1/2, N = 4: a: 2/3 + c/4, d: 0 + c/2
    assert rmcts.best(root, 1.0) == "a" and rmcts.best(root, 3.0) == "d"
    # a: |2/3 - 1/2| = 1/6, then c: |0 - 2/3|
    assert rmcts.most_wrong(root, ["a", "c"]) == 1 and rmcts.most_wrong(root, ["d"]) == 0


def test_rmcts_forks_where_the_tree_says_and_remembers_one_turn_of_each_problem():
    world, ledger = toy.dialogues(), Ledger()
    play = Attempts(sample, world, PACE, Wave(1, lambda place: None), PLACE)
    made = asyncio.run(rmcts.schedule(world.problems[0], range(16), play, ledger))
    assert [r.attempt for r in made] == list(range(16)) and all(r.mark is not None for r in made)
    forked = [r for r in made if r.parent]
    assert forked, "the tree was deep enough to go on inside it"
    for r in forked:
        other, at = r.parent
        assert np.array_equal(r.segments[-1].tokens[:at], made[other].segments[-1].tokens[:at])
    replayed = sum(len(set(r.segments[-1].cut(r.parent[1]).turn.tolist()) - {-1}) for r in forked)
    new = sum(len(r.turns) for r in made) - replayed
    assert world.meter.of().env_steps == new and world.meter.of().rollouts == 16
    (memory,) = ledger.kept[rmcts.MEMORY]
    assert memory.rollouts[0].notes["worth"] <= 1
    later = Attempts(sample, world, PACE, Wave(1, lambda place: None), Place(0, 1, 0))
    asyncio.run(rmcts.schedule(world.problems[0], range(4), later, ledger))
    assert [g.place.wave for g in ledger.kept[rmcts.MEMORY]] == [1], "one memory of a problem: the latest"


# refusals -------------------------------------------------------------------------------------------------------------


def test_what_they_need_is_said():
    usual = {"mean": 0.4, "histogram": [1, 5, 4], "columns": []}
    talk = {**usual, "dialogues": {"turns": {"mean": 5.0}}}
    for name in OURS:
        state, why = methods.needs(name, usual)
        if name not in ("guig1", "guirc", "timemaster"):
            assert state == "fails" and "one question and one answer" in why
    assert methods.needs("bpp", talk)[0] == "holds"
    assert methods.needs("guig1", usual) == ("fails", "problems have no `box`: without one it is drgrpo")
    assert [methods.needs("guirc", {**usual, "columns": c})[0] for c in ([], ["box"])] == ["fails", "holds"]
    assert methods.needs("vragrl", talk)[0] == "fails"
    assert methods.needs("vragrl", {**talk, "columns": ["gold"]})[0] == "holds"
    assert gigpo.needs is methods.load("tti").needs
