"""What strategies share: the tries of one answer, their numbers and scores, and texts that go on step by step.

Tries of attempt a that begin with the prompt have the numbers a n .. a n + n - 1, so that strategies with one n share
their samples. Those that begin inside another try have numbers of their own: no random number is used twice, and a path
that is never dropped is, token for token, the sample of its number.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any

from isocost import meter
from isocost.errors import UserError
from isocost.gather import together
from isocost.parts.play import advance, branch, opening, sample
from isocost.scorers import Scorer, answer_of, scores, step_of
from isocost.seams import Pace
from isocost.strategies import Pick
from isocost.types import Cost, Place, Problem, Rollout, Segment, Stop
from isocost.world import Ask, World

BRANCHES = 1 << 20      # numbers of each attempt for tries that begin inside another one, above those of all prompts
NO_SCORE = -1.0         # below every score: a text without one is not chosen
Choose = Callable[[Sequence[str | None], Sequence[float | None]], Pick]


@dataclass(frozen=True)
class Path:
    """A text under way, or over; `tree` is the subtree that it belongs to, `past` the same path after each step."""

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
    _branches: int = 0

    async def scores(self, texts: Sequence[Rollout], over: Sequence[bool] | None = None) -> list[float | None]:
        """The scorer's, None where there is none; all None without a scorer. A failed environment's text has none."""
        there = [i for i, t in enumerate(texts) if t.stop is not Stop.ERROR]
        out: list[float | None] = [None] * len(texts)
        if self.scorer is None:
            return out
        ended = [True] * len(texts) if over is None else over
        with meter.tab() as tab, meter.begins(False):
            found = await scores(self.scorer, self.problem, [texts[i] for i in there], [ended[i] for i in there],
                                 self.world)
        self.scoring += tab.cost
        for i, x in zip(there, found.scores, strict=True):
            out[i] = x
        return out

    async def pick(self, tries: Sequence[Rollout], choose: Choose, known: Sequence[float | None] = ()) -> Rollout:
        """What `choose` takes of finished tries, as the answer; `known` are scores that the first of them have."""
        found = [*known, *await self.scores(tries[len(known):])]
        pick = choose([voted(t) for t in tries], found)
        self.tries, self.depth = len(tries), self.depth + pick.depth([written(t) for t in tries])
        return self.end(None if pick.chosen is None else tries[pick.chosen], tries[0],
                        None if pick.chosen is None else found[pick.chosen])

    def end(self, chosen: Rollout | None, other: Rollout, score: float | None = None) -> Rollout:
        """The chosen rollout with the number of the attempt and notes; without one, another that failed."""
        meter.unchosen(self.tries - 1)
        numbers = {"tries": self.tries, "depth": self.depth, "scoring": self.scoring.prefill + self.scoring.decode
                   + self.scoring.score, "calls": self.scoring.verify, **({} if score is None else {"score": score})}
        last = chosen or other.but(stop=Stop.ERROR, final="")
        return last.but(attempt=self.attempt, parent=None,
                        notes={**last.notes, **{k: float(v) for k, v in numbers.items()}})

    # step by step ---------------------------------------------------------------------------------------------

    def begin(self, first: Segment, count: int) -> list[Path]:
        """Paths that have not begun, each with a number."""
        self.tries += count
        made = (Rollout(self.problem, (first,), "", attempt=a) for a in numbers(self.attempt, count))
        return [Path(r, tree=i) for i, r in enumerate(made)]

    def branch(self, path: Path, count: int) -> list[Path]:
        """A path `count` times: itself, and others that begin here. One that is over is there once: nothing goes on."""
        if path.over or count < 2:
            return [path]
        self.tries += count - 1
        return [path, *(replace(path, rollout=r) for r in branch(path.rollout, self._numbers(count - 1), self.world))]

    async def advance(self, paths: Sequence[Path], step: str) -> list[Path]:
        """Each path that is not over with its next step, and the score of the text."""
        grown, longest = await self._step(paths, step)
        self.depth += longest
        return await self._judged(grown, grown)

    async def look(self, paths: Sequence[Path], step: str, count: int) -> list[Path]:
        """`advance`, but each text is scored `count` steps later; these steps are dropped after that."""
        grown, longest = await self._step(paths, step)
        self.depth += longest
        ahead = [p if p.over else replace(p, rollout=p.rollout.but(attempt=a))
                 for p, a in zip(grown, self._numbers(len(grown)), strict=True)]
        for _ in range(count):
            ahead, longest = await self._step(ahead, step)
            self.depth += longest
        return await self._judged(grown, ahead)

    async def _step(self, paths: Sequence[Path], step: str) -> tuple[list[Path], int]:
        """The paths with their next step, and the tokens of the longest."""
        live = [i for i, p in enumerate(paths) if not p.over]
        made, grown = await advance([paths[i].rollout for i in live], self.world, self.pace, self.place,
                                    stop=(step_of(self.problem, step),)), list(paths)
        for i, rollout in zip(live, made, strict=True):
            grown[i] = replace(paths[i], rollout=rollout, over=self._ended(rollout), score=None)
        return grown, max((grown[i].length - paths[i].length for i in live), default=0)

    async def _judged(self, paths: Sequence[Path], by: Sequence[Path]) -> list[Path]:
        """Paths that have no score with that of the texts that they are judged by."""
        new = [i for i, p in enumerate(paths) if p.score is None and not (p.over and p.past and p.past[-1].over)]
        found = await self.scores([by[i].rollout for i in new], [by[i].over for i in new])
        out = list(paths)
        for i, x in zip(new, found, strict=True):
            made = replace(paths[i], score=x)
            out[i] = replace(made, past=(*made.past, made))
        return out

    def _ended(self, rollout: Rollout) -> bool:
        """Whether a text ended otherwise than with a step."""
        text = rollout.segments[-1]
        if rollout.stop is not Stop.DONE or int(text.tokens[-1]) in self.world.text.ends:
            return True
        return text.written >= self.pace.max_tokens or any(rollout.final.endswith(s) for s in self.pace.stop)

    def _numbers(self, count: int) -> list[int]:
        first = (self.attempt + 1) * BRANCHES + self._branches
        self._branches += count
        return list(range(first, first + count))


def numbers(attempt: int, count: int) -> list[int]:
    """The numbers of an attempt's tries. Raises UserError where they would be those of tries that begin inside others.
    """
    if (attempt + 1) * count > BRANCHES:
        raise UserError(f"attempt {attempt} with {count} tries each has more than {BRANCHES:,} tries before it: ask "
                        "for fewer answers a problem at once")
    return [attempt * count + j for j in range(count)]


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
    scorer: Scorer, search: Search,
) -> list[Rollout]:
    """Answers that are each found by a search over steps; a start is continued as it is.

    Raises UserError where texts are turns of a dialogue: its environment cannot be in the states of several paths.
    """
    if world.env is not Ask:
        raise UserError("a search over steps needs one question and one answer: the environment of a dialogue cannot "
                        "follow paths that are dropped. Use best-of, vote or until-sure, which choose among whole "
                        "dialogues")
    if start is not None:
        return await sample(problem, attempts, world, pace, place, start)
    first = await opening(problem, world, pace, place)
    assert first is not None        # without an environment it opens
    answers = [Answer(problem, a, world, pace, place, scorer) for a in attempts]
    return await together(*(search(x, first) for x in answers))
