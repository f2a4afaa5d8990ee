"""How likely the policy is to solve the prompt, whatever the text; `isocost scorer MODEL --of prompts` fits it.

    V(x | C) = σ(f(h) + g Σ_j a_j (r_j − σ(f(h_j)))),   a = softmax_j(⟨W h, U h_j⟩ / √d),   C: prompts j, pass rates r_j
    h: a frozen model's last state of the prompt and its mean state;  f linear;  loss ¾ cross-entropy + ¼ pairwise ranks
    "V_0", 2026, arXiv:2602.03584; there h is that of an embedding model, and the head is TabPFN's
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from isocost.disk.jsonfile import read_json
from isocost.errors import UserError
from isocost.scorers.learned import ABOUT
from isocost.types import Problem, Rollout
from isocost.world import World

VALUES = "values.safetensors"
LEAST = 64      # from so many known pass rates on, these are the context, in place of the rates in the folder


class PromptValue(nn.Module):
    """V: a linear value of a prompt's states, plus attention over the residuals of prompts like it."""

    mean: Tensor
    scale: Tensor

    def __init__(self, size: int, wide: int = 8):
        super().__init__()
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("scale", torch.ones(size))
        self.direct = nn.Linear(size, 1)
        nn.init.zeros_(self.direct.weight)
        self.asked, self.known = nn.Linear(size, wide, bias=False), nn.Linear(size, wide, bias=False)
        self.gain = nn.Parameter(torch.ones(()))

    def forward(self, states: Tensor, context: Tensor, rates: Tensor) -> Tensor:
        """(Q,) logits of prompts with states (Q, S), given those of others (N, S) and their pass rates (N,)."""
        states, context = ((x - self.mean) / self.scale for x in (states, context))
        alike = self.asked(states) @ self.known(context).T / self.asked.out_features**0.5
        beyond = rates - torch.sigmoid(self.direct(context)[:, 0])
        return self.direct(states)[:, 0] + self.gain * (alike.softmax(-1) @ beyond)


@dataclass(frozen=True)
class FittedValue:
    """A fitted V with a context for each policy: `states` (N, S) of the prompts `ids`, `rates` by policy (N,)."""

    value: PromptValue
    model: str                      # that reads prompts: `states` are its
    ids: tuple[str, ...]
    states: Tensor
    rates: Mapping[str, Tensor]

    @torch.no_grad()
    def of(self, states: Tensor, policy: str = "", latest: Mapping[str, float] | None = None) -> list[float]:
        """The values (Q,) in [0, 1] of prompts with states (Q, S), for the policy of this name, by default the first.

        `latest` are its pass rates now, by problem; they are the context where at least `LEAST` of them are of `ids`.
        Raises UserError for an unknown name.
        """
        if policy and policy not in self.rates:
            raise UserError(f"the values of prompts were fitted to {', '.join(self.rates)}, not {policy!r}: name it in "
                            "--others of isocost scorer")
        here = [i for i, name in enumerate(self.ids) if latest and name in latest]
        if latest and len(here) >= LEAST:
            context, rates = self.states[here], torch.tensor([latest[self.ids[i]] for i in here])
        else:
            context, rates = self.states, self.rates[policy or next(iter(self.rates))]
        found: list[float] = torch.sigmoid(self.value(states, context, rates)).tolist()
        return found


async def score(
    problem: Problem, texts: Sequence[Rollout], over: Sequence[bool], world: World, *, file: str = "scorer",
    policy: str = "", against: str = "",
) -> list[float]:
    """The value of the prompt in the folder `file` for a `policy`, by default its first: one number for all texts.

    With `against` it is ½ + (V − V of that policy) / 2, which is low where that policy is more likely to be right.
    Reading the prompt is charged as `score`. Raises UserError without such a folder.
    """
    fitted = opened(file)
    states = states_of([problem], fitted.model, world)
    (value,) = fitted.of(states, policy)
    if against:
        value = 0.5 + (value - fitted.of(states, against)[0]) / 2
    return [value] * len(texts)


def states_of(problems: Sequence[Problem], model: str, world: World) -> Tensor:
    """The states of prompts, (P, S), in a model as it was loaded, charged as `score` tokens.

    Raises UserError for a model that is not on this machine.
    """
    reader = world.other(model)
    if model not in world.critics:
        if reader.new_critic is None:
            raise UserError(f"scorer prompts: {model} is not on this machine, so its states cannot be read")
        world.critics[model] = reader.new_critic()
    return world.critics[model].states([reader.text.prompt(p.prompt) for p in problems])


def opened(file: str) -> FittedValue:
    """The values in a folder. Raises UserError where there are none."""
    path = Path(file) / VALUES
    if not path.is_file():
        raise UserError(f"there is no value of prompts in {file}; make one: isocost scorer MODEL --of prompts --data "
                        f"... --out {file}")
    return _opened(file, sha256(path.read_bytes()).hexdigest())


@lru_cache(maxsize=4)
def _opened(file: str, content: str) -> FittedValue:
    about, kept = read_json(Path(file) / ABOUT), load_file(Path(file) / VALUES)
    states, rates = kept.pop("context.states"), kept.pop("context.rates")
    value = PromptValue(states.shape[1], kept["asked.weight"].shape[0])
    value.load_state_dict(kept)
    return FittedValue(value, about["model"], tuple(about["ids"]), states,
                       dict(zip(about["policies"], rates, strict=True)))
