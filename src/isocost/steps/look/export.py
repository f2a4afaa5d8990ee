"""A study's prescription for another trainer: the plan's arm, the setting's sampling, the method as plain data."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from isocost.can import Can
from isocost.disk.shape import flaw
from isocost.errors import UserError
from isocost.runs import measure
from isocost.runs.arm import Arm
from isocost.runs.measure import TRAINING, UNNAMED
from isocost.runs.source import RunLog
from isocost.screen.display import TextResult, folder_field
from isocost.screen.words import counted, word
from isocost.steps.study import StudyRecord
from isocost.trainers.driving import export as targets
from isocost.trainers.driving.export import ControlPrescription, Prescription
from isocost.trainers.driving.loss import loss_of
from isocost.trainers.reading.logs import DECAYED
from isocost.units import ROLLOUTS

SAMPLING = ("temperature", "top_p", "top_k", "max_tokens")
LONGEST = "completions/max_length"  # tokens of the longest completion of a step, in the lines of a record

Data = dict[str, Any]


@dataclass(frozen=True)
class ExportResult(TextResult):
    """A study's prescription as the configuration or launch line of a trainer: `text` is the file, `to` the trainer."""

    to: str
    text: str
    folder: Path | None = folder_field()

    def __str__(self) -> str:
        return self.text


def export(study: StudyRecord, target: str | None) -> ExportResult:
    """The prescription of a study as the configuration of `target`: trl, verl, prime-rl, nemo-rl, skyrl or openrlhf; of
    a study of control sb3. Raises UserError for an unknown target or none, and for a study without a prescription."""
    if study.kind == "control":
        to = targets.load(target, "write_control")
        return ExportResult(str(target), str(to.write_control(control_prescription(study))), study.path)
    to = targets.load(target)
    return ExportResult(str(target), str(to.write(prescription(study))), study.path)


def control_prescription(study: StudyRecord) -> ControlPrescription:
    """What a study of control prescribes. Raises UserError before its plan, and where it prescribes nothing."""
    from isocost.steps.control.plan import prescribed

    plan, asked = prescribed(study).plan, study.asked
    if plan.refused:
        raise UserError(f"{study.path} has no prescription to export: {plan.refused}")
    i, arm = plan.arrival, plan.arm
    expected = "" if i is None else (f"Expected: a return of {plan.wanted:g} after {i.value:,.0f} [{i.low:,.0f}, "
                                     f"{i.high:,.0f}] samples, geometric mean of {plan.seeds} seeds.")
    width = int(arm["width"]) if "width" in arm else None
    return ControlPrescription(study.path.resolve().name, str(asked["task"]), asked.get("method"), arm["sigma"],
                               int(arm["batch"]), arm["rate"], width, plan.samples, plan.seeds, expected)



def _data(study: StudyRecord, name: str) -> Data:
    """A record of the study; empty before its step."""
    return study.record(f"{name}.json", name) if study.has(f"{name}.json") else {}


def prescription(study: StudyRecord) -> Prescription:
    """What a study prescribes. Raises UserError with the commands still to run where it prescribes nothing yet."""
    plan, folder = _data(study, "plan"), study.path
    arm: Data = plan.get("arm") or next(iter(plan.get("arms") or []), {})
    if not arm:
        raise UserError(_unprescribed(study))
    about = study.any_run if study.runs_read else {}
    unit = measure.of(about)["unit"]
    if unit != ROLLOUTS:
        raise UserError(
            f"{folder} counts C in {unit}: its n are environments and its B the steps of each, and the trainers that "
            f"an export is for have neither; take n, B, M and the rate as `isocost plan {word(folder)}` prints them"
        )
    setting = study.asked["setting"]
    recipe = _recipe(study)
    pace = recipe.get("pace") or {}
    train = [r for r in plan.get("runs") or [] if Arm.of(r).get("n") == arm["n"]]
    prediction = arm.get("prediction")
    expected = ""
    if prediction:
        value, low, high = (prediction[k] for k in ("value", "low", "high"))
        in_log = measure.in_its_units(measure.scale_of(about), value, low, high)
        kind = "training reward" if measure.of(about)["kind"] == TRAINING else "reward"
        expected = (
            f"Expected {kind} {value:.3f} [{low:.3f}, {high:.3f}], {prediction.get('level', 0.9):.0%} prediction "
            f"interval{in_log and f': {in_log}'}."
        )
    known = _sampling(study, pace)
    model = setting.get("model")
    found = Prescription(
        folder.resolve().name,
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
        _data(study, "profile").get("pool"),
        expected,
        loss_of(recipe) if recipe else None,
        _as_run(study) if not recipe else (),
        _longest(study),
    )
    if wrong := flaw(asdict(found), Prescription):      # text in place of a number would become part of a launch line
        raise UserError(f"{folder} has a setting or a recipe that cannot be exported: {wrong}")
    return found


def _sampling(study: StudyRecord, pace: Data) -> Data:
    """How the policy was sampled; None where no record says it, and a trainer's default stays."""
    setting = study.asked["setting"] if study.source.can(Can.SAMPLING) else {}
    known = {k: setting.get(k, pace.get(k)) for k in SAMPLING}
    return known | {"max_tokens": known["max_tokens"] or None}      # 0 where stored completions do not say it


def _longest(study: StudyRecord) -> int | None:
    """Tokens of the longest completion in the runs' lines."""
    lines = (line for run in study.runs_read for line in run.lines("metrics.jsonl"))
    lengths = [float(line[LONGEST]) for line in lines if line.get(LONGEST) is not None]
    return round(max(lengths)) if lengths else None


def _unprescribed(study: StudyRecord) -> str:
    """Why a study has no prescription yet, and the commands that lead to one."""
    steps, pilot, folder = ["fit", "plan"], _data(study, "pilot"), study.path
    if study.law or pilot.get("direct"):
        state, steps = "is ready for one", ["plan"]
    elif not study.source.can(Can.PILOT):
        state = f"{study.source.described} and has no law yet"
    elif not study.has("profile.json"):
        state, steps = "is not profiled yet", [f"profile --out {word(folder)}", "plan", "pilot", *steps]
    elif not pilot:
        state, steps = "has no pilot yet", ["plan", "pilot", *steps]
    else:
        there = pilot.get("runs") or []
        runs = [r for r in study.runs_read if r.about().get("purpose") in ("probe", "pilot", "edge")]
        over = sum(r.end.get("reason") not in (None, "interrupted") for r in runs)
        if over < len(there):
            state, steps = f"has a pilot with {over} of {counted(len(there), 'run')} done", ["pilot", *steps]
        else:
            state = "has a pilot and no law yet"
    commands = ", ".join(f"`isocost {s}{'' if '--out' in s else f' {word(folder)}'}`" for s in steps)
    return (
        f"{folder} has no prescription (n, B, M and learning rate of the training runs) to export: it {state}. "
        f"Run {commands}{' in this order' if len(steps) > 1 else ''}, then export again"
    )


def _as_run(study: StudyRecord) -> tuple[str, ...]:
    """What is not carried over of runs of a trainer: its method, with its settings in the logs."""
    settings: dict[str, set[str]] = {}
    for run in study.runs_read:
        log = RunLog.of(run.about())
        for key, value in log.says.items() if log else ():
            settings.setdefault(str(key), set()).add(str(value))
    same = ", ".join(f"{k}: {next(iter(v))}" for k, v in sorted(settings.items()) if len(v) == 1)
    seen = f" (their logs say {same})" if same else ""
    trainer = study.asked.get("trainer")
    whose = f"the runs are your trainer's: {trainer['command']}" if trainer else "the runs were imported"
    fell = any(str(m).startswith(DECAYED) for run in study.runs_read for m in run.about().get("missing") or ())
    return (
        f"the method: {whose}, so set the loss, its clipping and its averaging as they had them{seen}",
        *(("the decay of the learning rate that the imported runs had: here it is constant, and the forecast is of "
           "runs whose rate fell",) if fell else ()),
    )


def _recipe(study: StudyRecord) -> dict[str, Any]:
    """The recipe that the pilot ran, as its records have it; else the method's own; empty where the
    source has no recipe on record."""
    ran = next((recipe for r in study.runs_read if (recipe := r.about().get("recipe"))), None)
    if ran or not study.source.can(Can.RECIPE):
        return dict(ran or {})
    name = study.asked.get("method") or (_data(study, "profile").get("recipe") or {}).get("method")
    if not name:
        return {}
    from isocost import methods
    from isocost.recipe import describe

    return dict(describe(methods.recipe(str(name))))


