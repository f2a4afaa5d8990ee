"""LATR: branch where the second token is nearly as likely as the first, and keep branches that become different.

    at step t a branch of text x, with its second token, if p_2 > τ_abs and p_1 − p_2 < τ_rel; else the first token
    r tokens later it is pruned if edit distance(its next r tokens, x's) / r < τ_ed;   with n texts all go on by chance
    a share η(s) of a group's attempts at step s, the others are plain samples;   advantages of GRPO
    Xing et al. 2025, "Lookahead tree-based rollouts", arXiv:2510.24302
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from typing import Any

import numpy as np

from isocost import chance, meter
from isocost.errors import UserError
from isocost.gather import together
from isocost.methods import Card, grpo
from isocost.pack import pack
from isocost.parts.play import begin, given, opening, sample
from isocost.seams import Pace, Recipe
from isocost.traits import asks, bounds, trait
from isocost.types import Group, Place, Problem, Role, Rollout, Said, Sampling, Score, Segment, Stop
from isocost.world import Ask, Start, World, generate_many

CARD = Card("LATR", "2510.24302", 2025, "grpo", "Groups of different texts learn faster than independent samples.")
SHARES = ((0, 1.0), (10, 0.75), (20, 0.5), (80, 0.25), (200, 0.0))      # η from these steps on


@dataclass(eq=False)
class Lookahead:
    """A text of the tree, continued by its likeliest tokens: its tokens (T,), their log-probs, the second tokens."""

    tokens: list[int]
    logp: np.ndarray
    second: list[int]
    p2: np.ndarray              # of the second tokens
    stop: Stop
    born: int = 0               # the step at which it branched
    parent: Lookahead | None = None


@trait("one_call", "not_as_posed", "shares_beginnings")
@asks("truncation")
@bounds(sure="[0, 1]", apart="[0, 1]", windows="[1, inf)", differ="[0, 1]", most="[1, inf)")
async def play(
    problem: Problem, attempts: Sequence[int], world: World, pace: Pace, place: Place,
    start: Segment | Rollout | None = None, *, sure: float = 0.25, apart: float = 0.15,
    windows: tuple[int, ...] = (20, 30, 50), differ: float = 0.4, most: int = 512,
) -> list[Rollout]:
    """In training a share η of the attempts are the texts of a tree (LATR, arXiv:2510.24302), the rest plain samples.

    `sure` is τ_abs, `apart` τ_rel, `differ` τ_ed, `windows` the values of r. The tree grows until it has enough texts
    that none of the windows is still to come for, or for `most` tokens; then each goes on as a sample. What is pruned
    is charged. Dialogues are sampled plainly. Raises UserError for sampling with top-p or top-k, which may leave out a
    second token.
    """
    share = [x for at, x in SHARES if at <= place.wave][-1]
    count = round(share * len(attempts))
    if place.purpose != chance.Purpose.TRAIN or start is not None or count < 2 or world.env is not Ask:
        return await sample(problem, attempts, world, pace, place, start)
    if pace.sampling.truncates:
        raise UserError("latr branches to tokens that top-p or top-k may leave out; set pace.top_p=1 and pace.top_k=0")
    prompt = await opening(problem, world, pace, place)
    if prompt is None:      # its environment failed
        return await sample(problem, attempts, world, pace, place)
    live, at = await tree(count, partial(_grown, problem, prompt, world, pace, place), windows, differ,
                          partial(branches, sure=sure, apart=apart), min(most, pace.max_tokens))
    own = attempts[: len(live)]
    made = await together(*(_finished(problem, prompt, x, at, a, world, pace, place)
                            for x, a in zip(live, own, strict=True)))
    return [*made, *await sample(problem, attempts[len(live) :], world, pace, place)]


def branches(text: Lookahead, t: int, *, sure: float, apart: float) -> bool:
    """Whether a text branches at step t."""
    return bool(t < len(text.tokens) and text.p2[t] > sure and np.exp(text.logp[t]) - text.p2[t] < apart)


async def tree(
    count: int, grow: Callable[[list[int]], Awaitable[Lookahead]], windows: Sequence[int], differ: float,
    branch: Callable[[Lookahead, int], bool], most: int,
) -> tuple[list[Lookahead], int]:
    """The texts of a tree, and the step at which it is left. `grow(tokens)` gives one that begins with them."""
    live, last, t = [await grow([])], max(windows), 0
    while t < most and any(t < len(x.tokens) for x in live):
        if len(live) == count and all(x.parent is None or t - x.born > last for x in live):
            break
        live = [x for x in live if not (x.parent and t - x.born in windows and alike(x, x.parent, t - x.born, differ))]
        found = sorted((x for x in live if branch(x, t)), key=lambda x: -x.p2[t])[: count - len(live)]
        grown = await together(*(grow([*x.tokens[:t], x.second[t]]) for x in found))
        live += [replace(new, born=t, parent=x) for new, x in zip(grown, found, strict=True)]
        t += 1
    return live, t


def alike(text: Lookahead, other: Lookahead, r: int, differ: float) -> bool:
    """Whether r tokens after a branch the two texts are less than `differ` apart; not where either has ended."""
    a, b = (x.tokens[text.born : text.born + r] for x in (text, other))
    ended = any(len(x.tokens) < text.born + r or (x.stop is Stop.DONE and len(x.tokens) == text.born + r)
                for x in (text, other))
    return not ended and distance(a, b) / r < differ


def distance(a: Sequence[int], b: Sequence[int]) -> int:
    """The edit distance: the fewest insertions, deletions and replacements."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        before, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (x != y))
    return row[-1]


async def _grown(
    problem: Problem, prompt: Segment, world: World, pace: Pace, place: Place, words: list[int]
) -> Lookahead:
    """These tokens and the likeliest ones after them. A rollout is charged, and a score and a token at each of them."""
    warm, at, ended = pace.sampling.temperature, prompt.turn_now, bool(words) and words[-1] in world.text.ends
    begin(world, 1)
    said = Said.nothing(Stop.DONE)
    if not ended:
        first = replace(prompt.read(words, Role.HINT), sampling=Sampling(warm, 1.0, 1))
        with meter.begins(False):
            (said,) = await world.engine.generate(first, [0], place=place, turn=at, stop=pace.stop,
                                                  max_tokens=max(pace.max_tokens - len(words), 1))
    tokens = [*words, *said.tokens.tolist()]
    text = _written(prompt, tokens, np.zeros(len(tokens)), world)
    batch = pack([Group(problem, (Rollout(problem, (text,), "", said.stop, 0, Score(0.0)),), place)],
                 world.engine.version)
    logp = world.learner.score(batch).logp[0].float().cpu().numpy()[len(prompt) : len(text)]
    two = [Start(replace(given(text, len(prompt) + t), sampling=Sampling(warm, 1.0, 2)), [0], 1)
           for t in range(len(words), len(tokens))]
    with meter.begins(False):
        tried = await generate_many(world.engine, two, place=place, turn=at) if two else []
    second, p2 = [-1] * len(words), [0.0] * len(words)
    for top, p1, (one,) in zip(tokens[len(words) :], np.exp(logp[len(words) :]), tried, strict=True):
        q = float(np.exp(one.logp[0]))
        q = q if int(one.tokens[0]) == top else 1 - q       # of the first token, among the two
        others = [k for k in one.kept[0].tolist() if k != top]
        second.append(others[0] if others else -1)
        p2.append(float(p1) * (1 - q) / q if others and q > 0 else 0.0)
    return Lookahead(tokens, logp, second, np.array(p2), said.stop)


def _written(prompt: Segment, tokens: Sequence[int], logp: np.ndarray, world: World) -> Segment:
    said = Said(np.array(tokens, dtype=np.int64), logp.astype(np.float32), np.full(len(tokens), world.engine.version),
                Stop.LENGTH)
    return prompt.wrote(said)


async def _finished(
    problem: Problem, prompt: Segment, tree: Lookahead, at: int, attempt: int, world: World, pace: Pace, place: Place
) -> Rollout:
    """A text of the tree as an attempt: as it is if it had ended by step `at`, or continued from there by chance."""
    upto = min(at, len(tree.tokens))
    text = _written(prompt, tree.tokens[:upto], tree.logp[:upto], world)
    words = list(takewhile(lambda k: k not in world.text.ends, text.reply().tolist()))
    whole = Rollout(problem, (text,), world.text.decode(words), tree.stop, attempt)
    if upto == len(tree.tokens) and (tree.stop is not Stop.LENGTH or upto >= pace.max_tokens):
        return whole
    (made,) = await sample(problem, [attempt], world, pace, place, whole)
    return made


def recipe(**changes: Any) -> Recipe:
    # The settings are the paper's for countdowns; windows are in tokens, and shorter answers need shorter ones. Two
    # stored versions of the released code branch where p_1 − p_2 is above τ_rel; the paper says below. Texts of the
    # tree are not samples of the policy until it is left, a bias that the paper ignores. Left out: the variant for
    # mathematics, which prunes by suffix match or ROUGE-L.
    forked = partial(play, sure=0.25, apart=0.15, windows=(20, 30, 50), differ=0.4, most=512)
    return grpo.recipe(name="latr", play=forked).but(**changes)
