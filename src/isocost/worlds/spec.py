"""A model's spec, and the kinds of world: where a model is, and what can be done with it there.

`tiny`, `smollm2` or a folder is a model on this machine; `KIND:URL#MODEL`, or `KIND:MODEL` where there is no server,
one of another kind. Each kind is a file of `isocost.worlds.kinds`, found by its name, and nothing else names it.
Whether a step can use a model is asked by capability (`isocost.can`).
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from isocost.can import Able, Can
from isocost.errors import UserError
from isocost.worlds import kinds as home

if TYPE_CHECKING:
    from isocost.meter import Meter
    from isocost.tasks.load import Reads
    from isocost.types import Problem, Sampling
    from isocost.world import Grade, World
    from isocost.worlds.http import RequestLimits


@dataclass(frozen=True)
class Options:
    """The options of a kind of world, made by `option`: fields of a setting's record and options of commands alike.

    A field has the same meaning in all kinds that have it.
    """


def option(
    kind: type, default: Any, help: str, *, metavar: str | None = None, above: int | None = None, how: bool = False
) -> Any:
    """A field of `Options`: an int, float, bool or str, None if it need not be given; numbers are larger than `above`.

    The help is that of the command line. `how` is for what changes how a run is computed, and not what.
    """
    return field(default=default, metadata={
        "kind": kind, "help": help, "metavar": metavar, "above": above, "how": how})


@dataclass(frozen=True)
class AdapterOptions(Options):
    """Of models that can be trained by an adapter."""

    lora: int | None = option(
        int, None, "train a LoRA adapter of this rank in place of all weights; a model behind the Tinker API always "
        "has one  [its default: 32]", metavar="RANK", above=0)


@dataclass(frozen=True)
class MachineOptions:
    """What computes. "auto" is decided by what is there."""

    device: str = "auto"
    dtype: str = "auto"
    threads: int = 1


@dataclass(frozen=True)
class Opening:
    """What a world is opened with besides its model."""

    problems: Sequence[Problem]
    grade: Grade
    meter: Meter
    sampling: Sampling
    machine: MachineOptions
    options: Any                # `Options` of the model's kind
    limits: RequestLimits              # of requests to a server
    reference: bool = False     # with a frozen copy of the policy
    exact: bool = False         # each problem's answer is the only right text
    dialogues: bool = False     # rollouts have several turns


@dataclass(frozen=True)
class Kind(Able):
    """A kind of world: how one is opened, its options, and what its models lack.

    `named` says how --model names one, for help; the texts of `lacks` may have {model}. `example` is empty for models
    of this machine, which are named without a kind, and has no `#` where there is no server. `reading` says what a
    model can read, if that is known here.
    """

    open: Callable[[Spec, Opening], World]
    options: type[Options] = Options
    lacks: Mapping[Can, str] = field(default_factory=dict)
    example: str = ""
    named: str = ""
    reading: Callable[[Spec], Reads] | None = None


@cache
def kinds() -> Mapping[str, Kind]:
    """All kinds by name: the files of `isocost.worlds.kinds`, each with its `KIND`."""
    names = sorted(m.name for m in pkgutil.iter_modules(home.__path__))
    return {name: import_module(f"{home.__name__}.{name}").KIND for name in names}


@cache
def here() -> str:
    """The kind whose models are named without one."""
    return next(name for name, kind in kinds().items() if not kind.example)


@cache
def options() -> Mapping[str, Field[Any]]:
    """The options of all kinds, by name."""
    return {f.name: f for kind in kinds().values() for f in fields(kind.options)}


@dataclass(frozen=True)
class Spec:
    """A model's `kind`, its `name` there, and the address of its server (empty on this machine)."""

    kind: str
    name: str
    url: str = ""

    @property
    def of(self) -> Kind:
        """Its kind."""
        return kinds()[self.kind]

    def open(self, opening: Opening) -> World:
        """The model's world. Raises UserError for what is not there."""
        return self.of.open(self, opening)

    @property
    def reading(self) -> Callable[[], Reads] | None:
        """What the model can read, when called; None where only its server knows."""
        return None if self.of.reading is None else partial(self.of.reading, self)

    def can(self, capability: Can) -> bool:
        """Whether the model has the capability."""
        return self.of.can(capability)

    def require(self, capability: Can) -> None:
        """Raises UserError, with what to do instead, for a capability that the model lacks."""
        if not self.can(capability):
            raise UserError(self.of.why(capability).format(model=self))

    def __str__(self) -> str:
        if self.kind == here():
            return self.name
        return f"{self.kind}:{self.url}#{self.name}" if self.url else f"{self.kind}:{self.name}"


def kind_of(model: str) -> str:
    """The kind of a model, by its spec."""
    kind, colon, _ = model.partition(":")
    return kind if colon and kind in kinds() else here()


def spec_of(model: str) -> Spec:
    """The spec in --model. Raises UserError for an address without a model."""
    kind = kind_of(model)
    rest = model.removeprefix(f"{kind}:")
    if "#" not in kinds()[kind].example:
        return Spec(kind, rest)
    url, hash_, name = rest.partition("#")
    if not hash_ or not name or not url:
        example = f"{kind}:{kinds()[kind].example}"
        raise UserError(f"--model {model} names no model: write {kind}:URL#MODEL, such as {example}")
    return Spec(kind, name, url)


def may_differ() -> frozenset[str]:
    """The fields of a setting's record that may differ when a run is continued: what is computed is the same."""
    return frozenset(("device", "threads", *(name for name, f in options().items() if f.metadata["how"])))


def refuse_options(model: str, given: Mapping[str, Any]) -> None:
    """Raises UserError for an option, not at its default, that the kind of this model does not have."""
    spec = spec_of(model)
    own = {f.name for f in fields(spec.of.options)}
    for name, f in options().items():
        if name not in own and given.get(name) not in (None, f.default):
            having = (about.named for about in kinds().values() if name in {f.name for f in fields(about.options)})
            raise UserError(f"--{name.replace('_', '-')} is not an option of {spec}, but of {'; '.join(having)}: leave "
                            "it out")
