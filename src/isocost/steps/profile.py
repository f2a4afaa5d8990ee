"""Profile: what a policy can do on a problem set before anything is spent on training.

Each problem's attempts are written down with their cost when they are marked, so that a profile that was killed has
lost neither: the next one takes them up, and charges to `lost` what it cannot use. So it does with the check of every
problem's own answer, which begins each profile and is written down first; and a profile that is interrupted also writes
down what it had sampled and not yet marked, for its cost.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from isocost import meter as meters
from isocost import methods
from isocost.chance import Purpose
from isocost.errors import RewardFailed, UserError
from isocost.runs.evaluate import group_of
from isocost.runs.files import Stream, read_lines
from isocost.runs.run import compares, samples
from isocost.seams import Pace
from isocost.stats import passk as passrate
from isocost.tasks.sample import sample
from isocost.types import Cost, Group, Place, Problem, Stop
from isocost.worlds.setting import Opened, Setting, open_setting, refuse_unbounded

SAMPLES = 16  # per problem
PROBLEMS = 512  # profiled at most: enough for a histogram, and a fixed cost
SHOWN = 6  # problems whose attempts are kept as text

Line = Mapping[str, Any]  # one problem's attempts, as they are written down


async def profile(
    setting: Setting,
    *,
    seed: int = 0,
    problems: int = PROBLEMS,
    method: str | None = None,
    opened: Opened | None = None,
    kept: Path | None = None,
    begin: Callable[[], None] = lambda: None,
    bounded: bool = True,
) -> dict[str, Any]:
    """Sample `problems` training problems 16 times each and describe what came back.

    Which problems is random by seed, each level in proportion (`isocost.tasks.sample`). Difficulty is assigned on
    one half of the samples and reported on the other. Returns the data of profile.json: counts, histogram, dead groups,
    lengths, regime, the recipe that follows (or `method`'s, where one is asked for), and which methods' preconditions
    hold. What is sampled goes to the file `kept` as it is marked, `begin` being called before its first line; what lies
    there of a profile that was killed is taken up, and `lost` is what of it could not be. Raises UserError for problems
    or a model that cannot be used, and, if `bounded`, for a reward outside [0, 1], which no law can be fitted to.
    """
    began = time.perf_counter()
    opened = opened or open_setting(setting, check=True)
    if bounded:
        refuse_unbounded(opened.problems)
    pool = sample(opened.sides.train, problems, seed)
    there, lost = _taken_up(read_lines(kept) if kept else [], pool)
    streams: list[Stream] = []
    checked = opened.world.meter.of(meters.CHECK)

    def write(line: Line) -> None:
        if kept and not streams:  # only now: a prompt that the model cannot read has left nothing behind
            begin()
            streams.append(_stream(kept))
            if checked != Cost():
                streams[0].write({"slot": None, "id": None, "rewards": [], "cost": checked.data()})
        for stream in streams:
            stream.write(line)

    try:
        found = await _sampled(opened, pool, seed, there, write, bounded)
    finally:
        opened.grader.close()
        for stream in streams:
            stream.close()
    rewards = _rewards(found)
    scored = ~np.isnan(rewards).any(1)
    if not scored.any():
        raise UserError(f"no problem has a reward for each of its {SAMPLES} samples, so there is no profile: "
                        f"{_failures(opened)}")
    sampled = _cost(there.values()) + opened.world.meter.of(meters.PROBE)
    seconds = sampled.seconds
    described = {
        "model": setting.model,
        "parameters": opened.world.learner.parameters,
        "problems": len(pool),
        "pool": len(opened.sides.train),
        "select": len(opened.sides.select),
        "audit": len(opened.sides.audit),
        "ids": [p.id for p, ok in zip(pool, scored, strict=True) if ok],
        "levels": [p.meta.get("level") for p, ok in zip(pool, scored, strict=True) if ok],
        "unscored": int(np.isnan(rewards).sum()),
        "verifier_failures": dict(opened.grader.failures),
        "verifier_examples": dict(opened.grader.examples),
        **passrate.summary(rewards[scored], seed=seed),
        "lengths": _lengths(found),
        "exact": opened.world.exact is not None,
        "solutions": float(np.mean([bool(p.meta.get("solution")) for p in pool])),
        "rate": {
            "rollouts_per_second": round(sampled.rollouts / max(seconds, 1e-9), 2),
            "tokens_per_second": round((sampled.prefill + sampled.decode) / max(seconds, 1e-9), 1),
        },
        "found": opened.problems.report.lines(),
        "cost": (sampled + checked).data(),
        "lost": lost.data(),
        "seconds": round(time.perf_counter() - began, 2),
        "examples": [line["example"] for line in found[:SHOWN]],
    }
    if method is not None:
        described["recipe"] = {"method": method, "why": "asked for"}
    recipe = methods.recipe(described["recipe"]["method"])
    described["recipe"]["compares"] = compares(recipe)
    return described | {"methods": preconditions(described)}


def preconditions(profile: dict[str, Any]) -> list[dict[str, str]]:
    """Whether preconditions hold here (holds, fails or not measured): of every method there is, and of the recipe's."""
    names = dict.fromkeys((*methods.names(), profile["recipe"]["method"]))
    rows = ((name, *methods.needs(name, profile)) for name in names)
    return [{"name": name, "state": state, "why": why} for name, state, why in rows]


def _stream(kept: Path) -> Stream:
    """The file to write on in, without the last line where a kill tore it: what follows would be glued to that."""
    whole = kept.read_bytes().rfind(b"\n") + 1 if kept.exists() else 0
    stream = Stream(kept)
    stream.cut(whole)
    return stream


def _taken_up(lines: Sequence[Line], pool: Sequence[Problem]) -> tuple[dict[int, Line], Cost]:
    """Slot -> the line of a profile that was killed that stands for it, and what the other lines had cost.

    Others are of a problem that is now another one, were interrupted, or have an attempt that the verifier failed on:
    these are marked anew. So are the checks of answers.
    """
    there: dict[int, Line] = {}
    others: list[Line] = []
    for line in lines:
        slot = line["slot"]
        whole = len(line["rewards"]) == SAMPLES and None not in line["rewards"]
        fits = whole and slot < len(pool) and slot not in there and pool[slot].id == line["id"]
        if fits:
            there[slot] = line
        else:
            others.append(line)
    return there, _cost(others)


def _cost(lines: Iterable[Line]) -> Cost:
    return sum((Cost.of(line["cost"]) for line in lines), Cost())


async def _sampled(
    opened: Opened, pool: Sequence[Problem], seed: int, there: Mapping[int, Line], write: Callable[[Line], None],
    bounded: bool,
) -> list[Line]:
    """A line for each problem in order: those that are there, the others sampled and each written once it is marked.

    When that is stopped, those that were begun and are not marked have a line without attempts, for what they cost.
    """
    setting = opened.setting
    recipe = methods.recipe("reinforce")
    pace = Pace(
        lr=0.0,
        max_tokens=setting.max_tokens,
        sampling=setting.sampling,
    )

    tabs: dict[int, meters.Tab] = {}  # of those that are under way

    async def one(slot: int, problem: Problem) -> Line:
        if slot in there:
            return there[slot]
        place = Place(seed, 0, slot, int(Purpose.PROFILE))
        with meters.tab() as tabs[slot]:
            group = await group_of(recipe, opened.world, problem, place, SAMPLES, pace)
        line = _line(slot, group, tabs.pop(slot).cost)
        if bounded:
            _refuse_outside(opened, problem, line)
        write(line)
        return line

    with meters.on(meters.PROBE):
        tasks = [asyncio.create_task(one(slot, p)) for slot, p in enumerate(pool)]
        try:
            return list(await asyncio.gather(*tasks))
        except BaseException as why:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            mistake = isinstance(why, UserError) and not isinstance(why, RewardFailed)
            begun = {} if mistake else tabs  # a mistake leaves no study
            for slot, tab in begun.items():
                if tab.cost.rollouts:
                    write(_line(slot, Group(pool[slot], ()), tab.cost))
            raise


def _line(slot: int, group: Group, cost: Cost) -> Line:
    return {
        "slot": slot,
        "id": group.problem.id,
        "rewards": [None if r.score is None else r.score.value for r in group.rollouts],
        "lengths": list(group.lengths),
        "stops": [str(r.stop) for r in group.rollouts],
        "cost": cost.data(),
        **({"example": samples([group], 0)[0]} if slot < SHOWN else {}),
    }


def _refuse_outside(opened: Opened, problem: Problem, line: Line) -> None:
    wrong = next((x for x in line["rewards"] if x is not None and not 0 <= x <= 1), None)
    if wrong is not None:
        raise UserError(f"the reward {opened.problems.verifier} paid {wrong:g} for a completion of problem "
                        f"{problem.id!r}; a study needs rewards between 0 and 1: rescale it")


def _failures(opened: Opened) -> str:
    """How the verifier failed, with the first example of each kind."""
    failed, example = opened.grader.failures, opened.grader.examples
    return "; ".join(f"{k} {n} times ({example.get(k, '')})" for k, n in failed.items()) or "no sample was marked"


def _rewards(found: Sequence[Line]) -> np.ndarray:
    """(P, 16) rewards; NaN where the verifier failed."""
    return np.array([[np.nan if x is None else x for x in line["rewards"]] for line in found])


def _lengths(found: Sequence[Line]) -> dict[str, float]:
    lengths = np.array([n for line in found for n in line["lengths"]])
    cut = np.mean([stop == Stop.LENGTH for line in found for stop in line["stops"]])
    return {
        "mean": round(float(lengths.mean()), 3),
        **{f"p{q}": float(np.percentile(lengths, q)) for q in (50, 90, 99)},
        "max": int(lengths.max()),
        "truncated": float(cut),
    }
