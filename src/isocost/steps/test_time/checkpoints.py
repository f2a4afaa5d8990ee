"""Trained policies that a study of strategies compares with its own model: those of runs, grouped by their settings.

    runs/grpo-0               the final policy of a run, or of all runs of a study
    runs/grpo-0@120           the policy after step 120, if the run has kept that checkpoint
    studies/s, studies/s@40000        foretold by a law: what a study prescribes, or after so many rollouts
    runs/grpo-0=samples.jsonl, grpo:3e18flop=samples.jsonl     stored completions, and what training took

Runs that differ in their seed only are one policy, whose accuracy is the mean over them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import log
from pathlib import Path
from typing import Any

from isocost.can import Can
from isocost.disk.jsonfile import fit
from isocost.errors import UserError
from isocost.laws.curves import PASS
from isocost.laws.law import AUDIT, EXTRAPOLATION
from isocost.planner.budget import Budget
from isocost.planner.test_time.foretold import FORETOLD, Foretold
from isocost.planner.test_time.policies import BASE, PolicyCost
from isocost.runs import source
from isocost.runs.files import canonical, file_hash, find_runs, read_json
from isocost.runs.schema import BILLED, ENDED, STATE, TRAINED, Costs
from isocost.screen.words import counted, word
from isocost.steps.study import StudyRecord
from isocost.tasks import text
from isocost.types import Problem
from isocost.units import FLOPS
from isocost.worlds.setting import Setting, open_problems, open_setting

SAME = ("model", "problems", "sampling", "lengths")     # of the settings of a law and a profile
KEPT = "checkpoints/step-{:06d}"        # below a run
TRAIN_FLOP = 6      # FLOP per parameter and trained token, as `Cost.flops` counts them


@dataclass(frozen=True)
class Checkpoint:
    """A policy of a run. `name`: the run's folder, with @STEP for a step of it. `policy`: the name that runs with the
    same settings share. `model`: a Hugging Face folder, or the file of stored completions. `training`: what it took.
    `parameters`: of the model; `learned`: those that were trained. `inside`: the checkpoint that it is made from.
    `method`: of its training, where known."""

    name: str
    policy: str
    model: str
    setting: Setting | None
    training: Costs
    parameters: float
    learned: float
    inside: Path | None = None
    method: str = ""

    def data(self) -> dict[str, str]:
        """Its entry in study.json."""
        return {"name": self.name, "policy": self.policy, "model": self.model}

    def write(self) -> None:
        """Write a policy inside a run as a Hugging Face folder. Raises UserError for weights that are damaged."""
        if self.inside is None or Path(self.model).is_dir():
            return
        from isocost.local.weights import read_tensors, save

        assert self.setting is not None
        weights = self.inside / "learner.safetensors"
        if file_hash(weights) != read_json(self.inside / "state.json", STATE)["sha256"]:
            raise UserError(f"{weights} is damaged: its bytes are not those that were saved. Name another step")
        opened = open_setting(self.setting, check=False)
        try:
            opened.world.restore(read_tensors(weights))
            Path(self.model).parent.mkdir(exist_ok=True)
            save(Path(self.model), opened.world)
        finally:
            opened.close()


def checkpoints(folders: Sequence[Path], out: Path = Path()) -> list[Checkpoint]:
    """The policies of these folders: of a run its final one, of a study of training those of all its trained runs, of
    RUN@STEP the one after that step, which `Checkpoint.write` writes below `out`.

    Raises UserError for a folder without a final policy, a step that was not kept, a run that isocost did not make, two
    runs with one name, and a run with the name of the study's own model.
    """
    found: dict[str, tuple[dict[str, Any], Checkpoint]] = {}
    for path, step in _named(folders, trained=True):
        for run in _having(path, step):
            record = read_json(run / "run.json")
            source.of(record).require(Can.EVALUATE, run)
            fit(run / "run.json", record, TRAINED)
            one, setting = _of(run, record, step), Setting.of(record["job"]["setting"])
            model = run / "final" if one.inside is None else out / "policies" / one.name
            _add(found, record, replace(one, model=str(model), setting=setting))
    return _grouped(found)


def stored(asked: Sequence[Path], parameters: float | None) -> list[Checkpoint]:
    """Policies of stored completions: each RUN=FILE, RUN@STEP=FILE or NAME:COST=FILE with the FLOP of its training.
    `parameters`: the model's size, where no run states it.

    Raises UserError for an entry without a file, for a name without a cost, and as `checkpoints`.
    """
    found: dict[str, tuple[dict[str, Any], Checkpoint]] = {}
    for text_ in (str(x) for x in asked if "=" in str(x) or _named([x], trained=True)):
        left, equals, file = text_.rpartition("=")
        path, step = _parted(Path(left))
        if not equals or not left:
            raise UserError(f"--checkpoints {text_}: with --completions each is RUN=FILE, or NAME:COST=FILE such as "
                            "grpo:3e18flop=grpo.jsonl, with the completions of that policy")
        if runs := find_runs(path):
            if len(runs) > 1:
                raise UserError(f"--checkpoints {text_}: {path} holds {len(runs)} runs; name the one that wrote {file}")
            (run,) = runs if step is None else _having(path, step)
            record = read_json(run / "run.json")
            one = replace(_of(run, record, step), inside=None)
        else:
            name, _, cost = left.partition(":")
            if not name or not cost:
                raise UserError(f"--checkpoints {text_}: {left or 'it'} is no run, so name what its training took, "
                                f"such as {name or 'grpo'}:3e18flop={file}")
            record, one = {"name": name}, Checkpoint(name, name, "", None, _stated(cost, parameters), 0.0, 0.0)
        _add(found, record, replace(one, model=file, parameters=one.parameters or parameters or 0.0))
    return _grouped(found)


def _parted(folder: Path) -> tuple[Path, int | None]:
    """A folder and the step in its name, where there is one: RUN@120."""
    name, _, step = str(folder).rpartition("@")
    return (Path(name), int(step)) if name and step.isdigit() and not folder.is_dir() else (folder, None)


def _having(path: Path, step: int | None) -> Iterator[Path]:
    """The runs below a folder that have a final policy, or have kept a step. Raises UserError for none."""
    runs = find_runs(path)
    kept = [run for run in runs if (run / ("final" if step is None else KEPT.format(step))).is_dir()]
    if step is not None and runs and len(kept) < len(runs):
        run = next(r for r in runs if r not in kept)
        steps = ", ".join(str(int(x.name.rpartition("-")[2])) for x in sorted(run.glob("checkpoints/step-*")))
        raise UserError(f"--checkpoints {path}@{step}: {run} has kept step {steps or 'none'}. Name one of them, or "
                        "train with --keep-checkpoints 8, which keeps more than the last two")
    if not kept:
        raise UserError(f"--checkpoints {path}: no run there has a final policy. Name runs that have ended, such as "
                        "runs/grpo-0 of `isocost train grpo`, or a study of training with a law and a plan")
    yield from kept


def _of(run: Path, record: Mapping[str, Any], step: int | None) -> Checkpoint:
    """What a run, up to a step, took; without its policy's name and folder."""
    model, inside = record.get("model") or {}, None if step is None else run / KEPT.format(step)
    if inside is None:
        bill = read_json(run / "end.json", BILLED if record.get("imported") else ENDED)["bill"]["train"]
    else:
        bill = read_json(inside / "state.json", STATE)["meter"]["logical"].get("train", {})
    return Checkpoint(run.name if step is None else f"{run.name}@{step}", "" if step is None else f"@{step}", "", None,
                      Costs(**bill), model.get("parameters") or 0.0, model.get("learned") or 0.0, inside,
                      record.get("method") or "")


def _stated(cost: str, parameters: float | None) -> Costs:
    """The trained tokens that the stated FLOP are. Raises UserError for another unit: stored completions have no times,
    so answers could not be counted in it."""
    found = Budget.parse(cost)
    if found.unit != FLOPS or parameters is None:
        raise UserError(f"the training that took {cost}: expected FLOP such as 3e18flop, with the --parameters of the "
                        "model, such as 7B")
    return Costs(train=found.amount / (TRAIN_FLOP * parameters))


def _add(found: dict[str, tuple[dict[str, Any], Checkpoint]], record: dict[str, Any], one: Checkpoint) -> None:
    if one.name in found:
        raise UserError(f"--checkpoints: two runs are named {one.name}, which names their samples; rename a folder")
    found[one.name] = record, one


def _grouped(found: Mapping[str, tuple[dict[str, Any], Checkpoint]]) -> list[Checkpoint]:
    """The checkpoints with the names of their policies."""
    kinds: dict[str, list[str]] = {}
    for record, one in found.values():
        kinds.setdefault(_kind(record, one), []).append(one.name)
    policies = {kind: _common(own) for kind, own in kinds.items()}
    if len(set(policies.values())) < len(policies):
        policies = {kind: own[0] for kind, own in kinds.items()}
    if BASE in policies.values():
        raise UserError(f"--checkpoints: a run is named {BASE}, as the study's own model is; rename its folder")
    return [replace(one, policy=policies[_kind(record, one)]) for record, one in found.values()]


def _kind(record: Mapping[str, Any], one: Checkpoint) -> str:
    """The settings of a run without its seed; without a record of isocost, its name."""
    job = record.get("job")
    own = one.name if job is None else {k: job.get(k) for k in ("method", "arm", "budget", "sets", "setting")}
    return str(canonical({"own": own, "recipe": record.get("recipe"), "step": one.policy}))


def _common(names: Sequence[str]) -> str:
    """The name of a policy by those of its runs: what they have in common but for a last number, and the step."""
    first, at, step = names[0].partition("@")
    stems = {name.partition("@")[0].rstrip("0123456789").rstrip("-_=.") for name in names}
    return ((stems.pop() if len(names) > 1 and len(stems) == 1 else "") or first) + at + step


def refuse_trained_on(found: Sequence[Checkpoint], problems: Sequence[Problem]) -> None:
    """Raises UserError where a checkpoint was trained on some of these problems."""
    seen: dict[Any, frozenset[str]] = {}
    for c in found:
        assert c.setting is not None
        own = c.setting.problems
        if own not in seen:
            seen[own] = frozenset(map(text.kin, open_problems(c.setting)[1].train))
        if known := [p for p in problems if text.kin(p) in seen[own]]:
            raise UserError(
                f"{counted(len(known), 'problem')} of the {len(problems)} that are sampled trained {c.name}, such as "
                f"{known[0].id!r}, so it would seem better than it is: give the --data and --held-out of its run, "
                f"--data {word(own.data)} --held-out {own.held_out:g}")


def _named(folders: Sequence[Path], trained: bool) -> list[tuple[Path, int | None]]:
    """The folders, each with its step, but for studies whose plan was not trained, or only those."""
    return [(path, step) for path, step in map(_parted, folders) if trained != (
        (path / "law.json").is_file() and (path / "plan.json").is_file()
        and not any((run / "final").is_dir() for run in find_runs(path)))]


def foretold(folders: Sequence[Path], found: Sequence[Checkpoint], setting: Setting) -> list[Foretold]:
    """What laws say of policies that were not trained, each with the two of its method whose training is most alike.
    Raises UserError for a law that says nothing of it, or of other problems, and without two such policies."""
    out = []
    for path, step in _named(folders, trained=False):
        study = StudyRecord(path)
        plan, law, its, many = study.plan, study.law, study.setting, step or study.plan.arm.C
        own = {c.policy: c.training.rollouts for c in found if c.method == study.method and c.training.rollouts}
        near = sorted(sorted(own, key=lambda name: abs(log(own[name] / many)))[:2], key=own.__getitem__)
        if law is None or plan.arm.prediction is None or law.still(plan.arm.n) or study.metric != PASS:
            why = f"the law has no {PASS} of it"
        elif many > EXTRAPOLATION * plan.pilot_C:
            why = f"a law reaches {EXTRAPOLATION * plan.pilot_C:,}, {EXTRAPOLATION} times its pilot"
        elif found and found[0].setting and any(getattr(setting, k) != getattr(its, k) for k in SAME):
            why = f"the law is of --model {its.model} --data {its.problems.data} --max-tokens {its.lengths.max_tokens}"
        else:
            one = law.predict(plan.arm.n, many, plan.seeds).prediction
            if len({own[name] for name in near}) == 2:
                name = f"{path.name}{'' if step is None else f'@{many}'} ({FORETOLD})"
                out.append(Foretold(name, one, law.R0[AUDIT], many, (near[0], near[1])))
                continue
            why = f"the law gives one sample {one}, and other strategies need two policies of {study.method} that " \
                  "were trained for different times: name runs, or RUN@STEP"
        raise UserError(f"--checkpoints {path}: {many:,} rollouts are not foretold, because {why}. `isocost train "
                        f"--plan {word(path)}` makes the policy")
    return out


def policy_costs(
    found: Sequence[Checkpoint], rates: dict[str, float], parameters: float, ahead: Sequence[Foretold] = ()
) -> list[PolicyCost]:
    """The study's own model, and each policy with the mean cost of its runs; `rates` are seconds per token by run. A
    rollout of a foretold policy costs what one of the longer trained of its two policies took."""
    def mean(own: Sequence[Checkpoint]) -> Costs:
        return Costs(**{k: sum(getattr(c.training, k) for c in own) / len(own) for k in vars(own[0].training)})

    by: dict[str, list[Checkpoint]] = {}
    for c in found:
        by.setdefault(c.policy, []).append(c)
    out = {name: PolicyCost(name, tuple(c.name for c in own), mean(own), own[0].parameters, own[0].learned,
                            sum(rates[c.name] for c in own) / len(own)) for name, own in by.items()}
    for one in ahead:
        last = out[one.along[1]]
        took = {k: x * one.rollouts / last.training.rollouts for k, x in vars(last.training).items()}
        out[one.name] = replace(last, name=one.name, runs=(), training=Costs(**took))
    return [PolicyCost("", (), Costs(), parameters, 0.0, rates[""]), *out.values()]
