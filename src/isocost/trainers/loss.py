"""A recipe's update in the words that trainers share: from its plain data to `Loss`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from isocost.runs.names import today
from isocost.trainers.export import Loss

SURROGATES = {
    "isocost.parts.loss:clipped": "clipped",
    "isocost.methods.gspo:loss": "sequence",
    "isocost.methods.cispo:loss": "truncated",
    "isocost.methods.reinforce:loss": "reinforce",
}
AVERAGES = {
    "isocost.parts.weight:rollout_mean": "rollout",
    "isocost.parts.weight:token_mean": "token",
    "isocost.methods.cispo:weight": "prompt",
    "isocost.methods.drgrpo:weight": "length",
    "isocost.methods.reinforce:weight": "sum",
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
    """A recipe's plain data (`isocost.recipe.describe`) in the words that trainers share."""
    recipe = _object(today(recipe))
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
    if weight.get("fn") in AVERAGES:
        found |= {"average": AVERAGES[weight["fn"]], "tokens": weight.get("tokens")}
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
    elif loss.get("fn") in SURROGATES:
        found |= {"surrogate": SURROGATES[loss["fn"]]} | {k: loss[k] for k in ("low", "high", "dual") if k in loss}
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
