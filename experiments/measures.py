"""What claims read from a run's folder: one function a measure, named in the `numbers` of a row.

Each takes a run's folder, and settings from the row, and returns numbers by name. Functions below `ends` open the
policy that the run ends with and play it on the test split, with random numbers of the run's own seed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from isocost import chance, methods
from isocost.chance import Purpose
from isocost.envs.tiny import rooms, signal
from isocost.errors import UserError
from isocost.ledger import Ledger
from isocost.methods import guirc, tspo
from isocost.methods.int_ import REPAIRED
from isocost.methods.mirothinker import malformed
from isocost.pack import pack
from isocost.parts import boxes, intervals
from isocost.parts.play import opening, sample
from isocost.runs.evaluate import Evaluation, evaluate
from isocost.runs.files import read_json, read_lines
from isocost.runs.job import Job, recipe_of
from isocost.seams import Pace, Play
from isocost.stats.forms import SIGMOID, fit_form
from isocost.tasks.builtin import puzzles, sums
from isocost.types import Group, Place, Problem, Role, Rollout, Said, Segment, Stop
from isocost.world import World
from isocost.worlds.setting import Setting, open_setting

Numbers = dict[str, float]
KS = (1, 2, 4, 8, 16, 32, 64)
PARTS = 12              # of a run, by which `unaided` follows the problems trained on
STRANGERS = "experiments/claims/methods/strangers.py"


# from the record of a run ---------------------------------------------------------------------------------------------


def at_tokens(folder: Path, tokens: int) -> Numbers:
    """Held-out success after so many sampled tokens, linear between a run's evaluations; its last one beyond them."""
    points, decoded = [], 0
    for line in read_lines(folder / "metrics.jsonl"):
        decoded = line.get("decode", decoded)
        if "eval/audit" in line:
            points.append((decoded, line["eval/audit"]))
    x, y = zip(*points, strict=True)
    return {"pass@1 at tokens": float(np.interp(tokens, x, y))}


def after_steps(folder: Path, steps: int) -> Numbers:
    """Held-out success after so many steps, linear between a run's evaluations, and the mean entropy of these steps."""
    lines = read_lines(folder / "metrics.jsonl")
    x, y = zip(*((line["step"], line["eval/audit"]) for line in lines if "eval/audit" in line), strict=True)
    if x[-1] < steps:
        raise UserError(f"{folder} ends after {x[-1]} steps: expected {steps} or more")
    entropies = [line["entropy"] for line in _updates(folder) if line["step"] < steps]
    return {"pass@1 after steps": float(np.interp(steps, x, y)), "entropy": float(np.mean(entropies))}


def read_tokens(folder: Path) -> Numbers:
    """Tokens read for each environment step over a run's training, including those read again in later turns."""
    last = [x for x in read_lines(folder / "metrics.jsonl") if x.get("env_steps")][-1]
    return {"read": float(last["prefill"] / last["env_steps"])}


def dead(folder: Path) -> Numbers:
    """The share of the rollouts of updates that carried no advantage."""
    fates = [f for line in read_lines(folder / "journal.jsonl") for f in line["fates"]]
    return {"dead": fates.count("dead") / max(fates.count("dead") + fates.count("trained"), 1)}


def detour(folder: Path) -> Numbers:
    """Moves beyond the shortest route, in the successes of the last tenth of a run's groups."""
    setting = read_json(folder / "run.json")["job"]["setting"]
    level = {p.id: p.meta["level"] for p in rooms.problems(rooms.Rooms.of(setting["env"]))}
    moves = [t - level[x["id"]] for x in _last(folder, 0.1) for t, r in zip(x["turns"], x["rewards"], strict=True) if r]
    return {"detour": float(np.mean(moves))}


def form(folder: Path, share: float = 0.25) -> Numbers:
    """Of the attempts of the last `share` of a run's groups: those that ended by themselves, no turn malformed."""
    return {"form": float(np.mean([stop == "done" and not faults.get("model") for x in _last(folder, share)
                                   for stop, faults in zip(x["stops"], x["faults"], strict=True)]))}


def calls(folder: Path, share: float = 0.1) -> Numbers:
    """Of the successes of the last `share` of a run's groups: calls that were answered, and those that failed.

    The last turn gives the answer and is no call. Means for each success, and the logarithm of the first.
    """
    right = [(t - 1, sum(f.values())) for x in _last(folder, share)
             for t, f, r in zip(x["turns"], x["faults"], x["rewards"], strict=True) if r]
    made, failed = np.mean(np.array(right), axis=0)
    return {"calls": float(made), "failed": float(failed), "log calls": float(np.log(made))}


def spent(folder: Path) -> Numbers:
    """Tokens decoded for each rollout of training, as a logarithm."""
    return {"log tokens": float(np.log(_tokens_after(folder, 1)))}


def foretold(folder: Path, share: float = 0.5) -> Numbers:
    """Held-out success at a run's end by ScaleRL's sigmoid (`SIGMOID`), fitted to the evaluations up to `share`."""
    points = [(x["rollouts"], x["eval/audit"]) for x in read_lines(folder / "metrics.jsonl") if "eval/audit" in x]
    (_, base), *after = points
    end = points[-1][0]
    C, R = np.array([x for x in after if x[0] <= share * end]).T
    return {"foretold": float(fit_form(SIGMOID, C, R, fixed={"R0": base})(np.array([end]))[0])}


def wrong(folder: Path, share: float = 0.5) -> Numbers:
    """The tokens of attempts that earned nothing, of the last `share` of a run's groups, as a logarithm of the mean."""
    tokens = [k for x in _last(folder, share) for k, r in zip(x["lengths"], x["rewards"], strict=True) if r <= 0]
    return {"log wrong tokens": float(np.log(np.mean(tokens)))}


def _last(folder: Path, share: float) -> list[Mapping[str, Any]]:
    """The journal's lines of the last `share` of a run's groups, at least one."""
    lines = [x for x in read_lines(folder / "journal.jsonl") if x["attempts"]]
    return lines[-max(int(len(lines) * share), 1):]


def age(folder: Path) -> Numbers:
    """How many updates old rollouts were when they were trained on, in the mean."""
    ages = [line["step"] - line["version"] for line in read_lines(folder / "journal.jsonl") if line["attempts"]]
    return {"age": sum(ages) / len(ages)}


def balance(folder: Path, cold: int) -> Numbers:
    """Of the groups after `cold` updates: attempts trained on, share all right or all wrong ("settled"), distance of
    the share right from one half, share right; and tokens decoded for each attempt that started in these updates.
    """
    groups = [x["rewards"] for x in read_lines(folder / "journal.jsonl") if x["step"] >= cold and len(x["rewards"]) > 1]
    right = [sum(r) / len(r) for r in groups]
    return {"group": sum(map(len, groups)) / len(groups), "settled": sum(p in (0.0, 1.0) for p in right) / len(groups),
            "distance": sum(abs(p - 0.5) for p in right) / len(groups), "right": sum(right) / len(groups),
            "tokens": _tokens_after(folder, cold)}


def _tokens_after(folder: Path, cold: int) -> float:
    """Tokens decoded for each rollout that started after `cold` updates."""
    steps = _updates(folder)
    first, last = steps[cold - 1], steps[-1]
    return float((last["decode"] - first["decode"]) / (last["rollouts"] - first["rollouts"]))


def _updates(folder: Path) -> list[Mapping[str, Any]]:
    return [x for x in read_lines(folder / "metrics.jsonl") if "reward" in x]


def tails(folder: Path, cold: int = 20, at: int = 4, keep: float = 0.5, home: float = 0.5) -> Numbers:
    """Ticks for every hundred rollouts that returned, tokens for each that started; GRPO's predict the others'.

    A tick is one sequential token. A group's rollouts are decoded together, so its ticks are its longest's tokens, less
    those of earlier waves. `at`, `keep` and `cold` are ARRoL's, `home` is APRIL's share of groups that end a wave.
    """
    lines = read_lines(folder / "journal.jsonl")
    out = {"tokens": _tokens_after(folder, cold)}
    if any("outlooks" in x for x in lines):
        return out
    returned = sorted((x for x in lines if x["attempts"]), key=lambda x: x["wave"])
    ticks = _ticks(lines, returned, _updates(folder)[-1]["step"])
    out["ticks"] = 100 * sum(ticks) / sum(len(x["attempts"]) for x in returned)
    if read_json(folder / "run.json")["method"] != "grpo":
        return out
    lengths = np.array([k for x in returned if x["step"] >= cold for k in x["lengths"]])
    longest = np.array([max(x["lengths"]) for x in returned])
    B, n = len(returned) // len(ticks), len(returned[0]["attempts"])
    draw, left, passed, done = chance.generator(0, Purpose.CHOOSE, 0), np.zeros(0, dtype=np.int64), 0, 0
    for _ in range(10_000):
        left = np.concatenate([left, draw.choice(longest, B - len(left))])
        lasted = int(np.sort(left)[int(np.ceil(home * B)) - 1])
        passed, done, left = passed + lasted, done + int((left <= lasted).sum()), left[left > lasted] - lasted
    halved = lengths - (1 - keep) * np.maximum(lengths - at, 0)
    return {**out, "ticks of APRIL": 100 * passed / (done * n), "tokens of ARRoL": float(halved.mean()),
            "longest": sum(ticks) / len(ticks), "twice the mean": 2 * float(lengths.mean())}


def _ticks(lines: Sequence[Mapping[str, Any]], returned: Sequence[Mapping[str, Any]], last: int) -> list[int]:
    """How many ticks each wave lasted. A group that was cancelled goes on in a later wave with what it had."""
    given_up: dict[tuple[int, int], int] = {}
    for x in lines:
        given_up[x["wave"], x["slot"]] = given_up.get((x["wave"], x["slot"]), 0) + x["cancelled"]
    ticks: list[int] = []
    waiting: dict[str, list[int]] = {}          # the waves in which a problem's groups started that have not returned
    for wave in range(last + 1):
        lasted = []
        for x in (x for x in returned if x["wave"] == wave):
            started = waiting[x["id"]].pop(0) if given_up[x["wave"], x["slot"]] < 0 else wave
            lasted.append(max(x["lengths"]) - sum(ticks[started:]))
        assert min(lasted) > 0
        ticks.append(max(lasted))
        for x in (x for x in lines if x["wave"] == wave and given_up[x["wave"], x["slot"]] > 0):
            waiting.setdefault(x["id"], []).append(wave)
    return ticks


# from the policy that a run ends with ---------------------------------------------------------------------------------


def ends(folder: Path, *, samples: int, play: Play = sample, base: bool = False) -> list[Rollout]:
    """Attempts of a run's last policy at the test split; with `base`, of the one it began with. Plain samples, or by
    `play`.
    """
    job = Job.of(read_json(folder / "run.json")["job"])
    found = _evaluated(job, job.setting.model if base else str(folder / "final"), job.setting.measured, samples, play)
    return [r for g in found.groups for r in g.rollouts]


def _evaluated(job: Job, model: str, pace: Pace, samples: int, play: Play = sample) -> Evaluation:
    opened = open_setting(job.setting.but(model=model), learn=False)
    recipe = methods.load("reinforce").recipe().but(play=play)
    found = asyncio.run(evaluate(recipe, opened.world, opened.sides.audit, pace, samples=samples, seed=job.seed,
                                 exact=False))
    opened.close()
    return found


def turns(folder: Path, samples: int = 4) -> Numbers:
    """`turns_of` attempts of the last policy, so many at each test problem."""
    return turns_of(ends(folder, samples=samples))


def turns_of(rollouts: Sequence[Rollout]) -> Numbers:
    """Of all attempts: success, turns with a fault of the policy, and the share that ended by itself without one.

    Of the successes: calls, which are all turns but the last, and those of them that had any fault.
    """
    right = [r for r in rollouts if r.score is not None and r.score.value > 0]
    return {
        "success": len(right) / len(rollouts),
        "bad turns": float(np.mean([malformed(r) for r in rollouts])),
        "form": float(np.mean([r.stop is Stop.DONE and not malformed(r) for r in rollouts])),
        "calls": float(np.mean([len(r.turns) - 1 for r in right])) if right else float("nan"),
        "failed": float(np.mean([sum(t.fault is not None for t in r.turns) for r in right])) if right else float("nan"),
    }


def regions(folder: Path, samples: int = 4) -> Numbers:
    """`regions_of` attempts of the last policy, so many at each test problem."""
    return regions_of(ends(folder, samples=samples))


def regions_of(rollouts: Sequence[Rollout]) -> Numbers:
    """Of answers that are boxes: hits, overlap with the target, and how far their areas are from its, as |log ratio|.

    An answer that is no box hits nothing and has no overlap; areas are of the others.
    """
    pairs = [(boxes.parsed(r.final), r.problem.meta["box"]) for r in rollouts]
    there = [(b, t) for b, t in pairs if b is not None]
    return {
        "hit": float(np.mean([boxes.hit(b, t) for b, t in pairs])),
        "overlap": sum(boxes.overlap(b, t) for b, t in there) / len(pairs),
        "size error": float(np.mean([abs(np.log(boxes.area(b) / boxes.area(t))) for b, t in there])),
    }


def frames(folder: Path, samples: int = 4) -> Numbers:
    """Of the last policy on `event`: frames inside, overlap of intervals, share right, the same with even frames.

    With even frames its first turn names frames at equal distance, whatever it would say.
    """
    own, even = (ends(folder, samples=samples, play=play) for play in (sample, evenly))
    inside = [tspo.inside(r.final.partition(" ")[2], r.problem.meta["event"]) for r in own]
    answers = [(intervals.parsed(r.final.partition(" ")[0]), r.problem.meta["event"]) for r in own]
    return {"inside": float(np.mean(inside)), "right": _right(own), "right, even": _right(even),
            "overlap": sum(intervals.overlap(a, e) for a, e in answers if a is not None) / len(answers)}


def _right(rollouts: Sequence[Rollout]) -> float:
    return float(np.mean([r.score is not None and r.score.value > 0 for r in rollouts]))


async def evenly(
    problem: Problem, attempts: Sequence[int], world: World, pace: Pace, place: Place,
    start: Segment | Rollout | None = None,
) -> list[Rollout]:
    """Dialogues on `event` whose first turn names frames at equal distance."""
    posed, which = await opening(problem, world, pace, place), problem.meta["event_set"]
    assert posed is not None and start is None
    named = signal.shown(rooms.NAMES[: which.length], which.frames)
    words = np.array([*world.text.encode(named), world.text.ends[0]])
    kept = tuple(words[:, None]) if pace.sampling.truncates else ()
    said = Said(words, np.zeros(len(words), np.float32), np.full(len(words), world.engine.version), Stop.DONE, kept)
    return await sample(problem, attempts, world, pace, place, Rollout(problem, (posed.wrote(said),), ""))


def votes(folder: Path, samples: int = 4, of: int = 8) -> Numbers:
    """Hits of one answer and of a vote of `of`, of a run's last policy and of the base, with the same luck."""
    ways: Mapping[str, Play] = {"one": sample, "vote": partial(guirc.voted, votes=of)}
    return {f"{name}{who}": regions_of(ends(folder, samples=samples, play=play, base=bool(who)))["hit"]
            for who in ("", ", base") for name, play in ways.items()}


def halves(folder: Path) -> Numbers:
    """pass@k of a run's last policy on the test split and on either half, and the base's ("before"), from exact rates.

    The hard half are sums that the base gets right at most once in 16 attempts.
    """
    setting = Setting.of(read_json(folder / "run.json")["job"]["setting"])
    opened = open_setting(setting.but(model=str(folder / "final")))
    sampling = setting.sampling
    now = np.array(opened.world.exact(opened.sides.audit, sampling))
    before = np.array([sums.base_rates()[sums.operands(p)] for p in opened.sides.audit])
    opened.grader.close()
    return {f"pass@{k}{part}{when}": float(np.mean(1 - (1 - rates[which]) ** k))
            for part, which in _by_halves(before <= sums.HARD[1]).items()
            for when, rates in (("", now), (" before", before)) for k in KS}


def puzzle_halves(folder: Path, samples: int = 16) -> Numbers:
    """pass@k up to 8 of a run's last policy on the test split and on either half, from sampled attempts."""
    job = Job.of(read_json(folder / "run.json")["job"])
    known = dict(zip((p.id for p in puzzles.listed(puzzles.Puzzles())), puzzles.base_rates().tolist(), strict=True))
    found = _evaluated(job, str(folder / "final"), Pace(0.0, job.setting.lengths.max_tokens), samples)
    hard = np.array([known[g.problem.id] <= sums.HARD[1] for g in found.groups])
    return {f"pass@{k}{part}": float(np.mean(found.best(k)[which]))
            for part, which in _by_halves(hard).items() for k in KS[:4]}


def _by_halves(hard: np.ndarray) -> dict[str, np.ndarray]:
    return {"": np.ones_like(hard), " hard": hard, " easy": ~hard}


def unaided(folder: Path) -> Numbers:
    """The chance of being right without help on the problems trained on, before and after, and the share by parts."""
    def exactly(setting: Setting) -> float:
        opened, recipe = open_setting(setting), methods.load("grpo").recipe()
        pace = replace(recipe.pace(Ledger()), max_tokens=setting.lengths.max_tokens)
        return asyncio.run(evaluate(recipe, opened.world, opened.sides.train, pace, samples=1, seed=0)).mean

    setting = Setting.of(read_json(folder / "run.json")["job"]["setting"])
    groups = read_lines(folder / "journal.jsonl")
    steps = 1 + max(g["step"] for g in groups)
    right: list[list[float]] = [[] for _ in range(PARTS)]
    for g in groups:
        if not g["variant"]:
            right[PARTS * g["step"] // steps] += g["rewards"]
    return {"trained on before": exactly(setting),
            "trained on": exactly(setting.but(model=str(folder / "final"))),
            **{f"trained on, part {i}": sum(part) / len(part) for i, part in enumerate(right, 1)}}


def repairs(folder: Path) -> Numbers:
    """Of InT's own arm, what repairs are while the policy is still the base: 256 problems, n attempts at each.

    The share right of attempts from the start and of those that go on from a new step, and the nats of what is
    imitated: a repair up to its new step, and the references of the same problems.
    """
    job = Job.of(read_json(folder / "run.json")["job"])
    if job.method != "int_" or "play.propose" in job.sets:
        return {}
    recipe, opened, ledger = recipe_of(job), open_setting(job.setting), Ledger(seed=job.seed)
    world, pace = opened.world, recipe.pace(ledger)

    async def tried(slot: int) -> Group:
        place = Place(job.seed, 0, slot, Purpose.PROFILE)
        (problem,) = await recipe.guide(opened.sides.train[slot], world, ledger)
        rollouts = await recipe.play(problem, range(int(job.arm["n"])), world, pace, place)
        return await recipe.reward(Group(problem, tuple(rollouts), place), world)

    async def all_of_them() -> list[Group]:
        return list(await asyncio.gather(*map(tried, range(256))))

    def nats(groups: Sequence[Group]) -> float:
        batch = pack(groups, version=world.engine.version)
        theirs = batch.role == int(Role.TEACHER)
        return -float(world.learner.score(batch.but(mask=theirs, kept=())).logp[theirs].sum()) / len(groups)

    def saying(group: Group, solution: str) -> Group:
        told = [*world.text.encode(solution), world.text.ends[0]]
        posed = asyncio.run(opening(group.problem, world, pace, group.place))
        assert posed is not None
        return group.of([group.rollouts[0].but(segments=(posed.read(told, Role.TEACHER),))])

    groups = asyncio.run(all_of_them())
    right = {cohort: [r.score.value > 0 for g in groups for r in g.rollouts if r.cohort == cohort and r.score]
             for cohort in ("", REPAIRED)}
    kept = [g for g in (recipe.select(g, ledger) for g in groups) if g and g.rollouts[0].cohort == REPAIRED]
    solutions = [str(g.problem.meta["solution"]) for g in kept]
    strange = methods.load(STRANGERS).in_other_words
    opened.grader.close()
    return {
        "right": sum(right[""]) / len(right[""]),
        "right after a repair": sum(right[REPAIRED]) / len(right[REPAIRED]),
        "problems repaired": len(kept) / len(groups),
        "nats of a repair": nats(kept),
        "nats of a reference": nats([saying(g, strange(s)) for g, s in zip(kept, solutions, strict=True)]),
        "nats of a reference in its own words": nats([saying(*of) for of in zip(kept, solutions, strict=True)]),
    }


MEASURES: Mapping[str, Callable[..., Numbers]] = {f.__name__: f for f in (
    at_tokens, after_steps, read_tokens, dead, detour, form, calls, spent, foretold, wrong, age, balance, tails, turns,
    regions, frames, votes, halves, puzzle_halves, unaided, repairs)}
