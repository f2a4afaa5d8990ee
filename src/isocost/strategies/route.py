"""Routing by the step: a step that the scorer doubts is written again by a stronger model, and the policy goes on.

    r_t = s(x, y_{1..t}), m = min_{k<t} r_k (1 before any);   again if, by rule:
    thr    r_t < below
    agg    below + w · (m, Π_{k<t} r_k, r_t, tokens of the step / 300, t / 30) > 0
    pomdp  (b₀ + b₂) p_s V − b₀ V > cost, of the belief b that all steps are right (0) or only the last is wrong (2)
    prompt s(x, nothing) < below: the strong model writes all of it, as V_0 routes (arXiv:2602.03584)
    V = h + (1 − h) (p_w V + (1 − p_w) max(0, p_s V − cost)): a right text's value;  h = 1 / length
    "TRIM", 2026, arXiv:2601.10245. Left out: Agg's training by PPO (its weights w are settings, by default those of
    thr), fitted densities of scores (a score is read as the probability that the steps so far are right, so b₀ =
    min(r, m) and b₂ = m − b₀), and the offline solver: states have values, which the belief weighs
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from isocost import chance, meter
from isocost.errors import UserError
from isocost.parts.play import sample
from isocost.scorers import Scorer, step_of, steps
from isocost.seams import Pace
from isocost.strategies import Card
from isocost.strategies.paths import Answer, Path, searched, step_ids, written
from isocost.traits import bounds, trait
from isocost.types import Cost, Place, Problem, Role, Rollout, Segment, Stop
from isocost.world import World

CARD = Card("TRIM", "2601.10245", 2026, "one", "It needs a fifth of the strong model's tokens for 95 % of its gain.")


@dataclass(frozen=True)
class Router:
    """The numbers of the rules, which say of a step, its score and those before it whether it is written again."""

    below: float
    weights: tuple[float, ...]
    weak: float
    strong: float
    cost: float
    length: float

    def thr(self, score: float, before: Sequence[float], tokens: int) -> bool:
        """A threshold; 1 is the strong model alone."""
        return score < self.below or self.below == 1

    def agg(self, score: float, before: Sequence[float], tokens: int) -> bool:
        """A weighted sum of what is known of the steps."""
        known = (min(before, default=1.0), prod(before), score, tokens / 300, (len(before) + 1) / 30)
        return self.below + sum(w * x for w, x in zip(self.weights, known, strict=True)) > 0

    def pomdp(self, score: float, before: Sequence[float], tokens: int) -> bool:
        """Whether the step that is written again is worth its cost."""
        least = min(before, default=1.0)
        return (least * self.strong - min(score, least)) * self.value > self.cost

    @property
    def value(self) -> float:
        """V: the better one of never and of always writing a wrong step again."""
        h, w, s = 1 / self.length, self.weak, self.strong
        never = h / (1 - (1 - h) * w)
        always = (h - (1 - h) * (1 - w) * self.cost) / (1 - (1 - h) * (w + (1 - w) * s))
        return max(never, always)


PROMPT = "prompt"
RULES = {"thr": Router.thr, "agg": Router.agg, "pomdp": Router.pomdp}


@trait("chosen_by_steps", "not_as_posed")
@bounds(below="[0, 1]", weak="[0, 1]", right="[0, 1]", cost="[0, inf)", length="[1, inf)")
async def play(
    problem: Problem, attempts: Sequence[int], world: World, pace: Pace, place: Place,
    start: Segment | Rollout | None = None, *, strong: str = "", rule: str = "thr", below: float = 0.5,
    weights: str = "0 0 -1 0 0", weak: float = 0.866, right: float = 0.9704, cost: float = 0.2, length: float = 10.0,
    scorer: Scorer = steps.score, step: str = "",
) -> list[Rollout]:
    """One text of two models: `strong`, as in --model (empty: the policy itself), writes the doubted steps again; by
    the rule `prompt` it writes all of the text, where the score of the prompt alone is below.

    What it reads and writes is charged to an account of its own, and noted: `routed` steps, `strong` tokens written,
    `strong_read`. `weak` and `right` are the chances that a step of each model is right, `cost` is that of a strong
    step in right answers, `length` the mean number of steps. Raises UserError in training.
    """
    if place.purpose == chance.Purpose.TRAIN:
        raise UserError("strategy route is for evaluations and answers: another model's steps are not the policy's")
    if rule not in (*RULES, PROMPT) or len(weights.split()) != 5:
        raise UserError(f"route: rule is one of {', '.join((*RULES, PROMPT))}, and weights are five numbers with "
                        f"spaces between them; got {rule!r}, {weights!r}")
    router = Router(below, tuple(map(float, weights.split())), weak, right, cost, length)
    other = world.other(strong) if strong else world
    mark = step_of(problem, step)

    async def again(answer: Answer, before: Segment, mark: str = mark) -> tuple[Path, Cost]:
        """The text with the strong model's step, or its end where there is no mark, and what that took."""
        said = world.text.decode(before.reply().tolist())
        words = other.text.prompt(problem.prompt) + other.text.encode(said)
        ids, room = step_ids(other, mark) if mark else (), max(pace.max_tokens - len(before.reply()), 1)
        asked = Segment.given(words, Role.PROMPT, pace.sampling)
        numbers = answer.apart(1) if mark else [answer.attempt]
        with meter.on(meter.MODEL + (strong or "itself")), meter.tab() as tab, meter.begins(not mark):
            (new,) = await other.engine.generate(asked, numbers, place=place, turn=0, max_tokens=room, ends=ids,
                                                 stop=() if ids or not mark else (mark,))
        answer.depth += len(new.tokens)
        text = other.text.decode(new.tokens.tolist())
        grown = before.read(world.text.encode(text), Role.TEACHER)
        stop = Stop.STEP if mark and text.endswith(mark) else new.stop
        full, over = len(grown.reply()) >= pace.max_tokens, stop is not Stop.STEP
        final = world.text.decode(grown.reply().tolist())
        (number,) = answer.apart(1)     # the draft that is dropped has drawn what the old one would draw next
        made = Rollout(problem, (grown,), final, Stop.LENGTH if full and not over else stop, number)
        (score,) = await answer.scores([made], [over or full]) if mark else [None]     # of the prompt it is known
        return Path(made, over or full, score), tab.cost

    async def search(answer: Answer, first: Segment) -> Rollout:
        path, before = Path(Rollout(problem, (first,), "", attempt=answer.attempt)), tuple[float, ...]()
        routed, paid = 0, Cost()
        while not path.over:
            text = path.rollout.segments[-1]
            answer.pace = replace(pace, max_tokens=pace.max_tokens + text.written - len(text.reply()))
            answer.tries += not path.length     # a draft after nothing of the policy's own is a try
            (now,) = await answer.advance([path], step)
            if now.score is None:
                return answer.end(None, now)
            if RULES[rule](router, now.score, before, now.length - path.length):
                now, spent = await again(answer, text)
                routed, paid = routed + 1, paid + spent
            path, before = now, (*before, now.value)
        return answer.end(path, path, routed=routed, strong=paid.decode, strong_read=paid.prefill)

    async def whole(answer: Answer, first: Segment) -> Rollout:
        """All of it by one model: the strong one where the prompt's score is below."""
        answer.tries, paid = 1, Cost()
        path = Path(Rollout(problem, (first,), "", attempt=answer.attempt))
        (score,) = await answer.scores([path.rollout], [False])
        if score is None:
            return answer.end(None, path)
        if score < below or below == 1:
            path, paid = await again(answer, first, "")
        else:
            (made,) = await sample(problem, [answer.attempt], world, pace, place, first)
            answer.depth, path = written(made), Path(made, True)
        return answer.end(replace(path, score=score), path, routed=bool(paid.decode), strong=paid.decode,
                          strong_read=paid.prefill)

    return await searched(problem, attempts, world, pace, place, start, scorer, whole if rule == PROMPT else search)
