"""Profile: what a policy can do on a problem set before anything is spent on training."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from isocost import meter as meters
from isocost import methods
from isocost.chance import Purpose
from isocost.evaluate import Evaluation, evaluate
from isocost.laws import passrate
from isocost.run import samples
from isocost.seams import Pace
from isocost.setting import Opened, Setting, open_setting
from isocost.types import Problem, Sampling, Stop

SAMPLES = 16  # per problem
PROBLEMS = 512  # profiled at most: enough for a histogram, and a fixed cost


async def profile(
    setting: Setting, *, seed: int = 0, problems: int = PROBLEMS, opened: Opened | None = None
) -> dict[str, Any]:
    """Sample each of the first `problems` training problems 16 times and describe what came back.

    Difficulty is assigned on one half of the samples and reported on the other. Returns the data of profile.json:
    counts, histogram, dead groups, lengths, regime, the recipe that follows, and which methods' preconditions hold.
    Raises UserError for problems or a model that cannot be used.
    """
    began = time.perf_counter()
    opened = opened or open_setting(setting, check=True)
    pool = opened.sides.train[:problems]
    try:
        found = await _sampled(opened, pool, seed)
    finally:
        opened.grader.close()
    marks = _marks(found)
    scored = ~np.isnan(marks).any(1)
    seconds = opened.world.meter.of(meters.PROBE).seconds
    cost = opened.world.meter.of(meters.PROBE)
    described = {
        "model": setting.model,
        "parameters": opened.world.learner.parameters,
        "problems": len(pool),
        "pool": len(opened.sides.train),
        "select": len(opened.sides.select),
        "audit": len(opened.sides.audit),
        "ids": [p.id for p, ok in zip(pool, scored, strict=True) if ok],
        "levels": [p.meta.get("level") for p, ok in zip(pool, scored, strict=True) if ok],
        "unscored": found.unscored,
        "verifier_failures": dict(opened.grader.failures),
        **passrate.summary(marks[scored] > 0.5, seed=seed),
        "lengths": _lengths(found),
        "exact": opened.world.exact is not None,
        "solutions": float(np.mean([bool(p.meta.get("solution")) for p in pool])),
        "rate": {
            "rollouts_per_second": round(cost.rollouts / max(seconds, 1e-9), 2),
            "tokens_per_second": round((cost.prefill + cost.decode) / max(seconds, 1e-9), 1),
        },
        "found": opened.problems.report.lines(),
        "cost": cost.data(),
        "seconds": round(time.perf_counter() - began, 2),
        "examples": samples(found.groups[:6], 0),
    }
    return described | {"methods": preconditions(described)}


def preconditions(profile: dict[str, Any]) -> list[dict[str, str]]:
    """Every method there is, and whether its preconditions hold here: holds, fails or not measured."""
    rows = ((name, *methods.needs(name, profile)) for name in methods.names())
    return [{"name": name, "state": state, "why": why} for name, state, why in rows]


async def _sampled(opened: Opened, pool: tuple[Problem, ...], seed: int) -> Evaluation:
    setting = opened.setting
    recipe = methods.load("reinforce").recipe()
    pace = Pace(
        lr=0.0,
        max_tokens=setting.max_tokens,
        sampling=Sampling(setting.temperature, setting.top_p, setting.top_k),
    )
    return await evaluate(
        recipe,
        opened.world,
        pool,
        pace,
        samples=SAMPLES,
        seed=seed,
        purpose=Purpose.PROFILE,
        account=meters.PROBE,
        exact=False,
    )


def _marks(found: Evaluation) -> np.ndarray:
    """(P, 16) rewards; NaN where the verifier failed."""
    return np.array(
        [[np.nan if r.score is None else r.score.value for r in g.rollouts] for g in found.groups]
    )


def _lengths(found: Evaluation) -> dict[str, float]:
    lengths = np.array([n for g in found.groups for n in g.lengths])
    cut = np.mean([r.stop is Stop.LENGTH for g in found.groups for r in g.rollouts])
    return {
        "mean": round(float(lengths.mean()), 3),
        **{f"p{q}": float(np.percentile(lengths, q)) for q in (50, 90, 99)},
        "max": int(lengths.max()),
        "truncated": float(cut),
    }
