"""Samples and searches of a live model: the lines of pool.jsonl and live.jsonl, each written once it is graded."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from isocost import meter, scorers
from isocost.chance import Purpose
from isocost.errors import UserError
from isocost.gather import together
from isocost.parts.play import sample
from isocost.runs.files import Stream, read_lines
from isocost.scorers import Scorer, step_of
from isocost.seams import Pace
from isocost.steps.events import Tell
from isocost.strategies import Strategy
from isocost.strategies.paths import numbers, voted, written
from isocost.types import Place, Problem, Rollout, Stop
from isocost.worlds.setting import Opened, Setting

Line = dict[str, Any]


@dataclass(frozen=True)
class PoolSampler:
    """What is sampled: an opened setting, the problems, and the seed of all random numbers."""

    opened: Opened
    problems: Sequence[Problem]
    seed: int
    tell: Tell
    setting: Setting | None = None      # at which to sample, where it is not the opened one

    def at(self, setting: Setting) -> PoolSampler:
        """The same at another setting of sampling."""
        return replace(self, setting=setting)

    @property
    def pace(self) -> Pace:
        """How the policy is sampled."""
        return (self.setting or self.opened.setting).measured

    async def tried(self) -> None:
        """Sample one token at the reasoning effort, before anything else is paid for. Raises UserError for a server
        that refuses it."""
        if not (effort := self.pace.sampling.effort):
            return
        with meter.on(meter.CHECK):
            (text,) = await sample(self.problems[0], [0], self.opened.world, replace(self.pace, max_tokens=1),
                                   Place(self.seed, 0, 0, int(Purpose.PROFILE)))
        if text.stop is Stop.ERROR:
            tally = (self.opened.world.about.server or dict)()
            why = "; ".join(str(x) for x in tally.get("examples", {}).values()) or "no answer"
            raise UserError(f"the server does not take reasoning_effort = {effort} ({why}): leave it out of --efforts")

    async def pool(self, kept: Path, samples: int, scorer: Scorer, level: str = "") -> list[Line]:
        """A line for each problem in order: its first `samples` samples, which a strategy of a pool would take as well.
        A line that is in the file `kept` is used again. `level` is the key of a problem's data that tells its band."""
        world, pace = self.opened.world, self.pace

        async def one(problem: Problem, place: Place) -> Line:
            with meter.tab() as tab, meter.begins(True):
                texts = await sample(problem, numbers(0, samples), world, pace, place)
            with meter.tab() as judged:
                found = await scorers.scores(scorer, problem, texts, [True] * samples, world)
            return {
                "right": await _right(self.opened, texts), "answer": numbered([voted(t) for t in texts]),
                "tokens": [written(t) for t in texts], "read": tab.cost.fresh / samples,
                "score": [0.0 if s is None else s for s in found.scores],        # one without comes last
                "scoring": (judged.cost.prefill + judged.cost.decode + judged.cost.score) / samples,
                "marks": sum(step_of(problem) in t.final for t in texts), **({"why": found.why} if found.why else {}),
                **({"level": problem.meta.get(level)} if level else {}), "cost": (tab.cost + judged.cost).data(),
            }

        return await self._each(kept, one, f"problems x {samples} samples", lambda line: True)

    async def live(self, kept: Path, strategy: Strategy, label: str, size: int) -> list[Line]:
        """A line for each problem in order: one answer by a strategy that is run. Lines in `kept` are used again."""
        async def one(problem: Problem, place: Place) -> Line:
            text, line = await played(strategy, problem, self.opened, self.pace, place)
            return {"strategy": label, "size": size, "right": (await _right(self.opened, [text]))[0],
                    "samples": line.pop("tries"), **line}

        return await self._each(kept, one, f"answers by {label}-{size}",
                                lambda line: (line["strategy"], line["size"]) == (label, size))

    async def _each(
        self, kept: Path, one: Callable[[Problem, Place], Awaitable[Line]], what: str, mine: Callable[[Line], bool]
    ) -> list[Line]:
        with meter.on(meter.PROBE):
            return await once(
                [x for x in read_lines(kept) if mine(x)], kept, self.problems,
                lambda slot, p: one(p, Place(self.seed, 0, slot, int(Purpose.PROFILE))),
                lambda done, total: self.tell(what, done, total))


async def once(
    there: Sequence[Line], kept: Path, problems: Sequence[Problem], one: Callable[[int, Problem], Awaitable[Line]],
    tell: Callable[[int, int], None],
) -> list[Line]:
    """A line for each problem in order, of its number and itself, appended to the file `kept` once it is made; a line
    that is `there` is used again."""
    known = {x["id"]: x for x in there}
    done, total = sum(p.id in known for p in problems), len(problems)
    tell(done, total)
    with closing(Stream.mended(kept)) as stream:

        async def each(slot: int, problem: Problem) -> Line:
            nonlocal done
            if problem.id in known:
                return dict(known[problem.id])
            line = {"id": problem.id, **await one(slot, problem)}
            stream.write(line)
            done += 1
            tell(done, total)
            return line

        return await together(*(each(slot, p) for slot, p in enumerate(problems)))


async def played(
    strategy: Strategy, problem: Problem, opened: Opened, pace: Pace, place: Place
) -> tuple[Rollout, Line]:
    """An answer by a strategy, and what it took: tries, tokens written, how many of them one after the other."""
    with meter.tab() as tab, meter.begins(True):
        (text,) = await strategy.play(problem, [0], opened.world, pace, place)
    return text, {"tries": text.numbers.get("tries", 1.0), "tokens": float(tab.cost.decode),
                  "depth": text.numbers.get("depth", float(written(text))), "cost": tab.cost.data()}


async def _right(opened: Opened, texts: Sequence[Rollout]) -> list[float]:
    """The reward of each text; 0 for one without an answer. Raises UserError where the verifier fails, or its reward is
    outside [0, 1]."""
    whole = [t for t in texts if t.stop is not Stop.ERROR]
    marks = dict(zip((id(t) for t in whole), await opened.world.grade(whole), strict=True))
    out = []
    for text in texts:
        mark = marks.get(id(text))
        if mark is None and text.stop is not Stop.ERROR:
            failed = "; ".join(opened.grader.examples.values()) or "no reason given"
            raise UserError(f"the verifier failed on an answer to {text.problem.id!r} ({failed}): mend it first")
        value = 0.0 if mark is None else float(mark.value)
        if not 0 <= value <= 1:
            raise UserError(f"the reward of an answer to {text.problem.id!r} is {value:g}; a study needs rewards "
                            "between 0 and 1: rescale it")
        out.append(value)
    return out


def numbered(said: Sequence[str | None]) -> list[int]:
    """The number of each text's answer, -1 for one that gives none."""
    order = {answer: i for i, answer in enumerate(dict.fromkeys(a for a in said if a is not None))}
    return [-1 if a is None else order[a] for a in said]
