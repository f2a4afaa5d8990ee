"""One run outside a study: what it would cost, and how it ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from isocost import methods
from isocost.can import Can
from isocost.disk.jsonfile import TAIL
from isocost.errors import Interrupted, UserError
from isocost.gather import finished
from isocost.ledger import Ledger
from isocost.planner.budget import Budget, Machine, Prices, Usage, expected_timing
from isocost.planner.evaluation import points
from isocost.planner.training.afford import EVALUATION_SHARE
from isocost.planner.training.learning_rate import RateRule, starting_rule
from isocost.planner.training.study_runs import warmup
from isocost.recipe import describe
from isocost.runs.arm import Arm
from isocost.runs.files import FATES, STOPPED, RunFiles, tail
from isocost.runs.job import Job, method_defaults, recipe_of
from isocost.runs.parted import Parting
from isocost.runs.speed import rates, told
from isocost.screen.display import Result, Row, Table, folder_field, given
from isocost.screen.words import counted, duration
from isocost.seams import SIZES, Recipe
from isocost.steps.events import SILENT, CostSample, Evaluated, Noted, Observer, Started, Warned
from isocost.steps.folder import bill_dry_run
from isocost.steps.training.pass_rates import pass_rates
from isocost.steps.training.stopping import GAIN, NO_LAW, least_update, refuse_least, stop_of
from isocost.types import Cost
from isocost.units import ENV_STEPS, of_run
from isocost.worlds.setting import Opened, Setting
from isocost.worlds.spec import AdapterOptions, spec_of

SHOWN = 8       # warnings of the reward's check that are listed


@dataclass(frozen=True)
class RunCost(Result):
    """What one run would cost (`bill`: rollouts, tokens, FLOP, seconds, MB), and what estimating it has sampled.
    `pricing` holds rollouts, tokens (prefill, decode) and seconds; it is written to dry-run.json in `folder`."""

    bill: Usage
    pricing: Mapping[str, Any]
    folder: Path | None = folder_field()

    def rows(self) -> list[Row]:
        """The bill, and what estimating it has sampled."""
        return [Row("", f"would cost {self.bill.text()}"),
                *CostSample.of(self.pricing, self.folder).rows()]

    def to_dict(self) -> dict[str, Any]:
        """The bill, and `pricing`."""
        return self.bill.data() | {"pricing": dict(self.pricing)}


@dataclass(frozen=True)
class RunEnd(Result):
    """How one run ended: what end.json says.

    reason: spent, stopped (--stop-at), starved, diverged or reward failed; detail: one sentence. steps: updates.
    seconds: of run time.
    fates: rollouts by what became of them. notes: cautions. verifier_failures: completions without a reward, by kind,
    with an example each. end: all of end.json. parting: of mark and truth, where the run has both.
    """

    reason: str
    detail: str
    steps: int
    seconds: float
    fates: Mapping[str, int]
    notes: tuple[str, ...]
    verifier_failures: Mapping[str, int]
    verifier_examples: Mapping[str, str]
    timing: Mapping[str, Any]
    end: Mapping[str, Any]
    folder: Path | None = folder_field()
    parting: Parting | None = None

    @classmethod
    def of(cls, end: Mapping[str, Any], folder: Path) -> RunEnd:
        """From end.json."""
        return cls(
            reason=end["reason"], detail=end["detail"], steps=end["steps"], seconds=end["seconds"], fates=end["fates"],
            notes=tuple(end["notes"]), verifier_failures=end["verifier_failures"],
            verifier_examples=end.get("verifier_examples", {}), timing=end.get("timing", {}), end=end, folder=folder,
            parting=Parting.of(RunFiles(folder)),
        )

    @property
    def exit_code(self) -> int:
        """0 where the budget or the amount of --stop-at is spent, 5 for a run that could not continue, or that has no
        update."""
        return 0 if self.reason in ("spent", STOPPED) and self.steps else 5

    def rows(self) -> list[Row | Table]:
        """Why it ended, what became of its rollouts, cautions, where its record is, and its speed."""
        fates = ", ".join(f"{k} {v:,}" for k in FATES if (v := self.fates.get(k)))
        speed, first = rates(self.timing), self.verifier_examples
        return given(
            Row(self.reason, self.detail),
            Row("", f"{counted(self.steps, 'step')} in {duration(self.seconds)}; rollouts: {fates}"),
            *([Row("truth", self.parting.said(), "flag" if self.parting.hacked else "")] if self.parting else ()),
            *(Row("", text, "flag") for text in self.notes),
            *(Row("", f"verifier failures, {k}: {n:,}" + (f"; the first: {first[k]}" if first.get(k) else ""), "flag")
              for k, n in self.verifier_failures.items()),
            *(Row(name, f"not identified: {NO_LAW}") for name in ("forecast there", f"the next +{GAIN:g}")
              if self.reason == STOPPED),
            Row("record", str(self.folder), "command"),
            Row("speed", told(speed) if speed else ""),
        )

    def to_dict(self) -> dict[str, Any]:
        """end.json."""
        return dict(self.end)


@dataclass(frozen=True)
class RunOptions:
    """The options of `isocost train METHOD`.

    budget: what training may spend, with a unit ("20k-rollouts", "30m"); price, devices: of the machine. seed: of all
    that is sampled. rollouts, groups: n and B, the method's own where they are None. lr: learning rate, else the
    model's own or assumed from its size, by n B. sets: "SEAM.NAME=VALUE". evaluations: points of compute with a
    held-out reward. save_every: updates between checkpoints beside those, of which the last `checkpoints` are kept.
    keep: groups of every update whose rollouts are kept as text, besides those that every run keeps. stop_at: an amount
    at which the run ends before its budget is spent ("40usd", "2h", "1e18flop").

    Raises UserError without a budget.
    """

    budget: str
    seed: int = 0
    rollouts: int | None = None
    groups: int | None = None
    lr: float | None = None
    sets: Sequence[str] = ()
    evaluations: int = 8
    save_every: int = 0
    checkpoints: int = 2
    keep: int = 0
    price: str | None = None
    devices: int | None = None
    stop_at: str | None = None

    def __post_init__(self) -> None:
        if self.budget is None:
            raise UserError("a run needs a --budget with a unit, such as 20k-rollouts, 2M-tokens, 1e15flop or 30m")

    @property
    def spend(self) -> Budget:
        """The budget in a unit that runs count. Raises UserError for a text that is none."""
        return self._machine("").plannable(Budget.parse(self.budget), self.budget)

    def _machine(self, model: str) -> Machine:
        """The machine that is paid for, or the service."""
        return Machine.priced(self.price, self.devices or 1, 1, model)

    def job(self, method: str, setting: Setting, name: str | None) -> Job:
        """The run of a METHOD or METHOD@SETTINGS. Raises UserError for what does not fit it."""
        written, (method, settings) = method, methods.parted(method)
        chosen = {**settings_of(settings.split(",") if settings else (), written), **settings_of(self.sets)}
        sizes: dict[str, str] = {k: chosen.pop(k) for k in ("rollouts", "groups") if k in chosen}
        if twice := [k for k in sizes if getattr(self, k)]:
            raise UserError(f"{written}: {twice[0]} is given twice: leave it out here, or {OPTIONS[twice[0]]}")
        own, spend = methods.tuned(methods.recipe(method), sizes), self.spend
        n, B = self.rollouts or own.rollouts, self.groups or own.groups
        size = n * B
        steps = int(spend.amount // size) if spend.unit == "rollouts" else 0
        if spend.unit == "rollouts" and not steps:
            mine = self.rollouts and self.groups
            whose = "" if mine else f", {method}'s own sizes where you gave none: give a smaller -n or -B"
            raise UserError(f"a budget of {spend} does not pay for one update of n B = {n} x {B} = {size}{whose}")
        spec_of(setting.model).require(Can.LEARN)
        if spend.unit == ENV_STEPS and not setting.problems.env:
            raise UserError("a budget in env-steps needs an environment: name it with --env, or give it in rollouts, "
                            "tokens or time")
        lr = starting_rule_of(setting).at(size) if self.lr is None else self.lr
        job = Job(
            name=name or f"{Path(method).stem}-{self.seed}", setting=setting, method=method, seed=self.seed,
            budget={of_run(spend.unit): spend.amount}, arm=Arm(n=n, B=B, lr=lr, warmup=warmup(steps)), sets=chosen,
            save_every=self.save_every, checkpoints=self.checkpoints, keep=self.keep, export=True,
            points=_points(spend, size, self.evaluations),
            stop_at=stop_of(self.stop_at, self._machine(spec_of(setting.model).name)),
        )
        refuse_least(job, Cost(rollouts=size, env_steps=size))
        turns = recipe_of(job).pace(Ledger()).max_turns
        if size * turns > job.budget.get("env-steps", inf):
            raise UserError(f"a budget of {spend} does not pay for one update, which costs up to {size * turns:,} "
                            f"env-steps: n {n} x B {B} x {turns} turns; give more, or a smaller -n, -B or --max-turns")
        return job


def train_one(
    method: str, setting: Setting, *, out: Path | None = None, dry_run: bool = False, observer: Observer = SILENT,
    **options: Any,
) -> RunEnd | RunCost:
    """Train one method on one setting, in `out` (default runs/METHOD-SEED); a run that is there is continued.

    **options: fields of `RunOptions`. A dry run samples a few completions, writes what they cost to `out`/dry-run.json
    and returns the cost.

    Raises:
        UserError: for a method, a setting or a budget that cannot be used, before anything is trained.
        Interrupted: after a signal, with everything paid for on disk.
    """
    asked = RunOptions(**options)
    spend, job = asked.spend, asked.job(method, setting, out.name if out else None)
    recipe = recipe_of(job)
    folder = out or Path("runs") / job.name
    opened = None if (folder / "run.json").exists() else _opened(job, recipe)
    if opened is not None:
        try:
            refuse_least(job, least_update(job.arm["n"] * job.arm["B"], opened), opened.world.learner)
        except BaseException:
            opened.close()
            raise
    observer.on(Started(job))
    for text in opened.problems.report.warnings[:SHOWN] if opened else ():
        observer.on(Warned(text))
    if differs := method_defaults(job.method, {**job.arm.only("n", "B"), **describe(recipe.pace)}):
        observer.on(Noted(differs))
    if warning := _evaluating(job, spend, opened):
        observer.on(Warned(warning))
    if dry_run:
        return _cost(job, asked, opened, folder, observer)
    return _go(job, folder, opened, observer)


def _cost(job: Job, asked: RunOptions, opened: Opened | None, folder: Path, observer: Observer) -> RunCost:
    """What a run would cost. What that sampled is recorded even if the budget pays for no update."""
    known = finished(pass_rates(opened or job.setting, problems=2, method=job.method, bounded=False))
    bill_dry_run(folder, known["cost"])
    try:
        return RunCost(expected_bill(job, asked.spend, asked.evaluations, known), known["cost"], folder)
    except UserError:
        observer.on(CostSample.of(known["cost"], folder))
        raise


def _evaluating(job: Job, spend: Budget, opened: Opened | None) -> str:
    """A warning if a run's evaluations cost more than a quarter of its training; empty where that is not known."""
    if opened is None or opened.world.exact is not None or spend.unit != "rollouts":
        return ""
    problems, samples, many = len(opened.sides.held_out), job.setting.evaluation.samples, 1 + len(job.points)
    sampled = many * problems * samples
    if sampled <= EVALUATION_SHARE * spend.amount:
        return ""
    return (f"{counted(many, 'evaluation')} of {problems} held-out problems x {counted(samples, 'sample')} cost "
            f"{sampled:,} rollouts, {sampled / spend.amount:.0%} of training: --samples, --evaluations or --held-out "
            "makes them fewer")


def expected_bill(job: Job, spend: Budget, evaluations: int, known: Mapping[str, Any]) -> Usage:
    """What a run will cost here, from the length and speed of a few sampled completions. Raises UserError if the budget
    pays for no update."""
    held_out = known["select"] + known["audit"]
    timing = expected_timing(known, held_out, None if known["exact"] else job.setting.evaluation.samples)
    n, B = job.arm["n"], job.arm["B"]
    prices, size = Prices.of_profile(known), n * B
    each = prices.bill([(n, B, size, 0)], timing).of_unit(spend.unit)
    evaluated = prices.bill([(n, B, 0, 2 + evaluations)], timing).of_unit(spend.unit)
    updates = max(0, int((spend.amount - evaluated) // each))
    if not updates:
        beside = f" beside evaluations of {evaluated:.3g}" if evaluated else ""
        raise UserError(f"a budget of {spend} does not pay for one update of {size:,} rollouts, which takes {each:.3g}"
                        f"{beside}")
    return prices.bill([(n, B, size * updates, 2 + evaluations)], timing)


def starting_rule_of(setting: Setting) -> RateRule:
    """The learning rates of a run outside a study: the model's own, else by its size. A model here is loaded."""
    spec = spec_of(setting.model)
    if not spec.can(Can.SIZE):
        return starting_rule(None, adapter=True)
    parameters, own = spec.of.sized(spec)
    adapter = isinstance(setting.world, AdapterOptions) and setting.world.lora is not None
    return starting_rule(parameters, own=own, adapter=adapter)


OPTIONS = {
    "rollouts": "--rollouts",
    "groups": "--groups",
    "pace.lr": "--lr",
    "pace.max_tokens": "--max-tokens",
    "pace.temperature": "--temperature",
    "pace.top_p": "--top-p",
    "pace.top_k": "--top-k",
}  # settings with an option of their own: the rate, evaluation points, profile and evaluations depend on them


def settings_of(pairs: Sequence[str], arm: str = "") -> Mapping[str, str]:
    """`SEAM.NAME=VALUE` from --set, or of an `arm` of a comparison, by name. An arm may have sizes of its own. Raises
    UserError without a value, and for what has an option of its own."""
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
    """Evaluation points in rollouts, log-spaced; doubling from the first update if the budget is in another unit."""
    if spend.unit != "rollouts":
        return tuple(float(size * 2**k) for k in range(24))[:: max(1, 24 // max(evaluations, 1))]
    every = points(int(spend.amount // size) * size, size, 2)
    keep = np.unique(np.linspace(0, len(every) - 1, min(evaluations, len(every))).round().astype(int))
    return tuple(float(every[i]) for i in keep)


def _opened(job: Job, recipe: Recipe) -> Opened:
    """A run's setting, opened: every problem's own answer is checked and two steps of the recipe are tried first.
    Raises UserError for a mistake in either, before anything is paid for or written."""
    from isocost.contract.check import tried
    from isocost.worlds.setting import open_setting

    opened = open_setting(job.setting, reference=bool(recipe.enrich), check=True)
    try:
        tried(job.method, recipe, sets=job.sets, like=opened.sides.train)
    except BaseException:
        opened.close()
        raise
    return opened


def _go(job: Job, out: Path, opened: Opened | None, observer: Observer) -> RunEnd:
    from isocost.runs.run import run

    def on_step(line: Mapping[str, Any]) -> None:
        if "eval/select" in line:
            clock = tail(out / "timing.jsonl", TAIL)
            speed = rates(clock[-1]) if clock and line["step"] else None
            observer.on(Evaluated(line["rollouts"], line["step"], line["eval/audit"], speed,
                                  line.get("eval/audit/mark")))

    end = finished(run(job, out, opened=opened, on_step=on_step))
    if end["reason"] == "interrupted":
        raise Interrupted(end["signal"])
    return RunEnd.of(end, out)
