"""The learner of small modules, and its optimiser."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from time import perf_counter

import torch
from torch import Tensor, nn

from isocost.batch import Batch, Forward
from isocost.can import LEARNER
from isocost.meter import Meter
from isocost.types import Cost


class TableAdam:
    """Adam (Kingma & Ba, 2015) with the equations of `torch.optim`, which would import a compiler at its first step."""

    def __init__(self, parameters: Iterable[nn.Parameter]):
        self.parameters, self.steps = list(parameters), 0
        self.moments = [(torch.zeros_like(p), torch.zeros_like(p)) for p in self.parameters]

    def zero_grad(self) -> None:
        for p in self.parameters:
            p.grad = torch.zeros_like(p)

    @torch.no_grad()
    def step(self, lr: float) -> None:
        self.steps += 1
        first_bias, second_bias = 1 - 0.9**self.steps, 1 - 0.999**self.steps
        for p, (first, second) in zip(self.parameters, self.moments, strict=True):
            assert p.grad is not None
            first.lerp_(p.grad, 1 - 0.9)
            second.mul_(0.999).addcmul_(p.grad, p.grad, value=1 - 0.999)
            p.addcdiv_(first, (second.sqrt() / second_bias**0.5).add_(1e-8), value=-lr / first_bias)

    def state(self) -> dict[str, Tensor]:
        moments = {f"{i}.{k}": m[k].clone() for i, m in enumerate(self.moments) for k in (0, 1)}
        return moments | {"steps": torch.tensor(self.steps)}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        self.steps = int(state["steps"])
        for i, own in enumerate(self.moments):
            for k in (0, 1):
                own[k].copy_(state[f"{i}.{k}"])


class ModuleLearner(ABC):
    """`isocost.world.Learner` of a small module: Adam, `micro` rows at a time; None: the whole batch at once."""

    can, vocabulary = LEARNER, 0
    timed = False       # whether its seconds are charged

    def __init__(self, policy: nn.Module, meter: Meter, micro: int | None = None):
        self.policy, self.meter, self.micro = policy, meter, micro
        self.parameters = self.learned = sum(p.numel() for p in policy.parameters())
        self.adam = TableAdam(policy.parameters())

    @abstractmethod
    def forward(self, batch: Batch) -> Forward:
        """See `isocost.world.Learner`."""

    def passed(self, batch: Batch) -> int:
        """The tokens that a forward pass computes and is charged for."""
        return int(batch.length.sum())

    @torch.no_grad()
    def score(self, batch: Batch) -> Forward:
        began = perf_counter()
        out = self.forward(batch)
        self._charge(began, score=self.passed(batch))
        return out

    def gradient(self, batch: Batch, loss: Callable) -> dict[str, float]:
        """Leave the gradient of sum(loss * weight) on the parameters; returns means over the mask."""
        assert batch.weight is not None
        self.adam.zero_grad()
        sums: dict[str, float] = {"loss": 0.0, "entropy": 0.0}
        for rows in torch.arange(len(batch.tokens)).split(self.micro or len(batch.tokens)):
            part = batch.rows(rows)
            out = self.forward(part)
            per_token, seen = loss(out, part)
            total = (per_token * part.weight)[part.mask].sum()
            total.backward()
            sums["loss"] += float(total.detach())
            for name, value in {"entropy": out.entropy, **seen}.items():
                sums[name] = sums.get(name, 0.0) + float(value.detach()[part.mask].sum()) / int(batch.mask.sum())
        return sums

    def update(self, batch: Batch, loss: Callable, *, lr: float) -> dict[str, float]:
        began = perf_counter()
        seen = self.gradient(batch, loss)
        norm = self._descend(lr)
        self._charge(began, train=self.passed(batch), updates=1)
        return {**seen, "grad_norm": norm}

    def gradients(self, batch: Batch, loss: Callable) -> Iterator[tuple[Tensor, dict[str, float]]]:
        for one in batch.rollout.unique():
            began, rows = perf_counter(), batch.rows(torch.nonzero(batch.rollout == one)[:, 0])
            seen = self.gradient(rows, loss)
            self._charge(began, train=self.passed(rows))
            yield nn.utils.parameters_to_vector(p.grad for p in self.policy.parameters() if p.grad is not None), seen

    def step(self, gradient: Tensor, *, lr: float) -> float:
        whole = list(self.policy.parameters())
        for p, part in zip(whole, gradient.clone().split([p.numel() for p in whole]), strict=True):
            p.grad = part.view_as(p)
        began = perf_counter()
        norm = self._descend(lr)
        self._charge(began, updates=1)
        return norm

    def _charge(self, began: float, **counts: int) -> None:
        self.meter.charge(Cost(**counts, seconds=perf_counter() - began if self.timed else 0.0))

    def forget(self) -> None:
        self.adam = TableAdam(self.policy.parameters())

    def _descend(self, lr: float) -> float:
        norm = nn.utils.clip_grad_norm_(self.policy.parameters(), 1.0)
        self.adam.step(lr)
        return float(norm)

    def weights(self) -> dict[str, Tensor]:
        return dict(self.policy.state_dict())

    def state(self) -> dict[str, Tensor]:
        return {k: v.clone() for k, v in self.weights().items()} | self.adam.state()

    def restore(self, state: Mapping[str, Tensor]) -> None:
        self.policy.load_state_dict({k: state[k] for k in self.policy.state_dict()})
        self.adam.restore(state)
