"""The names that trainers use: columns of their logs, and keys of their configurations."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from isocost import trainers
from isocost.trainers.reading.logs import Row
from isocost.trainers.reading.text import number, whole

EVALUATED = ("eval_runtime", "eval/runtime")  # seconds of an evaluation: transformers', and as its loggers have it


@dataclass(frozen=True)
class Names:
    """One trainer's columns. Those of rewards are regular expressions, tried in order; the first match is used.

    `first` is the number of its first step. `more` maps this program's names to the trainer's. `span` is the column
    of seconds per step, `seconds` that of seconds since the start. `per_step` is rollouts started in a step. `length`
    is tokens of an answer, or of one turn of it where `turns` is the column of turns per answer. `rollouts` is rollouts
    since the start, which no trainer logs under a name of its own. `policy` is the column
    with the number of updates of the evaluated policy, if there is one. With `again` the trainer evaluates one policy
    twice if a run is resumed; with `appends` a resumed run writes behind its earlier lines.
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
    rollouts: str = ""
    policy: str = ""
    more: Mapping[str, str] = field(default_factory=dict)
    again: bool = False
    appends: bool = False

    def mapped(self, columns: Mapping[str, str]) -> Names:
        """With the columns that a user names instead, except those of rewards."""
        given = {k: v for k, v in columns.items() if k in ("step", "lr", "epoch", "length", "seconds", "rollouts")}
        return replace(self, **given, turns="" if "length" in given else self.turns)     # type: ignore[arg-type]


@dataclass(frozen=True)
class Settings:
    """Where one trainer's configuration holds each fact: keys of the flattened configuration, tried in order.

    `problems` are those of an update, `rollouts` the rollouts of one, `batch` computes these if no key holds them.
    `warmup` is in updates; a `schedule` of "constant" has none. `method` are keys that are recorded
    unchanged.
    """

    n: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    rollouts: tuple[str, ...] = ()
    lr: tuple[str, ...] = ()
    seed: tuple[str, ...] = ()
    model: tuple[str, ...] = ()
    temperature: tuple[str, ...] = ()
    max_tokens: tuple[str, ...] = ()
    top_p: tuple[str, ...] = ()
    top_k: tuple[str, ...] = ()
    warmup: tuple[str, ...] = ()
    schedule: tuple[str, ...] = ()
    method: tuple[str, ...] = ()
    batch: Callable[[Mapping[str, Any]], int | None] = lambda flat: None


def spoken(rows: Sequence[Row]) -> Names | None:
    """The names that these rows use, by their training reward, those without a path last; None if no trainer's."""
    columns = columns_of(rows)
    every = [names for module in trainers.modules("NAMES").values() for names in module.NAMES]
    every.sort(key=lambda names: "/" not in names.reward[0])
    return next((n for n in every if any(match(p, columns) for p in n.reward)), None)


def columns_of(rows: Sequence[Row]) -> list[str]:
    """The columns of rows, in order of first appearance."""
    return list(dict.fromkeys(k for row in rows for k in row))


def match(pattern: str, columns: Sequence[str]) -> str | None:
    """The first column that a pattern matches completely."""
    return next((c for c in columns if re.fullmatch(pattern, c)), None)


def facts_of(config: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(n, B, lr, seed; model and sampling) from the configuration of any known trainer."""
    flat = flattened(config)
    known: list[Settings] = [module.SETTINGS for module in trainers.modules("SETTINGS").values()]

    def keys(fact: str) -> tuple[str, ...]:
        return tuple(key for settings in known for key in getattr(settings, fact))

    n, problems = _whole_of(flat, *keys("n")), _whole_of(flat, *keys("problems"))
    rollouts = next((x for s in known if (x := s.batch(flat)) is not None), _whole_of(flat, *keys("rollouts")))
    if problems is None and rollouts is not None and n:
        problems = over(rollouts, n)
    top_k = _whole_of(flat, *keys("top_k"))
    warmup = _whole_of(flat, *keys("warmup"))
    plain = any(flat.get(key) == "constant" for key in keys("schedule"))
    found = {"n": n, "B": problems, "lr": _number_of(flat, *keys("lr")), "seed": _whole_of(flat, *keys("seed"))}
    about = {
        "model": next((flat[k] for k in keys("model") if flat.get(k)), None),
        "temperature": _number_of(flat, *keys("temperature")),
        "max_tokens": _whole_of(flat, *keys("max_tokens")),
        "top_p": _number_of(flat, *keys("top_p")),
        "top_k": None if top_k is None else max(top_k, 0),  # -1 and 0 are none
        "warmup": None if warmup is None or warmup < 1 or plain else warmup,
        "trainer_says": {k: flat[k] for k in keys("method") if k in flat},
    }
    return {k: v for k, v in found.items() if v is not None}, {k: v for k, v in about.items() if v not in (None, {})}


def over(a: int, b: int) -> int | None:
    """a / b if that is an integer, as a batch size must be; else None."""
    return a // b if a % b == 0 else None


def flattened(config: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            out |= flattened(value, f"{before}{key}.")
        else:
            out[f"{before}{key}"] = value
    return out


def _whole_of(flat: Mapping[str, Any], *keys: str) -> int | None:
    return next((x for k in keys if (x := whole(flat.get(k))) is not None), None)


def _number_of(flat: Mapping[str, Any], *keys: str) -> float | None:
    return next((x for k in keys if (x := number(flat.get(k))) is not None), None)
