"""Which cache an engine decodes with."""

from __future__ import annotations

import torch

from isocost.local import graphs
from isocost.local.cache import Cache, NativeCache, TorchCache
from isocost.local.decoder import Config
from isocost.local.static import StaticCache


def open_cache(
    config: Config, body: torch.dtype, device: torch.device, kernels: str, threads: int, tape_bytes: int,
    memory: int = 2**30,
) -> Cache:
    """A cache over `kernels`: "native", "torch" or "graphs", which are captured on GPUs only. Tapes of native ones
    take up to `tape_bytes`; `memory` is what keys and values may take.
    """
    if kernels == "native":
        return NativeCache(config, body, threads, tape_bytes)
    if kernels == "graphs":
        capture = graphs.CudaGraphs(device) if device.type == "cuda" else graphs.uncaptured
        return StaticCache(config, body, device, capture, memory)
    return TorchCache(config, body, device)
