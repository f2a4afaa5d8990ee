"""The setting that all runs of a study share, and how it is opened: the problems by split, and their world."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache, lru_cache, partial
from types import MappingProxyType
from typing import Any

from isocost.can import Can
from isocost.envs.opening import open_environment
from isocost.errors import UserError
from isocost.local.embedded import DEFAULT
from isocost.meter import Meter
from isocost.scorers import marks, parse
from isocost.seams import Pace
from isocost.tasks.builtin.families import FAMILIES, named
from isocost.tasks.load import ProblemSet, Reads, load_problems
from isocost.tasks.mix import parts
from isocost.tasks.split import Split, split, split_given
from isocost.tasks.verify.grade import Grader
from isocost.tasks.verify.verifiers import find
from isocost.types import Rollout, Sampling, Score
from isocost.world import Grade, World
from isocost.worlds.http import RequestLimits
from isocost.worlds.spec import MachineOptions, Opening, Options, here, kind_of, kinds, options, spec_of


@dataclass(frozen=True)
class ProblemOptions:
    """What is asked, who answers turns, what marks the answers, and what is held out."""

    data: str = "sums:level=1"
    verifier: str | None = None
    truth: str | None = None        # the verifier that evaluations report, if it is not the one that trains
    held_out: float = 0.2  # share of problems, or a count when 1 or more; half validation, half test split
    held_out_data: str | None = None  # or a separate set
    limit: int | None = None
    skip_broken: bool = False
    system: str = ""
    env: str = ""  # the environment that answers turns; empty: one question and one answer


@dataclass(frozen=True)
class Lengths:
    """The limits of a completion and of a dialogue."""

    max_tokens: int = 4
    max_turns: int = 0  # 0 without an environment


@dataclass(frozen=True)
class EvaluationOptions:
    """How a policy is evaluated on held-out problems."""

    samples: int = 4  # per problem and evaluation, when pass@1 cannot be computed exactly
    evaluated: int | None = None  # problems, both splits together; None: all


PARTS: Mapping[str, type] = {       # of a setting, beside its model and the options of the model's kind
    "problems": ProblemOptions, "sampling": Sampling, "lengths": Lengths, "evaluation": EvaluationOptions,
    "machine": MachineOptions,
}
_PART_OF = {f.name: part for part, kind in PARTS.items() for f in fields(kind)}


@dataclass(frozen=True)
class Setting:
    """What all runs of a study share. A record holds the fields of all parts side by side."""

    model: str = DEFAULT
    problems: ProblemOptions = ProblemOptions()
    sampling: Sampling = Sampling()     # the same in training and in every evaluation
    lengths: Lengths = Lengths()
    evaluation: EvaluationOptions = EvaluationOptions()
    machine: MachineOptions = MachineOptions()
    world: Options = field(default_factory=lambda: kinds()[here()].options())    # of the model's kind

    @classmethod
    def of(cls, record: Mapping[str, Any] = MappingProxyType({}), /, **given: Any) -> Setting:
        """From a record's fields, or some by name, without other kinds' options. Raises TypeError for an unknown
        name."""
        given = {**record, **given}
        if unknown := given.keys() - setting_names():
            raise TypeError(f"{min(unknown)!r} is not a field of a setting")
        model = given.get("model", DEFAULT)
        kind = kinds()[kind_of(model)].options
        own = {f.name for f in fields(kind)}
        parts: dict[str, dict[str, Any]] = {part: {} for part in PARTS}
        for name, part in _PART_OF.items():
            if name in given:
                parts[part][name] = given[name]
        return cls(model, world=kind(**{k: v for k, v in given.items() if k in own}),
                   **{part: PARTS[part](**those) for part, those in parts.items()})

    def but(self, **changes: Any) -> Setting:
        return Setting.of(self.to_dict(), **changes)

    def to_dict(self) -> dict[str, Any]:
        """Its record, which `of` reads."""
        parts = (getattr(self, name) for name in (*PARTS, "world"))
        out = {"model": self.model, **{f.name: getattr(part, f.name) for part in parts for f in fields(part)}}
        for later, none in (("truth", None), ("effort", "")):
            if out[later] == none:
                del out[later]      # records without one are as those of earlier versions
        return out

    @property
    def measured(self) -> Pace:
        """The pace at which a policy is measured outside a run."""
        return Pace(lr=0.0, max_tokens=self.lengths.max_tokens, sampling=self.sampling,
                    max_turns=self.lengths.max_turns or 1)

    @property
    def marks(self) -> str:
        """The verifier's name if it follows from the setting; empty if the problem set decides."""
        asked = self.problems
        if asked.verifier:
            return asked.verifier
        if asked.env and (own := open_environment(asked.env).verifier):
            return own
        known = {f.verifier(part.spec) if (f := named(part.spec)) else "" for part in parts(asked.data)}
        return known.pop() if len(known) == 1 else ""


def setting_names() -> frozenset[str]:
    """The fields of a setting's record, with the options of every kind of model."""
    return frozenset(("model", *_PART_OF, *options()))


@dataclass(frozen=True)
class Opened:
    """An opened setting: the problems by split, and the world."""

    setting: Setting
    problems: ProblemSet
    sides: Split
    world: World
    grader: Grader
    truth: Grader | None = None

    def close(self) -> None:
        """End the verifiers' processes and the world's connections."""
        self.grader.close()
        if self.truth is not None:
            self.truth.close()
        for world in (self.world, *self.world.others.values()):
            world.close()


def open_problems(
    setting: Setting, *, check: bool = False, tried: bool = False, meter: Meter | None = None,
    reads: Callable[[], Reads] | None = None, whole: bool = False,
) -> tuple[ProblemSet, Split]:
    """Load and split the problems of a setting; with `check`, every problem's own answer must pass the verifier.

    With `skip_broken` that check is made in any case, so that every run leaves out the same rows. A user's reward is
    tried on a few rows with `check` or `tried`; `whole` holds nothing out; `reads` describes the prompts that the model
    can read. The cost of checks goes to the account `check` of the `meter`.

    Raises UserError naming what is wrong with the problems.
    """
    asked = setting.problems
    environment = open_environment(asked.env) if asked.env else None
    verifier = asked.verifier or (environment.verifier or None if environment else None)
    own = asked.truth is None and verifier is not None and not find(verifier).must_agree
    listed = environment.problems if environment else None
    load = partial(
        load_problems,
        verifier=verifier,
        truth=asked.truth,
        system=asked.system,
        check=check or (asked.skip_broken and not own),
        skip_broken=asked.skip_broken,
        meter=meter,
        reads=reads,
        tried=tried,
    )
    loaded = load(asked.data, limit=asked.limit, listed=listed)
    if whole:
        return loaded, Split(loaded.problems, (), ())
    if asked.held_out_data:
        other = load(asked.held_out_data)
        sides = split_given(loaded.problems, other.problems, samples=setting.evaluation.samples)
    else:
        sides = split(loaded.problems, asked.held_out, samples=setting.evaluation.samples)
    return loaded, sides if setting.evaluation.evaluated is None else sides.evaluated(setting.evaluation.evaluated)


def open_setting(
    setting: Setting, *, reference: bool = False, check: bool = False, tried: bool = False, learn: bool = True,
    whole: bool = False, limits: RequestLimits = RequestLimits(),
) -> Opened:
    """Load problems and model. Sets torch's thread count: a run is reproducible only at a fixed number of threads.

    Without `learn` the model need only be one that can be sampled; `whole` holds no problem out; `limits` are of the
    requests to its server.

    Raises UserError for problems that cannot be used, including prompts that the model cannot read (see
    `open_problems`), and for a model that cannot be trained where `learn` asks for one that can.
    """
    import torch

    spec, asked, machine = spec_of(setting.model), setting.problems, setting.machine
    if learn:
        spec.require(Can.LEARN)
    torch.set_num_threads(machine.threads)
    meter = Meter()
    if check or tried or whole or not _built_in(setting):
        reads = None if spec.reading is None else cache(spec.reading)
        loaded, sides = open_problems(setting, check=check, tried=tried, meter=meter, reads=reads, whole=whole)
    else:
        loaded, sides = _built_in_problems(setting)
    grader = Grader(loaded.verifier, meter=meter)
    truth = None if asked.truth is None else Grader(asked.truth, meter=meter)
    every = (*sides.train, *sides.select, *sides.audit)
    try:
        world = spec.open(Opening(
            sides.train, grader, meter, setting.sampling, machine, setting.world, limits, reference,
            exact=not (asked.env or truth) and all(p.meta.get("exact") for p in every), dialogues=bool(asked.env),
        ))
        world.open_other = partial(open_other, setting, grader, meter, limits)
        if asked.env:
            world.env = open_environment(asked.env).make
        world.truth = truth
        for one, other in ((grader, truth), (truth, grader)):
            if one is not None and one.scorer:
                known = _nobody if other is None or other.scorer else other     # whom the scorer `outcome` asks
                one.scored = partial(marks, scorer=parse(one.scorer), world=replace(world, grade=known))
    except BaseException:
        for one in (grader, *([truth] if truth else ())):
            one.close()
        raise
    return Opened(setting, loaded, sides, world, grader, truth)


async def _nobody(rollouts: Sequence[Rollout]) -> list[Score | None]:
    raise UserError("the scorer `outcome` asks a verifier, and it is itself the verifier here: name the one that knows "
                    "with --truth")


def open_other(setting: Setting, grade: Grade, meter: Meter, limits: RequestLimits, name: str) -> World:
    """The world of another model, which is sampled as the setting's own."""
    spec = spec_of(name)
    return spec.open(Opening((), grade, meter, setting.sampling, setting.machine, spec.of.options(), limits))


def _built_in(setting: Setting) -> bool:
    """Whether nothing outside the package, such as a file, decides which problems a setting has."""
    asked = setting.problems
    named_sets = [part.spec for spec in (asked.data, asked.held_out_data) if spec for part in parts(spec)]
    model = setting.model in {f.model for f in FAMILIES.values()}
    own_marks = asked.verifier is None and asked.truth is None and not asked.skip_broken and not asked.env
    return model and own_marks and all(named(spec) for spec in named_sets)


@lru_cache(maxsize=4)
def _built_in_problems(setting: Setting) -> tuple[ProblemSet, Split]:
    """The problems of a setting that is built in, the same for all of a process's runs."""
    reads = spec_of(setting.model).reading
    return open_problems(setting, reads=None if reads is None else cache(reads))


def refuse_unbounded(problems: ProblemSet) -> None:
    """Raises UserError for a user's reward that was outside [0, 1] when tried: laws and comparisons need that range."""
    low, high = problems.report.rewards
    if low < 0 or high > 1:
        raise UserError(f"the reward {problems.verifier} paid {low:g} to {high:g} on the rows it was tried on, and a "
                        "study or comparison needs rewards between 0 and 1: rescale it")
