"""A policy measured: that of a run again, on its held-out problems or on others, or any model on problems."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import stdtrit

from isocost import meter, methods, strategies
from isocost.can import Can
from isocost.contract.conflicts import refuse
from isocost.disk.jsonfile import fit, write_json
from isocost.errors import UserError
from isocost.gather import finished
from isocost.planner.token_price import TokenPrice
from isocost.runs import source
from isocost.runs.evaluate import EVALUATION_SEED, Evaluation, scores_of
from isocost.runs.files import COMPLETE, SCHEMA, read_json
from isocost.runs.parted import flawed
from isocost.runs.schema import TRAINED
from isocost.screen.display import Result, Row, Table, given
from isocost.screen.words import counted
from isocost.seams import Recipe
from isocost.stats.passk import pass_curve
from isocost.steps.events import SILENT, Observer, Tell, untold
from isocost.steps.folder import writes
from isocost.steps.look.strategy_bill import StrategyBill
from isocost.steps.training.pass_rates import OPENING, pass_row
from isocost.steps.training.served import spent as sampled
from isocost.strategies import Strategy
from isocost.types import Cost
from isocost.world import World
from isocost.worlds.http import RequestLimits
from isocost.worlds.setting import Setting

LEVEL = 0.9


@dataclass(frozen=True)
class PassRateMean:
    """A mean pass rate over `problems` problems with its Student interval; of a difference, paired by problem."""

    value: float
    low: float
    high: float
    level: float
    problems: int

    def row(self, name: str, sign: str = "") -> Row:
        """With its interval; `sign` is "+" for a difference."""
        bounds = f"[{self.low:{sign}.4f}, {self.high:{sign}.4f}]"
        over = f"({self.level:.0%} over {counted(self.problems, 'problem')})"
        return Row("", f"{name:<10} {self.value:{sign}.4f} {bounds} {over}")


@dataclass(frozen=True)
class EvaluationResult(Result):
    """A run's final policy, measured again on `problems` problems: pass@1, of the base too where it was requested.
    cost: rollouts, tokens and seconds of this measurement; spent: of all measurements of this run so far."""

    run: str
    problems: int
    final: PassRateMean
    cost: Mapping[str, Any]
    spent: Mapping[str, Any]
    base: PassRateMean | None = None
    difference: PassRateMean | None = None
    strategy: StrategyBill | None = None
    mark: PassRateMean | None = None
    flawed: float | None = None

    def rows(self) -> list[Row]:
        """Its pass@1, and that of the base and the difference where it was requested; what a strategy took."""
        bill = [*_mark_rows(self.mark, self.flawed), *(self.strategy.rows() if self.strategy else [])]
        if not (self.base and self.difference):
            return [self.final.row("final"), *bill]
        return [self.base.row("base"), self.final.row("final"), self.difference.row("difference", "+"), *bill]

    def to_dict(self) -> dict[str, Any]:
        """eval.json."""
        return _recorded(super().to_dict(), "base", "difference", "strategy", "mark", "flawed")


@dataclass(frozen=True)
class ModelEvaluation(Result):
    """A model measured on `problems` problems, `samples` completions each (0: pass@1 was computed exactly).

    right: pass@1 with its interval over problems; pass_at: pass@k per k, of rewards 0 and 1; unscored: completions
    without a reward. cost: rollouts, tokens and seconds; money: what the tokens cost at the price given; server: counts
    of requests to the model's server.
    """

    model: str
    data: str
    problems: int
    samples: int
    right: PassRateMean
    unscored: int
    cost: Mapping[str, Any]
    pass_at: Sequence[Mapping[str, Any]] = ()
    money: Mapping[str, Any] | None = None
    server: Mapping[str, Any] | None = None
    strategy: StrategyBill | None = None
    mark: PassRateMean | None = None
    flawed: float | None = None

    def rows(self) -> list[Row | Table]:
        """pass@1, its other pass@k, and what measuring took."""
        what = "answer" if self.strategy else "completion"
        how = f"{counted(self.samples, what)} each" if self.samples else "computed exactly"
        none = f"{counted(self.unscored, 'completion')} without a reward, in no mean" if self.unscored else ""
        return given(
            self.right.row("accuracy" if self.strategy else "pass@1"),
            *_mark_rows(self.mark, self.flawed),
            pass_row(() if self.strategy else self.pass_at),
            Row("", f"{self.model} on {self.data}: {counted(self.problems, 'problem')}, {how}"),
            Row("", none, "flag"),
            *(self.strategy.rows() if self.strategy else ()),
            *sampled(self.cost, self.money, self.server),
        )

    def to_dict(self) -> dict[str, Any]:
        return _recorded(super().to_dict(), "strategy", "mark", "flawed")


def _mark_rows(mark: PassRateMean | None, flawed: float | None) -> list[Row]:
    """What the verifier that trains says of the same completions, and how often it pays what the truth does not."""
    if mark is None:
        return []
    said = f"of the completions marked right, {flawed or 0:.1%} are wrong by the truth"
    return [mark.row("mark"), *([] if flawed is None else [Row("", said, "flag" if flawed else "")])]


def _beside(found: Evaluation) -> tuple[PassRateMean | None, float | None]:
    """The mean mark, and the share of those marked right that are wrong, of an evaluation by a truth."""
    every = [r for g in found.groups for r in g.rollouts if r.mark is not None and r.score is not None]
    if not every:
        return None, None
    marks, truths = [r.mark.value for r in every if r.mark], [r.score.value for r in every if r.score]
    return mean_over(found.marks), flawed(marks, truths)


def _recorded(data: dict[str, Any], *optional: str) -> dict[str, Any]:
    """The fields of a result, without the optional ones that it lacks."""
    return {"schema": SCHEMA} | {k: v for k, v in data.items() if v is not None or k not in optional}


def final_of(run: Path) -> Path:
    """The folder of a run's final policy. Raises UserError if it has none."""
    final = run / "final"
    if not final.is_dir():
        ended = (run / "end.json").is_file() and read_json(run / "end.json").get("reason") in COMPLETE
        job = read_json(run / "run.json").get("job") if ended else None
        if isinstance(job, Mapping) and job.get("export"):
            raise UserError(f"{run} has no final policy, because its model is not written as a Hugging "
                            "Face folder: read its evaluations in metrics.jsonl, of which --evaluations gives more")
        raise UserError(f"{run} has no final policy: it did not end, or is a pilot's (only trained runs are exported)")
    return final


@writes()
def evaluate(
    run: Path, *, samples: int = 16, data: str | None = None, base: bool = False, strategy: str | None = None,
    truth: str | None = None, observer: Observer = SILENT,
) -> EvaluationResult:
    """Pass@1 of a run's final policy on its held-out problems, or on `data`, with its interval over problems.

    `samples` completions per problem, where pass@1 cannot be computed exactly. With `base`, also of the policy that the
    run started from, on the same problems with the same random numbers, and the difference paired by problem. With a
    `strategy` (`isocost.strategies`) each completion is an answer by it. pass@1 is by the verifier `truth`, or that of
    the run; the mark of the verifier that trained is beside it. Writes eval.json.

    Raises UserError if the run has no final policy.
    """
    record = read_json(run / "run.json")
    source.of(record).require(Can.EVALUATE, run)
    final = final_of(run)
    fit(run / "run.json", record, TRAINED)
    setting = Setting.of(record["job"]["setting"])
    setting = setting if truth is None else setting.but(truth=truth)
    asked = None if strategy is None else strategies.parse(strategy)
    with observer.counting("eval") as tell:
        seen, cost, bill = _measured(setting, str(final), data, samples, asked, tell)
    after = seen.right
    _enough(after)
    first = difference = None
    if base:
        with observer.counting("eval of the base") as tell:
            started, more, _ = _measured(setting, setting.model, data, samples, asked, tell)
            before = started.right
        cost += more
        _enough(after - before)
        first, difference = mean_over(before), mean_over(after - before)
    earlier = read_json(run / "eval.json") if (run / "eval.json").exists() else {}
    spent = cost + Cost.of(earlier.get("spent") or earlier.get("cost") or {})     # after the end: in no other bill
    found = EvaluationResult(str(run), len(after), mean_over(after), cost.data(), spent.data(), first, difference, bill,
                             *_beside(seen))
    write_json(run / "eval.json", found.to_dict())
    return found


def evaluate_model(
    setting: Setting, *, samples: int = 16, strategy: str | None = None, price: str | None = None,
    limits: RequestLimits = RequestLimits(), observer: Observer = SILENT,
) -> ModelEvaluation:
    """Pass@1 of a setting's model on all of its problems, with its interval over problems; nothing is trained.

    `samples` completions per problem, where pass@1 cannot be computed exactly; with a `strategy`
    (`isocost.strategies`), so many answers by it. `price` is per token, and `limits` are of the requests to a model's
    server.

    Raises UserError for a model or problems that cannot be used, and where no completion has a reward.
    """
    from isocost.runs import evaluate as policies
    from isocost.worlds.setting import open_setting

    cost = None if price is None else TokenPrice.parse(price)
    asked = None if strategy is None else strategies.parse(strategy)
    with observer.counting("eval") as tell:
        tell(OPENING)
        opened = open_setting(setting, check=True, learn=False, whole=True, limits=limits)
        world, problems = opened.world, opened.problems.problems
        try:
            found = finished(policies.evaluate(
                _answering(asked, setting), world, problems, setting.measured, samples=samples, seed=EVALUATION_SEED,
                exact=asked is None, done=_done(tell, samples, len(problems)),
            ))
            server = world.about.server() if world.about.server else None
        finally:
            opened.close()
    _enough(found.right)
    total = world.meter.total
    return ModelEvaluation(
        setting.model, setting.problems.data, len(problems), 0 if found.exact else samples, mean_over(found.right),
        found.unscored, total.data(), _pass_at(found), None if cost is None else cost.of(total).data(), server,
        _bill(asked, found, world), *_beside(found),
    )


def _answering(strategy: Strategy | None, setting: Setting) -> Recipe:
    """What an evaluation plays: plain samples, or answers by a strategy. Raises UserError for one that cannot."""
    recipe = methods.recipe("reinforce")
    if strategy is None:
        return recipe
    if strategy.settings.get("n", 1) > 1 and setting.sampling.temperature == 0:
        raise UserError(f"{strategy} at temperature 0: all its samples are equal. Leave --temperature out")
    recipe = recipe.but(play=strategy.play)
    refuse(recipe, turns=setting.measured.max_turns)
    return recipe


def _bill(strategy: Strategy | None, found: Evaluation, world: World) -> StrategyBill | None:
    return None if strategy is None else StrategyBill.of(
        strategy, found.groups, world.meter.of(meter.EVALUATION), world.failures)


def _pass_at(found: Evaluation) -> list[dict[str, Any]]:
    """pass@k of the problems of which every completion has a reward; empty for graded or exact rewards."""
    scores = [own for g in found.groups if len(own := scores_of(g)) == len(g.rollouts)]
    table = np.array(scores)
    if not len(table) or not np.isin(table, (0.0, 1.0)).all():
        return []
    return [x.data() for x in pass_curve(table.sum(1).astype(int), table.shape[1])]


def _done(tell: Tell, samples: int, total: int) -> Callable[[int], None]:
    """What an evaluation calls with the number of problems that are done."""
    return lambda done: tell(f"problems x {counted(samples, 'completion')}", done, total)


def _measured(
    setting: Setting, model: str, data: str | None, samples: int, strategy: Strategy | None, tell: Tell = untold
) -> tuple[Evaluation, Cost, StrategyBill | None]:
    """Pass rates, and what measuring them cost."""
    from isocost.envs.opening import open_environment
    from isocost.runs import evaluate as policies
    from isocost.tasks.load import Reads, load_problems
    from isocost.types import Problem
    from isocost.worlds.setting import open_setting

    asked = setting.problems
    there = asked.env and open_environment(asked.env).problems is not None     # problems are an environment's
    if data is not None and there:
        setting = setting.but(env=data, data=data)
    tell(OPENING)
    opened = open_setting(setting.but(model=model, evaluated=None), whole=data is not None and bool(there))
    world = opened.world
    try:
        if data is None or there:
            problems: Sequence[Problem] = opened.sides.train if data else opened.sides.held_out
        else:
            problems = load_problems(
                data, verifier=asked.verifier, truth=asked.truth, system=asked.system, check=True, meter=world.meter,
                reads=lambda: Reads(world.text, world.about.model.config.max_len),
            ).problems
            world.exact = world.exact if all(p.meta.get("exact") for p in problems) else None
        found = finished(policies.evaluate(
            _answering(strategy, setting), world, problems, setting.measured, samples=samples, seed=EVALUATION_SEED,
            exact=strategy is None, done=_done(tell, samples, len(problems)),
        ))
    finally:
        opened.close()
    return found, world.meter.total, _bill(strategy, found, world)


def _enough(right: np.ndarray) -> None:
    """Raises UserError for pass rates (P,) of fewer than two problems with a reward: an interval needs two."""
    scored = int((~np.isnan(right)).sum())
    if scored < 2:
        raise UserError(f"{scored} of {counted(len(right), 'problem')} {'has' if scored == 1 else 'have'} a reward, "
                        "and an interval needs two: name more problems with --data, or a reward that marks them")


def mean_over(x: np.ndarray) -> PassRateMean:
    """Mean over problems, at least two, with its Student interval."""
    good = x[~np.isnan(x)]
    half = float(stdtrit(len(good) - 1, (1 + LEVEL) / 2) * good.std(ddof=1) / sqrt(len(good)))
    mean = float(good.mean())
    return PassRateMean(mean, mean - half, mean + half, LEVEL, len(good))
