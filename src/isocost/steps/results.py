"""What the steps return: frozen dataclasses. `to_dict()` of each is exactly what its command prints with --json.

Where the planner or the laws have a dataclass for it, the result is that dataclass with further fields of the study's
record; `data()` stays the planner's, which forecasts are sealed from. Rewards are held-out rewards between 0 and 1,
C is in rollouts, learning rates are per update, and seconds are of run time unless a field says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

from isocost.display import Shown
from isocost.laws import law as laws
from isocost.laws.curves import PASS
from isocost.planner import audit as audits
from isocost.planner import forecast as forecasts
from isocost.planner import pilot as pilots
from isocost.planner import prescription as plans
from isocost.planner.budget import Bill
from isocost.planner.learning_rate import RateRule, Shift
from isocost.planner.more import More
from isocost.planner.n_growth import NGrowth
from isocost.planner.seeds import ComparisonPower
from isocost.planner.turn_limits import LimitChoice
from isocost.runs.files import SCHEMA
from isocost.stats.intervals import Interval
from isocost.units import ROLLOUTS

T = TypeVar("T")
Data = Mapping[str, Any]
MOST_CUT = 0.1      # share of completions that may be cut at the length limit without a warning


def folder_field() -> Any:
    """The folder of the study that a result is of: it takes no part in comparisons."""
    return field(default=None, compare=False, repr=False)


def _part(cls: type[T], whole: Any) -> T:
    """The fields of one dataclass, from an object that has them."""
    return cls(**{f.name: getattr(whole, f.name) for f in fields(cls)})  # type: ignore[arg-type]    # T is not bound to dataclasses


def _all(whole: Any) -> dict[str, Any]:
    return {f.name: getattr(whole, f.name) for f in fields(whole)}


# profile ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Profile(Shown):
    """What the model can do on the problems before training: `samples` completions of each profiled problem.

    model, parameters: the model and how many weights it has; None where that is not known.
    problems: how many were profiled; pool, select, audit: sizes of the training problems, the validation split and the
        test split.
    ids, levels: of the profiled problems, in order; levels are None where the data has none.
    right: per problem, how many of `samples` completions earned more than 1/2; assign, report: the same, of the first
        and the second half of the completions.
    mean: mean reward (pass@1 where rewards are 0 or 1); h: share of problems with at most one completion right.
    histogram: problems by how many completions were right, or by mean reward where `graded`.
    regime, why: the name of the histogram's shape, and the reason.
    dead: per n, the share of groups whose rewards are all equal, with its interval.
    bands: problems by difficulty, chosen on one half of the completions and reported on the other.
    lengths: tokens per completion: mean, p50, p90, p99, max, and `truncated`, the share cut at the limit; None where
        no token was counted, as `rate` where nothing was sampled.
    pass_at: pass@k per k with its interval, of rewards 0 and 1.
    exact: whether held-out pass@1 is computed exactly; solutions: share of problems with a solution.
    rate: completions and tokens per second here; cost, lost: what the profile sampled, and what of it was not used.
    seconds: wall-clock seconds. unscored: completions without a reward, by kind in `verifier_failures`.
    recipe: the method that follows, and why; methods: every method's preconditions here.
    found: what was found in the data; examples: completions as text.
    server: counts of requests to a model's server; money: what sampling cost at the price given; stored: the file of
        completions that were not sampled here.
    dialogues: success by turns, ends, faults and the cost of a success, where there is an environment.
    by_limit: per turn limit, success, cost, pass@k and dead groups, of the same completions cut after so many turns.
    columns: what every problem carries besides its prompt and answer.
    graded, rewards, tallies, unsolved: only of rewards other than 0 and 1. A field that a record lacks is None.
    """

    record: ClassVar[str] = "profile"
    sections: ClassVar[tuple[str, ...]] = ("profile",)

    samples: int
    right: Sequence[int]
    mean: float
    histogram: Sequence[int]
    regime: str
    why: str
    dead: Sequence[Data]
    recipe: Data
    methods: Sequence[Data]
    lengths: Data | None
    rate: Data | None
    found: Sequence[str]
    model: str = ""
    parameters: int | None = 0
    problems: int = 0
    pool: int = 0
    select: int = 0
    audit: int = 0
    ids: Sequence[str] = ()
    levels: Sequence[Any] = ()
    assign: Sequence[float] = ()
    report: Sequence[float] = ()
    h: float | None = None
    bands: Any = None
    exact: bool = False
    solutions: float = 0.0
    cost: Data | None = None
    lost: Data | None = None
    seconds: float = 0.0
    unscored: int | None = None
    verifier_failures: Data | None = None
    verifier_examples: Data | None = None
    examples: Sequence[Data] = ()
    graded: bool | None = None
    rewards: Sequence[float] | None = None
    tallies: Sequence[Any] | None = None
    unsolved: float | None = None
    pass_at: Sequence[Data] = ()
    server: Data | None = None
    money: Data | None = None
    stored: Data | None = None
    dialogues: Data | None = None
    by_limit: Sequence[Data] | None = None
    columns: Sequence[str] | None = None
    folder: Path | None = folder_field()

    @classmethod
    def of(cls, data: Data, folder: Path | None = None) -> Self:
        """From profile.json."""
        known = {f.name for f in fields(cls)}
        return cls(**{k: v for k, v in data.items() if k in known}, folder=folder)

    def to_dict(self) -> dict[str, Any]:
        """profile.json."""
        return {"schema": SCHEMA} | {k: v for k, v in _all(self).items() if v is not None and k != "folder"}


@dataclass(frozen=True)
class ProfileCost(Shown):
    """What a profile would cost at most: rollouts, tokens (prompts and completions), FLOP, MB of memory and of disk.

    `seconds` is None: the profile itself measures the speed here. `flops` is None for a model of unknown size. Without
    `prompts` the tokens are those of completions alone; `money` is what the tokens cost at the price given.
    """

    model: str
    data: str
    problems: int
    rollouts: int
    tokens: int
    flops: float | None
    memory_mb: int
    disk_mb: int
    seconds: None = None
    prompts: bool = True
    money: Data | None = None

    def to_dict(self) -> dict[str, Any]:
        """Every field."""
        return _all(self)


# pilot --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PilotPlan(pilots.PilotPlan, Shown):
    """The pilot's plan (fields as in `isocost.planner.pilot.PilotPlan`), and its cost.

    units: the budget in every unit, and the machine that hours and money are for; None where none was written.
    profiled: rollouts that the profile sampled, which no budget counts; None in a dry run.
    overridden: which of the method's own sizes and settings the study uses and which it sets itself; may be empty.
    elsewhere: what to do with the runs where isocost cannot launch them; else empty.
    """

    record: ClassVar[str] = "pilot"
    sections: ClassVar[tuple[str, ...]] = ("pilot",)

    units: Data | None = None
    profiled: int | None = None
    overridden: str = ""
    elsewhere: str = ""
    folder: Path | None = folder_field()

    @classmethod
    def beside(cls, planned: pilots.PilotPlan, **beside: Any) -> PilotPlan:
        """A plan with the fields of this class."""
        return cls(**_all(_part(pilots.PilotPlan, planned)), **beside)

    def data(self) -> dict[str, Any]:
        """The planner's own data."""
        return _part(pilots.PilotPlan, self).data()

    def to_dict(self) -> dict[str, Any]:
        """pilot.json; without `units` where none was written."""
        return self.data() | ({} if self.units is None else {"units": self.units})


@dataclass(frozen=True)
class Pilot(Shown):
    """A pilot that has run: the learning rate rule its probe supports, and whether the best n depends on the rate."""

    record: ClassVar[str] = "rate"
    sections: ClassVar[tuple[str, ...]] = ("rate",)

    rate: RateRule
    shift: Shift
    folder: Path | None = folder_field()

    def to_dict(self) -> dict[str, Any]:
        """rate.json, and shift.json as `shift`."""
        return {"schema": SCHEMA, **self.rate.data(), "shift": self.shift.data()}


# law ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Law(laws.Law, Shown):
    """The law of a study (fields as in `isocost.laws.law.Law`).

    metric: what its rewards are: pass@1, best@4 or worst@4.
    interference: per n, the shares of held-out problems that regressed and how uniform the gains were; not in
        `to_dict()`.
    turn_limit: the turn limits that the pilot compares, and the one that the law is of; None with fewer than two.
    extendable: whether runs can be added to the study's pilot. splits: whether held-out problems are divided into a
        validation and a test split. advice: what one imported run needs for a plan.
    binned: whether the curves are fitted to means over bins of evaluations, as those of long logs are. unit: of C.
    """

    record: ClassVar[str] = "law"
    sections: ClassVar[tuple[str, ...]] = ("curves", "fit", "frontier")

    metric: str = PASS
    interference: tuple[Data, ...] = ()
    extendable: bool = False
    splits: bool = True
    advice: str = ""
    binned: bool = False
    unit: str = ROLLOUTS
    turn_limit: LimitChoice | None = None
    folder: Path | None = folder_field()

    @classmethod
    def beside(cls, law: laws.Law, **beside: Any) -> Law:
        """A law with the fields of this class."""
        return cls(**_all(_part(laws.Law, law)), **beside)

    def data(self) -> dict[str, Any]:
        """The law's own data."""
        return _part(laws.Law, self).data()

    def to_dict(self) -> dict[str, Any]:
        """law.json."""
        limit = {} if self.turn_limit is None else {"turn_limit": self.turn_limit.data()}
        return self.data() | {"metric": self.metric} | limit


@dataclass(frozen=True)
class NoLaw(Shown):
    """A study that was planned without a pilot has nothing to fit a law to; `why` says why it has no pilot."""

    why: str
    folder: Path | None = folder_field()

    def to_dict(self) -> dict[str, Any]:
        """`law`, which is None, and `why`."""
        return {"law": None, "why": self.why}


# plan ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Expected:
    """What the law predicts of the prescribed runs: the mean reward of `runs` new runs of n at C rollouts each.

    `interval` is its prediction interval; None where no law is identified.
    """

    n: int
    C: int
    runs: int
    interval: Interval | None


@dataclass(frozen=True)
class Plan(plans.Plan, Shown):
    """The prescription (fields as in `isocost.planner.rollouts.Plan`), and what follows from it and the law.

    units: the budget in every unit and the machine; more: expected gain of 2, 4 and 8 times the rollouts, and its cost.
    sees: the minimum detectable difference of its seeds. next: runs to add to the pilot, what they would resolve, and
        the option of `isocost pilot` that adds them.
    evaluating: problems, samples, rollouts and standard error (reward) of its evaluations; None where they are exact.
    growth: whether the best n is likely to grow with compute on these problems; None in records of earlier versions.
    measure: of imported runs, what their reward, its scale and their C are; None of isocost's own.
    extendable: whether runs can be added to the study's pilot.
    """

    record: ClassVar[str] = "plan"
    sections: ClassVar[tuple[str, ...]] = ("answer", "curves", "flags")

    units: Data | None = None
    evaluating: Data | None = None
    growth: NGrowth | None = None
    more: tuple[More, ...] = ()
    sees: ComparisonPower | None = None
    next: tuple[Data, ...] = ()
    measure: Data | None = None
    extendable: bool = False
    folder: Path | None = folder_field()
    held: tuple[str, ...] = field(default=(), compare=False, repr=False)    # of plans.BESIDE: keys that plan.json has

    @classmethod
    def written(cls, data: Data, **beside: Any) -> Plan:
        """From plan.json."""
        return cls(
            **_all(plans.Plan.of(data)),
            units=data.get("units"),
            evaluating=data.get("evaluating"),
            growth=NGrowth.of(data["growth"]) if data.get("growth") else None,
            more=tuple(map(More.of, data.get("more") or ())),
            sees=ComparisonPower.of(data["sees"]) if data.get("sees") else None,
            next=tuple(data.get("next") or ()),
            measure=data.get("measure"),
            held=tuple(k for k in plans.BESIDE if k in data),
            **beside,
        )

    @property
    def n(self) -> int:
        """Rollouts per problem."""
        return self.arm.n

    @property
    def B(self) -> int:
        """Problems per update."""
        return self.arm.B

    @property
    def M(self) -> int:
        """Updates per run."""
        return self.arm.M

    @property
    def C(self) -> int:
        """Rollouts per run: n B M."""
        return self.arm.C

    @property
    def lr(self) -> float:
        """Learning rate after warm-up."""
        return self.arm.lr

    @property
    def forecast(self) -> Expected:
        """What the law predicts of it, before it is sealed."""
        return Expected(self.n, self.C, self.seeds, self.arm.prediction)

    def data(self) -> dict[str, Any]:
        """The planner's own data, which a forecast is sealed from."""
        return _part(plans.Plan, self).data()

    def to_dict(self) -> dict[str, Any]:
        """plan.json: records of imported runs, and of earlier versions, have fewer keys beside the plan."""
        beside = {
            "units": self.units,
            "evaluating": self.evaluating,
            "growth": self.growth.data() if self.growth else None,
            "more": [m.data() for m in self.more],
            "sees": self.sees.data() if self.sees else None,
            "next": list(self.next),
            "measure": self.measure,
        }
        return self.data() | {k: v for k, v in beside.items() if k in self.held}


# train and audit ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Forecast(forecasts.Forecast, Shown):
    """A sealed forecast (fields as in `isocost.planner.forecast.Forecast`). metric: what its rewards are."""

    record: ClassVar[str] = "forecast"
    sections: ClassVar[tuple[str, ...]] = ("outcome",)

    metric: str = PASS
    folder: Path | None = folder_field()

    @classmethod
    def beside(cls, forecast: forecasts.Forecast, **beside: Any) -> Forecast:
        """A forecast with the fields of this class."""
        return cls(**_all(_part(forecasts.Forecast, forecast)), **beside)

    def data(self) -> dict[str, Any]:
        """The planner's own data."""
        return _part(forecasts.Forecast, self).data()

    def to_dict(self) -> dict[str, Any]:
        """forecast.json."""
        return self.data()


@dataclass(frozen=True)
class Trained(Shown):
    """The prescription and its comparator were trained: `runs` are their names, under one sealed `forecast`."""

    record: ClassVar[str] = "forecast"
    sections: ClassVar[tuple[str, ...]] = ("outcome",)

    forecast: Forecast
    runs: tuple[str, ...]
    folder: Path | None = folder_field()

    def to_dict(self) -> dict[str, Any]:
        """forecast.json."""
        return self.forecast.to_dict()


@dataclass(frozen=True)
class Audit(audits.Audit, Shown):
    """The forecast against the outcome (fields as in `isocost.planner.audit.Audit`)."""

    record: ClassVar[str] = "audit"
    sections: ClassVar[tuple[str, ...]] = ("outcome",)

    folder: Path | None = folder_field()

    @classmethod
    def beside(cls, audit: audits.Audit, **beside: Any) -> Audit:
        """An audit with the fields of this class."""
        return cls(**_all(_part(audits.Audit, audit)), **beside)

    def data(self) -> dict[str, Any]:
        """The planner's own data."""
        return _part(audits.Audit, self).data()

    def to_dict(self) -> dict[str, Any]:
        """audit.json."""
        return self.data()


@dataclass(frozen=True)
class Whole(Shown):
    """A study from end to end. `phases` are seconds of wall-clock time by phase; `report` is the file of the report."""

    record: ClassVar[str] = "audit"
    sections: ClassVar[tuple[str, ...]] = ("answer", "outcome")

    audit: Audit
    phases: Mapping[str, float]
    report: Path
    folder: Path | None = folder_field()

    def to_dict(self) -> dict[str, Any]:
        """audit.json."""
        return self.audit.to_dict()


# one run ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RunCost(Shown):
    """What one run would cost (`bill`: rollouts, tokens, FLOP, seconds, MB), and what estimating it has sampled.

    `pricing` holds rollouts, tokens (prefill, decode) and seconds; it is written to dry-run.json in `folder`.
    """

    bill: Bill
    pricing: Data
    folder: Path | None = folder_field()

    def to_dict(self) -> dict[str, Any]:
        """The bill, and `pricing`."""
        return self.bill.data() | {"pricing": dict(self.pricing)}


@dataclass(frozen=True)
class RunEnd(Shown):
    """How one run ended: what end.json says.

    reason: spent, starved, diverged or reward failed; detail: one sentence. steps: updates. seconds: of run time.
    fates: rollouts by what became of them. notes: cautions. verifier_failures: completions without a reward, by kind,
    with an example each. end: all of end.json.
    """

    reason: str
    detail: str
    steps: int
    seconds: float
    fates: Mapping[str, int]
    notes: tuple[str, ...]
    verifier_failures: Mapping[str, int]
    verifier_examples: Mapping[str, str]
    timing: Data
    end: Data
    folder: Path | None = folder_field()

    @classmethod
    def of(cls, end: Data, folder: Path) -> RunEnd:
        """From end.json."""
        return cls(
            reason=end["reason"],
            detail=end["detail"],
            steps=end["steps"],
            seconds=end["seconds"],
            fates=end["fates"],
            notes=tuple(end["notes"]),
            verifier_failures=end["verifier_failures"],
            verifier_examples=end.get("verifier_examples", {}),
            timing=end.get("timing", {}),
            end=end,
            folder=folder,
        )

    @property
    def exit_code(self) -> int:
        """0 where the budget is spent, 5 for a run that could not continue, or whose budget was over before an update.
        """
        return 0 if self.reason == "spent" and self.steps else 5

    def to_dict(self) -> dict[str, Any]:
        """end.json."""
        return dict(self.end)


@dataclass(frozen=True)
class Mean:
    """A mean pass rate over `problems` problems with its Student interval; of a difference, paired by problem."""

    value: float
    low: float
    high: float
    level: float
    problems: int


@dataclass(frozen=True)
class Measured(Shown):
    """A run's final policy, measured again on `problems` problems: pass@1, of the base too where it was requested.

    cost: rollouts, tokens and seconds of this measurement; spent: of all measurements of this run so far.
    """

    run: str
    problems: int
    final: Mean
    cost: Data
    spent: Data
    base: Mean | None = None
    difference: Mean | None = None

    def to_dict(self) -> dict[str, Any]:
        """eval.json."""
        out = {"schema": SCHEMA, **_all(self), "final": vars(self.final)}
        for name in ("base", "difference"):
            mean = out.pop(name)
            if mean is not None:
                out[name] = vars(mean)
        return out


@dataclass(frozen=True)
class MeasuredModel(Shown):
    """A model measured on `problems` problems, `samples` completions each (0: pass@1 was computed exactly).

    right: pass@1 with its interval over problems; pass_at: pass@k per k, of rewards 0 and 1; unscored: completions
    without a reward. cost: rollouts, tokens and seconds; money: what the tokens cost at the price given; server: counts
    of requests to the model's server.
    """

    model: str
    data: str
    problems: int
    samples: int
    right: Mean
    unscored: int
    cost: Data
    pass_at: Sequence[Data] = ()
    money: Data | None = None
    server: Data | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, as `isocost eval --json` prints it."""
        return {"schema": SCHEMA, **_all(self), "right": vars(self.right)}
