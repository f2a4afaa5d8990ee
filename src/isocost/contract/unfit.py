"""What a seam takes or returns that the loop cannot use: named by its seam, with the file and line of its function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from math import isfinite
from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from isocost import seams
from isocost.batch import Batch, Forward
from isocost.errors import UserError
from isocost.recipe import defined_in
from isocost.seams import Pace, Recipe
from isocost.types import Group, Problem, Rollout, Score

NOT_FINITE = "returned values that are not finite"
CALLED: Mapping[str, type] = {      # how the loop calls each seam
    "choose": seams.Choose, "guide": seams.Guide, "allocate": seams.Allocate, "play": seams.Play,
    "schedule": seams.Schedule, "reward": seams.Reward, "select": seams.Select, "advantage": seams.Advantage,
    "weight": seams.Weight, "loss": seams.Loss, "improve": seams.Improve, "pace": seams.PaceFn,
}
WAITED = tuple(k for k, v in CALLED.items() if inspect.iscoroutinefunction(v.__call__))


def watched(recipe: Recipe) -> Recipe:
    """The recipe, whose seams raise a UserError where their function takes or returns what the loop cannot use."""
    return recipe.but(**{seam: _watched(seam, getattr(recipe, seam)) for seam in CALLED})


def _watched(seam: str, fn: Callable[..., Any]) -> Callable[..., Any]:
    said, takes = f"`{seam}` ({place(fn)})", inspect.signature(fn, follow_wrapped=False)
    names = [p for p in inspect.signature(CALLED[seam].__call__).parameters if p != "self"]

    def call(*args: Any, **keywords: Any) -> Any:
        try:
            takes.bind(*args, **keywords)
        except TypeError:
            alone = seam == "advantage" and sum(p.kind is not p.KEYWORD_ONLY for p in takes.parameters.values()) == 1
            more = "; decorate a function of one group's rewards with @per_group" if alone else ""
            raise UserError(f"{said} takes {takes}; it is called with ({', '.join(names)}){more}") from None
        made = fn(*args, **keywords)
        waits = inspect.isawaitable(made)
        if seam in WAITED:
            if not waits:
                raise UserError(f"{said} is no coroutine: write `async def`")
            return _awaited(seam, said, made)
        if inspect.iscoroutine(made):
            made.close()
            raise UserError(f"{said} is a coroutine: write `def`, not `async def`")
        return _fit(seam, said, made)

    return call


async def _awaited(seam: str, said: str, made: Any) -> Any:
    return _fit(seam, said, await made)


def _fit(seam: str, said: str, made: Any) -> Any:
    expected = {
        "choose": ("a list of problems", lambda: _list_of(made, Problem)),
        "guide": ("a list of problems", lambda: _list_of(made, Problem)),
        "allocate": ("a list of counts or a generator of them",
                     lambda: isinstance(made, Generator) or _list_of(made, Integral)),
        "play": ("a list of rollouts", lambda: _list_of(made, Rollout)),
        "schedule": ("a list of rollouts", lambda: _list_of(made, Rollout)),
        "reward": ("a Group", lambda: isinstance(made, Group)),
        "select": ("a Group, or None to leave it out", lambda: made is None or isinstance(made, Group)),
        "advantage": ("a tensor of shape (N, T)", lambda: isinstance(made, Tensor)),
        "weight": ("a tensor of shape (N, T)", lambda: isinstance(made, Tensor)),
        "loss": ("(loss, {name: metric}); the dict may be empty", lambda: isinstance(made, tuple) and len(made) == 2
                 and isinstance(made[0], Tensor) and isinstance(made[1], Mapping)),
        "improve": ("a dict of metrics", lambda: isinstance(made, Mapping)),
        "pace": ("a Pace", lambda: isinstance(made, Pace)),
    }
    wanted, fits = expected[seam]
    if not fits():
        what, more = ("None", ": is a `return` missing?") if made is None else (f"a {type(made).__name__}", "")
        raise UserError(f"{said} returned {what}, expected {wanted}{more}")
    if seam == "reward":
        odd = next((r.score for r in made.rollouts if not isinstance(r.score, Score | None)), None)
        if odd is not None:
            raise UserError(f"{said} gave a rollout a score of type {type(odd).__name__}; write isocost.types.Score(x)")
    if seam == "loss" and not made[0].requires_grad:
        raise UserError(f"{said} returned a loss without a gradient: it must depend on out.logp, and not through "
                        "`detach` or numpy alone")
    return made


def _list_of(made: Any, kind: type) -> bool:
    return isinstance(made, Sequence) and all(isinstance(x, kind) for x in made)


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
    """Which seam made an update of this batch at this learning rate not finite, and where it is defined. In the order
    in which they are computed: the first that is not finite has made the others so. The loss is tried at the log-probs
    of the sampler, which costs no forward pass."""
    if not isfinite(rate):
        return f"`pace` ({place(recipe.pace)}) returned a learning rate of {rate}"
    if not bool(torch.isfinite(batch.reward).all()):
        return f"`reward` ({place(recipe.reward)}) {NOT_FINITE}"
    for name, given in batch.extra.items():
        if not bool(torch.isfinite(given[batch.mask]).all()):
            added = " or ".join(map(place, recipe.enrich))
            return f"`enrich` ({added}) {NOT_FINITE}, as {name!r}"
    for seam, made in (("advantage", batch.advantage), ("weight", batch.weight)):
        if made is not None and (wrong := _not_finite(f"`{seam}` ({place(getattr(recipe, seam))})", made, batch)):
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
    except Exception:       # of this trial alone, because the update itself raised nothing
        return ""
    said = f"`loss` ({place(recipe.loss)})"
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


def place(seam: Any) -> str:
    """The file and line of a seam's function."""
    return defined_in(seam.func if isinstance(seam, partial) else seam)
