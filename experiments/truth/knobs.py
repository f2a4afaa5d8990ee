"""Softmax bandits with one dial for each thing that may decide whether the best n grows with compute.

As `truth/bandit.py` (P problems of K responses, one of them right; logits = base + sqrt(1 - rho) a table of the
problem's own + sqrt(rho) features shared by all problems), with more dials: `rho` is how much is shared; `agree` the
share of problems whose right response is the one that a direction common to all problems prefers (1: what is learned
of one problem helps the others; 0: the right response is any, and an update on one problem moves the others at
random); `hard` the share of problems whose base pass rate is in [0.005, 0.0625], the others are in [0.3, 0.6] (the two
sets of arXiv 2603.12151); `problems` the size of the training set. Many worlds, seeds and learning rates are trained
side by side; pass rates are exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy import ndarray

K, D, HELD_OUT = 8, 16, 128
EASY, HARD = (0.3, 0.6), (0.005, 0.0625)
CLIP = 1.0                                      # of one update's gradient, in norm
BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8         # of Adam


@dataclass(frozen=True)
class Dials:
    """One kind of world and of training; `B` problems per update, or `nB` rollouts per update if that is not 0."""

    rho: float = 0.5
    agree: float = 0.5
    hard: float = 0.5
    problems: int = 128
    B: int = 8
    nB: int = 0
    optimiser: str = "sgd"
    advantage: str = "mean"         # "mean": reward less the group's mean; "std": that over the group's deviation

    def batch(self, n: int) -> int:
        """Problems per update at n."""
        return self.nB // n if self.nB else self.B


def softmax(logits: ndarray) -> ndarray:
    """Probabilities over the last axis."""
    z = np.exp(logits - logits.max(-1, keepdims=True))
    return np.asarray(z / z.sum(-1, keepdims=True))


def credit(counts: ndarray, right: ndarray, advantage: str) -> ndarray:
    """The advantage summed over a group's rollouts, by response: (..., K) from counts (..., K) and right (..., K).

    The baseline is the group's mean, own reward included; "std" divides by the group's standard deviation (GRPO).
    """
    n = counts.sum(-1, keepdims=True)
    mean = (counts * right).sum(-1, keepdims=True) / n
    out = counts * (right - mean) / n
    if advantage == "std":
        out = out / np.maximum(np.sqrt(mean * (1 - mean)), 1e-6)
    return np.asarray(out)


@dataclass(frozen=True, eq=False)
class World:
    """base (P, K), right (P, K) as 0 or 1, shared features (P, K, D); the first `train` problems are trained on."""

    base: ndarray
    right: ndarray
    shared: ndarray
    train: int

    @staticmethod
    def make(rng: np.random.Generator, dials: Dials) -> World:
        """One world; its held-out problems are drawn like those of training."""
        total = dials.problems + HELD_OUT
        direction = rng.normal(size=D)
        shared = rng.normal(size=(total, K, D)) / np.sqrt(D)
        best = (shared @ direction).argmax(-1)
        any_ = (best + rng.integers(1, K, size=total)) % K
        at = np.where(rng.random(total) < dials.agree, best, any_)
        right = np.eye(K)[at]
        parts = [dials.problems, HELD_OUT]          # the same share of hard problems in both parts, as near as it goes
        hard = np.concatenate([rng.permutation(np.arange(k) < round(dials.hard * k)) for k in parts])
        u = rng.random(total)
        rate = np.where(hard, HARD[0] + u * (HARD[1] - HARD[0]), EASY[0] + u * (EASY[1] - EASY[0]))
        noise = rng.normal(size=(total, K))
        wrong = np.log((np.exp(noise) * (1 - right)).sum(-1))
        base = np.where(right == 1, (np.log(rate / (1 - rate)) + wrong)[:, None], noise)
        return World(*(x.astype(np.float32) for x in (base, right, shared)), dials.problems)


def passed(worlds: Sequence[World], of: ndarray, rho: ndarray, w: ndarray, table: ndarray) -> ndarray:
    """Exact pass rates (R, P + held out) of R policies, each of the world `of` (R,)."""
    out = np.empty((len(of), len(worlds[0].base)), dtype=np.float32)
    for k, world in enumerate(worlds):
        mine = np.flatnonzero(of == k)
        flat = world.shared.reshape(-1, D)
        logits = world.base + np.sqrt(rho[mine])[:, None, None] * (w[mine] @ flat.T).reshape(len(mine), -1, K)
        logits[:, : world.train] += np.sqrt(1 - rho[mine])[:, None, None] * table[mine]
        out[mine] = (softmax(logits) * world.right).sum(-1)
    return out


def train(worlds: Sequence[World], dials: Sequence[Dials], of: ndarray, order: ndarray, lr: ndarray, n: int,
          C: Sequence[float], rng: np.random.Generator) -> ndarray:
    """Trains R policies at n, policy r in world `of[r]` with learning rate lr[r]: pass rates (1 + K, R, P + held out).

    `order` (R,) numbers the order in which problems come: policies with one number share it. The first row is the
    base; C is cut down to whole updates. Problems come in epochs, each in a new order. `dials` are the worlds' own,
    alike in problems, batch, optimiser and advantage. Raises ValueError unless B divides the number of problems.
    """
    one, R = dials[0], len(of)
    P, B = one.problems, one.batch(n)
    if P % B:
        raise ValueError(f"B = {B} does not divide {P} problems")
    rho = np.array([dials[k].rho for k in of], dtype=np.float32)
    own, common = np.sqrt(1 - rho), np.sqrt(rho)
    base, right, shared = (np.concatenate([getattr(x, k)[:P] for x in worlds]) for k in ("base", "right", "shared"))
    shared = shared.reshape(-1, K * D)
    w, table = np.zeros((R, D), np.float32), np.zeros((R, P, K), np.float32)
    adam = one.optimiser == "adam"
    moments = [np.zeros_like(x) for x in (w, w, table, table)] if adam else []
    lr = lr.astype(np.float32)
    rows, orders = np.arange(R)[:, None], int(order.max()) + 1
    queue, at, step = np.empty((orders, 0), dtype=int), 0, 0
    out = [passed(worlds, of, rho, w, table)]
    for end in C:
        while step < int(end // (n * B)):
            if at == queue.shape[1]:
                queue, at = rng.random((orders, P), dtype=np.float32).argsort(1), 0
            chosen = queue[order, at: at + B]
            at, step = at + B, step + 1
            flat = of[:, None] * P + chosen
            F = shared[flat].reshape(R, B * K, D)
            logits = base[flat] + own[:, None, None] * table[rows, chosen]
            logits += common[:, None, None] * np.matmul(F, w[:, :, None]).reshape(R, B, K)
            given = credit(drawn(softmax(logits), n, rng), right[flat], one.advantage).astype(np.float32) / B
            gw = common[:, None] * np.matmul(given.reshape(R, 1, B * K), F)[:, 0]
            gt = own[:, None, None] * given
            size = np.sqrt((gw**2).sum(-1) + (gt**2).sum((-1, -2)))
            scale = np.minimum(1.0, CLIP / np.maximum(size, 1e-12)).astype(np.float32)
            gw, gt = gw * scale[:, None], gt * scale[:, None, None]
            if adam:
                rate = lr * np.float32(np.sqrt(1 - BETA2**step) / (1 - BETA1**step))
                for x, g, m, v, at_ in ((w, gw, *moments[:2], ...), (table, gt, *moments[2:], (rows, chosen))):
                    m *= BETA1
                    v *= BETA2
                    m[at_] += (1 - BETA1) * g
                    v[at_] += (1 - BETA2) * g * g
                    moved = np.sqrt(v)
                    moved += EPSILON
                    np.divide(m, moved, out=moved)
                    moved *= rate.reshape(-1, *[1] * (x.ndim - 1))
                    x += moved
            else:
                w += lr[:, None] * gw
                table[rows, chosen] += lr[:, None, None] * gt
        out.append(passed(worlds, of, rho, w, table))
    return np.stack(out)


def drawn(p: ndarray, n: int, rng: np.random.Generator) -> ndarray:
    """Counts (..., K) of n draws from p (..., K)."""
    if n > 8:
        p = p.astype(float)
        return rng.multinomial(n, p / p.sum(-1, keepdims=True))
    edges = p.cumsum(-1)[..., None, :-1]
    at = (rng.random((*p.shape[:-1], n, 1), dtype=np.float32) > edges).sum(-1)      # (..., n): which response
    return np.asarray((at[..., None] == np.arange(K)).sum(-2))
