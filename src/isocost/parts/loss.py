"""Per-token surrogates, unreduced: a loss says what a token costs, `weight` says how tokens are averaged.

Every one returns ((N, T), {name: (N, T)}). Ratios are current over old policy, through `ops.log_ratio`; where the
sampler's own log-probs enter, they do so through `corrected`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

import torch
from torch import Tensor

from isocost import ops
from isocost.errors import UserError
from isocost.parts.enrich import reads_reference
from isocost.seams import Loss
from isocost.traits import bounds, gives
from isocost.types import Batch, Forward

Out = tuple[Tensor, dict[str, Tensor]]
FINITE = 60.0       # a product of ratios has a log within ±this: a sum of thousands is a float32 yet, and none is 0
ESTIMATES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"k1": ops.k1, "k2": ops.k2, "k3": ops.k3}


def reinforce(out: Forward, batch: Batch) -> Out:
    """-A log π."""
    return -_credit(batch) * out.logp, {}


@bounds(low="[0, 1]", high="[0, inf]", dual="0 or [1, inf)")
def clipped(out: Forward, batch: Batch, *, low: float = 0.2, high: float = 0.2, dual: float = 0.0) -> Out:
    """PPO's pessimistic surrogate, max(-A ρ, -A clip(ρ, 1 - low, 1 + high)) (arXiv:1707.06347).

    `dual` above 1 bounds what a bad token costs by -A dual (dual clip, arXiv:1912.09729); 0 leaves it off.
    """
    return _pessimistic(ops.log_ratio(out, batch).exp(), _credit(batch), low, high, dual)


@bounds(low="[0, 1]", high="[0, inf]")
def sequence_clipped(out: Forward, batch: Batch, *, low: float = 3e-4, high: float = 4e-4) -> Out:
    """PPO's surrogate with one ratio per row, the geometric mean of its tokens' (GSPO, arXiv:2507.18071)."""
    ratio = ops.row_mean(ops.log_ratio(out, batch), batch.mask).exp().expand_as(out.logp)
    return _pessimistic(ratio, _credit(batch), low, high, 0.0)


@gives("importance ratios")
@bounds(high="(0, inf]")
def truncated(out: Forward, batch: Batch, *, high: float = 5.0) -> Out:
    """-sg(min(ρ, high)) A log π: the weight is capped and every token keeps its gradient (CISPO, arXiv:2506.13585)."""
    return reweighed(out, batch, over="token", high=high)


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
    return -_credit(batch) * ratio.clamp(max=high) * out.logp, seen


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


def between(out: Forward, batch: Batch) -> Batch:
    """A batch with a `lag` gets for its old policy one between sampler and learner, and any other stays as it is.

    log π_old = log μ + α (log π − log μ), α = (lag − 1) / lag: a guess of the learner one step ago, which costs no
    forward pass (AReaL, arXiv:2505.24298). Tokens of this step, or of the last, keep their sampler.
    """
    if "lag" not in batch.extra:
        return batch
    way = 1 - 1 / batch.extra["lag"].clamp(min=1)
    return batch.but(old=(batch.logp + way * (out.logp.detach() - batch.logp)) * batch.mask)


@bounds(tau="[0, inf)")
def regressed(out: Forward, batch: Batch, *, tau: float = 0.1) -> Out:
    """-A log π + (τ/2) (log ρ)², the ratio being the whole row's: a squared loss on answers (arXiv:2501.12599).

    Its gradient is that of Σ (A - τ log ρ)² / 2τ: the row's log-ratio is pulled to A / τ and no further. The square
    is shared out over the tokens, so their weights within a row must be equal.
    """
    log_ratio = ops.log_ratio(out, batch) * batch.mask
    whole = log_ratio.sum(-1, keepdim=True)
    return -_credit(batch) * out.logp + tau / 2 * whole * log_ratio, {"log_ratio": whole.expand_as(log_ratio)}


@bounds(scale="[0, inf)")
def entropy_bonus(out: Forward, batch: Batch, *, scale: float = 1e-3) -> Out:
    """-scale · H(π): keeps the policy undecided. Not to be used without a leash on hard problems."""
    return -scale * out.entropy, {}


@reads_reference
@bounds(scale="[0, inf)")
def to_reference(out: Forward, batch: Batch, *, scale: float = 1e-3, estimate: str = "k2") -> Out:
    """scale · KL(π ‖ reference), estimated per token; needs `enrich.reference`.

    On samples of π the gradient of k2 is KL's; k3's is that of KL(reference ‖ π), and k1's has zero mean.
    """
    if estimate not in ESTIMATES:
        raise UserError(f"the estimate of a KL is one of {', '.join(ESTIMATES)}; not {estimate!r}")
    reference = batch.extra["reference"]
    return scale * ESTIMATES[estimate](out.logp, reference), {"kl": ops.k3(out.logp.detach(), reference)}


def plus(out: Forward, batch: Batch, *, terms: Sequence[Loss]) -> Out:
    """The sum of several losses; a metric that two of them report is the last one's."""
    total = torch.zeros_like(out.logp)
    seen: dict[str, Tensor] = {}
    for term in terms:
        loss, more = term(out, batch)
        total, seen = total + loss, {**seen, **more}
    return total, seen


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


def _pessimistic(ratio: Tensor, credit: Tensor, low: float, high: float, dual: float) -> Out:
    loss = torch.maximum(-credit * ratio, -credit * ratio.clamp(1 - low, 1 + high))
    if dual:
        loss = torch.where(credit < 0, torch.minimum(loss, -credit * dual), loss)
    below, above = (ratio < 1 - low) & (credit < 0), (ratio > 1 + high) & (credit > 0)
    return loss, {
        "clip_ratio/low_mean": below.float(),
        "clip_ratio/high_mean": above.float(),
        "clip_ratio/region_mean": (below | above).float(),
    }


def _credit(batch: Batch) -> Tensor:
    if batch.advantage is None:
        raise ValueError("a loss needs batch.advantage: the loop fills it from the recipe's `advantage`")
    return batch.advantage
