"""One run outside a study, and one run's policy measured again."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from scipy.special import stdtrit

from isocost import methods
from isocost.cli import text as tell
from isocost.cli.live import TAIL
from isocost.errors import Interrupted, UserError
from isocost.jsonfile import page, write_json
from isocost.planner.afford import EVALUATION_SHARE
from isocost.planner.budget import Bill, Budget, Machine, Prices, expected_timing
from isocost.planner.evaluation import points
from isocost.planner.learning_rate import starting_rule
from isocost.planner.study_runs import warmup
from isocost.recipe import describe
from isocost.runs import files as records
from isocost.runs.files import fit, read_json, tail
from isocost.runs.run import EVALUATION_SEED, Job, its_own, recipe_of
from isocost.runs.schema import TRAINED
from isocost.runs.speed import rates, told
from isocost.seams import SIZES, Recipe
from isocost.steps.folder import bill_dry_run, writes
from isocost.terminal import echo
from isocost.types import Cost
from isocost.units import of_run
from isocost.words import counted
from isocost.worlds.setting import Opened, Setting

LEVEL = 0.9
SHOWN = 8       # warnings of the reward's check that are listed


def train_one(
    method: str,
    console: Console,
    *,
    setting: Setting,
    out: Path | None,
    budget: str | None,
    seed: int,
    rollouts: int | None,
    groups: int | None,
    lr: float | None,
    sets: tuple[str, ...],
    evaluations: int,
    save_every: int,
    dry_run: bool,
    quiet: bool,
    as_json: bool = False,
    price: str | None = None,
    devices: int | None = None,
) -> int:
    """Train one method on one setting, in `out`, with a live line per evaluation. Returns the command's exit code.

    `rollouts` and `groups` are the method's own where they are None.
    """
    if budget is None:
        raise UserError(
            "a run needs a --budget with a unit, such as 20k-rollouts, 2M-tokens, 1e15flop or 30m"
        )
    written, (method, settings) = method, methods.parted(method)
    chosen = {**settings_of(settings.split(",") if settings else (), written), **settings_of(sets)}
    sizes: dict[str, str] = {k: chosen.pop(k) for k in ("rollouts", "groups") if k in chosen}
    if twice := [k for k, given in (("rollouts", rollouts), ("groups", groups)) if given and k in sizes]:
        raise UserError(f"{written}: {twice[0]} is given twice: leave it out here, or {OPTIONS[twice[0]]}")
    own = methods.tuned(methods.recipe(method), sizes)
    n, B = rollouts or own.rollouts, groups or own.groups
    size = n * B
    machine = Machine.priced(price, devices or 1, 1)
    spend = machine.plannable(Budget.parse(budget), budget)
    if spend.unit == "rollouts" and spend.amount < size:
        whose = "" if rollouts and groups else f", {method}'s own sizes where you gave none: give a smaller -n or -B"
        raise UserError(f"a budget of {spend} does not pay for one update of n B = {n} x {B} = {size}{whose}")
    lr = lr if lr is not None else starting_rule(parameters_of(setting.model)).at(size)
    steps = int(spend.amount // size) if spend.unit == "rollouts" else 0
    job = Job(
        name=out.name if out else f"{Path(method).stem}-{seed}",
        setting=setting,
        method=method,
        seed=seed,
        budget={of_run(spend.unit): spend.amount},
        n=n,
        B=B,
        lr=lr,
        warmup=warmup(steps) if steps else 0,
        sets=chosen,
        save_every=save_every,
        export=True,
        points=_points(spend, size, evaluations),
    )
    recipe = recipe_of(job)  # a mistake in the recipe is told before anything is opened
    folder = out or Path("runs") / job.name
    opened = None if (folder / "run.json").exists() else _opened(job, recipe)
    tell.single(console, job)
    tell.flags(console, opened.problems.report.warnings[:SHOWN] if opened else ())
    if said := its_own(method, {"n": n, "B": B, **describe(recipe.pace)}):
        console.print(f"  {said}", soft_wrap=True)
    dear = _evaluating(job, spend, evaluations, opened)
    if dear:
        tell.flags(console, (dear,))
    if dry_run:
        from isocost.steps.profile import profile

        known = asyncio.run(profile(job.setting, problems=2, method=method, opened=opened, bounded=False))
        bill_dry_run(folder, known["cost"])  # paid for, whatever comes of it
        try:
            cost = expected_bill(job, spend, evaluations, known)
            tell.single_cost(console, cost)
        finally:
            tell.pricing(console, known["cost"], folder)
        if as_json:
            echo(page(cost.data() | {"pricing": known["cost"]}))
        return 0
    return _go(job, folder, opened, console, as_json)


def _evaluating(job: Job, spend: Budget, evaluations: int, opened: Opened | None) -> str:
    """What a run's evaluations cost, where that is more than a quarter of its training; empty where it is not known."""
    if opened is None or opened.world.exact is not None or spend.unit != "rollouts":
        return ""
    problems, samples, many = len(opened.sides.held_out), job.setting.samples, 1 + len(job.points)
    sampled = many * problems * samples
    if sampled <= EVALUATION_SHARE * spend.amount:
        return ""
    return (f"{counted(many, 'evaluation')} of {problems} held-out problems x {counted(samples, 'sample')} cost "
            f"{sampled:,} rollouts, {sampled / spend.amount:.0%} of training: --samples, --evaluations or --held-out "
            "makes them fewer")


def expected_bill(job: Job, spend: Budget, evaluations: int, known: Mapping[str, Any]) -> Bill:
    """What a run will cost here, from the length and speed of the few answers that are known.

    Raises UserError if the budget pays for no update.
    """
    held_out = known["select"] + known["audit"]
    timing = expected_timing(known, held_out, None if known["exact"] else job.setting.samples)
    prices, size = Prices.of(known), job.n * job.B
    each = prices.bill([(job.n, job.B, size, 0)], timing).of_unit(spend.unit)
    evaluated = prices.bill([(job.n, job.B, 0, 2 + evaluations)], timing).of_unit(spend.unit)
    updates = max(0, int((spend.amount - evaluated) // each))
    if not updates:
        beside = f" beside evaluations of {evaluated:.3g}" if evaluated else ""
        raise UserError(f"a budget of {spend} does not pay for one update of {size} rollouts, which takes {each:.3g}"
                        f"{beside}")
    return prices.bill([(job.n, job.B, size * updates, 2 + evaluations)], timing)


def parameters_of(model: str) -> int:
    """How many numbers a model learns. Loads it."""
    from isocost.local.weights import load

    return sum(w.numel() for w in load(model).weights.values())


OPTIONS = {
    "rollouts": "--rollouts",
    "groups": "--groups",
    "pace.lr": "--lr",
    "pace.max_tokens": "--max-tokens",
    "pace.temperature": "--temperature",
    "pace.top_p": "--top-p",
    "pace.top_k": "--top-k",
}  # settings that more than the recipe depends on: the rate, evaluation points, profile and evaluations


def settings_of(pairs: Sequence[str], arm: str = "") -> Mapping[str, str]:
    """`SEAM.NAME=VALUE` from --set, or of an `arm` of a comparison, by name. An arm may have sizes of its own.

    Raises UserError without a value, and for what has an option of its own.
    """
    where = f"arm {arm}:" if arm else "--set"
    lists = "; a list, or what else has commas in it, goes through --set, for all arms" if arm else ""
    for pair in pairs:
        path, equals, value = pair.partition("=")
        if not equals:
            raise UserError(f"{where} {pair!r} has no value; write SEAM.NAME=VALUE, such as loss.high=0.28{lists}")
        if path in OPTIONS and not (arm and path in SIZES):
            raise UserError(f"{where} {pair}: write {OPTIONS[path]} {value}, for more than the recipe depends on it")
    return dict(pair.split("=", 1) for pair in pairs)


def _points(spend: Budget, size: int, evaluations: int) -> tuple[float, ...]:
    """Evaluation points in rollouts, log-spaced; doubling from the first update where the budget is in another unit."""
    if spend.unit != "rollouts":
        return tuple(float(size * 2**k) for k in range(24))[:: max(1, 24 // max(evaluations, 1))]
    every = points(int(spend.amount // size) * size, size, 2)
    keep = np.unique(np.linspace(0, len(every) - 1, min(evaluations, len(every))).round().astype(int))
    return tuple(float(every[i]) for i in keep)


def _opened(job: Job, recipe: Recipe) -> Opened:
    """A run's setting, every problem's own answer checked and two steps of its recipe tried before it begins.

    Raises UserError for a mistake in either, which so costs nothing and leaves no folder behind.
    """
    from isocost.contract.check import tried
    from isocost.worlds.setting import open_setting

    opened = open_setting(job.setting, reference=bool(recipe.enrich), check=True)
    try:
        tried(job.method, recipe, sets=job.sets, like=opened.sides.train)
    except BaseException:
        opened.grader.close()
        raise
    return opened


def _go(job: Job, out: Path, opened: Opened | None, console: Console, as_json: bool) -> int:
    from isocost.runs.run import run

    def on_step(line: Mapping[str, Any]) -> None:
        if "eval/select" in line:
            clock = tail(out / "timing.jsonl", TAIL)
            speed = rates(clock[-1]) if clock and line["step"] else None
            console.print(
                f"  {line['rollouts']:>9} rollouts  step {line['step']:>6}  held-out reward, test split "
                f"{line['eval/audit']:.4f}" + (f"  {told(speed)}" if speed else ""),
                highlight=False,
                soft_wrap=True,
            )

    end = asyncio.run(run(job, out, opened=opened, on_step=on_step))
    if end["reason"] == "interrupted":
        raise Interrupted(end["signal"])
    tell.ended(console, out, end)
    if speed := rates(end.get("timing", {})):
        console.print(f"  speed: {told(speed)}", highlight=False)
    if as_json:
        echo(page(end))
    return 0 if end["reason"] == "spent" else 5


@writes()
def evaluate_run(
    run: Path, *, samples: int, data: str | None, base: bool, quiet: bool, console: Console
) -> int:
    """Pass@1 of a run's final policy on its held-out problems, or on others, with its interval over problems.

    With `base`, the policy it began from too, on the same problems with the same random numbers, and the difference
    paired by problem. Raises UserError if the run has no final policy.
    """
    record = read_json(run / "run.json")
    if "imported" in record:
        raise UserError(f"{run} was imported, and holds no policy that could be measured")
    if not (run / "final").is_dir():
        raise UserError(
            f"{run} has no final policy: it did not end, or is a pilot's (only trained runs are exported)"
        )
    fit(run / "run.json", record, TRAINED)
    setting = Setting.of(record["job"]["setting"])
    after, cost = _measured(setting, str(run / "final"), data, samples)
    found: dict[str, Any] = {
        "schema": records.SCHEMA,
        "run": str(run),
        "problems": len(after),
        "final": _mean(after),
    }
    if base:
        before, more = _measured(setting, setting.model, data, samples)
        cost += more
        found |= {"base": _mean(before), "difference": _mean(after - before)}
    found["cost"] = cost.data()   # asked for after the run ended, so in no other bill
    earlier = read_json(run / "eval.json") if (run / "eval.json").exists() else {}
    found["spent"] = (cost + Cost.of(earlier.get("spent") or earlier.get("cost") or {})).data()
    write_json(run / "eval.json", found)
    tell.evaluated(console, found)
    if quiet:
        echo(page(found))
    return 0


def _measured(setting: Setting, model: str, data: str | None, samples: int) -> tuple[np.ndarray, Cost]:
    """(P,) pass rates, and what measuring them cost."""
    from dataclasses import replace

    from isocost.runs.evaluate import evaluate
    from isocost.seams import Pace
    from isocost.tasks.load import Reads, load_problems
    from isocost.types import Problem
    from isocost.worlds.setting import open_setting

    opened = open_setting(replace(setting, model=model, evaluated=None))
    if data is None:
        problems: Sequence[Problem] = opened.sides.held_out
    else:
        problems = load_problems(
            data, verifier=setting.verifier, system=setting.system, check=True, meter=opened.world.meter,
            reads=lambda: Reads(opened.world.text, opened.world.extra["model"].config.max_len),
        ).problems
        opened.world.exact = opened.world.exact if all(p.meta.get("exact") for p in problems) else None
    pace = Pace(
        lr=0.0,
        max_tokens=setting.max_tokens,
        sampling=setting.sampling,
    )
    found = asyncio.run(
        evaluate(
            methods.recipe("reinforce"),
            opened.world,
            problems,
            pace,
            samples=samples,
            seed=EVALUATION_SEED,
        )
    )
    opened.grader.close()
    return found.right, opened.world.meter.total


def _mean(x: np.ndarray) -> dict[str, float]:
    """Mean over problems with its Student interval."""
    good = x[~np.isnan(x)]
    half = float(stdtrit(len(good) - 1, (1 + LEVEL) / 2) * good.std(ddof=1) / sqrt(len(good)))
    return {
        "value": float(good.mean()),
        "low": float(good.mean() - half),
        "high": float(good.mean() + half),
        "level": LEVEL,
        "problems": len(good),
    }
