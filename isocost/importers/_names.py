"""What trainers call things, and which policy a logged number is of: from flat rows to points.

A trainer's step is one of two kinds. Where steps count from 1, the training reward at step s was earned before the
s-th update, so by a policy with s - 1 updates; averaged over k steps, with s - (k + 1) / 2. Where they count from 0
it is of a policy with s updates. Held-out rewards are measured between updates.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from isocost.errors import UserError
from isocost.importers import DECAYED, Log, Point, Row
from isocost.importers._files import collapsed, number, unread, whole

EVALUATED = ("eval_runtime", "eval/runtime")  # seconds of an evaluation: transformers', and as its loggers have it
RISEN = 0.99  # a learning rate has risen to its highest where it is this share of it
CONSTANT = 0.9  # a learning rate that never falls below this share of its highest counts as constant


@dataclass(frozen=True)
class Names:
    """One trainer's columns. Those of rewards are regular expressions, tried in order; the first that is there counts.

    `first` is the number of its first step. `more` maps this program's names to the trainer's. `span` is the column
    of seconds per step, `seconds` that of seconds since the start. `per_step` is rollouts begun in a step. `length` is
    tokens of an answer, or of one turn of it where `turns` is the column of turns per answer.
    `policy` is the column that says how many updates the evaluated policy had, where there is one.
    """

    trainer: str
    step: str
    reward: tuple[str, ...]
    held: tuple[str, ...] = ()
    first: int = 1
    lr: str = ""
    epoch: str = ""
    span: str = ""
    seconds: str = ""
    length: str = ""
    turns: str = ""
    per_step: str = ""
    policy: str = ""
    more: Mapping[str, str] = field(default_factory=dict)


TRL = Names(
    "TRL",
    "step",
    (r"reward", r"rewards/mean"),
    (r"eval_reward", r"eval_.+_reward"),
    lr="learning_rate",
    epoch="epoch",
    span="step_time",
    length="completions/mean_length",
    more={
        k: k
        for k in (
            "reward_std",
            "frac_reward_zero_std",
            "loss",
            "grad_norm",
            "entropy",
            "kl",
            "completions/mean_length",
            "completions/max_length",
            "completions/clipped_ratio",
            "clip_ratio/region_mean",
        )
    },
)
TRL_BOARD = Names(
    "TRL",
    "train/global_step",
    (r"train/reward",),
    (r"eval/reward", r"eval/.+_reward"),
    lr="train/learning_rate",
    epoch="train/epoch",
    span="train/step_time",
    length="train/completions/mean_length",
    more={k: f"train/{k}" for k in TRL.more},
)
VERL = Names(
    "verl",
    "step",
    (r"critic/score/mean", r"critic/rewards/mean"),
    (r"val-core/.+/acc/mean@\d+", r"val-core/.+/reward/mean@\d+", r"val/test_score/.+"),
    lr="actor/lr",
    epoch="training/epoch",
    span="perf/time_per_step",
    length="response_length/mean",
    more={
        "entropy": "actor/entropy",
        "grad_norm": "actor/grad_norm",
        "kl": "actor/ppo_kl",
        "completions/mean_length": "response_length/mean",
        "completions/clipped_ratio": "response_length/clip_ratio",
    },
)
PRIME_RL = Names(
    "prime-rl",
    "step",
    (r"train/agg/all/[^/]+/reward/mean", r"reward/all/mean", r"reward/mean"),
    (r"eval/.+/effective/[^/]+/avg@\d+", r"eval/.+/avg@\d+"),
    lr="optim/lr",
    span="time/step",
    length="train/agg/all/num_output_tokens/mean",
    per_step="progress/rollouts",
    policy=r"eval/.+/policy_version",
)
TINKER = Names(
    "tinker-cookbook",
    "step",
    (r"env/all/reward/total",),
    (r"test/env/all/reward/total", r".+/env/all/reward/total"),
    first=0,
    lr="optim/lr",
    span="time/total",
    length="env/all/ac_tokens_per_turn",
    turns="env/all/turns_per_episode",
    more={"entropy": "optim/entropy"},
)
EVERY = (TRL_BOARD, VERL, PRIME_RL, TINKER, TRL)


def spoken(rows: Sequence[Row]) -> Names | None:
    """Whose names these rows carry, by their training reward; None where they are nobody's that is known."""
    columns = _columns(rows)
    return next((n for n in EVERY if any(_match(p, columns) for p in n.reward)), None)


def log_of(
    source: str,
    path: Path,
    files: Sequence[Path],
    rows: Sequence[Row],
    names: Names,
    columns: Mapping[str, str],
    *,
    facts: Mapping[str, Any] | None = None,
    about: Mapping[str, Any] | None = None,
    missing: Sequence[str] = (),
    uncounted: str = "",
    name: str | None = None,
) -> Log:
    """Rows as a log, by a trainer's names and those the user gave instead.

    `uncounted` says what C is where no column counts rollouts. Raises UserError for a column that is not there, and
    for steps that go back or are below 0.
    """
    there = _columns(rows)
    wrong = next((c for c in columns.values() if c not in there), None)
    if wrong is not None:
        raise UserError(f"{path} has no column {wrong!r}; it has {_some(there)}")
    step = columns.get("step", names.step)
    if step not in there:
        raise UserError(
            f"{path} has no column {step!r}, which counts steps; it has {_some(there)}: name it with --map step=COLUMN"
        )
    reward = columns.get("reward") or _first(names.reward, there, ())
    held = columns.get("held_out") or _first(names.held, there, (reward,))
    if not reward and not held:
        raise UserError(
            f"{path} has no column {_plain(names.reward)}; it has {_some(there)}: name the one that holds "
            "rewards with --map reward=COLUMN (training) or --map held_out=COLUMN"
        )
    below = next((x for r in rows if (x := number(r.get(step))) is not None and x < 0), None)
    if below is not None:
        raise UserError(f"{path}: {step} is {below:g}; steps count from 0 or 1, so leave out the lines below 0")
    rates = _numbers(rows, columns.get("lr", names.lr))
    known, told = dict(facts or {}), dict(about or {})
    if rates and known.get("lr") is None:
        known["lr"] = max(rates)
    if "warmup" not in told and (rose := _warmed(rows, step, columns.get("lr", names.lr), names.first)):
        told["warmup"] = rose
    clock = _clock(names, columns)
    lacks = [*missing, *unread(rows, (step, reward, held, clock, *_used(names, columns)))]
    if uncounted and "rollouts" not in columns:
        lacks.append(f"rollouts before filtering: {uncounted}")
    lacks += decayed(rates)
    if "held_out" not in columns:
        lacks += _others(names.held, there, held, reward)
    times = _numbers(rows, clock)
    if any(b < a for a, b in pairwise(times)):
        lacks.append(f"seconds: {clock} runs backwards, so what a step took is not known")
        names, columns = replace(names, span="", seconds=""), {k: v for k, v in columns.items() if k != "seconds"}
    return Log(
        source,
        name or (path.stem if path.is_file() else path.resolve().name),
        tuple(files),
        tuple(_train(rows, step, reward, names, columns, path)) if reward else (),
        tuple(_held(rows, step, held, names, columns)) if held else (),
        reward or None,
        held or None,
        known,
        told,
        missing=tuple(lacks),
        end="diverged" if collapsed(rows, held or reward or "") else None,
        rate=_rate(rows, step, columns.get("rollouts")),
    )


def _rate(rows: Sequence[Row], step: str, column: str | None) -> float | None:
    """The least of rollouts / steps in a row. The policy that a row tells of has had as many updates as its step, or
    one fewer and trained on that step's own rollouts."""
    told = [(number(row.get(column)), number(row.get(step))) for row in rows] if column else []
    return min((count / at for count, at in told if count is not None and at), default=None)


def _warmed(rows: Sequence[Row], step: str, column: str, first: int) -> int | None:
    """Updates before the first line whose learning rate is the highest; None where that is the first line with one."""
    told = [(number(r.get(step)), number(r.get(column))) for r in rows]
    lines = [(at, lr) for at, lr in told if at is not None and lr is not None]
    highest = max((lr for _, lr in lines), default=0.0)
    top = next((at for at, lr in lines if lr >= RISEN * highest), None)
    return None if top is None or top == lines[0][0] else round(top - first + 1)


def decayed(rates: Sequence[float]) -> list[str]:
    """What is missing where a logged learning rate, in order of time, falls after its highest."""
    after = rates[rates.index(max(rates)) :] if rates else ()
    if not after or min(after) >= CONSTANT * after[0]:
        return []
    return [f"{DECAYED} the logged one decayed, and a run is not at its end where a shorter one ends"]


def _others(patterns: Sequence[str], there: Sequence[str], held: str | None, reward: str | None) -> list[str]:
    """What is missing where a log has several held-out rewards, and one of them is read."""
    left = [c for c in there if held and c not in (held, reward) and any(re.fullmatch(p, c) for p in patterns)]
    return [f"other held-out rewards: {held} is read, {_some(left)} not (--map held_out=COLUMN)"] if left else []


@dataclass(frozen=True)
class _Total:
    """What a run had spent when it had made `updates` updates; None where the log does not count."""

    updates: float
    rollouts: float | None
    seconds: float | None
    epoch: float | None


def _totals(rows: Sequence[Row], step: str, names: Names, columns: Mapping[str, str]) -> list[_Total]:
    """After each row that tells something of the step it is of, in order."""
    out: list[_Total] = []
    begun = clock = last = 0.0
    counts = times = False
    for row in rows:
        at = number(row.get(step))
        own, span = (number(row.get(k)) if k else None for k in (names.per_step, names.span))
        counted, when = (number(row.get(k)) if k else None for k in (columns.get("rollouts"), _clock(names, columns)))
        clock += next((x for k in EVALUATED if (x := number(row.get(k))) is not None), 0.0)
        if at is None or all(x is None for x in (own, span, counted, when)):
            continue
        done = at - names.first + 1
        new = max(0.0, done - last)  # two rows of one step, a sampler's and a trainer's, count once
        begun = counted if counted is not None else begun + new * (own or 0.0)
        clock = when if when is not None else clock + new * (span or 0.0)
        counts, times = counts or (counted, own) != (None, None), times or (when, span) != (None, None)
        last = max(last, done)
        epoch = number(row.get(columns.get("epoch", names.epoch)))
        out.append(_Total(done, begun if counts else None, clock if times else None, epoch))
    return out


def _used(names: Names, columns: Mapping[str, str]) -> list[str | None]:
    """The columns that are read beside steps, rewards and the clock."""
    by = {"rollouts": names.per_step, "epoch": names.epoch, "lr": names.lr, "length": names.length}
    return [*(columns.get(ours, theirs) for ours, theirs in by.items()), names.span]


def _clock(names: Names, columns: Mapping[str, str]) -> str:
    return columns.get("seconds", names.seconds)


def _spent(totals: Sequence[_Total], updates: float) -> _Total:
    """Totals when the policy had so many updates; nothing is spent before the first."""
    if updates <= 0:
        counts, times = (any(getattr(t, k) is not None for t in totals) for k in ("rollouts", "seconds"))
        return _Total(0.0, 0.0 if counts else None, 0.0 if times else None, None)
    return next((t for t in reversed(totals) if t.updates <= updates), _Total(updates, None, None, None))


def _train(
    rows: Sequence[Row], step: str, reward: str, names: Names, columns: Mapping[str, str], path: Path
) -> list[Point]:
    out: list[Point] = []
    totals, last = _totals(rows, step, names, columns), 0.0
    for row in rows:
        at, value = number(row.get(step)), number(row.get(reward))
        if at is None or value is None:
            continue
        done = at - names.first + 1
        if done <= last and out:
            raise UserError(
                f"{path}: {step} goes back from {last + names.first - 1:g} to {at:g}: these are two runs "
                "under one name, or one that was begun again; import them apart"
            )
        k = done - last
        policy = max(0.0, done - (k + 1) / 2)
        spent = _spent(totals, policy)
        more = {ours: x for ours, theirs in names.more.items() if (x := number(row.get(theirs))) is not None}
        length = number(row.get(columns.get("length", names.length)))
        if length is not None:
            turns = None if "length" in columns else number(row.get(names.turns))
            more["completions/mean_length"] = length * (1.0 if turns is None else turns)
        epoch = number(row.get(columns.get("epoch", names.epoch)))
        out.append(
            Point(policy, value, spent.rollouts, spent.seconds, epoch, done, _spent(totals, done).rollouts, more)
        )
        last = done
    return out


def _held(rows: Sequence[Row], step: str, held: str, names: Names, columns: Mapping[str, str]) -> list[Point]:
    out: list[Point] = []
    totals = _totals(rows, step, names, columns)
    for row in rows:
        at, value = number(row.get(step)), number(row.get(held))
        if at is None or value is None:
            continue
        policy = next(
            (
                x
                for k, v in row.items()
                if names.policy and re.fullmatch(names.policy, k)
                if (x := number(v)) is not None
            ),
            at,
        )
        spent = _spent(totals, policy)
        own, when = (number(row.get(k)) if k else None for k in (columns.get("rollouts"), _clock(names, columns)))
        out.append(
            Point(
                policy,
                value,
                spent.rollouts if own is None else own,
                spent.seconds if when is None else when,
                number(row.get(columns.get("epoch", names.epoch))),
            )
        )
    return out


def facts_of(config: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(n, B, lr, seed; model and sampling) from a trainer's own configuration, whichever it is.

    TRL: rollouts per update are generation_batch_size x gradient_accumulation_steps / steps_per_generation, divided
    by num_iterations. verl counts problems in train_batch_size; prime-rl rollouts in batch_size; tinker-cookbook
    problems in dataset_builder.batch_size or groups_per_batch.
    """
    flat = _flat(config)
    n, B = _sizes(flat)
    lr = _number_of(flat, "actor_rollout_ref.actor.optim.lr", "trainer.optim.lr", "learning_rate")
    seed = _whole_of(flat, "seed", "dataset_builder.seed", "data.seed")
    found = {"n": n, "B": B, "lr": lr, "seed": seed}
    about = {
        "model": next(
            (
                flat[k]
                for k in (
                    "actor_rollout_ref.model.path",
                    "model_name_or_path",
                    "model_name",
                    "model.name",
                    "_name_or_path",
                )
                if flat.get(k)
            ),
            None,
        ),
        "temperature": _number_of(
            flat, "actor_rollout_ref.rollout.temperature", "temperature", "orchestrator.train.sampling.temperature"
        ),
        "max_tokens": _whole_of(
            flat,
            "max_completion_length",
            "data.max_response_length",
            "max_tokens",
            "orchestrator.train.sampling.max_completion_tokens",
        ),
        "warmup": _warmup(flat),
        "trainer_says": {
            k: flat[k]
            for k in (
                "loss_type",
                "beta",
                "epsilon",
                "lr_scheduler_type",
                "warmup_steps",
                "num_iterations",
                "loss_fn",
                "algorithm.adv_estimator",
            )
            if k in flat
        },
    }
    return {k: v for k, v in found.items() if v is not None}, {k: v for k, v in about.items() if v}


def _warmup(flat: Mapping[str, Any]) -> int | None:
    """Updates of warm-up that a configuration states in updates, with a schedule that has one."""
    keys = ("warmup_steps", "actor_rollout_ref.actor.optim.lr_warmup_steps", "trainer.scheduler.warmup_steps")
    steps = _whole_of(flat, *keys)
    plain = "constant" in (flat.get("lr_scheduler_type"), flat.get("trainer.scheduler.type"))
    return None if steps is None or steps < 1 or plain else steps


def _sizes(flat: Mapping[str, Any]) -> tuple[int | None, int | None]:
    n = _whole_of(
        flat,
        "num_generations",
        "actor_rollout_ref.rollout.n",
        "orchestrator.group_size",
        "group_size",
        "dataset_builder.group_size",
    )
    problems = _whole_of(
        flat,
        "data.train_batch_size",
        "dataset_builder.batch_size",
        "groups_per_batch",
        "dataset_builder.groups_per_batch",
    )
    rollouts = _whole_of(flat, "orchestrator.batch_size")
    if "num_generations" in flat:
        batch = _whole_of(flat, "generation_batch_size")
        per = _whole_of(flat, "steps_per_generation")
        steps = _whole_of(flat, "gradient_accumulation_steps")
        if batch and per and steps:
            again = _whole_of(flat, "num_iterations") or 1
            rollouts = _over(batch * steps, per * again)
    if problems is None and rollouts is not None and n:
        problems = _over(rollouts, n)
    return n, problems


def _over(a: int, b: int) -> int | None:
    """a / b where that is a whole number: what is not makes no batch size."""
    return a // b if a % b == 0 else None


def _flat(config: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            out |= _flat(value, f"{before}{key}.")
        else:
            out[f"{before}{key}"] = value
    return out


def _whole_of(flat: Mapping[str, Any], *keys: str) -> int | None:
    return next((x for k in keys if (x := whole(flat.get(k))) is not None), None)


def _number_of(flat: Mapping[str, Any], *keys: str) -> float | None:
    return next((x for k in keys if (x := number(flat.get(k))) is not None), None)


def _columns(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(k for row in rows for k in row))


def _numbers(rows: Sequence[Row], column: str) -> list[float]:
    return [x for x in (number(row.get(column)) for row in rows) if x is not None]


def _match(pattern: str, columns: Sequence[str]) -> str | None:
    return next((c for c in columns if re.fullmatch(pattern, c)), None)


def _first(patterns: Sequence[str], columns: Sequence[str], but: Any) -> str | None:
    left = [c for c in columns if c not in but]
    return next((c for p in patterns if (c := _match(p, left))), None)


def _some(columns: Sequence[str], most: int = 8) -> str:
    return ", ".join(columns[:most]) + (f" and {len(columns) - most} more" if len(columns) > most else "")


def _plain(patterns: Sequence[str]) -> str:
    return " or ".join(repr(re.sub(r"\(\?:.*?\)\?|\\d\+", "N", p)) for p in patterns) or "for the reward"
