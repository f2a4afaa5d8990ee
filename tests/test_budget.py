"""Budgets in what users have: hours of devices and money, turned into run time and back."""

import re
from dataclasses import replace

import numpy as np
import pytest

from isocost.errors import UserError
from isocost.laws.fit import fit_law
from isocost.planner.budget import WALL, Budget, Machine, Prices, Timing, Usage, in_every_unit
from isocost.planner.training.afford import plan_pilot
from isocost.planner.training.more import More, more
from truth import Design, plant

PILOT = Usage(1000, 4000.0, 8e9, 100.0, 10, 500.0, 3.0)
TRAINING = Usage(3000, 12000.0, 24e9, 260.0, 30, 500.0, 9.0)
ASSUMED = Timing(0.01, 0.0, 0.001, 1.0, "expected from the profile's sampling rate")
MEASURED = replace(ASSUMED, source="measured on 12 stretches of runs here")


@pytest.mark.parametrize(("text", "cost"), [
    ("500-steps", "costs 500 x n x B rollouts, with n rollouts of each of B problems an update: give these; "
                  "where n x B = 128, 64,000-rollouts"),
    ("1k-updates", "costs 1000 x n x B rollouts"), ("40 iterations", "costs 40 x n x B rollouts"),
    ("3epochs", "costs 3 x n x P rollouts, with n rollouts of each of P training problems: give these; "
                "where n x P = 8000, 24,000-rollouts"),
])
def test_a_length_of_a_run_is_no_budget_and_its_cost_is_said(text, cost):
    with pytest.raises(UserError, match=re.escape(f"{text!r} is the length of a run, which {cost}")):
        Budget.parse(text)
    assert Budget.parse("60k-env-steps").unit == "environment steps"


def test_w_run_hours_are_one_hour_on_the_wall_are_d_device_hours():
    machine = Machine(devices=4, side_by_side=2, price=2.5, currency="usd")
    assert machine.device_hours(2 * 3600) == 4
    assert machine.money(2 * 3600) == 10
    for text in ("1h", "4 device-hours", "10usd"):      # three ways to say one hour of this machine
        planned = machine.plannable(Budget.parse(text), text)
        assert (planned.amount, planned.unit, str(planned)) == (2 * 3600, "seconds", text)


def test_what_is_no_time_is_planned_as_it_is():
    budget = Budget(5000, "rollouts")
    assert Machine(8, 2).plannable(budget) is budget


def test_money_needs_a_price_in_its_own_currency():
    with pytest.raises(UserError, match="needs a --price"):
        Machine().plannable(Budget.parse("20usd"))
    with pytest.raises(UserError, match="one currency"):
        Machine(price=2.0, currency="eur").plannable(Budget.parse("20usd"))


@pytest.mark.parametrize(("text", "each"), [
    ("2.5usd/device-hour", 2.5), ("2.5 USD / gpu-hour", 2.5), ("20usd/hour", 5.0), ("20usd/h", 5.0),
])
def test_a_price_is_of_a_device_or_of_the_whole_machine(text, each):
    machine = Machine.priced(text, devices=4, side_by_side=1)
    assert (machine.price, machine.currency) == (each, "usd")


@pytest.mark.parametrize("text", ["2.5", "usd", "2.5usd", "2.5usd/day", "0usd/hour", "1.2.3usd/hour", "3apples/hour"])
def test_a_price_that_cannot_be_read_is_refused(text):
    with pytest.raises(UserError, match=r"2\.5usd/device-hour"):
        Machine.priced(text, 1, 1)


def table(budget, machine=Machine(4, 2, 2.5, "usd"), timing=MEASURED):
    return {r.unit: r for r in in_every_unit(PILOT, TRAINING, budget, machine, timing, "the profile")}


def test_a_budget_in_every_unit_is_the_plan_scaled_to_spend_all_of_it():
    """720 s of run time at 360 s planned: twice the plan, in every unit."""
    rows = table(Budget(720.0, "seconds", "6min"))
    assert [rows[k].budget for k in ("rollouts", "tokens", "flops", "seconds")] == [8000, 32000, 64e9, 720]
    assert rows[WALL].budget == 360 and rows[WALL].known == "asked" and rows[WALL].why == "6min"
    assert rows["device-hours"].budget == pytest.approx(0.4) and rows["usd"].budget == pytest.approx(1.0)
    assert rows["usd"].pilot == pytest.approx(100 / 3600 * 4 / 2 * 2.5)


@pytest.mark.parametrize(("asked", "unit"), [("8gpu-hours", "device-hours"), ("20usd", "usd"), ("2h", WALL)])
def test_the_row_that_was_asked_for_says_so(asked, unit):
    rows = table(Machine(4, 2, 2.5, "usd").plannable(Budget.parse(asked), asked))
    assert [r.unit for r in rows.values() if r.known == "asked"] == [unit]
    assert rows[unit].budget == pytest.approx({"8gpu-hours": 8, "20usd": 20, "2h": 7200}[asked])


def test_measured_and_assumed_values_are_distinguished():
    assert table(None)["seconds"].known == "measured" and table(None)["seconds"].budget is None
    assert table(None, timing=ASSUMED)["seconds"].known == "assumed"
    assert "usd" not in table(None, Machine()) and "device-hours" in table(None, Machine())


def test_tokens_per_rollout_come_from_the_runs_once_there_are_any():
    prices = Prices(6.0, 3.0, 100.0)
    bills = [{"rollouts": 10, "prefill": 70, "decode": 40}, {"rollouts": 30, "prefill": 210, "decode": 0}]
    told = prices.measured(bills)
    assert (told.prefill, told.decode, told.parameters) == (7.0, 1.0, 100.0)
    assert prices.measured([]) is prices


def test_a_budget_keeps_the_words_it_was_asked_in():
    budget = Machine(1, 2).plannable(Budget.parse("90s"), "90s")
    assert Budget.of(budget.data()) == budget and str(budget) == "90s" and budget.amount == 180


@pytest.fixture(scope="module")
def asked():
    """A law of a planted pilot that reached 8000 rollouts, and a pilot's plan of that size."""
    rng = np.random.default_rng(5)
    law = fit_law(plant("sigmoid", rng).pilot(Design(ns=(4, 8), points=6), rng), draws=100)
    known = {"rate": {"rollouts_per_second": 100.0}, "cost": {"rollouts": 10, "prefill": 60, "decode": 30},
             "samples": 16, "right": [4, 8, 12] * 10, "select": 50, "audit": 50, "exact": True}
    return law, plan_pilot(known, preset="quick", grid=(4, 8), parameters=1e5)


def test_more_compute_gains_less_each_time_and_costs_what_the_plan_would_cost(asked):
    law, planned = asked
    rows = more(law, planned, {8: 8192, 4: 8192}, MEASURED, Machine(4, 2, 2.5, "usd"), None)
    assert [m.times for m in rows] == [2, 4, 8] and all(m.caution == "" for m in rows)
    gains = np.diff([0.0, *(m.gain.value for m in rows)])
    assert gains[0] > gains[1] > gains[2] > 0
    assert rows[0].gain.value == pytest.approx(float(
        law.predict(rows[0].n, 16384)[0].value - law.predict(law.best(8192), 8192)[0].value), abs=1e-6)
    assert all(m.gain.low < m.gain.value < m.gain.high for m in rows)
    assert [m.cost for m in rows] == [2 * planned.train_seeds * 8192 * (t - 1) for t in (2, 4, 8)]
    assert [More.of(m.data()) for m in rows] == list(rows)
    apart = more(law, planned, {8: 8192, 4: 4096}, MEASURED, Machine(4, 2, 2.5, "usd"), None)
    assert [m.cost for m in apart] == [planned.train_seeds * (8192 + 4096) * (t - 1) for t in (2, 4, 8)]
    assert [m.gain for m in apart] == [m.gain for m in rows], "the gain is that of the prescribed arm's length"


def test_the_cost_of_more_is_in_the_unit_of_the_budget(asked):
    law, planned = asked
    machine = Machine(4, 2, 2.5, "usd")

    def cost(text):
        row = more(law, planned, {8: 8192, 4: 8192}, MEASURED, machine, machine.plannable(Budget.parse(text), text))[0]
        return row.unit, row.cost

    assert cost("1h")[0] == WALL and cost("20usd") == ("usd", pytest.approx(cost("8gpu-hours")[1] * 2.5))
    assert cost("8gpu-hours")[1] == pytest.approx(cost("1h")[1] / 3600 * 4)
    assert cost("1e15flop")[0] == "flops" and cost("90k-rollouts")[0] == "rollouts"


def test_beyond_a_decade_only_the_first_step_is_printed_with_a_caution(asked):
    law, planned = asked
    near, *far = more(law, planned, {8: 64_000, 4: 64_000}, MEASURED, Machine(), None)
    assert near.gain is not None and "16 times the pilot" in near.caution
    assert all(m.gain is None and m.cost is None for m in far)
