"""Which cache an engine decodes with."""

from __future__ import annotations

from isocost.local import graphs
from isocost.local.cache import Cache, NativeCache, TorchCache
from isocost.local.decoder import Backend, Config
from isocost.local.static import StaticCache


def open_cache(config: Config, backend: Backend, tape_bytes: int, memory: int = 2**30) -> Cache:
    """A cache over the kernels of `backend`; graphs are captured on GPUs only. Tapes of native kernels take up to
    `tape_bytes`; `memory` is what keys and values may take.
    """
    body, device = backend.body, backend.device
    if backend.kernels == "native":
        return NativeCache(config, body, backend.threads, tape_bytes)
    if backend.kernels == "graphs":
        capture = graphs.CudaGraphs(device) if device.type == "cuda" else graphs.uncaptured
        return StaticCache(config, body, device, capture, memory)
    return TorchCache(config, body, device)
