"""What the small base models can do: pass rates that their config.json states, and numbers of the record's table."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy import ndarray

import lessons
from isocost import chance, methods
from isocost.gather import together
from isocost.parts.play import given, sample
from isocost.runs.evaluate import Evaluation, evaluate
from isocost.steps.settings import setting_with
from isocost.tasks.builtin import puzzles, sums
from isocost.tasks.builtin.drawn import END as ASKED
from isocost.types import Problem, Rollout, Stop
from isocost.worlds.setting import open_setting

Facts = dict[str, Any]


def measured(model: str | Path, samples: int, **setting: Any) -> tuple[Sequence[Problem], Evaluation]:
    """All problems of a setting, and how a model answers them at temperature 1: exactly where that can be computed."""
    opened = open_setting(setting_with(model=str(model), **setting), whole=True)
    s, problems = opened.setting, opened.sides.train
    with torch.inference_mode():
        found = asyncio.run(evaluate(methods.recipe("reinforce"), opened.world, problems, s.measured, samples=samples))
    opened.close()
    return problems, found


def by(key: str, problems: Sequence[Problem], rate: ndarray) -> dict[str, float]:
    """Mean pass rate by a key of the problems' `meta`."""
    of = np.array([p.meta[key] for p in problems])
    return {str(v): round(float(rate[of == v].mean()), 4) for v in np.unique(of).tolist()}


def tenths(rate: ndarray) -> list[int]:
    """How many pass rates lie in each tenth of [0, 1]."""
    return [int(x) for x in np.histogram(rate, 10, (0.0, 1.0))[0]]


def rates_of_sums(folder: Path) -> Facts:
    """Exact pass@1 of every sum of two-digit numbers; rates.json has the table."""
    problems, found = measured(folder, 1, data="sums")
    table = found.right.reshape(90, 90)
    lines = ",\n".join(json.dumps([round(float(p), 4) for p in row], separators=(",", ":")) for row in table)
    (folder / sums.RATES.name).write_text(f'{{"first": 10, "pass_at_1": [\n{lines}\n]}}\n', encoding="utf-8")
    within = {name: int(((found.right >= low) & (found.right <= high)).sum())
              for name, (low, high) in sums.BASES.items() if name in ("easy", "hard")}
    return {"mean": round(found.mean, 4), "levels": list(by("level", problems, found.right).values()),
            "tenths": tenths(found.right), **within, "problems": len(problems)}


def rates_of_puzzles(folder: Path, samples: int = 64, count: int = puzzles.COUNT) -> Facts:
    """Pass@1 of the first `count` default puzzles by kind, level and length; rates.json counts the right samples."""
    data = str(puzzles.Puzzles(count=count))
    problems, found = measured(folder, samples, data=data)
    rollouts = [r for g in found.groups for r in g.rollouts]
    long = np.array([r.segments[-1].written for r in rollouts])
    rates = {"data": data, "samples": samples, "max_tokens": puzzles.TOKENS,
             "right": [round(x * samples) for x in found.right]}
    (folder / "rates.json").write_text(json.dumps(rates) + "\n", encoding="utf-8")
    return {
        "mean": round(found.mean, 4), **{k: by(k, problems, found.right) for k in ("kind", "level", "length")},
        "tenths": tenths(found.right), "never": round(float((found.right == 0).mean()), 4), "problems": len(problems),
        "cut": round(float(np.mean([r.stop == Stop.LENGTH for r in rollouts])), 4),
        "tokens": {"mean": round(float(long.mean()), 1),
                   **{f"{q:g}": int(np.quantile(long, q)) for q in (0.05, 0.25, 0.5, 0.75, 0.95, 0.99)}},
        "samples": samples,
    }


def rates_of_agents(folder: Path, specs: Sequence[str], samples: int, limit: int | None = None) -> Facts:
    """Success, turns and faults in environments, of the first `limit` problems of each."""
    out = {}
    for spec in specs:
        problems, found = measured(folder, samples, env=spec, limit=limit)
        rollouts = [r for g in found.groups for r in g.rollouts]
        turns = sum(len(r.turns) for r in rollouts)
        out[spec] = {
            "problems": len(problems), "mean": round(found.mean, 4), "level": by("level", problems, found.right),
            "tenths": tenths(found.right), "turns": round(turns / len(rollouts), 2),
            "faults_per_turn": round(sum(t.fault is not None for r in rollouts for t in r.turns) / turns, 4),
        }
    return out


def share_of_puzzles(folder: Path) -> dict[str, float]:
    """The share right of the default puzzles, 4 samples each."""
    return {"all puzzles": round(measured(folder, 4, data="puzzles")[1].mean, 4)}


def after_rounds(folder: Path, joint: str) -> dict[str, float]:
    """The share right of additions of 4 digits when the policy answers, and answers again once and twice.

    Without an `END` in the `joint` its end token is taken away, so that the answer goes on after the word.
    """
    out, word = {}, joint.removeprefix(lessons.END)

    async def again(problem: Problem, attempts: Sequence[int], world: Any, pace: Pace, place: Any, start: Any = None, *,
                    rounds: int) -> list[Rollout]:
        said = await sample(problem, attempts, world, pace, place, start)
        for k in range(1, rounds + 1):
            at = replace(place, wave=place.wave + k)

            async def next_one(r: Rollout, at: Any = at) -> list[Rollout]:
                text = r.segments[-1]
                upto = len(text) - (word == joint and int(text.tokens[-1]) in world.text.ends)
                return list(await sample(problem, [r.attempt], world, pace, at,
                                         given(text, upto, world.text.encode(word))))

            said = [r for some in await together(*map(next_one, said)) for r in some]
        return said

    opened = open_setting(setting_with(model=str(folder), data="puzzles:kind=addition,length=2,count=200,seed=7",
                                       max_tokens=64), whole=True)
    for k in range(3):
        recipe = methods.recipe("reinforce").but(play=partial(again, rounds=k))
        with torch.inference_mode():
            found = asyncio.run(evaluate(recipe, opened.world, opened.sides.train, opened.setting.measured, samples=2))
        out[f"after {k}"] = round(found.mean, 4)
    opened.close()
    return out


def shown_answers(folder: Path, count: int = 400) -> None:
    """Additions of 4 digits as dialogues in which an answer with slips was given and is asked for again."""
    rng, out, known = chance.generator(0, chance.Purpose.CHOOSE, 12), [], set[str]()
    while len(out) < count:
        drawn = puzzles.draw(rng, "addition", 1 + int(rng.integers(puzzles.LEVELS)), 2)
        said = lessons.slip_in_addition(rng, drawn, 0.2)
        if drawn.prompt not in known:
            known.add(drawn.prompt)
            prompt = [{"role": "user", "content": drawn.prompt}, {"role": "assistant", "content": said},
                      {"role": "user", "content": ASKED}]
            out.append(json.dumps({"prompt": prompt, "answer": drawn.answer}) + "\n")
    (folder / "shown.jsonl").write_text("".join(out), encoding="utf-8")
