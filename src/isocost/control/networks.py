"""Stacks of small networks: the weights of (S, K) networks are one array (S, K, P), so that one product serves all.

A row of P holds the layers of one network one after another, and zeros up to a multiple of 32 numbers: element-wise
operations then treat every run alike, wherever it is in the stack. This file is the plain path, for every device; on a
CPU `native.py` computes what it can.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from math import prod
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import gelu, layer_norm, relu

from isocost.control import native

LANES = 32      # numbers that torch's loops take at once, at most
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": relu, "tanh": torch.tanh, "gelu": gelu}


class Network(Protocol):
    """Anything with weights: (S, K, P), K members."""

    @property
    def members(self) -> int: ...
    @property
    def outputs(self) -> int: ...       # of one member for one example
    @property
    def slow(self) -> bool: ...         # whether there is an averaged copy
    @property
    def decay(self) -> float: ...       # of the weights, decoupled, per update and unit of learning rate
    @property
    def parameters(self) -> int: ...    # of one member
    @property
    def multiplications(self) -> int: ...       # of one member for one example, forward
    def start(self, rng: np.random.Generator) -> np.ndarray: ...      # (K, P)
    def __call__(self, weights: Tensor, x: Tensor) -> Tensor: ...     # (S, K, P), (S, 1 or K, B, I) -> (S, K, B, out)


@dataclass(frozen=True)
class Mlp:
    """Dense layers with one activation. `norm` adds LayerNorm before each activation; with `residual` each pair of
    hidden layers is added to its input (BRO, arXiv:2405.16158)."""

    inputs: int
    outputs: int
    width: int
    depth: int = 2
    members: int = 1
    activation: str = "relu"
    norm: bool = False
    residual: bool = False
    slow: bool = False
    decay: float = 0.0
    twice: bool = False         # whether its gradients are differentiated again, which the kernel does not

    @property
    def layers(self) -> list[tuple[int, int]]:
        hidden = 1 + 2 * self.depth if self.residual else self.depth
        sizes = [self.inputs, *[self.width] * hidden, self.outputs]
        return list(pairwise(sizes))

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Of the weights in order: for each layer (in, out) and (1, out); with `norm` a scale and a shift for each
        hidden layer."""
        out: list[tuple[int, ...]] = []
        for k, (i, o) in enumerate(self.layers):
            out += [(i, o), (1, o)]
            out += [(1, o), (1, o)] if self.norm and k < len(self.layers) - 1 else []
        return out

    @property
    def parameters(self) -> int:
        return sum(map(prod, self.shapes))

    @property
    def multiplications(self) -> int:
        return sum(i * o for i, o in self.layers)

    @property
    def size(self) -> int:
        return -(-self.parameters // LANES) * LANES

    @cached_property
    def dense(self) -> native.NetworkLayers | None:
        """The network as the kernel computes it; None if it cannot."""
        plain = self.activation == "relu" and not (self.norm or self.residual or self.twice)
        return native.NetworkLayers(self.inputs, self.width, self.depth, self.outputs) if plain else None

    def start(self, rng: np.random.Generator) -> np.ndarray:
        """Uniform in ±1/√inputs, weights and biases: the default of torch's Linear, which SB3 uses."""
        out = np.zeros((self.members, self.size), np.float32)
        at = 0
        for k, (i, o) in enumerate(self.layers):
            many = i * o + o
            out[:, at : at + many] = (2 * rng.random((self.members, many)) - 1) / i**0.5
            at += many
            if self.norm and k < len(self.layers) - 1:
                out[:, at : at + o] = 1
                at += 2 * o
        return out

    def parts(self, weights: Tensor) -> Iterator[Tensor]:
        """The weights of each layer: (S K, in, out), (S K, 1, out)."""
        flat, at = weights.reshape(-1, weights.shape[-1]), 0
        for shape in self.shapes:
            many = prod(shape)
            yield flat[:, at : at + many].reshape(-1, *shape)
            at += many

    def __call__(self, weights: Tensor, x: Tensor) -> Tensor:
        if self.dense and native.usable(self.dense, weights):
            return native.read(self.dense, weights, x)
        runs, members = weights.shape[:2]
        if runs * members == 1:     # libraries take another routine for a product that is alone: it is not
            return self(weights.expand(2, -1, -1), x.expand(2, -1, -1, -1))[:1]
        h = x.expand(runs, members, *x.shape[2:]).reshape(runs * members, *x.shape[2:])
        parts, f, last = self.parts(weights), ACTIVATIONS[self.activation], len(self.layers) - 1
        kept = h
        for k in range(last + 1):
            matrix, bias = next(parts), next(parts)
            h = torch.baddbmm(bias, h, matrix)
            if k == last:
                break
            if self.norm:
                h = layer_norm(h, (self.width,)) * next(parts) + next(parts)
            if not self.residual:
                h = f(h)
            elif k == 0:
                h = kept = f(h)
            elif k % 2:
                h = f(h)
            else:
                h = kept = kept + h
        return h.reshape(runs, members, *h.shape[1:])


@dataclass(frozen=True)
class Numbers:
    """Trained numbers that no input passes through, such as SAC's temperature."""

    values: tuple[float, ...]
    members: int = 1
    slow: bool = False
    decay: float = 0.0
    multiplications: int = 0

    @property
    def outputs(self) -> int:
        return len(self.values)

    @property
    def parameters(self) -> int:
        return len(self.values)

    def start(self, rng: np.random.Generator) -> np.ndarray:
        out = np.zeros((1, -(-len(self.values) // LANES) * LANES), np.float32)
        out[0, : len(self.values)] = self.values
        return out

    def __call__(self, weights: Tensor, x: Tensor) -> Tensor:
        return weights[..., None, : len(self.values)]


@dataclass
class Effort:
    """What one run's part of an update took: FLOP, and examples times networks with and without their own gradient.

    A forward pass is 2 FLOP a multiplication, and so is each of its two backward passes, by inputs and by weights.
    """

    flop: int = 0
    train: int = 0
    score: int = 0


@dataclass(frozen=True)
class Params:
    """The networks of a stack with their weights. `due` names those that are trained in this update."""

    networks: Mapping[str, Network]
    weights: Mapping[str, Tensor]
    due: frozenset[str] = frozenset()
    work: Effort = field(default_factory=Effort)

    def __call__(self, name: str, *x: Tensor) -> Tensor:
        """The outputs of a network, (S, K, B, out), for inputs side by side: (S, B, ..), or (S, K, B, ..) for inputs of
        each member."""
        net, weights = self.networks[name], self.weights[name]
        given = x[0] if len(x) == 1 else torch.cat(x, -1)
        given = given.unsqueeze(1) if given.dim() == 3 else given
        many = net.members * given.shape[2]
        own = torch.is_grad_enabled() and weights.requires_grad
        passes = 3 if own else 2 if torch.is_grad_enabled() and given.requires_grad else 1
        self.work.flop += 2 * net.multiplications * many * passes
        if own:
            self.work.train += many
        else:
            self.work.score += many
        return net(weights, given)

    def numbers(self, name: str) -> Tensor:
        """Trained numbers: (S, 1)."""
        return self.weights[name][:, 0, : self.networks[name].parameters]

    @property
    def fixed(self) -> Params:
        """The same, through which no gradient reaches the weights."""
        still = {k: x.detach() for k, x in self.weights.items()}
        return Params(self.networks, still, self.due, self.work)
