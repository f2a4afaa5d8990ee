"""The pilot: the runs that are planned, and those that are added to them until a forecast is sealed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console

from isocost.cli import text as tell
from isocost.cli.live import duration
from isocost.errors import Interrupted, UserError
from isocost.jsonfile import page
from isocost.laws.curves import curves
from isocost.planner.budget import Machine, measure_timing, worded
from isocost.planner.learning_rate import RateRule, fit_rate, shift, trials
from isocost.planner.pilot import PilotPlan
from isocost.runs.files import read_json
from isocost.runs.launch.local import ended
from isocost.runs.schema import ENDED
from isocost.steps import imported, spending
from isocost.steps.folder import Home, opened, writes
from isocost.steps.jobs import run_phase, workers_for
from isocost.steps.settings import console_of
from isocost.terminal import echo
from isocost.words import counted, word


@writes()
def pilot(
    study: Path,
    *,
    quiet: bool,
    as_json: bool = False,
    workers: int | None = None,
    dry_run: bool = False,
    longer: Sequence[str] = (),
    seeds: Sequence[str] = (),
) -> int:
    """Run what pilot.json plans: the probe, then the grid and its edges at the rule the probe supports.

    `longer` (N=C) and `seeds` (N=K) add to it first: what the runs there have spent is not spent again.
    """
    home, console = imported.not_imported(opened(study)), console_of(quiet)
    planned = PilotPlan.of(home.read("pilot.json", "plan"))
    if longer or seeds:
        there = measured(home, planned)
        planned = _extended(home, there, longer, seeds, dry_run=dry_run)
        before, after = there.pilot_bill, planned.pilot_bill
        more = f"{after.rollouts - before.rollouts:,} rollouts and about {duration(after.seconds - before.seconds)}"
        console.print(f"  adds {more} of run time to a pilot of {before.rollouts:,} rollouts; time is "
                      f"{planned.timing.source}", highlight=False)
    elif dry_run:
        planned = measured(home, planned)
    if dry_run or planned.direct:
        tell.pilot_plan(console, planned)
        if as_json:
            echo(page(planned.data()))
        return 0
    try:
        return _run(home, planned, console, workers, as_json)
    except Interrupted as e:    # what was added is written down: to go on is not to add it again
        raise Interrupted(e.signum, f"isocost pilot {word(study)}" if longer or seeds else "") from None


def _run(home: Home, planned: PilotPlan, console: Console, workers: int | None, as_json: bool) -> int:
    workers = workers_for(home, workers, console)
    with home.phase("probe"):
        run_phase(
            home, planned, planned.of_purpose("probe"), planned.rate, "learning-rate probe", console, workers
        )
    if not home.has("rate.json"):
        seen = trials(curves(home.path)) if planned.of_purpose("probe") else []
        start = planned.rate
        home.write("rate.json", (fit_rate(seen, start.reference, start.exponent) if seen else start).data())
    rule = RateRule.of(home.read("rate.json", "pilot"))
    tell.rate(console, rule)
    _refuse_dear(home, planned)
    with home.phase("pilot"):
        both = (*planned.of_purpose("pilot"), *planned.of_purpose("edge"))
        run_phase(home, planned, both, rule, "pilot", console, workers)
    home.write("shift.json", shift(curves(home.path)).data())
    tell.shift(console, home.read("shift.json", "pilot"))
    tell.written(home, "rate.json", as_json)
    return 0


def refuse_sealed(home: Home) -> None:
    """Raises UserError once a forecast is sealed."""
    if home.has("forecast.json"):
        raise UserError(f"{home.path}/forecast.json is sealed: what it was made from stays as it is; begin another "
                        "study to plan otherwise")


def write_pilot(home: Home, planned: PilotPlan, machine: Machine) -> None:
    """Write a pilot's plan; the prescription, which follows from it, is made again."""
    home.write("pilot.json", {**planned.data(), **spending.of_pilot(planned, machine)})
    (home.path / "plan.json").unlink(missing_ok=True)


def _extended(
    home: Home, planned: PilotPlan, longer: Sequence[str], seeds: Sequence[str], *, dry_run: bool
) -> PilotPlan:
    """The pilot with runs added, written down unless this is a dry run; law and plan are then made again.

    To one whose runs have all ended: said again after a kill, the same words would add to what they have added.
    """
    refuse_sealed(home)
    if planned.direct:
        raise UserError(f"this plan has no pilot that runs could be added to: {planned.why}")
    under_way = [r.name for r in planned.runs if not ended(home.runs / r.name)]
    if under_way:
        raise UserError(f"{counted(len(under_way), 'run')} of the planned pilot still to end, such as "
                        f"{under_way[0]}: go on with `isocost pilot {word(home.path)}` first")
    ends = {r.n: r.C for r in planned.of_purpose("pilot")}
    made = planned.extended(_of_each("--longer", longer, ends, "4=24576, 4=4x or all=4x"),
                            _of_each("--seeds", seeds, dict.fromkeys(ends, 0), "8=2 or all=2"))
    _refuse_dear(home, made)
    if not dry_run:
        for name in ("law.json", "shift.json"):
            (home.path / name).unlink(missing_ok=True)
        write_pilot(home, made, spending.machine_of(home))
    return made


def _of_each(option: str, texts: Sequence[str], there: Mapping[int, int], example: str) -> dict[int, int]:
    """n -> amount of options N=AMOUNT: `all` is every n that is there, 4x four times what is there."""
    out = {}
    for text in texts:
        found = re.fullmatch(r"([0-9]+|all)=([0-9]+)(x?)", text)
        if not found or (found[3] and not any(there.values())):
            raise UserError(f"cannot read {option} {text!r}: write n and how much, such as {option} {example}")
        for n in there if found[1] == "all" else (int(found[1]),):
            out[n] = int(found[2]) * (there.get(n, 1) if found[3] else 1)
    return out


def measured(home: Home, planned: PilotPlan) -> PilotPlan:
    """The plan with its bills at what the study's runs so far cost; unchanged where no run has ended."""
    ends = [home.runs / r.name / "end.json" for r in planned.runs]
    bills = [read_json(end, ENDED)["bill"].get("train", {}) for end in ends if end.exists()]
    if not bills:
        return planned
    return planned.repriced(planned.prices.measured(bills), measure_timing(curves(home.path), planned.timing))


def _refuse_dear(home: Home, planned: PilotPlan) -> None:
    """Raises UserError where, by what was measured so far, the pilot does not leave the least that training takes."""
    if planned.budget is None or not any((home.runs / r.name / "end.json").exists() for r in planned.runs):
        return
    now = measured(home, planned)
    pilot, least = now.pilot_bill, now.least_training(now.prices, now.timing)
    cost, more = (worded(planned.budget, b.of_unit(planned.budget.unit)) for b in (pilot, pilot + least))
    if (pilot + least).of_unit(planned.budget.unit) > planned.budget.amount:
        raise UserError(
            f"by what was measured so far the pilot takes {cost} in all, and with the least training after it {more}: "
            f"{planned.budget} does not do. Give `isocost plan {word(home.path)} --budget` more, or add or plan less"
        )
