"""prime-rl: a TOML file for `uv run rl @ FILE`, to be laid over one that names the model and the environments.

orchestrator.batch_size counts rollouts (nB); group_size is n. Warm-up then constant is its linear schedule without
decay.
"""

from __future__ import annotations

import sys
from typing import Any

from isocost.exporters import Prescription, head, shown, unsaid

TITLE = "prime-rl"
VERSION = "prime-rl 0.8 (packages/prime-rl-configs/src/prime_rl/configs)"
DEFAULTS = {
    "max_tokens": ("max_completion_tokens", "unset (up to the model's context)"),
    "temperature": ("temperature", "1"),
    "top_p": ("top_p", "1"),
    "top_k": ("top_k", "-1"),
}


def write(p: Prescription) -> str:
    tables, left = settings(p)
    how = ["Give it [model] and [[orchestrator.train.source]]; for `isocost import`, [orchestrator.eval] too."]
    text = "".join(f"{k} = {_toml(v)}\n" for k, v in tables.pop("").items() if v is not None)
    for name, table in tables.items():
        rows = "".join(f"{k} = {_toml(v)}\n" for k, v in table.items() if v is not None)
        text += f"\n[{name}]\n{rows}" if rows else ""
    return head(p, sys.modules[__name__], how, left) + text


def settings(p: Prescription) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """(tables of the file, what they cannot say)."""
    tables: dict[str, dict[str, Any]] = {
        "": {"max_steps": p.M},
        "orchestrator": {"batch_size": p.nB, "group_size": p.n},
        "orchestrator.train.sampling": {"temperature": p.temperature, "max_completion_tokens": p.max_tokens},
        "trainer.optim": {"lr": float(p.lr)},
        "trainer.scheduler": {"type": "linear", "warmup_steps": p.warmup, "decay_steps": 0},
    }
    extra = {"top_p": p.top_p if p.top_p not in (None, 1.0) else None, "top_k": p.top_k or None}
    tables["orchestrator.train.sampling.extra_body"] = extra
    left = [f"seed {p.seed}: the standard sampler takes none", *unsaid(p, DEFAULTS)]
    if p.loss is None:
        return tables, left
    loss = p.loss
    tables["orchestrator"]["max_off_policy_steps"] = loss.max_age
    tables["orchestrator.algo"] = {"type": "grpo"}
    tables["orchestrator.train"] = {"filter_zero_advantages": loss.keep_mixed}
    tables["trainer.loss"] = {"type": "default"} | ({"kl_tau": 0.0} if not loss.kl else {})
    left.append(
        f"the {loss.surrogate} surrogate [{loss.low:g}, {loss.high:g}] and its average per {loss.average}: prime-rl "
        "masks by probability difference (dppo_mask_low, dppo_mask_high) and averages over tokens"
    )
    if loss.advantage == "spread":
        left.append("the spread in the advantage: prime-rl's grpo is r - mean r")
    elif loss.advantage != "mean":
        left.append(f"the baseline ({loss.advantage}): prime-rl's grpo is r - mean r")
    if loss.kl:
        left.append(f"KL {loss.kl:g} to the start of the run: kl_tau is of the policy that sampled")
    if loss.entropy:
        left.append(f"the entropy bonus {loss.entropy:g}")
    if loss.cap is not None:
        left.append(f"the cap {loss.cap:g} on learner over sampler: its loss handles that in its own way")
    if loss.epochs * loss.minibatches > 1:
        left.append(f"{loss.epochs * loss.minibatches} updates per batch: prime-rl makes one")
    if loss.refill:
        left.append("refilling the batch: filtered tokens are dropped after the batch is collected")
    return tables, left + list(loss.odd)


def _toml(x: Any) -> str:
    return f'"{x}"' if isinstance(x, str) else shown(x)
