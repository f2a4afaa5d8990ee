"""From a study's records to a prescription: the plan's arm, the setting's sampling, the method as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from isocost.errors import UserError
from isocost.exporters import Loss, Prescription
from isocost.importers import DECAYED, TRAINING, UNNAMED
from isocost.report.records import Study, as_dict, number
from isocost.report.records import load as read
from isocost.runs import measure
from isocost.runs.files import read_json
from isocost.shape import flaw
from isocost.steps.folder import opened
from isocost.units import ROLLOUTS
from isocost.words import word

LONGEST = "completions/max_length"  # tokens of the longest completion of a step, in the lines of a record
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


def prescription(folder: Path) -> Prescription:
    """What a study prescribes. Raises UserError for a run's folder, or with the commands still to run."""
    if (folder / "run.json").exists():
        opened(folder)
    study = read(folder)
    if study["plan"]:
        read_json(folder / "plan.json")     # which a report also shows in parts, and a launch line needs whole
    arm = as_dict(study["plan"].get("arm")) or next(iter(map(as_dict, study["plan"].get("arms") or [])), {})
    if not arm:
        raise UserError(_unprescribed(folder, study))
    about = study.runs[0].about if study.runs else {}
    unit = measure.of(about)["unit"]
    if unit != ROLLOUTS:
        raise UserError(
            f"{folder} counts C in {unit}: its n are environments and its B the steps of each, and the trainers that "
            f"an export is for have neither; take n, B, M and the rate as `isocost plan {word(folder)}` tells them"
        )
    setting = as_dict(study["study"].get("setting"))
    recipe = _recipe(study)
    pace = as_dict(recipe.get("pace"))
    train = [r for r in study["plan"].get("runs") or [] if r.get("n") == arm["n"]]
    prediction = as_dict(arm.get("prediction"))
    expected = ""
    if prediction:
        value, low, high = (prediction[k] for k in ("value", "low", "high"))
        told = measure.in_its_units(measure.scale_of(about), value, low, high)
        kind = "training reward" if measure.of(about)["kind"] == TRAINING else "reward"
        expected = (
            f"Expected {kind} {value:.3f} [{low:.3f}, {high:.3f}], {prediction.get('level', 0.9):.0%} prediction "
            f"interval{told and f': {told}'}."
        )
    known = {k: setting.get(k, pace.get(k)) for k in ("temperature", "top_p", "top_k", "max_tokens")}
    model = setting.get("model")
    found = Prescription(
        study.name,
        int(arm["n"]),
        int(arm["B"]),
        int(arm["M"]),
        float(arm["lr"]),
        int(arm.get("warmup") or 0),
        int(train[0]["seed"]) if train else 0,
        known["temperature"],
        known["top_p"],
        known["top_k"],
        known["max_tokens"],
        None if model in (None, UNNAMED) else str(model),
        recipe.get("name"),
        _count(study),
        expected,
        loss_of(recipe) if recipe else None,
        _as_run(study) if not recipe else (),
        _longest(study),
    )
    if wrong := flaw(asdict(found), Prescription):      # a word in place of a number would be a word of a launch line
        raise UserError(f"{folder} has a setting or a recipe that cannot be exported: {wrong}")
    return found


def _longest(study: Study) -> int | None:
    """Tokens of the longest completion in the runs' lines."""
    told = [x for run in study.runs for line in run.lines if (x := number(line.get(LONGEST))) is not None]
    return round(max(told)) if told else None


def _unprescribed(folder: Path, study: Study) -> str:
    """Why a study has no prescription yet, and the commands that lead to one."""
    steps, pilot = ["fit", "plan"], study["pilot"]
    if study["law"] or pilot.get("direct"):
        state, steps = "is ready for one", ["plan"]
    elif study["study"].get("imported"):
        state = "was imported and has no law yet"
    elif not study["profile"]:
        state, steps = "is not profiled yet", [f"profile --out {word(folder)}", "plan", "pilot", *steps]
    elif not pilot:
        state, steps = "has no pilot yet", ["plan", "pilot", *steps]
    else:
        there = [as_dict(r) for r in pilot.get("runs") or []]
        over = sum(r.purpose in ("probe", "pilot", "edge") and r.end.get("reason") not in (None, "interrupted")
                   for r in study.runs)
        if over < len(there):
            state, steps = f"has a pilot with {over} of {len(there)} runs done", ["pilot", *steps]
        else:
            state = "has a pilot and no law yet"
    commands = ", ".join(f"`isocost {s}{'' if '--out' in s else f' {word(folder)}'}`" for s in steps)
    return (
        f"{folder} has no prescription (n, B, M and learning rate of the training runs) to export: it {state}. "
        f"Run {commands}{' in this order' if len(steps) > 1 else ''}, then export again"
    )


def _as_run(study: Study) -> tuple[str, ...]:
    """The method of an imported study, which is the trainer's own, as far as its logs tell it."""
    told: dict[str, set[str]] = {}
    for run in study.runs:
        says = as_dict(as_dict(as_dict(run.about.get("imported")).get("about")).get("trainer_says"))
        for key, value in says.items():
            told.setdefault(str(key), set()).add(str(value))
    same = ", ".join(f"{k}: {next(iter(v))}" for k, v in sorted(told.items()) if len(v) == 1)
    seen = f" (their logs say {same})" if same else ""
    fell = any(str(m).startswith(DECAYED) for run in study.runs for m in run.about.get("missing") or ())
    return (
        f"the method: the runs were imported, so set the loss, its clipping and its averaging as they had them{seen}",
        *(("the decay of the learning rate that the imported runs had: here it is constant, and the forecast is of "
           "runs whose rate fell",) if fell else ()),
    )


def _count(study: Study) -> int | None:
    value = number(study["profile"].get("pool"))
    return None if value is None else int(value)


def _recipe(study: Study) -> dict[str, Any]:
    """The recipe that the pilot ran, as its records have it; else the method's own; nothing for an imported study."""
    ran = next((r.about["recipe"] for r in study.runs if r.about.get("recipe")), None)
    if ran or study["study"].get("imported"):
        return dict(ran or {})
    name = study["study"].get("method") or as_dict(study["profile"].get("recipe")).get("method")
    if not name:
        return {}
    from isocost import methods
    from isocost.seams import describe

    return dict(describe(methods.recipe(str(name))))


def loss_of(recipe: Mapping[str, Any]) -> Loss:
    """A recipe's plain data (`isocost.seams.describe`) in the words that trainers share."""
    found: dict[str, Any] = {}
    odd: list[str] = []
    _terms(as_dict(recipe.get("loss")), found, odd)
    advantage = as_dict(recipe.get("advantage"))
    if advantage.get("fn") == "isocost.methods.isoeasy:advantage":
        found["advantage"] = "spread" if advantage.get("std") else "mean"
    elif advantage.get("fn") in ADVANTAGES:
        found["advantage"] = ADVANTAGES[advantage["fn"]]
    else:
        odd.append(f"the advantage {advantage.get('fn')}")
    weight = as_dict(recipe.get("weight"))
    name = _name(weight)
    if name in AVERAGES:
        found |= {"average": AVERAGES[name], "tokens": weight.get("tokens")}
    else:
        odd.append(f"the average {weight.get('fn')}")
    improve = as_dict(recipe.get("improve"))
    found |= {k: improve[k] for k in ("epochs", "minibatches") if improve.get(k)}
    found |= {
        "keep_mixed": _name(as_dict(recipe.get("select"))) == "mixed",
        "refill": bool(recipe.get("refill")),
        "max_age": recipe.get("max_age") or 0,
    }
    odd += [
        f"{seam} is {as_dict(recipe[seam]).get('fn')}"
        for seam, stock in STOCK.items()
        if seam in recipe and _name(as_dict(recipe[seam])) not in stock
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
        _terms(as_dict(loss.get("inner")), found, odd)
    elif name == "plus":
        for term in loss.get("terms") or []:
            _terms(as_dict(term), found, odd)
    elif name == "to_reference":
        found |= {"kl": loss.get("scale", 0.0), "estimate": loss.get("estimate", "k2")}
    elif name == "entropy_bonus":
        found["entropy"] = loss.get("scale", 0.0)
    else:
        odd.append(f"the loss {loss.get('fn')}")


def _name(part: Mapping[str, Any]) -> str:
    return str(part.get("fn", "")).rsplit(":", 1)[-1]
