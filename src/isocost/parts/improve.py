"""How a batch becomes one or more updates. The coarse seam: what will not fit the fine ones goes here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from isocost import chance
from isocost.batch import Batch
from isocost.ops import row_mean
from isocost.pack import pack
from isocost.seams import Improve, Recipe
from isocost.traits import bounds
from isocost.types import Group, Role
from isocost.world import World

if TYPE_CHECKING:
    from isocost.ledger import Ledger

SHELF = "shelf"     # the ledger keeps groups for replay under this name


@bounds(epochs="[1, inf)", minibatches="[1, inf)")
def policy(
    batch: Batch, recipe: Recipe, world: World, ledger: Ledger, *, epochs: int = 1, minibatches: int = 1,
    ratios: bool = True,
) -> dict[str, float]:
    """Descend the recipe's loss, `epochs` times over the batch, in `minibatches` updates each.

    Minibatches hold whole rollouts, and the recipe's average is taken over each by itself. Metrics are means over
    the updates. Without `ratios` nothing is scored to take them to: for a loss that has none, as imitation's.
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
    means = {k: sum(s[k] for s in seen) / len(seen) for k in seen[0]}
    return {**means, "learning_rate": lr}


@bounds(fresh="(0, 1]", room="[1, inf)")
def replayed(
    batch: Batch, recipe: Recipe, world: World, ledger: Ledger, *,
    fresh: float = 0.5, room: int = 512, mixed: bool = True, inner: Improve = policy,
) -> dict[str, float]:
    """Any improvement, on the fresh groups and on remembered ones beside them (DOTS, arXiv:2506.05316).

    The update has the share `fresh` of new groups; the others are drawn evenly from the ledger's shelf, which holds
    the newest group of each problem, or the newest `mixed` one, `room` at most, the oldest leaving first. They were
    paid for and met their fate when they were sampled: here they cost training tokens alone. Their rollouts are marked
    "replay", and their ratios are to the sampler's log-probs (`with_old`). Whatever `enrich` adds is computed for the
    whole again.
    """
    shelf = list(ledger.kept[SHELF])
    wanted = min(round(len(batch.groups) * (1 - fresh) / fresh), len(shelf))
    draw = chance.generator(ledger.seed, chance.Purpose.REPLAY, ledger.step)
    again = [shelf[i] for i in sorted(draw.permutation(len(shelf))[:wanted].tolist())]
    for group in batch.groups:
        if not mixed or len(set(group.rewards.tolist())) > 1:
            remember(group, ledger, room)
    if again:
        batch = pack([*batch.groups, *again], version=world.engine.version)
        for add in recipe.enrich:
            batch = add(batch, world)
        batch = batch.but(advantage=recipe.advantage(batch, ledger))
        batch = batch.but(weight=recipe.weight(batch))
    return {**inner(batch, recipe, world, ledger), "replayed": float(len(again))}


def remember(group: Group, ledger: Ledger, room: int) -> None:
    """Keep a group for replay in place of an older one of its problem; of more than `room` the oldest are dropped."""
    shelf = [g for g in ledger.kept[SHELF] if g.problem.id != group.problem.id]
    shelf.append(group.of(r.but(origin="replay") for r in group.rollouts))
    ledger.kept[SHELF] = shelf[max(len(shelf) - room, 0) :]


def with_old(batch: Batch, world: World, *, updates: int) -> Batch:
    """The batch with `old` where it is needed: the learner's log-probs at the version that sampled. -> (N, T)

    One update on fresh rollouts needs none: the current forward, detached, is the same and free. Otherwise rows of
    this step are scored (and charged); of older ones the sampler's log-probs are all that is left.
    """
    aged = batch.age[batch.rollout] > 0
    if updates == 1 and not bool(aged.any()):
        return batch
    old, fresh = batch.logp, torch.nonzero(~aged)[:, 0]
    if len(fresh):
        old = old.index_copy(0, fresh, world.learner.score(batch.rows(fresh)).logp.to(old.dtype))
    return batch.but(old=old * batch.mask)


def split(batch: Batch, parts: int) -> list[Batch]:
    chunks = torch.arange(len(batch.reward), device=batch.rollout.device).tensor_split(min(parts, len(batch.reward)))
    return [batch.rows(rows_of(chunk, batch)) for chunk in chunks]


def rows_of(rollouts: Tensor, batch: Batch) -> Tensor:
    return torch.nonzero(torch.isin(batch.rollout, rollouts))[:, 0]


def imitating(
    batch: Batch, recipe: Recipe, world: World, ledger: Ledger, *, own: bool = True, inner: Improve = policy
) -> dict[str, float]:
    """Any improvement, in which a teacher's tokens carry the credit of the rollout they stand in, if it is above 0.

    So they are never unlearned, and nothing is where credit is not. Without `own`, where they do the policy's tokens
    after them do not. Averages are taken anew; the tokens are as old as the step, for nobody sampled them.
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
