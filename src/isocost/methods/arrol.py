"""ARRoL: predict early which attempts will be right, and continue only a share of each kind.

    P(keep i) = κ (p̂_i ρ / p̄ + (1 − p̂_i)(1 − ρ) / (1 − p̄)), in [0, 1], after L tokens;   p̄ the group's mean of p̂
    mean P = κ, and of those kept a share ρ is right if p̂ is; p̂ is a share right among earlier attempts alike
    Xu et al. 2026, arXiv:2603.24840
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from isocost import chance
from isocost.errors import UserError
from isocost.gather import together
from isocost.methods import Card, grpo
from isocost.seams import Attempts, Recipe
from isocost.traits import bounds, trait
from isocost.types import Problem, Rollout, Segment, Stop

if TYPE_CHECKING:
    from isocost.ledger import Ledger, Seen

CARD = Card("ARRoL", "2603.24840", 2026, "grpo", "Half the tokens, fewer groups that are all right or all wrong.")
OUTLOOKS = "outlooks"     # the note with what was predicted of a rollout before its end


def confidence(text: Segment) -> float:
    """Mean log-prob of the tokens that the policy wrote; 0 if there are none."""
    return float(text.logp[text.own].mean()) if text.written else 0.0


@trait("in_parts")
@trait("leaves_unmarked", keep=("<", 1))
@bounds(
    at="[1, inf)", keep="(0, 1]", aim="[0, 1]", cold="[0, inf)", least="[0, inf)", bins="[1, inf)", window="[1, inf)"
)
async def schedule(
    problem: Problem, attempts: Sequence[int], play: Attempts, ledger: Ledger, *,
    at: int = 512, keep: float = 0.5, aim: float = 0.5, cold: int = 20, least: int = 2, bins: int = 10,
    window: int = 2048, outlook: Callable[[Segment], float] = confidence,
) -> list[Rollout]:
    """Pause attempts after `at` tokens and continue only some, so that half of them are right (arXiv:2603.24840).

    The probability that an attempt will be right is estimated from its `outlook` at that point, by how earlier attempts
    with such a value ended (`arrol.odds`); `chances` decides which continue. At least `least` of a group are kept. In
    the first `cold` steps all continue, and their outcomes are recorded. The others are cancelled; their cost is
    charged. Raises UserError for `at` below 1.
    """
    if at < 1:
        raise UserError(f"schedule.at is {at}: there is nothing to predict from before the first token; set 1 or more")
    early = await play(problem, attempts, max_tokens=at)
    cut = [r for r in early if r.stop is Stop.LENGTH] if at < play.pace.max_tokens else []
    outlooks = {r.attempt: outlook(r.segments[-1]) for r in cut}
    on = [r.attempt for r in cut]
    if cut and ledger.step >= cold:
        rng = chance.generator(play.place.seed, chance.Purpose.SELECT, play.place.wave, play.place.slot, attempts[0])
        right = odds(ledger, list(outlooks.values()), bins=bins, window=window)
        rank = rng.random(len(cut)) / np.maximum(chances(right, keep=keep, aim=aim), 1e-12)
        many = max(int((rank < 1).sum()), min(least - (len(early) - len(cut)), len(cut)))
        on = [cut[i].attempt for i in sorted(np.argsort(rank, kind="stable")[:many].tolist())]
    ended = await together(*(play(problem, [r.attempt], r) for r in cut if r.attempt in on))
    rest = [r for r in early if r.attempt not in outlooks]
    noted = [r.but(notes={**r.notes, OUTLOOKS: outlooks[r.attempt]}) for one in ended for r in one]
    return sorted([*rest, *noted], key=lambda r: r.attempt)


def odds(ledger: Ledger, outlooks: Sequence[float], *, bins: int, window: int) -> list[float]:
    """The estimated probabilities that attempts with these outlooks are right, from the latest `window` outcomes.

    Outcomes are sorted into `bins` of equal size by outlook; an attempt gets the share right of its bin, from a flat
    prior, so never exactly 0 or 1. 0.5 if there are no outcomes.
    """
    recent = ledger.fold(partial(_outcomes, window=window), list[tuple[float, float]]())
    if not recent:
        return [0.5] * len(outlooks)
    scores, ends = np.array(recent).T
    edges = np.quantile(scores, np.arange(1, bins) / bins)
    where = np.searchsorted(edges, scores, side="right")
    right, count = np.bincount(where, ends, bins), np.bincount(where, minlength=bins)
    return ((1 + right) / (2 + count))[np.searchsorted(edges, outlooks, side="right")].tolist()


def _outcomes(known: list[tuple[float, float]], seen: Sequence[Seen], *, window: int) -> list[tuple[float, float]]:
    known += [
        (outlook, min(max(reward, 0.0), 1.0))
        for s in seen for outlook, reward in zip(s.notes.get(OUTLOOKS, ()), s.rewards, strict=False)
        if outlook is not None
    ]
    return known[-window:]


def chances(odds: Sequence[float], *, keep: float, aim: float) -> np.ndarray:
    """The probability of each attempt to continue, so that a share `keep` does, of which a share `aim` is right.

    keep · (p aim / p̄ + (1 − p)(1 − aim) / (1 − p̄)), in [0, 1]: p are the odds, p̄ their mean. Where nothing is cut
    off at 1 the mean is exactly `keep`, and with odds of 0 and 1 that come true the share right is exactly `aim`.
    """
    p = np.asarray(odds, dtype=np.float64)
    mean = p.mean()
    if not 0 < mean < 1:
        return np.full(len(p), keep)
    return np.minimum(keep * (p * aim / mean + (1 - p) * (1 - aim) / (1 - mean)), 1.0)


def recipe(**changes: Any) -> Recipe:
    # L, κ, ρ and the cold start are the paper's. Its head reads hidden states, which no seam provides: here the mean
    # log-prob of the L tokens is binned as the paper bins its head's output. n counts started attempts, so it is twice
    # GRPO's.
    early = partial(schedule, at=512, keep=0.5, aim=0.5, cold=20, outlook=confidence)
    return grpo.recipe(name="arrol", schedule=early, rollouts=16).but(**changes)
