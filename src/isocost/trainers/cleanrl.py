"""CleanRL (1.0): the TensorBoard file of a run, with `charts/episodic_return` and a table of hyperparameters.

Steps are steps of the environment, and so is C. One update takes num_envs x num_steps of them, so n = num_envs and
B = num_steps: n B M is then what was spent. Episodes are averaged over one update's worth of steps. There is no
evaluation of its own: the reward is that of training. An off-policy algorithm has no num_steps: its episodes stand
where they ended, and updates per sample, batch and rate are kept for an import of value-based control.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from isocost.errors import UserError
from isocost.trainers.reading.logs import Log, Point, Row, log_of_steps, reward_only
from isocost.trainers.reading.points import decayed
from isocost.trainers.reading.text import cell, collapsed, number, unread, whole
from isocost.trainers.tensorboard import board, files_of

TITLE = "CleanRL"
READS = "CleanRL TensorBoard file"
GIVES = "training return per episode, environment steps, wall time, n (num_envs), B (num_steps), rate, seed"
LACKS = "rollouts (it counts environment steps); held-out reward"
RATE = "charts/learning_rate"
RETURN = "charts/episodic_return"
ONE_UPDATE = ("sac_continuous_action", "td3_continuous_action", "ddpg_continuous_action")   # a sample; no setting says


def recognise(path: Path) -> bool:
    found = files_of(path)
    return bool(found) and any(RETURN.encode() in p.read_bytes() for p in found)


def read(path: Path, columns: Mapping[str, str]) -> list[Log]:
    reward_only(columns, "cleanrl")
    found = files_of(path)
    rows, texts = board(found, apart=True)
    settings = dict(re.findall(r"^\|([^|\n]+)\|([^|\n]*)\|$", texts.get("hyperparameters/text_summary", ""), re.M))
    envs, steps = whole(settings.get("num_envs")), whole(settings.get("num_steps"))
    reward = columns.get("reward", RETURN)
    if not any(reward in row for row in rows):
        raise UserError(f"{path} has no column {reward!r}")
    rates = [x for r in rows if (x := number(r.get(RATE))) is not None]
    facts = {"n": envs, "B": steps, "seed": whole(settings.get("seed")), "lr": max(rates, default=None)}
    about = {"model": settings.get("exp_name"), "data": settings.get("env_id")}
    size = (envs or 0) * (steps or 0)
    points = windows(rows, reward, size) if size else ()
    if not steps and (control := off_policy(settings)):
        points, about = episodes(rows, reward), {**about, **control}
    if not points:
        raise UserError(
            f"{path}: its hyperparameters do not say num_envs and num_steps, so an update's length is not "
            "known; write its episodes as CSV and name the columns with --map"
        )
    return [log_of_steps(
        "cleanrl", path.resolve().name, found, train=points, reward_column=reward,
        facts={k: v for k, v in facts.items() if v is not None}, about={k: v for k, v in about.items() if v},
        missing=[*unread(rows, (reward, RATE)), *decayed(rates)], broken=bool(collapsed(rows, reward)))]


def off_policy(settings: Mapping[str, str]) -> dict[str, float]:
    """sigma (updates per sample, where known), batch and rate of an off-policy run; empty without a replay batch."""
    said = {k: number(cell(settings.get(k, ""))) for k in ("batch_size", "train_frequency", "q_lr", "learning_rate")}
    batch, every, rate = said["batch_size"], said["train_frequency"], said["q_lr"] or said["learning_rate"]
    if "buffer_size" not in settings or not batch or not rate:
        return {}
    one = 1.0 if settings.get("exp_name") in ONE_UPDATE else None
    sigma = (1 / every if every else one) if (whole(settings.get("num_envs")) or 1) == 1 else None
    return {"batch": batch, "rate": rate, **({"sigma": sigma} if sigma else {})}


def episodes(rows: list[Row], reward: str) -> tuple[Point, ...]:
    """The return of each episode at the step at which it ended."""
    return tuple(Point(float("nan"), float(r[reward]), float(r["step"]), float(r["wall"]))
                 for r in rows if number(r.get(reward)) is not None)


def windows(rows: list[Row], reward: str, size: int) -> tuple[Point, ...]:
    """The mean return of the episodes that ended within each update, placed before it."""
    by: dict[int, list[Row]] = {}
    for row in rows:
        if number(row.get(reward)) is not None and row["step"] > 0:
            by.setdefault((int(row["step"]) - 1) // size, []).append(row)
    return tuple(
        Point(
            float(u),
            sum(float(r[reward]) for r in ended) / len(ended),
            float(u * size),
            float(ended[0]["wall"]),
            done=u + 1.0,
            after=float((u + 1) * size),
        )
        for u, ended in sorted(by.items())
    )
