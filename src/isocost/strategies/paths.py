"""What strategies share: the tries of one answer, their numbers and scores, and texts that go on step by step.

Tries of attempt a that begin with the prompt have the numbers a n .. a n + n - 1, so that strategies with one n share
their samples. Those that begin inside another try have numbers of their own: no random number is used twice, and a path
that is never dropped is, token for token, the sample of its number.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from isocost import meter
from isocost.errors import UserError
from isocost.gather import together
from isocost.parts.play import advance, branch, opening, sample
from isocost.scorers import Scorer, answer_of, scores, step_of
from isocost.seams import Pace
from isocost.strategies import Pick
from isocost.types import Cost, Place, Problem, Rollout, Segment, Stop
from isocost.world import Ask, Text, World

BRANCHES = 1 << 20      # numbers of each attempt for tries that begin inside another one, above those of all prompts
NO_SCORE = -1.0         # below every score: a text without one is not chosen
Choose = Callable[[Sequence[str | None], Sequence[float | None]], Pick]


@dataclass(frozen=True)
class Path:
    """A text under way, or over. `tree` is the subtree that it belongs to, `past` what it was after each step before.
    """

    rollout: Rollout
    over: bool = False
    score: float | None = None
    tree: int = 0
    past: tuple[Path, ...] = ()

    @property
    def value(self) -> float:
        """The score, or less than any."""
        return NO_SCORE if self.score is None else self.score

    @property
    def length(self) -> int:
        """Tokens that the policy wrote of it."""
        return written(self.rollout)

    def after(self, steps: int) -> Path:
        """What it was after so many steps, at least one; itself if it was over before."""
        return (*self.past, self)[min(steps, len(self.past) + 1) - 1]


def written(rollout: Rollout) -> int:
    """Tokens that the policy wrote, over all segments."""
    return sum(s.written for s in rollout.segments)


@dataclass
class Answer:
    """One answer while it is made: the place of its random numbers, and what it took so far."""

    problem: Problem
    attempt: int
    world: World
    pace: Pace
    place: Place
    scorer: Scorer | None = None
    tries: int = 0
    depth: int = 0
    scoring: Cost = Cost()
    steps: int = 0          # of a search
    branches: int = 0       # numbers that were given apart from those of the attempt's samples
    looks: int = 0          # and those of texts that are looked at and dropped

    @property
    def spent(self) -> int:
        """Tokens that the scorer read and wrote."""
        return self.scoring.prefill + self.scoring.decode + self.scoring.score

    async def scores(self, texts: Sequence[Rollout], over: Sequence[bool] | None = None) -> list[float | None]:
        """The scorer's, None where there is none; all None without a scorer. A failed environment's text has none."""
        there = [i for i, t in enumerate(texts) if t.stop is not Stop.ERROR]
        out: list[float | None] = [None] * len(texts)
        if self.scorer is None:
            return out
        ended = [True] * len(texts) if over is None else over
        with meter.tab() as tab:
            found = await scores(self.scorer, self.problem, [texts[i] for i in there], [ended[i] for i in there],
                                 self.world)
        self.scoring += tab.cost
        for i, x in zip(there, found.scores, strict=True):
            out[i] = x
        return out

    async def pick(self, tries: Sequence[Rollout], choose: Choose, known: Sequence[float | None] = ()) -> Rollout:
        """What `choose` takes of finished tries, as the answer; `known` are scores that the first of them have."""
        found = [*known, *await self.scores(tries[len(known):])]
        said = [voted(t) for t in tries]
        pick = choose(said, found)
        self.tries, self.depth = len(tries), self.depth + pick.depth([written(t) for t in tries])
        ends = [Path(t, True, x) for t, x in zip(tries, found, strict=True)]
        alike = {"alike": 1.0} if len(found) > 1 and None not in found and len(set(found)) == 1 else {}
        mute = {"mute": float(k)} if self.scorer is None and (k := said.count(None)) else {}
        return self.end(None if pick.chosen is None else ends[pick.chosen], ends[0], **alike, **mute)

    def end(self, chosen: Path | None, other: Path, **notes: float) -> Rollout:
        """The chosen rollout with the number of the attempt, and notes; without one, another that failed."""
        meter.unchosen(self.tries - 1)
        text = other.rollout.but(stop=Stop.ERROR, final="") if chosen is None else chosen.rollout
        noted = {"tries": self.tries, "depth": self.depth, "scoring": self.spent, "calls": self.scoring.verify, **notes}
        if chosen is not None and chosen.score is not None:
            noted["score"] = chosen.score
        asked = {"scoring_written": self.scoring.decode, "scoring_read": self.scoring.prefill}
        noted |= {k: x for k, x in asked.items() if x}      # of a model that writes verdicts
        if self.steps:
            noted["steps"] = self.steps
        return text.but(attempt=self.attempt, parent=None,
                        notes={**text.notes, **{k: float(v) for k, v in noted.items()}})

    # step by step ---------------------------------------------------------------------------------------------

    def begin(self, first: Segment, count: int) -> list[Path]:
        """Paths that have not begun, each with a number; the first ones have those of the attempt's samples."""
        new = self.apart(count) if self.tries else numbers(self.attempt, count)
        self.tries += count
        return [Path(Rollout(self.problem, (first,), "", attempt=a)) for a in new]

    def branch(self, path: Path, count: int, *, others: bool = False) -> list[Path]:
        """A path `count` times: itself, and others that begin here; or only `others`. Of one that is over, copies."""
        if path.over:
            return [path] * count
        new = count - (not others)
        self.tries += new
        made = branch(path.rollout, self.apart(new), self.world) if new else []
        return [*([] if others else [path]), *(replace(path, rollout=r) for r in made)]

    async def advance(self, paths: Sequence[Path], step: str, look: int = 0) -> list[Path]:
        """Each path that is not over with its next step, and with a score.

        With `look` the score is of the text that many steps later; those steps are dropped, and no rollouts.
        """
        live = [i for i, p in enumerate(paths) if not p.over]
        first = self._first(2) + self.looks
        grown, self.steps = await self._step([paths[i] for i in live], step), self.steps + 1
        ahead = grown
        if look:
            self.looks += len(grown)
            ahead = [replace(p, rollout=p.rollout.but(attempt=first + k)) for k, p in enumerate(grown)]
        for _ in range(look):
            ahead = await self._step(ahead, step)
        found = await self.scores([p.rollout for p in ahead], [p.over for p in ahead])
        out = list(paths)
        for i, path, x in zip(live, grown, found, strict=True):
            past = (*paths[i].past, paths[i]) if paths[i].length else ()
            out[i] = replace(path, score=x, past=past)
        return out

    async def _step(self, paths: Sequence[Path], step: str) -> list[Path]:
        """The paths with a step more, where they are not over."""
        live = [p for p in paths if not p.over]
        mark = step_of(self.problem, step)
        ends = step_ids(self.world, mark)
        made = iter(await advance([p.rollout for p in live], self.world, self.pace, self.place, ends=ends,
                                  stop=() if ends else (mark,)))
        grown = [p if p.over else replace(p, rollout=(r := next(made)), over=self._ended(r)) for p in paths]
        new = [len(g.rollout.segments[-1]) - len(p.rollout.segments[-1]) for g, p in zip(grown, paths, strict=True)]
        self.depth += max(new, default=0)
        return grown

    def _ended(self, rollout: Rollout) -> bool:
        """Whether a text ended otherwise than with a step."""
        text = rollout.segments[-1]
        if rollout.stop is Stop.STEP:
            return text.written >= self.pace.max_tokens
        ends = self.world.text.ends     # without any, its server said that it is over
        if rollout.stop is not Stop.DONE or not ends or int(text.tokens[-1]) in ends:
            return True
        return text.written >= self.pace.max_tokens or any(rollout.final.endswith(s) for s in self.pace.stop)

    def apart(self, count: int) -> list[int]:
        """Numbers that no sample of the attempt has."""
        first = self._first(0) + self.branches
        self.branches += count
        return list(range(first, first + count))

    def _first(self, quarter: int) -> int:
        """The first of a quarter of the numbers that are apart, so that no kind of them shifts another."""
        return (self.attempt + 1) * BRANCHES + quarter * (BRANCHES // 4)


def numbers(attempt: int, count: int) -> list[int]:
    """The numbers of an attempt's tries. Raises UserError where they would be those of tries that begin inside others.
    """
    if (attempt + 1) * count > BRANCHES:
        raise UserError(f"attempt {attempt} with {count} tries each has more than {BRANCHES:,} tries before it: ask "
                        "for fewer answers a problem at once")
    return [attempt * count + j for j in range(count)]


def step_ids(world: World, mark: str) -> tuple[int, ...]:
    """The ids whose text has this mark in it: an engine stops at ids at less cost than at strings. Empty if there is
    none, or if the vocabulary is not known.
    """
    if not getattr(world.text, "tokenized", True):      # ids stand for texts: the engine sends this one to its server
        return tuple(world.text.encode(mark))
    return _step_ids(world.text, mark, world.learner.vocabulary)  # type: ignore[arg-type]


@lru_cache(maxsize=16)
def _step_ids(text: Text, mark: str, size: int) -> tuple[int, ...]:
    return tuple(i for i in range(size) if i not in text.ends and mark in text.decode([i]))


def voted(rollout: Rollout) -> str | None:
    """The answer that a try votes for. One that was cut, or whose environment failed, has none."""
    return answer_of(rollout.problem, rollout.final) if rollout.stop in (Stop.DONE, Stop.TURNS) else None


async def pooled(
    problem: Problem, attempts: Sequence[int], world: World, pace: Pace, place: Place, start: Segment | Rollout | None,
    scorer: Scorer | None, choose: Choose, count: int,
) -> list[Rollout]:
    """Answers that are each chosen among `count` finished samples, all of which are asked for at once."""
    made = await sample(problem, [k for a in attempts for k in numbers(a, count)], world, pace, place, start)
    tries = [made[i : i + count] for i in range(0, len(made), count)]
    answers = [Answer(problem, a, world, pace, place, scorer) for a in attempts]
    return await together(*(x.pick(own, choose) for x, own in zip(answers, tries, strict=True)))


Search = Callable[[Answer, Segment], Coroutine[Any, Any, Rollout]]


async def searched(
    problem: Problem, attempts: Sequence[int], world: World, pace: Pace, place: Place, start: Segment | Rollout | None,
    scorer: Scorer | None, search: Search,
) -> list[Rollout]:
    """Answers that are each found by a search; a start is continued as it is.

    Raises UserError where texts are turns of a dialogue: its environment cannot be in the states of several paths.
    """
    if world.env is not Ask:
        raise UserError("this strategy needs one question and one answer: the environment of a dialogue cannot "
                        "follow paths that are dropped. Use best-of, vote or until-sure, which choose among whole "
                        "dialogues")
    if start is not None:
        return await sample(problem, attempts, world, pace, place, start)
    first = await opening(problem, world, pace, place)
    assert first is not None        # without an environment it opens
    answers = [Answer(problem, a, world, pace, place, scorer) for a in attempts]
    return await together(*(search(x, first) for x in answers))
