"""Makes the weights of the small worlds that have no language model.

    python experiments/tiny_worlds.py flow2d         src/isocost/worlds/tiny/flow2d.safetensors

A base knows the answers and not the question, so reinforcement learning has something to improve: the flow is taught
all four regions under prompts that say nothing. The same torch on the same machine gives the same weights.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

from isocost.worlds.tiny import flow


def flow2d(steps: int = 2000, rows: int = 256, lr: float = 2e-3, spread: float = 0.15) -> Path:
    """Flow matching on the four regions: the mean square of v(x_t, t) − (e − x_0), x_t = (1 − t) x_0 + t e."""
    torch.manual_seed(0)
    net = flow.Field(2)
    adam = torch.optim.Adam(net.parameters(), lr)
    centres = torch.tensor([[1, 1], [-1, 1], [-1, -1], [1, -1]], dtype=flow.WIDE)
    for step in range(steps):
        clean = centres[torch.randint(4, (rows,))] + spread * torch.randn(rows, 2, dtype=flow.WIDE)
        noise, t = torch.randn(rows, 2, dtype=flow.WIDE), torch.rand(rows, dtype=flow.WIDE)
        angle = math.pi / 2 * (torch.randint(4, (rows,)) + 0.5) + math.radians(10) * (2 * torch.rand(rows) - 1)
        prompt = torch.stack((angle.cos(), angle.sin()), -1).to(flow.WIDE)
        x = (1 - t)[:, None] * clean + t[:, None] * noise
        loss = (net(x, t, prompt) - (noise - clean)).square().mean()
        adam.param_groups[0]["lr"] = lr * (1 - step / steps)
        adam.zero_grad()
        loss.backward()
        adam.step()
    save_file({k: v.float().contiguous() for k, v in net.state_dict().items()}, flow.BASE)
    return flow.BASE


if __name__ == "__main__":
    torch.set_num_threads(1)
    print({"flow2d": flow2d}[sys.argv[1]]())
