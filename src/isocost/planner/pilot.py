"""The pilot: which runs, how long, at what cost, and the smallest effect they would see, fixed before any is begun.

C = n B M rollouts: n per problem, B problems per update, M updates. A budget is what pilot and training may spend. The
pilot takes at most a third, so that it costs at most half of what training the prescription costs, and its largest
run is at least an eighth of the prescribed one. Where no pilot is long and precise enough for that, the plan is
`direct`: no grid, and a named fallback. The plan then names what is too small (held-out problems, seeds or budget) and
the least value of it that would do.

Evaluations by sampling cost at most a quarter of training, in the budget's unit (`EVALUATION_SHARE`). All runs of a
study share one `Evaluation`: the same held-out problems, samples per problem and first evaluation point, so that every
curve has the same noise. Exact evaluations sample nothing and are never cut.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from math import ceil, floor, lcm, sqrt
from typing import Any

from scipy.special import stdtrit

from isocost.chance import Purpose, generator
from isocost.errors import UserError
from isocost.planner.budget import Bill, Budget, Prices, Timing, expected_timing, worded
from isocost.planner.learning_rate import EDGES, MULTIPLIERS, NOISE, RateRule, starting_rule
from isocost.stats.passk import dead_groups, dead_tallies
from isocost.words import counted

COMMON = 8              # the default n that a prescription is compared with
WORTH = 0.09            # an effect worth seeing: what varying n moved on an easy set (arXiv 2603.12151)
LEVEL, POWER = 0.9, 0.8
EXTRAPOLATION = 8       # prescribed C over the pilot's largest, at most
PILOT_SHARE = 1 / 3     # of the budget, at most
LEAST_UPDATES = 16      # of a pilot run at the largest n; fewer say nothing of where it goes
LEAST_SEEDS = 3         # of a trained arm, where there is a pilot
LEAST_TRAINING = 32     # updates of a trained run, below which a second arm is not worth its rollouts
WARMUP_SHARE, WARMUP_MOST = 0.05, 10
DIRECT_BATCH = 64       # rollouts per update where nothing was measured
DIRECT_EPOCHS = 20      # passes over the training problems that a plan without a pilot warns beyond
EVALUATION_SHARE = 1 / 4    # what evaluations by sampling cost, at most, of what training costs
LEAST_POINTS = 4        # evaluations after the base that are kept: the fewest that a curve can be fitted to
LEAST_EVALUATED = 32    # rollouts of one evaluation that are kept: a mean of fewer has a standard error above 0.12
MOST_SAMPLES = 16       # samples per held-out problem that a plan goes up to by itself: as many as a profile draws
MOST_SEEDS = 64         # seeds per arm beyond which a pilot is called impossible
_ORDER = ("probe", "pilot", "edge", "train")


@dataclass(frozen=True)
class Preset:
    """A study's shape and, without a budget, its size. `C` are rollouts per run."""

    grid: tuple[int, ...]
    B: int
    C: int
    seeds: int
    probe_C: int
    probe_seeds: int
    edge_seeds: int
    train_C: int
    train_seeds: int
    batch: int | None = None    # n B, where that is what is fixed; B is then the common default's

    def B_of(self, n: int) -> int:
        """Problems per update of arm n."""
        return problems_of(n, self.B, self.batch)

    @property
    def unit(self) -> int:
        """The fewest rollouts that are a whole number of updates for every n, and for the common default."""
        return self.batch or whole(self.grid, self.B)


def problems_of(n: int, B: int, batch: int | None = None) -> int:
    """Problems per update at n: B, or as many as make n B the fixed `batch`."""
    return batch // n if batch else B


PRESETS = {
    "tiny": Preset((2, 4, 8), 1, 32, 2, 16, 1, 1, 144, 3),
    "quick": Preset((2, 4, 8, 16, 32), 8, 6144, 3, 2048, 1, 1, 36864, 4),
    "standard": Preset((2, 4, 8, 16, 32), 8, 16384, 5, 8192, 2, 2, 131072, 5),
    "long": Preset((2, 4, 8, 16, 32), 8, 65536, 3, 4096, 1, 1, 524288, 3),
}


@dataclass(frozen=True)
class Evaluation:
    """How held-out reward is measured, the same for every run of a study.

    `problems` are evaluated, validation and test split together, by `samples` attempts each (None: exactly). Each split
    has half of them, so a value is the mean over `problems` / 2. `held_out` is how many there are where fewer are
    evaluated. `first` is the first evaluation point after the base policy, in rollouts; None is one common update.
    """

    problems: int = 256
    samples: int | None = None
    held_out: int | None = None
    first: int | None = None

    @property
    def rollouts(self) -> int:
        """Rollouts sampled by one evaluation; 0 if exact."""
        return self.problems * (self.samples or 0)

    @property
    def sd(self) -> float:
        """Standard error that sampling gives one evaluation, at the widest (pass rate 1/2); 0 if exact."""
        return self.sd_of(1)

    def sd_of(self, attempts: int) -> float:
        """The same of best@k or worst@k, k attempts: at most that of the samples parted into whole lots of k."""
        return 0.0 if self.samples is None else 0.5 / sqrt(self.problems / 2 * max(self.samples // attempts, 1))

    def points(self, C: int, unit: int) -> tuple[int, ...]:
        """Evaluation points of a run of C rollouts after the base, in multiples of `unit`.

        Exact evaluations are two per doubling; sampled ones are one, or two where a curve would have too few and none
        was cut.
        """
        start = ceil((self.first or unit) / unit) * unit
        sparse = points(C, start, 1)
        dense = self.samples is None or (self.first is None and len(sparse) < LEAST_POINTS)
        return points(C, start, 2) if dense else sparse

    @staticmethod
    def of_profile(profile: Mapping[str, Any]) -> Evaluation:
        """As the profile found the held-out problems: their number, and whether they are read exactly."""
        held_out = int(profile.get("select") or 0) + int(profile.get("audit") or 0)
        return Evaluation(held_out or 256, None if profile.get("exact", True) else 4)


@dataclass(frozen=True)
class Run:
    """One run of a study: what it is for, its sizes, and which seed. Its learning rate is a rule's at n B."""

    purpose: str            # probe, pilot, edge or train
    n: int
    B: int
    C: int
    multiplier: float
    index: int              # which of its arm's seeds: runs of one index are paired across arms
    seed: int
    first_C: int | None = None      # rollouts it was first to have, where it was continued since

    @property
    def name(self) -> str:
        times = "" if self.multiplier == 1 else f"-x{self.multiplier:g}"
        return f"{self.purpose}-n{self.n}{times}-s{self.index}"

    @property
    def M(self) -> int:
        """Updates."""
        return self.C // (self.n * self.B)

    @property
    def warmup(self) -> int:
        """Updates of linear warm-up: at most 5 % of the run as it was begun, and at most 10."""
        return warmup((self.first_C or self.C) // (self.n * self.B))

    @staticmethod
    def of(data: Mapping[str, Any]) -> Run:
        """A run from the plain data of a record; what follows from its fields may stand there and is not read."""
        return Run(**{f.name: data[f.name] for f in fields(Run) if f.name in data})

    def lr(self, rule: RateRule) -> float:
        """The rate this run takes under a rule: the starting rule for probes, the fitted one for all others."""
        return rule.at(self.n * self.B, self.multiplier)


def warmup(M: int) -> int:
    """Updates of linear warm-up in a run of M: at most 5 % of it, and at most 10."""
    return min(WARMUP_MOST, floor(WARMUP_SHARE * M))


@cache
def run_seed(seed: int, purpose: str, index: int) -> int:
    """The seed of a study's run. Runs that are trained never share one with the pilot that predicts them."""
    kind = "train" if purpose == "train" else "pilot"
    return int(generator(seed, Purpose.INIT, _ORDER.index(kind), index).integers(2**31))


def make_runs(
    seed: int, purpose: str, ns: Sequence[int], B: int, C: int, seeds: int, multipliers: Sequence[float] = (1.0,),
    batch: int | None = None,
) -> tuple[Run, ...]:
    """Every combination, seeds outermost: a phase cut short has whole replicates. With `batch`, n B is that."""
    return tuple(
        Run(purpose, n, problems_of(n, B, batch), C, x, i, run_seed(seed, purpose, i))
        for i in range(seeds) for n in ns for x in multipliers
    )


def points(C: int, unit: int, per_doubling: int = 2) -> tuple[int, ...]:
    """Evaluation points in rollouts: log-spaced from `unit` to C, multiples of `unit` so that every arm meets them.

    `per_doubling` 0 gives the middle and the end.
    """
    if per_doubling == 0:
        return tuple(sorted({max(unit, C // (2 * unit) * unit), C}))
    out, x, step = {C}, float(unit), 2 ** (1 / per_doubling)
    while x <= C / sqrt(step):       # nothing crowds the last point
        out.add(round(x / unit) * unit)
        x *= step
    return tuple(sorted(out))


def whole(grid: Sequence[int], B: int) -> int:
    """The fewest rollouts that are a whole number of updates for every n of a grid, and for the common default."""
    return lcm(*(n * B for n in (*grid, COMMON)))


def detectable(seeds: int, arms: int, sd: float, *, level: float = LEVEL, power: float = POWER) -> float:
    """The smallest true difference between two arms' means that a grid sees with this power.

    (t_level + t_power) sd sqrt(2 / seeds), Student with the variance pooled over arms: arms (seeds - 1) degrees of
    freedom. Infinite with one seed, which says nothing of the noise.
    """
    dof = arms * (seeds - 1)
    if dof < 1:
        return float("inf")
    return float((stdtrit(dof, (1 + level) / 2) + stdtrit(dof, power)) * sd * sqrt(2 / seeds))


@dataclass(frozen=True)
class PilotPlan:
    """What a pilot will run, fixed before anything is spent; or why there is none (`direct`).

    `points` are the evaluation points of pilot and edge runs, `probe_points` of probes, `train_points` of the runs
    expected after. With `batch`, n B is fixed instead of B, which is then the common default's. `rate` is the rule
    the probe starts from. `pilot_bill` counts probe, pilot and edge runs; `train_bill` is what training is expected to
    cost, `train_C` rollouts for each of `train_arms` x `train_seeds`.
    """

    preset: str
    budget: Budget | None
    seed: int
    direct: bool
    why: str
    grid: tuple[int, ...]
    B: int
    C: int
    seeds: int
    runs: tuple[Run, ...]
    points: tuple[int, ...]
    probe_points: tuple[int, ...]
    rate: RateRule
    train_C: int
    train_arms: int
    train_seeds: int
    pilot_bill: Bill
    train_bill: Bill
    prices: Prices
    timing: Timing
    evaluation: Evaluation
    sd: float
    sd_source: str
    detectable: float | None
    fallback_n: int
    fallback_why: str
    flags: tuple[str, ...] = ()
    batch: int | None = None

    def B_of(self, n: int) -> int:
        """Problems per update of arm n."""
        return problems_of(n, self.B, self.batch)

    @property
    def bill(self) -> Bill:
        """Pilot and training together."""
        return self.pilot_bill + self.train_bill

    def of_purpose(self, purpose: str) -> tuple[Run, ...]:
        """The runs of one purpose: probe, pilot or edge."""
        return tuple(r for r in self.runs if r.purpose == purpose)

    def points_of(self, run: Run) -> tuple[int, ...]:
        """The rollouts after which this run is evaluated; the base is evaluated before it besides."""
        if run.purpose == "probe":
            return self.probe_points
        if run.purpose == "train":
            return self.train_points(run.C)
        unit = self.points[0]       # as it was before any n joined the grid
        first = self.evaluation.points(run.first_C, unit) if run.first_C else ()
        return (*first, *(x for x in self.evaluation.points(run.C, unit) if not first or x > first[-1]))

    def extended(self, longer: Mapping[int, int], seeds: Mapping[int, int]) -> PilotPlan:
        """The same pilot with runs added: `longer` continues every run of n to so many rollouts, `seeds` adds runs.

        An n that the grid has not got joins it by `seeds`, as long as the shortest that is there. Lengths are rounded
        up to whole updates, and to where all are evaluated.

        Raises:
            UserError: for an n without runs to continue, a length that is no more than theirs, less than one seed, an n
                below 2, or one that does not divide a fixed batch.
        """
        if self.direct:
            raise UserError(f"this plan has no pilot that runs could be added to: {self.why}")
        self._refuse_added(longer, seeds)
        wider = replace(self, grid=tuple(sorted({*self.grid, *seeds})))
        unit = {n: lcm(self.points[0], n * self.B_of(n)) for n in wider.grid}
        ends = {n: ceil(C / unit[n]) * unit[n] for n, C in longer.items()}
        runs = [replace(r, C=ends[r.n], first_C=r.first_C or r.C) if r.purpose == "pilot" and r.n in ends else r
                for r in self.runs]
        shortest = min(r.C for r in self.of_purpose("pilot"))
        for n, k in seeds.items():
            old = [r for r in runs if r.purpose == "pilot" and r.n == n]
            C = old[0].C if old else ceil(shortest / unit[n]) * unit[n]
            new = make_runs(self.seed, "pilot", (n,), self.B, C, len(old) + k, batch=self.batch)[len(old):]
            runs += [replace(r, first_C=old[0].first_C if old else None) for r in new]
        C = max(r.C for r in runs)
        made = replace(wider, runs=tuple(runs), C=C, points=self.evaluation.points(C, self.points[0]))
        sizes = [(r.n, r.B, r.C, 1 + len(made.points_of(r))) for r in runs]
        fewest = min(Counter(r.n for r in runs if r.purpose == "pilot").values())
        effect = detectable(fewest, len(wider.grid), self.sd)
        told = [f"n = {n} continued to {C} rollouts" for n, C in ends.items()]
        told += [f"{counted(k, 'more run')} of n = {n}" for n, k in seeds.items()]
        bill = self.prices.bill(sizes, self.timing)
        why = (f"{self.why.partition('; sees')[0]}; then {', '.join(told)}; sees differences of {effect:.3f} between "
               f"two n ({POWER:.0%} power, {LEVEL:.0%} level)")
        return replace(made, pilot_bill=bill, why=why, seeds=fewest, detectable=effect)

    def repriced(self, prices: Prices, timing: Timing) -> PilotPlan:
        """The same plan, its bills at these prices: those that its runs have been measured at."""
        sizes = [(r.n, r.B, r.C, 1 + len(self.points_of(r))) for r in self.runs]
        ns = (self.grid[len(self.grid) // 2], COMMON)[: self.train_arms]
        trained = [(n, self.B_of(n), self.train_C, 1 + len(self.train_points(self.train_C))) for n in ns]
        return replace(self, prices=prices, timing=timing, pilot_bill=prices.bill(sizes, timing),
                       train_bill=prices.bill(trained * self.train_seeds, timing))

    def funded(self, budget: Budget) -> PilotPlan:
        """The same pilot with another budget: training as that would have planned it (`_Ask.training`).

        What a forecast's reach leaves over buys seeds, up to twice as many as the pilot has and three at least; a
        smaller budget takes them back.
        """
        name, unit, base = budget.unit, self.unit, max(LEAST_SEEDS, self.seeds)
        one = replace(self, budget=budget, train_seeds=1)
        left = budget.amount - self.pilot_bill.of_unit(name)

        def bill(k: int) -> float:
            return replace(one, train_C=k * unit).repriced(self.prices, self.timing).train_bill.of_unit(name)

        shortest = min(r.C for r in self.of_purpose("pilot"))
        k = max(1, _most(lambda k: base * bill(k) <= left, EXTRAPOLATION * shortest // unit))
        seeds = min(max(base, int(left / bill(k))), 2 * base)
        return replace(one, train_C=k * unit, train_seeds=seeds).repriced(self.prices, self.timing)

    def least_training(self, prices: Prices, timing: Timing) -> Bill:
        """What training costs at the least: every arm and seed as long as the pilot's shortest runs."""
        C = min(r.C for r in self.of_purpose("pilot"))
        ns = (self.grid[len(self.grid) // 2], COMMON)[: self.train_arms]
        return prices.bill([(n, self.B_of(n), C, 1 + len(self.train_points(C))) for n in ns] * self.train_seeds, timing)

    def _refuse_added(self, longer: Mapping[int, int], seeds: Mapping[int, int]) -> None:
        lengths = {r.n: r.C for r in self.of_purpose("pilot")}
        for n, C in longer.items():
            if n not in lengths:
                there = ", ".join(map(str, self.grid))
                raise UserError(f"n = {n} has no pilot runs to continue; there are n = {there}")
            if lengths[n] >= C:
                raise UserError(f"n = {n} has runs of {lengths[n]} rollouts: continue them to more than that, not {C}")
        for n, k in seeds.items():
            if k < 1 or n < 2 or (self.batch and self.batch % n):
                divides = f" that divides n B = {self.batch}" if self.batch else ""
                raise UserError(f"cannot add {k} runs of n = {n}: give one or more, of an n of at least 2{divides}")

    def train_points(self, C: int) -> tuple[int, ...]:
        """Evaluation points of a trained run of C rollouts: the pilot's, and on at the same spacing."""
        return points(C, self.unit, 0) if self.direct else self.evaluation.points(C, self.unit)

    @property
    def unit(self) -> int:
        """The smallest number of rollouts that is a whole number of updates for every arm."""
        return self.batch or whole(self.grid or (self.fallback_n,), self.B)

    def evaluating(self, bill: Bill, timing: Timing | None = None) -> float:
        """What the evaluations of a bill cost over what its training costs, in the budget's unit; 0 if exact.

        Without a budget the unit is rollouts. `timing` is what the bill's seconds were computed by, the plan's own if
        not given.
        """
        if self.evaluation.samples is None:
            return 0.0
        seconds = bill.evaluations * (timing or self.timing).evaluation
        training = replace(bill, seconds=bill.seconds - seconds)
        own = self.prices.sampling(bill.evaluations * self.evaluation.rollouts, seconds)
        return _over(own, training, self.budget)

    def data(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"schema": 1, **asdict(self), "rate": self.rate.data()}

    @staticmethod
    def of(data: Mapping[str, Any]) -> PilotPlan:
        """The plan that `data()` wrote."""
        d = {k: v for k, v in data.items() if k not in ("schema", "units")}
        read: dict[str, Any] = {
            "budget": Budget.of(d["budget"]) if d["budget"] else None, "rate": RateRule.of(d["rate"]),
            "runs": tuple(map(Run.of, d["runs"])), "pilot_bill": Bill.of(d["pilot_bill"]),
            "train_bill": Bill.of(d["train_bill"]), "prices": Prices(**d["prices"]),
            "timing": Timing.of(d["timing"]), "evaluation": Evaluation(**d["evaluation"]),
        }
        fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in (d | read).items()}
        return PilotPlan(**fields)


def _over(part: Bill, whole: Bill, budget: Budget | None) -> float:
    """A bill over another, in the budget's unit, rollouts without one; 0 of what costs nothing in it."""
    unit = budget.unit if budget else "rollouts"
    cost = part.of_unit(unit)
    return cost / whole.of_unit(unit) if cost > 0 else 0.0


def plan_pilot(
    profile: Mapping[str, Any],
    *,
    preset: str = "standard",
    budget: Budget | None = None,
    seed: int = 0,
    parameters: float | None = None,
    rate: RateRule | None = None,
    grid: Sequence[int] | None = None,
    B: int | None = None,
    batch: int | None = None,
    evaluation: Evaluation | None = None,
    timing: Timing | None = None,
    sd: float | None = None,
    worth: float = WORTH,
    attempts: int = 1,
    evaluation_share: float = EVALUATION_SHARE,
    most_samples: int = MOST_SAMPLES,
) -> PilotPlan:
    """The pilot for this profile: the preset's shape at the preset's size, or at the size a budget allows.

    `rate` (a user's rule) replaces the starting rule and spares the probe when it is marked measured. `sd` is a
    measured run-to-run standard deviation of held-out reward; without it 0.02 is assumed, and sampling noise is
    added: that of best@k or worst@k, k `attempts`. With a budget, shapes are tried from the preset's own to smaller
    ones (fewer n, fewer seeds, smaller B), and the first is taken whose runs are long enough and whose detectable
    effect is at most `worth`; if there is none the plan is `direct`. `batch` fixes n B instead of B: the n of the grid
    that divide it, each with batch / n problems per update, all at one learning rate and equally many updates.

    `evaluation` gets as many samples per held-out problem more, up to `most_samples`, as it takes to detect `worth`. It
    is cut until it costs at most `evaluation_share` of training in the budget's unit: first the early points, then
    samples, then held-out problems. Best@k and worst@k keep k samples.

    Raises:
        UserError: for an unknown preset, a grid below 2, a batch that the common default or fewer than two n of the
            grid divide, both B and batch, or a FLOP budget without the model's size.
    """
    shape = _shape(preset, grid, B, batch)
    evaluation = evaluation or Evaluation.of_profile(profile)
    if not evaluation_share > 0:
        raise UserError(f"evaluations cost a share of training: more than 0, not {evaluation_share:g}")
    prices = Prices.of(profile, parameters)
    base = _Ask(
        preset, budget, seed, prices, timing or expected_timing(profile, evaluation.problems, evaluation.samples),
        evaluation, evaluation_share, most_samples, attempts, rate or starting_rule(prices.parameters or 1e8), sd,
        worth, int(profile.get("pool") or 0), *_live_n(profile, shape.grid),
    )
    if budget is None:
        return base.pilot(shape, shape.C, shape.train_C)
    found = base.largest(shape)
    if found is None:
        return base.direct(shape, base.limit(shape))
    smaller, C = found
    shape, train_C = base.training(smaller, C)
    return base.pilot(shape, C, train_C)


def _shape(preset: str, grid: Sequence[int] | None, B: int | None, batch: int | None) -> Preset:
    if preset not in PRESETS:
        raise UserError(f"there is no preset {preset!r}; there are {', '.join(PRESETS)}")
    shape = PRESETS[preset]
    if grid is not None:
        if len(set(grid)) < 2 or min(grid) < 2:
            raise UserError("a grid needs two or more n, none below 2 (the least a group baseline can have), "
                            f"not {list(grid)}")
        shape = replace(shape, grid=tuple(sorted(set(grid))))
    if B is not None:
        if B < 1:
            raise UserError(f"B is problems per update: at least 1, not {B}")
        shape = replace(shape, B=B)
    if batch is not None:
        shape = _fixed(shape, batch, B)
    unit = shape.unit
    sizes = {k: max(1, round(getattr(shape, k) / unit)) * unit for k in ("C", "probe_C", "train_C")}
    return replace(shape, **sizes)


def _fixed(shape: Preset, batch: int, B: int | None) -> Preset:
    """The shape at a fixed n B: of its grid the n that divide it."""
    if B is not None:
        raise UserError(f"B = {B} and n B = {batch} cannot both be fixed: with a fixed batch, B is {batch} / n")
    if batch < 1 or batch % (2 * COMMON):
        raise UserError(f"a fixed batch is n B rollouts per update, a multiple of {2 * COMMON} (so that the common "
                        f"default n = {COMMON} and its double can be compared), not {batch}")
    grid = tuple(n for n in shape.grid if batch % n == 0)
    if len(grid) < 2:
        raise UserError(f"fewer than two n of {list(shape.grid)} divide a batch of {batch}: nothing to trade")
    return replace(shape, grid=grid, B=batch // COMMON, batch=batch)


def _ladder(shape: Preset) -> Iterator[Preset]:
    """The shape, then smaller ones: B halves down to 4, the grid loses its largest n, seeds fall to 3 and to 2.

    A batch that is fixed stays.
    """
    Bs = [shape.B, *(b for b in (shape.B // 2, shape.B // 4) if b >= 4 and not shape.batch)]
    grids = [shape.grid[:k] for k in range(len(shape.grid), min(3, len(shape.grid)) - 1, -1)]
    for seeds in dict.fromkeys((shape.seeds, min(3, shape.seeds), 2)):
        for grid in grids:
            for B in Bs:
                yield replace(shape, grid=grid, B=B, seeds=seeds, probe_seeds=1 if seeds < 5 else shape.probe_seeds,
                              edge_seeds=1 if seeds < 5 else shape.edge_seeds, train_seeds=max(LEAST_SEEDS, seeds))


def _live_n(profile: Mapping[str, Any], grid: Sequence[int]) -> tuple[int, str]:
    """The n to take when nothing was compared: the smallest of which half of the groups carry signal."""
    ns = sorted({n for n in (*grid, COMMON) if n >= 4}) or [max(grid)]
    dead = {d["n"]: d["share"] for d in profile.get("dead", ())}
    if not set(ns) <= set(dead) and profile.get("right"):
        m, told = int(profile["samples"]), profile.get("tallies")
        found = dead_tallies(told, m, ns, draws=2) if told else dead_groups(profile["right"], m, ns, draws=2)
        dead |= {d.n: d.share for d in found}
    known = [n for n in ns if n in dead]
    if not known:
        return COMMON, f"n = {COMMON}, the common default: the profile has no dead-group shares"
    for n in known:
        if dead[n] <= 0.5:
            return n, (f"n = {n}, the smallest from 4 on with at most half of its groups dead "
                       f"({dead[n]:.0%} by the profile)")
    n = min(known, key=lambda k: (dead[k], k))
    return n, f"n = {n}, with the fewest dead groups ({dead[n]:.0%} by the profile; no n tried has half of them alive)"


Size = tuple[int, int, int]     # n, B and C of a run


@dataclass(frozen=True)
class _Ask:
    """What stays the same over the shapes a budget is tried on. `evaluation` and `timing` are those asked for."""

    preset: str
    budget: Budget | None
    seed: int
    prices: Prices
    timing: Timing
    evaluation: Evaluation
    share: float
    most_samples: int
    attempts: int
    rate: RateRule
    measured_sd: float | None
    worth: float
    pool: int
    live_n: int
    live_why: str

    # evaluations ----------------------------------------------------------------------------------------------

    def timed(self, e: Evaluation) -> Timing:
        """Seconds of runs that are evaluated so: an evaluation takes as long as its rollouts do."""
        asked = self.evaluation.rollouts
        return replace(self.timing, evaluation=self.timing.evaluation * e.rollouts / asked) if asked else self.timing

    def sd(self, e: Evaluation) -> float:
        """Standard deviation between runs of one n, as this evaluation reads them."""
        return sqrt(NOISE**2 + e.sd_of(self.attempts) ** 2) if self.measured_sd is None else self.measured_sd

    def sd_source(self, e: Evaluation) -> str:
        if self.measured_sd is not None:
            return "measured"
        sampled = e.sd_of(self.attempts)
        return f"assumed: {NOISE:g} between runs" + (f", {sampled:.3f} of sampling" if sampled else "")

    def effect(self, shape: Preset, e: Evaluation) -> float:
        """The smallest difference between two n that a grid of this shape detects."""
        return detectable(shape.seeds, len(shape.grid), self.sd(e))

    def cost(self, runs: Sequence[Size], many: int, e: Evaluation) -> float:
        """What evaluating runs so `many` times in all costs over what training them does."""
        seconds = self.timed(e).evaluation
        training = self.prices.bill([(*run, 0) for run in runs], self.timing)
        return _over(self.prices.sampling(many * e.rollouts, many * seconds), training, self.budget)

    def needed(self, shape: Preset) -> float:
        """Rollouts over one split, in lots of the metric's attempts, with which this shape detects what is worth it."""
        per = detectable(shape.seeds, len(shape.grid), 1.0)
        return 0.25 / max((self.worth / per) ** 2 - NOISE**2, 1e-9) * (1 - 1e-9)

    def precise(self, shape: Preset) -> Evaluation:
        """The evaluation asked for, with as many samples more as this shape needs, and as there may be."""
        e = self.evaluation
        if e.samples is None or self.effect(shape, e) <= self.worth:
            return e
        samples = ceil(self.needed(shape) / (e.problems / 2)) * self.attempts
        return replace(e, samples=max(e.samples, min(samples, self.most_samples)))

    def evaluated(self, shape: Preset, runs: Sequence[Size]) -> Evaluation:
        """The evaluation that a grid of this shape needs, cut to what its runs may spend on it."""
        asked = self.precise(shape)
        if asked.samples is None:
            return asked
        every = asked.points(max(C for *_, C in runs), shape.unit)
        for first in (None, *every[1 : len(every) - LEAST_POINTS + 1]):
            e = replace(asked, first=first)
            cost = self.cost(runs, _evaluations(e, runs, shape.unit), e)
            if cost <= self.share:
                return e
        return self.fewer(e, cost)

    def fewer(self, e: Evaluation, cost: float) -> Evaluation:
        """An evaluation that costs `cost` of training with as many samples, then problems, as cost the share allowed.

        At least `LEAST_EVALUATED` rollouts are kept, and as many samples as the metric is of.
        """
        if e.samples is None or cost <= self.share:
            return e
        most = max(int(e.rollouts * self.share / cost), min(LEAST_EVALUATED, e.problems * self.attempts))
        samples = max(min(e.samples, most // e.problems), self.attempts)
        problems = min(e.problems, max(most // samples, 2))
        return replace(e, samples=samples, problems=problems, held_out=e.problems if problems < e.problems else None)

    def told(self, e: Evaluation, cost: float) -> tuple[str, ...]:
        """What a user should know of an evaluation: what it was cut from, or that it costs more than it should."""
        asked, out = self.evaluation, []
        assert e.samples is None or asked.samples is not None
        if e != asked:
            samples = f"{e.samples} instead of {asked.samples} samples per held-out problem"
            kept = [samples if e.samples != asked.samples else "",
                    f"{e.problems} of {asked.problems} held-out problems" if e.problems != asked.problems else "",
                    f"no evaluation between the base and {e.first:,} rollouts" if e.first else ""]
            out.append(f"evaluations are planned to cost at most {self.share:.0%} of training: "
                       f"{', '.join(filter(None, kept))}. The standard error of one is at most "
                       f"{e.sd_of(self.attempts):.3f}, as asked for it would be {asked.sd_of(self.attempts):.3f}")
        if cost > self.share:
            out.append(f"evaluations cost {cost:.3g} times what training costs, more than {self.share:g}: fewer than "
                       f"{LEAST_EVALUATED} rollouts an evaluation measure nothing")
        return tuple(out)

    # the pilot ------------------------------------------------------------------------------------------------

    def pilot_runs(self, shape: Preset, C: int) -> tuple[Run, ...]:
        unit = shape.unit
        ends = (min(shape.grid), max(shape.grid))
        probe_C = max(unit, round(C * shape.probe_C / shape.C / unit) * unit)
        probes = () if self.rate.measured else make_runs(
            self.seed, "probe", ends, shape.B, probe_C, shape.probe_seeds, MULTIPLIERS, shape.batch
        )
        grid = make_runs(self.seed, "pilot", shape.grid, shape.B, C, shape.seeds, batch=shape.batch)
        edges = make_runs(self.seed, "edge", ends, shape.B, C, shape.edge_seeds, EDGES, shape.batch)
        return (*probes, *grid, *edges)

    def pilot_evaluation(self, shape: Preset, C: int) -> Evaluation:
        """How the runs of such a pilot, and those trained after it, are evaluated."""
        return self.evaluated(shape, _sizes(self.pilot_runs(shape, C)))

    def bill(self, shape: Preset, runs: Sequence[Size], e: Evaluation) -> Bill:
        each = {C: 1 + len(e.points(C, shape.unit)) for C in {C for *_, C in runs}}
        return self.prices.bill([(*run, each[run[2]]) for run in runs], self.timed(e))

    def pilot_bill(self, shape: Preset, C: int) -> Bill:
        return self.bill(shape, _sizes(self.pilot_runs(shape, C)), self.pilot_evaluation(shape, C))

    def train_bill(self, shape: Preset, C: int, e: Evaluation) -> Bill:
        """Expected before the law: arms at the grid's middle n and at the common default."""
        arms = (shape.grid[len(shape.grid) // 2], COMMON)
        return self.bill(shape, [(n, shape.B_of(n), C) for n in arms for _ in range(shape.train_seeds)], e)

    def largest(self, shape: Preset) -> tuple[Preset, int] | None:
        """(shape, C) of the first pilot on the ladder that the budget pays for and that is precise enough, if any."""
        for smaller in _ladder(shape):
            least = self.shortest(smaller)
            if least is None or not self.within(smaller, least):
                continue
            C = self.largest_pilot(smaller)
            if least <= C and self.detects(smaller, C):
                return smaller, C
        return None

    def detects(self, shape: Preset, C: int) -> bool:
        """Whether a pilot of runs of C rollouts is evaluated precisely enough."""
        return self.effect(shape, self.pilot_evaluation(shape, C)) <= self.worth

    def shortest(self, shape: Preset) -> int | None:
        """The fewest rollouts per run that are updates enough and pay for evaluations precise enough; None if none."""
        least = ceil(LEAST_UPDATES * max(n * shape.B_of(n) for n in shape.grid) / shape.unit)
        if self.effect(shape, self.precise(shape)) > self.worth:
            return None
        short = _most(lambda k: not self.detects(shape, (least + k - 1) * shape.unit), 2**24)
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

        k = _most(lambda k: self.within(shape, k * unit))
        for _ in range(24):     # whole updates and whole seeds leave a remainder that training cannot spend
            if k and 2 * pilot(k) > self.trained(shape, k * unit).of_unit(name):
                k = min(k - 1, int(0.97 * k))
        return k * unit

    def trained(self, shape: Preset, C: int) -> Bill:
        """What is trained after a pilot of runs of C rollouts."""
        larger, train_C = self.training(shape, C)
        return self.train_bill(larger, train_C, self.pilot_evaluation(shape, C))

    def training(self, shape: Preset, C: int) -> tuple[Preset, int]:
        """(shape, rollouts per trained run) that the rest of the budget pays for, at most eight times the pilot's.

        What that cap leaves over buys more seeds, up to twice as many: they narrow the forecast.
        """
        assert self.budget is not None
        name, unit, seeds, e = self.budget.unit, shape.unit, shape.train_seeds, self.pilot_evaluation(shape, C)
        left = self.budget.amount - self.pilot_bill(shape, C).of_unit(name)
        k = _most(lambda k: self.train_bill(shape, k * unit, e).of_unit(name) <= left, EXTRAPOLATION * C // unit)
        train_C = max(1, k) * unit
        more = int(left / self.train_bill(replace(shape, train_seeds=1), train_C, e).of_unit(name))
        return replace(shape, train_seeds=min(max(seeds, more), 2 * seeds)), train_C

    def pilot(self, shape: Preset, C: int, train_C: int) -> PilotPlan:
        unit = shape.unit
        runs, e = self.pilot_runs(shape, C), self.pilot_evaluation(shape, C)
        probe_C = next((r.C for r in runs if r.purpose == "probe"), C)
        effect = self.effect(shape, e)
        sizes = f"n B = {shape.batch}, {counted(C // shape.batch, 'update')} each" if shape.batch else f"B = {shape.B}"
        why = (f"{len(shape.grid)} n x {shape.seeds} seeds x {C} rollouts, {sizes}; "
               f"sees differences of {effect:.3f} between two n ({POWER:.0%} power, {LEVEL:.0%} level)")
        cost = self.cost(_sizes(runs), _evaluations(e, _sizes(runs), unit), e)
        flags = self.told(e, cost)
        if effect > self.worth and self.effect(shape, replace(e, samples=None)) <= self.worth:
            flags += (f"imprecise evaluations: this pilot detects no difference below {effect:.3f} between two n "
                      f"(worth detecting: {self.worth:g}). {self.enough(shape, e)}",)
        return self._plan(
            shape, False, why, e, runs=runs, C=C, points=e.points(C, unit), probe_points=e.points(probe_C, unit),
            train_C=train_C, train_arms=2, train_seeds=shape.train_seeds, detectable=effect, flags=flags,
            pilot_bill=self.pilot_bill(shape, C), train_bill=self.train_bill(shape, train_C, e),
        )

    # no pilot -------------------------------------------------------------------------------------------------

    def limit(self, shape: Preset) -> str:
        """Why the budget is planned without a pilot: what is too small, and the least of it that would do."""
        assert self.budget is not None
        best = max(_ladder(shape), key=lambda s: (s.seeds, len(s.grid)))
        e = self.precise(best)
        effect = self.effect(best, e)
        if effect <= self.worth:
            least, share = self.least_budget(shape), self.least_share(shape)
            dearer = f"evaluations that cost more (`isocost plan --evaluation-share {share:g}`)" if share else ""
            would = [f"a budget of at least {least}" if least else "", dearer]
            more = f". What would do: {', or '.join(filter(None, would))}" if any(would) else ""
            return (f"{self.budget} cannot pay for a pilot whose runs are long enough ({LEAST_UPDATES} updates of the "
                    f"largest n) and which detects differences of {self.worth:g} between two n{more}")
        known = f"{counted(best.seeds, 'seed')} of {len(best.grid)} n detect only differences above {effect:.3f}"
        if e.samples is not None and self.effect(best, replace(e, samples=None)) <= self.worth:
            return (f"no budget pays for a pilot here: {e.problems} held-out problems with at most "
                    f"{counted(e.samples, 'sample')} each are too few. {known} (worth detecting: {self.worth:g}). "
                    f"{self.enough(best, e)}")
        seeds = next((k for k in range(best.seeds, MOST_SEEDS) if detectable(k, len(best.grid), self.sd(e))
                      <= self.worth), None)
        needed = f"it would take {seeds} seeds" if seeds else f"more than {MOST_SEEDS} seeds would not do either"
        return (f"no budget pays for a pilot here: runs of one n differ by {self.sd(e):.3f} ({self.sd_source(e)}), so "
                f"{known} (worth detecting: {self.worth:g}); {needed}")

    def enough(self, shape: Preset, e: Evaluation) -> str:
        """The fewest samples, or held-out problems, with which this shape detects what is worth it."""
        assert e.samples is not None
        needed, held_out = self.needed(shape), self.evaluation.problems
        samples = ceil(needed / (held_out / 2)) * self.attempts
        problems = 2 * ceil(needed / max(e.samples // self.attempts, 1))
        whole = self.pool + held_out
        more = f"`isocost profile --held-out {problems}`"
        if self.pool and problems >= whole:
            more = f"a set of at least {ceil(problems * whole / held_out):,} problems; this one has {whole:,}"
        return (f"What would do: {samples} samples per held-out problem (`isocost plan --samples {samples}`), or "
                f"{problems:,} held-out problems ({more})")

    def least_budget(self, shape: Preset) -> str:
        """The smallest budget that pays for a pilot, as a user writes it; empty where none is found."""
        assert self.budget is not None
        own, costs = self.budget, []
        for smaller in _ladder(shape):
            least = self.shortest(smaller)
            if least is not None:
                costs.append(self.pilot_bill(smaller, least).of_unit(own.unit) / PILOT_SHARE)

        def pays(amount: float) -> bool:
            return replace(self, budget=replace(own, amount=amount)).largest(shape) is not None

        tried = [1.1**k * min(costs) for k in range(40) if costs]       # whole updates take a little more than this
        high = next((amount for amount in tried if pays(amount)), None)
        if high is None:
            return ""
        low = max(high / 1.1, own.amount)
        while high > 1.005 * low:
            middle = sqrt(low * high)
            low, high = (low, middle) if pays(middle) else (middle, high)
        return worded(own, high)

    def least_share(self, shape: Preset) -> float | None:
        """The share of training that evaluations need for this budget to pay for a pilot; None if none would do."""
        free = replace(self, share=float("inf"))
        found = None if self.evaluation.samples is None else free.largest(shape)
        if found is None:
            return None
        runs, e = _sizes(free.pilot_runs(*found)), free.pilot_evaluation(*found)
        low, high = self.share, free.cost(runs, _evaluations(e, runs, found[0].unit), e)
        while high - low > 0.01:
            middle = (low + high) / 2
            low, high = (low, middle) if replace(self, share=middle).largest(shape) else (middle, high)
        return ceil(100 * high) / 100

    def direct(self, shape: Preset, why: str) -> PilotPlan:
        """No pilot: the whole budget trains the fallback, against the common default where two arms are affordable."""
        assert self.budget is not None
        name, n = self.budget.unit, self.live_n
        B = max(1, DIRECT_BATCH // n)
        shape = replace(shape, B=shape.B if shape.batch else B, grid=())
        unit = shape.batch or lcm(n * B, COMMON * B)
        for arms, seeds in ((2, 3), (1, 3), (1, 1)):
            ns = (n, COMMON if n != COMMON else 2 * n)[:arms]

            def runs(C: int, ns: tuple[int, ...] = ns, seeds: int = seeds) -> list[Size]:
                return [(k, shape.B_of(k), C) for k in ns for _ in range(seeds)]

            def read(C: int, runs: Any = runs) -> Evaluation:
                return self.fewer(self.evaluation, self.cost(runs(C), 3 * len(runs(C)), self.evaluation))

            def bill(C: int, runs: Any = runs, read: Any = read) -> Bill:
                return self.prices.bill([(*run, 1 + len(points(C, unit, 0))) for run in runs(C)], self.timed(read(C)))

            C = unit * _most(lambda k, bill=bill: bill(k * unit).of_unit(name) <= self.budget.amount)
            if C // unit >= LEAST_TRAINING:
                break
        if C == 0:
            raise UserError(f"{self.budget} does not pay for one update of {unit} rollouts"
                            f"{'' if self.evaluation.samples is None else ' and its evaluations'}: give at least "
                            f"{worded(self.budget, bill(unit).of_unit(name))}")
        nothing = Bill(0, 0.0, None if self.prices.parameters is None else 0.0, 0.0, 0, None, None)
        e = read(C)
        flags = self.told(e, self.cost(runs(C), 3 * len(runs(C)), e))
        if not self.rate.measured:
            flags += ("the learning rate is " + self.rate.why,)
        flags += (self.unknown(arms, seeds),)
        if self.pool and DIRECT_EPOCHS * n * self.pool < C:
            flags += (f"each run makes {C / (n * self.pool):,.0f} passes over {self.pool} training problems, and "
                      "nothing measured here says that reward still rises so late: a smaller budget may do as well",)
        return self._plan(
            shape, True, why, e, runs=(), C=0, points=(), probe_points=(), train_C=C, train_arms=arms,
            train_seeds=seeds, detectable=None, pilot_bill=nothing, train_bill=bill(C), flags=flags,
        )

    @staticmethod
    def unknown(arms: int, seeds: int) -> str:
        """What a plan without a pilot cannot say, and what its runs will show."""
        lead = "not known without a pilot: which n is best and what reward to expect, so nothing is forecast and the " \
               "audit answers \"cannot tell\""
        if seeds == 1:
            return f"{lead}. What one run shows is its own gain over the base, and nothing about other runs"
        both = " and the difference between the two n" if arms > 1 else ""
        return f"{lead}. What the runs will show: the gain over the base{both}, with intervals over {seeds} seeds"

    def _plan(self, shape: Preset, direct: bool, why: str, e: Evaluation, **rest: Any) -> PilotPlan:
        return PilotPlan(
            preset=self.preset, budget=self.budget, seed=self.seed, direct=direct, why=why, grid=shape.grid, B=shape.B,
            seeds=0 if direct else shape.seeds, rate=self.rate, prices=self.prices, timing=self.timed(e),
            evaluation=e, sd=self.sd(e), sd_source=self.sd_source(e), fallback_n=self.live_n,
            fallback_why=self.live_why, batch=shape.batch, **rest,
        )


def _sizes(runs: Sequence[Run]) -> list[Size]:
    return [(r.n, r.B, r.C) for r in runs]


def _evaluations(e: Evaluation, runs: Sequence[Size], unit: int) -> int:
    """How often these runs are evaluated in all, the base included."""
    many = Counter(C for *_, C in runs)
    return sum(k * (1 + len(e.points(C, unit))) for C, k in many.items())


def _most(fits: Any, cap: int = 2**40) -> int:
    """The largest k in 0..cap that fits, where fitting once false stays false."""
    low, high = 0, 1
    while high <= cap and fits(high):
        low, high = high, 2 * high
    high = min(high, cap + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
