"""Makes the weights of the small worlds that have no language model.

    python experiments/tiny_worlds.py flow2d         src/isocost/worlds/tiny/flow2d.safetensors
    python experiments/tiny_worlds.py masked         src/isocost/worlds/tiny/masked.safetensors

A base leaves reinforcement learning something to improve: the flow is taught all four regions under prompts that say
nothing; the masked policy is stopped when one answer in five is right. The same torch on the same machine gives the
same weights.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

from isocost.tasks.builtin import places
from isocost.worlds.tiny import flow
from isocost.worlds.tiny import masked as fill


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


def masked(steps: int = 420, rows: int = 64, lr: float = 3e-3) -> Path:
    """Cross-entropy at the masked places, of which each answer has a share drawn anew."""
    torch.manual_seed(0)
    net = fill.Filler()
    with torch.no_grad():
        net.place.normal_(0, 0.3)
    adam = torch.optim.Adam(net.parameters(), lr)
    for step in range(steps):
        a, b = torch.randint(places.LOW, places.HIGH, (2, rows)).tolist()
        told = [f"{x}+{y}={x + y}".ljust(fill.ASKED + fill.PLACES, "E") for x, y in zip(a, b, strict=True)]
        whole = torch.tensor([fill.CellText().encode(text) for text in told])
        hidden = torch.rand(rows, fill.PLACES) < torch.rand(rows, 1)
        state, answer = whole.clone(), whole[:, fill.ASKED :]
        state[:, fill.ASKED :][hidden] = fill.MASK
        logp, _ = net(state, torch.ones(rows, dtype=fill.WIDE))
        loss = -(logp.gather(-1, answer[..., None])[..., 0] * hidden).sum() / hidden.sum().clamp(min=1)
        adam.zero_grad()
        loss.backward()
        adam.step()
        if step % 100 == 99:
            print(step + 1, f"{loss.item():.3f}", flush=True)
    save_file({k: v.float().contiguous() for k, v in net.state_dict().items()}, fill.BASE)
    return fill.BASE


if __name__ == "__main__":
    torch.set_num_threads(1)
    print({"flow2d": flow2d, "masked": masked}[sys.argv[1]]())
