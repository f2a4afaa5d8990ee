"""Several problem sets as one, whole or in shares: easy, hard and mixed sets from the same parts."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from isocost import chance
from isocost.errors import UserError
from isocost.tasks import text
from isocost.types import Problem

_SHARE = re.compile(r"(\d+(?:\.\d+)?)%\s+(.+)")


@dataclass(frozen=True, slots=True)
class Part:
    """One set of a mix, and its share of the whole in 0..1 (None: all of it)."""

    spec: str
    share: float | None = None


def parts(spec: str) -> list[Part]:
    """The parts of a name. Raises UserError for an empty part, and for shares of some parts only, or not of 100 %."""
    if " + " not in spec or Path(spec).is_file():
        return [Part(spec)]
    found = [_part(x.strip(), spec) for x in spec.split(" + ")]
    shares = [p.share for p in found if p.share is not None]
    if shares and len(shares) < len(found):
        raise UserError(f"{spec!r}: give every part a share, or none of them")
    if shares and abs(sum(shares) - 1) > 1e-6:
        raise UserError(f"{spec!r}: the shares sum to {100 * sum(shares):g} %, not to 100 %")
    return found


def _part(said: str, spec: str) -> Part:
    if not said:
        raise UserError(f"{spec!r}: expected a problem set on each side of +")
    shared = _SHARE.fullmatch(said)
    if shared is None:
        return Part(said)
    if not float(shared[1]) > 0:
        raise UserError(f"{spec!r}: a share must be above 0 %")
    return Part(shared[2], float(shared[1]) / 100)


def mixed(
    parts: Sequence[Part], problems: Sequence[Sequence[Problem]], limit: int | None = None
) -> tuple[Problem, ...]:
    """The problems of all parts in one fixed order that mixes them; in shares, as many as the parts allow.

    A problem of two parts counts with the first. The choice of problems from a part is random by address: it depends
    on the parts and the limit alone. Raises UserError if two parts give one id, or one prompt, different meanings.
    """
    pools = _distinct(problems)
    pools = [[pool[i] for i in chance.generator(0, chance.Purpose.CHOOSE, place, len(pool)).permutation(len(pool))]
             for place, pool in enumerate(pools)]
    if parts[0].share is None:
        joined = [p for pool in pools for p in pool]
    else:
        shares = [p.share or 0.0 for p in parts]
        whole = min(math.floor(len(pool) / share + 1e-9) for pool, share in zip(pools, shares, strict=True))
        whole = whole if limit is None else min(whole, limit)
        joined = [p for pool, k in zip(pools, counts(shares, whole), strict=True) for p in pool[:k]]
    order = chance.generator(0, chance.Purpose.CHOOSE, len(parts), len(joined), 1).permutation(len(joined))
    return tuple(joined[i] for i in order[:limit])


def counts(shares: Sequence[float], whole: int) -> list[int]:
    """Integers nearest to shares of `whole` that sum to it; the largest remainders are rounded up."""
    exact = [whole * s for s in shares]
    out = [math.floor(x + 1e-9) for x in exact]
    short = sorted(range(len(out)), key=lambda i: (out[i] - exact[i], i))
    for i in short[: whole - sum(out)]:
        out[i] += 1
    return out


def _distinct(problems: Sequence[Sequence[Problem]]) -> list[list[Problem]]:
    """Each part without the problems of earlier parts."""
    prompts: dict[str, Problem] = {}
    ids: dict[str, Problem] = {}
    out: list[list[Problem]] = []
    for part in problems:
        out.append([])
        for p in part:
            there = prompts.get(text.normal(p.prompt))
            if there is not None and there.answer != p.answer:
                raise UserError(f"two parts of the mix answer one prompt differently: {p.id!r} and {there.id!r}")
            if there is None and p.id in ids:
                raise UserError(f"two parts of the mix give different problems the id {p.id!r}")
            if there is None:
                prompts[text.normal(p.prompt)] = ids[p.id] = p
                out[-1].append(p)
    return out
