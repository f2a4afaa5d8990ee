"""BRPO: answer at every budget, and credit each stretch of a trace with what it added to the answers after it.

    R_s = Σ_{k≥s} P_k c_k,   A_s = R_s − (s V1_s + (S − s) V2_s) / S,   s = 0..S−1,   c_s the mean score at budget s
    V1_s = (Σ_{k<s} 2^k c_k / Σ_{k<s} 2^k) Σ_{k≥s} P_k   the trace so far,   V2_s = mean of R_s over the traces
    an answer: r − mean r of the answers at its cut          Qi et al. 2025, arXiv:2505.13438
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import cycle, islice
from math import ceil
from typing import Any

import numpy as np
import torch
from torch import Tensor

from isocost import chance
from isocost.batch import Batch
from isocost.errors import UserError
from isocost.gather import together
from isocost.methods import Card, grpo
from isocost.ops import EPS, in_groups, spread
from isocost.parts import weight
from isocost.parts.play import given, sample
from isocost.seams import Pace, Recipe
from isocost.traits import asks, bounds, gives, requires, shares, trait
from isocost.types import Group, Place, Problem, Rollout, Segment
from isocost.world import World

CARD = Card("BRPO", "2505.13438", 2025, "grpo", "It beats GRPO at every budget of thought, the full one included.")

reads_budgets = requires(
    "answers at budgets", at="play",
    why="it needs answers at several budgets, and this play makes none; brpo.play does",
)


@asks("text")
@trait("one_call", "casts_roles", "not_as_posed")
@gives("answers at budgets")
@shares(budgets="shares")
@bounds(shares="(0, 1]", answers="[1, inf)", room="[1, inf)")
async def play(
    problem: Problem, attempts: Sequence[int], world: World, pace: Pace, place: Place, start: Segment | None = None, *,
    shares: tuple[float, ...] = (0.25, 0.5, 0.75, 1.0), answers: int = 2, words: str = "", room: int = 128,
) -> list[Rollout]:
    """Traces, and after each share of `max_tokens` several answers to the trace so far (arXiv:2505.13438).

    A trace has `answers` answers per budget. Of n attempts, n // (1 + budgets · answers) are traces, at least one, and
    all others are answers. An answer begins with `words` and has `room` tokens at most; its `parent` is (trace, token),
    its cohort "trace.budget". Budgets that a trace does not reach share one cut.
    """
    if place.purpose != chance.Purpose.TRAIN:
        return await sample(problem, attempts, world, pace, place, start)
    if len(attempts) <= len(shares):
        raise UserError(f"a trace with answers at {len(shares)} budgets takes {1 + len(shares)} rollouts or more")
    count = max(len(attempts) // (1 + len(shares) * answers), 1)
    traces = await sample(problem, attempts[:count], world, pace, place, start)
    wrote = [t for t in traces if t.segments[-1].written]
    if not wrote:       # their environments failed
        return [*traces, *await sample(problem, attempts[count:], world, pace, place, start)]
    cells = [(t, cut) for t in wrote for cut in _budgets(t.segments[-1], shares, pace, world)]
    per_cell, left = Counter(islice(cycle(range(len(cells))), len(attempts) - count)), iter(attempts[count:])
    requests: dict[tuple[int, int], list[int]] = {}
    for k, (trace, cut) in enumerate(cells):
        requests.setdefault((trace.attempt, cut), []).extend(islice(left, per_cell[k]))
    thought = {t.attempt: t.segments[-1] for t in traces}
    short, hint = replace(pace, max_tokens=min(room, pace.max_tokens)), world.text.encode(words)
    said = await together(*(
        sample(problem, numbers, world, short, place, given(thought[trace], cut, hint))
        for (trace, cut), numbers in requests.items()
    ))
    budget = {key: sum(k[0] == key[0] for k in list(requests)[:at]) for at, key in enumerate(requests)}
    answered = ((f"{key[0]}.{budget[key]}", key, a) for key, group in zip(requests, said, strict=True) for a in group)
    return [*traces, *(a.but(cohort=cohort, parent=parent) for cohort, parent, a in answered)]


def _budgets(text: Segment, shares: Sequence[float], pace: Pace, world: World) -> list[int]:
    """The token at which each budget cuts a trace; its end, without the end token, if the trace ended before."""
    own = np.flatnonzero(text.own)
    thought = own[:-1] if len(own) and text.tokens[own[-1]] in world.text.ends else own
    spent = [min(ceil(share * pace.max_tokens), len(thought)) for share in shares]
    return [int(thought[k - 1]) + 1 if k else int(own[0]) for k in spent]


@trait("compares_siblings", "by_token")
@reads_budgets
@shares(budgets="prior")
@bounds(prior="[0, inf)")
def advantage(batch: Batch, ledger: object, *, prior: tuple[float, ...] = (0.25,) * 4) -> Tensor:  # -> (N, T)
    # P: one number for each budget, uniform as in one of the paper's two main runs; (0, .., 1) is "base".
    credit = spread(in_groups(lambda r: r - r.mean(), batch.reward, batch), batch)
    at = torch.arange(batch.tokens.shape[1])
    first = 0
    for group in batch.groups:
        traces = [(first + i, r.attempt) for i, r in enumerate(group.rollouts) if r.parent is None]
        cells = [scores(group, attempt, len(prior)) for _, attempt in traces]
        rest = [c for c, _ in cells if c]
        leads = iter(lead(torch.tensor(rest), torch.tensor(prior)) if rest else ())
        for (rollout, _), (known, cuts) in zip(traces, cells, strict=True):
            own_rows, each = batch.rollout == rollout, next(leads) if known else torch.zeros(len(prior))
            stretch = torch.bucketize(at, torch.tensor(cuts[:-1], dtype=torch.long), right=True)
            credit[own_rows] = each[stretch] * batch.mask[own_rows]
        first += len(group.rollouts)
    return credit


def scores(group: Group, trace: int, budgets: int) -> tuple[list[float], list[int]]:
    """Mean score of the answers to a trace at each budget, and where the cuts are.

    A trace that ended early has fewer cuts than budgets; the last cut serves the rest. ([], []) if all answers at some
    cut have no score.
    """
    earned: dict[int, list[float]] = {}
    for r in group.rollouts:
        if r.parent is not None and r.parent[0] == trace and r.score is not None:
            earned.setdefault(int(r.cohort.partition(".")[2]), []).append(r.score.value)
    cuts = sorted({r.parent[1] for r in group.rollouts if r.parent is not None and r.parent[0] == trace})
    if not earned or sorted(earned) != list(range(len(cuts))):
        return [], []
    if len(cuts) > budgets:
        raise UserError(f"answers come at {len(cuts)} budgets, of which {budgets} have a prior")
    return [sum(x) / len(x) for x in (earned[min(s, len(cuts) - 1)] for s in range(budgets))], cuts


def lead(c: Tensor, prior: Tensor) -> Tensor:
    """A_s of each of a problem's traces from its scores at each budget. (G, S), (S,) -> (G, S)"""
    s, ahead = torch.arange(len(prior)), prior.flip(0).cumsum(0).flip(0)
    returns, recent = (c * prior).flip(1).cumsum(1).flip(1), 2.0**s
    v1 = torch.nn.functional.pad((c * recent).cumsum(1) / recent.cumsum(0), (1, -1)) * ahead
    leads = returns - (s * v1 + (len(s) - s) * returns.mean(0)) / len(s)      # V2: of a single trace, its own
    return leads.where(leads.abs() > EPS * returns.abs().max(), 0.0)          # a rounding error becomes exactly 0


def recipe(**changes: Any) -> Recipe:
    # The paper: 8 traces with 4 answers per budget, 136 rollouts. Here 4 with 2, because n counts each of them. A chat
    # model needs play.words, such as scalerl.TIME_IS_UP; without it an answer is only a continuation with fewer tokens.
    requests = partial(play, shares=(0.25, 0.5, 0.75, 1.0), answers=2)
    average = weight.token_mean      # as the released code's trainer does
    return grpo.recipe(name="brpo", play=requests, advantage=advantage, weight=average, rollouts=36).but(**changes)
