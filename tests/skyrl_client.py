"""What isocost measures of a SkyRL server, as JSON: `python tests/skyrl_client.py URL CHECKPOINTS`.

Runs in SkyRL's environment, which has the SDK. See `skyrl_server`.
"""

from __future__ import annotations

import json
import sys
import tarfile
import tempfile
from pathlib import Path

import numpy as np
import torch

from isocost import methods
from isocost.batch import Batch
from isocost.doctor.service import diagnose_service
from isocost.local import lora
from isocost.local.models import load
from isocost.local.world import Compute, open_world
from isocost.meter import Meter
from isocost.types import Message, Problem
from isocost.worlds.conventions import Reduction
from isocost.worlds.service import Service
from isocost.worlds.tinker import TinkerLearner
from skyrl_server import RANK

ITS = "mean over the tokens of a row and over rows"      # its reduction, which the doctor measures


def batch_of(learner, text) -> Batch:
    """Four rows of two groups, of different lengths, with advantages of both signs and the mean over tokens."""
    rows = [(f"{a}+{b}=", said) for a, b, said in ((12, 34, "46"), (12, 34, "47"), (5, 9, "14"), (95, 17, "1128"))]
    ids = [(text.encode(p), [*text.encode(s), text.ends[0]]) for p, s in rows]
    n, t = len(ids), max(len(p) + len(s) for p, s in ids)
    tokens, mask = torch.zeros(n, t, dtype=torch.long), torch.zeros(n, t, dtype=torch.bool)
    for i, (p, s) in enumerate(ids):
        tokens[i, : len(p) + len(s)] = torch.tensor([*p, *s])
        mask[i, len(p) : len(p) + len(s)] = True
    zeros = torch.zeros(n, t)
    batch = Batch(
        tokens, mask, zeros, zeros.long(), zeros.long(), torch.tensor([len(p) + len(s) for p, s in ids]),
        torch.ones(n), torch.arange(n), torch.tensor([1.0, 0.0, 1.0, 0.0]), torch.tensor([0, 0, 1, 1]),
        torch.zeros(n, dtype=torch.long), (),
    )
    advantage = torch.tensor([0.7, -0.7, 1.0, -0.4])[:, None] * mask
    return batch.but(logp=learner.score(batch).logp, advantage=advantage, weight=mask / mask.sum())


def norms(url: str, checkpoints: Path) -> list[dict[str, float]]:
    """The gradient's norm by the service and by torch, with the adapter's own weights, at three points of training."""
    service = Service.connect(url)
    adapter = service.adapter("tiny", rank=RANK, seed=0)
    there, loss, out = TinkerLearner(adapter, Meter(), Reduction(ITS, {})), methods.recipe("grpo").loss, []
    own = open_world(load("tiny"), [Problem("0", (Message("user", "1"),))], None,
                     compute=Compute(lora=RANK, kernels="torch"))
    for k in range(3):
        batch = batch_of(there, load("tiny").text)
        name = f"norm{k}"
        there.adapter._calls(lambda name=name: there.adapter._client.save_weights_for_sampler(name).result())
        with tempfile.TemporaryDirectory() as folder:
            archive = next(checkpoints.rglob(f"sampler_weights/{name}.tar.gz"))
            with tarfile.open(archive) as packed:
                packed.extractall(folder, filter="data")
            settings = json.loads((next(Path(folder).rglob(lora.SETTINGS))).read_text())
            tensors = lora.load_file(next(Path(folder).rglob(lora.TENSORS)))
        own.learner.alpha = float(settings["lora_alpha"])
        own.learner.set_adapter({k: v for k, v in tensors.items() if k in own.learner.adapter()})
        gap = float((own.learner.score(batch).logp - batch.logp)[batch.mask].abs().max())
        own.learner.gradient(batch, loss)
        torch_norm = float(own.learner._project().norm())
        found = there.update(batch, loss, lr=3e-3)
        out.append({"service": found["grad_norm"], "torch": torch_norm, "log-prob gap": gap,
                    "relative": abs(found["grad_norm"] / torch_norm - 1)})
    service.close()
    return out


if __name__ == "__main__":
    url, checkpoints = sys.argv[1], Path(sys.argv[2])
    measured = norms(url, checkpoints)
    print(json.dumps(measured), flush=True)
    found = diagnose_service(f"tinker:{url}#tiny", lora=RANK)
    rows = [{"name": f.name, "verdict": f.verdict, "said": f.said} for f in found.findings]
    print(json.dumps({"norms": measured, "findings": rows, "seconds": found.seconds,
                      "worst": float(np.max([x["relative"] for x in measured]))}))
