"""A profile of completions that were sampled before, without a model at hand."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from isocost.errors import UserError
from isocost.planner.token_price import TokenPrice
from isocost.runs import files as records
from isocost.runs import measure
from isocost.runs.measure import UNNAMED
from isocost.runs.source import STORED
from isocost.screen.words import counted
from isocost.stats import passk as passrate
from isocost.steps.folder import check, found, restart, writes
from isocost.steps.study import StudyRecord
from isocost.steps.training.pass_rates import SHOWN, lengths_of, with_recipe
from isocost.steps.training.profile import ProfileResult
from isocost.tasks.completions import Attempted, Completions, read_completions
from isocost.types import Cost
from isocost.worlds.setting import Setting

SHOWN_ATTEMPTS = 8      # of an example
LEAST, MOST = 2, 512    # attempts per problem: time and memory of the tables grow with their square
RULE = passrate.RULE


@writes(new=True)
def profile_completions(
    out: Path, file: Path, *, columns: Sequence[str] = (), scale: tuple[float, float] | None = None, seed: int = 0,
    method: str | None = None, parameters: float | None = None, price: str | None = None, **setting: Any,
) -> ProfileResult:
    """Start a study in `out` from stored completions: pass@k, dead groups, lengths and the recipe that follows.

    columns: NAME=COLUMN where a column has another name than usual. scale: the least and the largest reward, by default
    0 and 1; figures are from 0 to 1. parameters: the model's size; price: per token.
    **setting: fields of `Setting`. model: what wrote them, as a label. held_out: the share of the problems, or their
    number, that training will hold out. skip_broken. samples: of an evaluation. temperature, top_p, top_k, max_tokens:
    how they were sampled, and how training will sample; by default 1, 1, all, and the longest completion.

    Every problem counts with the same number of attempts: the number that uses most of the completions. Problems with
    fewer are left out, and so are attempts beyond it; `found` says how many.

    Raises UserError for a file that cannot be used, which leaves no study; and where `out` already contains a study
    with different settings.
    """
    began = time.perf_counter()
    if incomplete := next((c for c in columns if "=" not in c), None):
        raise UserError(f"--map takes NAME=COLUMN, such as reward=is_correct, not {incomplete!r}")
    mapped = dict(c.split("=", 1) for c in columns)
    cost = None if price is None else TokenPrice.parse(price)
    given = {k: v for k, v in setting.items() if v is not None}
    there = read_completions(file, mapped, skip_broken=given.get("skip_broken", False), scale=scale or measure.UNIT)
    own = Setting.of({"model": UNNAMED, "data": str(file), "max_tokens": longest(there), **given})
    asked: dict[str, Any] = {"seed": seed, "method": method, "profiled": len(there.problems), "source": STORED.name,
             "columns": dict(sorted(mapped.items())), "digest": records.file_hash(file)}
    if scale is not None:
        asked["scale"] = list(scale)
    restart(out, own, **asked)
    check(out, own, **asked)
    if not (out / "profile.json").exists():
        described = _described(there, file, seed, own.problems.held_out)
        described |= {"model": own.model, "parameters": parameters}
        if "temperature" not in given:
            described["found"].append("temperature 1 assumed: --temperature names the one they were sampled at")
        if cost is not None:
            described["money"] = cost.of(_total(there)).data()
        whole = with_recipe(described, method)
        with found(out, own, **asked).phase("profile", began):
            StudyRecord.read(out).write("profile.json", whole)
    return ProfileResult.of(StudyRecord.read(out).record("profile.json", "profile"), out)


def _described(there: Completions, file: Path, seed: int, held_out: float) -> dict[str, Any]:
    """The data of profile.json, without the model and the recipe."""
    scored = [_scored(p) for p in there.problems]
    m = attempts_per_problem(file, [len(p.attempts) for p in scored])
    used = [p for p in scored if len(p.attempts) >= m]
    rewards = np.array([[a.reward for a in p.attempts[:m]] for p in used], dtype=float)
    every = [a for p in there.problems for a in p.attempts]
    tokens = np.array([a.tokens for a in every if a.tokens is not None])
    cut = [a.cut for a in every if a.cut is not None]
    prompts = [p.prompt_tokens for p in there.problems if p.prompt_tokens is not None]
    total = _total(there)
    held = _held(held_out, len(there.problems))
    lengths = None
    if len(tokens):
        lengths = lengths_of(tokens, float(np.mean(cut)) if cut else None)
        lengths["prompt"] = float(np.mean(prompts)) if prompts else None
    return {
        "problems": len(there.problems), "pool": len(there.problems) - held, "select": held // 2,
        "audit": held - held // 2, "ids": [p.id for p in used], "levels": [p.level for p in used],
        "unscored": len(every) - sum(len(p.attempts) for p in scored),
        **passrate.summary(rewards, seed=seed), "lengths": lengths, "exact": False, "rate": None,
        "stored": {
            "file": str(file), "sha256": records.file_hash(file), "completions": len(every),
            "read": total.prefill if prompts else None, "written": total.decode if len(tokens) else None,
        },
        "found": [*there.report.lines(), *_left_out(scored, used, m), *_lacking(there, len(tokens), len(every), m)],
        "cost": Cost().data(), "lost": Cost().data(), "seconds": 0.0,
        "examples": [_example(p) for p in used[:SHOWN]],
    }


def _scored(p: Attempted) -> Attempted:
    """The problem with the attempts that have a reward."""
    return Attempted(p.id, p.prompt, p.level, p.prompt_tokens, tuple(a for a in p.attempts if a.reward is not None))


def attempts_per_problem(file: Path, counts: Sequence[int]) -> int:
    """The number of attempts per problem that uses most completions, at most `MOST`. Raises UserError if no problem has
    two."""
    many = Counter(counts)
    tried = {min(k, MOST) for k in many if k >= LEAST}
    best = max(tried, key=lambda m: (m * sum(k >= m for k in counts), m), default=0)
    if not best:
        raise UserError(f"{file} has no problem with {LEAST} attempts or more that have a reward: a profile needs "
                        "several attempts per problem, in rows with the same value in the problem's column (--map "
                        "problem=COLUMN)")
    return best


def _left_out(scored: Sequence[Attempted], used: Sequence[Attempted], m: int) -> list[str]:
    lines = []
    if few := len(scored) - len(used):
        rest = sum(len(p.attempts) for p in scored) - sum(len(p.attempts) for p in used)
        lines.append(f"{counted(few, 'problem')} with fewer than {m} attempts left out, {counted(rest, 'completion')}")
    if beyond := sum(len(p.attempts) - m for p in used):
        lines.append(f"attempts beyond {m} of a problem not used: {counted(beyond, 'completion')}")
    return lines


def _lacking(there: Completions, with_tokens: int, every: int, m: int) -> list[str]:
    """What the file does not hold, and what that means."""
    lines = []
    if not with_tokens:
        lines.append("no token counts, so lengths and cost in tokens are not known: --map tokens=COLUMN")
    elif with_tokens < every:
        lines.append(f"token counts of {with_tokens} of {every} completions: lengths are of these")
    if m < RULE:
        lines.append(f"{counted(m, 'attempt')} per problem: the regime's rule (at most one right of {RULE}) is applied "
                     f"to {m}, which makes sets seem harder")
    return lines


def _total(there: Completions) -> Cost:
    """Tokens of all completions, as their file counts them: each attempt read its prompt."""
    read = sum((p.prompt_tokens or 0) * len(p.attempts) for p in there.problems)
    written = sum(a.tokens or 0 for p in there.problems for a in p.attempts)
    return Cost(sum(len(p.attempts) for p in there.problems), read, written)


def longest(there: Completions) -> int:
    """Tokens of the longest completion; 0 where none was counted."""
    return max((a.tokens or 0 for p in there.problems for a in p.attempts), default=0)


def _held(held_out: float, problems: int) -> int:
    """How many problems training will hold out. Raises UserError if none are left."""
    held = round(held_out) if held_out >= 1 else round(held_out * problems)
    if not 0 <= held < problems:
        raise UserError(f"--held-out {held_out:g} of {counted(problems, 'problem')} leaves none to train on")
    return held


def _example(p: Attempted) -> Mapping[str, Any]:
    attempts = [{"text": a.text, "reward": a.reward, "stop": "length" if a.cut else "done"}
                for a in p.attempts[:SHOWN_ATTEMPTS]]
    return {"step": 0, "id": p.id, "variant": "", "prompt": p.prompt, "attempts": attempts}
