"""One table of capabilities: what a model, its learner and a source of runs can do, and what a recipe may need.

A step asks whether a holder has a capability, never what kind it is of. Models hold them by the kind of their world
(`isocost.worlds.spec.Kind`), studies and runs by their source (`isocost.runs.source.Source`), and learners in
`Learner.can`. Functions of a recipe say with `isocost.traits.asks` which of `LEARNER` they need.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class Can(Enum):
    """A capability: what has it, its meaning, and what to do without it where the holder says nothing better."""

    # of a model
    LEARN = "model", "log-probs, gradients, updates and weights", "give a model on this machine"
    SIZE = "model", "its number of parameters", "name it with --parameters"
    EFFORT = "model", "a reasoning effort that requests may name", "leave it out"
    # of its learner, besides log-probs and updates
    ENTROPY = "learner", "the entropy of the distribution that each token was drawn from", "choose another method"
    GRADIENTS = "learner", "the gradient of each rollout alone", "choose another method"
    FORGET = "learner", "a reset of the optimiser", "choose another method"
    TEMPERATURE = "learner", "log-probs at temperatures other than 1", "leave it at 1"
    TRUNCATION = "learner", "log-probs under top-p and top-k", "leave them out"
    WEIGHTS = "learner", "its weights as tensors", "choose a model on this machine"
    CRITIC = "learner", "a value function, trained beside the policy", "choose another method"
    TEXT = "learner", "a reader of texts that the method writes", "choose another method"
    # of a source of runs: what isocost can do with its studies, or knows of its runs
    PROFILE = "source", "a policy that can be sampled before training", "choose another --out"
    PILOT = "source", "launching runs of a chosen n, B, learning rate and length, and adding runs later", ""
    TRAIN = "source", "launching the prescribed runs", ""
    SEAL = "source", "sealing a forecast before the prescribed runs, and auditing it", ""
    STOP = "source", "stopping runs, or changing n, while they train", ""
    EVALUATE = "source", "evaluating a final policy again", ""
    BASE = "source", "an evaluation of every run before its first update", ""
    SPLITS = "source", "held-out problems that are divided into a validation and a test split", ""
    METRICS = "source", "evaluations by other metrics than pass@1", ""
    RECIPE = "source", "a record of the runs' recipe", ""
    SAMPLING = "source", "a record of temperature, truncation and length of completions, as far as they are known", ""

    def __init__(self, of: str, meaning: str, remedy: str):
        self.of, self.meaning, self.remedy = of, meaning, remedy


LEARNER = frozenset(c for c in Can if c.of == "learner")


class Able:
    """What has every capability but those that it `lacks`.

    For each the reason and what to do instead; the empty text stands for the remedy of the table.
    """

    lacks: Mapping[Can, str]

    def can(self, capability: Can) -> bool:
        """Whether it has the capability."""
        return capability not in self.lacks

    def why(self, capability: Can) -> str:
        """Why it lacks the capability, and what to do instead."""
        return self.lacks[capability] or f"there is no {capability.meaning}: {capability.remedy}"

    @property
    def learner(self) -> frozenset[Can]:
        """What its learner can do."""
        return LEARNER.difference(self.lacks)
