"""What of a group is worth an update. The ledger and the meter have already seen all of it."""

from __future__ import annotations

from math import ceil, inf
from typing import TYPE_CHECKING

from isocost import chance
from isocost.traits import bounds, requires, shares, trait
from isocost.types import Group, Rollout

if TYPE_CHECKING:
    from isocost.ledger import Ledger


def everything(group: Group, ledger: Ledger) -> Group | None:
    """All of it."""
    return group


def mixed(group: Group, ledger: Ledger, *, part: str = "") -> Group | None:
    """Nothing of a group that earned the same throughout, for it has no siblings to learn from.

    `part` names a component of the score to look at in place of its value, where a score has one: a shaped reward
    makes a group look mixed in which nobody was right.
    """
    scores = [r.score for r in group.rollouts if r.score is not None]
    seen = {s.parts.get(part, s.value) if part else s.value for s in scores}
    return group if len(seen) > 1 else None


@trait("independent_attempts")
@shares(best_of="n")
@bounds(n="[1, inf)")
def best_of(group: Group, ledger: Ledger, *, n: int = 4) -> Group | None:
    """The best of every n attempts in a row, ties to the first: independent draws of best-of-n. What is over goes."""
    blocks = [group.rollouts[at : at + n] for at in range(0, len(group.rollouts) - n + 1, n)]
    best = [max(block, key=lambda r: r.score.value if r.score is not None else -inf) for block in blocks]
    return group.of(best) if best else None


@bounds(low="[0, 1]", high="[0, 1]")
def between(group: Group, ledger: Ledger, *, low: float = 0.25, high: float = 0.75) -> Group | None:
    """Nothing of a group whose share of right attempts is not in [low, high] (arXiv:2504.03380), nor of a settled one.

    Right is what the verifier said, whatever the reward made of it.
    """
    right = [_mark(r) for r in group.rollouts if r.score is not None]
    held = low <= sum(right) / max(len(right), 1) <= high and len(set(right)) > 1
    return group if held else None


@bounds(shortest="(0, 1]")
def right(group: Group, ledger: Ledger, *, over: float = 0.0, shortest: float = 1.0) -> Group | None:
    """The attempts that earned more than `over`, of these the share `shortest`, rounded up; ties to the first."""
    good = [r for r in group.rollouts if r.score is not None and r.score.value > over]
    ranked = sorted(good, key=lambda r: (sum(s.written for s in r.segments), r.attempt))
    kept = ranked[: ceil(shortest * len(good))]
    return group.of(sorted(kept, key=lambda r: r.attempt)) if kept else None


@requires(
    "faults", at="reward",
    why="it keeps the right answers with the fewest faults, which reward.verified_with_faults notes; without it all "
        "have none",
)
@bounds(keep="(0, 1]", least="[0, inf)")
def clean_right(
    group: Group, ledger: Ledger, *, keep: float = 0.5, least: int = 2, by: str = "faults"
) -> Group | None:
    """A share of a mixed group: of the right those with the fewest faults, of the wrong any (arXiv:2508.20722).

    Right and wrong keep their proportion, rounded half to even, with at least `least` of either where there are as
    many; ties go to the first attempt, and the wrong are drawn with equal chances. `by` names the score's part that
    counts faults. Nothing of a group that earned the same throughout.
    """
    scored = [r for r in group.rollouts if r.score is not None]
    right, wrong = [r for r in scored if _mark(r) > 0], [r for r in scored if _mark(r) <= 0]
    if not right or not wrong:
        return None
    size = max(round(keep * len(scored)), 2)
    some = round(len(right) * size / len(scored))
    some = min(max(some, min(least, len(right)), size - len(wrong)), size - min(least, len(wrong)), len(right))
    rng = chance.generator(ledger.seed, chance.Purpose.SELECT, group.place.wave, group.place.slot)
    ranked = sorted(right, key=lambda r: (r.score.parts.get(by, 0.0) if r.score else 0.0, r.attempt))
    drawn = [wrong[i] for i in rng.permutation(len(wrong))[: max(size - some, 0)]]
    return group.of(sorted(ranked[:some] + drawn, key=lambda r: r.attempt))


def _mark(rollout: Rollout) -> float:
    score = rollout.mark or rollout.score
    return score.value if score else 0.0
