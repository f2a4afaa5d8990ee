"""A verdict that a model writes: it reads the question and a text, and answers yes or no, once or several times.

    s(x, y) = share of yes among `readings` verdicts
    Zhang et al. 2024, arXiv:2408.15240; readings of one text are far from independent: repeats correlate at 0.72 to
    0.78 in a public record of 131,072 verdicts of a 70B model on GPQA
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from isocost import chance, meter
from isocost.gather import together
from isocost.traits import bounds
from isocost.types import Message, Place, Problem, Role, Rollout, Sampling, Segment
from isocost.world import World

ASK = "{question}\n\nProposed answer:\n{text}\n\nIs the proposed answer right? Answer yes or no."


@bounds(readings="[1, inf)", tokens="[1, inf)")
async def score(
    problem: Problem, texts: Sequence[Rollout], over: Sequence[bool], world: World, *, readings: int = 1,
    model: str = "", ask: str = ASK, tokens: int = 256,
) -> list[float | None]:
    """The share of yes; None where no reading gives a verdict. `model` is one as in --model; empty: the policy.

    `ask` holds {question} and {text}. The tokens that are read and written are charged.
    """
    said = await together(*(
        ask_model(world, model, ask.replace("{question}", problem.text).replace("{text}", t.final), readings, tokens)
        for t in texts))
    each = [[x for x in (verdict(s, "yes", "no") for s in some) if x is not None] for some in said]
    return [sum(x) / len(x) if x else None for x in each]


async def prefer(problem: Problem, one: str, other: str, world: World) -> bool | None:
    """Whether the policy finds the first of two texts the better one; None without a verdict."""
    asked = (f"{problem.text}\n\nAnswer A:\n{one}\n\nAnswer B:\n{other}\n\nWhich answer is right, or nearer to it? "
             "Answer A or B.")
    return verdict((await ask_model(world, "", asked, 1, 256))[0], "A", "B")


async def ask_model(world: World, model: str, question: str, readings: int, tokens: int) -> list[str]:
    """What a model answers to a question, `readings` times; the question alone is the address of its random numbers.

    Raises UserError for a model that cannot be opened.
    """
    asked = world.other(model) if model else world
    text = Segment.given(asked.text.prompt((Message("user", question),)), Role.PROMPT, Sampling())
    wave, slot = (int(chance.share(question, k) * 2**31) for k in range(2))
    place = Place(0, wave, slot, int(chance.Purpose.FORK))
    with meter.begins(False):
        said = await asked.engine.generate(text, range(readings), place=place, turn=0, max_tokens=tokens)
    return [asked.text.decode(s.tokens.tolist()) for s in said]


def verdict(said: str, one: str, other: str) -> bool | None:
    """Which of two words a text says last; None if neither."""
    found = re.findall(rf"\b(?:{one}|{other})\b", said, re.IGNORECASE)
    return found[-1].lower() == one.lower() if found else None
