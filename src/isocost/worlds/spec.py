"""A model's spec: where it is, and what can be done with it there.

`tiny`, `smollm2` or a folder is a model on this machine; `openai:URL#MODEL` one behind an OpenAI-compatible server;
`tinker:URL#MODEL` one that a service of the Tinker API samples and trains; `vllm:URL#MODEL` one on this machine that a
vLLM server samples and our learner trains.
Whether a step can use a model is asked by ability, never by kind. `isocost.worlds.opening` opens the world of one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

from isocost.errors import UserError
from isocost.world import CAN

LOCAL, OPENAI, TINKER, VLLM = "local", "openai", "tinker", "vllm"
EXAMPLES = {
    OPENAI: "openai:http://localhost:8000/v1#my-model", TINKER: "tinker:http://localhost:8000#my-model",
    VLLM: "vllm:http://localhost:8000#my-model",
}


class Ability(Enum):
    """What can be done with a model."""

    SAMPLE = auto()     # completions
    LEARN = auto()      # log-probs, gradients, updates, weights
    EXACT = auto()      # pass@1 without sampling, where problems allow it
    SIZE = auto()       # its number of parameters is known
    CONTEXT = auto()    # prompts can be counted in tokens before they are sent


@dataclass(frozen=True)
class Spec:
    """A model's `kind`, its `name` there, and the address of its server (empty on this machine)."""

    kind: str
    name: str
    url: str = ""

    def can(self, ability: Ability) -> bool:
        """Whether this can be done with the model."""
        return ability in KINDS[self.kind].abilities

    @property
    def learner(self) -> frozenset[str]:
        """What its learner can do, of `isocost.world.CAN`."""
        return KINDS[self.kind].learner

    def require(self, ability: Ability) -> None:
        """Raises UserError, with what to do instead, for an ability that the model lacks."""
        if not self.can(ability):
            raise UserError(KINDS[self.kind].lacks.format(model=self))

    def __str__(self) -> str:
        return self.name if self.kind == LOCAL else f"{self.kind}:{self.url}#{self.name}"


def spec_of(model: str) -> Spec:
    """The spec in --model. Raises UserError for a kind that is not known, and an address without a model."""
    kind, colon, rest = model.partition(":")
    if not colon or kind not in KINDS:
        return Spec(LOCAL, model)
    if kind == LOCAL:
        return Spec(LOCAL, rest)
    url, hash_, name = rest.partition("#")
    if not hash_ or not name or not url:
        raise UserError(f"--model {model} names no model: write {kind}:URL#MODEL, such as {EXAMPLES[kind]}")
    return Spec(kind, name, url)


@dataclass(frozen=True)
class Kind:
    """A kind of model: its abilities, the text of an error where one is missing, and what its learner can do.

    `learner` is of `isocost.world.CAN`.
    """

    abilities: frozenset[Ability]
    lacks: str = ""
    learner: frozenset[str] = CAN


KINDS: Mapping[str, Kind] = {
    LOCAL: Kind(frozenset(Ability)),
    OPENAI: Kind(
        frozenset({Ability.SAMPLE}),
        "{model} can only be sampled: its server gives completions, and no gradient, weights or exact probabilities. "
        "`isocost profile` and `isocost eval` work with it. To train, give a model folder; or profile it, plan with "
        "`isocost plan STUDY`, and train in your own trainer",
    ),
    TINKER: Kind(
        frozenset({Ability.SAMPLE, Ability.LEARN}), "{model} can be sampled, trained and evaluated, and nothing else",
        learner=frozenset(),
    ),
    VLLM: Kind(frozenset(Ability), learner=CAN - {"truncation"}),
}
