"""The pilot: which runs, how long, at what cost, and the smallest effect they would see, fixed before any is begun.

C = n B M rollouts: n per problem, B problems per update, M updates. A budget is what pilot and training may spend. The
pilot takes at most a third, so that it costs at most half of what training the prescription costs, and its largest
run is at least an eighth of the prescribed one. Where a budget cannot pay for a pilot that sees an effect worth
seeing, the plan is `direct`: no grid, and a named fallback.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import ceil, floor, lcm, sqrt
from typing import Any

from scipy.special import stdtrit

from isocost.chance import Purpose, generator
from isocost.errors import UserError
from isocost.laws.budget import Bill, Budget, Prices, Timing, expected_timing
from isocost.laws.passrate import dead_groups
from isocost.laws.rate import EDGES, MULTIPLIERS, NOISE, RateRule, starting_rule
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
    """How held-out reward is read: on how many problems, by how many samples each (None: exactly).

    One half of the problems chooses and the other is reported, so a value is the mean over one half.
    """

    problems: int = 256
    samples: int | None = None

    @property
    def sd(self) -> float:
        """Standard deviation that sampling adds to one evaluation, at the widest (pass rate 1/2); 0 if exact."""
        return self.sd_of(1)

    def sd_of(self, attempts: int) -> float:
        """The same of best@k or worst@k, k attempts: at most that of the samples parted into whole lots of k."""
        return 0.0 if self.samples is None else 0.5 / sqrt(self.problems / 2 * max(self.samples // attempts, 1))

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

    def lr(self, rule: RateRule) -> float:
        """The rate this run takes under a rule: the starting rule for probes, the fitted one for all others."""
        return rule.at(self.n * self.B, self.multiplier)


def warmup(M: int) -> int:
    """Updates of linear warm-up in a run of M: at most 5 % of it, and at most 10."""
    return min(WARMUP_MOST, floor(WARMUP_SHARE * M))


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
        per, unit = _per_doubling(self.evaluation), self.points[0]      # as it was before any n joined the grid
        first = points(run.first_C, unit, per) if run.first_C else ()
        return (*first, *(x for x in points(run.C, unit, per) if not first or x > first[-1]))

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
        per = _per_doubling(self.evaluation)
        made = replace(wider, runs=tuple(runs), C=C, points=points(C, self.points[0], per))
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
        return points(C, self.unit, 0 if self.direct else _per_doubling(self.evaluation))

    @property
    def unit(self) -> int:
        """The smallest number of rollouts that is a whole number of updates for every arm."""
        return self.batch or whole(self.grid or (self.fallback_n,), self.B)

    def data(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"schema": 1, **asdict(self), "rate": self.rate.data()}

    @staticmethod
    def of(data: Mapping[str, Any]) -> PilotPlan:
        """The plan that `data()` wrote."""
        d = {k: v for k, v in data.items() if k not in ("schema", "units")}
        read: dict[str, Any] = {
            "budget": Budget.of(d["budget"]) if d["budget"] else None, "rate": RateRule.of(d["rate"]),
            "runs": tuple(Run(**r) for r in d["runs"]), "pilot_bill": Bill.of(d["pilot_bill"]),
            "train_bill": Bill.of(d["train_bill"]), "prices": Prices(**d["prices"]),
            "timing": Timing.of(d["timing"]), "evaluation": Evaluation(**d["evaluation"]),
        }
        fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in (d | read).items()}
        return PilotPlan(**fields)


def _per_doubling(evaluation: Evaluation) -> int:
    return 2 if evaluation.samples is None else 1


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
) -> PilotPlan:
    """The pilot for this profile: the preset's shape at the preset's size, or at the size a budget allows.

    `rate` (a user's rule) replaces the starting rule and spares the probe when it is marked measured. `sd` is a
    measured run-to-run standard deviation of held-out reward; without it 0.02 is assumed, and sampling noise is
    added: that of best@k or worst@k, k `attempts`. With a budget, shapes are tried from the preset's own to smaller
    ones (fewer n, fewer seeds, smaller B), and the first is taken whose runs are long enough and whose detectable
    effect is at most `worth`; if there is none the plan is `direct`. `batch` fixes n B instead of B: the n of the grid
    that divide it, each with batch / n problems per update, all at one learning rate and equally many updates.

    Raises:
        UserError: for an unknown preset, a grid below 2, a batch that the common default or fewer than two n of the
            grid divide, both B and batch, or a FLOP budget without the model's size.
    """
    shape = _shape(preset, grid, B, batch)
    evaluation = evaluation or Evaluation.of_profile(profile)
    prices = Prices.of(profile, parameters)
    base = _Ask(
        preset, budget, seed, prices, timing or expected_timing(profile, evaluation.problems, evaluation.samples),
        evaluation, rate or starting_rule(prices.parameters or 1e8), *_noise(sd, evaluation.sd_of(attempts)),
        *_live_n(profile, shape.grid),
    )
    if budget is None:
        return base.pilot(shape, shape.C, shape.train_C)
    seen = "its runs would be too short to say anything"
    for smaller in _ladder(shape):
        C = base.largest_pilot(smaller)
        least = LEAST_UPDATES * max(n * smaller.B_of(n) for n in smaller.grid)
        if least > C:
            continue
        effect = detectable(smaller.seeds, len(smaller.grid), base.sd)
        if effect > worth:
            seen = f"it would see only differences above {effect:.2f} (worth seeing: {worth:g})"
            continue
        shape, train_C = base.training(smaller, C)
        return base.pilot(shape, C, train_C)
    return base.direct(shape, f"{budget} cannot pay for a pilot: {seen}")


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


def _noise(sd: float | None, sampled: float) -> tuple[float, str]:
    if sd is not None:
        return float(sd), "measured"
    both = sqrt(NOISE**2 + sampled**2)
    return both, f"assumed: {NOISE:g} between runs" + (f", {sampled:.3f} of sampling" if sampled else "")


def _live_n(profile: Mapping[str, Any], grid: Sequence[int]) -> tuple[int, str]:
    """The n to take when nothing was compared: the smallest of which half of the groups carry signal."""
    ns = sorted({n for n in (*grid, COMMON) if n >= 4}) or [max(grid)]
    dead = {d["n"]: d["share"] for d in profile.get("dead", ())}
    if not set(ns) <= set(dead) and profile.get("right"):
        found = dead_groups(profile["right"], int(profile["samples"]), ns, draws=2)
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


@dataclass(frozen=True)
class _Ask:
    """What stays the same over the shapes a budget is tried on."""

    preset: str
    budget: Budget | None
    seed: int
    prices: Prices
    timing: Timing
    evaluation: Evaluation
    rate: RateRule
    sd: float
    sd_source: str
    live_n: int
    live_why: str

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

    def evaluations(self, C: int, unit: int) -> int:
        return 1 + len(points(C, unit, _per_doubling(self.evaluation)))

    def pilot_bill(self, shape: Preset, C: int) -> Bill:
        unit = shape.unit
        runs = self.pilot_runs(shape, C)
        return self.prices.bill([(r.n, r.B, r.C, self.evaluations(r.C, unit)) for r in runs], self.timing)

    def train_bill(self, shape: Preset, C: int) -> Bill:
        """Expected before the law: arms at the grid's middle n and at the common default."""
        unit = shape.unit
        arms = (shape.grid[len(shape.grid) // 2], COMMON)
        sizes = [(n, shape.B_of(n), C, self.evaluations(C, unit)) for n in arms for _ in range(shape.train_seeds)]
        return self.prices.bill(sizes, self.timing)

    def largest_pilot(self, shape: Preset) -> int:
        """The largest C per run whose pilot costs at most a third of the budget, and half of training; 0 if none."""
        assert self.budget is not None
        name, most, unit = self.budget.unit, PILOT_SHARE * self.budget.amount, shape.unit

        def pilot(k: int) -> float:
            return self.pilot_bill(shape, k * unit).of_unit(name)

        k = _most(lambda k: pilot(k) <= most)
        for _ in range(24):     # whole updates and whole seeds leave a remainder that training cannot spend
            if k and 2 * pilot(k) > self.train_bill(*self.training(shape, k * unit)).of_unit(name):
                k = min(k - 1, int(0.97 * k))
        return k * unit

    def training(self, shape: Preset, C: int) -> tuple[Preset, int]:
        """(shape, rollouts per trained run) that the rest of the budget pays for, at most eight times the pilot's.

        What that cap leaves over buys more seeds, up to twice as many: they narrow the forecast.
        """
        assert self.budget is not None
        name, unit, seeds = self.budget.unit, shape.unit, shape.train_seeds
        left = self.budget.amount - self.pilot_bill(shape, C).of_unit(name)
        k = _most(lambda k: self.train_bill(shape, k * unit).of_unit(name) <= left, EXTRAPOLATION * C // unit)
        train_C = max(1, k) * unit
        more = int(left / self.train_bill(replace(shape, train_seeds=1), train_C).of_unit(name))
        return replace(shape, train_seeds=min(max(seeds, more), 2 * seeds)), train_C

    def pilot(self, shape: Preset, C: int, train_C: int) -> PilotPlan:
        unit = shape.unit
        runs = self.pilot_runs(shape, C)
        per = _per_doubling(self.evaluation)
        probe_C = next((r.C for r in runs if r.purpose == "probe"), C)
        effect = detectable(shape.seeds, len(shape.grid), self.sd)
        sizes = f"n B = {shape.batch}, {counted(C // shape.batch, 'update')} each" if shape.batch else f"B = {shape.B}"
        why = (f"{len(shape.grid)} n x {shape.seeds} seeds x {C} rollouts, {sizes}; "
               f"sees differences of {effect:.3f} between two n ({POWER:.0%} power, {LEVEL:.0%} level)")
        return self._plan(
            shape, False, why, runs=runs, C=C, points=points(C, unit, per), probe_points=points(probe_C, unit, per),
            train_C=train_C, train_arms=2, train_seeds=shape.train_seeds, detectable=effect,
            pilot_bill=self.pilot_bill(shape, C), train_bill=self.train_bill(shape, train_C),
        )

    def direct(self, shape: Preset, why: str) -> PilotPlan:
        """No pilot: the whole budget trains the fallback, against the common default where two arms are affordable."""
        assert self.budget is not None
        name, n = self.budget.unit, self.live_n
        B = max(1, DIRECT_BATCH // n)
        shape = replace(shape, B=shape.B if shape.batch else B, grid=())
        unit = shape.batch or lcm(n * B, COMMON * B)
        for arms, seeds in ((2, 3), (1, 3), (1, 1)):
            ns = (n, COMMON if n != COMMON else 2 * n)[:arms]

            def bill(C: int, ns: tuple[int, ...] = ns, seeds: int = seeds) -> Bill:
                return self.prices.bill([(k, shape.B_of(k), C, 3) for k in ns for _ in range(seeds)], self.timing)

            C = unit * _most(lambda k, bill=bill: bill(k * unit).of_unit(name) <= self.budget.amount)
            if C // unit >= LEAST_TRAINING:
                break
        if C == 0:
            raise UserError(f"{self.budget} does not pay for one update of {unit} rollouts")
        nothing = Bill(0, 0.0, None if self.prices.parameters is None else 0.0, 0.0, 0, None, None)
        flags: tuple[str, ...] = ()
        if not self.rate.measured:
            flags += ("the learning rate is " + self.rate.why,)
        if seeds == 1:
            flags += ("one run: its own final minus initial can be told over problems, but nothing about other runs",)
        return self._plan(
            shape, True, why, runs=(), C=0, points=(), probe_points=(), train_C=C, train_arms=arms, train_seeds=seeds,
            detectable=None, pilot_bill=nothing, train_bill=bill(C), flags=flags,
        )

    def _plan(self, shape: Preset, direct: bool, why: str, **rest: Any) -> PilotPlan:
        return PilotPlan(
            preset=self.preset, budget=self.budget, seed=self.seed, direct=direct, why=why, grid=shape.grid, B=shape.B,
            seeds=0 if direct else shape.seeds, rate=self.rate, prices=self.prices, timing=self.timing,
            evaluation=self.evaluation, sd=self.sd, sd_source=self.sd_source, fallback_n=self.live_n,
            fallback_why=self.live_why, batch=shape.batch, **rest,
        )


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
