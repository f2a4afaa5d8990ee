"""The pilot: the runs that are planned, and those that are added to them until a forecast is sealed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from isocost.errors import Interrupted, UserError
from isocost.laws.curves import curves
from isocost.planner.budget import Machine, measure_timing, worded
from isocost.planner.focus import focused
from isocost.planner.learning_rate import RateRule, fit_rate, probe_results, shift
from isocost.planner.pilot import PilotPlan
from isocost.runs import rules
from isocost.runs.files import ended, read_json
from isocost.runs.launch.site import HERE, Site
from isocost.runs.schema import ENDED
from isocost.runs.source import Can
from isocost.steps import results, spending
from isocost.steps.early import Stops
from isocost.steps.events import SILENT, Extended, Observer
from isocost.steps.folder import Home, opened, writes
from isocost.steps.jobs import run_phase, workers_for
from isocost.steps.limits import of_limit
from isocost.steps.results import Pilot
from isocost.steps.settle import settle
from isocost.words import counted, word


@writes()
def pilot(
    study: Path,
    *,
    workers: int | None = None,
    dry_run: bool = False,
    longer: Sequence[str] = (),
    seeds: Sequence[str] = (),
    turns: int | None = None,
    trainer: str | None = None,
    site: Site = HERE,
    worth: float | None = None,
    observer: Observer = SILENT,
) -> Pilot | results.PilotPlan:
    """Run what pilot.json plans: the learning-rate probe, then the grid of n and its edges at the rule that the probe
    supports. Finished runs are not repeated.

    `longer` ("4=24576", "4=4x", "all=4x") and `seeds` ("8=2", "all=2") add runs first, at the turn limit `turns` or at
    every limit that the pilot compares: what ran is not paid for again.
    `workers` runs go side by side, where `site` says; results do not depend on either. A dry run, and a plan without
    a pilot, return the plan with its cost, at what the runs so far have cost. A user's `trainer` is the one that the
    study began with; its runs are ended early once the rest of them is unlikely to gain `worth` in held-out reward.

    Raises:
        UserError: for a source whose runs cannot be launched, before there is a plan, and where the pilot leaves
            nothing for training.
        Interrupted: after a signal, with everything paid for on disk.
    """
    home = opened(study)
    home.source.require(Can.PILOT, study)
    settle(home, trainer, site)
    rules.refuse_other_runs(home.runs)
    stops = Stops(worth)
    stops.require(home)
    if turns is not None and not (longer or seeds):
        raise UserError(f"--turns {turns} says where --longer and --seeds add runs: give one of them")
    planned = PilotPlan.of(home.read("pilot.json", "plan"))
    if longer or seeds:
        there = measured(home, planned)
        planned = _extended(home, there, longer, seeds, turns, dry_run=dry_run)
        before, after = there.pilot_bill, planned.pilot_bill
        observer.on(Extended(after.rollouts - before.rollouts, after.seconds - before.seconds, before.rollouts,
                       planned.timing.source))
    elif dry_run:
        planned = measured(home, planned)
    if dry_run or planned.direct:
        return results.PilotPlan.beside(planned, folder=study)
    try:
        return _run(home, planned, workers, observer, site, stops)
    except Interrupted as e:    # the added runs are recorded: the command to continue must not add them again
        raise Interrupted(e.signum, f"isocost pilot {word(study)}" if longer or seeds else "") from None


def _run(
    home: Home, planned: PilotPlan, workers: int | None, observer: Observer, site: Site, stops: Stops
) -> Pilot:
    workers = workers_for(home, workers, observer, site)
    with home.phase("probe"):
        run_phase(home, planned, planned.of_purpose("probe"), planned.rate, "learning-rate probe", observer, workers,
                  site=site)
    if not home.has("rate.json"):
        seen = probe_results(curves(home.path)) if planned.of_purpose("probe") else []
        start = planned.rate
        home.write("rate.json", (fit_rate(seen, start.reference, start.exponent) if seen else start).data())
    rule = RateRule.of(home.read("rate.json", "pilot"))
    observer.on(rule)
    _require_affordable(home, planned)
    while True:
        with home.phase("pilot"):
            both = (*planned.of_purpose("pilot"), *planned.of_purpose("edge"))
            run_phase(home, planned, both, rule, "pilot", observer, workers, site=site, stops=stops)
        if not planned.reserve:
            break
        planned = focused(measured(home, planned), curves(home.path))
        write_pilot(home, planned, spending.machine_of(home))
    found = shift(of_limit(curves(home.path), replace(planned, rates=()).at(None)))
    home.write("shift.json", found.data())
    return Pilot(rule, found, home.path)


def refuse_sealed(home: Home) -> None:
    """Raises UserError once a forecast is sealed."""
    if home.has("forecast.json"):
        raise UserError(f"{home.path}/forecast.json is sealed, so its plan and law cannot change; to plan again, "
                        "start another study")


def write_pilot(home: Home, planned: PilotPlan, machine: Machine) -> None:
    """Write a pilot's plan and remove the prescription, which follows from it."""
    home.write("pilot.json", {**planned.data(), **spending.of_pilot(planned, machine)})
    (home.path / "plan.json").unlink(missing_ok=True)


def _extended(
    home: Home, planned: PilotPlan, longer: Sequence[str], seeds: Sequence[str], turns: int | None, *, dry_run: bool
) -> PilotPlan:
    """The pilot with runs added, written unless this is a dry run; its law and plan are removed.

    Every run must have ended: after a kill, the same options would otherwise add a second time.
    """
    refuse_sealed(home)
    if planned.direct:
        raise UserError(f"this plan has no pilot that runs could be added to: {planned.why}")
    under_way = [r.name for r in planned.runs if not ended(home.runs / r.name)]
    if under_way or planned.reserve:
        left = (f"{counted(len(under_way), 'run')} of the planned pilot still to end, such as {under_way[0]}"
                if under_way else "the pilot still has a reserve to spend after its grid")
        raise UserError(f"{left}: go on with `isocost pilot {word(home.path)}` first")
    ends = planned.lengths_at(turns) or planned.lengths
    made = planned.extended(_of_each("--longer", longer, ends, "4=24576, 4=4x or all=4x"),
                            _of_each("--seeds", seeds, dict.fromkeys(ends, 0), "8=2 or all=2"), turns)
    _require_affordable(home, made)
    if not dry_run:
        for name in ("law.json", "shift.json"):
            (home.path / name).unlink(missing_ok=True)
        write_pilot(home, made, spending.machine_of(home))
    return made


def _of_each(option: str, texts: Sequence[str], there: Mapping[int, int], example: str) -> dict[int, int]:
    """n -> amount of options N=AMOUNT: `all` is every n of the pilot, 4x four times its length."""
    out = {}
    for text in texts:
        found = re.fullmatch(r"([0-9]+|all)=([0-9]+)(x?)", text)
        if not found or (found[3] and not any(there.values())):
            raise UserError(f"cannot read {option} {text!r}: write n and how much, such as {option} {example}")
        for n in there if found[1] == "all" else (int(found[1]),):
            out[n] = int(found[2]) * (there.get(n, 1) if found[3] else 1)
    return out


def measured(home: Home, planned: PilotPlan) -> PilotPlan:
    """The plan with its bills at what the study's runs so far have cost; unchanged where no run has ended.

    With turn limits, prices are those of the runs at the largest; the others are relative to it.
    """
    planned = planned.rebased()
    last = planned.at(None)
    ends = [home.runs / r.name / "end.json" for r in last.runs]
    bills = [read_json(end, ENDED)["bill"].get("train", {}) for end in ends if end.exists()]
    if not bills:
        return planned
    seen = of_limit(curves(home.path), last)
    return planned.repriced(planned.prices.measured(bills), measure_timing(seen, planned.timing))


def _require_affordable(home: Home, planned: PilotPlan) -> None:
    """Raises UserError if the pilot, at its measured cost, leaves less than the least cost of training."""
    if planned.budget is None or not any((home.runs / r.name / "end.json").exists() for r in planned.runs):
        return
    now = measured(home, planned)
    pilot, least = now.pilot_bill, now.least_training(now.prices, now.timing)
    cost, more = (worded(planned.budget, b.of_unit(planned.budget.unit)) for b in (pilot, pilot + least))
    if (pilot + least).of_unit(planned.budget.unit) > planned.budget.amount:
        raise UserError(
            f"by what was measured so far the pilot takes {cost} in all, and with the least training after it {more}: "
            f"{planned.budget} is too little. Give `isocost plan {word(home.path)} --budget` more, or add or plan less"
        )
