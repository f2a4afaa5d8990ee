"""A stand-in for CUDA graphs on a processor: operations are recorded once, and replayed on the same memory.

Like a graph, a replay runs no Python, so that numbers which the host put into the work are those of the recording.
What a capture forbids is an error here too: waiting for a result, and copies from the host.
"""

from __future__ import annotations

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

FORBIDDEN = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "is_nonzero", "equal", "scalar_tensor")


def memory(x):
    return x.untyped_storage().data_ptr()


class Recording(TorchDispatchMode):
    """The operations of a piece of work, and the tensors that they read and made."""

    def __init__(self):
        super().__init__()
        self.done = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        assert name not in FORBIDDEN, f"{name} waits for a result, which a capture forbids"
        out = func(*args, **kwargs)
        given = {memory(x) for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)}
        made = [isinstance(x, torch.Tensor) and memory(x) not in given for x in tree_leaves(out)]
        self.done.append((func, args, kwargs, tree_leaves(out), made))
        return out

    def replay(self):
        for func, args, kwargs, outs, made in self.done:
            found = tree_leaves(func(*args, **kwargs))
            for there, here, new in zip(outs, found, made, strict=True):
                if new:
                    there.copy_(here)


class Recorder:
    """`isocost.local.graphs.Capture` that counts captures and replays."""

    def __init__(self, warm=2):
        self.warm, self.captures, self.replays = warm, 0, 0

    def __call__(self, work):
        for _ in range(self.warm):
            work()
        with Recording() as recording:
            work()
        self.captures += 1

        def replay():
            self.replays += 1
            recording.replay()

        return replay
