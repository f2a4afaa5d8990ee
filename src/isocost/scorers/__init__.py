"""Scorers: how likely each text, finished or not, is to be right. One file each, found by its name.

    steps   steps:wrong=0.15,shared=0.5   my_scorer.py:function   http://127.0.0.1:9000/score:wrong=0.1

A file has a docstring, and `score`, whose keywords are its settings. Dials put any scorer inside a function that adds
errors (`wrong`, `shared`; `misses`, `flags`), reads it several times (`votes`) or scores it by its steps (`by`).
Strategies choose by a scorer; the verifier `scored:SCORER` and the reward `isocost.parts.reward.scored` train on one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from typing import Any, Protocol

from isocost import chance, meter
from isocost.errors import Interrupted, RewardFailed, UserError, told
from isocost.found import FileKind
from isocost.gather import at_most, being_cancelled
from isocost.recipe import knobs, with_setting
from isocost.tasks.builtin import families
from isocost.tasks.verify import answers
from isocost.traits import bounds
from isocost.types import Problem, Rollout
from isocost.world import World

KIND = FileKind("isocost.scorers", "scorer", ("score",), "docs/scorers.md", dashes=True)
SECONDS = 60.0      # for one call of a scorer; after that its texts have no score
_pretended = ContextVar("pretended", default=False)
_DIALS = re.compile(r"(.*?)(?::((?:\w+=[^,=]*)(?:,\w+=[^,=]*)*))?")


class Scorer(Protocol):
    """How likely each text is to be right, in [0, 1], or None for no score; `over` says which texts have ended.

    Charges what the scores cost: verifier calls, or the tokens that a model reads and writes.
    """

    async def __call__(
        self, problem: Problem, texts: Sequence[Rollout], over: Sequence[bool], world: World
    ) -> Sequence[float | None]: ...


@dataclass(frozen=True)
class Scored:
    """The scores of some texts, None where there is none, and the reason for the first of these."""

    scores: list[float | None]
    why: str = ""


async def scores(
    scorer: Scorer, problem: Problem, texts: Sequence[Rollout], over: Sequence[bool], world: World,
    seconds: float | None = SECONDS,
) -> Scored:
    """What a scorer says of texts. Equal texts are scored once; what is no number in [0, 1] is no score.

    Nor is there one if the scorer raises, returns another number of scores, or takes longer than `seconds`; what it
    charged until then stays charged. `World.failures` counts these, by their reasons. What a scorer samples is charged
    and is no rollout. Raises UserError and RewardFailed as the scorer does.
    """
    if not texts:
        return Scored([])
    if _pretended.get():
        return Scored([chance.share("pretended", problem.id, t.final) for t in texts])
    keys = [(t.segments[-1].tokens.tobytes(), len(t.segments), done) for t, done in zip(texts, over, strict=True)]
    first = {key: i for i, key in reversed(list(enumerate(keys)))}
    each = sorted(first.values())
    try:
        with meter.begins(False):
            said = scorer(problem, [texts[i] for i in each], [over[i] for i in each], world)
            found = list(await at_most(seconds, said))
        why = "" if len(found) == len(each) else f"the scorer returned {len(found)} scores for {len(each)} texts"
    except (UserError, RewardFailed, Interrupted):
        raise
    except BaseException as error:      # other people's code may raise anything
        if being_cancelled(error) or not isinstance(error, Exception):
            raise
        found, why = [], f"the scorer took longer than {seconds:g} s" if isinstance(error, TimeoutError) else (
            f"the scorer raised {told(error)}")
    values: dict[int, float | None] = dict.fromkeys(each)
    for i, value in zip(each, found, strict=False) if not why else ():
        values[i] = number = _number(value)
        if number is None and value is not None:
            why = why or (f"the scorer returned {told(value)} for {texts[i].final[-60:]!r}; expected a number from 0 "
                          "to 1")
    if why:
        world.failures[f"scorer: {why}"] += 1
    return Scored([values[first[key]] for key in keys], why)


@contextmanager
def pretended() -> Iterator[None]:
    """Inside, no scorer is asked, and the text decides its score: for trials on problems that it may not know."""
    token = _pretended.set(True)
    try:
        yield
    finally:
        _pretended.reset(token)


async def marks(rollouts: Sequence[Rollout], *, scorer: Scorer, world: World) -> list[float | None]:
    """What a scorer says of finished rollouts of any problems, in their order. Charges what the scorer does."""
    own: dict[tuple[str, str], list[int]] = {}
    for i, rollout in enumerate(rollouts):
        own.setdefault((rollout.problem.id, rollout.problem.variant), []).append(i)
    out: list[float | None] = [None] * len(rollouts)
    for each in own.values():
        texts = [rollouts[i] for i in each]
        found = await scores(scorer, texts[0].problem, texts, [True] * len(texts), world)
        for i, value in zip(each, found.scores, strict=True):
            out[i] = value
    return out


def _number(value: Any) -> float | None:
    if isinstance(value, str | bytes) or not hasattr(value, "__float__"):
        return None
    number = float(value)
    return number if math.isfinite(number) and 0.0 <= number <= 1.0 else None


def parse(spec: str) -> Scorer:
    """The scorer that a specification names, with its settings and dials. Raises UserError with the nearest names."""
    match = _DIALS.fullmatch(spec.strip())
    assert match is not None
    name, options = match[1], dict(x.split("=", 1) for x in (match[2] or "").split(",") if x)
    scorer: Callable[..., Any]
    if ".py:" in name:
        scorer = KIND.load("python").named(name)
    elif name.startswith(("http:", "https:")):
        scorer = partial(KIND.load("endpoint").score, url=name)
    else:
        scorer = KIND.load(name).score
    owners = {k: f for f in (*reversed(DIALS), scorer) for k in knobs(f) if k != "inner"}
    for setting in options:
        if setting not in owners:
            close = " or ".join(map(repr, get_close_matches(setting, owners)))
            raise UserError(f"scorer {spec!r} has no setting {setting!r}{f' (did you mean {close}?)' if close else ''}"
                            f"; it has {', '.join(owners)}")
    for owner in (scorer, *DIALS):
        own = [k for k in options if owners[k] is owner]
        if own and owner in DIALS:
            scorer = partial(owner, inner=scorer)
        for setting in own:
            try:
                scorer = with_setting(scorer, setting, options[setting], name)
            except KeyError as error:
                raise UserError(f"scorer {spec!r}: {setting}={options[setting]}: {error.args[0]}") from None
    return scorer


def answer_of(problem: Problem, text: str) -> str | None:
    """The answer that a finished text gives, in one spelling: votes are counted by it. None if it gives none."""
    if family := families.of(problem):
        return text.rpartition(family.step)[2] or None
    return ", ".join(answers.bare(answers.plain(x)) for x in answers.final(text)) or None


def checks_of(problem: Problem, text: str) -> Mapping[str, float]:
    """What a built-in family says of a finished text without marking it, from 0 to 1 by name; empty elsewhere."""
    family = families.of(problem)
    return family.checks(problem, answer_of(problem, text) or "") if family else {}


def solutions_of(problem: Problem) -> set[str]:
    """All right answers: `meta["solutions"]`, those that a built-in family knows, or the problem's answer alone."""
    family, told = families.of(problem), problem.meta.get("solutions")
    known = {str(x) for x in told} if told else family.solutions(problem) if family else None
    return known or {str(problem.answer)}


def stepped(problem: Problem) -> bool:
    """Whether the scorer `steps` can check it: the built-in families have a checker."""
    return families.of(problem) is not None


def step_of(problem: Problem, step: str = "") -> str:
    """What ends a step of a text: as named, else the mark of a built-in family, else an empty line."""
    family = families.of(problem)
    return step or (family.step if family else "\n\n")


@bounds(wrong="[0, 1]", shared="[0, 1]")
async def mistaken(
    problem: Problem, texts: Sequence[Rollout], over: Sequence[bool], world: World, *, inner: Scorer,
    wrong: float = 0.0, shared: float = 0.0, draw: int = 0,
) -> list[float | None]:
    """Another scorer that misjudges a share `wrong` of the texts: their score x is 1 - x. The text decides which.

    With `shared`, the finished texts of that share of answers are all misjudged or none, so that the errors of two
    texts with one answer have this correlation. `draw` numbers independent draws of the errors.
    """
    out: list[float | None] = []
    for text, done, value in zip(texts, over, await inner(problem, texts, over, world), strict=True):
        about: tuple[object, ...] = draw, problem.id, text.final, done
        answer = answer_of(problem, text.final) if done and shared else None
        if answer is not None and chance.share("shared", draw, problem.id, answer) < shared:
            about = draw, problem.id, "answer", answer
        out.append(value if value is None or chance.share(*about) >= wrong else 1 - float(value))
    return out


@bounds(misses="[0, 1]", flags="[0, 1]")
async def erring(
    problem: Problem, texts: Sequence[Rollout], over: Sequence[bool], world: World, *, inner: Scorer,
    misses: float = 0.0, flags: float = 0.0,
) -> list[float | None]:
    """Another scorer whose verdict on a whole text errs: it raises a share `misses` of the scores below 1/2, and lowers
    a share `flags` of the others. Score x becomes 1 - x, and the text decides, so a policy can find what is missed."""
    out: list[float | None] = []
    for text, value in zip(texts, await inner(problem, texts, over, world), strict=True):
        rate = 0.0 if value is None else flags if value >= 0.5 else misses
        out.append(1 - float(value or 0) if chance.share("errs", problem.id, text.final) < rate else value)
    return out


@bounds(votes="[1, inf)")
async def voted(
    problem: Problem, texts: Sequence[Rollout], over: Sequence[bool], world: World, *, inner: Scorer, votes: int = 1,
) -> list[float | None]:
    """The mean of `votes` independent readings by another scorer, each with errors of its own (`wrong`).

    Their sum is the vote of DeepSeek-GRM, arXiv:2504.02495. Each is charged. Raises UserError for a scorer whose
    readings are all the same.
    """
    if "draw" not in knobs(inner):
        raise UserError("votes counts readings that differ: give the scorer errors, such as wrong=0.3")
    each = [await with_setting(inner, "draw", k, "scorer")(problem, texts, over, world) for k in range(votes)]
    return [None if None in some else math.fsum(some) / votes for some in zip(*each, strict=True)]


async def stepwise(
    problem: Problem, texts: Sequence[Rollout], over: Sequence[bool], world: World, *, inner: Scorer, by: str = "last",
) -> list[float | None]:
    """Another scorer, asked after each step of a text: the `last` of these scores, the `min`, the `mean` or the `prod`.

    A process scorer that was trained on steps is used so (Lightman et al. 2023, arXiv:2305.20050, section 2.6).
    """
    if by not in FOLDS:
        raise UserError(f"a scorer's by is one of {', '.join(FOLDS)}; not {by!r}")
    if by == "last":
        return list(await inner(problem, texts, over, world))
    cut = [_prefixes(problem, t, world) for t in texts]
    asked = [(p, False) for prefixes in cut for p in prefixes]
    found = iter(await inner(problem, [*(p for p, _ in asked), *texts], [*(o for _, o in asked), *over], world))
    before = [[next(found) for _ in prefixes] for prefixes in cut]
    each = [[*some, next(found)] for some in before]
    return [None if None in some else FOLDS[by]([float(x) for x in some if x is not None]) for some in each]


def _prefixes(problem: Problem, text: Rollout, world: World) -> list[Rollout]:
    """The text up to the end of each of its steps but the last."""
    words, mark = text.segments[-1], step_of(problem)
    own, reply = len(words), words.reply()
    ends = [own - len(reply) + k for k in range(1, len(reply))
            if world.text.decode(reply[max(0, k - 4) : k].tolist()).endswith(mark)]
    return [text.but(segments=(*text.segments[:-1], words.cut(k)),
                     final=world.text.decode(reply[: k - own + len(reply)].tolist())) for k in ends]


FOLDS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "last": lambda x: x[-1], "min": min, "mean": lambda x: math.fsum(x) / len(x), "prod": math.prod,
}
DIALS = (mistaken, voted, stepwise, erring)        # the innermost first
