"""The roofline model: operations and bytes of a decoder from its shape, and the measured peaks of the machine.

Counted are operations and bytes that every implementation needs: matrix products and attention (2 operations per
multiply-add), and weights, keys, gradients and moments, each moved as rarely as possible. Softmax, norms, sampling and
reuse in the CPU cache are left out, so the resulting time is a lower bound: the longer of arithmetic and memory time
(Williams, Waterman & Patterson 2009).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from isocost.local.decoder import Config

WIDE = 4                                       # bytes of a number of the head, of gradients and of moments
SHAPES = ((512, 512, 512), (1024, 1024, 1024), (256, 1024, 4096), (2048, 512, 2048))   # rows, inputs, outputs
GPU_SHAPES = ((4096, 4096, 4096), (8192, 8192, 8192), (8192, 4096, 16384))
READS = (2**20, 2**22, 2**24, 2**26, 2**28)    # bytes; the last exceeds every processor's cache
GPU_READS = (2**24, 2**26, 2**28, 2**30)
KINDS = {"fp32": torch.float32, "bf16": torch.bfloat16}


@dataclass(frozen=True)
class Work:
    """The work of one call: floating-point operations, and bytes between memory and processor. Counted."""

    flops: float
    bytes: float

    def __add__(self, other: Work) -> Work:
        return Work(self.flops + other.flops, self.bytes + other.bytes)

    def __mul__(self, times: float) -> Work:
        return Work(self.flops * times, self.bytes * times)


@dataclass(frozen=True)
class Peaks:
    """The peak rates of a machine. Measured."""

    flops: dict[str, float]                       # of matrix products in "fp32" and "bf16", per second
    bytes: float                                  # read from memory, per second
    threads: int
    reads: tuple[tuple[float, float], ...] = ()   # (bytes read repeatedly, bytes per second): caches are faster

    def bandwidth(self, size: float) -> float:
        """Bytes per second when `size` bytes are read repeatedly; between measured sizes, linear in log size."""
        if not self.reads:
            return self.bytes
        sizes, rates = np.array(self.reads).T
        return float(np.interp(np.log(max(size, 1.0)), np.log(sizes), rates))


# counting -----------------------------------------------------------------------------------------------------------


def body_weights(config: Config) -> int:
    """Weights in the matrices of all layers, which every token is multiplied with."""
    c, q, kv = config, config.heads * config.head_dim, config.kv_heads * config.head_dim
    return c.layers * c.hidden * ((q + 2 * kv) + q + 3 * c.mlp)


def head_weights(config: Config) -> int:
    """Weights in the head, which a token is multiplied with to get logits."""
    return config.vocab * config.hidden


def decode_work(
    config: Config, rows: int, context: float, *, body: int = 4, prompt: float = 0.0, group: int = 1
) -> Work:
    """One token for each of `rows` rows whose cache holds `context` keys before it.

    `prompt` of those keys are shared by `group` rows and read once for them. `body` is the bytes per number of the
    layers' weights and of the cache; the head is float32. The token also attends to its own key, which is written.
    """
    flops = rows * (_token(config, context + 1) + 2 * head_weights(config))
    keys = rows * (context - prompt) + rows / group * prompt + rows
    return Work(flops, _weights(config, body, rows) + keys * _key(config, body))


def prefill_work(
    config: Config, tokens: float, *, context: float | None = None, predicted: float = 1.0, body: int = 4
) -> Work:
    """A forward pass over `tokens` tokens, with logits at `predicted` of them: reading starts, or scoring.

    `context` is the mean number of keys that a token attends to, its own included; by default all are one causal row,
    with mean (tokens + 1) / 2. Keys and values are written once.
    """
    keys_seen = (tokens + 1) / 2 if context is None else context
    flops = tokens * _token(config, keys_seen) + 2 * head_weights(config) * predicted
    return Work(flops, _weights(config, body, predicted) + tokens * _key(config, body))


def train_work(
    config: Config, tokens: float, *, context: float | None = None, predicted: float | None = None, body: int = 4,
    parts: int = 1,
) -> Work:
    """Forward, backward and one AdamW update on `tokens` tokens, the loss on `predicted` of them (default: all).

    Backward is twice forward: two products for each one. Bytes: weights twice per micro-batch of `parts`, the
    activations that backward needs written and read once, gradients accumulated over micro-batches, read for their
    norm, and the update's four reads and three writes of float32.
    """
    predictions = tokens if predicted is None else predicted
    forward = prefill_work(config, tokens, context=context, predicted=predictions, body=body)
    activations = 2 * (tokens * _activations(config) * body + predictions * config.hidden * WIDE)
    numbers = parameters(config)
    gradients = WIDE * numbers * ((2 * parts - 1) + 1)
    weights = 2 * parts * _weights(config, body, predictions)
    return Work(3 * forward.flops, weights + activations + gradients + 7 * WIDE * numbers)


def parameters(config: Config) -> int:
    """All parameters, norms and biases included."""
    c, q, kv = config, config.heads * config.head_dim, config.kv_heads * config.head_dim
    extras = 2 * c.hidden + c.qkv_bias * (q + 2 * kv) + c.qk_norm * 2 * c.head_dim
    embedding = head_weights(c) * (1 if c.tied else 2)
    return body_weights(c) + c.layers * extras + embedding + c.hidden


def _token(config: Config, keys_seen: float) -> float:
    """Operations of one token through all layers that attends to this predictions keys."""
    return 2 * body_weights(config) + 4 * config.layers * config.heads * config.head_dim * keys_seen


def _key(config: Config, body: int) -> int:
    """Bytes of one token's keys and values in all layers."""
    return 2 * config.layers * config.kv_heads * config.head_dim * body


def _weights(config: Config, body: int, predicted: float) -> float:
    return body_weights(config) * body + (head_weights(config) * max(WIDE, body) if predicted else 0)


def _activations(config: Config) -> int:
    """Numbers per token that backward reads: the inputs of each layer's products, and of its attention."""
    c, q, kv = config, config.heads * config.head_dim, config.kv_heads * config.head_dim
    return c.layers * (2 * c.hidden + (q + 2 * kv) + q + 3 * c.mlp)


# the machine --------------------------------------------------------------------------------------------------------


def floor(work: Work, peaks: Peaks, dtype: str) -> float:
    """The lower bound in seconds on this machine: the longer of arithmetic and memory time.

    `dtype` is the body's; a float32 head of a bf16 body is counted at bf16's peak, so the result stays a lower bound.
    """
    return max(work.flops / peaks.flops[dtype], work.bytes / peaks.bandwidth(work.bytes))


def bound(work: Work, peaks: Peaks, dtype: str) -> str:
    """Which of the two is longer: "arithmetic" or "memory"."""
    return "arithmetic" if work.flops / peaks.flops[dtype] >= work.bytes / peaks.bandwidth(work.bytes) else "memory"


def measure(threads: int, device: str = "cpu", seconds: float = 2.0) -> Peaks:
    """Measure the rates that torch reaches on this machine, in about `seconds` seconds.

    A rate is the median of a shape's three best repeats, and a peak that of the best shape: other work on the machine
    can only slow a repeat down.
    """
    where = torch.device(device)
    shapes, reads = (GPU_SHAPES, GPU_READS) if where.type == "cuda" else (SHAPES, READS)
    each = seconds / (len(KINDS) * len(shapes) + len(reads))
    with _threads(threads), torch.inference_mode():
        flops = {
            name: max(_products(shape, kind, where, each) for shape in shapes) for name, kind in KINDS.items()
        }
        store = torch.ones(reads[-1] // 4, device=where)
        rates = tuple((float(size), _reading(store[: size // 4], each)) for size in reads)
    return Peaks(flops, rates[-1][1], threads, _falling(rates))


def _products(shape: tuple[int, int, int], kind: torch.dtype, device: torch.device, seconds: float) -> float:
    rows, inputs, outputs = shape
    x, w = (torch.ones(n, inputs, device=device, dtype=kind) for n in (rows, outputs))
    return 2.0 * rows * inputs * outputs / _seconds(lambda: F.linear(x, w), device, seconds)


def _reading(x: Tensor, seconds: float) -> float:
    """Bytes per second; the faster of a sum and a product with a vector, which both read all once."""
    square = x.view(-1, 1024)
    line = torch.ones(1024, device=x.device)
    ways: tuple[Callable[[], Tensor], ...] = (lambda: square.mv(line), x.sum)
    return max(4.0 * x.numel() / _seconds(way, x.device, seconds / len(ways)) for way in ways)


def _falling(rates: tuple[tuple[float, float], ...]) -> tuple[tuple[float, float], ...]:
    """The rates, made non-increasing in size: a smaller set measures slower only by the overhead of the call."""
    best = np.maximum.accumulate([rate for _, rate in rates][::-1])[::-1]
    return tuple((size, float(rate)) for (size, _), rate in zip(rates, best, strict=True))


def _seconds(call: Callable[[], Tensor], device: torch.device, budget: float) -> float:
    """Seconds of one call: the median of the three best, within a budget of seconds but at least five."""
    def timed() -> float:
        began = time.perf_counter()
        call()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - began

    timed()
    took: list[float] = []
    while sum(took) < budget or len(took) < 5:
        took.append(timed())
    return float(np.median(sorted(took)[:3]))


@contextmanager
def _threads(count: int):
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
