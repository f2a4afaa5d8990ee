"""Which cache an engine decodes with."""

from __future__ import annotations

from isocost.local import graphs
from isocost.local.cache import Cache, NativeCache, TorchCache
from isocost.local.decoder import Compute, Config
from isocost.local.static import StaticCache


def open_cache(config: Config, compute: Compute, tape_bytes: int, memory: int = 2**30) -> Cache:
    """A cache over the kernels of `compute`; graphs are captured on GPUs only. Tapes of native kernels take up to
    `tape_bytes`; `memory` is what keys and values may take.
    """
    body, device = compute.body, compute.device
    if compute.kernels == "native":
        return NativeCache(config, body, compute.threads, tape_bytes)
    if compute.kernels == "graphs":
        capture = graphs.CudaGraphs(device) if device.type == "cuda" else graphs.uncaptured
        return StaticCache(config, body, device, capture, memory)
    return TorchCache(config, body, device)
