"""A trainer that is a command: how its line is completed for a run, and where its log is.

`--trainer 'cmd: python train.py --n {n} --groups {B} --lr {lr} --seed {seed} --out {out}'`. Words in braces are filled
in for each run; the same values are environment variables (ISOCOST_N, ISOCOST_EVAL_EVERY, ...), so that a script may
read them there instead. The model, the problems and the reward stay in the user's script.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import gcd
from pathlib import Path
from typing import Any

from isocost.errors import UserError

VALUES = {  # what a command may hold in braces
    "n": "rollouts per problem",
    "B": "problems per update",
    "nB": "rollouts per update",
    "M": "updates",
    "C": "rollouts",
    "lr": "learning rate",
    "warmup": "updates of linear warm-up",
    "seed": "seed",
    "out": "folder for checkpoints, the same for every attempt of a run",
    "log": "the metrics file, if --metrics does not name another",
    "samples": "completions of each held-out problem in an evaluation",
    "eval_every": "updates between evaluations",
    "evals": "updates after which to evaluate, separated by commas",
    "save_every": "updates between checkpoints",
    "attempt": "0, then 1, 2, ... each time a run is launched again",
    "name": "the run's name",
    "config": "a file with the trainer's configuration (not for cmd)",
    "options": "the trainer's configuration as options (not for cmd)",
}
NEEDED = (("n",), ("B", "nB"), ("lr",), ("seed",), ("out", "log"))
WRITTEN = frozenset({"config", "options"})
METRICS = "{out}/metrics.jsonl"
STALL = 30.0  # minutes without a new line of its log after which an attempt is ended


@dataclass(frozen=True)
class Trainer:
    """A study's trainer, as study.json holds it.

    `kind` is cmd or the name of a trainer, `command` its line with words in braces, `cwd` where it runs. `metrics` is
    the path of its log and `columns` name its columns. `stall` are minutes without a new line of its log after which an
    attempt is ended.
    """

    kind: str
    command: str
    cwd: str
    metrics: str = METRICS
    columns: Mapping[str, str] = field(default_factory=dict)
    stall: float = STALL

    def data(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def of(data: Mapping[str, Any]) -> Trainer:
        return Trainer(**{k: data[k] for k in Trainer.__dataclass_fields__ if k in data})

    @property
    def words(self) -> tuple[str, ...]:
        """The words of its line, not completed."""
        return tuple(shlex.split(self.command))

    @property
    def ends(self) -> bool:
        """Whether its line says when to end; otherwise a run is stopped after its last evaluation."""
        return bool(names_in(self.command) & {"M", "C", "config", "options"})

    def path(self, values: Mapping[str, str]) -> Path:
        """The log of a run with these values."""
        return Path(self.cwd) / filled(self.metrics, values, "--metrics")


def parsed(
    text: str, cwd: Path, kinds: Mapping[str, Sequence[str]], *, metrics: str | None = None,
    columns: Mapping[str, str] | None = None, stall: float = STALL,
) -> Trainer:
    """The trainer of `--trainer KIND: COMMAND`. `kinds` are the names of trainers, each with the words in braces
    of which its command needs one.

    Raises UserError for an unknown kind, no command, an unknown word in braces, or one that is needed and lacks.
    """
    kind, _, command = (part.strip() for part in text.partition(":"))
    known = ", ".join(kinds)
    if kind not in kinds:
        hint = f": write --trainer {shlex.quote('cmd: ' + text)}" if re.search(r"[ /{]", text) else ""
        raise UserError(f"--trainer {text!r}: {kind!r} is no trainer; expected one of {known}{hint}")
    if not command:
        raise UserError(f"--trainer {text!r} has no command: write it behind {kind}:, such as "
                        f"'{kind}: python train.py --n {{n}} --groups {{B}} --lr {{lr}} --seed {{seed}} --out {{out}}'")
    try:
        words = shlex.split(command)
    except ValueError as e:
        raise UserError(f"--trainer: the command cannot be split into words ({e}): {command}") from None
    for option, part in (("--trainer", " ".join(words)), ("--metrics", metrics or "")):
        filled(part, dict.fromkeys(VALUES, ""), option)
    there = names_in(command)
    takes = kinds[kind]
    if kind == "cmd" and there & WRITTEN:
        raise UserError("--trainer cmd: {config} and {options} are for trainers that isocost writes configurations of; "
                        "a cmd takes {n}, {B}, {lr}, {seed}, {out}, {M}, {eval_every}")
    if takes and (not there & set(takes) or there & (WRITTEN - set(takes))):
        needs = " or ".join(f"{{{n}}}" for n in takes)
        raise UserError(f"--trainer {kind}: the command needs {needs}, which isocost replaces by the configuration of "
                        f"a run: add it to {command}")
    for names in () if takes else NEEDED:
        if not there & set(names):
            needs = " or ".join(f"{{{n}}}" for n in names)
            raise UserError(f"--trainer: the command has no {needs} ({VALUES[names[0]]}), so every run would have "
                            f"the same: add it to {command}")
    return Trainer(kind, command, str(cwd), metrics or METRICS, dict(columns or {}), stall)


def names_in(text: str) -> set[str]:
    """The words in braces."""
    return set(re.findall(r"\{(\w+)\}", text))


def filled(text: str, values: Mapping[str, str], option: str) -> str:
    """A word with what is in braces filled in. Raises UserError for an unknown one; {{ and }} are braces."""
    def value(found: re.Match[str]) -> str:
        if found[0] in ("{{", "}}"):
            return found[0][0]
        name = found[1]
        if name not in values:
            raise UserError(f"{option}: {{{name}}} is unknown; expected one of "
                            + ", ".join(f"{{{k}}}" for k in VALUES) + "; write {{ and }} for braces")
        return values[name]

    return re.sub(r"\{\{|\}\}|\{(\w*)\}", value, text)


@dataclass(frozen=True)
class Sizes:
    """What a run is asked to do. `points` are the rollouts after which it is evaluated, the last one C, by `samples`
    completions of each held-out problem."""

    name: str
    n: int
    B: int
    C: int
    lr: float
    warmup: int
    seed: int
    points: tuple[int, ...]
    samples: int = 1

    @property
    def M(self) -> int:
        """Updates."""
        return self.C // (self.n * self.B)

    @property
    def evals(self) -> tuple[int, ...]:
        """Updates after which it is evaluated, besides the base."""
        return tuple(sorted({round(p / (self.n * self.B)) for p in self.points} - {0}))

    @property
    def eval_every(self) -> int:
        """Updates between evaluations of a trainer that evaluates at equal distances, and so at all of `evals`, the
        last perhaps excepted."""
        return gcd(*self.evals[:-1]) if len(self.evals) > 1 else self.M

    def values(self, out: Path, attempt: int, log: Path) -> dict[str, str]:
        """The words in braces."""
        return {
            "n": str(self.n), "B": str(self.B), "nB": str(self.n * self.B), "M": str(self.M), "C": str(self.C),
            "lr": f"{self.lr:.6g}", "warmup": str(self.warmup), "seed": str(self.seed), "out": str(out),
            "log": str(log), "samples": str(self.samples), "eval_every": str(self.eval_every),
            "evals": ",".join(map(str, self.evals)), "save_every": str(self.eval_every), "attempt": str(attempt),
            "name": self.name,
        }


def environment(values: Mapping[str, str], key: str) -> dict[str, str]:
    """The values as environment variables."""
    return {"ISOCOST_KEY": key} | {f"ISOCOST_{k.upper()}": v for k, v in values.items() if k not in ("nB", "options")}


def line(words: Sequence[str], values: Mapping[str, str], options: Sequence[str] = ()) -> tuple[str, ...]:
    """The words of a command with its values; a word {options} is as many words as there are options."""
    out: list[str] = []
    for word in words:
        out += options if word == "{options}" else [filled(word, {**values, "options": shlex.join(options)},
                                                           "--trainer")]
    return tuple(out)
