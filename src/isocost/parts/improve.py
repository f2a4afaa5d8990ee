"""How a batch becomes one or more updates: the coarsest seam, for what the finer ones cannot express."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from isocost import chance
from isocost.batch import Batch
from isocost.credit import credited
from isocost.ops import plain, row_mean
from isocost.seams import Improve, Recipe
from isocost.traits import bounds, exported
from isocost.types import Group, Role
from isocost.world import World

if TYPE_CHECKING:
    from isocost.ledger import Ledger

SHELF = "shelf"     # the ledger keeps groups for replay under this name


@exported("epochs", "minibatches")
@bounds(epochs="[1, inf)", minibatches="[1, inf)")
def policy(
    batch: Batch, recipe: Recipe, world: World, ledger: Ledger, *, epochs: int = 1, minibatches: int = 1,
    ratios: bool = True,
) -> dict[str, float]:
    """Descend the recipe's loss, `epochs` times over the batch, in `minibatches` updates each.

    Minibatches hold whole rollouts, and the recipe's average is computed on each. Metrics are means over the updates.
    Without `ratios` no old log-probs are scored: for a loss without ratios, such as imitation's.
    """
    if ratios:
        batch = with_old(batch, world, updates=epochs * minibatches)
    return descend(batch, recipe, world, ledger, epochs, minibatches)


def descend(
    batch: Batch, recipe: Recipe, world: World, ledger: Ledger, epochs: int, minibatches: int
) -> dict[str, float]:
    """`epochs` times over the batch, in `minibatches` updates each."""
    lr = recipe.pace(ledger).lr
    parts = [batch] if minibatches == 1 else [p.but(weight=recipe.weight(p)) for p in split(batch, minibatches)]
    seen = [world.learner.update(part, recipe.loss, lr=lr) for _ in range(epochs) for part in parts]
    means = {k: sum([s[k] for s in seen]) / len(seen) for k in seen[0]}
    return {**means, "learning_rate": lr}


@bounds(fresh="(0, 1]", room="[1, inf)")
def replayed(
    batch: Batch, recipe: Recipe, world: World, ledger: Ledger, *,
    fresh: float = 0.5, room: int = 512, mixed: bool = True, inner: Improve = policy,
) -> dict[str, float]:
    """Any improvement, on the fresh groups and on groups kept from earlier steps (DOTS, arXiv:2506.05316).

    The update has a share `fresh` of new groups; the others are drawn uniformly from the ledger's shelf. The shelf
    holds the newest group of each problem, or the newest `mixed` one, at most `room`; the oldest are dropped first.
    They were paid for when they were sampled, so here they cost training tokens alone. Their rollouts have the origin
    "replay", and their ratios are to the sampler's log-probs (`with_old`). `enrich` is computed again for the whole
    update.
    """
    shelf = list(ledger.kept[SHELF])
    wanted = min(round(len(batch.groups) * (1 - fresh) / fresh), len(shelf))
    draw = chance.generator(ledger.seed, chance.Purpose.REPLAY, ledger.step)
    again = [shelf[i] for i in sorted(draw.permutation(len(shelf))[:wanted].tolist())]
    for group in batch.groups:
        if not mixed or len(set(group.rewards.tolist())) > 1:
            remember(group, ledger, room)
    if again:
        batch = credited([*batch.groups, *again], recipe, world, ledger)
    return {**inner(batch, recipe, world, ledger), "replayed": float(len(again))}


def remember(group: Group, ledger: Ledger, room: int) -> None:
    """Keep a group for replay in place of an older one of its problem; of more than `room` the oldest are dropped."""
    shelf = [g for g in ledger.kept[SHELF] if g.problem.id != group.problem.id]
    shelf.append(group.of(r.but(origin="replay") for r in group.rollouts))
    ledger.kept[SHELF] = shelf[max(len(shelf) - room, 0) :]


def with_old(batch: Batch, world: World, *, updates: int) -> Batch:
    """The batch with `old` where needed: the learner's log-probs at the version that sampled. -> (N, T)

    One update on fresh rollouts needs none: the current forward pass, detached, is the same. Otherwise rows of this
    step are scored (and charged); older rows use the sampler's log-probs.
    """
    if updates == 1 and not (batch.age.numpy() if plain(batch.age) else batch.age).any():      # no age is below 0
        return batch
    aged = batch.age[batch.rollout] > 0
    old, fresh = batch.logp, torch.nonzero(~aged)[:, 0]
    if len(fresh):
        old = old.index_copy(0, fresh, world.learner.score(batch.rows(fresh)).logp.to(old.dtype))
    return batch.but(old=old * batch.mask)


def split(batch: Batch, parts: int) -> list[Batch]:
    """The batch in so many parts of whole rollouts, or one for each rollout if there are fewer."""
    chunks = torch.arange(len(batch.reward), device=batch.rollout.device).tensor_split(min(parts, len(batch.reward)))
    return [batch.rows(rows_of(chunk, batch)) for chunk in chunks]


def rows_of(rollouts: Tensor, batch: Batch) -> Tensor:
    """Indices of the rows of these rollouts."""
    return torch.nonzero(torch.isin(batch.rollout, rollouts))[:, 0]


def imitating(
    batch: Batch, recipe: Recipe, world: World, ledger: Ledger, *, own: bool = True, inner: Improve = policy
) -> dict[str, float]:
    """Any improvement, in which a teacher's tokens get the advantage of their rollout, if it is above 0.

    They are therefore never made less likely. Without `own`, the policy's tokens in the same rows get no advantage.
    Weights are computed again. The tokens have the age of the step, because no policy sampled them.
    """
    given = batch.advantage
    assert given is not None
    credit = row_mean(given, batch.mask)                                                   # (N, 1)
    theirs = (batch.role == int(Role.TEACHER)) & (credit > 0)
    taught = theirs.any(-1)
    if not bool(taught.any()):
        return {**inner(batch, recipe, world, ledger), "taught": 0.0}
    if bool((batch.age > 0).any()):
        now = world.learner.score(batch.but(mask=theirs, kept=())).logp.to(batch.logp.dtype)
        batch = batch.but(logp=torch.where(theirs, now, batch.logp))
    kept = tuple(() if t else k for t, k in zip(taught.tolist(), batch.kept, strict=True)) if batch.kept else ()
    mask = batch.mask | theirs if own else torch.where(taught[:, None], theirs, batch.mask)
    batch = batch.but(mask=mask, kept=kept, advantage=torch.where(theirs, credit, given) * mask)
    batch = batch.but(weight=recipe.weight(batch))
    return {**inner(batch, recipe, world, ledger), "taught": float(theirs.sum())}
