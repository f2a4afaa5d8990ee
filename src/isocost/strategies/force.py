"""Budget forcing: a text that ends too early goes on after a word such as "Wait", and one that thinks too long answers.

    thinking ends, |y| < least, and fewer than `waits` words were added: y ← y without its end + word, and goes on
    |thinking| = most: y ← y + finish, and goes on to the answer
    Muennighoff et al. 2025, "s1: Simple test-time scaling", arXiv:2501.19393, section 3
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from isocost.errors import UserError
from isocost.parts.play import advance
from isocost.seams import Pace
from isocost.strategies import Card
from isocost.strategies.paths import Answer, Path, searched, step_ids
from isocost.traits import bounds, trait
from isocost.types import Place, Problem, Role, Rollout, Segment, Stop
from isocost.world import World

CARD = Card("Budget forcing", "2501.19393", 2025, "one", "Accuracy rises with the tokens that are forced.")
SIZE = "waits"      # what a study varies


@trait("forces_end", "not_as_posed")
@bounds(waits="[0, inf)", least="[0, inf)", most="[0, inf)")
async def play(
    problem: Problem, attempts: Sequence[int], world: World, pace: Pace, place: Place,
    start: Segment | Rollout | None = None, *, waits: int = 1, word: str = "Wait", least: int = 0, most: int = 0,
    close: str = "", finish: str = "",
) -> list[Rollout]:
    """A sample whose thinking is continued after `word` up to `waits` times, while it has fewer than `least` tokens.

    `least` 0: each time. `most` tokens of thinking (0: no limit) are followed by `finish`, such as "</think>". Thinking
    ends with the text `close`, such as "</think>"; empty: with the answer. Words that are added are read and not
    written, without credit, and `pace.max_tokens` limits what the policy writes in all.
    """
    limit = min(most or pace.max_tokens, pace.max_tokens)

    async def search(answer: Answer, first: Segment) -> Rollout:
        text, added = Rollout(problem, (first,), "", attempt=answer.attempt), 0
        answer.tries = 1
        ids = step_ids(world, close) if close else ()

        async def on(text: Rollout, most: int, marked: bool) -> Rollout:
            """The text up to its end, its limit or, if `marked`, the end of its thinking."""
            own = replace(pace, max_tokens=most)
            (grown,) = await advance([text], world, own, place, ends=ids if marked else (),
                                     stop=(close,) if marked and close and not ids else ())
            answer.depth += len(grown.segments[-1]) - len(text.segments[-1])
            return grown

        while True:
            text = await on(text, limit, True)
            words = text.segments[-1]
            over = text.stop in (Stop.DONE, Stop.STEP)
            kept = _open(words, close, world) if over else words
            enough = words.written >= limit or added == waits or (least and words.written >= least)
            if not over or enough or not kept.own[-1]:      # or it ended again at once
                break
            text, added = _with(text, kept, word, world), added + 1
        if most and text.stop is Stop.LENGTH and limit <= words.written < pace.max_tokens:
            text = await on(_with(text, words, finish, world), pace.max_tokens, False)
        elif close and close in text.final and over and not _ended(words, world) and words.written < pace.max_tokens:
            text = await on(text, pace.max_tokens, False)
        if text.stop is Stop.STEP:
            text = text.but(stop=Stop.LENGTH)
        end = Path(text, over=True)
        return answer.end(end, end, waits=added)

    return await searched(problem, attempts, world, pace, place, start, None, search)


def _open(words: Segment, close: str, world: World) -> Segment:
    """A text without its end token, and without the mark that closed its thinking."""
    upto = len(words) - _ended(words, world)
    kept = words.cut(upto)
    while close and close in world.text.decode(kept.reply().tolist()):
        upto -= 1
        kept = words.cut(upto)
    return kept


def _ended(words: Segment, world: World) -> bool:
    return int(words.tokens[-1]) in world.text.ends


def _with(text: Rollout, words: Segment, more: str, world: World) -> Rollout:
    """The text up to `words`, with some that are given to it. Raises UserError for a model that cannot read them."""
    try:
        return text.but(segments=(words.read(world.text.encode(more), Role.HINT),))
    except UserError as error:
        raise UserError(f"this model cannot be forced, because {error}. Or choose text that it reads, such as "
                        "force:word=;") from None
