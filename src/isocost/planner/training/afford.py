"""The largest pilot that a budget pays for and that is precise enough, or why there is none.

The rule is in `_PilotSearch.largest`, and what it is made of follows in the order in which it is needed: what a pilot
detects, what it runs, what that costs, how it is evaluated. Shapes are tried from the preset's to smaller ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, lcm, sqrt
from typing import Any

from isocost.errors import UserError
from isocost.laws.law import EXTRAPOLATION
from isocost.planner.budget import Budget, Prices, Timing, Usage, expected_timing, worded
from isocost.planner.evaluation import LEAST_POINTS, EvaluationPlan, evaluations_of, points
from isocost.planner.training.learning_rate import EDGES, MULTIPLIERS, NOISE, RateRule, starting_rule
from isocost.planner.training.pilot import PILOT_SHARE, PilotPlan, detects, over
from isocost.planner.training.shapes import ladder, shape_of
from isocost.planner.training.study_runs import COMMON, PlannedRun, Preset, Size, largest_that, make_runs, sizes_of
from isocost.planner.training.turn_limits import TurnLimit, bill_of, candidates, limit_of
from isocost.screen.words import counted
from isocost.stats.passk import dead_groups, dead_tallies
from isocost.stats.power import detectable
from isocost.units import ENV_STEPS

WORTH = 0.09            # the effect that a pilot must detect: that of n on an easy set (arXiv 2603.12151)
LEAST_UPDATES = 16      # of a pilot run at the largest n; fewer do not identify its curve
LEAST_TRAINING = 32     # updates of a trained run; a plan without a pilot drops the second arm rather than train less
DIRECT_BATCH = 64       # rollouts per update of a plan without a pilot
DIRECT_EPOCHS = 20      # a plan without a pilot warns beyond so many passes over the training problems
SCOUT = 0.6             # length of a pilot whose runs are continued where the choice is open, of the preset's
RESERVE = 1.35          # cost of what is added there, as a multiple of the grid's
EVALUATION_SHARE = 1 / 4    # largest cost of sampled evaluations, relative to training
LEAST_EVALUATED = 32    # least rollouts of one evaluation: a mean of fewer has a standard error above 0.12
MOST_SAMPLES = 16       # most samples per held-out problem that a plan chooses: as many as in a profile
MOST_SEEDS = 64         # a pilot that needs more seeds per arm is reported as impossible


@dataclass(frozen=True)
class PilotOptions:
    """What is asked of a pilot; by default what the preset and the profile say.

    preset, grid, B, batch: its shape. `batch` fixes n B instead of B: the arms are the n of the grid that divide it,
        each with batch / n problems per update, all with one learning rate and number of updates.
    budget: what pilot and training may spend; without one the size is the preset's.
    seed: of its runs. turns: the turn limits that it compares, of dialogues.
    rounds: its grid is shorter, and what is saved is spent after it, where the choice of n and of its rate is open
        (`planner.training.focus`). Without, or with several turn limits, all of its runs are planned now.
    rate: a user's rule in place of the starting rule; no probe is planned if it is marked as measured.
    parameters, timing: the model's size and the seconds of its parts, where they are known better than by the profile.
    worth: the difference in reward that it must detect. sd: a measured run-to-run standard deviation of held-out
        reward; without it 0.02 is assumed, plus the sampling noise of best@k or worst@k with k = `attempts`.
    evaluation: problems and samples. It gets more samples, up to `most_samples`, if `worth` needs them to be detected.
        It is then reduced until it costs at most `evaluation_share` of training in the budget's unit: first the early
        points, then samples, then held-out problems. Best@k and worst@k keep at least k samples.

    Raises UserError for an evaluation share of 0 or less.
    """

    preset: str = "standard"
    grid: Sequence[int] | None = None
    B: int | None = None
    batch: int | None = None
    budget: Budget | None = None
    seed: int = 0
    turns: Sequence[int] | None = None
    rounds: bool = True
    rate: RateRule | None = None
    parameters: float | None = None
    timing: Timing | None = None
    worth: float = WORTH
    sd: float | None = None
    attempts: int = 1
    evaluation: EvaluationPlan | None = None
    most_samples: int = MOST_SAMPLES
    evaluation_share: float | None = None

    def __post_init__(self) -> None:
        if self.evaluation_share is not None and not self.evaluation_share > 0:
            raise UserError(f"expected an evaluation share above 0, got {self.evaluation_share:g}")


def plan_pilot(profile: Mapping[str, Any], **options: Any) -> PilotPlan:
    """The pilot for this profile, with these `PilotOptions`: of the preset's shape and size, or with a budget the
    largest that keeps the rule of `_PilotSearch.largest`. If there is none the plan is `direct`.

    With an environment the grid is crossed with turn limits: `turns`, by default those of `turn_limits.candidates`. A
    budget that does not pay for that is planned without them. Raises UserError for an unknown preset, an n below 2, a
    batch that the default n does not divide or that fewer than two n of the grid divide, both B and batch, a FLOP
    budget without the model's size, or turn limits that the profile does not have.
    """
    asked = PilotOptions(**options)
    shape = shape_of(asked.preset, asked.grid, asked.B, asked.batch)
    search = _PilotSearch.of(profile, asked, shape)
    if asked.budget is None:
        return search.pilot(shape, search.unpaid(shape), shape.train_C)
    found = search.largest(shape)
    if found is None and asked.turns is None and search.limits:
        own = f"the environment's turn limit alone: {asked.budget} does not pay for a pilot of several"
        search = replace(search, limits=(), limits_why=own)
        found = search.largest(shape)
    if found is None:
        return search.direct(shape, search.limit(shape))
    smaller, C = found
    shape, train_C = search.training(smaller, C)
    return search.pilot(shape, C, train_C)


@dataclass(frozen=True)
class _PilotSearch:
    """What is constant while shapes are tried on a budget. `evaluation` and `timing` are the requested ones, `share` is
    the largest cost of evaluations over training, `fallback` the n if no n were compared, and why."""

    asked: PilotOptions
    budget: Budget | None
    prices: Prices
    timing: Timing
    evaluation: EvaluationPlan
    share: float
    rate: RateRule
    pool: int
    fallback: tuple[int, str]
    limits: tuple[TurnLimit, ...] = ()
    limits_why: str = ""

    @staticmethod
    def of(profile: Mapping[str, Any], asked: PilotOptions, shape: Preset) -> _PilotSearch:
        """The search for a pilot of this profile."""
        prices = Prices.of_profile(profile, asked.parameters)
        evaluation = asked.evaluation or EvaluationPlan.of_profile(profile)
        limits, limits_why = _limits(profile, asked.turns)
        return _PilotSearch(
            asked, asked.budget, prices, evaluation=evaluation,
            timing=asked.timing or expected_timing(profile, evaluation.problems, evaluation.samples),
            share=asked.evaluation_share or shape.evaluation_share or EVALUATION_SHARE,
            rate=asked.rate or starting_rule(prices.parameters, own=profile.get("starting_rate"),
                                             adapter="learned" in profile),
            pool=int(profile.get("pool") or 0), fallback=_live_n(profile, shape.grid), limits=limits,
            limits_why=limits_why,
        )

    # the rule -------------------------------------------------------------------------------------------------

    def largest(self, shape: Preset) -> tuple[Preset, int] | None:
        """(shape, C): the pilot that the budget pays for, or None. It is the first shape of `ladder` whose runs of C
        rollouts keep the rule:

        1. The pilot detects a difference of `worth` between two n, with evaluations at their share of training.
        2. Its runs have at least 16 updates at the largest n.
        3. It costs at most a third of the budget.
        4. It costs at most half of the training after it, whose runs are at most eight times as long as its own.

        A longer run pays for better evaluations, so 1 and 2 give the least C and 3 and 4 the largest, which is taken.
        """
        for smaller in ladder(shape):
            least = self.shortest(smaller)                              # by 1 and 2
            if least is None or not self.within(smaller, least):        # 3
                continue
            C = self.largest_pilot(smaller)                             # by 3 and 4
            if least <= C and self.detects(smaller, C):
                return smaller, C
        return None

    def detects(self, shape: Preset, C: int) -> bool:
        """Whether a pilot of runs of C rollouts is evaluated precisely enough."""
        return self.effect(shape, self.pilot_evaluation(shape, C)) <= self.asked.worth

    def shortest(self, shape: Preset) -> int | None:
        """The fewest rollouts per run with enough updates and precise enough evaluations; None if there are none."""
        least = ceil(LEAST_UPDATES * max(n * shape.B_of(n) for n in shape.grid) / shape.unit)
        if self.effect(shape, self.precise(shape)) > self.asked.worth:
            return None
        short = largest_that(lambda k: not self.detects(shape, (least + k - 1) * shape.unit), 2**24)
        return (least + short) * shape.unit if short < 2**24 else None

    def within(self, shape: Preset, C: int) -> bool:
        """Whether a pilot of runs of C rollouts costs at most its share of the budget."""
        assert self.budget is not None
        return self.pilot_bill(shape, C).of_unit(self.budget.unit) <= PILOT_SHARE * self.budget.amount

    def largest_pilot(self, shape: Preset) -> int:
        """The largest C per run whose pilot costs at most a third of the budget, and half of training; 0 if none."""
        assert self.budget is not None
        name, unit = self.budget.unit, shape.unit

        def pilot(k: int) -> float:
            return self.pilot_bill(shape, k * unit).of_unit(name)

        k = largest_that(lambda k: self.within(shape, k * unit))
        for _ in range(24):     # whole updates and seeds leave a remainder that training cannot spend
            if not k or 2 * pilot(k) <= self.trained(shape, k * unit).of_unit(name):
                return k * unit
            k = min(k - 1, int(0.97 * k))
        return 0

    def trained(self, shape: Preset, C: int) -> Usage:
        """The bill of training after a pilot of runs of C rollouts."""
        larger, train_C = self.training(shape, C)
        return self.train_bill(larger, train_C, self.pilot_evaluation(shape, C))

    def training(self, shape: Preset, C: int) -> tuple[Preset, int]:
        """(shape, rollouts per run) that the rest of the budget trains, at most eight times the pilot's; then more
        seeds."""
        assert self.budget is not None
        name, unit, seeds, e = self.budget.unit, shape.unit, shape.train_seeds, self.pilot_evaluation(shape, C)
        left = self.budget.amount - self.pilot_bill(shape, C).of_unit(name)
        k = largest_that(lambda k: self.train_bill(shape, k * unit, e).of_unit(name) <= left, EXTRAPOLATION * C // unit)
        train_C = max(1, k) * unit
        more = int(left / self.train_bill(replace(shape, train_seeds=1), train_C, e).of_unit(name))
        return replace(shape, train_seeds=min(max(seeds, more), 2 * seeds)), train_C

    # what it detects ------------------------------------------------------------------------------------------

    def effect(self, shape: Preset, e: EvaluationPlan) -> float:
        """The minimum detectable difference between two n of a grid of this shape."""
        return detectable(shape.seeds, len(shape.grid), self.sd(e))

    def sd(self, e: EvaluationPlan) -> float:
        """Standard deviation between runs of one n, the noise of this evaluation included."""
        return sqrt(NOISE**2 + e.sd_of(self.asked.attempts) ** 2) if self.asked.sd is None else self.asked.sd

    def sd_source(self, e: EvaluationPlan) -> str:
        if self.asked.sd is not None:
            return "measured"
        sampled = e.sd_of(self.asked.attempts)
        return f"assumed: {NOISE:g} between runs" + (f", {sampled:.3f} from sampling" if sampled else "")

    def needed(self, shape: Preset) -> float:
        """Samples of the metric (of `attempts` rollouts each) per split with which this shape detects `worth`."""
        per = detectable(shape.seeds, len(shape.grid), 1.0)
        return 0.25 / max((self.asked.worth / per) ** 2 - NOISE**2, 1e-9) * (1 - 1e-9)

    def precise(self, shape: Preset) -> EvaluationPlan:
        """The requested evaluation, with more samples if this shape needs them to detect `worth`, up to the limit."""
        e = self.evaluation
        if e.samples is None or e.even or self.effect(shape, e) <= self.asked.worth:
            return e
        samples = ceil(self.needed(shape) / (e.problems / e.splits)) * self.asked.attempts
        return replace(e, samples=max(e.samples, min(samples, self.asked.most_samples)))

    # what it runs ---------------------------------------------------------------------------------------------

    @property
    def reserve(self) -> float:
        """What is spent after the grid, as a multiple of its cost."""
        return RESERVE if self.asked.rounds and not self.limits else 0.0

    def first(self, shape: Preset) -> int:
        """Rollouts of a run of the grid of a preset without a budget; where it is made shorter, enough for a curve."""
        share, least = (SCOUT, LEAST_POINTS) if self.reserve else (1.0, 1)
        return max(least, round(share * shape.C / shape.unit)) * shape.unit

    def unpaid(self, shape: Preset) -> int:
        """Rollouts of a run of the grid without a budget: the preset's, or where a reserve follows as many as keep the
        pilot at half of training."""
        C, unit, half = self.first(shape), shape.unit, shape.train_seeds * shape.train_C    # training is of two arms
        if not self.reserve:
            return C
        return max(1, largest_that(lambda k: self.pilot_bill(shape, k * unit).rollouts <= half, C // unit)) * unit

    def lengths(self, C: int, unit: int) -> list[tuple[int | None, int]]:
        """(turn limit, rollouts per run) of the grid: each costs as much as C rollouts at the largest limit."""
        if not self.limits:
            return [(None, C)]
        name = self.budget.unit if self.budget else ENV_STEPS
        whole = self.limits[-1].share(name)
        return [(x.turns, max(1, round(C * whole / x.share(name) / unit)) * unit) for x in self.limits]

    def pilot_runs(self, shape: Preset, C: int) -> tuple[PlannedRun, ...]:
        unit = shape.unit
        probe_C = max(unit, round(C * shape.probe_C / self.first(shape) / unit) * unit)
        extremes = shape.arms((min(shape.grid), max(shape.grid)), self.limits[-1].turns if self.limits else None)
        probes = () if self.rate.measured else make_runs(
            self.asked.seed, "probe", extremes, probe_C, shape.probe_seeds, MULTIPLIERS)
        grid = [r for turns, length in self.lengths(C, unit) for r in make_runs(
            self.asked.seed, "pilot", shape.arms(shape.grid, turns), length, shape.seeds)]
        grid.sort(key=lambda r: r.index)        # whole replicates first
        edges = () if self.reserve else make_runs(self.asked.seed, "edge", extremes, C, shape.edge_seeds, EDGES)
        return (*probes, *grid, *edges)

    # what it costs --------------------------------------------------------------------------------------------

    def bill(self, shape: Preset, runs: Sequence[Size], e: EvaluationPlan) -> Usage:
        each = {C: 1 + len(e.points(C, shape.unit)) for C in {C for *_, C in runs}}
        return self.prices.bill([(*run, each[run[2]]) for run in runs], self.timed(e))

    def pilot_bill(self, shape: Preset, C: int) -> Usage:
        e = self.pilot_evaluation(shape, C)
        runs = [(r, 1 + len(e.points(r.C, shape.unit))) for r in self.pilot_runs(shape, C)]
        bill = bill_of(runs, self.prices, self.timed(e), self.limits)
        if not self.reserve:
            return bill
        grid = bill_of([x for x in runs if x[0].purpose == "pilot"], self.prices, self.timed(e), self.limits)
        return bill + grid.times(self.reserve)

    def train_bill(self, shape: Preset, C: int, e: EvaluationPlan) -> Usage:
        """The expected cost of training, before there is a law: arms at the grid's middle n and at the default."""
        arms = (shape.grid[len(shape.grid) // 2], COMMON)
        return self.bill(shape, [(n, shape.B_of(n), C) for n in arms for _ in range(shape.train_seeds)], e)

    # its evaluations ------------------------------------------------------------------------------------------

    def pilot_evaluation(self, shape: Preset, C: int) -> EvaluationPlan:
        """The evaluation of the runs of such a pilot, and of those trained after it."""
        return self.evaluated(shape, sizes_of(self.pilot_runs(shape, C)))

    def evaluated(self, shape: Preset, runs: Sequence[Size]) -> EvaluationPlan:
        """The evaluation that a grid of this shape needs, reduced to the share of training that it may cost."""
        needed = self.precise(shape)
        if needed.samples is None:
            return needed
        for e in self.rarer(needed, shape, runs):
            cost = self.cost(runs, evaluations_of(e, runs, shape.unit), e)
            if cost <= self.share:
                return e
        return self.fewer(e, cost)

    def rarer(self, e: EvaluationPlan, shape: Preset, runs: Sequence[Size]) -> list[EvaluationPlan]:
        """An evaluation, and the same at fewer and fewer points, down to `LEAST_POINTS`."""
        if e.even:      # the trainer evaluates in its own way: only how often can be chosen
            return [replace(e, even=k) for k in range(e.even, min(LEAST_POINTS, e.even) - 1, -1)]
        every = e.points(max(C for *_, C in runs), shape.unit)
        return [e, *(replace(e, first=p) for p in every[1 : len(every) - LEAST_POINTS + 1])]

    def fewer(self, e: EvaluationPlan, cost: float) -> EvaluationPlan:
        """An evaluation of `cost` times training with fewer samples, then fewer problems, so that it is its share."""
        if e.samples is None or e.even or cost <= self.share:
            return e
        most = max(int(e.rollouts * self.share / cost), min(LEAST_EVALUATED, e.problems * self.asked.attempts))
        samples = max(min(e.samples, most // e.problems), self.asked.attempts)
        problems = min(e.problems, max(most // samples, 2))
        return replace(e, samples=samples, problems=problems, held_out=e.problems if problems < e.problems else None)

    def cost(self, runs: Sequence[Size], many: int, e: EvaluationPlan) -> float:
        """The cost of `many` evaluations in all, relative to training these runs."""
        seconds = self.timed(e).evaluation
        training = self.prices.bill([(*run, 0) for run in runs], self.timing)
        return over(self.prices.sampling(many * e.rollouts, many * seconds), training, self.budget)

    def timed(self, e: EvaluationPlan) -> Timing:
        """The timing with this evaluation: its seconds are proportional to its rollouts."""
        requested = self.evaluation.rollouts
        if not requested:
            return self.timing
        return replace(self.timing, evaluation=self.timing.evaluation * e.rollouts / requested)

    def sufficient_share(self, shape: Preset, runs: Sequence[Size]) -> float | None:
        """The least evaluation share with which these runs detect `worth`; None if no share is enough."""
        needed = self.precise(shape)
        if needed.samples is None or self.effect(shape, needed) > self.asked.worth:
            return None
        e = self.rarer(needed, shape, runs)[-1]
        return _percent_above(self.cost(runs, evaluations_of(e, runs, shape.unit), e))

    def notes(self, e: EvaluationPlan, cost: float) -> tuple[str, ...]:
        """Notes for the user: how an evaluation was reduced, or that it costs more than its share."""
        requested, out = self.evaluation, []
        assert e.samples is None or requested.samples is not None
        if e != requested:
            samples = f"{e.samples} instead of {requested.samples} samples per held-out problem"
            problems = f"{e.problems} of {requested.problems} held-out problems"
            kept = [samples if e.samples != requested.samples else "",
                    problems if e.problems != requested.problems else "",
                    f"about {e.even} instead of {requested.even} evaluations of a run" * (e.even != requested.even),
                    f"no evaluation between the base and {e.first:,} rollouts" if e.first else ""]
            now, before = (x.sd_of(self.asked.attempts) for x in (e, requested))
            out.append(f"evaluations are planned to cost at most {self.share:.0%} of training: "
                       f"{', '.join(filter(None, kept))}. The standard error of one is at most {now:.3f}, with those "
                       f"requested {before:.3f}")
        if cost > self.share:
            why = f"an evaluation needs at least {LEAST_EVALUATED} rollouts"
            if e.even:
                why = f"a run needs at least {LEAST_POINTS} evaluations, and what one costs is up to your trainer"
            out.append(f"evaluations cost {cost:.3g} times training, more than {self.share:g}: {why}")
        return tuple(out)

    # as a plan ------------------------------------------------------------------------------------------------

    def pilot(self, shape: Preset, C: int, train_C: int) -> PilotPlan:
        unit = shape.unit
        runs, e = self.pilot_runs(shape, C), self.pilot_evaluation(shape, C)
        probe_C = next((r.C for r in runs if r.purpose == "probe"), C)
        effect = self.effect(shape, e)
        sizes = f"n B = {shape.batch}, {counted(C // shape.batch, 'update')} each" if shape.batch else f"B = {shape.B}"
        each = "".join(f" ({k:,} at {h} turns)" for h, k in self.lengths(C, unit)[:-1])
        crossed = f"{counted(len(self.limits), 'turn limit')} x " if len(self.limits) > 1 else ""
        then = f"; then {self.reserve:.3g} times as much where the choice is open" if self.reserve else ""
        why = (f"{len(shape.grid)} n x {crossed}{counted(shape.seeds, 'seed')} x {C:,} rollouts{each}, {sizes}{then}; "
               f"{detects(effect)}")
        cost = self.cost(sizes_of(runs), evaluations_of(e, sizes_of(runs), unit), e)
        flags = self.notes(e, cost)
        if effect > self.asked.worth and self.effect(shape, replace(e, samples=None)) <= self.asked.worth:
            share = self.sufficient_share(shape, sizes_of(runs))
            resolve = self.enough(shape, e) if share is None else (
                f"To resolve: evaluations that cost more (`isocost plan --evaluation-share {share:g}`)")
            flags += (f"imprecise evaluations: this pilot detects no difference below {effect:.3f} between two n "
                      f"(worth detecting: {self.asked.worth:g}). {resolve}",)
        return self._plan(
            shape, False, why, e, runs=runs, C=C, points=e.points(C, unit), probe_points=e.points(probe_C, unit),
            train_C=train_C, train_arms=2, train_seeds=shape.train_seeds, detectable=effect, flags=flags,
            pilot_bill=self.pilot_bill(shape, C), train_bill=self.train_bill(shape, train_C, e),
        )

    def _plan(self, shape: Preset, direct: bool, why: str, e: EvaluationPlan, **rest: Any) -> PilotPlan:
        return PilotPlan(
            preset=self.asked.preset, budget=self.budget, seed=self.asked.seed, direct=direct, why=why,
            grid=shape.grid, B=shape.B,
            seeds=0 if direct else shape.seeds, rate=self.rate, prices=self.prices, timing=self.timed(e),
            evaluation=e, sd=self.sd(e), sd_source=self.sd_source(e), fallback_n=self.fallback[0],
            fallback_why=self.fallback[1], batch=shape.batch, limits=() if direct else self.limits,
            limits_why="" if direct else self.limits_why, reserve=0.0 if direct else self.reserve, **rest,
        )

    # no pilot -------------------------------------------------------------------------------------------------

    def limit(self, shape: Preset) -> str:
        """Why the budget is planned without a pilot: what is too small, and the least value that is enough."""
        assert self.budget is not None
        best = max(ladder(shape), key=lambda s: (s.seeds, len(s.grid)))
        e = self.precise(best)
        effect = self.effect(best, e)
        if effect <= self.asked.worth:
            least, share = self.least_budget(shape), self.least_share(shape)
            costlier = f"evaluations that cost more (`isocost plan --evaluation-share {share:g}`)" if share else ""
            would = [f"a budget of at least {least}" if least else "", costlier]
            more = f". To resolve: {', or '.join(filter(None, would))}" if any(would) else ""
            return (f"{self.budget} does not pay for a pilot whose runs are long enough ({LEAST_UPDATES} updates at "
                    f"the largest n) and which detects differences of {self.asked.worth:g} between two n{more}")
        known = f"{counted(best.seeds, 'seed')} of {len(best.grid)} n detect only differences above {effect:.3f}"
        if e.samples is not None and self.effect(best, replace(e, samples=None)) <= self.asked.worth:
            return (f"no budget pays for a pilot here: {e.problems} held-out problems with at most "
                    f"{counted(e.samples, 'sample')} each are too few. {known} (worth detecting: "
                    f"{self.asked.worth:g}). {self.enough(best, e)}")
        seeds = next((k for k in range(best.seeds, MOST_SEEDS) if detectable(k, len(best.grid), self.sd(e))
                      <= self.asked.worth), None)
        needed = f"it needs {seeds} seeds" if seeds else f"even {MOST_SEEDS} seeds are not enough"
        return (f"no budget pays for a pilot here: runs of one n differ by {self.sd(e):.3f} ({self.sd_source(e)}), so "
                f"{known} (worth detecting: {self.asked.worth:g}); {needed}")

    def enough(self, shape: Preset, e: EvaluationPlan) -> str:
        """The fewest samples, or held-out problems, with which this shape detects `worth`."""
        assert e.samples is not None
        needed, held_out = self.needed(shape), self.evaluation.problems
        samples = ceil(needed / (held_out / e.splits)) * self.asked.attempts
        problems = e.splits * ceil(needed / max(e.samples // self.asked.attempts, 1))
        whole = self.pool + held_out
        more = f"`isocost profile --held-out {problems}`"
        if self.pool and problems >= whole:
            more = f"a set of at least {ceil(problems * whole / held_out):,} problems; this one has {whole:,}"
        return (f"To resolve: {samples} samples per held-out problem (`isocost plan --samples {samples}`), or "
                f"{problems:,} held-out problems ({more})")

    def least_budget(self, shape: Preset) -> str:
        """The smallest budget that pays for a pilot, as a user writes it; empty if none is found."""
        assert self.budget is not None
        own, costs = self.budget, []
        for smaller in ladder(shape):
            least = self.shortest(smaller)
            if least is not None:
                costs.append(self.pilot_bill(smaller, least).of_unit(own.unit) / PILOT_SHARE)

        def pays(amount: float) -> bool:
            return replace(self, budget=replace(own, amount=amount)).largest(shape) is not None

        tried = [1.1**k * min(costs) for k in range(40) if costs]       # whole updates cost a little more than this
        high = next((amount for amount in tried if pays(amount)), None)
        if high is None:
            return ""
        low = max(high / 1.1, own.amount)
        while high > 1.005 * low:
            middle = sqrt(low * high)
            low, high = (low, middle) if pays(middle) else (middle, high)
        return worded(own, high)

    def least_share(self, shape: Preset) -> float | None:
        """The evaluation share with which this budget pays for a pilot; None if there is none."""
        free = replace(self, share=float("inf"))
        found = None if self.evaluation.samples is None else free.largest(shape)
        if found is None:
            return None
        runs, e = sizes_of(free.pilot_runs(*found)), free.pilot_evaluation(*found)
        low, high = self.share, free.cost(runs, evaluations_of(e, runs, found[0].unit), e)
        while high - low > 0.01:
            middle = (low + high) / 2
            low, high = (low, middle) if replace(self, share=middle).largest(shape) else (middle, high)
        return _percent_above(high)

    def direct(self, shape: Preset, why: str) -> PilotPlan:
        """No pilot: the whole budget trains the fallback, against the common default where two arms are affordable."""
        assert self.budget is not None
        name, n = self.budget.unit, self.fallback[0]
        B = max(1, DIRECT_BATCH // n)
        shape = replace(shape, B=shape.B if shape.batch else B, grid=())
        unit = shape.batch or lcm(n * B, COMMON * B)
        for arms, seeds in ((2, 3), (1, 3), (1, 1)):
            ns = (n, COMMON if n != COMMON else 2 * n)[:arms]

            def runs(C: int, ns: tuple[int, ...] = ns, seeds: int = seeds) -> list[Size]:
                return [(k, shape.B_of(k), C) for k in ns for _ in range(seeds)]

            def read(C: int, runs: Any = runs) -> EvaluationPlan:
                return self.fewer(self.evaluation, self.cost(runs(C), 3 * len(runs(C)), self.evaluation))

            def bill(C: int, runs: Any = runs, read: Any = read) -> Usage:
                return self.prices.bill([(*run, 1 + len(points(C, unit, 0))) for run in runs(C)], self.timed(read(C)))

            C = unit * largest_that(lambda k, bill=bill: bill(k * unit).of_unit(name) <= self.budget.amount)
            if C // unit >= LEAST_TRAINING:
                break
        if C == 0:
            raise UserError(f"{self.budget} does not pay for one update of {unit:,} rollouts"
                            f"{'' if self.evaluation.samples is None else ' and its evaluations'}: give at least "
                            f"{worded(self.budget, bill(unit).of_unit(name))}")
        nothing = Usage(0, 0.0, None if self.prices.parameters is None else 0.0, 0.0, 0, None, None)
        e = read(C)
        flags = self.notes(e, self.cost(runs(C), 3 * len(runs(C)), e))
        if not self.rate.measured:
            flags += ("the learning rate is " + self.rate.why,)
        flags += (self.unknown(arms, seeds),)
        if self.pool and DIRECT_EPOCHS * n * self.pool < C:
            flags += (f"each run makes {C / (n * self.pool):,.0f} passes over {self.pool} training problems, and "
                      "no measurement shows that reward still rises so late; a smaller budget may be enough",)
        return self._plan(
            shape, True, why, e, runs=(), C=0, points=(), probe_points=(), train_C=C, train_arms=arms,
            train_seeds=seeds, detectable=None, pilot_bill=nothing, train_bill=bill(C), flags=flags,
        )

    @staticmethod
    def unknown(arms: int, seeds: int) -> str:
        """What is not known without a pilot, and what the runs will measure."""
        lead = "not known without a pilot: which n is best and what reward to expect, so nothing is forecast and the " \
               "audit answers \"cannot tell\""
        if seeds == 1:
            return f"{lead}. One run shows its gain over the base, and nothing about other runs"
        both = " and the difference between the two n" if arms > 1 else ""
        return f"{lead}. What the runs will show: the gain over the base{both}, with intervals over {seeds} seeds"


def _limits(profile: Mapping[str, Any], turns: Sequence[int] | None) -> tuple[tuple[TurnLimit, ...], str]:
    """(the turn limits to compare, why): the requested ones, else those that the profile proposes."""
    rows = profile.get("by_limit") or ()
    if turns is None:
        return candidates(rows)
    there = [r["turns"] for r in rows]
    wrong = [h for h in turns if h not in there]
    if not there or wrong:
        known = f"this profile has limits of 1 to {there[-1]} turns" if there else \
            "this study has no profile of dialogues: start one with `isocost profile --env ...`"
        raise UserError(f"cannot plan the turn limits {', '.join(map(str, turns))}: {known}")
    asked = sorted(set(turns))
    return tuple(limit_of(rows, h) for h in asked), f"turn limits as requested: {', '.join(map(str, asked))}"


def _live_n(profile: Mapping[str, Any], grid: Sequence[int]) -> tuple[int, str]:
    """(n, why) if no n were compared: the smallest n with at most half of its groups dead."""
    ns = sorted({n for n in (*grid, COMMON) if n >= 4}) or [max(grid)]
    dead = {d["n"]: d["share"] for d in profile.get("dead", ())}
    if not set(ns) <= set(dead) and profile.get("right"):
        m, tallies = int(profile["samples"]), profile.get("tallies")
        found = dead_tallies(tallies, m, ns, draws=2) if tallies else dead_groups(profile["right"], m, ns, draws=2)
        dead |= {d.n: d.share for d in found}
    known = [n for n in ns if n in dead]
    if not known:
        return COMMON, f"n = {COMMON}, the common default: the profile has no dead-group shares"
    for n in known:
        if dead[n] <= 0.5:
            return n, (f"n = {n}, the smallest from 4 on with at most half of its groups dead "
                       f"({dead[n]:.0%} by the profile)")
    n = min(known, key=lambda k: (dead[k], k))
    return n, f"n = {n}, with the fewest dead groups ({dead[n]:.0%} by the profile; no n tried has at most half dead)"


def _percent_above(share: float) -> float:
    """A share rounded up to a percent."""
    return ceil(100 * share) / 100
