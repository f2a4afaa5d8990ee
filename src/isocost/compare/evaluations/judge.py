"""Judge which of several evaluations is better, problem by problem, and what it would take to tell.

Arms are paired by problem. The answer is the better arm if the interval of the difference excludes 0, `same` if all of
it lies within the margin, else `cannot tell`. All pairs together err at most at the comparison's rate (Holm 1979).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from math import inf, sqrt
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from isocost.compare.asked import ALPHA, ask
from isocost.compare.design import labels_of
from isocost.compare.evaluations.files import EvaluationScores, evaluations_in, read
from isocost.compare.judge import DIFFERENT, MARGIN, SAME, UNKNOWN
from isocost.disk.jsonfile import finite
from isocost.errors import UserError
from isocost.runs.files import canonical
from isocost.screen.display import Result, Row, Table, given
from isocost.screen.words import counted, grouped
from isocost.stats.paired import PairSpread, difference, exact_p, mean_of, problems_needed, samples_needed
from isocost.stats.power import Estimate, error_shares, seeds_for, smallest
from isocost.steps.folder import StudyFolder, writing

LEAST = 0.5             # share of an arm's problems that the other must have too


@dataclass(frozen=True)
class EvaluatedArm:
    """The scores of one arm: `mean` over its problems, with the standard error `se` that counts a problem once, or a
    cluster; `naive` is the error if all samples were independent."""

    name: str
    files: tuple[str, ...]
    written_by: str
    metric: str
    problems: int
    samples: int
    unscored: int
    mean: float
    se: float
    naive: float


@dataclass(frozen=True)
class EvaluatedPair:
    """The answer on arms `a` and `b`: the better one, `same` or `cannot tell`.

    `value` is a minus b over the `problems` that both have, with the interval from `low` to `high` at `level`, and `p`
    of no difference. `left_out` are problems that only one has. `detectable` is the difference found with 80 % power.
    `to_tell` are ways to an answer, in words; empty where there is one.
    """

    a: str
    b: str
    answer: str
    value: float
    low: float
    high: float
    level: float
    p: float
    detectable: float
    problems: int
    left_out: int
    to_tell: tuple[str, ...]


@dataclass(frozen=True)
class EvaluationComparison(Result):
    """Evaluations that were compared problem by problem. `number` is that of the question in its log, None without."""

    arms: tuple[EvaluatedArm, ...]
    pairs: tuple[EvaluatedPair, ...]
    margin: float
    number: int | None
    notes: tuple[str, ...]
    file: Path | None = None

    @property
    def exit_code(self) -> int:
        """For scripts: 0 if two arms differ, 3 if all are the same within the margin, else 4."""
        answers = {p.answer for p in self.pairs}
        return DIFFERENT if answers - {"same", "cannot tell"} else SAME if answers == {"same"} else UNKNOWN

    @property
    def heading(self) -> str:
        return _said(self.pairs[0], self.margin) if len(self.pairs) == 1 else f"{len(self.arms)} evaluations"

    def rows(self) -> Sequence[Row | Table]:
        """The arms, the pairs, what it would take to tell, and the notes."""
        arms = Table(
            ("", "problems", "samples", "mean", "± s.e.", "if independent", "score", "written by"),
            [(a.name, f"{a.problems:,}", f"{a.samples:,}", f"{a.mean:.4f}", f"{a.se:.4f}", f"{a.naive:.4f}", a.metric,
              a.written_by) for a in self.arms], (0, 6, 7),
        )
        said = [Row("", _said(p, self.margin)) for p in self.pairs] if len(self.pairs) > 1 else []
        told = [Row("" if i else "to tell" if len(self.pairs) == 1 else f"to tell {p.a} from {p.b}", way)
                for p in self.pairs for i, way in enumerate(p.to_tell)]
        asked = "" if self.number is None else (
            f"question {self.number} of its log, answered at an error rate of {1 - self.pairs[0].level:.2g}")
        return given(arms, *said, *told, Row("asked", asked), *(Row("", note, "flag") for note in self.notes))

    def to_dict(self) -> dict[str, Any]:
        data = {"arms": [asdict(a) for a in self.arms], "pairs": [asdict(p) for p in self.pairs],
                "margin": self.margin, "question": self.number, "notes": self.notes}
        return dict(finite(data))


def compare_evaluations(
    arms: Sequence[str | Path], *, metric: str = "", margin: float = MARGIN, columns: Mapping[str, str] | None = None,
    log: str | Path | None = None, out: str | Path | None = None,
) -> EvaluationComparison:
    """Judge evaluations that are on disk. Each arm is a file, or a folder with one file for each seed of training.

    `metric` chooses among several scores; `margin` is the difference below which two arms count as the same, in the
    unit of the score; `columns` name a plain file's columns. With `log`, the question is counted there
    (`isocost.compare.asked`). With `out`, the answer is kept in `out/comparison.json`.

    Raises UserError for fewer than two arms, a file that cannot be read, arms that share less than half of their
    problems, or folders with different numbers of files.
    """
    if len(arms) < 2:
        raise UserError(f"a comparison needs at least two arms, got {len(arms)}")
    labels = labels_of([str(a) for a in arms])
    read_in = {label: [read(f, metric, columns) for f in _files(Path(arm))]
               for label, arm in zip(labels, arms, strict=True)}
    alpha, number = ALPHA, None
    if log is not None:
        question = canonical([sorted(e.hash for e in own) for own in read_in.values()] + [metric, margin])
        alpha, number = ask(Path(log), hashlib.sha256(question.encode()).hexdigest()[:16],
                            f"{' or '.join(labels)}: {next(iter(read_in.values()))[0].metric}, margin {margin:g}")
    pairs = [(a, b, _gap(a, read_in[a], b, read_in[b])) for a, b in combinations(labels, 2)]
    levels = error_shares([[gap.p for _, _, gap in pairs]], [alpha])[0]
    answer = EvaluationComparison(
        tuple(_arm(label, own) for label, own in read_in.items()),
        tuple(_answer(a, b, gap, margin, error) for (a, b, gap), error in zip(pairs, levels, strict=True)),
        margin, number, tuple(_notes(read_in)),
    )
    if out is None:
        return answer
    with writing(Path(out)):
        StudyFolder(Path(out)).write("comparison.json", {**answer.to_dict(), "files": [str(a) for a in arms]})
    return replace(answer, file=Path(out) / "comparison.json")


def _files(arm: Path) -> list[Path]:
    """The evaluation files of an arm, in order of name. Raises UserError if there are none."""
    if arm.is_file():
        return [arm]
    found = evaluations_in(arm)
    if not found:
        raise UserError(f"{arm} holds no evaluation file")
    return found


# one pair ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Gap:
    """What is known of the difference of two arms; `spent` are tokens per sample of a pair, None if not known."""

    mean: Estimate
    spread: PairSpread
    p: float
    problems: int
    left_out: int
    samples: float
    seeds: int
    spent: float | None


def _gap(a: str, mine: Sequence[EvaluationScores], b: str, theirs: Sequence[EvaluationScores]) -> _Gap:
    if len(mine) != len(theirs):
        raise UserError(f"{a} has {counted(len(mine), 'file')} and {b} {len(theirs)}: give both as many, one for each "
                        "seed, in the same order of names")
    all_a, all_b = _pooled(mine), _pooled(theirs)
    shared = [p for p in all_a if p in all_b]
    most = max(len(all_a), len(all_b))
    if len(shared) < max(2, LEAST * most):
        raise UserError(f"{a} and {b} cannot be compared: they share {len(shared)} of {most:,} problems, such as "
                        f"{next(iter(all_a))!r} and {next(iter(all_b))!r}; name the problems alike in both, with --map "
                        "problem=COLUMN in files of rows")
    clusters = _clusters(f"{a} and {b}", (*mine, *theirs), shared)
    seeds = np.array([_mean(x, shared) - _mean(y, shared) for x, y in zip(mine, theirs, strict=True)])
    one, other = [all_a[p] for p in shared], [all_b[p] for p in shared]
    mean, spread = difference(one, other, clusters, seeds)
    gaps = np.array([x.mean() - y.mean() for x, y in zip(one, other, strict=True)])
    single = clusters is None and len(seeds) == 1 and max(map(len, (*one, *other))) == 1
    exact = exact_p(gaps) if single and set(np.concatenate([*one, *other])) <= {0.0, 1.0} else None
    tokens = [e.tokens for e in (*mine, *theirs)]
    samples = sum(e.samples for e in (*mine, *theirs))
    spent = None if None in tokens else 2 * sum(t for t in tokens if t is not None) / samples
    return _Gap(mean, spread, mean.p if exact is None else exact, len(shared),
                len(all_a) + len(all_b) - 2 * len(shared), float(np.mean([(len(x) + len(y)) / 2 for x, y in
                zip(one, other, strict=True)])), len(seeds), spent)


def _pooled(files: Sequence[EvaluationScores]) -> dict[str, ndarray]:
    """The scores of each problem, of all files of an arm."""
    found: dict[str, list[float]] = {}
    for e in files:
        for problem, scores in e.scores.items():
            found.setdefault(problem, []).extend(scores)
    return {k: np.array(v) for k, v in found.items()}


def _clusters(where: str, files: Sequence[EvaluationScores], problems: Sequence[str]) -> list[str] | None:
    """The cluster of each problem; one without is a cluster of its own. None if no file has clusters. Raises UserError
    if all are of one cluster."""
    found = {k: v for e in files for k, v in e.clusters.items()}
    clusters = [f"cluster {found[p]}" if p in found else f"problem {p}" for p in problems] if found else None
    if clusters is not None and len(set(clusters)) < 2:
        raise UserError(f"all problems of {where} are of {clusters[0]}: an interval needs at least two clusters; name "
                        "another column with --map cluster=COLUMN")
    return clusters


def _mean(e: EvaluationScores, problems: Sequence[str]) -> float:
    return float(np.mean([np.mean(e.scores[p]) for p in problems if p in e.scores]))


def _answer(a: str, b: str, gap: _Gap, margin: float, alpha: float) -> EvaluatedPair:
    low, high = gap.mean.interval(alpha)
    better = (low > 0 or high < 0) and gap.p < alpha
    same = -margin < low and high < margin
    answer = (a if gap.mean.value > 0 else b) if better else "same" if same else "cannot tell"
    told = _to_tell(gap, margin, alpha) if answer == "cannot tell" else ()
    return EvaluatedPair(a, b, answer, gap.mean.value, low, high, 1 - alpha, gap.p,
                         smallest(gap.mean.se, gap.mean.dof, alpha), gap.problems, gap.left_out, told)


def _to_tell(gap: _Gap, margin: float, alpha: float) -> tuple[str, ...]:
    """Ways to an answer: more problems, more samples of each, more seeds, with their cost in tokens."""
    effect = max(abs(gap.mean.value), margin)
    which = "the one observed" if effect > margin else "the margin"
    ways = [f"a difference of {effect:.3g} ({which}) is found with 80 % power by:"]
    within = (gap.spread.sample or 0.0) / gap.samples
    if needed := problems_needed(gap.spread.problems + within, effect, alpha, gap.spread.unseen):
        ways.append(f"{needed:,} problems instead of {gap.problems:,}, {counted(round(gap.samples), 'sample')} of each"
                    f"{_cost((needed - gap.problems) * gap.samples, gap.spent)}")
    samples = samples_needed(gap.spread, gap.problems, effect, alpha)
    if samples is None:
        ways.append("whether more samples of each problem would do is not known: no problem has two from both arms")
    elif samples == inf:
        ways.append("no number of samples of these problems: the arms differ too much from problem to problem")
    elif samples > gap.samples:
        ways.append(f"{samples:,.0f} samples of each problem instead of {gap.samples:.3g}"
                    f"{_cost((samples - gap.samples) * gap.problems, gap.spent)}")
    if gap.spread.seed is not None:
        needed = seeds_for(effect, sqrt(gap.spread.seed / 2), level=1 - alpha)
        ways.append(f"and at least {needed or 'ten thousand'} seeds of training instead of {gap.seeds}")
    return tuple(ways)


def _cost(samples: float, spent: float | None) -> str:
    """What more samples cost, in both arms."""
    if samples <= 0:
        return ""
    return f": {grouped(2 * samples)} samples more" + ("" if spent is None else f", {grouped(samples * spent)} tokens")


# arms ----------------------------------------------------------------------------------------------------------


def _arm(label: str, files: Sequence[EvaluationScores]) -> EvaluatedArm:
    pooled = _pooled(files)
    if len(pooled) < 2:
        raise UserError(f"{label} has one problem: an evaluation needs at least two")
    clusters, scores = _clusters(label, files, list(pooled)), np.concatenate(list(pooled.values()))
    robust, naive = mean_of(np.array([x.mean() for x in pooled.values()]), clusters), mean_of(scores)
    return EvaluatedArm(label, tuple(str(e.path) for e in files), files[0].written_by, files[0].metric, len(pooled),
                        len(scores), sum(e.unscored for e in files), robust.value, robust.se, naive.se)


def _notes(arms: Mapping[str, Sequence[EvaluationScores]]) -> list[str]:
    notes = [f"{label}: {counted(k, 'sample')} without a score, left out" for label, own in arms.items()
             if (k := sum(e.unscored for e in own))]
    metrics = {e.metric for own in arms.values() for e in own}
    if len(metrics) > 1:
        notes.append(f"the scores have different names: {', '.join(sorted(metrics))}; nothing shows that they measure "
                     "the same")
    hashes = [e.hash for own in arms.values() for e in own]
    if len(set(hashes)) < len(hashes):
        notes.append("two of the files hold the same scores")
    return notes


def _said(pair: EvaluatedPair, margin: float) -> str:
    inside = f"{pair.value:+.4f} [{pair.low:+.4f}, {pair.high:+.4f}] at {pair.level:.2%}"
    where = f"{counted(pair.problems, 'shared problem')}"
    where += f", {pair.left_out:,} that only one has left out" if pair.left_out else ""
    if pair.answer == "same":
        return f"{pair.a} and {pair.b} are the same within {margin:g}: {inside}, {where}"
    if pair.answer == "cannot tell":
        return (f"cannot tell {pair.a} from {pair.b}: {inside}, {where}; found with 80 % power: a difference of "
                f"{pair.detectable:.3g}")
    return f"{pair.answer} is better: {pair.a} minus {pair.b} is {inside}, p = {pair.p:.2g}, {where}"
