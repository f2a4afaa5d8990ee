"""Import the runs of another trainer from its logs: one log as a run, several as a study."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from isocost.disk.jsonfile import finite, write_json
from isocost.errors import UserError
from isocost.laws.curves import PASS
from isocost.planner.training.study_runs import PlannedRun, worded
from isocost.runs import files as records
from isocost.runs import measure, schema, source
from isocost.runs.arm import Arm
from isocost.runs.files import DIVERGED, read_json
from isocost.runs.measure import UNNAMED
from isocost.screen.display import Result, Row
from isocost.screen.words import counted, grouped
from isocost.steps.events import SILENT, Observer, Skipped
from isocost.steps.folder import writing
from isocost.steps.outside.imported import bills_of, pilot_of, rule_of
from isocost.steps.study import StudyRecord
from isocost.trainers.reading import logs
from isocost.trainers.reading.logs import Log
from isocost.trainers.reading.record import Imported, ImportOptions, about, resolve, scaled, seed_of, write

STALE = ("law.json", "plan.json")
SAMPLING = ("temperature", "top_p", "top_k", "max_tokens")  # sampling settings that study.json keeps
FEW = 2  # values of a reward that two runs may share by chance


@dataclass(frozen=True)
class ImportedRun:
    """One run that was imported.

    `run` is its folder and `log` the log's name, written by `source` (a trainer or format). `arm` has n, B and lr. `C`
    is its cost at the last of `points` evaluations, counted in `unit`. `metric` and `kind` (held-out or training) name
    its rewards, `first` and `last` in [0, 1]; `scale` (lowest, highest) are 0 and 1 in the log's units. `diverged` is
    whether they are NaN or infinite to the log's end. `missing` is what the log lacks.
    """

    run: str
    log: str
    source: str
    arm: Arm
    seed: int
    C: float
    unit: str
    metric: str
    kind: str
    points: int
    first: float
    last: float
    scale: tuple[float, float]
    diverged: bool
    missing: tuple[str, ...]

    def row(self) -> Row:
        """What it is, and its first and last reward."""
        own = measure.from_to(self.scale, self.first, self.last)
        over = f"; diverged: {self.metric} is NaN or infinite to the log's end" if self.diverged else ""
        return Row("", f"{self.run}  from {self.log} ({self.source}): {worded(self.arm)}, lr = {self.arm['lr']:.2g}, "
                       f"seed {self.seed}; {counted(self.points, 'point')} to {grouped(self.C)} {self.unit}; "
                       f"{self.metric} {self.first:.3f} -> {self.last:.3f} "
                       f"({'; '.join(filter(None, (self.kind, own)))}){over}", "command")


@dataclass(frozen=True)
class ImportedRuns(Result):
    """The runs that were imported, below `path`: that of one run, or of the study that holds them."""

    path: Path
    runs: tuple[ImportedRun, ...]

    def rows(self) -> list[Row]:
        """A line per run, then what the logs lack, each thing once."""
        lacks, all_of = Counter(m for r in self.runs for m in r.missing), len(self.runs)
        return [*(r.row() for r in self.runs),
                *(Row("missing" + ("" if count == all_of else f" in {count} of {all_of}"), what, "command")
                  for what, count in lacks.most_common())]

    def to_dict(self) -> list[dict[str, Any]]:
        return list(finite([{k: v for k, v in asdict(r).items() if k != "arm"} | {**r.arm} for r in self.runs]))


def import_logs(
    sources: Sequence[str | Path], out: str | Path | None = None, *, source: str | None = None,
    columns: Sequence[str] = (), study: bool = False, observer: Observer = SILENT, **stated: Any,
) -> ImportedRuns:
    """Import the runs of another trainer from its logs: one log as a run, several as a study.

    Args:
        sources: log files or folders.
        out: the folder; by default runs/NAME for one log, studies/imported for several.
        source: the trainer or format that wrote them; by default recognised by content.
        columns: NAME=COLUMN, such as reward=train/score.
        study: make a study even of one log.
        observer: gets a `Skipped` for each log without any reward.
        **stated: what the logs lack.
            n, B, lr, seed: rollouts per problem, problems per update, learning rate and seed;
            names: how a run's name spells its sizes, such as n{n}-s{seed};
            scale: LOW,HIGH, the least and the largest reward of a rollout if not 0 and 1;
            base: the reward of the policy before training, in the log's units;
            model, data: what was trained on which problems, as text.

    Raises UserError for a log that cannot be read or does not fit; then nothing is written.
    """
    mapped = mapped_of(columns)
    found: list[Log] = []
    skipped: list[str] = []
    asked = _stated(**stated)
    for path in map(Path, sources):
        try:
            for log in logs.logs(path, source, mapped, skipped):
                logs.add(found, log, (seed_of(found[-1], asked) if found else None, seed_of(log, asked)))
        except logs.Empty as e:
            skipped.append(str(e))
    if not found:
        raise UserError(skipped[0])
    for text in skipped:
        observer.on(Skipped(text))
    if out is None:
        own = re.sub(r"[^\w.-]+", "-", found[0].name).strip(".-") or "imported"
        out = Path("runs") / own if len(found) == 1 else Path("studies") / "imported"
    folder = Path(out)
    with writing(folder):
        return ImportedRuns(folder, bring(found, folder, asked, study))


def mapped_of(columns: Sequence[str]) -> dict[str, str]:
    """NAME=COLUMN as name: column. Raises UserError for a text without =."""
    incomplete = next((c for c in columns if "=" not in c), None)
    if incomplete is not None:
        raise UserError(f"--map takes NAME=COLUMN, such as reward=train/score, not {incomplete!r}")
    return dict(c.split("=", 1) for c in columns)


def scale_of(text: str | None) -> tuple[float, float] | None:
    """LOW,HIGH as numbers. Raises UserError where it is not two numbers, the least first."""
    if text is None:
        return None
    try:
        low, high = map(float, text.split(","))
    except ValueError:
        raise UserError(f"--scale takes LOW,HIGH, such as 0,500, not {text!r}") from None
    if not low < high:
        raise UserError(f"--scale takes the least first, such as 0,500, not {text!r}")
    return low, high


def _stated(*, n: int | None = None, B: int | None = None, lr: float | None = None, scale: str | None = None,
            names: str | None = None, **others: Any) -> ImportOptions:
    """What the options say; `others` are seed, base, model and data."""
    return ImportOptions(Arm(n=n, B=B, lr=lr), scale=scale_of(scale), pattern=names, **others)


def bring(logs: Sequence[Log], out: Path, asked: ImportOptions, study: bool = False) -> tuple[ImportedRun, ...]:
    """Write logs as one run, or as runs of a study: with several logs, with `study`, or if `out` is a study. Returns an
    entry per run. Raises UserError, with nothing written, for a log that does not fit."""
    for log in logs:
        scaled(log, asked)
    runs = [resolve(log, asked) for log in logs]
    many = study or len(runs) > 1 or (out / "study.json").exists()
    if not many:
        there = source.RunLog.of(read_json(out / "run.json")) if (out / "run.json").exists() else None
        if (out / "run.json").exists() and (there is None or there.digest != runs[0].digest):
            raise UserError(f"{out} already contains another run; choose another --out")
        seed = runs[0].seed if runs[0].seed is not None else 0
        write(runs[0], out, name=out.resolve().name, purpose="run", seed=seed)
        return (_imported(runs[0], out, seed),)
    return _into_study(runs, out, asked)


def _into_study(runs: Sequence[Imported], out: Path, asked: ImportOptions) -> tuple[ImportedRun, ...]:
    if (out / "run.json").exists():
        raise UserError(f"{out} is a run; choose another --out for a study")
    if (out / "study.json").exists() and source.of(read_json(out / "study.json")) is not source.IMPORTED:
        raise UserError(f"{out} is a study of isocost's own runs; choose another --out")
    there, known = {}, {}
    for p in sorted((out / "runs").glob("*/run.json")):
        t = read_json(p, schema.IMPORTED)
        if log := source.RunLog.of(t):      # the shape needs it
            there[name := f"{log.name} ({p.parent})"] = t
            known[log.digest] = name
    arms = {(t["arm"]["n"], t["seed"]): name for name, t in there.items()}
    indices = {(t["arm"]["n"], int(t["name"].rpartition("-s")[2])) for t in there.values()}
    new = {_where(run): about(run, run.log.name, "pilot", 0) for run in runs}
    measure.one([(name, measure.of(t)) for name, t in (there | new).items()])
    placed: list[tuple[Imported, int, str]] = []
    for run in runs:
        if run.digest in known and not _may_coincide(run):
            if (name := known[run.digest]) in there:
                raise UserError(f"{_where(run)} was imported before, as {name}: leave it out, or choose another --out")
            raise UserError(f"{_where(run)} is the same log as {name}: remove one of them")
        n = run.arm["n"]
        taken = {seed for other, seed in arms if other == n}
        seed = run.seed if run.seed is not None else next(i for i in range(len(taken) + 1) if i not in taken)
        if (n, seed) in arms:
            raise UserError(
                f"{_where(run)} and {arms[n, seed]} are both n = {n}, seed {seed}; a seed counts "
                "once: leave one out, or give the seeds they were run with"
            )
        known[run.digest] = arms[n, seed] = _where(run)
        # By its seed; studies from before that are numbered in the order of their logs, and their names are taken.
        index = next(i for i in (seed, *range(len(arms) + 1)) if (n, i) not in indices)
        indices.add((n, index))
        placed.append((run, seed, PlannedRun("pilot", run.arm.but(multiplier=1.0), 0, index, seed).name))
    for run, seed, name in placed:
        write(run, out / "runs" / name, name=name, purpose="pilot", seed=seed)
    if not (out / "study.json").exists():
        logged = {k: v for run in reversed(runs) for k, v in run.log.about.items()}
        setting = {
            "model": asked.model or str(logged.get("model") or UNNAMED),
            "data": asked.data or str(logged.get("data") or UNNAMED),
        }
        extra = {k: logged[k] for k in SAMPLING if k in logged}
        write_json(
            out / "study.json",
            {
                "schema": records.SCHEMA,
                "setting": {**setting, **extra},
                "seed": 0,
                "method": None,
                "imported": True,
                "phases": {},
                "code": records.code(),
            },
        )
    home = StudyRecord(out).without(*STALE)
    seen = home.curves(PASS)
    home.amend(phases={"imported runs": round(bills_of(home.runs_read)[1], 2)})
    home.write("rate.json", rule_of(seen).data())
    home.write("pilot.json", pilot_of(home.runs_read, seen, None).data())
    return tuple(_imported(run, out / "runs" / name, seed) for run, seed, name in placed)


def _may_coincide(run: Imported) -> bool:
    """Whether a run of another seed may have identical rewards: the seed is known, and they take at most two values.
    Success of 0 or 1 does not identify a run; other rewards do."""
    return run.seed is not None and len({p.reward for _, p in run.evaluations}) <= FEW


def _where(run: Imported) -> str:
    """A log's name and its file: two logs may have the same name."""
    return f"{run.log.name} ({run.log.files[0]})"


def _imported(run: Imported, folder: Path, seed: int) -> ImportedRun:
    first, last = run.evaluations[0], run.evaluations[-1]
    low, high = run.stated.get("scale") or measure.UNIT
    return ImportedRun(
        run=str(folder), log=run.log.name, source=run.log.source, arm=run.arm, seed=seed, C=run.C, unit=run.log.unit,
        metric=run.metric, kind=run.kind, points=len(run.evaluations), first=first[1].reward, last=last[1].reward,
        scale=(low, high), diverged=run.log.end == DIVERGED, missing=tuple(run.missing),
    )
