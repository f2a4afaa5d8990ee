"""Methods that guide, repair and imitate: numbers worked by hand from each paper's rule."""

import asyncio
import math
from collections import Counter
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from isocost import meter as meters
from isocost import methods
from isocost.batch import Forward
from isocost.errors import UserError
from isocost.feed import Feed
from isocost.laws.papers.verification import advise, advise_by, bilevel
from isocost.ledger import Ledger
from isocost.methods import adhint, drgrpo, fbc, grpo, int_, pope
from isocost.pack import pack
from isocost.parts import guide, improve, loss
from isocost.recipe import tune
from isocost.runs.evaluate import evaluate
from isocost.seams import Pace
from isocost.tasks.builtin import sums as family
from isocost.types import Cost, Group, Message, Place, Problem, Role, Said, Score, Segment, Stop
from isocost.worlds import toy
from toy import attempt, batch_of, flat_gradient, per_rollout, run
from toy import group as a_group

TWENTY = "abcdefghijklmnopqrst"


def assert_close(a, b, within=1e-7):
    assert a == pytest.approx(b, abs=within)


def solved(solution, answer="Z", name="p"):
    return Problem(name, (Message("user", "0?"),), answer, meta={"solution": solution})


def posed(problem, ledger, **settings):
    return asyncio.run(pope.guide(problem, None, ledger, **settings))


def world_of(*problems):
    world = toy.world()
    world.problems = list(problems)
    return world


def taken(recipe, world, ledger=None):
    """The groups of the next step."""
    async def take():
        async with Feed(recipe, world, ledger or Ledger(), {"rollouts": 10**6}) as feed:
            return await feed.take()

    return asyncio.run(take())


# POPE -----------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("size", "most", "levels", "lengths"), [
    (20, 0.25, 8, [1, 2, 3, 4, 5]), (64, 0.25, 4, [4, 8, 12, 16]), (100, 0.25, 3, [9, 17, 25]), (3, 0.25, 8, [1]),
    (2, 0.9, 8, [1]), (1, 0.5, 8, []), (0, 0.25, 8, []),
])
def test_pope_beginnings_are_spread_up_to_a_quarter_and_never_the_whole(size, most, levels, lengths):
    assert pope.beginnings(size, most, levels) == lengths


@pytest.mark.parametrize("least", [1, 3, 5])
def test_popes_beginning_is_the_shortest_that_helped_and_stays(least):
    """A world in which `least` letters are needed: each shorter beginning earned nothing in exactly 16 attempts."""
    ledger, problem, used = Ledger(), solved(TWENTY), []
    for _ in range(20):
        plain, guided = posed(problem, ledger)
        assert (plain, guided.prompt, guided.id) == (problem, problem.prompt, problem.id)
        assert guided.prefix == TWENTY[: len(guided.prefix)] and guided.variant == f"begun-{len(guided.prefix)}"
        used.append(len(guided.prefix))
        right = float(len(guided.prefix) >= least)
        ledger._tally(problem.id, "", [0.0] * 8)
        ledger._tally(problem.id, guided.variant, [right, *[0.0] * 7])
        ledger.step += 1
    assert used == sorted(used) and used[-1] == least
    assert [used.count(k) for k in range(1, least)] == [2] * (least - 1)
    assert all(ledger.of(problem.id, f"begun-{k}").tries == 16 for k in range(1, least))


def test_pope_draws_a_length_where_all_have_failed():
    ledger, problem = Ledger(seed=3), solved(TWENTY)
    for k in range(1, 6):
        ledger._tally(problem.id, f"begun-{k}", [0.0] * 16)
    lengths = []
    for ledger.drawn in range(400):
        lengths.append(len(posed(problem, ledger)[1].prefix))
        assert lengths[-1] == len(posed(problem, ledger)[1].prefix)      # of a resumed run as well
    assert all(60 <= lengths.count(k) <= 100 for k in range(1, 6))       # 80 each, and a spread of 8


def test_pope_never_says_the_answer():
    begun = [len(posed(solved("1+9=10;1+8+1=10;100", "100"), Ledger(), most=m)[1].prefix) for m in (0.25, 1.0)]
    assert begun == [1, 3]                                               # 18 of 19 by eights: 3, 5, 7, ...
    assert len(posed(solved("100", "100"), Ledger())) == 2               # "1" is not the answer
    assert len(posed(solved("x is 4 as 2 + 2 is 4 of course, so we are done", 4), Ledger())) == 2
    assert len(posed(solved("4 is it, as one sees at once", "4"), Ledger())) == 1
    assert len(posed(solved("a", "a"), Ledger())) == len(posed(solved(""), Ledger())) == 1
    assert [guide.says(2, x) for x in ("2", "so 2.", "2y", "12", "2.5", "= 2,", "")] == [
        True, True, False, False, False, True, False]


def test_pope_in_the_prompt_and_in_the_mouth_of_a_policy_that_is_asked_by_words():
    problem = replace(solved("one two three four five six seven eight"), prompt=(
        Message("system", "be brief"), Message("user", "Why?")))
    (_, mouth), (_, prompt) = posed(problem, Ledger(), levels=1), posed(problem, Ledger(), levels=1, told=True)
    assert mouth.prefix == "one two" and mouth.prompt == problem.prompt
    system, user = prompt.prompt
    assert prompt.prefix == "" and system.content == "be brief"
    assert user.content.startswith("Why?\n\nA correct solution begins like this:\n\none two\n\nStudy")
    assert "".join(guide.pieces_of(" a b\n\nc ")) == " a b\n\nc "


def test_pope_poses_as_many_guided_as_unguided_groups_and_compares_within_either():
    problems = [replace(solved("ab", "ab", str(k)), prompt=(Message("user", f"{k}?"),)) for k in range(6)]
    recipe = methods.load("pope").recipe(groups=8, rollouts=4)
    groups = taken(recipe, world_of(*problems))
    assert Counter(g.problem.variant for g in groups) == {"": 4, "begun-1": 4}
    assert Counter(g.problem.id for g in groups) == Counter({g.problem.id: 2 for g in groups})
    batch = pack(groups, 0)
    assert len(set(batch.group.tolist())) == 8
    hinted = torch.tensor([g.problem.variant != "" for g in groups for _ in g.rollouts])
    assert (batch.role[:, 2] == int(Role.HINT)).tolist() == hinted.tolist()
    assert not bool(batch.mask[batch.role == int(Role.HINT)].any()) and (batch.tokens[hinted, 2] == 0).all()
    assert all(r.final.startswith("a") for g in groups if g.problem.variant for r in g.rollouts)
    batch = batch.but(reward=torch.tensor([1.0, 0, 0, 0] + [1.0] * 4 + [0.0] * 24))
    credit = per_rollout(recipe.advantage(batch, Ledger()), batch)
    # the twin, all right, lends it no baseline
    assert_close(credit, [1.5, -0.5, -0.5, -0.5] + [0.0] * 28, 1e-5)


def test_popes_preconditions():
    needs = methods.load("pope").needs
    hard = {"solutions": 1.0, "histogram": [60, *[1] * 16]}
    assert needs(hard)[0] == "holds" and needs({**hard, "solutions": 0.0})[0] == "fails"
    assert needs({"solutions": 1.0, "histogram": [5, *[10] * 16]})[0] == "fails" and needs({})[0] == "not measured"


# ADHint ---------------------------------------------------------------------------------------------------------------

SENTENCE = "a b c d e f g h i j"      # ten pieces


@pytest.mark.parametrize(("rewards", "pieces"), [
    ([0, 0, 0, 0], 5), ([1, 0, 0, 0], 4), ([1, 1, 0, 0], 2), ([1, 1, 1, 0], 1), ([1, 1, 1, 1], 0), ([], 0), ([9, 9], 0),
])
def test_adhint_hints_in_proportion_to_difficulty(rewards, pieces):
    """Half of ten pieces times the share wrong: 5, 3.75, 2.5, 1.25, 0."""
    assert adhint.hint_for(solved(SENTENCE), rewards, 0.5) == SENTENCE[: max(2 * pieces - 1, 0)]


def test_adhint_keeps_the_answer_out_of_a_hint():
    assert adhint.hint_for(solved(SENTENCE, "c"), [0.0], 1.0) == "a b"
    assert adhint.hint_for(solved(SENTENCE, "a"), [0.0], 1.0) == ""
    assert adhint.hint_for(solved("abc", "abc"), [0.0], 1.0) == "ab"


def mixed(unhinted, hinted, slot=0):
    """A group of attempts with and without a hint "b", which say "a" and the end."""
    plain = [attempt([0, 3], r, k) for k, r in enumerate(unhinted)]
    start = Segment.empty().read([4, 15], Role.PROMPT).read([1], Role.TEACHER)
    said = Said(np.array([0, 3]), np.array([-1.0, -1.0], dtype=np.float32), np.array([0, 0]), Stop.DONE)
    given = [plain[0].but(segments=(start.wrote(said),), score=Score(float(r)), attempt=len(plain) + k, cohort="hinted")
             for k, r in enumerate(hinted)]
    return Group(plain[0].problem, (*plain, *given), Place(0, 0, slot))


def test_adhint_weighs_success_by_how_hard_it_was():
    """One of four right without a hint, three of four with: D is 3/4 and 1/4, their mean 1/2.

    GRPO gives ±√3 a half each: 3/2 and −1/2 in the first, 1/2 and −3/2 in the second. Success is times 3/2 and 1/2,
    failure times 1/2 and 3/2.
    """
    batch = pack([mixed([1, 0, 0, 0], [1, 1, 1, 0])], 0)
    credit = per_rollout(adhint.advantage(batch, Ledger()), batch)
    assert_close(credit, [9 / 4, -1 / 4, -1 / 4, -1 / 4, 1 / 4, 1 / 4, 1 / 4, -9 / 4], 1e-5)


@pytest.mark.parametrize("rewards", [[1, 0, 0, 0], [1, 1, 0, 1], [0.5, 0.2, 0, 1]])
def test_adhint_without_hints_is_grpo(rewards):
    batch = batch_of(rewards, [0, 1, 0, 0])
    torch.testing.assert_close(adhint.advantage(batch, Ledger()), grpo.advantage(batch, Ledger()))


def taught_batch(groups, recipe, world):
    """What the learner is given, and whether anything else is."""
    seen = []
    world.learner.update = lambda batch, loss, lr: seen.append(batch) or {"loss": 0.0}
    batch = pack(groups, 0)
    batch = batch.but(advantage=recipe.advantage(batch, Ledger()))
    recipe.improve(batch.but(weight=recipe.weight(batch)), recipe, world, Ledger())
    (given,) = seen
    return given


def test_adhint_learns_the_hint_where_it_led_to_success_and_never_unlearns_it():
    given = taught_batch([mixed([1, 0, 0, 0], [1, 1, 1, 0])], methods.load("adhint").recipe(), toy.world())
    hint = given.role == int(Role.TEACHER)
    assert hint.sum(1).tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert_close(given.advantage[hint].tolist(), [1 / 4, 1 / 4, 1 / 4, 0], 1e-5)
    assert given.mask[hint].tolist() == [True, True, True, False]
    assert_close(given.weight[hint].tolist(), [1 / 24, 1 / 24, 1 / 24, 0])           # of 8 rollouts, three tokens each
    assert_close(given.weight.sum(1).tolist(), [1 / 8] * 8)


def test_adhint_damps_a_hint_where_the_policy_is_not_as_decided_as_in_its_own_words():
    """Entropies 1/2, 1 and 3 of a hint's tokens, 1 and 1 of the policy's own, and none at all in another row."""
    role = torch.tensor([[0, 4, 4, 4, 1, 1], [0, 4, 1, 1, 1, 1]])
    entropy = torch.tensor([[0, 0.5, 1, 3, 1, 1], [0, 0, 0, 0, 0, 0]])
    batch = batch_of([1, 1], lengths=[[4, 4]]).but(role=role, mask=role > 0, advantage=2.0 * (role > 0))
    out = Forward(torch.zeros(2, 6), entropy)
    value, _ = adhint.loss(out, batch, inner=loss.clipped)
    assert_close(value.tolist()[0], [0, -1, -2, -2 / 3, -2, -2], 1e-5)
    assert_close(value.tolist()[1], [0, -2, -2, -2, -2, -2], 1e-5)


def test_adhint_hints_half_of_a_hard_problems_attempts_and_none_of_an_evaluation():
    world = world_of(replace(solved("bbca", "bbca"), prompt=(Message("user", "0?"),)))
    recipe = methods.load("adhint").recipe(groups=1, rollouts=6)
    (group,) = taken(recipe, world)
    assert [r.cohort for r in group.rollouts] == [""] * 3 + ["hinted"] * 3
    assert [r.attempt for r in group.rollouts] == list(range(6)) and world.meter.of().rollouts == 6
    assert all(r.final.startswith("bb") and r.mark is not None for r in group.rollouts[3:])
    assert world.meter.of().verify == 6                                       # nobody is marked twice
    found = asyncio.run(evaluate(recipe, world, world.problems, Pace(0.0, 8), samples=6, exact=False))
    assert not any((s.role == int(Role.TEACHER)).any() for r in found.groups[0].rollouts for s in r.segments)


@pytest.mark.parametrize("setting", [{"pace.top_k": 2}, {"max_age": 2}, {"improve.inner": None}])
def test_adhint_trains_on_hints_off_policy_and_where_sampling_was_truncated(setting):
    """The learner is asked for log-probs of hints that were drawn from nothing and sampled by nobody."""
    problems = [replace(solved(f"{x}c", f"{x}c", str(k)), prompt=(Message("user", f"{k}?"),))
                for k, x in enumerate("abab")]
    recipe = methods.load("adhint").recipe(groups=4, rollouts=8)
    for path, value in setting.items():
        if path == "improve.inner":
            value = partial(improve.policy, epochs=2)
        recipe = tune(recipe, path, value)
    _, steps = run(recipe, world_of(*problems), 32 * 12)
    assert sum(s.line["taught"] for s in steps) > 0
    assert all(math.isfinite(s.line["grad_norm"]) for s in steps)


# OTR ------------------------------------------------------------------------------------------------------------------

def one_token_each(problem, prefix):
    """Every token that the policy can say after a beginning of the solution, one attempt each."""
    start = toy_start(problem, prefix)
    made = []
    for token in range(toy.SAYS):
        said = Said(np.array([token]), np.zeros(1, dtype=np.float32), np.zeros(1, dtype=int), Stop.LENGTH)
        made.append(attempt([token], None, token).but(problem=problem, segments=(start.wrote(said),)))
    return Group(problem, tuple(made))


def toy_start(problem, prefix):
    text = toy.Letters()
    start = Segment.empty().read(text.prompt(problem.prompt), Role.PROMPT)
    return start.read(text.encode(prefix), Role.TEACHER) if prefix else start


@pytest.mark.parametrize(("prefix", "asked"), [("", 2), ("c", 0), ("ca", toy.END)])
@pytest.mark.parametrize("beta", [-0.1, -0.7, 0.0])
def test_otr_is_in_expectation_the_gradient_of_the_log_probability_times_the_probability(prefix, asked, beta):
    """Σ_a π(a) (−R_a ∇ log π(a)) = −(1 − β) π(z) ∇ log π(z), by listing all four tokens."""
    world, problem = toy.world(), solved("ca", "ca")
    recipe = tune(methods.load("otr").recipe(), "reward.wrong", beta)
    group = asyncio.run(recipe.reward(one_token_each(problem, prefix), world))
    assert [r.score.value for r in group.rollouts] == [1.0 if k == asked else beta for k in range(4)]
    batch = pack([group], 0)
    chance = world.learner.forward(batch).logp.sum(1).exp()
    batch = batch.but(advantage=recipe.advantage(batch, Ledger()).double())
    world.learner.gradient(batch.but(weight=chance.detach()[:, None] * batch.mask), recipe.loss)
    got = flat_gradient(world.learner)
    want = torch.autograd.grad(-(1 - beta) * chance[asked], list(world.learner.policy.parameters()))
    torch.testing.assert_close(got, torch.cat([g.flatten() for g in want]), atol=1e-8, rtol=1e-6)


def test_otr_writes_single_tokens_at_the_places_of_a_solution_and_an_evaluation_whole_answers():
    world = world_of(solved("ca", "ca"))
    recipe = methods.load("otr").recipe(groups=1, rollouts=14)
    (group,) = taken(recipe, world)
    texts = [r.segments[0] for r in group.rollouts]
    given = [(t.role == int(Role.TEACHER)).sum() for t in texts]
    assert Counter(given) == {given[0]: 6, given[4]: 4, given[8]: 4} and {given[0], given[4], given[8]} == {0, 1, 2}
    assert all(t.written == 1 for t in texts) and [r.attempt for r in group.rollouts] == list(range(14))
    spent = world.meter.of()
    assert (spent.rollouts, spent.decode, spent.verify) == (14, 14, 0)
    batch = pack([group], 0)
    assert_close(recipe.weight(batch)[batch.mask].tolist(), [1 / 14] * 14)
    found = asyncio.run(evaluate(recipe, world, world.problems, Pace(0.0, 8), samples=40, exact=False))
    assert max(found.groups[0].lengths) > 1


def test_otr_needs_something_to_imitate():
    with pytest.raises(UserError, match="problem p has no reference solution"):
        taken(methods.load("otr").recipe(groups=1), world_of(solved("")))
    needs = methods.load("otr").needs
    assert [needs(p)[0] for p in ({"solutions": 1.0}, {"solutions": 0.9}, {})] == ["holds", "fails", "not measured"]


# filtered behaviour cloning -------------------------------------------------------------------------------------------

def test_filtered_cloning_is_the_mean_log_likelihood_of_the_tokens_of_successes():
    world, recipe = toy.world(), methods.load("fbc").recipe()
    groups = [a_group([1, 0, 0.5, 0], [1, 3, 2, 4]), a_group([0, 0], [2, 2], slot=1), a_group([1], [4], slot=2)]
    kept = [g for x in groups if (g := recipe.select(x, Ledger())) is not None]
    assert [[r.attempt for r in g.rollouts] for g in kept] == [[0, 2], [0]]
    batch = pack(kept, 0)
    batch = batch.but(advantage=recipe.advantage(batch, Ledger()))
    world.learner.gradient(batch.but(weight=recipe.weight(batch)), recipe.loss)
    got = flat_gradient(world.learner)
    world.learner.adam.zero_grad()
    (-world.learner.forward(batch).logp.sum() / 7).backward()                # 1 + 2 + 4 tokens
    torch.testing.assert_close(got, flat_gradient(world.learner), atol=1e-8, rtol=1e-6)


def test_filtered_cloning_may_keep_the_shortest_of_a_task():
    group = a_group([1, 1, 0, 1, 1], [5, 2, 1, 4, 2])
    assert [r.attempt for r in fbc.select(group, Ledger(), shortest=0.5).rollouts] == [1, 4]
    assert [r.attempt for r in fbc.select(group, Ledger(), shortest=0.75).rollouts] == [1, 3, 4]
    assert fbc.select(group, Ledger(), over=1.0) is None


def test_filtered_cloning_remembers_right_attempts_and_trains_on_them_again():
    world, recipe = toy.world(), methods.load("fbc").recipe(groups=4, rollouts=4)
    ledger, steps = run(recipe, world, 16 * 6)
    assert steps[0].line["replayed"] == 0 < steps[-1].line["replayed"] <= 4
    assert world.meter.of().score == 0      # nothing reads what the attempts were sampled with
    kept = [r for g in ledger.kept["shelf"] for r in g.rollouts]
    assert kept and all(r.score.value > 0 and r.origin == "replay" for r in kept)
    assert sum(ledger.fates.values()) == world.meter.of().rollouts
    assert ledger.fates["trained"] == sum(len(g.rollouts) for s in steps for g in s.groups)


# InT ------------------------------------------------------------------------------------------------------------------

def failure(problem, number=0):
    return attempt([0], 0.0, number).but(problem=problem)


@pytest.mark.parametrize("work", [1, 2])
def test_int_finds_a_planted_first_error(work):
    """One character of a worked sum is another: the step it stands in is the first wrong one, by the family's check."""
    rng, found = np.random.default_rng(0), Counter()
    for _ in range(200):
        problem = family.problem(*rng.integers(10, 100, 2).tolist(), work)
        right = problem.meta["solution"]
        at = int(rng.integers(len(right)))
        if right[at] == ";":
            continue
        said = right[:at] + str((int(right[at]) + 1) % 10 if right[at].isdigit() else 7) + right[at + 1 :]
        first = family.check_steps(problem, said).index(False)
        steps = [s + ";" for s in said.split(";")[:-1]] + [said.rpartition(";")[2]]
        fix = asyncio.run(int_.by_reference(failure(problem), steps, ";", None, None, None))
        if first == len(steps) - 1:
            assert fix is None                                               # it would state the answer
        else:
            assert fix == (first, right.split(";")[first] + ";")
        found[first] += 1
    assert min(found.values()) > 20 and len(found) == 3
    stops = int_.by_reference(failure(solved("1+1=2;2", "2")), ["1+1=2;"], ";", None, None, None)
    assert asyncio.run(stops) is None                                        # nothing is wrong in what it says


class Scripted:
    """An engine that returns given answers, attempt by attempt, and records their prefixes."""

    version = 0

    def __init__(self, said, meter):
        self.said, self.meter, self.starts = said, meter, []

    async def generate(self, start, attempts, *, place, turn, max_tokens, stop=()):
        self.starts.append((start, list(attempts), turn, max_tokens))
        rows = [np.array(self.said[a, turn] if (a, turn) in self.said else self.said[a]) for a in attempts]
        self.meter.charge(Cost(decode=sum(map(len, rows))), started=len(attempts))
        return [Said(y, np.full(len(y), -1.0, np.float32), np.zeros(len(y), int), Stop.DONE) for y in rows]


def letters(said):
    return toy.Letters().encode(said)


def mending(*said, answer="bcaca"):
    """A world of one problem whose solution has the steps bc, ac, a; attempts say these in turn."""
    world = world_of(solved(answer, answer))
    world.engine = Scripted({k: letters(s) for k, s in enumerate(said)}, world.meter)
    recipe = tune(methods.load("int_").recipe(groups=1, rollouts=len(said)), "play.boundary", "c")
    return world, recipe


def played(world, recipe):
    posed = asyncio.run(recipe.guide(world.problems[0], world, Ledger()))
    assert [p.variant for p in posed] == ["repair"]
    pace = Pace(0.0, 8)
    rollouts = asyncio.run(recipe.play(posed[0], range(recipe.rollouts), world, pace, Place(0, 0, 0)))
    return asyncio.run(recipe.reward(Group(posed[0], tuple(rollouts)), world))


def test_int_replaces_the_first_wrong_step_and_the_rest_go_on_from_there():
    world, recipe = mending("bcaca.", "bcbca.", "a.", "c.", "a.")
    group = played(world, recipe)
    assert [(r.cohort, r.parent) for r in group.rollouts] == [("", None)] * 2 + [("repaired", (1, 4))] * 3
    assert group.rewards.tolist() == [1, 0, 1, 0, 1]
    (start, attempts, turn, room) = world.engine.starts[-1]
    assert (attempts, turn, room) == ([2, 3, 4], 0, 4)                       # 8 tokens, less 4 that are given
    assert toy.Letters().decode(start.tokens[2:].tolist()) == "bcac" and not start.own.any()
    assert start.role.tolist() == [0, 0, 4, 4, 4, 4] and world.meter.of().rollouts == world.meter.of().verify == 5
    assert [r.attempt for r in recipe.select(group, Ledger()).rollouts] == [2]


def test_int_imitates_what_stood_before_the_error_and_the_new_step_and_nothing_else():
    world, recipe = mending("bcbca.", "a.", "a.")
    group = recipe.select(played(world, recipe), Ledger())
    plain = a_group([1, 0], [1, 3], slot=1)
    given = taught_batch([group, plain], recipe, toy.world())
    assert given.mask.tolist() == [
        [False] * 2 + [True] * 4 + [False] * 2,                              # "bcac" of "bcac" + "a."
        [False] * 2 + [True] + [False] * 5, [False] * 2 + [True] * 3 + [False] * 3]
    assert_close(given.advantage[given.mask].tolist(), [1.0] * 4 + [0.5] + [-0.5] * 3)
    assert_close(given.weight[given.mask].tolist(), [1 / 8] * 8)
    world = toy.world()
    out = world.learner.forward(given)
    per_token, _ = recipe.loss(out, given)
    assert_close(float(per_token[0].sum().detach()), -float(out.logp[0, 2:6].sum().detach()))
    with_suffix = taught_batch([group], tune(recipe, "improve.own", True), toy.world())
    assert with_suffix.mask.tolist() == [[False] * 2 + [True] * 6]


@pytest.mark.parametrize(("said", "why"), [
    (("bcbca.", "b.", "c."), "no continuation is right"),
    (("bcacb.", "bcacb.", "bcacb."), "only the last step is wrong, and it would be the answer"),
    (("bc.", "bcac.", "bc."), "what was said is right, and stops too early"),
])
def test_int_keeps_a_repair_only_if_something_right_comes_of_it(said, why):
    world, recipe = mending(*said)
    group = played(world, recipe)
    assert recipe.select(group, Ledger()) is None, why
    assert len(group.rollouts) == 3 == world.meter.of().rollouts


def test_int_by_the_whole_solution_is_imitation_of_the_reference():
    world, recipe = mending("bcbca.", ".", ".")
    group = played(world, tune(recipe, "play.propose", "solution"))
    assert [r.final for r in group.rollouts] == ["bcbca", "bcaca", "bcaca"]
    kept = recipe.select(group, Ledger())
    given = taught_batch([kept], tune(recipe, "improve.own", True), toy.world())
    assert given.tokens[given.mask].tolist() == letters("bcaca.")
    with pytest.raises(UserError, match="expected one of reference, itself, solution"):
        played(world, tune(recipe, "play.propose", "nobody"))


class Plain:
    """Text of any characters."""

    ends = (0,)

    def prompt(self, messages):
        return self.encode("\n".join(m.content for m in messages))

    def encode(self, text):
        return [ord(c) for c in text]

    def decode(self, tokens):
        return "".join(chr(t) for t in tokens if t)


@pytest.mark.parametrize(("said", "fix"), [
    ("Step 1 is fine. <step>2</step> <instead> two is 2\n</instead>", (1, "two is 2;")),
    ("<step>3</step><instead>no</instead>", None), ("<step>0</step><instead>no</instead>", None),
    ("<step>1</step><instead>so it is 42</instead>", None), ("<step>1</step>", None), ("all is well", None),
])
def test_int_asks_the_policy_itself_and_reads_what_it_says(said, fix):
    problem = solved("one is 1;two is 2;42", "42")
    meter = toy.Meter()
    world = toy.World([problem], Scripted({(5, 1): Plain().encode(said)}, meter), None, Plain(), None, meter)
    failed = failure(problem, 5)
    with meters.begins(True):       # as the feed calls a play
        found = asyncio.run(
            int_.by_itself(failed, ["one is 1;", "two is 3;"], ";", world, Pace(0.0, 99), Place(0, 0, 0)))
    assert found == fix and meter.of().rollouts == 1
    ((start, _, _, _),) = world.engine.starts
    asked = Plain().decode(start.tokens.tolist())
    assert asked.startswith("0?\n") and "one is 1;two is 2;42" in asked and "1. one is 1;\n2. two is 3;" in asked


class Waits(Scripted):
    """Begins to write, and is never done; or, where a wave was halted, never begins."""

    def __init__(self, meter, halted):
        super().__init__({}, meter)
        self.halted = halted

    async def generate(self, start, attempts, **rest):
        if self.halted:
            return [Said(np.zeros(0, int), np.zeros(0, np.float32), np.zeros(0, int), Stop.CANCELLED)]
        try:
            return await asyncio.Event().wait()
        finally:
            self.meter.charge(Cost(prefill=len(start), decode=2), started=1)


@pytest.mark.parametrize("halted", [True, False])
def test_int_counts_a_proposal_as_a_rollout_if_it_was_begun_though_it_was_cancelled(halted):
    problem, meter = solved("one is 1;two is 2;42", "42"), toy.Meter()
    world = toy.World([problem], Waits(meter, halted), None, Plain(), None, meter)

    async def asked():
        with meters.tab() as around, meters.begins(True):       # as the feed calls a play
            task = asyncio.ensure_future(
                int_.by_itself(failure(problem, 5), ["one is 1;"], ";", world, Pace(0.0, 99), Place(0, 0, 0)))
            await asyncio.sleep(0)
            task.cancel()
            (found,) = await asyncio.gather(task, return_exceptions=True)
        return found, around.cost

    found, cost = asyncio.run(asked())
    assert found is None if halted else isinstance(found, asyncio.CancelledError)
    assert (cost.rollouts, cost.decode) == ((0, 0) if halted else (1, 2)) and meter.total == cost


def test_int_repairs_for_some_steps_and_then_does_rl_on_the_problems_as_they_are():
    recipe, problem, ledger = tune(methods.load("int_").recipe(), "guide.steps", 3), solved("a"), Ledger()
    variants = []
    for ledger.step in range(5):
        variants += [p.variant for p in asyncio.run(recipe.guide(problem, None, ledger))]
    assert variants == ["repair"] * 3 + [""] * 2
    batch = batch_of([1, 0, 0, 1], [0, 1, 0, 0])
    torch.testing.assert_close(recipe.advantage(batch, ledger), drgrpo.advantage(batch, ledger))
    plain = a_group([0, 0, 0])
    assert recipe.select(plain, ledger) is plain
    assert taught_batch([plain], recipe, toy.world()).mask.equal(pack([plain], 0).mask)


# verifier or clones ---------------------------------------------------------------------------------------------------

def counted(*right, **settings):
    return advise_by({"right": list(right), "samples": 16}, **settings)


@pytest.mark.parametrize(("right", "way"), [
    (4, "verifier"),      # σ² = 3/16 · 16/15 = 1/5: a right answer is 0.75 above the mean, and half of σ is 0.22
    (12, "verifier"),     # σ² is the same: 0.25 above
    (13, "clone"),        # σ² = 39/256 · 16/15 = 0.1625: 3/16 above, half of σ is 0.2016
    (15, "clone"), (16, "clone"), (0, "guide"),
])
def test_advice_by_how_many_of_sixteen_are_right(right, way):
    said = counted(*[right] * 50)
    assert said.way == way
    shares = [said.never, said.alike, said.settled, said.open]
    assert shares == [float(right == 0), float(right == 16), float(right in (13, 15)), float(right in (4, 12))]


def test_advice_by_how_many_traces_there_would_be():
    """Answers that hold the solution at token 10 or 12 of 40: σ = √(16/15) tokens, 1/√1500 of 40."""
    table = np.array([bilevel([10, 12] * 8, 40)] * 3)
    assert_close(1500**-0.5, (16 / 15) ** 0.5 / 40)
    assert [advise(table, 40, traces=n).way for n in (16, 1499, 1501)] == ["clone", "clone", "verifier"]
    assert advise(table, 40).way == "clone"                                  # 48 samples
    assert advise(np.array([bilevel([10] * 16, 40)] * 3), 40, traces=10**9).way == "clone"      # one style: σ = 0
    unlike = np.array([bilevel([2, 35, None, None] * 4, 40)] * 3)
    assert advise(unlike, 40, traces=16).way == "verifier"


def test_advice_is_decided_by_half_of_the_problems_and_by_enough_samples():
    assert counted(*[0] * 50, *[4] * 50).way == "verifier" and counted(*[0] * 51, *[4] * 49).way == "guide"
    assert counted(*[0] * 40, *[16] * 30, *[4] * 30).way == "verifier"
    mostly = counted(*[0] * 40, *[16] * 31, *[4] * 29)
    assert mostly.way == "clone" and (mostly.never, mostly.alike, mostly.open) == (0.4, 0.31, 0.29)
    few = advise_by({"right": [2, 2], "samples": 15})
    assert few.way == "cannot tell" and few.why.startswith("15 samples")
