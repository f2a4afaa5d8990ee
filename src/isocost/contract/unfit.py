"""What a seam returned that an update cannot use: another shape, or values that are not finite."""

from __future__ import annotations

from functools import partial
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from isocost.batch import Batch, Forward
from isocost.recipe import defined_in
from isocost.seams import Recipe

NOT_FINITE = "returned values that are not finite"


def unfit(seam: str, given: Any, batch: Batch) -> str:
    """Why this is not one finite number for each token of the batch; empty if it is."""
    shape = tuple(batch.tokens.shape)
    if given is None:
        return f"`{seam}` returned None, expected a tensor of shape {shape}: is a `return` missing?"
    if not isinstance(given, Tensor):
        return f"`{seam}` returned a {type(given).__name__}, expected a tensor of shape {shape}"
    if given.shape != shape:
        return f"`{seam}` returned a tensor of shape {tuple(given.shape)}, expected {shape}"
    return _not_finite(f"`{seam}`", given, batch)


def blamed(recipe: Recipe, batch: Batch, rate: float) -> str:
    """Which seam made an update of this batch at this learning rate not finite, and where it is defined.

    In the order in which they are computed: the first that is not finite has made the others so. The loss is tried at
    the log-probs of the sampler, which costs no forward pass.
    """
    if not isfinite(rate):
        return f"`pace` ({_where(recipe.pace)}) returned a learning rate of {rate}"
    if not bool(torch.isfinite(batch.reward).all()):
        return f"`reward` ({_where(recipe.reward)}) {NOT_FINITE}"
    for name, given in batch.extra.items():
        if not bool(torch.isfinite(given[batch.mask]).all()):
            added = " or ".join(map(_where, recipe.enrich))
            return f"`enrich` ({added}) {NOT_FINITE}, as {name!r}"
    for seam, made in (("advantage", batch.advantage), ("weight", batch.weight)):
        if made is not None and (wrong := _not_finite(f"`{seam}` ({_where(getattr(recipe, seam))})", made, batch)):
            return wrong
    return _of_loss(recipe, batch) or (
        "the gradient is not finite, although advantages, weights and the loss at the sampler's log-probs are; the "
        f"learning rate was {rate:g}"
    )


def _of_loss(recipe: Recipe, batch: Batch) -> str:
    logp, entropy = (x.detach().clone().requires_grad_() for x in (batch.logp, -batch.logp))
    try:
        loss, _ = recipe.loss(Forward(logp, entropy), batch)
        loss = torch.where(batch.mask, loss, 0.0)
        loss.sum().backward()
    except Exception:       # the update did not raise it
        return ""
    said = f"`loss` ({_where(recipe.loss)})"
    if not bool(torch.isfinite(loss).all()):
        return f"{said} {NOT_FINITE}"
    slopes = [x.grad for x in (logp, entropy) if x.grad is not None]
    return "" if all(bool(torch.isfinite(x).all()) for x in slopes) else f"the derivative of {said} is not finite"


def _not_finite(seam: str, given: Tensor, batch: Batch) -> str:
    if bool((good := torch.isfinite(given)).all()):
        return ""
    first = batch.rollout[~good.all(-1)][0]
    rewards = ", ".join(f"{r:g}" for r in batch.reward[batch.group == batch.group[first]].tolist())
    return f"{seam} {NOT_FINITE}, the first in a group with rewards {rewards}"


def _where(seam: Any) -> str:
    return defined_in(seam.func if isinstance(seam, partial) else seam)
