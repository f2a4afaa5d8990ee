"""The same layers in the kernel (`local/kernel/networks.h`): forward, backward, and Adam, for stacks on a CPU.

What it cannot do, or where there is no compiler, torch does (`networks.py`); `ISOCOST_KERNELS=torch` turns it off. Both
paths agree to about 1e-6, and each gives a run the same bytes in every stack.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from isocost.local import native


class NetworkLayers(NamedTuple):
    """A network of dense layers with relu: `depth` hidden ones of `width`."""

    inputs: int
    width: int
    depth: int
    outputs: int


@cache
def _library() -> tuple[Any, int]:
    """The kernel, or None; and the number that inner widths are multiples of."""
    library, _ = native.library()
    return library, 2 * library.isocost_lanes() if library else 0


def computed_by() -> str:
    """What computes networks that the kernel can, for the record: the two differ in the last digits."""
    return "native" if _library()[0] else "torch"


def usable(net: NetworkLayers, weights: Tensor) -> bool:
    """Whether the kernel computes this network: hidden layers of whole vectors, on a CPU."""
    library, unit = _library()
    return library is not None and weights.device.type == "cpu" and net.depth > 0 and net.width % unit == 0


def read(net: NetworkLayers, weights: Tensor, x: Tensor) -> Tensor:
    """The outputs of a stack: (S, K, P), (S, 1 or K, B, I) -> (S, K, B, out)."""
    found: Tensor = _Stacked.apply(weights, x, net)
    return found


class _Stacked(torch.autograd.Function):
    """Both directions. Gradients are computed by weights, by inputs, or by both, as they are needed."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, x: Tensor, net: NetworkLayers) -> Tensor:
        library, _ = _library()
        weights, x = weights.contiguous(), x.contiguous()
        (runs, members, size), count = weights.shape, x.shape[2]
        shape = np.array([runs, members, x.shape[1] == 1, count, *net, size], dtype=np.int64)
        y = torch.empty(runs, members, count, net.outputs)
        kept = torch.empty(runs * members, net.depth, count, net.width) if any(ctx.needs_input_grad) else None
        at = shape.ctypes.data, weights.data_ptr(), x.data_ptr()
        library.isocost_mlp(*at, None if kept is None else kept.data_ptr(), y.data_ptr())
        if kept is not None:
            ctx.save_for_backward(weights, x, kept)
            ctx.shape = shape
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        library, _ = _library()
        weights, x, kept = ctx.saved_tensors
        dy = gradients[0].contiguous()
        g = torch.empty_like(weights) if ctx.needs_input_grad[0] else None
        dx = torch.empty(*weights.shape[:2], *x.shape[2:]) if ctx.needs_input_grad[1] else None
        library.isocost_mlp_back(
            ctx.shape.ctypes.data, weights.data_ptr(), x.data_ptr(), kept.data_ptr(), dy.data_ptr(),
            None if g is None else g.data_ptr(), None if dx is None else dx.data_ptr())
        if dx is not None and x.shape[1] == 1:
            dx = dx.sum(1, keepdim=True)
        return g, dx, None


def adam(
    weights: Tensor, first: Tensor, second: Tensor, gradient: Tensor, by_run: tuple[Tensor, Tensor, Tensor],
    betas: tuple[float, float, float],
) -> bool:
    """One step in place, of rows with a step size, a scale of the second moment's root, and what is kept of the
    weights, (S,) float32 each; `betas` are Adam's two and its epsilon. False where the kernel cannot do it."""
    library, _ = _library()
    arrays = weights, first, second, gradient
    if library is None or weights.device.type != "cpu" or not all(a.is_contiguous() for a in arrays):
        return False
    first_beta, second_beta, tiny = betas
    given = np.array([first_beta, second_beta, 1 - first_beta, 1 - second_beta, tiny], dtype=np.float32)
    library.isocost_adam(len(weights), weights[0].numel(), *(a.data_ptr() for a in arrays),
                         *(x.data_ptr() for x in by_run), given.ctypes.data)
    return True
