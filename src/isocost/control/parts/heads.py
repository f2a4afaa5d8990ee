"""Critics of several members or of bins: their value, and the target of a cross-entropy."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from isocost.control.luck import Luck
from isocost.control.networks import Mlp


def least_of(values: Tensor, drawn: int, luck: Luck) -> Tensor:
    """(S, K, B) -> (S, B): the least of `drawn` members, drawn for each run and update. (REDQ, arXiv:2101.05982)"""
    which = luck.uniform("which", values.shape[1]).argsort(-1)[:, :drawn, None]
    return values.gather(1, which.expand(-1, -1, values.shape[2])).amin(1)


@dataclass(frozen=True)
class ReturnBins(Mlp):
    """A network with one logit for each of `outputs` bins of equal width between `low` and `high`."""

    low: float = -1.0
    high: float = 1.0

    @property
    def edges(self) -> Tensor:
        return torch.linspace(self.low, self.high, self.outputs + 1)

    def value(self, logits: Tensor) -> Tensor:
        """(..., bins) -> (...): the mean of the bins' centres."""
        edges = self.edges
        return (logits.softmax(-1) * (edges[1:] + edges[:-1]) / 2).sum(-1)

    def gaussian(self, y: Tensor, ratio: float) -> Tensor:
        return gaussian_bins(y, self.edges, ratio)


def gaussian_bins(y: Tensor, edges: Tensor, ratio: float) -> Tensor:
    """The bins' mass of a normal distribution at y, with a deviation of `ratio` bin widths: (...) -> (..., bins).

        p_j = (Φ((e_{j+1} − y)/σ) − Φ((e_j − y)/σ)) / (Φ((e_m − y)/σ) − Φ((e_0 − y)/σ)),  y clipped to the support
    """
    low, high = float(edges[0]), float(edges[-1])
    width = ratio * (high - low) / (len(edges) - 1)
    below = torch.special.ndtr((edges - y.clamp(low, high)[..., None]) / width)
    return below.diff(dim=-1) / (below[..., -1:] - below[..., :1])


def cross_entropy(p: Tensor, logits: Tensor) -> Tensor:
    """−Σ_j p_j log softmax_j; its gradient by the logits is softmax − p."""
    return -(p * logits.log_softmax(-1)).sum(-1)


@dataclass(frozen=True)
class FlowValue(Mlp):
    """The velocity of a value between `low` and `high`: beside (s, a) it sees the value over bins, and the time."""

    low: float = -1.0
    high: float = 1.0
    bins: int = 50
    frequencies: int = 32

    def encoded(self, z: Tensor, t: Tensor, ratio: float = 16.0) -> Tensor:
        """(..., 1), (..., 1) -> (..., bins + 2 frequencies)."""
        seen = gaussian_bins(z[..., 0], torch.linspace(self.low, self.high, self.bins + 1), ratio)
        angle = math.pi * t * torch.arange(1, self.frequencies + 1)
        return torch.cat((seen, angle.sin(), angle.cos()), -1)
