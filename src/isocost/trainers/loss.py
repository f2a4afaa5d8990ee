"""A recipe's update in the words that trainers share: from its plain data to `Loss`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from isocost.trainers.export import Loss

SURROGATES = {"clipped": "clipped", "sequence_clipped": "sequence", "truncated": "truncated", "reinforce": "reinforce"}
AVERAGES = {
    "rollout_mean": "rollout",
    "token_mean": "token",
    "prompt_mean": "prompt",
    "fixed_length": "length",
    "rollout_sum": "sum",
}
WHOLE_LOSSES = ("isocost.methods.isohard:loss", "isocost.methods.isoeasy:loss")
ADVANTAGES = {
    "isocost.methods.grpo:advantage": "spread",
    "isocost.methods.drgrpo:advantage": "mean",
    "isocost.methods.rloo:advantage": "others",
    "isocost.methods.reinforce:advantage": "batch",
}
STOCK = {
    "choose": ("uniform",),
    "guide": ("unguided",),
    "allocate": ("equal",),
    "play": ("sample",),
    "schedule": ("together",),
    "reward": ("verified",),
    "select": ("everything", "mixed"),
    "improve": ("policy",),
}


def loss_of(recipe: Mapping[str, Any]) -> Loss:
    """A recipe's plain data (`isocost.seams.describe`) in the words that trainers share."""
    found: dict[str, Any] = {}
    odd: list[str] = []
    _terms(_object(recipe.get("loss")), found, odd)
    advantage = _object(recipe.get("advantage"))
    if advantage.get("fn") == "isocost.methods.isoeasy:advantage":
        found["advantage"] = "spread" if advantage.get("std") else "mean"
    elif advantage.get("fn") in ADVANTAGES:
        found["advantage"] = ADVANTAGES[advantage["fn"]]
    else:
        odd.append(f"the advantage {advantage.get('fn')}")
    weight = _object(recipe.get("weight"))
    name = _name(weight)
    if name in AVERAGES:
        found |= {"average": AVERAGES[name], "tokens": weight.get("tokens")}
    else:
        odd.append(f"the average {weight.get('fn')}")
    improve = _object(recipe.get("improve"))
    found |= {k: improve[k] for k in ("epochs", "minibatches") if improve.get(k)}
    found |= {
        "keep_mixed": _name(_object(recipe.get("select"))) == "mixed",
        "refill": bool(recipe.get("refill")),
        "max_age": recipe.get("max_age") or 0,
    }
    odd += [
        f"{seam} is {_object(recipe[seam]).get('fn')}"
        for seam, stock in STOCK.items()
        if seam in recipe and _name(_object(recipe[seam])) not in stock
    ]
    return Loss(**found, odd=tuple(odd))


def _terms(loss: Mapping[str, Any], found: dict[str, Any], odd: list[str]) -> None:
    name = _name(loss)
    if loss.get("fn") in WHOLE_LOSSES:
        found |= {"surrogate": "clipped"} | {
            k: loss[k] for k in ("low", "high", "cap", "kl", "entropy", "estimate") if k in loss
        }
    elif name in SURROGATES and str(loss.get("fn", "")).startswith("isocost.parts.loss:"):
        found |= {"surrogate": SURROGATES[name]} | {k: loss[k] for k in ("low", "high", "dual") if k in loss}
    elif name == "corrected":
        found["cap"] = loss.get("cap")
        _terms(_object(loss.get("inner")), found, odd)
    elif name == "plus":
        for term in loss.get("terms") or []:
            _terms(_object(term), found, odd)
    elif name == "to_reference":
        found |= {"kl": loss.get("scale", 0.0), "estimate": loss.get("estimate", "k2")}
    elif name == "entropy_bonus":
        found["entropy"] = loss.get("scale", 0.0)
    else:
        odd.append(f"the loss {loss.get('fn')}")


def _name(part: Mapping[str, Any]) -> str:
    return str(part.get("fn", "")).rsplit(":", 1)[-1]


def _object(x: Any) -> Mapping[str, Any]:
    return x if isinstance(x, Mapping) else {}
