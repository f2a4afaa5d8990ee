"""How a batch becomes one or more updates. The coarse seam: what will not fit the fine ones goes here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from isocost import chance
from isocost.errors import UserError
from isocost.ops import EPS, gae, of_rollouts, siblings_of, spread
from isocost.pack import pack
from isocost.parts.enrich import reads_values
from isocost.seams import Improve, Recipe
from isocost.traits import bounds, gives, requires, shares, trait
from isocost.types import Batch, Group
from isocost.world import World

if TYPE_CHECKING:
    from isocost.ledger import Ledger


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
    return _descend(batch, recipe, world, ledger, epochs, minibatches)


@gives("a step's own ratios")
@requires(
    "a correction", at="loss",
    why="its ratios are to the learner as the step begins, so what the sampler was apart from it must be corrected; "
        "put the loss inside loss.corrected",
)
@bounds(epochs="[1, inf)", minibatches="[1, inf)")
def decoupled(
    batch: Batch, recipe: Recipe, world: World, ledger: Ledger, *, epochs: int = 1, minibatches: int = 1
) -> dict[str, float]:
    """`policy`, with ratios to the learner as it is when the step begins, however old the rollouts (AReaL).

    What the rollouts were sampled by is `loss.corrected`'s business: clipping to a policy of several steps ago would
    hold the learner back there (arXiv:2505.24298). More than one update scores the whole batch first, unless it
    carries a `lag`: then `loss.between` puts a policy in between, for nothing (`enrich.lag`).
    """
    if epochs * minibatches > 1 and "lag" not in batch.extra:
        batch = batch.but(old=world.learner.score(batch).logp.to(batch.logp.dtype) * batch.mask)
    return _descend(batch, recipe, world, ledger, epochs, minibatches)


def restarted(
    batch: Batch, recipe: Recipe, world: World, ledger: Ledger, *, inner: Improve = policy
) -> dict[str, float]:
    """Any improvement, with an optimiser that remembers nothing of the batches before (Kimi k1.5, arXiv:2501.12599)."""
    world.learner.forget()
    return inner(batch, recipe, world, ledger)


@gives("a critic")
@reads_values
@shares(gamma="gamma", lam="lam")
@bounds(gamma="[0, 1]", lam="[0, 1]", faster="(0, inf)", epochs="[1, inf)", minibatches="[1, inf)")
def with_critic(
    batch: Batch, recipe: Recipe, world: World, ledger: Ledger, *,
    gamma: float = 1.0, lam: float = 0.95, faster: float = 1.0, epochs: int = 1, minibatches: int = 1,
) -> dict[str, float]:
    """`policy`, and beside it as many updates of the critic, towards what it foresaw plus `ops.gae` of that.

    Needs `enrich.values`; `gamma` and `lam` are the advantage's. The critic's rate is `faster` times the policy's.
    """
    critic, values = world.critic, batch.extra["values"]
    assert critic is not None
    returns = values + gae(values, batch, gamma=gamma, lam=lam)
    parts = _split(batch.but(extra={**batch.extra, "returns": returns}), minibatches)
    lr = recipe.pace(ledger).lr * faster
    told = [critic.fit(part, part.extra["returns"], lr=lr) for _ in range(epochs) for part in parts]
    left, whole = (x[batch.mask].var(correction=0) for x in (returns - values, returns))
    return {
        **policy(batch, recipe, world, ledger, epochs=epochs, minibatches=minibatches),
        **{k: sum(t[k] for t in told) / len(told) for k in told[0]},
        "critic/explained": float(1 - left / whole.clamp(min=EPS**2)),
    }


@trait("by_rollout")
@requires(
    "importance ratios", at="loss",
    why="its baseline and its step count rollouts by their importance ratio, which this loss does not tell; take "
        "loss.reweighed",
)
@bounds(full="(0, inf)", power="[0, inf)")
def least_variance(
    batch: Batch, recipe: Recipe, world: World, ledger: Ledger, *, full: float = 1.0, power: float = 0.5
) -> dict[str, float]:
    """One update with each group's baseline of least variance, and a step that shrinks with the rollouts that count.

    A rollout's credit, one for all its tokens, is taken less b = Σ W A / Σ W over its group, W = ‖w ∇ log π(y)‖²,
    w its importance ratio. The rate is times min(1, ρ / full)^power, where ρ = (Σ w)² / (R Σ w²) of the ratios before
    any cap, the metric `importance_ratio` of the loss (VCPO, arXiv:2602.17616). Both come out of one backward pass
    for each rollout, which is all that an update takes. Raises UserError for credit or weights by token, and for
    a loss without that metric.
    """
    batch = with_old(batch, world, updates=1)
    assert batch.advantage is not None and batch.weight is not None
    credit, share = (of_rollouts(x, batch) for x in (batch.advantage, batch.weight))
    if not torch.equal(spread(credit, batch), batch.advantage) or not torch.equal(spread(share, batch), batch.weight):
        raise UserError("a baseline for whole rollouts needs one credit and one weight for all tokens of a rollout")
    total = batch.reward.new_zeros(())
    seen: list[dict[str, float]] = []
    for siblings in siblings_of(batch):
        gradient, told = _centred(siblings, credit, share, batch, recipe, world)
        total, seen = total + gradient, seen + told
    ratios = [s["importance_ratio"] for s in seen]
    counting = sum(ratios) ** 2 / (len(ratios) * sum(r * r for r in ratios))
    lr = recipe.pace(ledger).lr * min(1.0, counting / full) ** power
    norm = world.learner.step(total, lr=lr)
    means = {k: sum(s[k] for s in seen) / len(seen) for k in seen[0]}
    return {**means, "loss": means["loss"] * len(seen), "counting": counting, "grad_norm": norm, "learning_rate": lr}


def _centred(
    siblings: Tensor, credit: Tensor, share: Tensor, batch: Batch, recipe: Recipe, world: World
) -> tuple[Tensor, list[dict[str, float]]]:
    """The gradient of a group whose credit is taken less its baseline, and the metrics of each rollout."""
    unit = batch.mask.to(credit.dtype)
    rows = batch.but(advantage=unit, weight=unit).rows(_rows_of(siblings, batch))
    rewarded, scores, worth, seen = credit.new_zeros(()), credit.new_zeros(()), [], []
    for i, (gradient, told) in zip(siblings, world.learner.gradients(rows, recipe.loss), strict=True):
        if "importance_ratio" not in told:
            raise UserError("the loss tells no importance_ratio, by which rollouts are counted: take loss.reweighed")
        scores, rewarded = scores + share[i] * gradient, rewarded + share[i] * credit[i] * gradient
        worth.append(float(gradient.square().sum()))
        seen.append(told)
    weights = credit.new_tensor(worth)
    base = (weights * credit[siblings]).sum() / weights.sum().clamp(min=EPS**2)
    for told, here in zip(seen, share[siblings] * (credit[siblings] - base), strict=True):
        told["loss"] *= float(here)
    return rewarded - base * scores, seen


def _descend(
    batch: Batch, recipe: Recipe, world: World, ledger: Ledger, epochs: int, minibatches: int
) -> dict[str, float]:
    """`epochs` times over the batch, in `minibatches` updates each."""
    lr = recipe.pace(ledger).lr
    parts = [batch] if minibatches == 1 else [p.but(weight=recipe.weight(p)) for p in _split(batch, minibatches)]
    seen = [world.learner.update(part, recipe.loss, lr=lr) for _ in range(epochs) for part in parts]
    means = {k: sum(s[k] for s in seen) / len(seen) for k in seen[0]}
    return {**means, "learning_rate": lr}


def weighed(
    batch: Batch, recipe: Recipe, world: World, ledger: Ledger, *, inner: Improve = policy
) -> dict[str, float]:
    """Any improvement, on the rows that weigh something: what the average leaves out is not paid for either."""
    assert batch.weight is not None
    rows = torch.nonzero(batch.weight.any(-1))[:, 0]
    return inner(batch.rows(rows) if len(rows) else batch, recipe, world, ledger)


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
    shelf = list(ledger.shelf.values())
    wanted = min(round(len(batch.groups) * (1 - fresh) / fresh), len(shelf))
    draw = chance.generator(ledger.seed, chance.Purpose.REPLAY, ledger.step)
    again = [shelf[i] for i in sorted(draw.permutation(len(shelf))[:wanted].tolist())]
    for group in batch.groups:
        if not mixed or len(set(group.rewards.tolist())) > 1:
            ledger.remember(_remembered(group), room)
    if again:
        batch = pack([*batch.groups, *again], version=world.engine.version)
        for add in recipe.enrich:
            batch = add(batch, world)
        batch = batch.but(advantage=recipe.advantage(batch, ledger))
        batch = batch.but(weight=recipe.weight(batch))
    return {**inner(batch, recipe, world, ledger), "replayed": float(len(again))}


def _remembered(group: Group) -> Group:
    return group.of(r.but(origin="replay") for r in group.rollouts)


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


def _split(batch: Batch, parts: int) -> list[Batch]:
    chunks = torch.arange(len(batch.reward), device=batch.rollout.device).tensor_split(min(parts, len(batch.reward)))
    return [batch.rows(_rows_of(chunk, batch)) for chunk in chunks]


def _rows_of(rollouts: Tensor, batch: Batch) -> Tensor:
    return torch.nonzero(torch.isin(batch.rollout, rollouts))[:, 0]
