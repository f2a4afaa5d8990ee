"""One table of units: every spelling, and what plans, runs and comparisons call each."""

import pytest

from isocost import feed, units
from isocost.errors import UserError
from isocost.planner.budget import Budget


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


def test_words_for_people():
    assert [units.words(u) for u in ("flops", "seconds", "rollouts", "generated tokens")] == [
        "FLOP", "run time", "rollouts", "generated tokens"]
    assert [units.compared(u) for u in ("flops", "seconds", "rollouts", "FLOP read off")] == [
        "FLOP", "busy seconds", "rollouts", "FLOP read off"]
