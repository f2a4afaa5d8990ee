"""Small pure functions on tensors, independent of policies, engines and methods."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial, wraps
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from torch import Tensor

from isocost.batch import Batch, Forward
from isocost.traits import trait

__all__ = [
    "Turns", "at_turns", "gae", "gae_turns", "in_groups", "in_states", "k1", "k2", "k3", "lengths", "log_ratio",
    "mismatch", "of_rollouts", "per_group", "row_mean", "siblings_of", "spread", "spread_turns", "to_go", "turn_ends",
    "turn_lengths", "turns_of",
]
EPS = 1e-6
KNOWN = 4096    # outcomes of a function of a group's rewards that are kept
_kept: list[dict[tuple[Any, ...], dict[bytes, ndarray]]] = []     # those of every function of `per_group`


def per_group(f: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Turn f: (G,) rewards -> (G,) advantages into an advantage of a whole batch, shared by a rollout's sampled tokens.

    A group with equal rewards gets exactly 0, whatever rounding errors f makes. All such advantages compare siblings,
    which is declared here. f is a function of its numbers alone: groups with the same rewards are computed once.
    """
    known: dict[tuple[Any, ...], dict[bytes, ndarray]] = {}
    _kept.append(known)

    @trait("compares_siblings")
    @wraps(f)
    def advantage(batch: Batch, ledger=None, **settings) -> Tensor:
        return spread(in_groups(partial(f, **settings), batch.reward, batch, known, *settings.items()), batch)

    return advantage


def forget_groups() -> None:
    """Compute all groups anew from here on, for a test that a function depends on its numbers alone."""
    for known in _kept:
        known.clear()


def in_groups(
    f: Callable[[Tensor], Tensor], x: Float[Tensor, "R"], batch: Batch,
    known: dict[tuple[Any, ...], dict[bytes, ndarray]] | None = None, *settings: tuple[str, Any],
) -> Float[Tensor, "R"]:
    """f: (G,) -> (G,) on one number per rollout, for each group separately; exactly 0 where a group's x are equal.

    `known` are outcomes of earlier calls of f, by the settings and then by the numbers.
    """
    numbers = array(x)
    kept = {} if known is None else known.setdefault((numbers.dtype, *settings), {})
    if len(kept) > KNOWN:
        kept.clear()
    out = np.empty_like(numbers)        # each rollout is in one group
    for siblings in _siblings(batch):
        values = numbers[siblings]
        key = values.tobytes()
        if key not in kept:
            equal = bool((values == values[0]).all())
            kept[key] = np.zeros_like(values) if equal else array(_each(f, torch.from_numpy(values).to(x.device)))
        out[siblings] = kept[key]
    return torch.from_numpy(out).to(x.device)


def _each(f: Callable[[Tensor], Tensor], x: Float[Tensor, "G"]) -> Float[Tensor, "G"]:
    """f of a group's numbers. Raises ValueError if it is not one number for each."""
    made = f(x)
    if not isinstance(made, Tensor) or made.shape != x.shape:
        what = f"a tensor of shape {tuple(made.shape)}" if isinstance(made, Tensor) else f"a {type(made).__name__}"
        name = getattr(f.func if isinstance(f, partial) else f, "__name__", "the function of a group")
        raise ValueError(f"{name} returned {what}, expected a tensor of shape {tuple(x.shape)}: a number per rollout")
    return made


def siblings_of(batch: Batch) -> list[Tensor]:
    """Indices of the rollouts of each (group, cohort): a list of (G,)."""
    every = np.arange(len(batch.group))
    return [torch.from_numpy(every[x]).to(batch.group.device) for x in _siblings(batch)]


def _siblings(batch: Batch) -> list[Int[ndarray, "G"] | slice]:
    """Where the rollouts of each (group, cohort) are; slices where they are neighbours."""
    group = array(batch.group)
    return _runs(group.tobytes(), group.dtype.str)


@lru_cache(maxsize=64)
def _runs(group: bytes, kind: str) -> list[Int[ndarray, "G"] | slice]:
    """Where each number is. Most batches of a run have as many groups, of one size."""
    number = np.frombuffer(group, dtype=kind)
    if not len(number):
        return []
    steps = np.diff(number)
    order = np.argsort(number, kind="stable") if (steps < 0).any() else None
    if order is not None:
        steps = np.diff(number[order])
    begin = [0, *(np.flatnonzero(steps) + 1).tolist(), len(number)]
    return [slice(a, b) if order is None else order[a:b] for a, b in pairwise(begin)]


def spread(x: Float[Tensor, "R"], batch: Batch) -> Float[Tensor, "N T"]:
    """One number per rollout to all of its sampled tokens; zero elsewhere."""
    if plain(x, batch.mask):        # numpy, which takes a quarter of the time for what is this small
        return torch.from_numpy(x.numpy()[batch.rollout.numpy()][:, None] * batch.mask.numpy())
    return x[batch.rollout, None] * batch.mask


def array(x: Tensor) -> ndarray:
    """The numbers of a tensor, wherever it is: a view where numpy can read it, which is what takes least time."""
    return x.numpy() if _readable(x) else x.detach().cpu().numpy()


def plain(*tensors: Tensor) -> bool:
    """Whether numpy can compute on these in place: on the processor, without a gradient."""
    return all(map(_readable, tensors))


def _readable(x: Tensor) -> bool:
    return x.is_cpu and not x.requires_grad


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


@dataclass(frozen=True)
class Turns:
    """The S turns that the policy took in a batch, rollout by rollout, each rollout's in order.

    `reward` sums to the rollout's: what no turn was given comes with its last. `key` is equal for turns that siblings
    took in the same state; turns of states without a name each have a key of their own.
    """

    rollout: Int[Tensor, "S"]
    number: Int[Tensor, "S"]
    row: Int[Tensor, "S"]       # of the batch, where its tokens are
    reward: Float[Tensor, "S"]
    key: Int[Tensor, "S"]


def turns_of(batch: Batch) -> Turns:
    """The turns of a batch, from its tokens and from what the environments answered."""
    row, at = torch.nonzero(batch.mask, as_tuple=True)
    width = int(batch.turn.max()) + 1 if batch.turn.numel() else 1
    code, whose = torch.unique(batch.rollout[row] * width + batch.turn[row, at], return_inverse=True)
    rollout, number = code // width, code % width
    where = torch.zeros_like(code).scatter_reduce(0, whose, row, "amax", include_self=False)
    each = [[r.turns for r in g.noted] or [()] * g.size for g in batch.groups]
    answered = [turns for group in each for turns in group] or [()] * len(batch.reward)
    counts = np.array([len(t) for t in answered])
    total, names = np.zeros(len(code)), dict[tuple[int, str], int]()
    keys = np.arange(len(code)) + int(counts.sum())      # a key of its own each
    if counts.any():
        index = np.concatenate(([0], np.cumsum(counts)[:-1]))
        flat = [t for turns in answered for t in turns]
        rewards = np.array([t.reward for t in flat])
        group = np.repeat(batch.group.cpu().numpy(), counts)
        named = np.array([
            names.setdefault((g, t.key), len(names)) if t.key else -1 for g, t in zip(group.tolist(), flat, strict=True)
        ])
        r, n = rollout.cpu().numpy(), number.cpu().numpy()
        there = n < counts[r]
        pick = index[r[there]] + n[there]
        total[there] = rewards[pick]
        keys[there] = np.where(named[pick] >= 0, named[pick], keys[there])
    reward = torch.from_numpy(total).to(batch.reward)
    left = batch.reward - torch.zeros_like(batch.reward).index_add(0, rollout, reward)
    last = torch.cat((rollout[1:] != rollout[:-1], rollout.new_ones(1, dtype=torch.bool))) if len(code) else rollout > 0
    reward[last] += left[rollout[last]]
    _, key = torch.unique(torch.from_numpy(keys), return_inverse=True)
    return Turns(rollout, number, where, reward, key.to(rollout))


def to_go(turns: Turns, *, gamma: float | Float[Tensor, "S"]) -> Float[Tensor, "S"]:
    """R_t = r_t + gamma R_{t+1} within each rollout, R the reward from turn t on; gamma may differ between turns."""
    count = torch.bincount(turns.rollout, minlength=1)
    at = torch.arange(len(turns.rollout), device=count.device) - (count.cumsum(0) - count)[turns.rollout]
    table = turns.reward.new_zeros(len(count), int(count.max()) + 1).index_put((turns.rollout, at), turns.reward)
    each = torch.zeros_like(table)
    each[turns.rollout, at] = torch.as_tensor(gamma, dtype=table.dtype, device=table.device).expand(len(at))
    for k in reversed(range(table.shape[1] - 1)):
        table[:, k] += each[:, k] * table[:, k + 1]
    return table[turns.rollout, at]


def in_states(x: Float[Tensor, "S"], state: Int[Tensor, "S"], *, std: bool = False, eps: float = EPS) -> Tensor:
    """One number per turn, less its mean over the turns of one state; exactly 0 for the only turn of a state.  -> (S,)

    `std` divides by the unbiased standard deviation. A state whose numbers are all equal gets exactly 0.
    """
    code, whose, count = torch.unique(state, return_inverse=True, return_counts=True)
    low, high = (x.new_zeros(len(code)).scatter_reduce(0, whose, x, of, include_self=False) for of in ("amin", "amax"))
    mean = torch.zeros_like(low).index_add(0, whose, x) / count
    out = x - mean[whose]
    if std:
        square = torch.zeros_like(low).index_add(0, whose, out.square()) / (count - 1).clamp(min=1)
        out = out / (square.sqrt()[whose] + eps)
    return out.masked_fill((low == high)[whose], 0.0)


def turn_ends(turns: Turns, batch: Batch) -> tuple[Int[Tensor, "S"], Int[Tensor, "S"]]:
    """The positions of the first and of the last sampled token of each turn."""
    here = (batch.mask[turns.row] & (batch.turn[turns.row] == turns.number[:, None])).int()
    return here.argmax(-1), here.shape[-1] - 1 - here.flip(-1).argmax(-1)


def at_turns(x: Float[Tensor, "N T"], turns: Turns, batch: Batch) -> Float[Tensor, "S"]:
    """What a field of tokens holds at the first sampled token of each turn."""
    return x[turns.row, turn_ends(turns, batch)[0]]


def gae_turns(
    values: Float[Tensor, "S"], turns: Turns, *, gamma: float = 1.0, lam: float = 0.95
) -> Float[Tensor, "S"]:
    """Generalised advantages of turns: A_t = δ_t + γ λ A_{t+1}, δ_t = r_t + γ V_{t+1} − V_t (arXiv:1506.02438).

    V_t is the value of the state in which turn t is taken, and 0 after a rollout's last turn.
    """
    same = torch.zeros_like(values)
    same[:-1] = (turns.rollout[1:] == turns.rollout[:-1]).to(values)
    after = torch.cat((values[1:], values.new_zeros(1))) * same
    return to_go(replace(turns, reward=turns.reward.to(values) + gamma * after - values), gamma=gamma * lam)


def spread_turns(x: Float[Tensor, "S"], turns: Turns, batch: Batch) -> Float[Tensor, "N T"]:
    """One number per turn to all of its sampled tokens; zero elsewhere."""
    table = x.new_zeros(len(batch.tokens), int(batch.turn.max()) + 2)
    table[turns.row, turns.number] = x
    return table.gather(1, batch.turn.clamp(min=0)) * batch.mask


def turn_lengths(turns: Turns, batch: Batch) -> Float[Tensor, "S"]:
    """Sampled tokens of each turn."""
    table = batch.reward.new_zeros(len(batch.tokens), int(batch.turn.max()) + 2 if batch.turn.numel() else 1)
    table.scatter_add_(1, batch.turn.clamp(min=0), batch.mask.to(table))
    return table[turns.row, turns.number]


def rounded(x: Tensor, bits: int) -> Tensor:
    """A matrix with each row rounded to so many bits; vectors, such as those of norms, stay exact."""
    if x.dim() < 2:
        return x.clone()
    unit = x.abs().amax(-1, keepdim=True).clamp(min=1e-30) / (2 ** (bits - 1) - 1)
    return (x / unit).round() * unit


def row_mean(x: Float[Tensor, "N T"], mask: Bool[Tensor, "N T"]) -> Float[Tensor, "N 1"]:
    """Mean over each row's sampled tokens."""
    return (x * mask).sum(-1, keepdim=True) / mask.sum(-1, keepdim=True).clamp(min=1)


def lengths(batch: Batch) -> Float[Tensor, "R"]:
    """Sampled tokens per rollout."""
    if plain(batch.mask):
        reward = array(batch.reward)
        each = np.bincount(batch.rollout.numpy(), np.add.reduce(batch.mask.numpy(), -1), len(reward))
        return torch.from_numpy(each.astype(reward.dtype))
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
