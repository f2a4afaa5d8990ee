"""Fit a value of prompts to the pass rates of policies, and measure it on held-out prompts.

    each update: a policy, a context of prompts with their pass rates, and the others to predict (arXiv:2602.03584)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy import ndarray

from isocost import chance, meter
from isocost.disk.jsonfile import write_json
from isocost.errors import UserError
from isocost.gather import finished, together
from isocost.parts.play import sample
from isocost.parts.reward import marked
from isocost.runs.files import SCHEMA
from isocost.screen.display import Result, Row
from isocost.screen.words import counted
from isocost.seams import Pace
from isocost.stats.ranking import auroc
from isocost.steps.events import SILENT, Observer, Tell
from isocost.steps.scorer import Fitting
from isocost.types import Place, Problem
from isocost.world import World
from isocost.worlds.setting import Setting, open_setting

if TYPE_CHECKING:
    from torch import Tensor

    from isocost.scorers.prompts import PromptValue

PROMPTS = Fitting(texts=16, epochs=300, lr=1e-2)     # an epoch is an update here
CONTEXT, RANKS, DECAY = 256, 0.25, 0.1   # prompts of a context; weight of the pairwise loss; weight decay
MOST = 1024     # prompts in the saved context, and prompts that an update predicts: it compares them in pairs


@dataclass(frozen=True)
class PromptScorerResult(Result):
    """A value of prompts, measured on `problems` held-out prompts with `texts` texts of each by every policy.

    By policy: across, the AUROC of the texts by the value of their prompt; brier, the mean of (reward − value)² over
    texts; mean, the same with the mean pass rate of the training prompts as the value. fitted: training prompts. cost:
    of sampling and reading, in counts of `Cost`.
    """

    out: str
    model: str
    data: str
    problems: int
    texts: int
    fitted: int
    across: Mapping[str, float]
    brier: Mapping[str, float]
    mean: Mapping[str, float]
    cost: dict[str, Any]

    def rows(self) -> list[Row]:
        """The measures of each policy, the cost, and how to use the value."""
        on = f"{counted(self.problems, 'prompt')} it was not fitted on"
        rows = [Row(name, f"AUROC {self.across[name]:.3f} of {counted(self.texts, 'text')} of each of {on}; Brier "
                          f"score {self.brier[name]:.3f}, of the pool's mean {self.mean[name]:.3f}")
                for name in self.across]
        return [*rows, Row("cost", f"{self.fitted} prompts fitted to; {self.cost['rollouts']:,} rollouts, "
                                   f"{self.cost['decode']:,} tokens written, {self.cost['score']:,} scored"),
                Row("use", f"isocost train v0 --set guide.file={self.out}; scorer=prompts:file={self.out}", "command")]

    def to_dict(self) -> dict[str, Any]:
        """scorer.json, without the policies and the prompts of the context."""
        return {"schema": SCHEMA, **vars(self)}


def learn_prompts(
    setting: Setting, out: Path, fitting: Fitting = PROMPTS, others: Sequence[str] = (), *, observer: Observer = SILENT,
) -> PromptScorerResult:
    """Fit V (`isocost.scorers.prompts`) to pass rates of the setting's model, and of `others`, on its training problems
    and measure it on the held-out ones. Writes the values and scorer.json to the folder `out`. Raises UserError for a
    model that is not on this machine, dialogues (`env`), and fewer than four training problems."""
    import torch
    from safetensors.torch import save_file

    from isocost.scorers.learned import ABOUT
    from isocost.scorers.prompts import VALUES, FittedValue, states_of

    policies = dict.fromkeys((setting.model, *others))
    with observer.counting("scorer") as tell:
        opened = open_setting(setting, check=True, learn=False)
        world, pace = opened.world, setting.measured
        try:
            if world.new_critic is None or setting.problems.env:
                raise UserError("a value of prompts is learned of single answers, by a model on this machine: leave "
                                "out --env")
            if len(opened.sides.train) < 4:
                raise UserError("a value of prompts is learned of four problems or more, not "
                                f"{len(opened.sides.train)}: name more with --data")
            with meter.on(meter.PROBE):
                sides = opened.sides.train, opened.sides.held_out
                states = [states_of(side, setting.model, world) for side in sides]
                each = world, *(world.other(x) for x in [*policies][1:])
                rates = [np.array([finished(pass_rates(own, side, pace, fitting, k, tell)) for own in each])
                         for k, side in enumerate(sides)]
        finally:
            opened.close()
    value = fit(states[0], rates[0], fitting)
    ids, kept = tuple(p.id for p in sides[0])[:MOST], rates[0][:, :MOST]
    context = dict(zip(policies, torch.tensor(kept, dtype=torch.float32), strict=True))
    fitted = FittedValue(value, setting.model, ids, states[0][:MOST], context)
    said = {name: np.array(fitted.of(states[1], name)) for name in policies}
    held = dict(zip(policies, rates[1], strict=True))
    means = {name: np.full(len(held[name]), own.mean()) for name, own in zip(policies, rates[0], strict=True)}
    result = PromptScorerResult(
        str(out), setting.model, setting.problems.data, len(sides[1]), fitting.texts, len(sides[0]),
        {name: across(said[name], held[name], fitting.texts) for name in policies},
        {name: brier(said[name], held[name]) for name in policies},
        {name: brier(means[name], held[name]) for name in policies}, world.meter.total.data())
    out.mkdir(parents=True, exist_ok=True)
    save_file({**value.state_dict(), "context.states": fitted.states.contiguous(),
               "context.rates": torch.stack([*context.values()])}, out / VALUES)
    write_json(out / ABOUT, {**result.to_dict(), "policies": list(policies), "ids": list(ids)})
    return result


async def pass_rates(
    world: World, problems: Sequence[Problem], pace: Pace, fitting: Fitting, side: int, tell: Tell
) -> list[float]:
    """The pass rate of each problem, in [0, 1]; an answer without a mark counts as wrong."""
    done = 0

    async def one(slot: int, problem: Problem) -> float:
        nonlocal done
        place = Place(fitting.seed, side, slot, int(chance.Purpose.PROFILE))
        texts = await marked(await sample(problem, range(fitting.texts), world, pace, place), problem, place, world)
        done += 1
        tell("problems" if side == 0 else "held-out problems", done, len(problems))
        return sum(min(max(t.mark.value, 0.0), 1.0) for t in texts if t.mark is not None) / fitting.texts

    return await together(*(one(i, p) for i, p in enumerate(problems)))


def fit(states: Tensor, rates: ndarray, fitting: Fitting) -> PromptValue:
    """V fitted to prompts with `states` (P, S) and the pass `rates` (K, P) of K policies."""
    import torch
    import torch.nn.functional as F

    from isocost.scorers.prompts import PromptValue

    rng, count = chance.generator(fitting.seed, chance.Purpose.FORK), len(states)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(fitting.seed)
        value = PromptValue(states.shape[1])
    value.mean.copy_(states.mean(0))
    value.scale.copy_(states.std(0, correction=0) + 1e-6)
    known, adam = torch.tensor(rates, dtype=torch.float32), torch.optim.AdamW(
        value.parameters(), lr=fitting.lr, weight_decay=DECAY)
    for _ in range(fitting.epochs):
        policy, order = int(rng.integers(len(rates))), torch.from_numpy(rng.permutation(count))
        here, asked = order[: min(CONTEXT, count // 2)], order[min(CONTEXT, count // 2):][:MOST]
        found, wanted = value(states[asked], states[here], known[policy, here]), known[policy, asked]
        more = (wanted[:, None] - wanted).clamp(min=0)
        ranked = (more * F.softplus(found - found[:, None])).sum() / more.sum().clamp(min=1e-6)
        loss = (1 - RANKS) * F.binary_cross_entropy_with_logits(found, wanted) + RANKS * ranked
        adam.zero_grad()
        loss.backward()
        adam.step()
    return value


def brier(values: ndarray, rates: ndarray) -> float:
    """Mean of (reward - value)^2 over texts of prompts with these values and pass rates, (P,) each."""
    return float((rates * (1 - values) ** 2 + (1 - rates) * values**2).mean())


def across(values: ndarray, rates: ndarray, texts: int) -> float:
    """AUROC of `texts` texts of each prompt by its value, of (P,) values and rates; 0.5 if all or none are right."""
    right = (np.arange(texts)[None] < np.rint(rates * texts)[:, None]).ravel()
    return auroc(np.repeat(values, texts).tolist(), right.tolist())
