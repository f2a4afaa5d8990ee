"""Per-token surrogates, unreduced: a loss says what a token costs, `weight` says how tokens are averaged.

Every one returns ((N, T), {name: (N, T)}). Ratios are current over old policy, through `ops.log_ratio`; where the
sampler's own log-probs enter, they do so through `corrected`.
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
from isocost.traits import bounds, gives

Out = tuple[Tensor, dict[str, Tensor]]
FINITE = 60.0       # a product of ratios has a log within ±this: a sum of thousands is a float32 yet, and none is 0


@bounds(low="[0, 1]", high="[0, inf]", dual="0 or [1, inf)")
def clipped(out: Forward, batch: Batch, *, low: float = 0.2, high: float = 0.2, dual: float = 0.0) -> Out:
    """PPO's pessimistic surrogate, max(-A ρ, -A clip(ρ, 1 - low, 1 + high)) (arXiv:1707.06347).

    `dual` above 1 bounds what a bad token costs by -A dual (dual clip, arXiv:1912.09729); 0 leaves it off.
    """
    return pessimistic(ops.log_ratio(out, batch).exp(), credit(batch), low, high, dual)


@gives("importance ratios")
@bounds(high="(0, inf]")
def reweighed(out: Forward, batch: Batch, *, over: str = "token", high: float = 5.0) -> Out:
    """-sg(min(w, high)) A log π, where w looks at one token's ratio, or at those before it as well.

    `over` "token" takes w_t = ρ_t (CISPO), "least" ρ_t times the smallest ratio before it (MinPRO,
    arXiv:2601.22718), "sequence" the product over the row: what importance sampling of whole answers asks for.
    """
    if over not in RATIOS:
        raise UserError(f"ratios are taken over one of {', '.join(RATIOS)}; not {over!r}")
    ratio = RATIOS[over](ops.log_ratio(out, batch).detach(), batch.mask).clamp(-FINITE, FINITE).exp()
    seen = {"clip_ratio/region_mean": (ratio > high).float(), "importance_ratio": ratio}
    return -credit(batch) * ratio.clamp(max=high) * out.logp, seen


@gives("a correction")
@bounds(cap="(0, inf]")
def corrected(out: Forward, batch: Batch, *, inner: Loss, cap: float = 2.0, reject: bool = False) -> Out:
    """Any loss, weighed by min(old / sampler, cap), a constant: truncated importance sampling.

    It corrects for a sampler that is not quite the learner (other kernels, other precision), and does nothing where
    the two agree (Yao et al. 2025, "Your efficient RL framework secretly brings you off-policy RL training"). With
    `reject` a token beyond the cap weighs nothing; it stays in the average.
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
        raise ValueError("a loss needs batch.advantage: the loop fills it from the recipe's `advantage`")
    return batch.advantage
