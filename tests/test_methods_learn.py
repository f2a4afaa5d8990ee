"""Every method learns; and where they must agree, they take the same step."""

import math
from dataclasses import replace

import pytest
import torch

from in_turn import in_their_turn
from isocost import methods
from isocost.credit import credited
from isocost.ledger import Ledger
from isocost.methods import metartl
from isocost.recipe import tune
from isocost.worlds import toy
from toy import run

# B, n and rollouts in all. BRPO compares traces of one problem, and eight rollouts are one trace with its answers;
# ETTRL, RC and RLAD need twice as many rollouts as the others.
# LOOP makes sixteen small steps of every wave, within a narrow clip. Sol-RL trains on one in four.
SIZES = {"brpo": (4, 36, 2880), "ettrl": (10, 8, 800), "rc": (10, 8, 800), "loop": (10, 8, 1600),
         "rlad": (10, 16, 1600), "solrl": (10, 8, 3200)}
SETTINGS = {        # words that this world can spell
    "agentrlvr": {"schedule.words": "{problem}{hint}!"}, "rlad": {"play.propose": "!", "play.use": ""},
    "totrl": {"guide.ask": "", "guide.empty": ""},
}
TURNS = 2       # of a dialogue, for methods that need turns: its first answer has to become right


@pytest.mark.parametrize("name", in_their_turn(methods.names()))
def test_learns(name, unchecked_shapes):
    groups, rollouts, budget = SIZES.get(name, (10, 8, 400))
    recipe = methods.load(name).recipe(groups=groups, rollouts=rollouts)
    world = toy.world()
    if toy.world_of(recipe).env is toy.Guess:
        world.env, recipe = toy.Guess, tune(recipe, "pace.max_turns", TURNS)
    for path, value in {"pace.lr": 0.3, "pace.warmup": 0, **SETTINGS.get(name, {})}.items():
        recipe = tune(recipe, path, value)
    before = sum(world.exact(world.problems, recipe.pace(Ledger()).sampling)) / 10
    run(recipe, world, budget)
    after = sum(world.exact(world.problems, recipe.pace(Ledger()).sampling)) / 10
    assert after > before + 0.3


def test_on_policy_every_ratio_loss_is_the_same_step():
    def weights_after(name):
        recipe = methods.load("grpo").recipe(loss=methods.load(name).recipe().loss, groups=8)
        world = toy.world()
        run(tune(recipe, "pace.lr", 0.1), world, 64)
        return world.learner.weights()

    grpo = weights_after("grpo")
    for name in ("dapo", "gspo", "cispo", "reinforce", "isohard"):
        for key, value in weights_after(name).items():
            assert value.allclose(grpo[key], atol=1e-6), name


# Meta-RTL -----------------------------------------------------------------------------------------------------------

def sourced(world, names):
    """The toy world, whose problems are of these sources in turn."""
    world.problems = [replace(p, meta={**p.meta, "source": names[i % len(names)]})
                      for i, p in enumerate(world.problems)]
    return world


def metartl_recipe(**changes):
    return tune(tune(methods.recipe("metartl", groups=9, rollouts=8, **changes), "pace.lr", 0.1), "pace.warmup", 0)


def test_metartl_is_the_weighted_mean_of_what_each_source_learns_alone():
    recipe, world, ledger = metartl_recipe(), sourced(toy.world(), "abt"), Ledger()
    ledger.steps.append({"phi/a": math.log(3.0), "phi/b": 0.0})
    _, steps = run(recipe, sourced(toy.world(), "abt"), 72)
    batch, start = steps[0].batch, world.learner.state()
    assert {g.problem.meta["source"] for g in batch.groups} == set("abt")
    told = metartl.improve(batch, recipe, world, ledger)
    whole = {k: v.clone() for k, v in world.learner.weights().items()}
    alone, gains = [], []
    for name in "ab":
        world.learner.restore(start)
        world.learner.forget()
        rows = [i for i, k in enumerate(batch.rollout.tolist()) if batch.groups[k // 8].problem.meta["source"] == name]
        part = batch.rows(torch.tensor(rows))
        world.learner.update(part.but(weight=recipe.weight(part)), recipe.loss, lr=0.1)
        alone.append({k: v.clone() for k, v in world.learner.weights().items()})
        goal = torch.tensor([i for i, k in enumerate(batch.rollout.tolist())
                             if batch.groups[k // 8].problem.meta["source"] == "t"])
        goal = batch.rows(goal)
        ratio = (world.learner.score(goal).logp - goal.logp).exp()
        kept = torch.minimum(ratio * goal.advantage, ratio.clamp(0.8, 1.2) * goal.advantage)
        gains.append(float(((kept - goal.advantage) * recipe.weight(goal))[goal.mask].sum()))
    for k, v in whole.items():
        torch.testing.assert_close(v, 0.75 * alone[0][k] + 0.25 * alone[1][k])
        assert not torch.equal(alone[0][k], alone[1][k])
    assert [told["gain/a"], told["gain/b"]] == pytest.approx(gains, abs=1e-6)
    assert {k: told[f"phi/{k}"] for k in "ab"} == metartl.moved(
        {"a": math.log(3.0), "b": 0.0}, {"a": told["gain/a"], "b": told["gain/b"]}, 10.0)


def test_metartl_keeps_phi_from_step_to_step_and_is_its_parent_without_sources():
    ledger, _ = run(metartl_recipe(), sourced(toy.world(), "abt"), 72 * 6)
    before = dict.fromkeys("ab", 0.0)
    for line in ledger.steps:
        after = {k: line[f"phi/{k}"] for k in "ab"}
        assert after == metartl.moved(before, {k: line[f"gain/{k}"] for k in "ab"}, 10.0)
        before = after
    assert abs(before["a"]) > 0.01
    for sources, name in (("t", ""), ("ab", "nowhere")):
        one, other = sourced(toy.world(), sources), toy.world()
        alone, _ = run(tune(metartl_recipe(), "improve.target", name), one, 144)
        assert {line["sources"] for line in alone.steps} == {0} and {line["sources"] for line in ledger.steps} == {2}
        run(tune(tune(methods.recipe("grpo", groups=9, rollouts=8), "pace.lr", 0.1), "pace.warmup", 0), other, 144)
        assert all(torch.equal(v, other.learner.weights()[k]) for k, v in one.learner.weights().items())


def test_metartl_takes_the_last_source_of_all_problems_for_its_target():
    """A batch that has none of "t" is improved as it is: "b" is a source there as elsewhere."""
    world, recipe = sourced(toy.world(), "abt"), metartl_recipe()
    _, steps = run(recipe, sourced(toy.world(), "abt"), 72)
    some = [g for g in steps[0].batch.groups if g.problem.meta["source"] != "t"]
    told = metartl.improve(credited(some, recipe, world, Ledger()), recipe, world, Ledger())
    assert told["sources"] == 0 and not any(k.startswith("phi/") for k in told)


def test_metartl_averages_what_sources_tell_and_leaves_alone_what_none_has_changed():
    """Of a number that one source alone tells, the mean is that number; a third of 0.1 three times is not 0.1."""
    called = iter(({"loss": 0.0}, {"loss": 1.0, "once": 5.0}, {"loss": 2.0}))

    def inner(batch, recipe, world, ledger):
        return next(called)

    world, recipe = sourced(toy.world(), "abct"), metartl_recipe().but(groups=12)
    _, steps = run(recipe, sourced(toy.world(), "abct"), 96)
    before = world.learner.weights()
    before = {k: v.add_(0.1).clone() for k, v in before.items()}
    told = metartl.improve(steps[0].batch, recipe, world, Ledger(), inner=inner)
    assert told["loss"] == 1.0 and told["once"] == 5.0
    assert all(torch.equal(v, before[k]) for k, v in world.learner.weights().items())


def test_metartl_finds_the_source_that_is_the_target():
    """"b" has the target's problems; what "z" teaches is of others."""
    world = toy.world()
    own = [p for p in world.problems if int(p.id) < 3]
    world.problems = [*(replace(p, meta={**p.meta, "source": "zb"[p in own]}) for p in world.problems),
                      *(replace(p, id=f"{p.id}t", meta={**p.meta, "source": "target"}) for p in own)]
    recipe = tune(metartl_recipe(), "improve.target", "target").but(groups=12, rollouts=32)
    ledger, _ = run(recipe, world, 12 * 32 * 20, seed=1)
    last = {k: next(x[f"phi/{k}"] for x in reversed(ledger.steps) if f"phi/{k}" in x) for k in "bz"}
    assert last["b"] > 0.4 and last["z"] == pytest.approx(-last["b"]), last     # momentum would teach it to both
