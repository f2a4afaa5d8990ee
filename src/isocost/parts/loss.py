"""Surrogate losses per token, unreduced: `weight` defines how tokens are averaged.

Each returns ((N, T), {name: (N, T)}). Ratios are current over old policy, by `ops.log_ratio`. The sampler's own
log-probs enter through `corrected` alone.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import torch
from torch import Tensor

from isocost import ops
from isocost.batch import Batch, Forward
from isocost.errors import UserError
from isocost.seams import Loss
from isocost.traits import bounds, exported, gives

Out = tuple[Tensor, dict[str, Tensor]]
FINITE = 60.0       # limit of the log of a product of ratios: sums of thousands stay finite in float32, and none is 0


@exported("low", "high", "dual", surrogate="clipped")
@bounds(low="[0, 1]", high="[0, inf]", dual="0 or [1, inf)")
def clipped(out: Forward, batch: Batch, *, low: float = 0.2, high: float = 0.2, dual: float = 0.0) -> Out:
    """PPO's pessimistic surrogate, max(-A ρ, -A clip(ρ, 1 - low, 1 + high)) (arXiv:1707.06347).

    `dual` above 1 limits the loss of a token with negative advantage to -A dual (dual clip, arXiv:1912.09729); 0 is
    off.
    """
    return pessimistic(ops.log_ratio(out, batch).exp(), credit(batch), low, high, dual)


@gives("importance ratios")
@bounds(high="(0, inf]")
def reweighed(out: Forward, batch: Batch, *, over: str = "token", high: float = 5.0) -> Out:
    """-sg(min(w, high)) A log π, where w is the ratio of one token, or includes the tokens before it.

    `over` "token" takes w_t = ρ_t (CISPO), "least" ρ_t times the smallest ratio before it (MinPRO, arXiv:2601.22718),
    "sequence" the product over the row: the importance weight of a whole answer.
    """
    if over not in RATIOS:
        raise UserError(f"loss.over is {over!r}; expected one of {', '.join(RATIOS)}")
    ratio = RATIOS[over](ops.log_ratio(out, batch).detach(), batch.mask).clamp(-FINITE, FINITE).exp()
    seen = {"clip_ratio/region_mean": (ratio > high).float(), "importance_ratio": ratio}
    return -credit(batch) * ratio.clamp(max=high) * out.logp, seen


@exported("cap")
@gives("a correction")
@bounds(cap="(0, inf]")
def corrected(out: Forward, batch: Batch, *, inner: Loss, cap: float = 2.0, reject: bool = False) -> Out:
    """Any loss, times min(old / sampler, cap), a constant: truncated importance sampling.

    It corrects for a sampler that differs from the learner (other kernels, other precision), and has no effect where
    the two agree (Yao et al. 2025, "Your efficient RL framework secretly brings you off-policy RL training"). With
    `reject` a token beyond the cap has no loss; it stays in the average.
    """
    loss, seen = inner(out, batch)
    ratio = ops.mismatch(out, batch).detach().exp()
    ratio = ratio.masked_fill(ratio > cap, 0.0) if reject else ratio.clamp(max=cap)
    return loss * ratio, {**seen, "sampling/importance_ratio": ratio}


def _least(log_ratio: Tensor, mask: Tensor) -> Tensor:
    """log ρ_t + min_{j<t} log ρ_j over a row's sampled tokens; the first has nothing before it. -> (N, T)"""
    before = log_ratio.masked_fill(~mask, inf).cummin(-1).values.roll(1, -1)
    before[:, 0] = inf
    return log_ratio + before.masked_fill(before == inf, 0.0)


def _product(log_ratio: Tensor, mask: Tensor) -> Tensor:
    """Σ_t log ρ_t over a row's sampled tokens, the same for all of them. -> (N, T)"""
    return (log_ratio * mask).sum(-1, keepdim=True).expand_as(log_ratio)


RATIOS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "token": lambda log_ratio, mask: log_ratio, "least": _least, "sequence": _product,
}


def pessimistic(ratio: Tensor, credit: Tensor, low: float, high: float, dual: float) -> Out:
    loss = torch.maximum(-credit * ratio, -credit * ratio.clamp(1 - low, 1 + high))
    if dual:
        loss = torch.where(credit < 0, torch.minimum(loss, -credit * dual), loss)
    below, above = (ratio < 1 - low) & (credit < 0), (ratio > 1 + high) & (credit > 0)
    return loss, {
        "clip_ratio/low_mean": below.float(),
        "clip_ratio/high_mean": above.float(),
        "clip_ratio/region_mean": (below | above).float(),
    }


def credit(batch: Batch) -> Tensor:
    if batch.advantage is None:
        raise ValueError("a loss needs batch.advantage, which the loop sets from the recipe's `advantage`")
    return batch.advantage
