"""The setting that all runs of a study share, and how it is opened: the problems by split, and their world."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from typing import Any

from isocost.envs.opening import open_environment
from isocost.errors import UserError
from isocost.meter import Meter
from isocost.seams import Pace
from isocost.tasks.builtin.families import FAMILIES, named
from isocost.tasks.load import ProblemSet, Reads, load_problems
from isocost.tasks.mix import parts
from isocost.tasks.split import Split, split, split_given
from isocost.tasks.verify.grade import Grader
from isocost.tasks.verify.verifiers import find
from isocost.types import Sampling
from isocost.world import World
from isocost.worlds.http import Limits
from isocost.worlds.spec import Ability, spec_of

log = logging.getLogger("isocost")


@dataclass(frozen=True)
class Setting:
    """What all runs of a study share: the model, the problems and their verifier."""

    model: str = "tiny"
    data: str = "sums:level=1"
    verifier: str | None = None
    held_out: float = 0.2  # share of problems, or a count when 1 or more; half validation, half test split
    held_out_data: str | None = None  # or a separate set
    limit: int | None = None
    skip_broken: bool = False
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    max_tokens: int = 4
    samples: int = 4  # per held-out problem and evaluation, when pass@1 cannot be computed exactly
    system: str = ""
    device: str = "auto"
    dtype: str = "auto"
    kernels: str = "auto"  # or "native", "graphs", "torch": the implementation of the model
    threads: int = 1
    evaluated: int | None = None  # held-out problems to evaluate, both splits together; None: all
    lora: int | None = None  # rank of the adapter that is trained; None: all weights, or a service's default
    env: str = ""  # the environment that answers turns; empty: one question and one answer
    max_turns: int = 0  # of a dialogue; 0 without an environment
    in_turns: bool = False  # with max_age, sample and learn one after the other and not at the same time
    witness: float | None = None  # nats that log-probs of a vLLM server may be off after a load; None: rounding only

    @property
    def sampling(self) -> Sampling:
        """Temperature and truncation, the same in training and in every evaluation."""
        return Sampling(self.temperature, self.top_p, self.top_k)

    @property
    def measured(self) -> Pace:
        """The pace at which a policy is measured outside a run."""
        return Pace(lr=0.0, max_tokens=self.max_tokens, sampling=self.sampling, max_turns=self.max_turns or 1)

    @property
    def marks(self) -> str:
        """The verifier's name if it follows from the setting; empty if the problem set decides."""
        if self.verifier:
            return self.verifier
        if self.env and (own := open_environment(self.env).verifier):
            return own
        names = {f.verifier(part.spec) if (f := named(part.spec)) else "" for part in parts(self.data)}
        return names.pop() if len(names) == 1 else ""

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Setting:
        """From the plain data of a record."""
        return cls(**data)


@dataclass(frozen=True)
class Opened:
    """An opened setting: the problems by split, and the world."""

    setting: Setting
    problems: ProblemSet
    sides: Split
    world: World
    grader: Grader

    def close(self) -> None:
        """End the verifier's processes and the world's connections."""
        self.grader.close()
        self.world.close()


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
    environment = open_environment(setting.env) if setting.env else None
    verifier = setting.verifier or (environment.verifier or None if environment else None)
    own = verifier is not None and not find(verifier).must_agree
    listed = environment.problems if environment else None
    load = partial(
        load_problems,
        verifier=verifier,
        system=setting.system,
        check=check or (setting.skip_broken and not own),
        skip_broken=setting.skip_broken,
        meter=meter,
        reads=reads,
        tried=tried,
    )
    loaded = load(setting.data, limit=setting.limit, listed=listed)
    if whole:
        return loaded, Split(loaded.problems, (), ())
    if setting.held_out_data:
        other = load(setting.held_out_data)
        sides = split_given(loaded.problems, other.problems, samples=setting.samples)
    else:
        sides = split(loaded.problems, setting.held_out, samples=setting.samples)
    return loaded, sides if setting.evaluated is None else sides.evaluated(setting.evaluated)


def open_setting(
    setting: Setting, *, reference: bool = False, check: bool = False, tried: bool = False, learn: bool = True,
    whole: bool = False, limits: Limits = Limits(),
) -> Opened:
    """Load problems and model. Sets torch's thread count: a run is reproducible only at a fixed number of threads.

    Without `learn` the model need only be one that can be sampled; `whole` holds no problem out; `limits` are of the
    requests to its server.

    Raises UserError for problems that cannot be used, including prompts that the model cannot read (see
    `open_problems`), and for a model that cannot be trained where `learn` asks for one that can.
    """
    import torch

    from isocost.local.invariance import remedy
    from isocost.worlds.opening import Opening, open_world, reading

    if learn:
        spec_of(setting.model).require(Ability.LEARN)
    torch.set_num_threads(setting.threads)
    meter = Meter()
    if check or tried or whole or not _built_in(setting):
        reads = reading(setting.model)
        loaded, sides = open_problems(
            setting, check=check, tried=tried, meter=meter, reads=None if reads is None else cache(reads), whole=whole,
        )
    else:
        loaded, sides = _built_in_problems(setting)
    grader = Grader(loaded.verifier, meter=meter)
    every = (*sides.train, *sides.select, *sides.audit)
    try:
        world = open_world(setting.model, Opening(
            sides.train, grader, meter, setting.sampling, setting.device, setting.dtype, setting.kernels,
            setting.threads, reference, not setting.env and all(p.meta.get("exact") for p in every), limits,
            setting.lora, bool(setting.env), setting.in_turns, setting.witness,
        ))
        if setting.env:
            world.env = open_environment(setting.env).make
    except BaseException:
        grader.close()
        raise
    extra = world.extra
    if setting.kernels == "auto" and extra.get("device") == "cpu" and extra["kernels_why"]:
        _warn_once(f"torch computes the model, which is slower: {extra['kernels_why']}")
    if extra.get("batch_dependent"):
        do = remedy(getattr(torch, extra["dtype"]), extra["kernels_why"])
        _warn_once("a rollout's last bits depend here on the rollouts computed with it "
                   f"({extra['batch_dependent']}); {do}")
    return Opened(setting, loaded, sides, world, grader)


def _built_in(setting: Setting) -> bool:
    """Whether nothing outside the package, such as a file, decides which problems a setting has."""
    named_sets = [part.spec for spec in (setting.data, setting.held_out_data) if spec for part in parts(spec)]
    model = setting.model in {f.model for f in FAMILIES.values()}
    own_marks = setting.verifier is None and not setting.skip_broken and not setting.env
    return model and own_marks and all(named(spec) for spec in named_sets)


@lru_cache(maxsize=4)
def _built_in_problems(setting: Setting) -> tuple[ProblemSet, Split]:
    """The problems of a setting that is built in, the same for all of a process's runs."""
    from isocost.worlds.opening import reading

    reads = reading(setting.model)
    return open_problems(setting, reads=None if reads is None else cache(reads))


def refuse_unbounded(problems: ProblemSet) -> None:
    """Raises UserError for a user's reward that was outside [0, 1] when tried: laws and comparisons need that range."""
    low, high = problems.report.rewards
    if low < 0 or high > 1:
        raise UserError(f"the reward {problems.verifier} paid {low:g} to {high:g} on the rows it was tried on, and a "
                        "study or comparison needs rewards between 0 and 1: rescale it")


@cache
def _warn_once(text: str) -> None:
    """Log it once in this process."""
    log.warning(text)
