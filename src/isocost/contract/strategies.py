"""The contract of strategies: what every file promises. The tests and `isocost methods check` both run this."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from isocost import meter, strategies
from isocost.chance import Purpose
from isocost.contract.check import toy_for
from isocost.gather import finished
from isocost.promise import Promise, broken, sentence
from isocost.recipe import knobs
from isocost.scorers import outcome
from isocost.seams import Pace, Play
from isocost.strategies import Strategy
from isocost.strategies.paths import voted, written
from isocost.traits import declared
from isocost.types import Place, Problem, Rollout, Stop
from isocost.world import World
from isocost.worlds import toy

PLACE, PACE = Place(5, 0, 2, int(Purpose.EVALUATION)), Pace(lr=0.0, max_tokens=toy.LONGEST)
ATTEMPTS = range(4)
STEP = "a"      # ends a step in the toy world, whose texts have none of their own
FRAMES = {"frames": 1, "most_frames": 4}        # of its problems, which show no frames


def check(name: str) -> list[Promise]:
    """Check a strategy, by name or path, against every promise, in the toy world."""
    module, strategy = strategies.KIND.load(name.partition(":")[0]), strategies.parse(name)
    return [Promise(sentence(promise), broken(promise, module.__file__, module, strategy)) for promise in PROMISES]


class _Watched:
    """The toy's engine, which notes whether it went on with tokens of the policy."""

    def __init__(self, inner: Any):
        self.inner, self.resumed = inner, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def generate(self, start: Any, *args: Any, **kwargs: Any) -> Any:
        self.resumed = self.resumed or bool(start.written)
        return await self.inner.generate(start, *args, **kwargs)


def _played(
    strategy: Strategy, attempts: Sequence[int] = ATTEMPTS, **changes: Any
) -> tuple[list[Rollout], meter.Tab, World]:
    """The answers of a trial, what they took, and the world."""
    world, own = toy_for(False), knobs(strategy.play)
    world.engine = _Watched(world.engine)
    fits = {"step": STEP, "scorer": outcome.score if own.get("scorer") is not None else None, **changes}
    play: Play = partial(strategy.play, **{k: v for k, v in fits.items() if k in own})
    problem = replace(world.problems[0], meta={**world.problems[0].meta, **FRAMES})
    with meter.tab() as tab, meter.begins(True):
        answers = finished(play(problem, list(attempts), world, PACE, PLACE))
    return list(answers), tab, world


def _tokens(rollouts: Sequence[Rollout]) -> list[list[int]]:
    return [[int(t) for s in r.segments for t in s.tokens] for r in rollouts]


def card(module: Any, strategy: Strategy) -> str:
    """The file begins with a docstring that has an equation, and its card makes one claim."""
    if (module.__doc__ or "").count("\n") < 2:
        return "the docstring has no equation: one sentence, then the equation and the paper"
    return "" if module.CARD.claim.endswith(".") else f"the claim {module.CARD.claim!r} is no sentence"


def settings(module: Any, strategy: Strategy) -> str:
    """Every setting has a default, every bound is of a setting, and the specification is read as it is written."""
    own = knobs(module.play)
    if bare := [k for k, v in own.items() if v is inspect.Parameter.empty]:
        return f"{bare[0]} has no default"
    if other := sorted(set(declared(module.play).bounds) - set(own)):
        return f"bounds are declared of {other[0]!r}, which is no setting"
    again = strategies.parse(str(strategy)).settings
    return "" if again == strategy.settings else f"{strategy} is read as {again}"


def answers(module: Any, strategy: Strategy) -> str:
    """Each attempt has one rollout, with its number and its notes."""
    made, _, _ = _played(strategy)
    if [r.attempt for r in made] != list(ATTEMPTS):
        return f"attempts {list(ATTEMPTS)} returned {[r.attempt for r in made]}"
    lacking = [k for k in ("tries", "depth") if any(k not in r.notes for r in made)]
    return f"a rollout has no note {lacking[0]!r}" if lacking else ""


def bill(module: Any, strategy: Strategy) -> str:
    """Every try is charged once, and is either returned or counted as unchosen."""
    made, tab, _ = _played(strategy)
    tries = int(sum(r.numbers["tries"] for r in made))
    if not tab.cost.rollouts == tries == tab.unchosen + len(made):
        return (f"{tab.cost.rollouts} rollouts were charged for {len(made)} answers, their notes say {tries} tries, "
                f"and {tab.unchosen} were counted as unchosen (isocost.meter.unchosen)")
    return ""


def depth(module: Any, strategy: Strategy) -> str:
    """The depth of an answer is at least its own tokens, and at most all that were written."""
    made, tab, _ = _played(strategy, [1])
    own, said = written(made[0]), made[0].numbers["depth"]
    return "" if own <= said <= tab.cost.decode else (
        f"an answer of {own} tokens has depth {said:g}; {tab.cost.decode} tokens were written")


def alone(module: Any, strategy: Strategy) -> str:
    """An answer depends on its own number: not on the other attempts, and not on when it is asked for."""
    made, again = _played(strategy)[0], _played(strategy, [3, 1])[0]
    same = _tokens([made[3], made[1]]) == _tokens(again)
    return "" if same else "attempts 3 and 1 differ from themselves beside attempts 0 and 2"


def pool(module: Any, strategy: Strategy) -> str:
    """If it has `choose`, that is what `play` returns of the same samples."""
    if not strategy.of_pool:
        return ""
    from isocost.parts.play import sample

    world = toy_for(False)
    with meter.begins(True):
        tries = finished(sample(world.problems[0], range(strategy.most), world, PACE, PLACE))
    scores = finished(outcome.score(world.problems[0], tries, [True] * len(tries), world))
    pick = strategy.choose([voted(t) for t in tries], scores)
    (answer,), _, _ = _played(strategy, [0])
    if pick.chosen is None or _tokens([answer]) != _tokens([tries[pick.chosen]]):
        return f"choose takes sample {pick.chosen} of the first {strategy.most}, and play returns another text"
    return "" if pick.tries == answer.numbers["tries"] else f"choose uses {pick.tries} samples, and play another number"


def unscored(module: Any, strategy: Strategy) -> str:
    """Chosen by scores, there is no answer where no try has one: `Stop.ERROR`, with every try on the bill."""
    if not any("score" in r.notes for r in _played(strategy)[0]):
        return ""
    made, tab, _ = _played(strategy, scorer=_never)
    if any(r.stop is not Stop.ERROR or r.final for r in made):
        return "an answer was returned although no try has a score"
    return "" if tab.cost.rollouts == sum(r.numbers["tries"] for r in made) else "tries without a score are not billed"


async def _never(problem: Problem, texts: Sequence[Rollout], over: Sequence[bool], world: World) -> list[float]:
    return [float("nan")] * len(texts)


def begins(module: Any, strategy: Strategy) -> str:
    """One that goes on inside a text of the policy says so by a trait, so that training can refuse it."""
    world = _played(strategy)[2]
    if getattr(world.engine, "resumed", False) and "not_as_posed" not in strategy.traits:
        return 'it goes on with texts that the policy began: declare @trait("not_as_posed", "shares_beginnings")'
    return ""


PROMISES: tuple[Callable[[Any, Strategy], str], ...] = (
    card, settings, answers, bill, depth, alone, pool, unscored, begins)
