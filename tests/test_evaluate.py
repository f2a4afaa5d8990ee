"""An evaluation is in the bill and never in C; sampled ones share their random numbers."""

import asyncio

import pytest

from isocost import meter, methods
from isocost.evaluate import evaluate
from isocost.seams import Pace
from isocost.setting import Setting, open_setting

RECIPE = methods.load("grpo").recipe()
PACE = Pace(lr=0.0, max_tokens=4)


def measured(opened, **how):
    problems = opened.sides.train[:6]
    return asyncio.run(evaluate(RECIPE, opened.world, problems, PACE, samples=5, **how))


@pytest.fixture
def opened():
    return open_setting(Setting(data="sums:base=easy,count=60"))


@pytest.mark.parametrize(("exact", "spent"), [(True, "score"), (False, "decode")])
def test_an_evaluation_is_charged_to_its_own_account_and_never_to_training(opened, exact, spent):
    found = measured(opened, exact=exact)
    assert found.exact is exact and not any(opened.world.meter.of().counts().values())
    own = opened.world.meter.of(meter.EVALUATION)
    assert getattr(own, spent) > 0 and own.rollouts == (0 if exact else 30)
    assert opened.world.meter.total == own


def test_a_probe_is_charged_where_its_caller_says(opened):
    measured(opened, exact=False, account=meter.PROBE)
    assert opened.world.meter.of(meter.PROBE).rollouts == 30 and opened.world.meter.of(meter.EVALUATION).rollouts == 0


def test_one_seed_draws_the_same_and_another_does_not(opened):
    said = [[r.final for g in measured(opened, exact=False, seed=s).groups for r in g.rollouts] for s in (1, 1, 2)]
    assert said[0] == said[1] != said[2]
