"""Every method learns; and where they must agree, they take the same step."""

import pytest

from in_turn import in_their_turn
from isocost import methods
from isocost.ledger import Ledger
from isocost.recipe import tune
from isocost.worlds import toy
from toy import run

# B, n and rollouts in all. BRPO compares traces of one problem, and eight rollouts are one trace with its answers;
# ETTRL, RC and RLAD need twice as many rollouts as the others.
# LOOP makes sixteen small steps of every wave, within a narrow clip.
SIZES = {"brpo": (4, 36, 2880), "ettrl": (10, 8, 800), "rc": (10, 8, 800), "loop": (10, 8, 1600),
         "rlad": (10, 16, 1600)}
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
