"""A log as a run record: the files that fit, plan, compare, report and ls read, which name what is missing.

run.json, metrics.jsonl, timing.jsonl and end.json as `isocost.runs.record` has them (docs/records.md). Besides,
run.json has the source of each number (`imported`) and what the log does not hold (`missing`).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite, isnan
from pathlib import Path
from typing import Any

from isocost.disk.jsonfile import write_json, write_text
from isocost.errors import UserError
from isocost.laws.tracks import LENGTH, written
from isocost.runs import files as records
from isocost.runs.arm import Arm
from isocost.runs.files import DIVERGED
from isocost.runs.measure import HELD_OUT, TRAINING, UNNAMED
from isocost.trainers.reading.logs import FACTS, REWARD_ONLY, Empty, Log, Point

OPTION = {"n": "rollouts per problem", "B": "problems per update", "lr": "learning rate"}
# How a name spells each fact; matches are atomic (?>), so that 1.5e-6 is never read as 1 or 1.5.
SPELT = dict.fromkeys(FACTS, r"(?>[0-9]+)") | {"lr": r"(?>[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)"}
ENDED = {None: "the log ends here", DIVERGED: "{} is NaN or infinite to the log's end"}  # by the log's `end`
SCALE = "--scale LOW,HIGH, the lowest and highest reward of a rollout"
EXACT = 1e-9  # what rounding may add to or take from a number
APART = {"lr": 0.01}  # by how much of the smaller two sources of a fact may differ; other facts must be equal
STANDS = 0.05  # largest share of a run's updates in its first logged mean for it to be used as the base


@dataclass(frozen=True)
class ImportOptions:
    """What the user states besides the logs. `scale` is the lowest and highest reward of a rollout, `base` the reward
    before training, both in the log's own units, `pattern` how a run's name holds its sizes: 'n{n}-s{seed}'."""

    arm: Arm = Arm()        # n, B and lr, as far as they are stated
    seed: int | None = None
    scale: tuple[float, float] | None = None
    base: float | None = None
    pattern: str | None = None
    model: str | None = None
    data: str | None = None


@dataclass(frozen=True)
class Imported:
    """One run, resolved: its sizes, and its points as (C, point), rewards in [0, 1], in order of C."""

    log: Log
    arm: Arm                # n, B and lr
    seed: int | None
    metric: str
    kind: str
    evaluations: tuple[tuple[float, Point], ...]
    missing: tuple[str, ...]
    stated: Mapping[str, Any]
    digest: str

    @property
    def C(self) -> float:
        """Rollouts that the run had started at the last line of its log with a reward."""
        ends = [p.after if p.after is not None else (p.done or 0) * self.batch for p in self.log.train]
        return max([self.evaluations[-1][0], *ends])

    @property
    def batch(self) -> int:
        """Rollouts of an update."""
        return int(self.arm["n"] * self.arm["B"])

    @property
    def seconds(self) -> float | None:
        """Seconds to the last line that has any."""
        seconds = [p.seconds for _, p in self.evaluations if p.seconds is not None]
        return max(seconds) if seconds else None


def resolve(log: Log, asked: ImportOptions) -> Imported:
    """A log completed by what the user states.

    Raises UserError if n, B or the learning rate are in neither, if the two disagree, if fewer rollouts were started
    than updates take, or if a reward is outside [0, 1].
    """
    facts = _facts(log, asked)
    arm = Arm(n=int(facts["n"]), B=int(facts["B"]), lr=float(facts["lr"]))
    n, B = arm["n"], arm["B"]
    if n < 1 or B < 1:
        raise UserError(f"{log.name}: n and B are at least 1, not {n} and {B}")
    if asked.scale is not None and not all(map(isfinite, asked.scale)):
        raise UserError(f"--scale takes two finite numbers, not {asked.scale[0]:g},{asked.scale[1]:g}")
    if log.rate is not None and log.rate < n * B * (1 - EXACT):
        raise UserError(
            f"{log.name}: its rollouts are {log.rate:g} a step, fewer than n x B = {n} x {B} = {n * B}; a filter can "
            "make them more, not fewer: check n and B, and that the column counts rollouts and not problems"
        )
    kind, metric = (HELD_OUT, log.held_column) if log.held else (TRAINING, log.reward_column)
    evaluations = _evaluations(log, n * B, metric or "", asked)
    shown = {k: v for k, v in (("model", asked.model), ("data", asked.data)) if v is not None}
    own = {**asked.arm, **{k: getattr(asked, k) for k in ("seed", "scale", "base", "pattern")}}
    return Imported(
        replace(log, about={**log.about, **shown}), arm, None if facts["seed"] is None else int(facts["seed"]),
        metric or "", kind, tuple(evaluations), _missing(log, kind, metric, evaluations, facts["seed"], asked),
        {k: v for k, v in own.items() if v is not None}, _digest(log),
    )


def _facts(log: Log, asked: ImportOptions) -> dict[str, Any]:
    """n, B, lr and seed by log, name and user; B also from n B. Raises UserError if two of them disagree."""
    named = _named(log, asked.pattern)
    stated = {**asked.arm, "seed": asked.seed}
    facts: dict[str, Any] = {}
    for key in FACTS:
        sources = {"the log": log.facts.get(key), "the name": named.get(key), f"--{key}": stated.get(key)}
        facts[key] = _agreed(log, key, {k: v for k, v in sources.items() if v is not None})
    size = log.facts.get("nB")
    if facts["B"] is None and facts["n"] and size:
        if size % facts["n"]:
            raise UserError(
                f"{log.name}: an update takes {size} {log.unit}, which {facts['n']} does not divide; give the n it "
                "was run with"
            )
        facts["B"] = size // facts["n"]
    lacking = next((key for key in OPTION if facts[key] is None), None)
    if lacking is not None:
        by_name = ", or --names 'n{n}-s{seed}' where its name says it" if lacking == "n" else ""
        raise UserError(f"{log.name}: the log does not say {lacking} ({OPTION[lacking]}): give --{lacking}{by_name}")
    return facts


def seed_of(log: Log, asked: ImportOptions) -> int | None:
    """The seed of a log by itself, by its name or by the user; None where none of them says it."""
    try:
        named = _named(log, asked.pattern).get("seed")
    except UserError:       # `resolve` says what is wrong with a name
        named = None
    return next((int(x) for x in (log.facts.get("seed"), named, asked.seed) if x is not None), None)


def _evaluations(log: Log, batch: int, metric: str, asked: ImportOptions) -> list[tuple[float, Point]]:
    """(C, point) in order of C, rewards in [0, 1]; the stated base first, or the first mean if `_is_base` holds."""
    points = [_placed(p, batch) for p in (log.held or log.train)]
    out = [(C, _scaled(log, p, metric, asked.scale)) for C, p in sorted(points, key=lambda x: x[0])]
    if not out:
        raise Empty(f"{log.name}: its log has no line with a reward")
    if asked.base is None and _is_base(log):
        first = out[0][1]
        rollouts, seconds = (None if x is None else 0.0 for x in (first.rollouts, first.seconds))
        return [(0.0, replace(first, updates=0.0, rollouts=rollouts, seconds=seconds)), *out[1:]]
    if asked.base is None:
        return out
    if out[0][0] == 0:
        raise UserError(f"{log.name}: its log has the base's reward; leave --base out")
    base = Point(0.0, asked.base, 0.0, None if out[0][1].seconds is None else 0.0)
    return [(0.0, _scaled(log, base, "--base", asked.scale)), *out]


def _averaged(log: Log) -> int:
    """The number of updates in the first logged training reward's mean, if training reward is fitted; 0 for a
    held-out one, and if the log starts later than its own spacing."""
    if log.held or len(log.train) < 2 or log.train[0].done is None or log.train[1].done is None:
        return 0
    first, second = log.train[0].done, log.train[1].done
    return round(first) if first <= (second - first) * (1 + EXACT) else 0


def _is_base(log: Log) -> bool:
    """Whether the first logged mean covers so few updates of the run that it may be used as the base's reward."""
    k = _averaged(log)
    return k > 1 and k <= STANDS * (log.train[-1].done or 0)


def _digest(log: Log) -> str:
    """A hash of a log's rewards: it differs for two runs of one name, and is equal for one run under two names."""
    rewards = [[p.updates, p.rollouts, p.reward] for p in (*log.train, *log.held)]
    return hashlib.sha256(json.dumps(rewards).encode()).hexdigest()[:16]


def _named(log: Log, pattern: str | None) -> dict[str, Any]:
    """Sizes in a run's name, by a pattern such as 'n{n}-s{seed}'."""
    if pattern is None:
        return {}
    parts = re.split(r"\{(\w+)\}", pattern)
    unknown = next((p for p in parts[1::2] if p not in FACTS), None)
    if unknown is not None or len(parts) < 3:
        raise UserError(
            f"--names {pattern!r} holds {'{' + unknown + '}' if unknown else 'no {n}'}; it may hold "
            + ", ".join(f"{{{f}}}" for f in FACTS)
        )
    twice = next((p for p in FACTS if parts[1::2].count(p) > 1), None)
    if twice is not None:
        raise UserError(f"--names {pattern!r} holds {{{twice}}} twice: each fact once")
    shape = "".join(f"(?P<{p}>{SPELT[p]})" if i % 2 else re.escape(p) for i, p in enumerate(parts))
    found = re.search(r"(?<![A-Za-z0-9])" + shape + r"(?![A-Za-z0-9.])", log.name)
    if found is None:
        raise UserError(
            f"the name {log.name!r} does not fit --names {pattern!r}: n, B and seed are whole numbers, lr such as 1e-6"
        )
    return {k: float(v) if k == "lr" else int(v) for k, v in found.groupdict().items()}


def _agreed(log: Log, key: str, sources: Mapping[str, Any]) -> Any:
    """The value of a fact from its sources. Raises UserError if they disagree."""
    values = list(sources.values())
    if values and max(values) - log.rounding.get(key, 0.0) > min(values) * (1 + APART.get(key, 0.0)):
        said = ", ".join(f"{v:g} by {who}" for who, v in sources.items())
        raise UserError(f"{log.name}: {key} is {said}; leave out what is wrong")
    return values[-1] if values else None


def _placed(point: Point, batch: int) -> tuple[float, Point]:
    """(C, the point with its updates), of `batch` rollouts each."""
    if point.rollouts is not None:
        updates = point.rollouts / batch if isnan(point.updates) else point.updates
        return point.rollouts, replace(point, updates=updates)
    return point.updates * batch, point


def _scaled(log: Log, point: Point, metric: str, scale: tuple[float, float] | None) -> Point:
    low, high = scale or (0.0, 1.0)
    reward = (point.reward - low) / (high - low)
    if not (isfinite(reward) and -EXACT <= reward <= 1 + EXACT):
        if scale is None:
            raise UserError(f"{log.name}: {metric} is {point.reward:g}, outside [0, 1]{_to_scale(log)}")
        raise UserError(
            f"{log.name}: {metric} is {point.reward:g}, outside --scale {low:g},{high:g}: give the lowest and "
            "highest reward of a rollout"
        )
    return replace(point, reward=min(1.0, max(0.0, reward)))


def _to_scale(log: Log) -> str:
    """The remedy for a reward outside [0, 1]: give its scale or, of a sum of rewards, fit one of its parts."""
    if summed := sum_of(log):
        return f"; {summed}"
    option = "held_out" if log.held else "reward"
    return f", and the laws are for rewards in [0, 1]: give {SCALE}; or another column, --map {option}=COLUMN"


def sum_of(log: Log) -> str:
    """What the fitted reward is the sum of, and how to make it one that has a largest value; empty if it is no sum."""
    kind, option = (HELD_OUT, "held_out") if log.held else (TRAINING, "reward")
    parts = log.parts.get(kind) or ()
    if len(parts) < 2:
        return ""
    return (
        f"it is the sum of {', '.join(parts[:4])}{' and others' * (len(parts) > 4)}: fit one of them with "
        f"--map {option}={parts[0]}, or give {SCALE} in all of them together"
    )


def scaled(log: Log, asked: ImportOptions) -> None:
    """Raises UserError for a sum of rewards whose scale is not stated: the log does not say the most that it can be,
    and a curve that ends below 1 would be fitted as if 1 were that."""
    if asked.scale is None and (summed := sum_of(log)):
        metric = log.held_column if log.held else log.reward_column
        raise UserError(f"{log.name}: the log does not say how large {metric} can be; {summed}")


def _missing(
    log: Log, kind: str, metric: str | None, evaluations: Sequence[tuple[float, Point]], seed: Any, asked: ImportOptions
) -> tuple[str, ...]:
    out = list(log.missing)
    if kind == TRAINING:
        named = "" if log.source in REWARD_ONLY else "; --map held_out=COLUMN names one"
        out.append(f"a held-out measure: no column is known to be one, so training reward ({metric}) is fitted{named}")
    else:
        out.append(f"a second held-out half: {metric} both chooses and is reported")
        out.append("the number of held-out problems, and of samples of each")
    if asked.scale is None and sum_of(log):
        out.append(f"the scale of {metric}, a sum of rewards: 1 is taken for the most that it can be (--scale)")
    k = _averaged(log)
    if evaluations[0][0] > 0:
        why = f"; the first one logged is the mean over updates 0 to {k - 1} (logging_steps)" if k > 1 else ""
        out.append(f"the base: no reward before the first update (C = 0){why}; `isocost fit` needs it: --base")
    elif k > 1 and asked.base is None:
        out.append(
            f"the base's own reward: the first logged reward, the mean over updates 0 to {k - 1}, is used at C = 0 "
            "instead (--base sets it)"
        )
    if log.rounding.get("lr") and "lr" not in asked.arm:
        out.append(f"the exact learning rate: the log rounds it to within {log.rounding['lr']:.2g} (--lr sets it)")
    points = [p for _, p in evaluations]
    if all(p.seconds is None for p in points) and not any(m.startswith("seconds") for m in out):
        out.append("seconds")
    if all(p.epoch is None for p in points):
        out.append("epochs: passes over the training problems")
    if not any(LENGTH in p.more for p in log.train):
        out.append("tokens of an answer")
    if seed is None:
        out.append("the seed: runs are numbered in the order given, and runs of one number are not paired")
    return tuple(out)


def write(run: Imported, folder: Path, *, name: str, purpose: str, seed: int) -> None:
    """Write the record of one imported run; one of the same name is replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = write_lines(run, folder)
    write_json(folder / "run.json", about(run, name, purpose, seed))
    notes = [f"missing: {m}" for m in run.missing] if purpose == "run" else []
    write_json(folder / "end.json", end_of(run, lines, "imported", notes))


def write_lines(run: Imported, folder: Path) -> list[dict[str, Any]]:
    """Write metrics.jsonl and timing.jsonl of a run; returns the lines of the first."""
    size = run.batch
    scale = run.stated.get("scale") or (0.0, 1.0)
    steps = [_step(p, size, scale) for p in run.log.train]
    points = [(C, _evaluation(C, p)) for C, p in run.evaluations]
    lines = _together(steps, [line for _, line in points])
    _write_lines(folder / "metrics.jsonl", lines)
    _write_lines(
        folder / "timing.jsonl",
        [
            {"step": line["step"], "rollouts": line["rollouts"], "seconds": p.seconds}
            for (C, p), (_, line) in zip(run.evaluations, points, strict=True)
            if p.seconds is not None
        ],
    )
    return lines


def end_of(run: Imported, lines: Sequence[Mapping[str, Any]], how: str, notes: Sequence[str] = ()) -> dict[str, Any]:
    """end.json of a run with these lines of metrics.jsonl; `how` is where its log came from."""
    tokens = {"decode": round(counted[-1][1])} if (counted := written(lines)) else {}
    bill = {"rollouts": _whole(run.C), "updates": round(run.C / run.batch), **tokens}
    return {
        "schema": records.SCHEMA,
        "reason": run.log.end or "spent",
        "detail": f"{how}: {ENDED[run.log.end].format(run.metric)}",
        "steps": bill["updates"],
        "seconds": run.seconds or 0.0,
        "signal": None,
        "bill": {"train": bill},
        "physical": {},
        "fates": {},
        "notes": list(notes),
        "verifier_failures": {},
    }


def about(run: Imported, name: str, purpose: str, seed: int) -> dict[str, Any]:
    """run.json of an imported run."""
    log, settings = run.log, run.log.about
    return {
        "schema": records.SCHEMA,
        "name": name,
        "purpose": purpose,
        "method": log.source,
        "recipe": {},
        "arm": {**run.arm, "warmup": settings.get("warmup"), "multiplier": 1.0},
        "seed": seed,
        "budget": {"rollouts": _whole(run.C)},
        "model": {"name": str(settings.get("model") or UNNAMED), "parameters": None},
        "problems": {"spec": str(settings.get("data") or UNNAMED)},
        "seal": None,
        "code": records.code(),
        "machine": {},
        "imported": {
            "source": log.source,
            "name": log.name,
            "unit": log.unit,
            "stated": dict(run.stated),
            "metric": {"name": run.metric, "kind": run.kind},
            "about": dict(settings),
            "digest": run.digest,
            "files": [{"name": p.name, "sha256": records.file_hash(p)} for p in log.files],
        },
        "missing": list(run.missing),
    }


def _step(point: Point, size: int, scale: Sequence[float]) -> dict[str, Any]:
    """A training line; rewards outside the scale (the log's own, where held-out ones are fitted) are kept as scaled."""
    after = point.after if point.after is not None else (point.done or 0) * size
    done = point.done if point.done is not None else after / size
    low, high = scale
    more = {k: v for k, v in point.more.items() if k not in ("reward",)}
    if "reward_std" in more:
        more["reward_std"] = more["reward_std"] / (high - low)
    line = {"step": _whole(done - 1), "rollouts": _whole(after), "reward": (point.reward - low) / (high - low), **more}
    return {**line, **({} if point.epoch is None else {"epoch": point.epoch})}


def _evaluation(C: float, point: Point) -> dict[str, Any]:
    line = {
        "step": _whole(point.updates),
        "rollouts": _whole(C),
        "eval/select": point.reward,
        "eval/audit": point.reward,
        "eval/exact": False,
    }
    return {**line, **({} if point.epoch is None else {"epoch": point.epoch})}


def _together(steps: Sequence[dict[str, Any]], evaluations: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """All lines in order of rollouts; an evaluation comes after the step that ends at its rollouts."""
    every = [(s["rollouts"], 0, i, s) for i, s in enumerate(steps)]
    every += [(e["rollouts"], 1, i, e) for i, e in enumerate(evaluations)]
    return [line for *_, line in sorted(every, key=lambda x: x[:3])]


def _whole(x: float) -> float:
    return int(x) if float(x).is_integer() else x


def _write_lines(path: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    write_text(path, "".join(json.dumps(line) + "\n" for line in lines))
