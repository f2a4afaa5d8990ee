"""One table of units: every spelling, and what plans, runs and comparisons call each."""

from types import SimpleNamespace

import pytest

from isocost import feed, units
from isocost.errors import UserError
from isocost.planner.budget import Budget
from isocost.types import Cost

LEARNER = SimpleNamespace(parameters=100, learned=10)


def test_every_spelling_is_read_as_the_unit_and_size_of_the_table():
    for spelt, (unit, size) in units.SPELT.items():
        assert Budget.parse(f"2{spelt}") == Budget(2 * size, unit)


def test_what_a_budget_spells_is_read_back():
    for unit in units.ASKED:
        word, amount = units.asked(unit, 7200.0)
        assert Budget.parse(f"{amount:g}{word}") == Budget(7200.0, unit)


def test_a_run_can_be_stopped_by_every_unit_that_plans_count_in_and_by_no_other():
    for unit in units.UNITS:
        assert units.of_run(unit) in feed.UNITS and units.of_arm(unit) in feed.UNITS
    assert (units.of_run("seconds"), units.of_arm("seconds")) == ("seconds", "busy seconds")
    with pytest.raises(UserError, match="a run cannot be stopped by device-seconds"):
        units.of_run(units.DEVICE_SECONDS)
    with pytest.raises(UserError, match="a run cannot be stopped by device-seconds"):
        units.of_arm(units.DEVICE_SECONDS)


def test_every_unit_that_a_bill_counts_is_a_field_of_a_cost():
    cost = Cost(rollouts=2, prefill=30, decode=5, env_steps=7, updates=3, seconds=1.5)
    spent = {unit: units.spent(unit, cost, LEARNER, 60.0) for unit in units.STOPS}
    assert spent == {"rollouts": 2, "tokens": 5, "env-steps": 7, "updates": 3, "flop": cost.flops(100, 10),
                     "seconds": 60.0, "busy seconds": 1.5}
    assert spent == {unit: amount(cost, LEARNER, 60.0) for unit, amount in feed.UNITS.items()}


def test_words_for_people():
    assert [units.words(u) for u in ("flops", "seconds", "rollouts", "generated tokens")] == [
        "FLOP", "run time", "rollouts", "generated tokens"]
    assert [units.compared(u) for u in ("flops", "seconds", "rollouts", "FLOP read off")] == [
        "FLOP", "busy seconds", "rollouts", "FLOP read off"]
