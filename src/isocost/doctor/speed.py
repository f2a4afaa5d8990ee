"""Checks of speed: sampling and learning, relative to what memory or arithmetic of the machine permit."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

import numpy as np

from isocost import meter as meters
from isocost.doctor.case import Case, batch, share_available
from isocost.doctor.finding import Finding
from isocost.doctor.policy import pull
from isocost.local import roofline
from isocost.local.roofline import Peaks, Work
from isocost.types import Group

LOW = 0.05         # share of the possible speed below which a finding is a warning
TAKEN = 0.7        # share of the processor below which other work makes timings meaningless
NAMES = {"float32": "fp32", "bfloat16": "bf16"}


async def sampling_speed(case: Case) -> Finding:
    """Tokens per second of the answers sampled at the start, against the machine's floor for the same tokens."""
    peaks, kind, body = _machine(case)
    if peaks is None:
        return Finding("speed of sampling", "cannot tell", "float64 is for checks; its peak speed is not measured")
    floor, limit = _decode_floor(case, peaks, kind, body)
    tokens = sum(sum(g.lengths) for g in case.groups)
    return _judged(case, "speed of sampling", tokens / case.seconds, floor / case.seconds, limit, case.had,
                   f"with {len(case.rollouts)} answers at once")


async def learning_speed(case: Case) -> Finding:
    """Tokens per second of an update, against the machine's floor. The world's weights have changed after it."""
    peaks, kind, body = _machine(case)
    if peaks is None:
        return Finding("speed of learning", "cannot tell", "float64 is for checks; its peak speed is not measured")
    groups = case.recomputed[:2] if case.large else case.recomputed
    known, account = batch(groups, case.world.engine.version), meters.payer().account
    best, had, read = np.inf, 1.0, 0
    for _ in range(1 if case.large else 4):      # the first update of a small model allocates its buffers
        before = case.world.meter.physical[account].train if account in case.world.meter.physical else 0
        wall, cpu = time.perf_counter(), time.process_time()
        case.world.learner.update(known, pull, lr=0.0)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        read = case.world.meter.physical[account].train - before
        if wall < best:
            best, had = wall, share_available(case.opened.setting.machine.threads, cpu, wall)
    work = _train_work(case, groups, read, body)
    share = roofline.floor(work, peaks, kind) / best
    return _judged(case, "speed of learning", read / best, share, roofline.bound(work, peaks, kind), had,
                   f"in an update of {len(known.tokens)} rows")


def _judged(
    case: Case, name: str, rate: float, share: float, limit: str, had: float, what: str
) -> Finding:
    said = f"{rate:,.0f} tokens/s {what}: {share:.0%} of what the machine's {limit} permits"
    if case.world.about.device == "cpu" and had < TAKEN:
        return Finding(name, "cannot tell", f"{said}; but other work took {1 - had:.0%} of the processor meanwhile",
                       "run it again on an idle machine")
    if share >= LOW:
        return Finding(name, "ok", said, _kernels(case))
    return Finding(name, "warn", said, _kernels(case) or _advice(case, limit))


def _kernels(case: Case) -> str:
    """What to do if torch computes instead of the native kernels."""
    if case.world.about.kernels != "torch":
        return ""
    why = case.world.about.kernels_why or "no reason is known"
    return f"the native kernels are not in use ({why}): install a C++ compiler to make this faster"


def _advice(case: Case, limit: str) -> str:
    threads, cores = case.opened.setting.machine.threads, os.cpu_count() or 1
    if case.large and threads < cores:
        return f"use more cores: --threads {cores}"
    if not case.large and threads > 1:
        return "threads wait for each other on a model of this size: use --threads 1, and runs side by side"
    if limit == "memory":
        return "sample more at once (larger n or B): each read of the weights then serves more rows"
    return "use larger batches (larger n or B): the fixed cost of each call is too large for its work"


def _machine(case: Case) -> tuple[Peaks | None, str, int]:
    """Peak speeds, measured once per case; the name of the body's precision in `roofline`, and its bytes per number."""
    kind = NAMES.get(case.world.about.dtype)
    if kind is None:
        return None, "", 8
    if case.peaks is None:
        device = case.world.about.device
        case.peaks = roofline.measure(case.opened.setting.machine.threads, device, 1.5)
    return case.peaks, kind, {"fp32": 4, "bf16": 2}[kind]


def _decode_floor(case: Case, peaks: Peaks, kind: str, body: int) -> tuple[float, str]:
    """Least seconds for the sampled answers, token by token with the rows still open, and the limit of most."""
    config = case.world.about.model.config
    prompts = np.array([len(g.rollouts[0].segments[0]) - g.lengths[0] for g in case.groups])
    lengths = np.array([g.lengths for g in case.groups])
    mean = float(prompts.mean())
    start = roofline.prefill_work(
        config, int(prompts.sum()), context=float((prompts * (prompts + 1) / 2).sum() / prompts.sum()),
        predicted=len(prompts), body=body,
    )
    ticks = [start]
    for t in range(1, int(lengths.max())):
        alive = int((lengths > t).sum())
        group = max(1, round(alive / max(int((lengths > t).any(1).sum()), 1)))
        ticks.append(roofline.decode_work(config, alive, mean + t - 1, body=body, prompt=mean, group=group))
    seconds = {"memory": 0.0, "arithmetic": 0.0}
    for work in ticks:
        seconds[roofline.bound(work, peaks, kind)] += roofline.floor(work, peaks, kind)
    return sum(seconds.values()), max(seconds, key=lambda k: seconds[k])


def _train_work(case: Case, groups: Sequence[Group], tokens: int, body: int) -> Work:
    """The work of an update: prompts once per group, without last tokens."""
    looks, predicted = 0.0, 0
    count = 0
    for g in groups:
        prompt = len(g.rollouts[0].segments[0]) - g.lengths[0]
        looks, count = looks + prompt * (prompt + 1) / 2, count + prompt
        for n in g.lengths:
            looks, count = looks + sum(range(prompt + 1, prompt + n)), count + max(n - 1, 0)
            predicted += n
    config = case.world.about.model.config
    return roofline.train_work(config, min(tokens, count), context=looks / count, predicted=predicted, body=body)
