"""A mixture of experts on two regressions that conflict.
The target is f(x) for one task and −f(x) for the other, f a random network of 4 inputs, and the task is an input.
Between two shared layers stands one feed-forward block: dense, 72 wide, or a mixture of a shared expert and four
routed ones (one active), each 14 wide, with its router. Both have the same weights to 3 %. Both have 250 updates of 64
examples a task, with the better of two learning rates by separate examples. The mixture computes 42 % of the dense
block's FLOP. Conflict is the mean cosine of the two tasks' gradients in the block, every 50 updates.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from experiments.studies import Question

PAPER = ("ScaleZero", "2509.07945")
QUESTIONS = (
    Question("Is the mixture's cosine of gradients higher (difference)?", "cosine", above=0.0, effect=0.1),
    Question("Is its test error less (difference of ln)?", "error", below=0.0, effect=0.25),
    Question("Is it less than that of a dense block of equal FLOP (difference of ln)?", "active", below=0.0,
             effect=0.25),
)
UPDATES, RATES, MOST = 250, (3e-3, 1e-2), 6


class Experts(nn.Module):
    """A shared expert and routed ones, of which the likeliest is active, weighted by its probability."""

    def __init__(self, wide: int, routed: int, inner: int = 24) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(inner, wide), nn.GELU(), nn.Linear(wide, inner))
                                     for _ in range(1 + routed))
        self.router = nn.Linear(inner, routed, bias=False) if routed else None

    def forward(self, x: Tensor) -> Tensor:
        out = self.experts[0](x)
        if self.router is None:
            return out
        p, which = self.router(x).softmax(-1).max(-1)
        every = torch.stack([expert(x) for expert in self.experts[1:]], 1)
        return out + p[:, None] * every[torch.arange(len(x)), which]


class Net(nn.Module):
    """Inputs and task -> a layer, the block beside an identity, and a number."""

    def __init__(self, wide: int, routed: int) -> None:
        super().__init__()
        self.read, self.block, self.out = nn.Linear(6, 24), Experts(wide, routed), nn.Linear(24, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.gelu(self.read(x))
        return self.out(x + self.block(x))[:, 0]


def weights(block: nn.Module) -> int:
    """How many weights."""
    return sum(p.numel() for p in block.parameters())


def cosine(net: Net, x: Tensor, y: Tensor) -> float:
    """Of the two tasks' gradients in the block; the halves of a batch are the tasks."""
    half, found = len(x) // 2, []
    for part in (slice(0, half), slice(half, None)):
        loss = ((net(x[part]) - y[part]) ** 2).mean()
        taken = torch.autograd.grad(loss, list(net.block.parameters()), allow_unused=True, materialize_grads=True)
        found.append(torch.cat([g.flatten() for g in taken]))
    return float(nn.functional.cosine_similarity(*found, dim=0))


def trained(shape: tuple[int, int], seed: int) -> tuple[float, float]:
    """ln of the test error, and the conflict, at the rate that is best on separate examples."""
    tries = []
    for rate in RATES:
        torch.manual_seed(seed)
        teacher = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1))
        for p in teacher.parameters():
            p.data = 1.5 * torch.randn_like(p) / p.shape[-1] ** 0.5

        def batch(count: int, teacher: nn.Module = teacher) -> tuple[Tensor, Tensor]:
            x, task = torch.randn(2 * count, 4), torch.arange(2).repeat_interleave(count)
            with torch.no_grad():
                y = teacher(x)[:, 0] * (1 - 2 * task)
            return torch.cat((x, nn.functional.one_hot(task, 2)), 1), y

        choose, test = batch(2000), batch(2000)
        net, told = Net(*shape), []
        step = torch.optim.Adam(net.parameters(), rate)
        for i in range(UPDATES):
            x, y = batch(64)
            if i % 50 == 0:
                told.append(cosine(net, x, y))
            step.zero_grad()
            ((net(x) - y) ** 2).mean().backward()
            step.step()
        with torch.no_grad():
            chosen, error = (float(((net(x) - y) ** 2).mean().log()) for x, y in (choose, test))
        tries.append((chosen, error, sum(told) / len(told)))
    return min(tries)[1:]


def measure(seed: int) -> Mapping[str, float]:
    dense, mixed, active = (trained(shape, seed) for shape in ((72, 0), (14, 4), (30, 0)))
    return {"cosine": mixed[1] - dense[1], "error": mixed[0] - dense[0], "active": mixed[0] - active[0]}
