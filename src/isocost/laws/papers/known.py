"""All laws in one list, and the fit of those of one variable to a table of points.

`isocost laws` prints `LAWS`, and docs/laws.md explains them. A law of one variable has a fit from x to y here; the
others need more than a table of points and are called from Python.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy import ndarray
from scipy.special import stdtrit

from isocost.errors import UserError
from isocost.laws.papers.data import fit_gap
from isocost.laws.papers.inference import fit_saturation
from isocost.laws.papers.value import fit_data
from isocost.stats.forms import LOG_SIGMOID, POWER, POWER_CONSTANT, SIGMOID, Form, fit_form


@dataclass(frozen=True)
class PublishedLaw:
    """A law: its equation, source, required data and location; and its fit, if it is a law of one x and y.

    `logs` names the parameters above 0, whose intervals are computed on logarithms.
    """

    name: str
    equation: str
    source: str
    data: str
    where: str
    fit: Callable[[ndarray, ndarray], dict[str, float]] | None = None
    logs: tuple[str, ...] = ()
    bounds: Mapping[str, tuple[float, float]] | None = None


@dataclass(frozen=True)
class Points:
    """(K,) x and y, and the run of each point; if the table names no runs (`runs_named`), each point is a run."""

    x: ndarray
    y: ndarray
    run: ndarray
    runs_named: bool

    @property
    def runs(self) -> int:
        return len(np.unique(self.run))


@dataclass(frozen=True)
class ParameterEstimate:
    """A parameter with its interval; its ends are NaN if the data do not determine them."""

    name: str
    value: float
    low: float
    high: float


def _form(form: Form) -> Callable[[ndarray, ndarray], dict[str, float]]:
    return lambda x, y: fit_form(form, x, y).parameters


def _saturation(x: ndarray, y: ndarray) -> dict[str, float]:
    found = fit_saturation(x, y)
    return {"F_max": found.plateau, "p": found.p}


def _gap(x: ndarray, y: ndarray) -> dict[str, float]:
    found = fit_gap(x, y)
    return {"beta": found.beta, "alpha": found.alpha}


def _samples(x: ndarray, y: ndarray) -> dict[str, float]:
    found = fit_data(x, y)
    return {"D_min": found.least, "b": found.b * found.scale ** (1 / found.a), "a": found.a}


_SHARE = (0.0, 1.0)
LAWS = {law.name: law for law in (
    PublishedLaw(
        "sigmoid", "R(C) = R0 + (A - R0) / (1 + (Cmid / C)^b)", "ScaleRL, arXiv 2510.13786; in examples: 2512.20061",
        "mean held-out reward at several C (rollouts, examples, steps) beyond the midpoint", "stats.forms.SIGMOID",
        _form(SIGMOID), ("Cmid", "b"), {"R0": _SHARE, "A": _SHARE}),
    PublishedLaw(
        "log-sigmoid", "log2 n*(C) = L + (U - L) / (1 + (C0 / C)^k)", "IsoCompute, arXiv 2603.12151",
        "log2 of the best n at several C", "stats.forms.LOG_SIGMOID", _form(LOG_SIGMOID), ("k", "C0")),
    PublishedLaw(
        "power", "y = D x^-b", "IsoCompute, arXiv 2603.12151 (the alternative that is compared against)",
        "any y at several x", "stats.forms.POWER", _form(POWER)),
    PublishedLaw(
        "power-constant", "y = A - D x^-b", "ScaleRL's limit at large C, arXiv 2510.13786",
        "any y with an asymptote, at several x", "stats.forms.POWER_CONSTANT", _form(POWER_CONSTANT), ("b",)),
    PublishedLaw(
        "learning-rate", "lr = lr0 (n B / reference)^a", "IsoCompute, arXiv 2603.12151",
        "the best of several rates at two batch sizes", "planner.training.learning_rate"),
    PublishedLaw(
        "size", "ln L(N, X) = -K_max N / (N + N_0) ln X + E(N)", "Scaling Behaviors, arXiv 2509.25300",
        "1 - pass@1 along runs of two sizes N or more", "laws.papers.size.fit_size"),
    PublishedLaw(
        "size-floor", "L(N, X) = ((N_0 / N)^beta + B(N) / (X + X_0(N)))^alpha", "the same, its repository",
        "1 - pass@1 along runs of three sizes or more that bend", "laws.papers.size.fit_floored"),
    PublishedLaw(
        "data", "1 - score = beta X^alpha", "Data Scaling in Imitation Learning, arXiv 2410.18647",
        "score (y) at several numbers of environments or objects (x)", "laws.papers.data.fit_gap", _gap, ("beta",)),
    PublishedLaw(
        "saturation", "F(N) = F_max (1 - (1 - p)^N)", "TTSPM, arXiv 2505.20522",
        "accuracy (y) with N attempts or rounds (x)", "laws.papers.inference.fit_saturation", _saturation,
        ("p",), {"F_max": _SHARE, "p": _SHARE}),
    PublishedLaw(
        "co-scaling", "ln(-ln pass@k) = a0 + a1 ln T + a2 ln^2 T + (b0 + b1 ln T) ln k",
        "power of k at each T: arXiv 2412.15287; joint in T: isocost",
        "right samples of m per problem at three temperatures or more", "laws.papers.inference.best_temperatures"),
    PublishedLaw(
        "size-or-samples", "factor = M + 3 (D_pre / D_inf) (M - 1)", "Snell et al., arXiv 2408.03314",
        "a model M times larger, tokens of pretraining and inference", "laws.papers.inference.worth_of_size"),
    PublishedLaw(
        "strategy", "argmax of accuracy in each bin of difficulty, cross-validated", "Snell et al., arXiv 2408.03314",
        "difficulty and each strategy's accuracy per problem, at equal budgets",
        "laws.papers.strategy.by_difficulty"),
    PublishedLaw(
        "heterogeneity", "sigma_x^2 = sum_h E[Var_a Q(s_h, a)]", "verifier or cloning, arXiv 2502.12118",
        "two-level returns of two sampled answers or more per problem", "laws.papers.verification.spreads"),
    PublishedLaw(
        "samples", "D(sigma) = D_min + (b / sigma)^a", "Value-Based RL Scales Predictably, arXiv 2502.04327",
        "samples (y) to reach J at several updates per sample (x)", "laws.papers.value.fit_data", _samples,
        ("D_min", "b", "a")),
    PublishedLaw(
        "batch-and-rate", "B*(sigma), eta*(sigma): lines in logarithms, one slope for all", "the same",
        "best batch or rate per environment and sigma", "laws.papers.value.fit_lines"),
    PublishedLaw(
        "samples-and-size", "D(sigma, N) = D_min (1 + (a / sigma)^alpha + (b / N)^beta)",
        "Compute-Optimal Value-Based RL, arXiv 2508.14881", "samples to reach J over sigmas and critic sizes",
        "laws.papers.value.fit_sized_data"),
    PublishedLaw(
        "batch-and-size", "B(sigma, N) = a / (sigma^alpha (1 + (b / N)^beta))", "the same",
        "best batch over sigmas and critic sizes", "laws.papers.value.fit_sized_batch"),
)}


def read_points(path: Path, x: str = "x", y: str = "y", run: str = "run") -> Points:
    """A CSV file with a header and these columns; without the column of runs each point is its own run.

    Raises UserError for a file that cannot be read, a missing column, or a cell that is not a finite number.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as e:
        raise UserError(f"{path} cannot be read as CSV: {e}") from None
    if not rows:
        raise UserError(f"{path} has no rows below its header")
    for name in (x, y):
        if name not in rows[0]:
            have = ", ".join(map(str, rows[0]))
            raise UserError(f"{path} has no column {name!r}; it has {have} (choose with --x and --y)")
    values = np.empty((2, len(rows)))
    for i, row in enumerate(rows):
        for j, name in enumerate((x, y)):
            try:
                values[j, i] = float(row[name])
            except (TypeError, ValueError):
                raise UserError(f"{path}, line {i + 2}: {name} is {row[name]!r}, not a number") from None
    if not np.isfinite(values).all():
        raise UserError(f"{path} contains a value that is not finite")
    runs_named = run in rows[0]
    labels = [str(row[run]) for row in rows] if runs_named else [str(i) for i in range(len(rows))]
    return Points(values[0], values[1], np.unique(labels, return_inverse=True)[1], runs_named)


def estimate(law: PublishedLaw, points: Points, level: float = 0.9) -> list[ParameterEstimate]:
    """The law's parameters with intervals: a jackknife over runs (points, if the table names no runs).

    Student's t with runs - 1 degrees of freedom, or points minus parameters; more checkpoints of the same runs do not
    narrow it. Ends are NaN with fewer than three runs, or if the fit fails without one of them. Raises UserError for a
    law that is not one of x and y.
    """
    if law.fit is None:
        able = ", ".join(k for k, v in LAWS.items() if v.fit)
        raise UserError(f"{law.name} needs more than a table of points: see isocost.{law.where}; tables fit {able}")
    whole = law.fit(points.x, points.y)
    names, units = list(whole), np.unique(points.run)
    dof = len(units) - (1 if points.runs_named else len(names))
    ends = np.full((len(names), 2), np.nan)
    if len(units) >= 3 and dof >= 1:
        try:
            folds = [law.fit(points.x[points.run != u], points.y[points.run != u]) for u in units]
        except UserError:
            folds = []
        for i, name in enumerate(names if folds else []):
            log = name in law.logs
            centre = np.log(whole[name]) if log else whole[name]
            moved = np.array([fold[name] for fold in folds])
            moved = np.log(moved) if log else moved
            error = np.sqrt((len(units) - 1) / len(units) * ((moved - moved.mean()) ** 2).sum())
            pair = centre + np.array([-1, 1]) * stdtrit(dof, (1 + level) / 2) * error
            pair = np.exp(np.minimum(pair, 690.0)) if log else pair
            ends[i] = np.clip(pair, *(law.bounds or {}).get(name, (-np.inf, np.inf)))
    return [ParameterEstimate(n, float(whole[n]), float(a), float(b)) for n, (a, b) in zip(names, ends, strict=True)]
