"""A pretended GPU: every tensor remembers, by its storage, the device that the program believes it is on.

All numbers are computed on the processor. Reported are operations on tensors of two devices, which fail on a GPU,
`.numpy()` of a tensor there, and places that wait for it; inside the capture of a graph, waits and copies between
devices are reported too, since they fail there. Not seen: streams, pinned memory, limits of memory, the
numbers of a GPU's kernels, and the inside of autograd.
"""

from __future__ import annotations

import collections
import traceback

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from isocost.local import graphs

CUDA, CPU = torch.device("cuda", 0), torch.device("cpu")
WAITS = ("item", "tolist", "__bool__", "__float__", "__int__", "__index__", "nonzero", "unique", "masked_select",
         "repeat_interleave")
MADE = ("from_numpy", "tensor", "zeros", "ones", "empty", "full", "arange", "randn", "rand", "as_tensor")
COPIES = ("copy_", "_foreach_copy_", "set_data", "__set__")
INDEXED = ("__getitem__", "__setitem__", "index_put_", "index_put")


class FakeGraphs:
    """`isocost.local.graphs.CudaGraphs`: work is checked the first time, and then runs as it is."""

    captures, capturing = 0, False

    def __init__(self, device):
        assert device.type == "cuda"

    def __call__(self, work):
        FakeGraphs.captures, FakeGraphs.capturing = FakeGraphs.captures + 1, True
        try:
            work()
        finally:
            FakeGraphs.capturing = False
        return work


def pretend(monkeypatch) -> None:
    """Let torch report a GPU with a gigabyte of memory."""
    monkeypatch.setattr(FakeGraphs, "captures", 0)
    monkeypatch.setattr(graphs, "CudaGraphs", FakeGraphs)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda *a: (1 << 30, 1 << 30))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *a: None)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda *a: "a pretended GPU")
    # A build of torch for GPUs asks the driver whether a graph is captured, at every step of Adam.
    monkeypatch.setattr(torch.optim.Optimizer, "_accelerator_graph_capture_health_check", lambda _: None, raising=False)


class FakeCuda(TorchFunctionMode):
    """`mixed` and `waits` count by place: the innermost line of isocost."""

    def __init__(self):
        super().__init__()
        self.where, self.kept = {}, []
        self.mixed, self.waits, self.calls = collections.Counter(), collections.Counter(), 0

    def mark(self, tensor, device):
        storage = tensor.untyped_storage()
        self.where[storage.data_ptr()] = device
        self.kept.append(storage)       # so that no other storage gets its address

    def of(self, tensor):
        return self.where.get(tensor.untyped_storage().data_ptr()) if tensor.numel() else None

    def place(self):
        frames = (f for f in reversed(traceback.extract_stack()) if "/isocost/" in f.filename)
        return next((f"{f.filename.rpartition('/isocost/')[2]}:{f.lineno} {f.line}" for f in frames), "elsewhere")

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs, name = dict(kwargs or {}), getattr(func, "__name__", str(func))
        self.calls += 1
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        devices = [self.of(x) for x in tensors]
        if name == "__get__":
            what = getattr(getattr(func, "__self__", None), "__name__", "")
            if what == "device":
                return CUDA if devices and devices[0] == "cuda" else CPU
            if what == "is_cuda":
                return bool(devices and devices[0] == "cuda")
            if what == "is_cpu":
                return not devices or devices[0] != "cuda"
            out = func(*args, **kwargs)
            if what == "grad" and out is not None and self.of(out) is None:     # autograd made it, unseen
                self.mark(out, devices[0])
            return out
        wanted = None
        if kwargs.get("device") is not None:
            wanted, kwargs["device"] = self.named(kwargs["device"]), "cpu"
        if name in ("to", "cuda", "cpu"):
            return self.moved(func, name, args, kwargs, wanted, tensors, devices)
        there = "cuda" in devices
        if there and (name in ("numpy", "__array__")):
            self.mixed[f"numpy() of a tensor on the GPU at {self.place()}"] += 1
        if there and name in WAITS:
            self.wait(name)
        # A tensor without dimensions may be on another device, and an index of a tensor on the GPU too.
        strict = {d for x, d in zip(tensors, devices, strict=True) if d and x.ndim > 0}
        indexed = name in INDEXED and devices[0] == "cuda"
        if len(strict) > 1 and name not in COPIES and not indexed:
            self.mixed[f"{name} of {devices} at {self.place()}"] += 1
        out = func(*args, **kwargs)
        device = wanted or ("cuda" if there else "cpu" if tensors or name in MADE else None)
        for x in tree_leaves(out):
            if isinstance(x, torch.Tensor) and device and self.of(x) is None:
                self.mark(x, device)
        return out

    def wait(self, name):
        self.waits[self.place()] += 1
        if FakeGraphs.capturing:
            self.mixed[f"{name} waits for the GPU inside a capture at {self.place()}"] += 1

    @staticmethod
    def named(device):
        return "cuda" if isinstance(device, int) or torch.device(device).type == "cuda" else "cpu"

    def moved(self, func, name, args, kwargs, wanted, tensors, devices):
        """`to`, `cuda` and `cpu`: a tensor of the same numbers, on the other device in storage of its own."""
        if name == "cuda":
            wanted, func, args = "cuda", torch.Tensor.clone, args[:1]
        elif name == "cpu":
            wanted = "cpu"
        else:
            for a in args[1:]:
                if isinstance(a, torch.device) or (isinstance(a, str) and a.split(":")[0] in ("cuda", "cpu")):
                    wanted = self.named(a)
                elif isinstance(a, torch.Tensor):
                    wanted = self.of(a) or "cpu"
            args = tuple("cpu" if isinstance(a, torch.device) or (isinstance(a, str) and i) else a
                         for i, a in enumerate(args))
        here = devices[0] if devices else None
        out = func(*args, **kwargs)
        if wanted and wanted != here:
            if out.untyped_storage().data_ptr() == tensors[0].untyped_storage().data_ptr():
                out = out.clone()
            if here == "cuda":
                self.wait(name)
            elif FakeGraphs.capturing:
                self.mixed[f"{name} copies from the host inside a capture at {self.place()}"] += 1
        self.mark(out, wanted or here or "cpu")
        return out
