"""TRL's GRPOTrainer (1.16): its names, its logs and its configuration.

Reading: `trainer_state.json`, which transformers writes into every checkpoint and on save_state().
Its log_history has one entry per logging step and one per evaluation. It does not hold the configuration; where
TensorBoard was on, the event file beside it does, and is read for n, B, learning rate and seed. A rollout is never
filtered before the step that trains on it, so C = steps x n x B is what was started. `step_time` is seconds per step,
`eval_runtime` those of an evaluation. A file of any name is read by its content, as is a log_history saved by itself,
and what a process printed: one dictionary per logging step, whose steps are those of the progress bar behind it.

Driving (`isocost pilot --trainer 'trl: ...'`): a run's YAML file is {config}, and its keys as options are {options};
each sets the sizes, checkpoints and evaluations, and the checkpoint to continue from. The history in the newest
checkpoint is read while it trains, and behind it what the process printed.

Writing: a YAML file for `trl grpo --config FILE`, or for GRPOConfig(**yaml): the keys are GRPOConfig's own.
Batches count rollouts: per_device_train_batch_size x processes x gradient_accumulation_steps = nB, and
generation_batch_size follows as the same, so that one generation is one update.
"""

from __future__ import annotations

import ast
import hashlib
import json
import pickletools
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

from isocost.disk.jsonfile import write_json
from isocost.errors import UserError
from isocost.runs.files import SCHEMA, read_json
from isocost.runs.launch.launcher import OUTPUT
from isocost.screen.words import counted
from isocost.trainers.driving import export
from isocost.trainers.driving.drive import ASIDE, Begin, Drive, Setup
from isocost.trainers.reading.logs import Log, Row
from isocost.trainers.reading.names import Names, Settings, facts_of, over
from isocost.trainers.reading.points import logs_of
from isocost.trainers.reading.text import head, json_of, whole
from isocost.trainers.reading.wire import arguments_of, events

TITLE = "TRL"
SIZES = ("num_generations = {n}", "generation_batch_size = {nB}", "max_steps = {M}")
READS = "TRL trainer_state.json, or what it printed"
GIVES = "training and held-out reward, steps, epochs, learning rate, seconds; n, B and seed where TensorBoard was on"
LACKS = "n, B and seed without TensorBoard; a second held-out half; the number of held-out problems"
STATE = "trainer_state.json"
OBJECT = re.compile(r'\s*\{.*"log_history"\s*:\s*\[', re.S)
STEP = "global_step"  # of a printed line, where a callback or ms-swift adds it
LENGTHS = ("completion_length", "completions/mean_length")  # the name until 0.16, and the one since
PRINTED = re.compile(r"\{'.*\}")
BAR = re.compile(r"(?:^|[\r\n])\s*\d+%\|[^|\r\n]*\|\s*(\d+)/(\d+) \[")  # a progress bar without a name
ENTRIES = re.compile(r'\s*\[\s*\{.*"(reward_std|frac_reward_zero_std|completions/mean_length)"\s*:', re.S)


def _batch(flat: Mapping[str, Any]) -> int | None:
    """Rollouts per update: generation_batch_size x gradient_accumulation_steps / steps_per_generation, divided by
    num_iterations; None where the configuration is not TRL's or does not say them."""
    if "num_generations" not in flat:
        return None
    batch, per, steps, again = (
        whole(flat.get(k))
        for k in ("generation_batch_size", "steps_per_generation", "gradient_accumulation_steps", "num_iterations")
    )
    return over(batch * steps, per * (again or 1)) if batch and per and steps else None


SETTINGS = Settings(
    n=("num_generations",), lr=("learning_rate",), seed=("seed",), model=("model_name_or_path", "_name_or_path"),
    temperature=("temperature",), max_tokens=("max_completion_length",), top_p=("top_p",), top_k=("top_k",),
    warmup=("warmup_steps",), schedule=("lr_scheduler_type",),
    method=("loss_type", "beta", "epsilon", "lr_scheduler_type", "warmup_steps", "num_iterations"), batch=_batch,
)
HISTORY = Names(
    "TRL",
    "step",
    (r"reward", r"rewards/mean"),
    (r"eval_reward", r"eval_[^/]+_reward"),
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
    again=True,
)
BOARD = Names(
    "TRL",
    "train/global_step",
    (r"train/reward",),
    (r"eval/reward", r"eval/[^/]+_reward"),
    lr="train/learning_rate",
    epoch="train/epoch",
    span="train/step_time",
    length="train/completions/mean_length",
    more={k: f"train/{k}" for k in HISTORY.more},
    again=True,
)
NAMES = (BOARD, HISTORY)


def recognise(path: Path) -> bool:
    found = _state(path)
    return found is not None and (found.name == STATE or _is_history(found) or _is_printed(found))


def read(path: Path, columns: Mapping[str, str]) -> list[Log]:
    found = _state(path)
    if found is None:
        raise UserError(
            f"{path} holds no {STATE}, neither itself nor in checkpoint-*; TRL writes it with "
            "trainer.save_state() or at a checkpoint"
        )
    if _is_printed(found):
        rows, missing = _timed(found)
        return logs_of("trl", found, [found], rows, HISTORY, columns, missing=missing)
    state = json_of(found)
    history = state.get("log_history") if isinstance(state, dict) else state
    if not isinstance(history, list):
        raise UserError(f"{found} has no list log_history, so it is not a trainer's state")
    own = found.name == STATE  # under another name, nothing says that what lies beside it is of the same run
    folder = found.resolve().parent
    folder = folder.parent if folder.name.startswith("checkpoint-") else folder
    boards = sorted(folder.glob("runs/**/events.out.tfevents.*")) if own else []
    config = _args(boards)
    facts, about = facts_of(config)
    rows = [_today(row) for row in history if isinstance(row, dict)]
    files = [found, *(boards if config else [])]
    name = folder.name if own else None
    every = whole(state.get("eval_steps")) if isinstance(state, dict) else None
    return logs_of("trl", found, files, rows, HISTORY, columns, facts=facts, about=about, name=name, every=every)


def _is_history(path: Path) -> bool:
    """Whether a file holds a state with a log_history, or a log_history of TRL's alone."""
    text = head(path)
    return bool(OBJECT.match(text) or ENTRIES.match(text))


def _is_printed(path: Path) -> bool:
    """Whether a file holds dictionaries with a reward, as a trainer prints them."""
    lines = PRINTED.finditer(head(path, 200_000))
    return any("'reward'" in x[0] and any(f"'{key}'" in x[0] for key in ("reward_std", "epoch", STEP)) for x in lines)


def _timed(path: Path) -> tuple[list[Row], list[str]]:
    """(the rows of what a process printed, what is missing). A line's step is its own, else that of the progress bar
    behind it; where these do not rise with the lines, as many updates are taken for each as divide the bar's last."""
    rows = [stepped(row) for row in _printed(path, 0)]
    if any(STEP in key for row in rows for key in row):
        return rows, []
    text = path.read_text(encoding="utf-8", errors="replace")
    ends = [m.end() for m in PRINTED.finditer(text) if "'reward'" in m[0]]
    bars = [(m.start(), int(m[1]), int(m[2])) for m in BAR.finditer(text)]
    for total in sorted({total for *_, total in bars}, reverse=True):
        after = [next((done for at, done, own in bars if own == total and at >= end), None) for end in ends]
        known = [done for done in after if done is not None]
        back = sum(b < a for a, b in pairwise(known))   # a resumed run goes back now and then
        # Lines that share a bar were printed late, and no bar is theirs.
        if len(known) == len(ends) and all(a != b for a, b in pairwise(known)) and back <= max(1, len(ends) / 10):
            return [{**row, "step": after[int(row["step"]) - 1] if row["step"] else 0} for row in rows], []
    done = max((done for _, done, own in bars if own == max(total for *_, total in bars)), default=0)
    each = done // len(ends) if ends and done % len(ends) == 0 else 1
    said = f"steps: what was printed has none, and each line is counted as {counted(max(each, 1), 'update')}"
    return [{**row, "step": row["step"] * max(each, 1)} for row in rows], [said]


def stepped(row: Row) -> Row:
    """A line under today's names, with the step that it says, such as "global_step/max_steps": "20/400"."""
    said = str(row.get(f"{STEP}/max_steps", row.get(STEP, ""))).partition("/")[0]
    step = whole(said)
    return {**_today(row), **({} if step is None else {"step": step})}


def _today(row: Row) -> Row:
    old, new = LENGTHS
    return {new if k == old else k: v for k, v in row.items()}


def _state(path: Path) -> Path | None:
    if path.is_file():
        return path
    if (path / STATE).is_file():
        return path / STATE
    steps = {
        int(p.parent.name.rsplit("-", 1)[1]): p
        for p in path.glob(f"checkpoint-*/{STATE}")
        if p.parent.name.rsplit("-", 1)[1].isdecimal()
    }
    return steps[max(steps)] if steps else None


def _args(boards: list[Path]) -> dict[str, Any]:
    """The training arguments as transformers writes them into its event file."""
    for path in boards:
        for _, _, _, texts in events(path):
            if arguments := arguments_of(texts):
                return arguments
    return {}


# writing a configuration ---------------------------------------------------------------------------------------

VERSION = "TRL 1.16 (trl/trainer/grpo_config.py)"
DEFAULTS = {
    "max_tokens": ("max_completion_length", "512"),
    "temperature": ("temperature", "1"),
    "top_p": ("top_p", "1"),
    "top_k": ("top_k", "0"),
}
LOSSES = {"rollout": "grpo", "token": "dapo", "length": "dr_grpo", "sum": "dr_grpo", "prompt": "dapo"}


def write(p: export.Prescription) -> str:
    values, left = settings(p)
    how = [
        f"One process: {p.n} rollouts a device step x {p.B} accumulated = nB = {p.nB}.",
        "With P processes divide gradient_accumulation_steps by P.",
        "Give it model_name_or_path, dataset_name and your reward function.",
        "To bring the run back with `isocost import`: eval_on_start: true, eval_strategy: steps, and "
        "trainer.save_state() at the end.",
    ]
    body = "".join(f"{k}: {export.shown(v)}\n" for k, v in values.items() if v is not None)
    return export.preamble(p, sys.modules[__name__], how, left) + body


def settings(p: export.Prescription) -> tuple[dict[str, Any], list[str]]:
    """(GRPOConfig's arguments, what they cannot express)."""
    values: dict[str, Any] = {
        "num_generations": p.n,
        "per_device_train_batch_size": p.n,
        "gradient_accumulation_steps": p.B,
        "max_steps": p.M,
        "learning_rate": float(p.lr),
        "lr_scheduler_type": "constant_with_warmup",
        "warmup_steps": p.warmup,
        "temperature": p.temperature,
        "top_p": p.top_p,
        "top_k": p.top_k,
        "max_completion_length": p.max_tokens,
        "seed": p.seed,
        "logging_steps": 1,
    }
    left = ["the first rung of the warm-up: transformers begins it at a rate of 0"] if p.warmup else []
    left += export.unsaid(p, DEFAULTS)
    if p.loss is None:
        return values, left
    loss = p.loss
    values |= {
        "beta": loss.kl,
        "num_iterations": loss.epochs,
        "scale_rewards": "group" if loss.advantage == "spread" else "none",
        "loss_type": LOSSES[loss.average],
        "entropy_coef": loss.entropy,
    }
    if loss.surrogate == "truncated":
        values |= {"loss_type": "cispo", "epsilon_high": loss.high}
        if loss.average != "token":
            left.append(f"the average per {loss.average}: cispo averages over all tokens of the batch")
    elif loss.surrogate == "reinforce":
        left.append("the plain policy gradient: with one update per batch the clipped loss has the same gradient")
    else:
        values |= {
            "epsilon": loss.low,
            "epsilon_high": loss.high,
            "importance_sampling_level": "sequence" if loss.surrogate == "sequence" else "token",
        }
    if loss.surrogate != "truncated" and loss.average == "prompt":
        left.append("the average per prompt: dapo averages over all tokens of the batch")
    if loss.average == "length" and loss.tokens != p.max_tokens:
        left.append(f"the constant length {loss.tokens} of the average: dr_grpo divides by max_completion_length")
    if loss.average == "sum":
        left.append(
            "the sum over a rollout's tokens: dr_grpo is that divided by max_completion_length, which Adam undoes"
        )
    if loss.advantage == "others":
        left.append("leave-one-out: it is r - mean r times n / (n - 1), a constant that Adam undoes")
    left += export.group_baseline(loss, "TRL's")
    if loss.kl and loss.estimate != "k3":
        left.append(f"KL by {loss.estimate}: TRL estimates it by k3")
    if loss.cap is not None:
        values |= {
            "vllm_importance_sampling_correction": True,
            "vllm_importance_sampling_mode": "token_truncate",
            "vllm_importance_sampling_clip_max": loss.cap,
        }
        left.append(
            "the correction of the sampler works with use_vllm: true only; without it there is nothing to correct"
        )
    if loss.dual:
        left.append(f"the dual clip at {loss.dual}")
    if loss.minibatches > 1:
        values["gradient_accumulation_steps"] = export.minibatch(p, loss)
        values["steps_per_generation"] = p.B
        values["max_steps"], values["warmup_steps"] = p.M * loss.minibatches, p.warmup * loss.minibatches
        left.append(
            f"M as such: a step is one of {loss.minibatches} mini-batches here, so max_steps is {loss.minibatches} M"
        )
    left += export.unmixed(loss, "TRL trains on all")
    return values, [*left, *export.aged(loss, "GRPOTrainer is synchronous"), *loss.odd]


# driving -------------------------------------------------------------------------------------------------------

BEFORE = "states.json"  # in an attempt's folder: the states that were there before it
CONFIG, ARGUMENTS = "config.yaml", "training_args.bin"  # what it was asked for, and what transformers made of it
EVAL_BATCH = 8          # completions of an evaluation batch, at least: transformers' default
NUMBERS = ("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT")     # operations of a pickle that push one
ASKED = ("num_generations", "num_generations_eval", "max_steps", "learning_rate", "seed", "eval_steps")


def prepared(begin: Begin) -> Setup:
    """Write an attempt's configuration, {config} and {options}; a checkpoint without its state is put aside."""
    out, sizes, attempt = begin.out, begin.sizes, begin.folder
    for folder in out.glob("checkpoint-*"):
        if not _history(folder / STATE):
            folder.rename(folder.with_name(ASIDE + folder.name + f"-{attempt.name}"))
    write_json(attempt / BEFORE, {"schema": SCHEMA, "sha256": _states(out)})
    found = sorted(out.glob(f"checkpoint-*/{STATE}"), key=lambda p: int(p.parent.name.rsplit("-", 1)[1]))
    last = found[-1] if found else None
    values: dict[str, Any] = {
        "output_dir": str(out), "num_generations": sizes.n, "per_device_train_batch_size": sizes.n,
        "gradient_accumulation_steps": sizes.B, "max_steps": sizes.M, "learning_rate": sizes.lr,
        "lr_scheduler_type": "constant_with_warmup", "warmup_steps": sizes.warmup, "seed": sizes.seed,
        "logging_steps": 1, "logging_strategy": "steps", "eval_on_start": True, "eval_strategy": "steps",
        "eval_steps": sizes.eval_every, "num_generations_eval": sizes.samples,
        "per_device_eval_batch_size": -(-EVAL_BATCH // sizes.samples) * sizes.samples,      # of whole groups
        "save_strategy": "steps", "save_steps": sizes.eval_every, "save_total_limit": 2,
        "disable_tqdm": True, **({"resume_from_checkpoint": str(last.parent)} if last else {}),
    }
    config = attempt / CONFIG
    shown = {k: json.dumps(v) if isinstance(v, str) else export.shown(v) for k, v in values.items()}
    config.write_text("".join(f"{k}: {v}\n" for k, v in shown.items()))
    options = [word for k, v in values.items() for word in (f"--{k}", str(v))]
    history = _history(last) if last else []
    resumed = int(last.parent.name.rsplit("-", 1)[1]) if last else 0
    return Setup({"config": str(config)}, options, kept={"prefix": len(history), "resumed": resumed})


def logged(log: Path, attempt: Path, launch: Mapping[str, Any], earlier: Sequence[Row]) -> list[Row]:
    """What an attempt has logged: its checkpoints' history, and what it printed. Raises UserError for other
    settings."""
    out, noted = attempt.parent.parent / "trainer", attempt / BEFORE
    before = read_json(noted)["sha256"] if noted.exists() else {}
    own = [out / name for name, digest in _states(out).items() if before.get(name) != digest]
    for state in own:
        _refuse_others(state.with_name(ARGUMENTS), attempt / CONFIG)
    rows = max(map(_history, own), key=len, default=[])[int(launch["prefix"]):]
    done = max((row["step"] for row in rows if "reward" in row), default=launch["resumed"])
    return [*rows, *(row for row in _printed(attempt / OUTPUT, int(launch["resumed"])) if row["step"] > done)]


DRIVE = Drive(
    prepared, logged, lambda rows: HISTORY, words=("config", "options"), log="{out}/" + STATE,
    evaluates="give GRPOTrainer an eval_dataset", saves="call trainer.save_state() behind trainer.train()",
)


def _refuse_others(arguments: Path, config: Path) -> None:
    """Raises UserError for a checkpoint whose arguments are not those of the attempt's configuration."""
    if not (arguments.exists() and config.exists()):
        return
    lines = (line.partition(": ") for line in config.read_text(encoding="utf-8").splitlines())
    asked = {key: float(value) for key, _, value in lines if key in ASKED}
    for key, value in _arguments(arguments).items():
        if key in asked and value != asked[key]:
            raise UserError(
                f"{arguments.parent} was trained with {key} = {value if value is None else format(value, 'g')}, and "
                f"isocost asked for {asked[key]:g}: the script replaces what is in {{config}}; let {{config}} win, as "
                "in GRPOConfig(**{**own, **config})"
            )


def _arguments(path: Path) -> dict[str, float | None]:
    """The numbers of `ASKED` among the arguments that transformers pickled with a checkpoint; empty if it is not whole.

    The pickle is read as a list of operations: nothing is unpickled. An argument is a name, and behind it a value.
    """
    found: dict[str, float | None] = {}
    with suppress(OSError, BadZipFile, KeyError, ValueError), ZipFile(path) as file:
        data = next((name for name in file.namelist() if name.endswith("/data.pkl")), "")
        name = ""
        for op, value, _ in pickletools.genops(file.read(data)):
            if "PUT" in op.name or op.name == "MEMOIZE":    # between a name and its value
                continue
            if name and op.name == "NONE":
                found[name] = None
            elif name and op.name in NUMBERS:
                found[name] = float(str(value))
            name = str(value) if op.name == "BINUNICODE" and value in ASKED else ""
    return found


def _states(out: Path) -> dict[str, str]:
    """The hash of every state in a trainer's folder, by its path there."""
    found: dict[str, str] = {}
    for path in (*out.glob(f"checkpoint-*/{STATE}"), out / STATE):
        with suppress(FileNotFoundError):   # the trainer deletes old checkpoints
            found[str(path.relative_to(out))] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def _history(path: Path) -> list[Row]:
    """The log_history of a state; empty where the file is not whole."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))["log_history"]
    except (OSError, ValueError, KeyError):
        return []
    return [row for row in found if isinstance(row, dict) and "step" in row]


def _printed(path: Path, resumed: int) -> list[Row]:
    """The logged lines that a process printed; they lack the step, which is counted from where it continued."""
    rows: list[Row] = []
    text, step = path.read_text(encoding="utf-8", errors="replace") if path.exists() else "", resumed
    for found in PRINTED.finditer(text):
        try:
            row = ast.literal_eval(found[0])
        except (ValueError, SyntaxError):
            continue
        if not isinstance(row, dict) or not ("reward" in row or any(str(k).startswith("eval_") for k in row)):
            continue
        step += "reward" in row
        rows.append({"step": step, **{str(k): _number(v) for k, v in row.items()}})
    return rows


def _number(value: Any) -> Any:
    try:
        return float(value)
    except (TypeError, ValueError):
        return value
