"""verl (0.1 to 0.7): the file logger's JSON lines, {"step": ..., "data": {...}}, or the console's `step:1 - key:value`.

trainer.logger=[console,file] writes PROJECT/EXPERIMENT.jsonl (verl/utils/tracking.py). Steps count from 1; step 0 is
the evaluation before training. With filtered groups (DAPO) a step begins train/num_gen_batches batches of
data.gen_batch_size problems, which no log holds.

Until January 2025 the console counted training steps from 0 (verl/trainer/ppo/ray_trainer.py at v0.1): line `step:0`
is the first update, and an evaluation in a line is of the policy after that line's update. The evaluation before
training is printed as `Initial validation metrics: {...}`, in most versions also as a line `step:0` of its own; the one
at the end as `Final validation metrics: {...}`. Those two have the columns test_score/SET where others have
val/test_score/SET. Until July 2025 the console rounds to three decimals (verl/utils/logger/aggregate_logger.py), and
in v0.1 the learning rate is `actor/lr(1e-4)`, in units of 1e-4. The configuration is printed before the first step, and
is read for n, B and learning rate; nothing of it is executed.

Writing: a launch line of Hydra overrides for verl.trainer.main_ppo.

Driving: the same overrides, and those of evaluations, checkpoints and the file log. The logger opens its file for
writing, so a resumed run would empty it (verl/utils/tracking.py): every attempt has a file of its own. A run that
continues evaluates its checkpoint again (val_before_train). There is no seed besides data.seed: nothing repeats
exactly.

train_batch_size and ppo_mini_batch_size count problems (prompts); each is sampled rollout.n times.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isocost.errors import UserError
from isocost.trainers.driving import export
from isocost.trainers.driving.drive import Begin, Drive, Setup, checkpoints, marked, quoted
from isocost.trainers.reading.logs import Log, Row
from isocost.trainers.reading.names import Names, Settings, facts_of
from isocost.trainers.reading.points import logs_of
from isocost.trainers.reading.text import cell, head, json_rows, number

TITLE = "verl"
SIZES = (
    "actor_rollout_ref.rollout.n = {n}",
    "data.train_batch_size = {B}",
    "trainer.total_training_steps = {M}",
)
READS = "verl file or console log"
GIVES = "training and held-out reward, steps, learning rate, seconds, answer lengths; n and B where a console has them"
LACKS = "n and B in the file log; seed; rollouts before filtering; a second held-out half"
BATCHES = "train/num_gen_batches"
TRAINED = ("critic/", "actor/")  # a line with a column that begins so is of an update
LINE = re.compile(r"(?:^|\s)step:(\d+) - (\S+:.*)$")
# What Ray and the terminal put before a line: colours, and the process that wrote it.
PREFIX = re.compile(r"^(?:\x1b\[[0-9;]*m)*(\([\w ]*pid=[^)]*\))?(?:\x1b\[[0-9;]*m)* ?")
CONFIG, INITIAL, FINAL = "{'actor_rollout_ref'", "Initial validation metrics: ", "Final validation metrics: "
LONGEST = 2_000  # lines that one printed value may take
TEST = "test_score/"
RATES = {"actor/lr": 1.0, "actor/lr(1e-4)": 1e-4}  # column -> its unit
ROUNDED = re.compile(r"\d+\.\d{3}")  # how the console writes a number that it has rounded to three decimals
HALF = 0.5e-3  # how far from the number such a text may be
SETTINGS = Settings(
    n=("actor_rollout_ref.rollout.n",), problems=("data.train_batch_size",),
    lr=("actor_rollout_ref.actor.optim.lr",), seed=("data.seed",), model=("actor_rollout_ref.model.path",),
    temperature=("actor_rollout_ref.rollout.temperature",), max_tokens=("data.max_response_length",),
    top_p=("actor_rollout_ref.rollout.top_p",), top_k=("actor_rollout_ref.rollout.top_k",),
    warmup=("actor_rollout_ref.actor.optim.lr_warmup_steps",), method=("algorithm.adv_estimator",),
)
LOGGED = Names(
    "verl",
    "step",
    (r"critic/score/mean", r"critic/rewards/mean"),
    (r"val-core/.+/acc/mean@\d+", r"val-core/.+/reward/mean@\d+", r"val/test_score/.+"),
    lr="actor/lr",
    epoch="training/epoch",
    span="perf/time_per_step",
    again=True,
    length="response_length/mean",
    more={
        "entropy": "actor/entropy",
        "grad_norm": "actor/grad_norm",
        "kl": "actor/ppo_kl",
        "completions/mean_length": "response_length/mean",
        "completions/max_length": "response_length/max",
        "completions/clipped_ratio": "response_length/clip_ratio",
    },
)
NAMES = (LOGGED,)


def recognise(path: Path) -> bool:
    return path.is_file() and (_is_lines(path) or any(map(LINE.search, head(path, 200_000).splitlines())))


def read(path: Path, columns: Mapping[str, str]) -> list[Log]:
    if not path.is_file():
        raise UserError(f"{path} is a folder; name verl's .jsonl of one run, or its console output")
    if _is_lines(path):
        rows, missing = _lines(path)
        printed: Any = None
        rounding: dict[str, float] = {}
    else:
        lines = [_Line.of(x) for x in path.read_text(encoding="utf-8", errors="replace").splitlines()]
        rows, rounding = _console(lines)
        missing, printed = [], _printed(lines, CONFIG)
    facts, about = facts_of(printed if isinstance(printed, dict) else {})
    uncounted = (
        f"{BATCHES} counts batches of a size that the log does not hold, so more were started than C = steps x n x B"
        if any(BATCHES in row for row in rows)
        else "if groups were filtered (DAPO), more were started than steps x n x B"
    )
    return logs_of(
        "verl",
        path,
        [path],
        rows,
        LOGGED,
        columns,
        facts=facts,
        about=about,
        missing=missing,
        uncounted=uncounted,
        rounding={} if "lr" in facts else rounding,
    )


def _is_lines(path: Path) -> bool:
    text = head(path, 200)
    return text.startswith('{"step":') and '"data":' in text


def _lines(path: Path) -> tuple[list[Row], list[str]]:
    rows, left = json_rows(path)
    return [{"step": row.get("step"), **(row.get("data") or {})} for row in rows], left


@dataclass(frozen=True)
class _Line:
    """A line of a console without what stands before it: `who` wrote it, as Ray names the process, and its `text`."""

    who: str
    text: str

    @staticmethod
    def of(line: str) -> _Line:
        found = PREFIX.match(line)
        return _Line((found and found[1]) or "", line[found.end() :] if found else line)


def _console(lines: Sequence[_Line]) -> tuple[list[Row], dict[str, float]]:
    """(rows whose steps are the updates made, how far from its text the learning rate may be)."""
    found = [(float(m[1]), m[2]) for line in lines if (m := LINE.search(line.text))]
    parsed = [(step, _cells(text)) for step, text in found]
    trained = [step for step, row in parsed if any(k.startswith(TRAINED) for k in row)]
    shift = 1.0 if trained and trained[0] == 0 else 0.0
    start = made = trained[0] + shift - 1 if trained else 0.0  # above 0 where the run was resumed
    base, end = (_test_scores(_printed(lines, text)) for text in (INITIAL, FINAL))
    rows: list[Row] = [{"step": start, **base}] if base else []
    for step, row in parsed:
        update = any(k.startswith(TRAINED) for k in row)
        made = step + shift if update else made if trained else step
        if update or not (rows and rows[-1]["step"] == made and _repeats(rows[-1], row)):
            rows.append({"step": made, **row})
    if end and rows and not any(row["step"] == made and end.keys() & row.keys() for row in rows):
        rows.append({"step": made, **end})
    rounded = [
        unit
        for column, unit in RATES.items()
        if any(ROUNDED.fullmatch(_texts(text).get(column, "")) for _, text in found)
    ]
    return rows, {"lr": HALF * max(rounded)} if rounded else {}


def _repeats(before: Row, row: Row) -> bool:
    """Whether an evaluation says no more than the one before it, to the digits that the console keeps."""
    pairs = [(number(before.get(k)), number(v)) for k, v in row.items()]
    return all(a is not None and b is not None and abs(a - b) <= 2 * HALF for a, b in pairs)


def _texts(line: str) -> dict[str, str]:
    """Column -> text of a `key:value - key:value` line."""
    return {k: v.strip() for k, _, v in (part.rpartition(":") for part in line.split(" - "))}


def _cells(line: str) -> Row:
    """The numbers of a line, plain or in numpy's spelling, under today's names."""
    row: Row = {}
    for key, text in _texts(line).items():
        if key in RATES:
            value = number(cell(text))
            # A rate that the console rounded to 0.000 is not known.
            if value is not None and not (ROUNDED.fullmatch(text) and value < HALF):
                row["actor/lr"] = float(f"{value * RATES[key]:.12g}")
            continue
        row[_today(key)] = cell(re.sub(r"^np\.\w+\((.*)\)$", r"\1", text))
    if LOGGED.span not in row:
        parts = [x for k, v in row.items() if k.startswith("timing/") and (x := number(v)) is not None]
        span = number(row.get("timing_s/step")) or sum(parts)
        row |= {LOGGED.span: span} if span else {}
    return row


def _today(key: str) -> str:
    return f"val/{key}" if key.startswith(TEST) else key


def _test_scores(said: Any) -> Row:
    """The metrics of a printed `Initial validation metrics: {...}`; none where they cannot be read."""
    if not isinstance(said, str):
        return {}
    text = re.sub(r"np\.\w+\(([^()]*)\)", r"\1", said.partition(": ")[2])
    try:
        found = ast.literal_eval(re.sub(r"(?<![\w'/.-])(nan|-?inf)(?![\w'/.-])", "None", text))
    except (ValueError, SyntaxError):
        return {}
    return {_today(k): x for k, v in found.items() if (x := number(v)) is not None} if isinstance(found, dict) else {}


def _printed(lines: Sequence[_Line], start: str) -> Any:
    """The first literal printed with pprint that begins with `start`; None without one. Nothing is executed."""
    for i, line in enumerate(lines):
        text = line.text.lstrip()
        if not text.lstrip("(\"'").startswith(start.lstrip("(\"'")):
            continue
        if text.startswith((INITIAL, FINAL)):  # printed without pprint
            return text
        for own in (x for x in lines[i + 1 : i + LONGEST] if x.who == line.who):
            value = _literal(text)
            if value is not None:
                return value
            text += "\n" + own.text
        return _literal(text)
    return None


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None


# writing a configuration ---------------------------------------------------------------------------------------

VERSION = "verl 0.7 (verl/trainer/config/_generated_ppo_trainer.yaml)"
DEFAULTS = {
    "max_tokens": ("data.max_response_length", "512"),
    "temperature": ("actor_rollout_ref.rollout.temperature", "1"),
    "top_p": ("actor_rollout_ref.rollout.top_p", "1"),
    "top_k": ("actor_rollout_ref.rollout.top_k", "-1"),
}
AVERAGES = {
    "rollout": "seq-mean-token-mean",
    "token": "token-mean",
    "sum": "seq-mean-token-sum",
    "length": "seq-mean-token-sum-norm",
    "prompt": "token-mean",
}
LOSSES = {"clipped": "vanilla", "sequence": "gspo", "truncated": "cispo", "reinforce": "gpg"}
KL = {"k1": "kl", "k2": "mse", "k3": "low_var_kl"}


def write(p: export.Prescription) -> str:
    values, left = settings(p)
    how = [
        "Give it actor_rollout_ref.model.path, actor_rollout_ref.rollout.name, data.train_files, data.val_files",
        "and your reward.",
        "To bring the run back with `isocost import`: trainer.logger=[console,file], "
        "trainer.val_before_train=true and trainer.test_freq.",
    ]
    words = ["python3 -m verl.trainer.main_ppo", *export.options(values)]
    return export.preamble(p, sys.modules[__name__], how, left) + export.command(words)


def settings(p: export.Prescription) -> tuple[dict[str, Any], list[str]]:
    """(overrides, what they cannot express)."""
    actor, rollout = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
    loss = p.loss
    values: dict[str, Any] = {
        "data.train_batch_size": p.B,
        "data.max_response_length": p.max_tokens,
        "data.seed": p.seed,
        f"{rollout}.n": p.n,
        f"{rollout}.temperature": p.temperature,
        f"{rollout}.top_p": p.top_p,
        f"{rollout}.top_k": export.top_k(p),
        f"{actor}.ppo_mini_batch_size": p.B,
        f"{actor}.ppo_epochs": 1,
        f"{actor}.optim.lr": float(p.lr),
        f"{actor}.optim.lr_scheduler_type": "constant",
        f"{actor}.optim.lr_warmup_steps": p.warmup,
        "trainer.total_training_steps": p.M,
        "trainer.total_epochs": export.epochs(p),
    }
    left = [*export.uncounted(p), *export.unsaid(p, DEFAULTS)]
    if loss is None:
        return values, left
    values |= {
        "algorithm.adv_estimator": export.estimator(loss),
        "algorithm.norm_adv_by_std_in_grpo": loss.advantage == "spread",
        "algorithm.use_kl_in_reward": False,
        f"{actor}.policy_loss.loss_mode": LOSSES[loss.surrogate],
        f"{actor}.loss_agg_mode": AVERAGES[loss.average],
        f"{actor}.entropy_coeff": loss.entropy,
        f"{actor}.use_kl_loss": bool(loss.kl),
        f"{actor}.ppo_epochs": loss.epochs,
        f"{actor}.ppo_mini_batch_size": export.minibatch(p, loss),
    }
    if loss.surrogate != "reinforce":
        values |= {f"{actor}.clip_ratio_low": loss.low, f"{actor}.clip_ratio_high": loss.high}
    if loss.surrogate == "truncated":
        values[f"{actor}.clip_ratio_low"], values[f"{actor}.clip_ratio_high"] = export.cispo_range(loss)
    if loss.surrogate == "clipped":
        values[f"{actor}.clip_ratio_c"] = loss.dual or 10.0
        if not loss.dual:
            left.append("no dual clip: verl always has one, here without effect (clip_ratio_c=10)")
    if loss.kl:
        values |= {f"{actor}.kl_loss_coef": loss.kl, f"{actor}.kl_loss_type": KL[loss.estimate]}
    left += export.group_baseline(loss, "grpo's")
    if loss.cap is not None:
        values |= {
            "algorithm.rollout_correction.rollout_is": "token",
            "algorithm.rollout_correction.rollout_is_threshold": loss.cap,
            f"{rollout}.calculate_log_probs": True,
        }
    if loss.average == "prompt":
        left.append("the average per prompt: token-mean averages over all tokens of the batch")
    if loss.average == "length":
        values[f"{actor}.loss_scale_factor"] = loss.tokens
    left += export.unmixed(loss, "in verl that is the DAPO recipe's trainer (algorithm.filter_groups)")
    return values, [*left, *export.aged(loss, "main_ppo is synchronous"), *loss.odd]


# driving -------------------------------------------------------------------------------------------------------

PATH = "VERL_FILE_LOGGER_PATH"  # the environment variable that names the file log


def prepared(begin: Begin) -> Setup:
    """The overrides of an attempt; it continues from the newest checkpoint that is whole and skips no evaluation."""
    values, _ = settings(begin.prescription())
    log, every = begin.folder / LOG, begin.sizes.eval_every
    whole = marked(begin.out / "latest_checkpointed_iteration.txt")
    there = {c: p for c, p in checkpoints(begin.out, "global_step_", "actor").items() if c <= whole}
    last = begin.newest(there, again=True)
    values |= {
        "trainer.logger": "[console,file]", "trainer.experiment_name": quoted(Path(begin.sizes.name)),
        "trainer.val_before_train": True, "trainer.test_freq": every, "trainer.save_freq": every,
        "actor_rollout_ref.rollout.val_kwargs.n": begin.sizes.samples,
        "trainer.default_local_dir": quoted(begin.out),
        "trainer.resume_mode": "disable" if last is None else "resume_path",
        "trainer.resume_from_path": None if last is None else quoted(there[last]),
        f"+ray_kwargs.ray_init.runtime_env.env_vars.{PATH}": quoted(log),
    }
    return Setup(options=export.options(values), env={PATH: str(log)}, kept={"newest": max(there, default=0)})


def logged(log: Path, folder: Path, launch: Mapping[str, Any], earlier: Sequence[Row]) -> list[Row]:
    """The lines of an attempt's own file log; its last one may be unfinished."""
    return _lines(log)[0] if log.exists() else []


LOG = "verl.jsonl"
DRIVE = Drive(
    prepared, logged, lambda rows: LOGGED, log="{folder}/" + LOG,
    lacks=("a seed that repeats a run: data.seed orders the problems, and sampling has none of its own",),
)
