"""Sampling a profile: what a policy can do on a problem set before anything is spent on training.

Each problem's completions are written with their cost when they are graded, so that a profile that was killed loses
neither: the next one uses them, and charges to `lost` what it cannot use. The same holds for the check of every
problem's own answer, which starts each profile and is written first. A profile that is interrupted also writes the cost
of what it had sampled and not yet graded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from isocost import meter as meters
from isocost import methods
from isocost.can import LEARNER, Can
from isocost.chance import Purpose
from isocost.contract.conflicts import needs
from isocost.errors import Resumable, UserError
from isocost.gather import together
from isocost.runs.evaluate import group_of
from isocost.runs.files import Stream, read_lines
from isocost.runs.job import compares
from isocost.runs.parted import flawed
from isocost.runs.samples import faulty_samples, samples
from isocost.screen.display import Row
from isocost.stats import passk as passrate
from isocost.steps.events import Tell, untold
from isocost.steps.training import by_limit, dialogues
from isocost.steps.training.hosted import CALLS, measured
from isocost.steps.training.served import Served
from isocost.tasks.sample import sample
from isocost.types import Cost, Group, Place, Problem, Stop
from isocost.world import Text
from isocost.worlds.setting import Opened, Setting, open_setting, refuse_unbounded
from isocost.worlds.spec import spec_of

SAMPLES = 16  # per problem
PROBLEMS = 512  # profiled at most: enough for a histogram, and a fixed cost
MOST_CUT = 0.1  # share of completions that may be cut at the length limit without a warning
PLAIN = "isohard"  # where the recipe that follows needs what the learner cannot do
OPENING = "opening the model and the problems"
PROGRESS = f"problems x {SAMPLES} completions"
SHOWN = 6  # problems whose attempts are kept as text

Line = Mapping[str, Any]  # one problem's attempts, as they are written down


async def pass_rates(
    of: Setting | Opened, *, seed: int = 0, problems: int = PROBLEMS, method: str | None = None,
    kept: Path | None = None, begin: Callable[[], None] = lambda: None, bounded: bool = True, tell: Tell = untold,
    **served: Any,
) -> dict[str, Any]:
    """Sample `problems` training problems of a setting 16 times each and describe the completions.

    The problems are random by seed, each level in proportion (`isocost.tasks.sample`). Difficulty is assigned on one
    half of the samples and reported on the other. Returns the data of profile.json: counts, histogram, dead groups,
    lengths, regime, the recipe that follows (or the requested `method`'s), and which methods' preconditions hold.

    Completions are written to the file `kept` when they are graded; `begin` is called before its first line. Lines of a
    killed profile there are used again; `lost` is the cost of those that cannot be. `tell` receives how many problems
    are done. **served: fields of `Served`. What is opened is closed.

    Raises UserError for problems or a model that cannot be used; if `bounded`, for a reward outside [0, 1], which no
    law can be fitted to.
    """
    began, asked = time.perf_counter(), Served(**served)
    tell(OPENING)
    opened = of if isinstance(of, Opened) else open_setting(of, check=True, learn=False, limits=asked.limits)
    setting = opened.setting
    checked = opened.world.meter.of(meters.CHECK)
    try:
        if bounded:
            refuse_unbounded(opened.problems)
        pool = sample(opened.sides.train, problems, seed)
        there, lost = _taken_up(read_lines(kept) if kept else [], pool)
        with _written(kept, begin, checked) as write:
            groups: list[Group] = []
            found = await _sampled(opened, pool, seed, there, write, bounded, tell, groups)
        sampled, hosted = _cost(there.values()) + opened.world.meter.of(meters.PROBE), {}
        if not spec_of(setting.model).can(Can.SIZE):
            most = asked.limits.concurrency if opened.world.about.server else SAMPLES * len(pool)
            hosted = await measured(opened.world, sampled, pool, groups, setting.sampling,
                                    min(most, SAMPLES * len(pool)))
            made = opened.world.meter.physical
            sent = _cost(there.values()) + made[meters.PROBE] + made.get(meters.CHECK, Cost())
        measuring = _cost(there.values()) + opened.world.meter.of(meters.PROBE) - sampled
    finally:
        opened.close()
    rewards = _rewards(found)
    scored = ~np.isnan(rewards).any(1)
    if not scored.any():
        raise UserError(f"no problem has a reward for each of its {SAMPLES} samples, so there is no profile: "
                        f"{_failures(opened)}")
    seconds = sampled.seconds
    about = opened.world.about
    size = opened.world.learner.parameters if spec_of(setting.model).can(Can.SIZE) else asked.parameters
    said = dialogues.summary(found, sampled, setting.lengths.max_turns)
    cut = by_limit.table(found, setting.lengths.max_turns)
    described = {
        "model": setting.model,
        "parameters": size,
        **({"learned": opened.world.learner.learned} if about.lora else {}),
        **({"starting_rate": dict(rate)} if about.model and (rate := about.model.starting_rate) else {}),
        "problems": len(pool),
        "pool": len(opened.sides.train),
        "select": len(opened.sides.select),
        "audit": len(opened.sides.audit),
        "ids": [p.id for p, ok in zip(pool, scored, strict=True) if ok],
        **({"server": about.server()} if about.server else {}),
        "levels": [p.meta.get("level") for p, ok in zip(pool, scored, strict=True) if ok],
        "unscored": int(np.isnan(rewards).sum()),
        "verifier_failures": dict(opened.grader.failures),
        "verifier_examples": dict(opened.grader.examples),
        **passrate.summary(rewards[scored], seed=seed),
        **({"truth": _of_truth(setting, found, scored)} if opened.truth else {}),
        "lengths": _lengths(found),
        **({"dialogues": said} if said else {}),
        **({"by_limit": cut} if cut else {}),
        "exact": opened.world.exact is not None,
        "columns": sorted(set.intersection(*(set(p.meta) for p in pool))),
        "solutions": float(np.mean([bool(p.meta.get("solution")) for p in pool])),
        "rate": {
            "rollouts_per_second": round(sampled.rollouts / max(seconds, 1e-9), 2),
            "tokens_per_second": round((sampled.prefill + sampled.decode) / max(seconds, 1e-9), 1),
            **hosted,
        },
        "found": opened.problems.report.lines(),
        "cost": (sampled + checked).data(),
        **({"measuring": measuring.data(), "sent": sent.data()} if hosted else {}),
        "lost": lost.data(),
        "seconds": round(time.perf_counter() - began, 2),
        "examples": _examples(found),
    }
    return with_recipe(described, method, spec_of(setting.model).of.learner)


def with_recipe(profile: dict[str, Any], method: str | None, can: frozenset[Can] = LEARNER) -> dict[str, Any]:
    """A profile with its recipe, or the requested `method`'s, and every method's preconditions. A recipe that needs
    more of the learner than it `can` do is replaced by `PLAIN`."""
    if method is not None:
        profile["recipe"] = {"method": method, "why": "asked for"}
    elif lacking := needs(methods.recipe(own := profile["recipe"]["method"])) - can:
        first = min(lacking, key=attrgetter("name"))
        why = f"in place of {own}, which needs {first.meaning}: this model cannot give it"
        profile["recipe"] = {"method": PLAIN, "why": why}
    recipe = methods.recipe(profile["recipe"]["method"])
    profile["recipe"]["compares"] = compares(recipe)
    return profile | {"methods": preconditions(profile)}


def preconditions(profile: dict[str, Any]) -> list[dict[str, str]]:
    """Whether each method's preconditions hold here: holds, fails or not measured. The recipe's own is included."""
    names = dict.fromkeys((*methods.names(), profile["recipe"]["method"]))
    rows = ((name, *methods.needs(name, profile)) for name in names)
    return [{"name": name, "state": state, "why": why} for name, state, why in rows]


@contextmanager
def _written(kept: Path | None, begin: Callable[[], None], checked: Cost) -> Iterator[Callable[[Line], None]]:
    """What writes a line to the file `kept`, if there is one; before the first, `begin` is called and the cost of the
    check of answers is written."""
    streams: list[Stream] = []

    def write(line: Line) -> None:
        if kept and not streams:  # only now: a prompt that the model cannot read must leave no study
            begin()
            streams.append(Stream.mended(kept))
            if checked != Cost():
                streams[0].write({"slot": None, "id": None, "rewards": [], "cost": checked.data()})
        for stream in streams:
            stream.write(line)

    try:
        yield write
    finally:
        for stream in streams:
            stream.close()


def _taken_up(lines: Sequence[Line], pool: Sequence[Problem]) -> tuple[dict[int, Line], Cost]:
    """Slot -> the line that a killed profile has of it, and the cost of the other lines. The other lines are of a
    problem that has changed, were interrupted, or hold a completion that the verifier failed on; these are graded
    again. So are the checks of answers."""
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
    bounded: bool, tell: Tell, groups: list[Group],
) -> list[Line]:
    """A line for each problem in order: those that are there, and the others, each written once it is graded. `groups`
    is filled with the first ones that were sampled. When sampling is stopped, a problem that was started and not graded
    gets a line without completions, for its cost."""
    setting = opened.setting
    recipe = methods.recipe("reinforce")
    pace = setting.measured
    tabs: dict[int, meters.Tab] = {}  # of those that are being sampled
    done = len(there)
    tell(PROGRESS, done, len(pool))

    async def one(slot: int, problem: Problem) -> Line:
        nonlocal done
        if slot in there:
            return there[slot]
        place = Place(seed, 0, slot, int(Purpose.PROFILE))
        with meters.tab() as tabs[slot]:
            group = await group_of(recipe, opened.world, problem, place, SAMPLES, pace)
        true = None
        if opened.truth is not None:      # dead groups and regime are of what trains
            true = [None if r.score is None else r.score.value for r in group.rollouts]
            group = group.of(r.but(score=r.mark, mark=None) for r in group.rollouts)
        if len(groups) < max(CALLS) and None not in (r.score for r in group.rollouts):
            groups.append(group)
        line = _line(slot, group, tabs.pop(slot).cost, opened.world.text)
        line = line if true is None else {**line, "true": true}
        if bounded:
            _refuse_outside(opened, problem, line)
        write(line)
        done += 1
        tell(PROGRESS, done, len(pool))
        return line

    with meters.on(meters.PROBE):
        try:
            return await together(*(one(slot, p) for slot, p in enumerate(pool)))
        except BaseException as why:
            mistake = isinstance(why, UserError) and not isinstance(why, Resumable)
            started = {} if mistake else tabs  # a mistake leaves no study
            for slot, tab in started.items():
                if tab.cost.rollouts:
                    write(_line(slot, Group(pool[slot], ()), tab.cost, opened.world.text))
            raise


def _line(slot: int, group: Group, cost: Cost, text: Text) -> Line:
    return {
        "slot": slot,
        "id": group.problem.id,
        "rewards": [None if r.score is None else r.score.value for r in group.rollouts],
        "lengths": list(group.lengths),
        "stops": [str(r.stop) for r in group.rollouts],
        **dialogues.of_group(group),
        **by_limit.of_group(group, text),
        "cost": cost.data(),
        **_example(slot, group, text),
    }


def _example(slot: int, group: Group, text: Text) -> dict[str, Any]:
    """The attempts of a problem that are kept as text: of the first problems, and of others those that are faulty."""
    if slot < SHOWN:
        return {"example": samples([group], 0, text)[0]}
    return {"example": found[0]} if (found := faulty_samples([group], 0, text)) else {}


def _examples(found: Sequence[Line]) -> list[dict[str, Any]]:
    """Those of the first problems, and of as many others with faults."""
    kept = [line["example"] for line in found[SHOWN:] if "example" in line]
    return [line["example"] for line in found[:SHOWN]] + kept[:SHOWN]


def _refuse_outside(opened: Opened, problem: Problem, line: Line) -> None:
    wrong = next((x for x in line["rewards"] if x is not None and not 0 <= x <= 1), None)
    if wrong is not None:
        raise UserError(f"the reward {opened.problems.verifier} paid {wrong:g} for a completion of problem "
                        f"{problem.id!r}; a study needs rewards between 0 and 1: rescale it")


def _failures(opened: Opened) -> str:
    """How the verifier failed, with the first example of each kind."""
    failed, example = opened.grader.failures, opened.grader.examples
    return "; ".join(f"{k} {n} times ({example.get(k, '')})" for k, n in failed.items()) or "no sample was graded"


def _of_truth(setting: Setting, found: Sequence[Line], scored: np.ndarray) -> dict[str, Any]:
    """The mean by the truth, and the share of the completions marked right that are wrong by it."""
    kept = [line for line, ok in zip(found, scored, strict=True) if ok]
    true = [x for line in kept for x in line["true"]]
    return {"verifier": setting.problems.truth, "mean": float(np.mean([x for x in true if x is not None])),
            "flawed": flawed([x for line in kept for x in line["rewards"]], true)}


def _rewards(found: Sequence[Line]) -> np.ndarray:
    """(P, 16) rewards; NaN where the verifier failed."""
    return np.array([[np.nan if x is None else x for x in line["rewards"]] for line in found])


def _lengths(found: Sequence[Line]) -> dict[str, Any]:
    """Of the completions that there are: a request that failed gave none."""
    each = [(n, stop) for line in found for n, stop in zip(line["lengths"], line["stops"], strict=True)
            if stop != Stop.ERROR]
    return lengths_of(np.array([n for n, _ in each]), float(np.mean([stop == Stop.LENGTH for _, stop in each])))


def lengths_of(lengths: np.ndarray, cut: float | None) -> dict[str, Any]:
    """Statistics of lengths in tokens, and the share of completions that were cut at the limit, if known."""
    return {
        "mean": round(float(lengths.mean()), 3),
        **{f"p{q}": float(np.percentile(lengths, q)) for q in (50, 90, 99)},
        "max": int(lengths.max()),
        "truncated": cut,
    }


def pass_row(found: Sequence[Mapping[str, Any]]) -> Row:
    """pass@k beyond k = 1, with intervals; empty where none was computed."""
    each = [f"k={x['k']}: {x['value']:.3f} [{x['low']:.3f}, {x['high']:.3f}]" for x in found if x["k"] > 1]
    return Row("", (each and f"pass@k  {'  '.join(each)}") or "")
