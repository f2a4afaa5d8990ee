"""Work on a GPU that is captured once as a CUDA graph, and then replayed in one launch.

The work reads and writes tensors at fixed addresses, starts no copy from the host and waits for no result, returns
nothing, and keeps no tensor: all graphs of a `CudaGraphs` share the memory of their intermediate results.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch

Work = Callable[[], None]
WARM = 2        # passes before a capture, in which libraries choose their routines and allocate their workspaces


class Capture(Protocol):
    """What makes work repeatable: the only difference between a GPU and a processor in `isocost.local.static`."""

    def __call__(self, work: Work) -> Work:
        """Work that does the same each time it is called. It may run some times before this returns."""
        ...


def uncaptured(work: Work) -> Work:
    """The work itself, for processors."""
    return work


class CudaGraphs:
    """Captures work as a CUDA graph. RuntimeError where torch or a library cannot capture it."""

    def __init__(self, device: torch.device):
        self.device = device
        self._stream = torch.cuda.Stream(device)
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, work: Work) -> Work:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.device(self.device):
            current = torch.cuda.current_stream()
            self._stream.wait_stream(current)
            try:
                with torch.cuda.stream(self._stream):
                    for _ in range(WARM):
                        work()
                current.wait_stream(self._stream)
                # other threads may use the GPU meanwhile
                with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
                    work()
            finally:
                torch.cuda.set_stream(current)      # torch leaves its own where a capture fails
        return graph.replay
