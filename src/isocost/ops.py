"""Small pure functions on tensors, independent of policies, engines and methods."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from torch import Tensor

from isocost.batch import Batch, Forward
from isocost.traits import trait

EPS = 1e-6
KNOWN = 4096    # outcomes of a function of a group's rewards that are kept


def per_group(f: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Turn f: (G,) rewards -> (G,) advantages into an advantage of a whole batch, shared by a rollout's sampled tokens.

    A group with equal rewards gets exactly 0, whatever rounding errors f makes. All such advantages compare siblings,
    which is declared here. f is a function of its numbers alone: groups with the same rewards are computed once.
    """
    known: dict[tuple[Any, ...], ndarray] = {}

    @trait("compares_siblings")
    @wraps(f)
    def advantage(batch: Batch, ledger=None, **settings) -> Tensor:
        if len(known) > KNOWN:
            known.clear()
        return spread(in_groups(partial(f, **settings), batch.reward, batch, known, *settings.items()), batch)

    return advantage


def in_groups(
    f: Callable[[Tensor], Tensor], x: Float[Tensor, "R"], batch: Batch,
    known: dict[tuple[Any, ...], ndarray] | None = None, *settings: tuple[str, Any],
) -> Float[Tensor, "R"]:
    """f: (G,) -> (G,) on one number per rollout, for each group separately; exactly 0 where a group's x are equal.

    `known` are outcomes of earlier calls of f with these settings.
    """
    numbers, known = x.detach().cpu().numpy(), {} if known is None else known
    out = np.zeros_like(numbers)
    for siblings in _siblings(batch):
        values = numbers[siblings]
        key = values.tobytes(), values.dtype, *settings
        found = known.get(key)
        if found is None:
            equal = bool((values == values[0]).all())
            found = np.zeros_like(values) if equal else f(torch.from_numpy(values).to(x.device)).detach().cpu().numpy()
            known[key] = found
        out[siblings] = found
    return torch.from_numpy(out).to(x.device)


def siblings_of(batch: Batch) -> list[Tensor]:
    """Indices of the rollouts of each (group, cohort): a list of (G,)."""
    every = np.arange(len(batch.group))
    return [torch.from_numpy(every[x]).to(batch.group.device) for x in _siblings(batch)]


def _siblings(batch: Batch) -> list[Int[ndarray, "G"] | slice]:
    """Where the rollouts of each (group, cohort) are; slices where they are neighbours."""
    group = batch.group.cpu().numpy()
    if not len(group):
        return []
    steps = group[1:] - group[:-1]
    order = np.argsort(group, kind="stable") if (steps < 0).any() else None
    if order is not None:
        steps = np.diff(group[order])
    begin = [0, *(np.flatnonzero(steps) + 1).tolist(), len(group)]
    return [slice(a, b) if order is None else order[a:b] for a, b in pairwise(begin)]


def spread(x: Float[Tensor, "R"], batch: Batch) -> Float[Tensor, "N T"]:
    """One number per rollout to all of its sampled tokens; zero elsewhere."""
    if plain(x, batch.mask):        # numpy, which takes a quarter of the time for what is this small
        return torch.from_numpy(x.numpy()[batch.rollout.numpy(), None] * batch.mask.numpy())
    return x[batch.rollout, None] * batch.mask


def plain(*tensors: Tensor) -> bool:
    """Whether numpy can compute on these in place: on the processor, without a gradient."""
    return not any(x.requires_grad or not x.is_cpu for x in tensors)


def of_rollouts(x: Float[Tensor, "N T"], batch: Batch) -> Float[Tensor, "R"]:
    """The largest value among a rollout's sampled tokens, 0 if there are none: the inverse of `spread`."""
    row, at = torch.nonzero(batch.mask, as_tuple=True)
    out = x.new_zeros(len(batch.reward))
    return out.scatter_reduce(0, batch.rollout[row], x[row, at], "amax", include_self=False)


def gae(
    values: Float[Tensor, "N T"], batch: Batch, *, gamma: float = 1.0, lam: float = 0.95
) -> Float[Tensor, "N T"]:
    """Generalised advantages of a rollout's sampled tokens, with all its reward at the last (arXiv:1506.02438).

    A_t = δ_t + γ λ A_{t+1}, δ_t = r_t + γ V_{t+1} − V_t, V_t the value before token t and 0 after the last. Tokens that
    the policy did not write take no time. `lam` 1 is the return minus V_t; 0 is δ_t.
    """
    row, at = torch.nonzero(batch.mask, as_tuple=True)
    count = torch.bincount(batch.rollout[row], minlength=len(batch.reward))
    owner, order = batch.rollout[row].sort(stable=True)
    row, at = row[order], at[order]
    turn = torch.arange(len(owner), device=owner.device) - (count.cumsum(0) - count)[owner]
    predicted = values.new_zeros(len(count), int(count.max()) + 1).index_put((owner, turn), values[row, at])
    delta = gamma * predicted[:, 1:] - predicted[:, :-1]
    nonempty = torch.nonzero(count)[:, 0]
    delta[nonempty, count[nonempty] - 1] += batch.reward[nonempty].to(delta.dtype)
    for k in reversed(range(delta.shape[1] - 1)):
        delta[:, k] += gamma * lam * delta[:, k + 1]
    return torch.zeros_like(values).index_put((row, at), delta[owner, turn])


def row_mean(x: Float[Tensor, "N T"], mask: Bool[Tensor, "N T"]) -> Float[Tensor, "N 1"]:
    """Mean over each row's sampled tokens."""
    return (x * mask).sum(-1, keepdim=True) / mask.sum(-1, keepdim=True).clamp(min=1)


def lengths(batch: Batch) -> Float[Tensor, "R"]:
    """Sampled tokens per rollout."""
    if plain(batch.mask):
        each = np.bincount(batch.rollout.numpy(), batch.mask.numpy().sum(-1), len(batch.reward))
        return torch.from_numpy(each).to(batch.reward.dtype)
    out = torch.zeros_like(batch.reward)
    return out.index_add_(0, batch.rollout, batch.mask.sum(-1, dtype=out.dtype))


def log_ratio(out: Forward, batch: Batch) -> Float[Tensor, "N T"]:
    """log of current over old policy, per token. Exactly 0 in the first epoch of an on-policy batch."""
    return out.logp - (out.logp.detach() if batch.old is None else batch.old)


def mismatch(out: Forward, batch: Batch) -> Float[Tensor, "N T"]:
    """log of the learner's old policy over the sampler's, which `loss.corrected` corrects. No gradient."""
    return (out.logp.detach() if batch.old is None else batch.old) - batch.logp


def k1(logp: Tensor, reference: Tensor) -> Tensor:
    """log pi - log ref: unbiased for KL(pi || ref) on samples of pi; as a loss its gradient has zero mean."""
    return logp - reference


def k2(logp: Tensor, reference: Tensor) -> Tensor:
    """(log pi - log ref)^2 / 2: as an on-policy loss its gradient is that of the KL."""
    return (logp - reference).square() / 2


def k3(logp: Tensor, reference: Tensor) -> Tensor:
    """r - 1 - log r with r = ref / pi: unbiased, never negative (Schulman 2020)."""
    gap = reference - logp
    return gap.exp() - gap - 1
