"""What training costs at a service: hours by the rates that a profile measured there, money at its prices of tokens.

Seconds of sampling are a of each prompt token and b of each sampled one, from two totals: all that the profile
sampled, and its prompts once more with answers of one token. A training call takes c seconds and d a trained token,
from two calls of different sizes. All hold at the number of requests that the profile had in flight. What was not
measured is not known.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from isocost.can import Can
from isocost.chance import Purpose
from isocost.errors import UserError
from isocost.gather import together
from isocost.meter import PROBE, on
from isocost.planner.budget import Amounts, Budget, Machine, Prices, Timing
from isocost.planner.evaluation import EvaluationPlan
from isocost.planner.token_price import TokenPrice
from isocost.runs.stop_at import StopAt
from isocost.steps.study import StudyRecord
from isocost.types import Cost, Group, Place, Problem, Role, Sampling, Segment
from isocost.units import ROLLOUTS, SAMPLING

if TYPE_CHECKING:
    from isocost.world import World

CALLS = (1, 4)      # groups of the two training calls
Data = Mapping[str, Any]


async def measured(
    world: World, whole: Cost, pool: Sequence[Problem], groups: Sequence[Group], sampling: Sampling, at_once: int
) -> dict[str, Any]:
    """The rates of a service, for the profile's `rate`: tokens a second of the `whole` that it sampled of the problems
    `pool` with `at_once` requests in flight, the share of prompt tokens that the service says were cached, and of one
    that trains those of `training_rates` with `groups`. A rate is None where its tokens took no time of their own.
    """
    from scipy.optimize import nnls

    asked, made = world.meter.of(PROBE), world.meter.physical.get(PROBE, Cost())
    with on(PROBE):
        starts = [Segment.empty(sampling).read(world.text.prompt(p.prompt), Role.PROMPT) for p in pool]
        places = [Place(0, 1, slot, int(Purpose.PROFILE)) for slot in range(len(pool))]    # a wave of their own
        await together(*(world.engine.generate(start, [0], place=place, turn=0, max_tokens=1)
                         for start, place in zip(starts, places, strict=True)))
    short = world.meter.of(PROBE) - asked
    each, _ = nnls(np.array([whole[1:3], short[1:3]], dtype=float), np.array([whole.seconds, short.seconds]))
    prompt, sampled = (None if x <= 0 else float(f"{1 / x:.4g}") for x in each)
    cached = round(1 - made.prefill / asked.prefill, 4) if asked.prefill else 0.0
    training = {"training": training_rates(world, groups)} if world.about.server is None and groups else {}
    return {"prompt_tokens_per_second": prompt, "sampled_tokens_per_second": sampled, "at_once": at_once,
            "cached": cached, **training}


def training_rates(world: World, groups: Sequence[Group]) -> dict[str, Any]:
    """Seconds of a training call and trained tokens a second, from two updates at a learning rate of 0, charged as the
    profile; `forward` is the tokens of passes without gradient that the service also runs for each trained one."""
    from isocost.pack import pack  # here: planning needs no torch

    seconds, tokens, before = [], [], world.meter.physical.get(PROBE, Cost())
    with on(PROBE):
        for k in CALLS:
            batch, began = pack(groups[:k], world.engine.version), time.perf_counter()
            world.learner.update(batch.but(weight=batch.mask * 1.0), lambda out, b: (0.0 * out.logp, {}), lr=0.0)
            seconds.append(time.perf_counter() - began)
            tokens.append(int(batch.length.sum()))
    done = world.meter.physical[PROBE] - before
    each = max((seconds[1] - seconds[0]) / max(tokens[1] - tokens[0], 1), 0.0)
    return {"call_seconds": float(f"{max(seconds[0] - each * tokens[0], 0.0):.4g}"),
            "trained_tokens_per_second": float(f"{1 / each:.4g}") if each else None,
            "forward": done.score / done.train}


def rollout_cost(study: StudyRecord) -> tuple[Cost, Cost]:
    """What a trained rollout costs, (asked for, made by the service): by the runs' meters, else by the profile."""
    ends = [run.end for run in study.runs_read if run.end.get("physical")] if study.runs.exists() else []
    found = [sum((Cost.of(end[side]["train"]) for end in ends), Cost()) for side in ("bill", "physical")]
    if ends and (rollouts := found[0].rollouts):
        asked, made = (Cost._make(x / rollouts for x in side) for side in found)
        return asked, made
    known = study.profiled()
    rate, prices = known.get("rate") or {}, Prices.of_profile(known)
    read = (known.get("cost") or {}).get("prefill", 0) / max((known.get("cost") or {}).get("rollouts", 0), 1)
    trained = prices.prefill + prices.decode
    own: dict[str, Any] = {"rollouts": 1, "prefill": read or prices.prefill, "decode": prices.decode,
                           "score": prices.score, "train": trained}
    forward = (rate.get("training") or {}).get("forward", 0.0) * trained
    sent = {**own, "prefill": own["prefill"] * (1 - rate.get("cached", 0.0)), "score": prices.score + forward}
    return Cost(**own), Cost(**sent)


def sampling_seconds(rate: Data, cost: Cost) -> float | None:
    """Seconds of sampling one rollout; None where nothing was measured at a service."""
    if "at_once" not in rate:
        return None
    both = (cost.prefill, rate["prompt_tokens_per_second"]), (cost.decode, rate["sampled_tokens_per_second"])
    return sum(tokens / speed for tokens, speed in both if speed)


def service_timing(study: StudyRecord, e: EvaluationPlan) -> Timing | None:
    """The time of training at a service, by the rates of the profile; None where it measured no training call."""
    rate = study.profiled().get("rate") or {}
    if "training" not in rate:
        return None
    asked, _ = rollout_cost(study)
    sampled, call, speed = sampling_seconds(rate, asked) or 0.0, rate["training"]["call_seconds"], \
        rate["training"]["trained_tokens_per_second"]
    learned = asked.train / speed if speed else 0.0
    return Timing(call, 0.0, sampled + learned, e.problems * (e.samples or 1) * sampled, f"derived from {told(rate)}")


def told(rate: Data) -> str:
    """The rates as text."""
    spoken = [f"{rate[f'{kind}_tokens_per_second']:,.4g} {kind} tokens/s" for kind in ("prompt", "sampled")
              if rate[f"{kind}_tokens_per_second"]]
    call = f"; {rate['training']['call_seconds']:.3g} s a training call" if "training" in rate else ""
    return f"{' and '.join(spoken)} at {rate['at_once']} requests at once{call}"


def price_of(study: StudyRecord, price: str | None) -> str | None:
    """The price of tokens that a plan is for: the one asked for, else the profile's; None without one of tokens."""
    paid = price or (study.profiled().get("money") or {}).get("price")
    return paid if TokenPrice.given(paid) else price


def worth(machine: Machine, study: StudyRecord, share: float | None = None) -> tuple[float, float] | None:
    """(a trained rollout, one of an evaluation) in the currency of the service; None without a price of tokens. With
    `share`, that of evaluations, the first includes them. Raises UserError if it has no price of trained tokens."""
    if not machine.tokens:
        return None
    each = TokenPrice.parse(machine.tokens).each
    if share is not None and "train" not in each:
        raise UserError(f"the price {machine.tokens!r} has none of trained tokens, so no budget of training follows: "
                        f"add it, such as ,0.40{machine.currency}/M-train")
    asked, made = rollout_cost(study)
    at = StopAt(0.0, machine.currency, each)
    sampled = at.worth(asked._replace(train=0, score=0), made._replace(train=0, score=0), 0.0)
    trained = at.worth(asked, made if "train" in each else made._replace(train=0, score=0), 0.0)
    return trained + (share or 0.0) * sampled, sampled


def service_rows(
    study: StudyRecord, machine: Machine, bills: Sequence[Any], e: EvaluationPlan, budget: Budget | None
) -> list[dict[str, Any]]:
    """The rows of a budget in every unit that only a service has: money by tokens, and where training is elsewhere the
    time of sampling. `bills` are of pilot and training."""
    rate, rows = study.profiled().get("rate") or {}, []
    counts = [(bill.rollouts, bill.evaluations * e.rollouts) for bill in bills]     # trained, evaluated
    if not study.source.can(Can.PILOT) and (seconds := sampling_seconds(rate, rollout_cost(study)[0])):
        rows.append((SAMPLING, [seconds * sum(own) for own in counts], "measured",
                     f"{told(rate)}; training calls: not known, none was measured here"))
    if (paid := worth(machine, study)) is not None:
        priced = "" if "train" in TokenPrice.parse(machine.tokens).each else "; of sampling alone: no /M-train is given"
        rows.append((machine.currency, [paid[0] * a + paid[1] * b for a, b in counts], "priced",
                     machine.tokens + priced))
    whole = sum(a for a, _ in counts)
    scale = budget.amount / whole if budget is not None and budget.unit == ROLLOUTS and whole else None
    asked = None if budget is None else budget.as_asked
    own = (asked.unit, asked.amount, "asked", str(budget)) if asked is not None else ("", 0.0, "", "")
    return [Amounts(unit, both[0], both[1], *(own[1:] if unit == own[0] else
                                             (None if scale is None else scale * sum(both), known, why))).data()
            for unit, both, known, why in rows]
