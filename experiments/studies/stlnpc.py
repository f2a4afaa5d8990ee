"""A controller trained on the robustness of a temporal formula.
A point with position and velocity has 20 steps to visit a disc A, then a disc B, and to avoid a disc between them:
G(out) ∧ F(A ∧ F B). Robustness ρ is min and max of distances to the edges. The smooth form has logsumexp(10 x)/10 for
max. A controller reads position, velocity and time, and is trained through the dynamics on ReLU(0.1 − ρ), with 200
updates of 64 starts. Alternatives with the same network and updates: exact ρ; distances timed by hand (A in the
middle, B at the end, a penalty near the obstacle). Measured: the share of 500 starts with exact ρ > 0.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from experiments.studies import Question

PAPER = ("Signal temporal logic neural predictive control", "2309.05131")
QUESTIONS = (
    Question("Does smooth robustness satisfy the formula on more than 0.9 of the starts?", "smooth", above=0.9,
             effect=0.05),
    Question("On more than the exact robustness (difference)?", "exact", above=0.0, effect=0.05),
    Question("On at most 0.05 less than distances timed by hand (difference)?", "timed", above=-0.05, effect=0.05),
)
STEPS, UPDATES, TAU, MOST = 20, 200, 10.0, 6
A, B, WALL = (torch.tensor(x) for x in ((0.0, 1.1, 0.3), (1.4, 0.0, 0.3), (0.0, 0.0, 0.5)))


def greatest(x: Tensor, tau: float | None) -> Tensor:
    """The maximum over the last axis; smooth with a temperature 1/tau, from above by at most ln(n)/tau."""
    return x.amax(-1) if tau is None else (tau * x).logsumexp(-1) / tau


def least(x: Tensor, tau: float | None) -> Tensor:
    return -greatest(-x, tau)


def robustness(path: Tensor, tau: float | None = None) -> Tensor:
    """ρ of G(out) ∧ F(A ∧ F B): path (starts, steps, 2) -> (starts,)."""
    a, b, wall = ((path - at[:2]).norm(dim=-1) for at in (A, B, WALL))
    later = torch.stack([greatest((B[2] - b)[:, t:], tau) for t in range(b.shape[1])], -1)
    both = greatest(least(torch.stack((A[2] - a, later), -1), tau), tau)
    return least(torch.stack((both, least(wall - WALL[2], tau)), -1), tau)


def driven(net: nn.Module, count: int) -> Tensor:
    """Paths of new starts, (starts, steps, 2), under the controller; accelerations are at most 3, a step is 0.2."""
    at = torch.cat((-1.5 + 0.4 * torch.rand(count, 1), 0.6 * torch.rand(count, 1) - 0.3), 1)
    speed, path = torch.zeros(count, 2), []
    for t in range(STEPS):
        time = torch.full((count, 1), t / STEPS)
        speed = speed + 0.2 * 3 * net(torch.cat((at, speed, time), 1)).tanh()
        at = at + 0.2 * speed
        path.append(at)
    return torch.stack(path, 1)


def loss_of(kind: str, path: Tensor) -> Tensor:
    """(starts,) what is descended."""
    if kind == "timed":
        a, b, wall = ((path - at[:2]).norm(dim=-1) for at in (A, B, WALL))
        return a[:, STEPS // 2] ** 2 + b[:, -1] ** 2 + 10 * (WALL[2] + 0.1 - wall).relu().square().sum(-1)
    return (0.1 - robustness(path, TAU if kind == "smooth" else None)).relu()


def measure(seed: int) -> Mapping[str, float]:
    shares = {}
    for kind in ("smooth", "exact", "timed"):
        torch.manual_seed(seed)
        net = nn.Sequential(nn.Linear(5, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))
        step = torch.optim.Adam(net.parameters(), 3e-3)
        for _ in range(UPDATES):
            step.zero_grad()
            loss_of(kind, driven(net, 64)).mean().backward()
            step.step()
        with torch.no_grad():
            shares[kind] = float((robustness(driven(net, 500)) > 0).float().mean())
    return {"smooth": shares["smooth"], "exact": shares["smooth"] - shares["exact"],
            "timed": shares["smooth"] - shares["timed"]}
