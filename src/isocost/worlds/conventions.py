"""What a service makes of the gradients it is sent, measured by what they do to log-probs.

No metric of the service is used. With β1 = β2 = 0 and a large ε, a step of Adam is g lr / (|g| + ε) ≈ η g for lr = η ε:
plain gradient descent, however the gradient is scaled. A step up and the same step down give a central difference, the
*response* of one token's log-prob, and bring the adapter back. Ratios of responses say how a service reduces a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import log

import numpy as np
from numpy import ndarray

from isocost.errors import UserError
from isocost.meter import CHECK, Meter, Payer
from isocost.types import Cost
from isocost.worlds.service import AdamParams, Adapter, PassRow

EPS = 1e4           # of the probing step: far above any gradient
TARGET = 0.1        # change of a log-prob at which responses are measured, if steps of that size are still linear
STRAIGHT = 0.005    # relative difference of the responses to a step and to half of it, at most, to be linear
SEEN = 1e-5         # a change that is more than rounding in float32
LARGEST = 1e2       # of η
CLOSE = 0.12        # relative error of a ratio, at most, to be recognised
THIN = 1e-3         # an advantage that is there and adds nothing
# How a service turns per-token losses into one: by name, the factor that turns it into a sum, from (N,) targets a row.
REDUCTIONS: Mapping[str, Callable[[ndarray], ndarray]] = {
    "sum": lambda k: np.ones(len(k)),
    "mean over the tokens of a row and over rows": lambda k: k * len(k),
    "mean over the tokens of a row": lambda k: k.astype(float),
    "mean over rows": lambda k: np.full(len(k), len(k)),
    "mean over all tokens": lambda k: np.full(len(k), k.sum()),
}


@dataclass(frozen=True)
class Told:
    """One row of a probe: its tokens, and the advantage of each target."""

    tokens: Sequence[int]
    advantages: Sequence[float]


class Probe:
    """Responses of one token's log-prob, the first of `said`, on an adapter that nothing else uses."""

    def __init__(
        self, adapter: Adapter, prompt: Sequence[int], said: Sequence[int], meter: Meter, account: str = CHECK
    ):
        self.adapter, self.meter, self.payer = adapter, meter, Payer(account)
        self.row, self.watched = [*prompt, *said], len(prompt) - 1
        self.longer = self.row + self.row       # a row that begins with the same tokens
        self.eta = 0.0

    def told(self, tokens: Sequence[int], *, others: float = 0.0) -> Told:
        """A row in which the watched token has the advantage 1, and every later one `others`."""
        k = len(tokens) - 1
        return Told(tokens, [1.0 if i == self.watched else others if i > self.watched else 0.0 for i in range(k)])

    def nothing(self, tokens: Sequence[int]) -> Told:
        """A row without advantages."""
        return Told(tokens, [0.0] * (len(tokens) - 1))

    def response(self, *calls: Sequence[Told], size: float = 1.0, ratio: float = 1.0, clip: float = 0.0,
                 eta: float | None = None) -> float:
        """The change of the watched log-prob by one step on these calls, per unit of η.

        size: multiplies the advantages. ratio: of the current policy to the one whose log-probs are sent. clip: the
        step's `grad_clip_norm`.
        """
        eta = self.eta if eta is None else eta
        first = self.push(calls, size, ratio)
        self._step(eta, clip)
        second = self.push(calls, -size, ratio)
        self._step(eta, clip)
        third = self.watch()
        return ((second - first) - (third - second)) / 2 / eta

    def calibrate(self) -> float:
        """Find the largest η, up to `TARGET`, at which one row's response is linear. Returns it; 0 if there is none."""
        row, eta = [self.told(self.row)], 1e-8
        while abs(found := self.response(row, eta=eta)) * eta < SEEN:
            eta *= 100
            if eta > LARGEST:
                self.eta = LARGEST
                return 0.0
        self.eta = eta * min(TARGET / abs(found * eta), 1e4)
        found = self.response(row)
        while abs(found) * self.eta > TARGET / 100:
            half = self.response(row, eta=self.eta / 2)
            if abs(found - half) <= STRAIGHT * abs(half):
                return half
            self.eta, found = self.eta / 2, half
        return found

    def push(self, calls: Sequence[Sequence[Told]], size: float = 1.0, ratio: float = 1.0) -> float:
        """Send the gradients of these calls; returns the watched log-prob before them. See `response`."""
        watched = float("nan")
        for rows in calls:
            logp = self.adapter.forward([PassRow(r.tokens) for r in rows])
            watched = float(logp[0][self.watched])
            sent = [
                PassRow(r.tokens, {
                    "logprobs": (p - log(ratio)).tolist(), "advantages": [size * a for a in r.advantages]})
                for r, p in zip(rows, logp, strict=True)
            ]
            self.adapter.forward_backward(sent)
            n = sum(len(r.tokens) for r in rows)
            self._charge(Cost(score=n, train=n), Cost(score=n - len(rows), train=n - len(rows)))
        return watched

    def _step(self, eta: float, clip: float) -> None:
        self.adapter.optim_step(AdamParams(eta * EPS, beta1=0.0, beta2=0.0, eps=EPS, grad_clip_norm=clip))
        self._charge(Cost(updates=1), Cost(updates=1))

    def watch(self) -> float:
        """The watched log-prob."""
        self._charge(Cost(score=len(self.row)), Cost(score=len(self.row) - 1))
        return float(self.adapter.forward([PassRow(self.row)])[0][self.watched])

    def _charge(self, cost: Cost, sent: Cost) -> None:
        self.meter.charge(cost, sent, to=self.payer)


@dataclass(frozen=True)
class Reduction:
    """How a service reduces a batch: a name of `REDUCTIONS`, empty if it is none of them; with what was measured."""

    name: str
    measured: Mapping[str, float]

    def scale(self, targets: ndarray) -> ndarray:
        """(N,) factors of rows' advantages that make the service's gradient a sum's. Raises UserError if unknown."""
        if not self.name:
            raise UserError(f"the service's reduction is not known ({self.text}): the size of every gradient would be "
                            "wrong. `isocost doctor --model tinker:URL#MODEL` measures it")
        return REDUCTIONS[self.name](targets)

    @property
    def text(self) -> str:
        """What was measured."""
        return ", ".join(f"{k} x{v:.3g}" for k, v in self.measured.items())


def reduction(probe: Probe, one: float) -> Reduction:
    """Recognise a service's reduction, from responses relative to `one`, that of a single row.

    The measured ones: the row twice; beside a longer row without advantages; continued by tokens without advantages;
    with small advantages at its other tokens, which shows whether zeros are counted.
    """
    row, longer = probe.told(probe.row), probe.told(probe.longer)
    tried: dict[str, list[Told]] = {
        "the row twice": [row, row],
        "beside a longer row without advantages": [row, probe.nothing(probe.longer)],
        "continued by tokens without advantages": [longer],
        "with small advantages elsewhere": [probe.told(probe.row, others=THIN)],
    }
    measured = {name: probe.response(rows) / one for name, rows in tried.items()}
    for name, factor in REDUCTIONS.items():
        alone = factor(np.array([len(row.tokens) - 1]))[0]
        expected = {
            what: sum(alone / f for r, f in zip(rows, factor(np.array([len(r.tokens) - 1 for r in rows])), strict=True)
                      if any(r.advantages))
            for what, rows in tried.items()
        }
        if all(abs(measured[k] - v) <= CLOSE * v for k, v in expected.items()):
            return Reduction(name, measured)
    return Reduction("", measured)
