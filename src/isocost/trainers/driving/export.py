"""A prescription as another trainer's configuration: what all targets share.

What a target has no setting for is listed in comments of its file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

from isocost import trainers
from isocost.errors import UserError
from isocost.screen.words import counted, visible

ROOM = 30  # batches that may refill one update: SkyRL stops after so many, NeMo-RL after 10


@dataclass(frozen=True)
class TrainerLoss:
    """A method's update in the terms that trainers share.

    `surrogate` is clipped (PPO's), sequence (GSPO's ratio per response), truncated (CISPO's capped weight) or
    reinforce; `low` and `high` its clip range, `dual` the dual clip's bound. `cap` truncates learner over sampler.
    `advantage` is mean (r - mean r), spread (over the standard deviation too) or others (leave one out). `average`
    is rollout, token, prompt, length (over the constant `tokens`) or sum (per rollout). `odd` names parts without such
    a term.
    """

    surrogate: Literal["clipped", "sequence", "truncated", "reinforce"] = "clipped"
    low: float = 0.2
    high: float = 0.2
    dual: float = 0.0
    cap: float | None = None
    kl: float = 0.0
    estimate: Literal["k1", "k2", "k3"] = "k2"
    entropy: float = 0.0
    advantage: Literal["mean", "spread", "others", "batch"] = "mean"
    average: Literal["rollout", "token", "prompt", "length", "sum"] = "rollout"
    tokens: int | None = None
    epochs: int = 1
    minibatches: int = 1
    keep_mixed: bool = False
    refill: bool = False
    max_age: int = 0
    odd: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raises ValueError for a word that no trainer's configuration is written for: a function is `exported` as it.
        """
        for name, kind in get_type_hints(TrainerLoss).items():
            if get_origin(kind) is Literal and getattr(self, name) not in get_args(kind):
                raise ValueError(f"exported {name}={getattr(self, name)!r}: expected {', '.join(get_args(kind))}; "
                                 "leave out `exported` for what other trainers lack")


@dataclass(frozen=True)
class Prescription:
    """What to train: n rollouts per problem, B problems per update, M updates, `warmup` of them linear.

    `loss` is None if the study was imported and the method is the trainer's own; `left` then describes it.
    `problems` is the number of training problems, `expected` a line with the law's forecast. `longest` is the
    longest completion in the logs, in tokens. Sampling settings that are not in the records are None.
    """

    study: str
    n: int
    B: int
    M: int
    lr: float
    warmup: int
    seed: int
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    max_tokens: int | None = None
    model: str | None = None
    method: str | None = None
    problems: int | None = None
    expected: str = ""
    loss: TrainerLoss | None = None
    left: tuple[str, ...] = ()
    longest: int | None = None

    @property
    def nB(self) -> int:
        """Rollouts per update."""
        return self.n * self.B


@dataclass(frozen=True)
class ControlPrescription:
    """What to train of value-based control: `sigma` updates per sample, for so many samples."""

    study: str
    task: str
    method: str | None
    sigma: float
    batch: int
    rate: float
    width: int | None
    samples: int
    seeds: int
    expected: str


def names(what: str = "write") -> list[str]:
    """All targets, as `--to` takes them; `what` is the function that writes the prescription."""
    return sorted(trainers.modules(what))


def load(name: str | None, what: str = "write") -> Any:
    """The module of a target. Raises UserError for no name, or if there is no target of that name."""
    if name is None:
        raise UserError(f"name the trainer: --to {', --to '.join(names(what))}")
    if name not in names(what):
        raise UserError(f"unknown target {name!r}; expected one of {', '.join(names(what))}")
    return trainers.modules(what)[name]


def preamble(p: Prescription, target: Any, how: Iterable[str], left: Iterable[str]) -> str:
    """The comment at the start of a file: what it is, its sizes, and what could not be carried over."""
    n, B, M = (text.format(n=p.n, B=p.B, M=p.M, nB=p.nB) for text in target.SIZES)
    lines = [
        f"isocost's prescription of {p.study} for {target.TITLE}:",
        f"n = {p.n} rollouts per problem, B = {p.B} problems per update, M = {p.M} updates,",
        f"C = n B M = {p.nB * p.M:,} rollouts, learning rate {p.lr:.3g}, warm-up {counted(p.warmup, 'update')}.",
        *([p.expected] if p.expected else []),
        f"Written against {target.VERSION}.",
        f"n: {n}   B: {B}   M: {M}",
        *how,
    ]
    gone = [*p.left, *left]
    lines += ["Not carried over:", *(f"  {x}" for x in gone)] if gone else ["Everything prescribed is carried over."]
    return "".join(f"# {visible(line, lines=False)}\n" for line in lines)     # no name ends the comment


def epochs(p: Prescription) -> int:
    """Passes over the training problems that suffice for M updates, for trainers that stop at the first limit.

    A batch takes at most one pass, so M passes suffice if the number of problems is not known. A method that refills
    may take up to `ROOM` batches for an update.
    """
    batches = p.M * (ROOM if p.loss is not None and p.loss.refill else 1)
    return -(-batches * p.B // p.problems) + 1 if p.problems else batches


def uncounted(p: Prescription) -> list[str]:
    """What cannot be carried over if M does not determine the number of passes over the training problems."""
    refills = p.loss is not None and p.loss.refill
    if p.problems and not refills:
        return []
    why = "which depend on how many batches an update is refilled from" if refills else "whose number is not known"
    room = f", at up to {ROOM} batches an update" if refills else ""
    own = " unless your method refills batches" if p.loss is None else ""
    return [
        f"the passes over the training problems, {why}: {epochs(p)} are enough for M = {p.M} updates{room}{own}; these "
        "end the run"
    ]


def unsaid(p: Prescription, options: Mapping[str, tuple[str, str]]) -> list[str]:
    """Sampling settings that are not in the records, so not carried over; `options` are the trainer's and defaults."""
    gone = {k: v for k, v in options.items() if getattr(p, k) is None}
    out = []
    if "max_tokens" in gone:
        option, default = gone.pop("max_tokens")
        logged = f"; the longest completion in the logs has {p.longest} tokens" if p.longest else ""
        said = f"it is not in the logs, so {option} stays at its default, {default}"
        out.append(f"the maximum completion length: {said}{logged}")
    if gone:
        left = ", ".join(f"{option} {default}" for option, default in gone.values())
        out.append(f"sampling settings that are not in the logs, which stay at their defaults: {left}")
    return out


def top_k(p: Prescription) -> int | None:
    """top-k where -1 means every token, as in vLLM; None if it is not in the records."""
    return None if p.top_k is None else p.top_k or -1


def estimator(loss: TrainerLoss) -> str:
    """The advantage by the names that verl introduced: leave-one-out is rloo, every other baseline grpo."""
    return "rloo" if loss.advantage == "others" else "grpo"


def minibatch(p: Prescription, loss: TrainerLoss) -> int:
    """Problems of a mini-batch, where a trainer counts it in problems."""
    return max(1, p.B // loss.minibatches)


def cispo_range(loss: TrainerLoss) -> tuple[float, float]:
    """CISPO's cap as a clip range around 1, (low, high): no lower bound, and `loss.high` as 1 + high."""
    return 1.0, loss.high - 1


def group_baseline(loss: TrainerLoss, whose: str) -> list[str]:
    """What cannot be carried over of a baseline over the batch, where a target's is over the group."""
    return [f"a baseline over the batch: {whose} is of the group"] if loss.advantage == "batch" else []


def aged(loss: TrainerLoss, instead: str) -> list[str]:
    """What cannot be carried over of rollouts older than the policy, and what a target has instead."""
    return [f"rollouts up to {loss.max_age} steps old: {instead}"] if loss.max_age else []


def unmixed(loss: TrainerLoss, instead: str) -> list[str]:
    """What cannot be carried over of leaving out groups whose rollouts all have the same reward."""
    if not loss.keep_mixed:
        return []
    return [f"leaving out groups with one reward throughout{', and refilling' if loss.refill else ''}: {instead}"]


def command(words: Iterable[str]) -> str:
    """A launch line, one option per line."""
    return " \\\n    ".join(words) + "\n"


def options(values: Mapping[str, Any]) -> list[str]:
    """`key=value` for Hydra and its like, None left out."""
    return [f"{k}={shown(v)}" for k, v in values.items() if v is not None]


def shown(x: Any) -> str:
    """A value that YAML, TOML and Hydra read alike; YAML takes 1e-06 for text, and 1.0e-06 for a number."""
    if isinstance(x, bool):
        return "true" if x else "false"
    return re.sub(r"^(-?\d+)e", r"\1.0e", f"{x:.6g}") if isinstance(x, float) else str(x)
