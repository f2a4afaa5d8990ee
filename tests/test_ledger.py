"""The ledger: what curricula read of earlier groups, and the line of a step."""

import pytest

from isocost.ledger import Ledger
from isocost.types import Cost
from toy import QUESTION, group


def test_a_problem_keeps_the_mean_rewards_of_its_latest_16_groups_and_the_sums_of_all():
    ledger = Ledger()
    for step in range(20):
        ledger.saw(group([step / 20, 0.0]))
        ledger.close(Cost(), 10, {})
    tally = ledger.of(QUESTION.id)
    assert tally.recent == pytest.approx([step / 40 for step in range(4, 20)])
    assert (tally.tries, tally.last) == (40, 19)
    assert tally.total == pytest.approx(sum(range(20)) / 20)
    assert tally.square == pytest.approx(sum(k * k for k in range(20)) / 400)


def test_a_step_ends_with_the_passes_over_the_pool_so_far_to_six_decimals():
    ledger = Ledger(drawn=2)
    assert ledger.close(Cost(rollouts=8), 3, {"loss": 1})["epoch"] == 0.666667
    assert ledger.close(Cost(rollouts=8), 0, {})["epoch"] == 2.0, "a pool without problems"
    assert [line["step"] for line in ledger.steps] == [0, 1] and ledger.spent.rollouts == 8
