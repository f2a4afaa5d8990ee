"""prime-rl (0.8): `metrics.jsonl` of the orchestrator's file monitor, which is on by default.

One row per step and one per evaluation: {"step": ..., "time": ..., metrics}. `progress/rollouts` counts all rollouts
that returned in a step, before any filter, so C is counted. Training reward is `train/agg/all/AGENT/reward/mean`, of
all that returned; held-out reward `eval/ENV/effective/AGENT/avg@k`, of those without an error. Training is
asynchronous: the policy of an evaluation is its `policy_version`, the number of updates it had; training reward at
step s is of a policy with s - 1 updates or a few fewer. n, B and learning rate are in `configs/rl.json` beside it, or
in the TOML file that was launched.

Writing: a TOML file for `uv run rl @ FILE`, on top of one that names the model and the environments.

orchestrator.batch_size counts rollouts (nB); group_size is n. Warm-up then constant is its linear schedule without
decay.

Driving: {config} is such a file, with the run's folder, evaluations and checkpoints, which are off by default. Every
attempt appends to one metrics.jsonl. An evaluation that is due at step u is started once batch u - 1 is sent to the
trainer (prime_rl/orchestrator/orchestrator.py, maybe_trigger_eval), which may be two updates behind by then, so its
policy had u - 3 to u - 1 updates (`policy_version`).
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from isocost.errors import UserError
from isocost.trainers.driving.drive import Begin, Drive, Setup, appended, checkpoints
from isocost.trainers.driving.export import Prescription, preamble, shown, unsaid
from isocost.trainers.reading.logs import Log, Row
from isocost.trainers.reading.names import Names, Settings, facts_of
from isocost.trainers.reading.points import logs_of
from isocost.trainers.reading.text import head, json_of, json_rows, metrics_file, metrics_of

TITLE = "prime-rl"
SIZES = ("group_size = {n}", "batch_size = {nB}", "max_steps = {M}")
READS = "prime-rl metrics.jsonl"
GIVES = "training and held-out reward, steps, rollouts before filtering, seconds; n, B and rate from its configuration"
LACKS = "seed; a second held-out half; how old each rollout was"
PLACES = ("metrics.jsonl", "orchestrator/metrics.jsonl")
SETTINGS = Settings(
    n=("orchestrator.group_size", "group_size"), rollouts=("orchestrator.batch_size",), lr=("trainer.optim.lr",),
    model=("model.name",), temperature=("orchestrator.train.sampling.temperature",),
    max_tokens=("orchestrator.train.sampling.max_completion_tokens",), warmup=("trainer.scheduler.warmup_steps",),
    schedule=("trainer.scheduler.type",),
)
LOGGED = Names(
    "prime-rl",
    "step",
    (r"train/agg/all/[^/]+/reward/mean", r"reward/all/mean", r"reward/mean"),
    (r"eval/.+/effective/[^/]+/avg@\d+", r"eval/.+/avg@\d+"),
    lr="optim/lr",
    span="time/step",
    length="train/agg/all/num_output_tokens/mean",
    per_step="progress/rollouts",
    policy=r"eval/.+/policy_version",
    appends=True,
)
NAMES = (LOGGED,)
UNCOUNTED = f"the log has no {LOGGED.per_step}, and C is steps x n x B"


def recognise(path: Path) -> bool:
    found = metrics_file(path, PLACES)
    if found is None:
        return False
    text = head(found)
    return text.startswith("{") and ('"train/agg/' in text or '"progress/total_rollouts"' in text)


def read(path: Path, columns: Mapping[str, str]) -> list[Log]:
    found, name = metrics_of(path, "prime-rl's file monitor writes it into the output folder", PLACES)
    rows, missing = json_rows(found)
    folder = found.parent
    configs = [p for p in (folder / "configs" / "rl.json", folder / "rl.toml") if p.is_file()][:1]
    facts, about = facts_of(_config(configs))
    missing.append("how old each rollout was: training is asynchronous, and its reward is placed at steps - 1")
    return logs_of(
        "prime-rl",
        found,
        [found, *configs],
        rows,
        LOGGED,
        columns,
        facts=facts,
        about=about,
        missing=missing,
        uncounted="" if any(LOGGED.per_step in row for row in rows) else UNCOUNTED,
        name=name,
    )


def _config(paths: list[Path]) -> dict[str, Any]:
    """The options of a run, from what prime-rl resolved them to or from the file that was launched."""
    for path in paths:
        if path.suffix == ".json":
            found = json_of(path)
            return found if isinstance(found, dict) else {}
        try:
            return tomllib.loads(path.read_text(encoding="utf-8"))
        except tomllib.TOMLDecodeError as e:
            raise UserError(f"{path} is not TOML: {e}") from None
    return {}


# writing a configuration ---------------------------------------------------------------------------------------

VERSION = "prime-rl 0.8 (packages/prime-rl-configs/src/prime_rl/configs)"
DEFAULTS = {
    "max_tokens": ("max_completion_tokens", "unset (up to the model's context)"),
    "temperature": ("temperature", "1"),
    "top_p": ("top_p", "1"),
    "top_k": ("top_k", "-1"),
}


def write(p: Prescription) -> str:
    tables, left = settings(p)
    how = ["Give it [model] and [[orchestrator.train.source]]; for `isocost import`, [orchestrator.eval] too."]
    return preamble(p, sys.modules[__name__], how, left) + _text(tables)


def _text(tables: dict[str, dict[str, Any]]) -> str:
    """The tables as TOML; the one without a name comes first."""
    text = "".join(f"{k} = {_toml(v)}\n" for k, v in tables.pop("").items() if v is not None)
    for name, table in tables.items():
        rows = "".join(f"{k} = {_toml(v)}\n" for k, v in table.items() if v is not None)
        text += f"\n[{name}]\n{rows}" if rows else ""
    return text


def settings(p: Prescription) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """(tables of the file, what they cannot express)."""
    tables: dict[str, dict[str, Any]] = {
        "": {"max_steps": p.M},
        "orchestrator": {"batch_size": p.nB, "group_size": p.n},
        "orchestrator.train.sampling": {"temperature": p.temperature, "max_completion_tokens": p.max_tokens},
        "trainer.optim": {"lr": float(p.lr)},
        "trainer.scheduler": {"type": "linear", "warmup_steps": p.warmup, "decay_steps": 0},
    }
    extra = {"top_p": p.top_p if p.top_p not in (None, 1.0) else None, "top_k": p.top_k or None}
    tables["orchestrator.train.sampling.extra_body"] = extra
    left = [f"seed {p.seed}: the standard sampler takes none", *unsaid(p, DEFAULTS)]
    if p.loss is None:
        return tables, left
    loss = p.loss
    tables["orchestrator"]["max_off_policy_steps"] = loss.max_age
    tables["orchestrator.algo"] = {"type": "grpo"}
    tables["orchestrator.train"] = {"filter_zero_advantages": loss.keep_mixed}
    tables["trainer.loss"] = {"type": "default"} | ({"kl_tau": 0.0} if not loss.kl else {})
    left.append(
        f"the {loss.surrogate} surrogate [{loss.low:g}, {loss.high:g}] and its average per {loss.average}: prime-rl "
        "masks by probability difference (dppo_mask_low, dppo_mask_high) and averages over tokens"
    )
    if loss.advantage == "spread":
        left.append("the spread in the advantage: prime-rl's grpo is r - mean r")
    elif loss.advantage != "mean":
        left.append(f"the baseline ({loss.advantage}): prime-rl's grpo is r - mean r")
    if loss.kl:
        left.append(f"KL {loss.kl:g} to the start of the run: kl_tau is of the policy that sampled")
    if loss.entropy:
        left.append(f"the entropy bonus {loss.entropy:g}")
    if loss.cap is not None:
        left.append(f"the cap {loss.cap:g} on learner over sampler: its loss handles that in its own way")
    if loss.epochs * loss.minibatches > 1:
        left.append(f"{loss.epochs * loss.minibatches} updates per batch: prime-rl makes one")
    if loss.refill:
        left.append("refilling the batch: filtered tokens are dropped after the batch is collected")
    return tables, left + list(loss.odd)


def _toml(x: Any) -> str:
    return json.dumps(x, ensure_ascii=False) if isinstance(x, str) else shown(x)


# driving -------------------------------------------------------------------------------------------------------

RUN = "run"         # the run's folder in {out}
DUE = 3             # updates that the policy of an evaluation may be behind the step at which it is due
VERSION_OF = re.compile(LOGGED.policy)
DRIVEN = replace(LOGGED, policy="", appends=False, again=True)


def prepared(begin: Begin) -> Setup:
    """Write an attempt's configuration, {config}; without a checkpoint it begins anew in an empty folder (`clean`)."""
    tables, _ = settings(begin.prescription())
    tables.pop("orchestrator.train.sampling", None)
    there = checkpoints(begin.out / RUN / "checkpoints", "step_", "trainer", "orchestrator")
    last = begin.newest(there, again=True)
    tables[""] |= {"output_dir": str(begin.out), "clean": True if last is None and begin.attempt else None}
    tables |= {
        "run": {"name": begin.sizes.name, "dir": RUN},
        "ckpt": {"interval": begin.every, "keep_last": 2},
        "resume": {"step": last},
        "orchestrator.eval": {"interval": begin.every, "group_size": begin.sizes.samples, "skip_first_step": False,
                              "retrigger_on_resume": True},
    }
    config = begin.folder / "config.toml"
    config.write_text(_text(tables), encoding="utf-8")
    return Setup({"config": str(config)}, kept={"newest": max(there, default=0)})


def logged(log: Path, folder: Path, launch: Mapping[str, Any], earlier: Sequence[Row]) -> list[Row]:
    """The lines since the attempt began; an evaluation is at the step at which it was due, that of the base at 0."""
    rows = appended(log, folder, launch, earlier)
    base = [row.get("step") == 1 and any(VERSION_OF.fullmatch(k) and v == 0 for k, v in row.items()) for row in rows]
    return [{**row, "step": 0} if first else row for row, first in zip(rows, base, strict=True)]


DRIVE = Drive(
    prepared, logged, lambda rows: DRIVEN, words=("config",), log="{out}/" + RUN + "/metrics.jsonl",
    lacks=(
        f"evaluations of exactly the asked-for policies: the policy of one after update u had u - {DUE} to u - 1 "
        "updates, since training is asynchronous",
        "a seed: the standard sampler takes none, so runs of one seed are not paired",
    ),
)
