"""Softmax bandits: policy gradient as it is in training, small enough that its truth is the mean of many runs.

P problems of K responses, one of them right. A policy's logits are those of the base plus W . phi(i, k), where phi has
a part of the problem's own, sqrt(1 - rho) e_ik, and a part in a space that all problems share, sqrt(rho) f_ik: with
rho > 0 an update on some problems moves all others, for good and for bad (interference), and problems that are never
trained on are learned as well. With rho = 0 this is the tabular policy. Rewards are 0 or 1, the baseline is the mean
of the group, own reward included; whole arms are trained side by side in numpy, and pass@1 is exact.

Features overlap as in IsoCompute's account of why more than one rollout per problem pays (arXiv 2603.12151).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy import ndarray

from isocost.errors import UserError
from isocost.laws.curves import Curve
from isocost.runs.arm import Arm

CLIP = 1.0      # of one update's step, in norm, as a trainer clips its gradient


def group_credit(counts: ndarray, right: ndarray) -> ndarray:
    """The advantage summed over a group's rollouts, by response: (..., K) from counts (..., K) and right (..., K).

    Of n rollouts c_k chose k and c_y were right: c_k (1[k = y] - c_y / n) / n. It sums to 0 over k, so the mean of the
    features under the policy drops out of the gradient. Its expectation is (n - 1) / n of the true gradient's.
    """
    n = counts.sum(-1, keepdims=True)
    solved = (counts * right).sum(-1, keepdims=True)
    return np.asarray(counts * (right - solved / n) / n)


def softmax(logits: ndarray) -> ndarray:
    """Probabilities over the last axis."""
    z = np.exp(logits - logits.max(-1, keepdims=True))
    return np.asarray(z / z.sum(-1, keepdims=True))


@dataclass(frozen=True, eq=False)
class Problems:
    """P problems: the base's logits (P, K), which response is right (P, K) as 0 or 1, shared features (P, K, D)."""

    base: ndarray
    right: ndarray
    shared: ndarray

    def __len__(self) -> int:
        return len(self.base)


@dataclass(frozen=True, eq=False)
class Policy:
    """R runs: weights on the shared features (R, D), and each run's own table of the training problems (R, P, K)."""

    shared: ndarray
    table: ndarray


@dataclass(frozen=True, eq=False)
class Bandit:
    """A world: problems to train on, and two held-out halves, which share features with them and nothing else."""

    rho: float
    train: Problems
    select: Problems
    audit: Problems

    @staticmethod
    def make(rng: np.random.Generator, rho: float = 0.5, problems: int = 64, *, responses: int = 8, features: int = 24,
             held_out: int = 128, solved: float = 0.35) -> Bandit:
        """A world whose base solves about a share `solved` of its attempts; Raises UserError outside 0 <= rho <= 1.

        Right is the response that a direction common to all problems scores highest, so what is learned of one
        problem's shared features is worth something on another.
        """
        if not 0 <= rho <= 1:
            raise UserError(f"rho is how much of a feature is shared, from 0 to 1, not {rho:g}")
        direction = rng.normal(size=features)
        total = problems + 2 * held_out
        shared = rng.normal(size=(total, responses, features)) / np.sqrt(features)
        right = np.eye(responses)[(shared @ direction).argmax(-1)]
        noise = rng.normal(size=(total, responses))
        low, high = -10.0, 10.0
        for _ in range(40):             # the bonus of the right response that makes the base solve this share
            bonus = (low + high) / 2
            rate = float((softmax(noise + bonus * right) * right).sum(-1).mean())
            low, high = (bonus, high) if rate < solved else (low, bonus)
        base = noise + low * right
        parts = np.split(np.arange(total), [problems, problems + held_out])
        return Bandit(rho, *(Problems(base[p], right[p], shared[p]) for p in parts))

    def start(self, runs: int) -> Policy:
        """The base policy, once for each run."""
        return Policy(np.zeros((runs, self.train.shared.shape[-1])), np.zeros((runs, *self.train.base.shape)))

    def logits(self, policy: Policy, chosen: ndarray) -> ndarray:
        """Logits (R, B, K) of the training problems chosen (R, B)."""
        own = np.take_along_axis(policy.table, chosen[..., None], 1)
        common = np.matmul(self.train.shared[chosen], policy.shared[:, None, :, None])[..., 0]
        return np.asarray(self.train.base[chosen] + np.sqrt(1 - self.rho) * own + np.sqrt(self.rho) * common)

    def passed(self, policy: Policy, name: str) -> ndarray:
        """pass@1 of each problem of "train", "select" or "audit", exact: (R, P)."""
        problems: Problems = getattr(self, name)
        logits = problems.base + np.sqrt(self.rho) * np.einsum("pkd,rd->rpk", problems.shared, policy.shared,
                                                               optimize=True)
        if name == "train":
            logits = logits + np.sqrt(1 - self.rho) * policy.table
        return np.asarray((softmax(logits) * problems.right).sum(-1))

    def gradient(self, policy: Policy, chosen: ndarray, credit: ndarray) -> Policy:
        """The gradient for credit (R, B, K) of problems chosen (R, B), a mean over them, in the shape of a policy."""
        B = chosen.shape[1]
        shared = np.sqrt(self.rho) * np.einsum("rbk,rbkd->rd", credit, self.train.shared[chosen], optimize=True) / B
        table = np.zeros_like(policy.table)
        np.add.at(table, (np.arange(len(chosen))[:, None], chosen), np.sqrt(1 - self.rho) * credit / B)
        return Policy(shared, table)

    def improve(self, n: int, B: int, lr: float, C: Sequence[float], runs: int, rng: np.random.Generator
                ) -> dict[str, ndarray]:
        """Trains R runs of arm n at once; mean pass@1 after each of C rollouts (K,), by problems: (R, 1 + K).

        The first column is the base. C is cut down to whole updates of n B rollouts. Problems are drawn without
        replacement within an update. Raises UserError where B exceeds the problems there are.
        """
        if len(self.train) < B:
            raise UserError(f"an update of B = {B} problems needs as many, the world has {len(self.train)}")
        policy, step = self.start(runs), 0
        out: dict[str, list[ndarray]] = {k: [self.passed(policy, k).mean(-1)] for k in ("train", "select", "audit")}
        for end in C:
            while step < int(end // (n * B)):
                chosen = rng.random((runs, len(self.train))).argpartition(B - 1, axis=1)[:, :B]
                right = self.train.right[chosen]
                credit = group_credit(rng.multinomial(n, softmax(self.logits(policy, chosen))), right)
                move = self.gradient(policy, chosen, credit)
                size = np.sqrt((move.shared**2).sum(-1) + (move.table**2).sum((-1, -2)))
                scale = lr * np.minimum(1.0, CLIP / np.maximum(size, 1e-12))
                policy = Policy(policy.shared + scale[:, None] * move.shared,
                                policy.table + scale[:, None, None] * move.table)
                step += 1
            for name, values in out.items():
                values.append(self.passed(policy, name).mean(-1))
        return {name: np.stack(values, 1) for name, values in out.items()}

    def curves(self, ns: Sequence[int], B: int, lr: float, reference: int, C: ndarray, seeds: int,
               rng: np.random.Generator) -> list[Curve]:
        """A pilot of this world: learning rate lr at `reference` rollouts an update, by the square root of n B."""
        at, out = np.concatenate([[0.0], C]), []
        for n in ns:
            own = lr * np.sqrt(n * B / reference)
            found = self.improve(n, B, own, list(C), seeds, rng)
            for seed in range(seeds):
                out.append(Curve(f"n{n}-s{seed}", Arm(n=n, B=B, lr=float(own)), seed, at, found["select"][seed],
                                 found["audit"][seed], at / 1000, at / n / len(self.train)))
        return out
