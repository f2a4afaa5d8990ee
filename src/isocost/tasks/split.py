"""Training and held-out problems, split by a hash of their prompts.

The hash ignores case, spacing and compatibility forms, so the same question is always in the same split, and added
problems move no others. Held-out problems are split again: `select`, the validation split, chooses between arms;
`audit`, the test split, gives the reported values.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from isocost.errors import UserError
from isocost.screen.words import counted
from isocost.tasks import text
from isocost.types import Problem

EFFECT = 0.02          # the difference in mean reward that a held-out set should detect
SPREAD = 0.1           # assumed standard deviation over problems of the true difference between two arms
QUANTILES = 1.645 + 0.842   # one-sided 5 % error, 80 % power


@dataclass(frozen=True, slots=True)
class Split:
    """Training problems, and held out: `select`, the validation split, and `audit`, the test split."""

    train: tuple[Problem, ...]
    select: tuple[Problem, ...]
    audit: tuple[Problem, ...]
    warnings: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()   # ids of training problems left out because they are held out too

    @property
    def held_out(self) -> tuple[Problem, ...]:
        return self.select + self.audit

    def evaluated(self, problems: int, *, salt: int = 0) -> Split:
        """The same with this many held-out problems, by hash, from both splits in proportion, at least one of each."""
        first = min(max(round(problems * len(self.select) / len(self.held_out)), 1), max(problems - 1, 1))
        return replace(self, select=_some(self.select, first, salt), audit=_some(self.audit, problems - first, salt))


def split(
    problems: Sequence[Problem], held_out: int | float = 0.2, *, salt: int = 0, samples: int | None = None
) -> Split:
    """Hold out a share (below 1), or about a number (1 or more), of the problems.

    With a share, a problem never changes its split. A number becomes its share of these problems, rounded up to a
    multiple of 1/1024 so that a few more rows rarely change it; the size is then approximate. `salt` makes another
    split; `samples` is the number of attempts per held-out problem (None: evaluated exactly, as are problems that
    allow it).

    Raises UserError if a split would be empty.
    """
    share = _share(held_out, len(problems))
    train: list[Problem] = []
    select: list[Problem] = []
    audit: list[Problem] = []
    for problem in problems:
        side, half = _hash(problem, salt)
        (train if side >= share else select if half < 0.5 else audit).append(problem)
    for name, side_ in (("training", train), ("validation", select), ("test", audit)):
        if not side_:
            more = "give at least 3 problems, one for each split" if len(problems) < 3 else \
                f"give more problems, or a {'smaller' if name == 'training' else 'larger'} --held-out"
            raise UserError(f"holding out {held_out:g} of {counted(len(problems), 'problem')} leaves the {name} split "
                            f"empty: {more}")
    return Split(tuple(train), tuple(select), tuple(audit), tuple(_small(select, audit, samples)))


def split_given(
    train: Sequence[Problem], held_out: Sequence[Problem], *, salt: int = 0, samples: int | None = None
) -> Split:
    """Use a separate held-out set, whose prompts are `removed` from training. Raises UserError for an empty split."""
    known = {text.kin(p) for p in held_out}
    kept = tuple(p for p in train if text.kin(p) not in known)
    removed = tuple(p.id for p in train if text.kin(p) in known)
    select = tuple(p for p in held_out if _hash(p, salt)[1] < 0.5)
    audit = tuple(p for p in held_out if _hash(p, salt)[1] >= 0.5)
    for name, side in (("training", kept), ("validation", select), ("test", audit)):
        if not side:
            more = "training problems with other prompts than the held-out ones" if name == "training" else \
                "more held-out problems"
            raise UserError(f"{len(held_out)} held-out and {len(train)} training problems leave the {name} split "
                            f"empty: give {more}")
    same = f"{len(removed)} training problems have the prompts of held-out ones, and were left out"
    warnings = [same] if removed else []
    return Split(kept, select, audit, (*warnings, *_small(select, audit, samples)), removed)


def _some(problems: Sequence[Problem], count: int, salt: int) -> tuple[Problem, ...]:
    """`count` of these, chosen by another hash of their prompts than the one for the split; in their order."""
    first = sorted(range(len(problems)), key=lambda i: _hash(problems[i], salt + 1)[1])[:count]
    return tuple(problems[i] for i in sorted(first))


def overlap(train: Sequence[Problem], held_out: Sequence[Problem]) -> list[tuple[str, str]]:
    """Pairs of ids (training, held out) with the same prompt, ignoring case, spacing and compatibility forms."""
    known = {text.kin(p): p.id for p in held_out}
    return [(p.id, known[text.kin(p)]) for p in train if text.kin(p) in known]


def detectable(problems: int, samples: int | None = None) -> float:
    """The minimum detectable difference in mean reward between two arms with this many held-out problems.

    One-sided 5 % error, 80 % power, both arms on the same problems. Per problem the variance is that of the true
    difference (assumed 0.1^2) plus, with `samples` attempts drawn per arm, at most 2 x (1/4) / samples.
    """
    sampling = 0.0 if samples is None else 0.5 / samples
    return QUANTILES * math.sqrt((SPREAD**2 + sampling) / problems)


def needed(effect: float = EFFECT, samples: int | None = None) -> int:
    """The number of held-out problems that detect this difference, by the rule of `detectable`."""
    return math.ceil((detectable(1, samples) / effect) ** 2)


def _share(held_out: int | float, problems: int) -> float:
    if not (isinstance(held_out, int | float) and held_out > 0):
        raise UserError(f"held-out is a share below 1 or a number of problems, not {held_out!r}")
    if held_out < 1:
        return float(held_out)
    if held_out != int(held_out):
        raise UserError(f"held-out is a share below 1 or a whole number of problems, not {held_out!r}")
    if held_out >= problems:
        raise UserError(f"cannot hold out {held_out:g} of {problems} problems")
    return math.ceil(1024 * held_out / problems) / 1024


def _hash(problem: Problem, salt: int) -> tuple[float, float]:
    """Two numbers in [0, 1) that depend only on the prompt and the salt."""
    digest = hashlib.sha256(f"{salt}\n{text.kin(problem)}".encode()).digest()
    return int.from_bytes(digest[:6]) / 2**48, int.from_bytes(digest[6:12]) / 2**48


def _small(select: Sequence[Problem], audit: Sequence[Problem], samples: int | None) -> list[str]:
    if all(p.meta.get("exact") for p in (*select, *audit)):
        samples = None
    smallest = min(len(select), len(audit))
    if detectable(smallest, samples) <= EFFECT:
        return []
    how = "exactly" if samples is None else f"with {samples} samples each"
    return [
        f"minimum detectable difference with {len(select):,} validation and {len(audit):,} test problems, evaluated "
        f"{how}: about {detectable(smallest, samples):.3f} (80 % power); for {EFFECT:g} each split needs about "
        f"{needed(EFFECT, samples):,} problems"
    ]
