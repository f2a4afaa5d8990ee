"""A transformer trained to name the best arm samples like Thompson.
Two Bernoulli arms have uniform means; contexts are 10 rounds of a behaviour that favours one arm at random. A causal
transformer (2 layers, 32 wide, 1,200 updates of 64 contexts) is trained to name the better arm after every round. The
minimum of that loss is the posterior that the arm is best, which is Thompson's action probability, known exactly. It
then acts by sampling, in 2,000 new problems, and meets the histories that it makes. Thompson sampling with the exact
posterior has the same problems and the same number of rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

import numpy as np
import torch
from numpy import ndarray
from scipy.special import betaln
from torch import Tensor, nn

from experiments.studies import Question
from isocost.chance import Purpose, generator

PAPER = ("Decision-pretrained transformer", "2306.14892")
QUESTIONS = (
    Question("Is the mean distance of action probabilities from Thompson's, on its own histories, below 0.05?", "far",
             below=0.05, effect=0.01),
    Question("Is the 95th percentile of that distance below 0.05?", "tail", below=0.05, effect=0.02),
    Question("Is the regret after 10 rounds within 5 % of Thompson's (ratio − 1, absolute)?", "regret", below=0.05,
             effect=0.02),
)
ROUNDS, MOST = 10, 6


@cache
def first_is_best(won: int, lost: int, won2: int, lost2: int) -> float:
    """P(θ₁ > θ₂) for two uniform priors and these wins and losses: the closed form of two Beta distributions."""
    a, b, c, d = won2 + 1, lost2 + 1, won + 1, lost + 1
    i = np.arange(c)
    return float(np.exp(betaln(a + i, b + d) - np.log(d + i) - betaln(1 + i, d) - betaln(a, b)).sum())


class Reader(nn.Module):
    """(runs, rounds, 3) of what was done, one-hot, and paid -> (runs, rounds + 1, 2) logits of the better arm."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.read, self.place = nn.Linear(3, width), nn.Parameter(0.02 * torch.randn(ROUNDS + 1, width))
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, batch_first=True, norm_first=True)
        self.block = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(width, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.read(torch.cat((x.new_zeros(len(x), 1, 3), x), 1)) + self.place[: x.shape[1] + 1]
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        return self.out(self.block(x, mask=mask, is_causal=True))


def history(arm: ndarray, paid: ndarray) -> Tensor:
    """(runs, rounds) of arms and rewards as a Reader's input."""
    return torch.from_numpy(np.stack((arm == 0, arm == 1, paid), -1)).float()


def trained(rng: np.random.Generator, seed: int, updates: int = 1200) -> Reader:
    """A Reader, trained by cross-entropy on the better arm."""
    torch.manual_seed(seed)
    net = Reader()
    step = torch.optim.Adam(net.parameters(), 2e-3)
    fall = torch.optim.lr_scheduler.CosineAnnealingLR(step, updates)
    for _ in range(updates):
        means, favour = rng.random((64, 2)), rng.random((64, 1))
        arm = (rng.random((64, ROUNDS)) < favour).astype(int)
        paid = rng.random((64, ROUNDS)) < np.take_along_axis(means, arm, 1)
        best = torch.from_numpy(means.argmax(1))[:, None].expand(64, ROUNDS + 1)
        loss = nn.functional.cross_entropy(net(history(arm, paid)).flatten(0, 1), best.flatten())
        step.zero_grad()
        loss.backward()
        step.step()
        fall.step()
    return net


def thompson(arm: ndarray, paid: ndarray) -> ndarray:
    """(runs,) exact probability that the first arm is the better one."""
    won = np.stack([((arm == a) & paid).sum(1) for a in (0, 1)], 1)
    lost = np.stack([((arm == a) & ~paid).sum(1) for a in (0, 1)], 1)
    counts = np.stack((won[:, 0], lost[:, 0], won[:, 1], lost[:, 1]), 1).tolist()
    return np.array([first_is_best(*row) for row in counts])


def played(choose: Callable[[ndarray, ndarray], ndarray], means: ndarray, rng: np.random.Generator
           ) -> tuple[ndarray, ndarray, float]:
    """Arms, rewards and the mean regret of a run in each problem; `choose` gives the first arm's probability."""
    arm, paid = (np.zeros((len(means), 0), dtype=t) for t in (int, bool))
    for _ in range(ROUNDS):
        now = (rng.random(len(means)) >= choose(arm, paid)).astype(int)[:, None]
        paid = np.concatenate((paid, rng.random(now.shape) < np.take_along_axis(means, now, 1)), 1)
        arm = np.concatenate((arm, now), 1)
    return arm, paid, float((means.max(1)[:, None] - np.take_along_axis(means, arm, 1)).sum(1).mean())


def measure(seed: int) -> Mapping[str, float]:
    rng = generator(seed, Purpose.TRAIN, 3)
    net, means = trained(rng, seed), rng.random((2000, 2))

    def named(arm: ndarray, paid: ndarray) -> ndarray:
        with torch.no_grad():
            return net(history(arm, paid))[:, -1].softmax(-1)[:, 0].double().numpy()

    arm, paid, regret = played(named, means, rng)
    *_, exact = played(thompson, means, rng)
    far = np.concatenate([abs(named(arm[:, :t], paid[:, :t]) - thompson(arm[:, :t], paid[:, :t]))
                          for t in range(ROUNDS + 1)])
    return {"far": float(far.mean()), "tail": float(np.quantile(far, 0.95)), "regret": abs(regret / exact - 1)}
