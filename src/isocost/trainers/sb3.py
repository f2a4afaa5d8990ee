"""Stable-Baselines3 (2.9): `progress.csv`, `evaluations.npz`, `*.monitor.csv` of one run's folder.

Its clock is steps of the environment, and so is C. One update takes n_steps x n_envs of them: give n (n_envs), and B
(n_steps) follows from progress.csv. An on-policy algorithm evaluates while it collects, so what is measured at t steps
is the policy from before the update that these steps are for, and stands there: at t = n_steps x n_envs it is the base.
evaluations.npz holds returns of episodes in an evaluation's own environments, which is held-out reward; without it the
training return of progress.csv, over the last hundred episodes, is taken. The .npz is read as what it is, arrays in a
zip file, and nothing in it is unpickled.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path

import numpy as np

from isocost.errors import UserError
from isocost.screen.words import visible
from isocost.trainers.driving.export import ControlPrescription
from isocost.trainers.reading.logs import Empty, Log, Point, Row, log_of_steps, reward_only
from isocost.trainers.reading.points import decayed
from isocost.trainers.reading.text import collapsed, csv_rows, head, number, unread

TITLE = "Stable-Baselines3"
READS = "Stable-Baselines3 folder"
GIVES = "held-out and training return, environment steps, seconds, n x B, learning rate where it is logged"
LACKS = "rollouts (it counts environment steps); n; seed; the base of off-policy algorithms"
RESULTS = "results"
MOST_STEPS = 64     # of train_freq, between two rounds of updates
RATE = "train/learning_rate"
PROGRESS, EVALUATIONS, MONITOR = "progress.csv", "evaluations.npz", "monitor.csv"


def recognise(path: Path) -> bool:
    if path.is_dir():
        return (path / EVALUATIONS).is_file() or (path / PROGRESS).is_file() or bool(list(path.glob("*.monitor.csv")))
    return _is_named(path) or _kind(path) is not None


def read(path: Path, columns: Mapping[str, str]) -> list[Log]:
    reward_only(columns, "sb3")
    alone = path.is_file() and not _is_named(path)  # a file under another name is all that is known of its run
    folder = path if path.is_dir() else path.parent
    own = {_kind(path): path} if alone else {PROGRESS: folder / PROGRESS, EVALUATIONS: folder / EVALUATIONS}
    progress, evaluations = (p if (p := own.get(k)) and p.is_file() else None for k in (PROGRESS, EVALUATIONS))
    monitors = [own[MONITOR]] if MONITOR in own else [] if alone else sorted(folder.glob(f"*{MONITOR}"))
    rows, missing = csv_rows(progress) if progress else ([], [])
    files = [p for p in (progress, evaluations, *monitors) if p]
    reward = columns.get("reward", "rollout/ep_rew_mean")
    size = _update(rows)
    means = _means(evaluations) if evaluations else []
    held = tuple(_evaluations(means, rows, size))
    train = tuple(_progress(rows, reward, size)) or tuple(_monitored(monitors))
    if not held and not train:
        raise Empty(
            f"{path} has no {EVALUATIONS}, no {PROGRESS} with {reward!r} and no monitor file with an episode: nothing "
            "here is a reward"
        )
    facts: dict[str, float] = {}
    rates = [x for r in rows if (x := number(r.get(RATE))) is not None]
    missing += unread(rows, (reward, "time/total_timesteps", "time/time_elapsed", RATE))
    missing += [*unread(means, (RESULTS,)), *decayed(rates)]
    if rates:
        facts["lr"] = max(rates)
    if size:
        facts["nB"] = size
    source = reward if any(reward in r for r in rows) else "r" if train else None
    return [log_of_steps(
        "sb3", path.stem if alone else folder.resolve().name, files, train=train, held=held, reward_column=source,
        held_column=RESULTS if held else None, facts=facts, missing=missing,
        broken=bool(collapsed(means, RESULTS) if held else collapsed(rows, reward)))]


def write_control(p: ControlPrescription) -> str:
    """The hyperparameters of one task, as RL Zoo's YAML has them: names of `stable_baselines3.SAC` 2.9."""
    ratio = Fraction(p.sigma).limit_denominator(MOST_STEPS)
    net = f'\n  policy_kwargs: "dict(net_arch=[{p.width}, {p.width}])"' if p.width else ""
    method = f"{p.method} of isocost" if p.method else "the trainer's own, as the logs had it"
    lines = [
        f"isocost's prescription of {p.study} for Stable-Baselines3:",
        f"{p.sigma:g} updates per sample, batch {p.batch}, rate {p.rate:.3g}, {p.samples:,} samples, {p.seeds} seeds.",
        *([p.expected] if p.expected else []),
        "With k environments multiply gradient_steps by k: SB3 counts train_freq in steps of all of them together.",
        f"Method: {method}. Not carried over: everything that is not below keeps SB3's default.",
    ]
    head = "".join(f"# {visible(line, lines=False)}\n" for line in lines)
    return (f"{head}{visible(p.task, lines=False)}:\n  n_timesteps: {p.samples}\n  policy: MlpPolicy\n  learning_rate: "
            f"!!float {p.rate:.3g}\n  batch_size: {p.batch}\n  train_freq: {ratio.denominator}\n  gradient_steps: "
            f"{ratio.numerator}{net}\n")


def _is_named(path: Path) -> bool:
    """Whether a file has the name that Stable-Baselines3 gives it, so that what lies beside it is of the same run."""
    return path.name in (PROGRESS, EVALUATIONS) or path.name.endswith(MONITOR)


def _kind(path: Path) -> str | None:
    """Which of its files this is, by content; None for any other file."""
    text = head(path, 4096)
    if text.startswith("PK"):
        try:
            with zipfile.ZipFile(path) as box:
                return EVALUATIONS if {"timesteps.npy", "results.npy"} <= set(box.namelist()) else None
        except zipfile.BadZipFile:
            return None
    if text.startswith('#{"t_start"'):
        return MONITOR
    return PROGRESS if "time/total_timesteps" in text.split("\n", 1)[0].split(",") else None


def _means(path: Path) -> list[Row]:
    """One row per evaluation: its time step, and the mean of its episodes' returns."""
    arrays = _npz(path)
    lacking = [k for k in ("timesteps", RESULTS) if k not in arrays]
    if lacking:
        raise UserError(f"{path} has no array {lacking[0]!r}; it has {', '.join(arrays)}")
    every = zip(arrays["timesteps"], arrays[RESULTS], strict=True)
    return [{"step": float(t), RESULTS: float(np.mean(own))} for t, own in every]


def _evaluations(means: list[Row], rows: list[Row], size: int | None) -> list[Point]:
    clock = [(number(r.get("time/total_timesteps")), number(r.get("time/time_elapsed"))) for r in rows]

    def when(step: float) -> float | None:
        """Seconds, where progress.csv has a line for this very step."""
        return next((s for t, s in clock if t == step and s is not None), None)

    return [
        Point(float("nan"), value, _before(row["step"], size), when(row["step"]))
        for row in means
        if (value := number(row[RESULTS])) is not None
    ]


def _npz(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an .npz. Raises UserError where it is none, or holds objects, which only pickle could read."""
    try:
        with zipfile.ZipFile(path), np.load(path, allow_pickle=False) as box:     # alone it reads a bare .npy too
            arrays = dict(box)
        if bare := [k for k, x in arrays.items() if not isinstance(x, np.ndarray)]:
            raise ValueError(f"{bare[0]} is no array")
        return arrays
    except (zipfile.BadZipFile, zlib.error, ValueError, EOFError) as e:
        raise UserError(f"{path} cannot be read as plain arrays: {e}") from None


def _before(t: float, size: int | None) -> float:
    """Steps that the policy seen at t steps has been updated on; t where updates are not counted (off-policy)."""
    return t if size is None else (t - 1) // size * size


def _progress(rows: list[Row], reward: str, size: int | None) -> list[Point]:
    out = []
    for row in rows:
        step, value = number(row.get("time/total_timesteps")), number(row.get(reward))
        if step is not None and value is not None:
            done = number(row.get("time/iterations"))
            out.append(
                Point(
                    float("nan"),
                    value,
                    _before(step, size),
                    number(row.get("time/time_elapsed")),
                    done=done,
                    after=step,
                )
            )
    return out


def _monitored(paths: list[Path]) -> list[Point]:
    """Returns of single episodes in order of time; steps are counted by their lengths."""
    episodes: list[tuple[float, float, float]] = []
    for path in paths:
        with path.open(encoding="utf-8") as f:
            skip = 1 if f.readline().startswith("#") else 0
        for row in csv_rows(path, skip)[0]:
            t, r, length = (number(row.get(k)) for k in ("t", "r", "l"))
            if t is None or r is None or length is None:
                raise UserError(f"{path} has no columns r, l and t: it is no monitor file")
            episodes.append((t, r, length))
    out, step = [], 0.0
    for t, r, length in sorted(episodes):
        step += length
        out.append(Point(float("nan"), r, step, t))
    return out


def _update(rows: list[Row]) -> int | None:
    """Environment steps per update, where progress.csv counts updates."""
    pairs = [(number(r.get("time/total_timesteps")), number(r.get("time/iterations"))) for r in rows]
    sizes = {t / i for t, i in pairs if t and i}
    return int(next(iter(sizes))) if len(sizes) == 1 and next(iter(sizes)).is_integer() else None
